"""Fitness of IsaacGymEnvs' tasks and of every LeggedRobot.

The formulas are those of Eureka (Ma et al. 2023, github.com/eureka-research/Eureka, tasks/*.py): its
``consecutive_successes``, for the arms its ``successes``. Of Cartpole and BallBalance that is the mean length of the
episodes that end, of Ant and Humanoid the mean gain of the potential, which is the distance to the target over dt; in
hands it is the number of goals. HumanoidAMP is not in Eureka: its own reward is 1 for every step, and how well motions
are imitated is not measured.
"""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from envcoder_bench.torch_utils import quat_rotate_inverse


class Fitness(NamedTuple):
    """The fitness of a task.

    Attributes:
        function: the fitness of one step, called with the keys of the state that its parameters name.
        meaning: one line for the header of a ranking.
        ends: whether the task's own end of an episode counts; a fall would otherwise stop a cost.
        once: whether an episode's fitness is 1 if the function was ever above 0.
        summed: whether an episode's fitness is the sum of its steps', not their mean.
    """

    function: Callable[..., Tensor]
    meaning: str
    ends: bool = True
    once: bool = False
    summed: bool = False


def alive(dof_pos):
    """1 for every step."""
    return torch.ones_like(dof_pos[:, 0])


def forward_speed(potentials, prev_potentials):
    """The potential's gain in this step: the speed towards the target."""
    return potentials - prev_potentials


def velocity_tracking(root_states, commands):
    """Minus the squared errors."""
    lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    return -(lin_vel_error + torch.square(commands[:, 2] - ang_vel[:, 2]))


def hover_above_origin(root_states):
    """Minus the distance to (0, 0, 1), 100 m at most."""
    x, y, z = root_states[:, 0], root_states[:, 1], root_states[:, 2] - 1.0
    return -torch.clamp(torch.sqrt(x * x + y * y + z * z), max=100.0)


def hover_at_target(root_states, target_root_positions):
    """Minus the distance to the target, 100 m at most."""
    return -torch.clamp(
        torch.sqrt(torch.sum(torch.square(target_root_positions - root_states[:, :3]), dim=1)), max=100.0
    )


def drawer_is_open(cabinet_dof_pos):
    """1 where the drawer is open."""
    return (cabinet_dof_pos[:, 3] > 0.39).float()


def is_stacked(cubeA_pos, cubeA_pos_relative, cubeA_to_cubeB_pos, cubeA_size, cubeB_size, reward_settings_table_height):
    """1 where it is stacked."""
    height = cubeA_pos[:, 2] - reward_settings_table_height
    aligned = torch.norm(cubeA_to_cubeB_pos[:, :2], dim=-1) < 0.02
    on_top = torch.abs(height - (cubeB_size + cubeA_size / 2.0)) < 0.02
    away = torch.norm(cubeA_pos_relative, dim=-1) > 0.04
    return (aligned & on_top & away).float()


def goal_reached(reset_goal_buf):
    """1 where a goal is reached in this step."""
    return reset_goal_buf.float()


_SPEED = Fitness(
    forward_speed,
    "Forward speed: how fast the robot nears its far target, m/s, averaged over the full episode (0 after a fall)",
)
_TRACKING = Fitness(
    velocity_tracking,
    "Velocity tracking: minus the squared errors of horizontal velocity and yaw rate, m^2/s^2 and rad^2/s^2; at most 0",
    ends=False,
)
_HOVERING = "Hovering: minus the distance to the target point, m, averaged over the full episode; at most 0"
_GOALS = Fitness(
    goal_reached,
    "Consecutive successes: goals that the object is turned to in an episode, before it falls; 0 and more",
    summed=True,
)

# the key is the name of the task's class, or of a base class
FITNESS = {
    "Cartpole": Fitness(
        alive,
        "Balance: fraction of the full episode before the pole falls beyond 90 degrees or the cart leaves its range;"
        " 0 to 1",
    ),
    "BallBalance": Fitness(alive, "Balance: fraction of the full episode before the ball falls off the tray; 0 to 1"),
    "HumanoidAMP": Fitness(alive, "Staying up: fraction of the full episode before the humanoid falls; 0 to 1"),
    "Ant": _SPEED,
    "Humanoid": _SPEED,
    "Anymal": _TRACKING,
    "AnymalTerrain": _TRACKING,
    "LeggedRobot": _TRACKING,
    "Quadcopter": Fitness(hover_above_origin, _HOVERING, ends=False),
    "Ingenuity": Fitness(hover_at_target, _HOVERING, ends=False),
    "FrankaCabinet": Fitness(
        drawer_is_open,
        "Success rate: fraction of the episodes in which the drawer is opened by more than 0.39 m; 0 to 1",
        ends=False,
        once=True,
    ),
    "FrankaCubeStack": Fitness(
        is_stacked,
        "Success rate: fraction of the episodes in which cube A stands on cube B, aligned, and is let go; 0 to 1",
        ends=False,
        once=True,
    ),
    "AllegroHand": _GOALS,
    "ShadowHand": _GOALS,
}


def fitness_of(task_class: type) -> Fitness | None:
    """Return the fitness of a task's class, by its name or that of a base class; None if there is none.

    Classes derived from LeggedRobot, and those of legged_gym, have its fitness or none, whatever their names: forks
    have an Anymal, an Ant and a Humanoid. A class that does not have what a formula reads first, such as ASE's Humanoid
    without potentials, only shares the name.
    """
    names = [cls.__name__ for cls in task_class.__mro__]
    if "LeggedRobot" in names or task_class.__module__.split(".")[0] == "legged_gym":
        names = [name for name in names if name == "LeggedRobot"]
    fitness = next((FITNESS[name] for name in names if name in FITNESS), None)
    if fitness is None:
        return None
    first = next(iter(inspect.signature(fitness.function).parameters))
    members = [member for cls in task_class.__mro__ for member in vars(cls).values()]
    codes = [member.__code__ for member in members if inspect.isfunction(member)]
    used = any(first in f"{code.co_names} {code.co_consts}" for code in codes)
    return fitness if used or first in ("root_states", "dof_pos") else None
