"""A Franka Panda stacks cube A on cube B: state and fitness, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/franka_cube_stack.py and cfg/task/FrankaCubeStack.yaml
(NVIDIA, BSD-3-Clause).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.franka_cube_stack.fields import CUBE_A, CUBE_B, DEFAULT_DOF_POS, FIELDS, TABLE_HEIGHT
from envcoder_bench.tasks.sim_task import SimTask

# a stack stands if cube A is above and on cube B and the gripper is away from it, as in IsaacGymEnvs, and, in addition,
# the gripper touches nothing and both cubes are nearly at rest
ALIGNED = 0.02  # m, horizontal distance of the cubes' centres
ON_TOP = 0.02  # m, cube A's height relative to that on cube B
AWAY = 0.04  # m, grip site from cube A's centre
RELEASED = 0.1  # N, contact forces on hand and fingers, added up
STILL = 0.05  # m/s; in free fall the speed changes by 0.16 m/s per step
STILL_TURN = 0.5  # rad/s
STAND_STEPS = 5  # consecutive control steps in which it must stand, 83 ms
ONLY = {
    "env.controlType": (
        "osc",
        "candidates define the actions, see user_functions/FrankaCubeStack/003_joint_torque.py",
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
    # the task's own state, and quantities computed from the simulator's tensors
    kept_keys = ("cubeA_pos_relative", "cubeA_to_cubeB_pos", "stand_steps", "stacked", "just_stacked")
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
    fitness_bounds = (0.0, 1.0)
    fitness_reduction = "sum"  # of one step at most
    fields = FIELDS

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        unturned = (0.0, 0.0, 0.0, 1.0, *[0.0] * 6)
        self.default_state = {
            "dof_pos": self.per_env(DEFAULT_DOF_POS),
            "dof_vel": torch.zeros_like(sim.dof_vel),
            "cubeA_state": self.per_env([0.1, -0.1, TABLE_HEIGHT + CUBE_A / 2, *unturned]),
            "cubeB_state": self.per_env([0.1, 0.1, TABLE_HEIGHT + CUBE_B / 2, *unturned]),
        }
        self._gripper = slice(self.body_names.index("panda_link7"), self.body_names.index("cubeA"))
        self._refresh_derived()

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
        """Return whether the stack stands in the present state, ``(num_envs,)`` bool."""
        state = self.state
        cube_a, cube_b = state["cubeA_state"], state["cubeB_state"]
        height = cube_a[:, 2] - (TABLE_HEIGHT + CUBE_B + 0.5 * CUBE_A)
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
    """Return lengths of vectors of two or three numbers; rounding does not depend on the number of environments."""
    squares = x * x
    total = squares[..., 0] + squares[..., 1]
    return torch.sqrt(total + squares[..., 2] if x.shape[-1] == 3 else total)
