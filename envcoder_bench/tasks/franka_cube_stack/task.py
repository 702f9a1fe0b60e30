"""A Franka Panda stacks cube A on cube B: state and fitness, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/franka_cube_stack.py and cfg/task/FrankaCubeStack.yaml
(NVIDIA, BSD-3-Clause).
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.franka_cube_stack.fields import FIELDS
from envcoder_bench.tasks.sim_task import SimTask, read

SIDES = ("left", "right")
TABLE_HEIGHT = 1.025  # m, the table's surface: z of the plane in the model
CUBE_SIZES = {"cubeA_size": 0.05, "cubeB_size": 0.07}  # m, edges
DEFAULT_DOF_POS = (0.0, 0.1963, 0.0, -2.6180, 0.0, 2.9416, 0.7854, 0.035, 0.035)  # rad; fingers m
# a stack stands where cube A is over cube B and on it, the gripper is away from it, as IsaacGymEnvs has it, and also
# touches nothing, and both cubes are nearly at rest
ALIGNED = 0.02  # m, horizontal distance of the cubes' centres
ON_TOP = 0.02  # m, cube A's height against the one that it has on cube B
AWAY = 0.04  # m, grip site from cube A's centre
RELEASED = 0.1  # N, contact forces on hand and fingers, added up
STILL = 0.05  # m/s; what moves freely changes its speed by 0.16 m/s in a step
STILL_TURN = 0.5  # rad/s
STAND_STEPS = 5  # control steps in which it must stand without a break, 83 ms
SCALES = {  # key of state_dict: key of IsaacGymEnvs' YAML
    "action_scale": "env.actionScale",
    "start_position_noise": "env.startPositionNoise",
    "start_rotation_noise": "env.startRotationNoise",
    "franka_dof_noise": "env.frankaDofNoise",
    "r_dist_scale": "env.distRewardScale",
    "r_lift_scale": "env.liftRewardScale",
    "r_align_scale": "env.alignRewardScale",
    "r_stack_scale": "env.stackRewardScale",
}
# the task's own memory, and what it works out from the simulator's tensors
OWN_KEYS = {
    "cubeA_pos_relative": (3,),
    "cubeA_to_cubeB_pos": (3,),
    "stand_steps": (),
    "stacked": (),
    "just_stacked": (),
}
# control gains of IsaacGymEnvs' operational space controller, per direction and per joint of the arm
KP, KP_NULL = 150.0, 10.0
CMD_LIMIT = (0.1, 0.1, 0.1, 0.5, 0.5, 0.5)  # m, rad
GRIPPER_STIFFNESS = 5000.0  # N/m, of IsaacGymEnvs' drives of the fingers

ONLY = {
    "env.controlType": (
        "osc",
        "actions are the candidates' business, see user_functions/FrankaCubeStack/003_joint_torque.py",
    )
}


class FrankaCubeStack(SimTask):
    """Seven joints of the arm, two fingers, and two cubes on a table."""

    name = "FrankaCubeStack"
    model = "franka.xml"
    dof_names = (*(f"panda_joint{k}" for k in range(1, 8)), "panda_finger_joint1", "panda_finger_joint2")
    body_names = (*(f"panda_link{k}" for k in range(1, 8)), "panda_leftfinger", "panda_rightfinger", "cubeA", "cubeB")
    site_names = ("grip_site", "leftfinger_tip", "rightfinger_tip")
    object_keys = ("cubeA_state", "cubeB_state")
    kept_keys = tuple(OWN_KEYS)
    config_keys = ("env.episodeLength", *SCALES.values())
    ignored_keys = (
        "env.enableDebugVis",
        "env.aggregateMode",
        "env.controlType",
        "env.frankaPositionNoise",
        "env.frankaRotationNoise",
    )
    only = ONLY
    goal_keys = ()
    default_action_dim = None
    fitness_meaning = (
        "success rate: fraction of the episodes in which cube A comes to rest on cube B and is let go; 0 to 1"
    )
    fitness_reduction = "sum"  # of one step at most
    fields = FIELDS

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        self.max_episode_length = int(read(cfg, "env.episodeLength"))
        cube_a, cube_b = self.state["cubeA_state"], self.state["cubeB_state"]
        grip, left, right = (sim.site_states[:, k] for k in range(3))
        self.state.update(
            {
                "dof_pos": sim.dof_pos,
                "dof_vel": sim.dof_vel,
                "q": sim.dof_pos,
                "q_gripper": sim.dof_pos[:, -2:],
                "eef_pos": grip[:, :3],
                "eef_quat": grip[:, 3:7],
                "eef_vel": grip[:, 7:],
                "eef_lf_pos": left[:, :3],
                "eef_rf_pos": right[:, :3],
                "cubeA_pos": cube_a[:, :3],
                "cubeA_quat": cube_a[:, 3:7],
                "cubeB_pos": cube_b[:, :3],
                "cubeB_quat": cube_b[:, 3:7],
                **{key: self._per_env([size])[:, 0] for key, size in CUBE_SIZES.items()},
                # the arm's part, copied, because kernels read only what lies in a row
                "jacobian": sim.jacobian[:, :, :7].clone(),
                "mass_matrix": sim.mass_matrix[:, :7, :7].clone(),
                "dof_force_tensor": sim.dof_force,
                "contact_forces": sim.contact_forces,
                **{key: torch.zeros(self.num_envs, *shape, device=self.device) for key, shape in OWN_KEYS.items()},
            }
        )
        size_a, size_b = CUBE_SIZES.values()
        unturned = (0.0, 0.0, 0.0, 1.0, *[0.0] * 6)
        self.default_state = {
            "dof_pos": self._per_env(DEFAULT_DOF_POS),
            "dof_vel": torch.zeros_like(sim.dof_vel),
            "cubeA_state": self._per_env([0.1, -0.1, TABLE_HEIGHT + size_a / 2, *unturned]),
            "cubeB_state": self._per_env([0.1, 0.1, TABLE_HEIGHT + size_b / 2, *unturned]),
        }
        self.constants = {
            "table_height": torch.tensor(TABLE_HEIGHT),
            "franka_default_dof_pos": torch.tensor(DEFAULT_DOF_POS),
            "franka_dof_lower_limits": sim.dof_limits_lower,
            "franka_dof_upper_limits": sim.dof_limits_upper,
            "franka_effort_limits": sim.effort_limits,
            "kp": torch.full((6,), KP),
            "kd": torch.full((6,), 2.0 * math.sqrt(KP)),
            "kp_null": torch.full((7,), KP_NULL),
            "kd_null": torch.full((7,), 2.0 * math.sqrt(KP_NULL)),
            "cmd_limit": torch.tensor(CMD_LIMIT),
            "gripper_stiffness": torch.tensor(GRIPPER_STIFFNESS),
            "hand_index": torch.tensor(self.body_names.index("panda_link7")),
            "finger_indices": torch.tensor([self.body_names.index(f"panda_{side}finger") for side in SIDES]),
            "cubeA_index": torch.tensor(self.body_names.index("cubeA")),
            "cubeB_index": torch.tensor(self.body_names.index("cubeB")),
            "max_episode_length": torch.tensor(self.max_episode_length),
            "dt": torch.tensor(self.dt),
            **{key: torch.tensor(float(read(cfg, source))) for key, source in SCALES.items()},
        }
        self._gripper = slice(self.body_names.index("panda_link7"), self.body_names.index("cubeA"))
        self._refresh_derived()

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        raise ValueError(f"{self.name} has no position drives of its own: define compute_torque or compute_dof_target")

    def step(self, command: Tensor) -> None:
        super().step(command)
        self._refresh_derived()
        steps, stacked = self.state["stand_steps"], self.state["stacked"]
        steps.add_(1.0).mul_(self._stands())
        now = (steps >= STAND_STEPS).float()
        self.state["just_stacked"].copy_(now * (1.0 - stacked))
        stacked.copy_(torch.maximum(stacked, now))

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        super().reset(mask, initial, goal)
        if initial:
            self._refresh_derived()
            for key in ("stand_steps", "stacked", "just_stacked"):
                self.state[key].masked_fill_(mask, 0.0)

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return state["just_stacked"]

    def set_state(self, state: dict[str, Tensor]) -> None:
        super().set_state(state)
        self._refresh_derived()

    def _refresh_derived(self) -> None:
        state = self.state
        state["jacobian"].copy_(self.sim.jacobian[:, :, :7])
        state["mass_matrix"].copy_(self.sim.mass_matrix[:, :7, :7])
        torch.sub(state["cubeA_pos"], state["eef_pos"], out=state["cubeA_pos_relative"])
        torch.sub(state["cubeB_pos"], state["cubeA_pos"], out=state["cubeA_to_cubeB_pos"])

    def _stands(self) -> Tensor:
        """Whether the stack stands, by the state of this step alone, ``(num_envs,)`` bool."""
        state = self.state
        cube_a, cube_b = state["cubeA_state"], state["cubeB_state"]
        size_a, size_b = CUBE_SIZES.values()
        height = cube_a[:, 2] - (TABLE_HEIGHT + size_b + 0.5 * size_a)
        touched = _length(state["contact_forces"][:, self._gripper]).sum(dim=1)
        return (
            (_length(state["cubeA_to_cubeB_pos"][:, :2]) < ALIGNED)
            & (height.abs() < ON_TOP)
            & (_length(state["cubeA_pos_relative"]) > AWAY)
            & (touched < RELEASED)
            & (torch.maximum(_length(cube_a[:, 7:10]), _length(cube_b[:, 7:10])) < STILL)
            & (torch.maximum(_length(cube_a[:, 10:]), _length(cube_b[:, 10:])) < STILL_TURN)
        )


def _length(x: Tensor) -> Tensor:
    """Lengths of vectors of two or three numbers, by operations that round alike in any number of environments."""
    squares = x * x
    total = squares[..., 0] + squares[..., 1]
    return torch.sqrt(total + squares[..., 2] if x.shape[-1] == 3 else total)
