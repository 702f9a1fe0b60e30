"""ANYmal C tracks velocity commands on flat ground: state, drives and fitness, with IsaacGymEnvs' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import DT, MAX_EPISODE_LENGTH, PROGRESS, SimTask, actions, read
from envcoder_bench.tasks.velocity_tracking import velocity_tracking

LEGS = ("LF", "LH", "RF", "RH")  # Isaac Gym's order
START = "env.baseInitState"


def _stance(task: Anymal) -> Tensor:
    angles = [float(read(task.cfg, f"env.defaultJointAngles.{dof}")) for dof in task.dof_names]
    return task.per_env(angles)


def _at_rest(task: Anymal) -> Tensor:
    parts = ("pos", "rot", "vLinear", "vAngular")
    return task.per_env([x for part in parts for x in read(task.cfg, f"{START}.{part}")])


def _bodies(part: str) -> Callable[[Anymal], Tensor]:
    return lambda task: torch.tensor([task.body_names.index(f"{leg}_{part}") for leg in LEGS])


RANGES = "cfg.env.randomCommandVelocityRanges"
SCALES = "cfg.env.learn"
FIELDS = {
    "root_states": Field(
        (13,),
        "m, -, m/s, rad/s",
        "base: position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3; world frame",
        "sim.root_states",
    ),
    "dof_pos": Field((12,), "rad", "joint angles; legs LF, LH, RF, RH, each HAA, HFE, KFE", "sim.dof_pos"),
    "dof_vel": Field((12,), "rad/s", "joint velocities", "sim.dof_vel"),
    "default_dof_pos": Field((12,), "rad", "joint angles of the default stance", _stance),
    "actions": actions(12),
    "commands": Field(
        (3,), "m/s, m/s, rad/s", "goal: velocity forward, to the left, and turning left; base frame", 0.0
    ),
    "torques": Field((12,), "N m", "joint torques of the last physics step", "sim.dof_force"),
    "contact_forces": Field(
        (13, 3), "N", "net contact force on each body in the last physics step; world frame", "sim.contact_forces"
    ),
    "gravity_vec": Field((3,), "-", "direction of gravity, (0, 0, -1)", (0.0, 0.0, -1.0)),
    "initial_root_states": Field((13,), "as root_states", "base at rest in the default stance", _at_rest),
    "progress_buf": PROGRESS,
    "knee_indices": Field(None, "-", "the 4 thighs in contact_forces, which carry the knees", _bodies("THIGH")),
    "feet_indices": Field(
        None, "-", "the 4 shanks in contact_forces, which carry the feet; LF, LH, RF, RH", _bodies("SHANK")
    ),
    "base_index": Field(
        None, "-", "the base in contact_forces", lambda task: torch.tensor(task.body_names.index("base"))
    ),
    "max_episode_length": MAX_EPISODE_LENGTH,
    "dt": DT,
    "lin_vel_scale": Field(None, "s/m", "observation scale of linear velocities", f"{SCALES}.linearVelocityScale"),
    "ang_vel_scale": Field(None, "s/rad", "observation scale of angular velocities", f"{SCALES}.angularVelocityScale"),
    "dof_pos_scale": Field(None, "1/rad", "observation scale of joint angles", f"{SCALES}.dofPositionScale"),
    "dof_vel_scale": Field(None, "s/rad", "observation scale of joint velocities", f"{SCALES}.dofVelocityScale"),
    "command_x_range": Field(None, "m/s", "lowest and highest command forward, (2,)", f"{RANGES}.linear_x"),
    "command_y_range": Field(None, "m/s", "lowest and highest command to the left, (2,)", f"{RANGES}.linear_y"),
    "command_yaw_range": Field(None, "rad/s", "lowest and highest turning command, (2,)", f"{RANGES}.yaw"),
}


class Anymal(SimTask):
    """Twelve joints with PD drives; commands are forward, sideways and turning velocity in the base frame."""

    name = "Anymal"
    model = "anymal_c.xml"
    dof_names = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("HAA", "HFE", "KFE"))
    body_names = ("base", *(f"{leg}_{link}" for leg in LEGS for link in ("HIP", "THIGH", "SHANK")))
    config_keys = (
        START,
        "env.control.stiffness",
        "env.control.damping",
        "env.control.actionScale",
        "env.learn.episodeLength_s",
        *(f"env.defaultJointAngles.{dof}" for dof in dof_names),
    )
    ignored_keys = (  # these are shaping: human.py has them
        "env.learn.linearVelocityXYRewardScale",
        "env.learn.angularVelocityZRewardScale",
        "env.learn.torqueRewardScale",
    )
    goal_keys = ("commands",)
    drive_formula = "joint position target = default_dof_pos + actionScale * action"
    default_action_dim = 12
    fitness_meaning = (
        "velocity tracking: (exp(-|v_xy* - v_xy|^2/0.25) + 0.5 exp(-(w_z* - w_z)^2/0.25)) / 1.5, averaged over the full"
        " episode (0 after a fall); 0 to 1"
    )
    fitness_bounds = (0.0, 1.0)
    fields = FIELDS

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

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return velocity_tracking(state)
