"""The declarations of the state of AnymalTerrain and SpotTerrain, with IsaacGymEnvs' names."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import DT, MAX_EPISODE_LENGTH, PROGRESS, actions, read

SCALES = "cfg.env.learn"
RANGES = "cfg.env.randomCommandVelocityRanges"


def _at_rest(task: Any) -> Tensor:
    parts = ("pos", "rot", "vLinear", "vAngular")
    return task.per_env([x for part in parts for x in read(task.cfg, f"env.baseInitState.{part}")])


def _stance(task: Any) -> Tensor:
    return task.per_env([float(read(task.cfg, f"env.defaultJointAngles.{dof}")) for dof in task.dof_names])


def _bodies(link: str) -> Callable[[Any], Tensor]:
    return lambda task: torch.tensor([task.body_names.index(f"{leg}_{link}") for leg in task.legs])


def fields(joints: str, bodies: tuple[str, ...], knees: str, feet: str, points: str, count: int) -> dict[str, Field]:
    """Return the fields of a task.

    Args:
        joints: description of the order of the joints.
        bodies: names of the bodies; the first is the base.
        knees, feet: the links that carry them.
        points: description of the height scan's ``count`` points.
    """
    legs = ", ".join(name.rsplit("_", 1)[0] for name in bodies if name.endswith(f"_{feet}"))
    return {
        "root_states": Field(
            (13,),
            "m, -, m/s, rad/s",
            "base: position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3; world frame",
            "sim.root_states",
        ),
        "dof_pos": Field((12,), "rad", f"joint angles; {joints}", "sim.dof_pos"),
        "dof_vel": Field((12,), "rad/s", "joint velocities", "sim.dof_vel"),
        "default_dof_pos": Field((12,), "rad", "joint angles of the default stance", _stance),
        "actions": actions(12),
        "commands": Field(
            (4,),
            "m/s, m/s, rad/s, rad",
            "goal: velocity forward and to the left, base frame; yaw rate, which the task sets from the heading;"
            " heading in the world frame",
            (0.0, 0.0, 0.0, 0.0),
        ),
        "torques": Field((12,), "N m", "joint torques of the last physics step", "sim.dof_force"),
        "contact_forces": Field(
            (len(bodies), 3),
            "N",
            "net contact force on each body in the last physics step; world frame",
            "sim.contact_forces",
        ),
        "measured_heights": Field(
            (count,),
            "m",
            f"height of the ground, world frame, under points that turn with the base's yaw: {points}",
            0.0,
        ),
        "terrain_levels": Field((), "-", "row of the terrain, 0 is the easiest", 0.0),
        "terrain_types": Field((), "-", "column of the terrain", 0.0),
        "env_origins": Field((3,), "m", "middle of the terrain's tile; world frame", 0.0),
        "last_actions": Field(
            (12,), "-", "action before the last one, its first 12 numbers; 0 where an episode begins", 0.0
        ),
        "last_dof_vel": Field((12,), "rad/s", "joint velocities before the last control step; 0 at the start", 0.0),
        "feet_air_time": Field(
            (4,), "s", f"time that each foot has been in the air, with the step in which it lands; {legs}", 0.0
        ),
        "gravity_vec": Field((3,), "-", "direction of gravity, (0, 0, -1)", (0.0, 0.0, -1.0)),
        "initial_root_states": Field(
            (13,), "as root_states", "base at rest in the middle of the terrain's tile", _at_rest
        ),
        "progress_buf": PROGRESS,
        "knee_indices": Field(
            None, "-", f"the 4 bodies {knees} in contact_forces, which carry the knees", _bodies(knees)
        ),
        "feet_indices": Field(
            None, "-", f"the 4 bodies {feet} in contact_forces, which carry the feet; {legs}", _bodies(feet)
        ),
        "base_index": Field(None, "-", "the base in contact_forces", lambda task: torch.tensor(0)),
        "max_episode_length": MAX_EPISODE_LENGTH,
        "dt": DT,
        "lin_vel_scale": Field(None, "s/m", "observation scale of linear velocities", f"{SCALES}.linearVelocityScale"),
        "ang_vel_scale": Field(
            None, "s/rad", "observation scale of angular velocities", f"{SCALES}.angularVelocityScale"
        ),
        "dof_pos_scale": Field(None, "1/rad", "observation scale of joint angles", f"{SCALES}.dofPositionScale"),
        "dof_vel_scale": Field(None, "s/rad", "observation scale of joint velocities", f"{SCALES}.dofVelocityScale"),
        "height_meas_scale": Field(None, "1/m", "observation scale of heights", f"{SCALES}.heightMeasurementScale"),
        "command_x_range": Field(None, "m/s", "lowest and highest command forward, (2,)", f"{RANGES}.linear_x"),
        "command_y_range": Field(None, "m/s", "lowest and highest command to the left, (2,)", f"{RANGES}.linear_y"),
        "command_yaw_range": Field(None, "rad", "lowest and highest commanded heading, (2,)", f"{RANGES}.yaw"),
    }
