"""The common part of Ant and Humanoid, which run towards a distant target, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/ant.py and tasks/humanoid.py (NVIDIA, BSD-3-Clause).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import (
    DT,
    MAX_EPISODE_LENGTH,
    PROGRESS,
    SimTask,
    actions,
    body_state,
    contact_forces,
)

TARGET = (1000.0, 0.0, 0.0)  # m: too far to reach in an episode
FORWARD, UP, UNTURNED = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0)


class Locomotion(SimTask):
    """A robot with motors in all joints, force-torque sensors at its feet, and a target to run to.

    Potentials are minus the horizontal distance to the target divided by the control step, so that their increase in a
    step is a speed, m/s. Potentials and the torso's directions are refreshed after the physics of a step and where an
    episode begins.

    Attributes:
        start_height: height of the torso where episodes begin, m.
    """

    start_height: float
    goal_keys = ("targets",)
    kept_keys = ("potentials", "prev_potentials", "up_vec", "heading_vec")
    default_action_dim = None  # torques, as in IsaacGymEnvs; or a candidate may command the model's drives
    ignored_keys = ("env.enableDebugVis",)

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        self.default_state = {
            "root_states": self.state["initial_root_states"],
            "dof_pos": self.state["initial_dof_pos"],
            "dof_vel": torch.zeros_like(sim.dof_vel),
        }
        # each number of an axis is made of two products of quaternion components x y z w, times two:
        # forward (1 - yy - zz, xy + wz, xz - wy), up (xz + wy, yz - wx, 1 - xx - yy)
        terms = ("yy", "xy", "xz", "xz", "yz", "xx", "zz", "wz", "wy", "wy", "wx", "yy")
        self._terms = torch.tensor([4 * "xyzw".index(a) + "xyzw".index(b) for a, b in terms], device=self.device)
        signs = [-1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0]
        self._signs = torch.tensor(signs, device=self.device)
        self._ones = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 1.0], device=self.device)
        self._refresh({**self._directions(), **self._potentials()})
        self.state["prev_potentials"].copy_(self.state["potentials"])

    def step(self, command: Tensor) -> None:
        super().step(command)
        self.state["prev_potentials"].copy_(self.state["potentials"])
        self._refresh({**self._directions(), **self._potentials()})

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        super().reset(mask, initial, goal)
        if initial:
            self._refresh(self._directions(), mask)
        potentials = self._potentials()["potentials"]
        self._refresh({"potentials": potentials, "prev_potentials": potentials}, mask)

    def ends(self) -> dict[str, Tensor]:
        low = self.state["root_states"][:, 2] < self.constants["termination_height"].item()
        return {"torso below termination_height": low}

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        offset, distance = _to_target(state)
        along = state["root_states"][:, 7:9] * offset
        return (along[:, 0] + along[:, 1]) / distance

    # Only products, sums, quotients and roots, one operation at a time, so that rounding does not depend on the number
    # of environments; and few, because each is a launch on CUDA.

    def _directions(self) -> dict[str, Tensor]:
        """Return the torso's x and z axes, columns of its rotation matrix, which are forward and up."""
        quat = self.state["root_states"][:, 3:7]
        products = ((2.0 * quat).unsqueeze(2) * quat.unsqueeze(1)).flatten(1)
        pairs = torch.index_select(products, 1, self._terms) * self._signs
        axes = self._ones + pairs.view(-1, 2, 6).sum(dim=1)
        return {"heading_vec": axes[:, :3], "up_vec": axes[:, 3:]}

    def _potentials(self) -> dict[str, Tensor]:
        return {"potentials": _to_target(self.state)[1] / -self.dt}

    def _refresh(self, values: dict[str, Tensor], mask: Tensor | None = None) -> None:
        """Write to the state in place, everywhere or where ``mask`` is True."""
        for key, value in values.items():
            live = self.state[key]
            if mask is not None:
                value = torch.where(mask.view(-1, *[1] * (live.dim() - 1)), value, live)
            live.copy_(value)


def _to_target(state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the horizontal vector from torso to target ``(n, 2)``, and its length ``(n,)``, m, at least 1 nm."""
    offset = state["targets"][:, :2] - state["root_states"][:, :2]
    squares = offset * offset
    return offset, torch.sqrt(squares[:, 0] + squares[:, 1]).clamp(min=1e-9)


def _middle(task: Locomotion) -> Tensor:
    lower, upper = task.sim.dof_limits_lower, task.sim.dof_limits_upper
    return task.per_env(torch.clamp(torch.zeros_like(lower), lower, upper).tolist())


def _sensors(task: Locomotion) -> Tensor:
    return task.sim.sensor_forces.view(task.num_envs, 6 * len(task.sensor_names))


def _feet(task: Locomotion) -> Tensor:
    return torch.tensor([task.body_names.index(name) for name in task.sensor_names])


_BASELINE_NUMBERS = {
    "termination_height": Field(None, "m", "a torso lower than this has fallen", "cfg.env.terminationHeight"),
    "death_cost": Field(None, "-", "the human baseline's reward for a fall", "cfg.env.deathCost"),
    "heading_weight": Field(None, "-", "of the human baseline's reward for facing the target", "cfg.env.headingWeight"),
    "up_weight": Field(None, "-", "of the human baseline's reward for an upright torso", "cfg.env.upWeight"),
    "actions_cost_scale": Field(None, "-", "of the human baseline's cost of actions", "cfg.env.actionsCost"),
    "energy_cost_scale": Field(None, "-", "of the human baseline's cost of energy", "cfg.env.energyCost"),
    "joints_at_limit_cost_scale": Field(
        None, "-", "of the human baseline's cost of joints at their limits", "cfg.env.jointsAtLimitCost"
    ),
    "power_scale": Field(
        None, "-", "torque of the baselines = action * motor_efforts * power_scale", "cfg.env.powerScale"
    ),
    "dof_vel_scale": Field(None, "s/rad", "observation scale of joint velocities", "cfg.env.dofVelocityScale"),
    "contact_force_scale": Field(
        None, "1/N, 1/(N m)", "observation scale of forces and torques", "cfg.env.contactForceScale"
    ),
}


def fields(dofs: str, sensors: str, num_dofs: int, num_bodies: int, num_sensors: int) -> dict[str, Field]:
    """Return the fields that Ant and Humanoid share; ``dofs`` and ``sensors`` describe joints and sensors, in order."""
    d = num_dofs
    return {
        "root_states": body_state("torso", "sim.root_states"),
        "dof_pos": Field((d,), "rad", f"joint angles: {dofs}", "sim.dof_pos"),
        "dof_vel": Field((d,), "rad/s", "joint velocities", "sim.dof_vel"),
        "dof_force_tensor": Field(
            (d,), "N m", "torques that the motors applied in the last physics step", "sim.dof_force"
        ),
        "vec_sensor_tensor": Field(
            (6 * num_sensors,),
            "N, N m",
            f"contact force 3 and torque 3 at each sensor in the last physics step, in its body's frame: {sensors}",
            _sensors,
        ),
        "contact_forces": contact_forces(num_bodies),
        "actions": actions(d),
        "targets": Field(
            (3,), "m", "goal: where to run to; world frame; (1000, 0, 0) unless compute_goal sets it", TARGET
        ),
        "potentials": Field((), "m/s", "minus the horizontal distance to the target, divided by dt", 0.0),
        "prev_potentials": Field((), "m/s", "potentials before the last control step; at the start, potentials", 0.0),
        "up_vec": Field((3,), "-", "the torso's z axis; world frame", UP),
        "heading_vec": Field((3,), "-", "the torso's x axis, which points forward; world frame", FORWARD),
        "basis_vec0": Field((3,), "-", "forward in the torso's frame, (1, 0, 0)", FORWARD),
        "basis_vec1": Field((3,), "-", "up in the torso's frame, (0, 0, 1)", UP),
        "inv_start_rot": Field(
            (4,), "-", "inverse of the torso's orientation at the start, (0, 0, 0, 1), xyzw", UNTURNED
        ),
        "initial_root_states": Field(
            (13,),
            "as root_states",
            "torso at rest at its starting height, facing x",
            lambda task: task.per_env([0.0, 0.0, task.start_height, *UNTURNED, *[0.0] * 6]),
        ),
        "initial_dof_pos": Field((d,), "rad", "0, or the end of the joint's range that is next to 0", _middle),
        "progress_buf": PROGRESS,
        "dof_limits_lower": Field(None, "rad", f"lower ends of the joints' ranges, ({d},)", "sim.dof_limits_lower"),
        "dof_limits_upper": Field(None, "rad", f"upper ends of the joints' ranges, ({d},)", "sim.dof_limits_upper"),
        "motor_efforts": Field(None, "N m", f"greatest torques of the motors, ({d},)", "sim.effort_limits"),
        "max_motor_effort": Field(None, "N m", "the greatest of them", lambda task: task.sim.effort_limits.max()),
        "torso_index": Field(
            None, "-", "the torso in contact_forces", lambda task: torch.tensor(task.body_names.index("torso"))
        ),
        "extremities_index": Field(None, "-", "the bodies with sensors in contact_forces", _feet),
        "max_episode_length": MAX_EPISODE_LENGTH,
        "dt": DT,
        **_BASELINE_NUMBERS,
    }


def fitness_meaning(height: str) -> str:
    return (
        "forward speed: the torso's velocity along the horizontal direction to the target, m/s, averaged over the full"
        f" episode (0 after a fall: torso below {height}); 0 stands still, negative goes backwards, no upper end"
    )
