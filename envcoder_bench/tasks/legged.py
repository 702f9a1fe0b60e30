"""The common part of Anymal, AnymalTerrain and SpotTerrain: legs that track velocity commands.

Source of names and formulas: IsaacGymEnvs, tasks/anymal.py and tasks/anymal_terrain.py (NVIDIA, BSD-3-Clause).
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
    read,
)
from envcoder_bench.torch_utils import quat_rotate_inverse

START = "env.baseInitState"
STANCE = "env.defaultJointAngles"
# keys of the YAML that have an effect, beside the sources of the fields
CONFIG_KEYS = (
    *(START, "env.control.stiffness", "env.control.damping", "env.control.actionScale"),
    "env.learn.episodeLength_s",
)


class LeggedTask(SimTask):
    """A robot with legs and twelve joints with PD drives, which is commanded a velocity."""

    goal_keys = ("commands",)
    drive_formula = "joint position target = default_dof_pos + actionScale * action"
    default_action_dim = 12
    fitness_bounds = (0.0, 1.0)

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        self.action_scale = float(read(cfg, "env.control.actionScale"))
        self.default_state = {
            "root_states": self.state["initial_root_states"],
            "dof_pos": self.state["default_dof_pos"],
            "dof_vel": torch.zeros_like(sim.dof_vel),
        }

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        return self.action_scale * action + state["default_dof_pos"]

    def ends(self) -> dict[str, Tensor]:
        force = self.state["contact_forces"][:, int(self.constants["base_index"]), :]
        return {"the base touches the ground": torch.norm(force, p=2, dim=1) > 1.0}

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        """Compare the base's velocity along x and y and its yaw rate with the commands: ``(n,)``, 0 to 1."""
        root, commands = state["root_states"], state["commands"]
        lin_vel = quat_rotate_inverse(root[:, 3:7], root[:, 7:10])
        ang_vel = quat_rotate_inverse(root[:, 3:7], root[:, 10:13])
        lin_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
        yaw_error = torch.square(commands[:, 2] - ang_vel[:, 2])
        return (torch.exp(-lin_error / 0.25) + 0.5 * torch.exp(-yaw_error / 0.25)) / 1.5


def fitness_meaning(where: str = "") -> str:
    """Return the line for the header of a ranking; ``where`` describes the evaluation's episodes."""
    return (
        "velocity tracking: (exp(-|v_xy* - v_xy|^2/0.25) + 0.5 exp(-(w_z* - w_z)^2/0.25)) / 1.5, averaged over the full"
        f" episode (0 after a fall){where}; 0 to 1"
    )


def fields(
    joints: str,
    bodies: tuple[str, ...],
    knees: str,
    feet: str,
    commands: Field,
    yaw_range: Field,
    start: str = "base at rest in the default stance",
    more: Mapping[str, Field] | None = None,
    more_scales: Mapping[str, Field] | None = None,
) -> dict[str, Field]:
    """Return the fields of a task.

    Args:
        joints: description of the order of the joints.
        bodies: names of the bodies, ``<leg>_<link>``; the first is the base.
        knees, feet: the links that carry them.
        commands, yaw_range: the goal, and the range of its last number.
        start: description of ``initial_root_states``.
        more, more_scales: further fields of the state, and of the observation's scales.
    """
    legs = [name.rsplit("_", 1)[0] for name in bodies if name.endswith(f"_{feet}")]
    return {
        "root_states": body_state("base", "sim.root_states"),
        "dof_pos": Field((12,), "rad", f"joint angles; {joints}", "sim.dof_pos"),
        "dof_vel": Field((12,), "rad/s", "joint velocities", "sim.dof_vel"),
        "default_dof_pos": Field((12,), "rad", "joint angles of the default stance", _stance),
        "actions": actions(12),
        "commands": commands,
        "torques": Field((12,), "N m", "joint torques of the last physics step", "sim.dof_force"),
        "contact_forces": contact_forces(len(bodies)),
        **(more or {}),
        "gravity_vec": Field((3,), "-", "direction of gravity, (0, 0, -1)", (0.0, 0.0, -1.0)),
        "initial_root_states": Field((13,), "as root_states", start, _at_rest),
        "progress_buf": PROGRESS,
        "knee_indices": _bodies(legs, knees, "knees"),
        "feet_indices": _bodies(legs, feet, "feet", f"; {', '.join(legs)}"),
        "base_index": Field(None, "-", "the base in contact_forces", lambda task: torch.tensor(0)),
        "max_episode_length": MAX_EPISODE_LENGTH,
        "dt": DT,
        "lin_vel_scale": observation_scale("s/m", "linear velocities", "linearVelocityScale"),
        "ang_vel_scale": observation_scale("s/rad", "angular velocities", "angularVelocityScale"),
        "dof_pos_scale": observation_scale("1/rad", "joint angles", "dofPositionScale"),
        "dof_vel_scale": observation_scale("s/rad", "joint velocities", "dofVelocityScale"),
        **(more_scales or {}),
        "command_x_range": command_range("m/s", "command forward", "linear_x"),
        "command_y_range": command_range("m/s", "command to the left", "linear_y"),
        "command_yaw_range": yaw_range,
    }


def observation_scale(unit: str, of: str, key: str) -> Field:
    return Field(None, unit, f"observation scale of {of}", f"cfg.env.learn.{key}")


def command_range(unit: str, of: str, key: str) -> Field:
    return Field(None, unit, f"lowest and highest {of}, (2,)", f"cfg.env.randomCommandVelocityRanges.{key}")


def _at_rest(task: SimTask) -> Tensor:
    parts = ("pos", "rot", "vLinear", "vAngular")
    return task.per_env([x for part in parts for x in read(task.cfg, f"{START}.{part}")])


def _stance(task: SimTask) -> Tensor:
    return task.per_env([float(read(task.cfg, f"{STANCE}.{dof}")) for dof in task.dof_names])


def _bodies(legs: list[str], link: str, part: str, order: str = "") -> Field:
    def indices(task: SimTask) -> Tensor:
        return torch.tensor([task.body_names.index(f"{leg}_{link}") for leg in legs])

    return Field(None, "-", f"the 4 bodies {link} in contact_forces, which carry the {part}{order}", indices)
