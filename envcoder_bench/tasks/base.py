"""The interface of tasks for the environment: state, drives, step, masked reset and fitness, without shaping."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from envcoder_bench.sim.base import Robot
    from mujoco_batches.physics.live_tensors import PoseSource

HUMAN, UNSHAPED = BASELINE_FILES = ("human", "unshaped")  # every task's folder has a candidate file of each name
UNTRAINED = "untrained"  # the initial policy with the human baseline's observation and action functions
BASELINES = (*BASELINE_FILES, UNTRAINED)  # rows of a ranking that are not candidates
SPARSE = "sparse"  # a candidate file that a task's folder may have: the published sparse reward


FieldSource = str | float | tuple[float, ...] | Callable[[Any], Tensor] | None


@dataclass(frozen=True)
class Field:
    """The declaration of a key of ``state_dict``.

    Attributes:
        shape: shape without the environment axis; None for a constant.
        unit, meaning: description for users and prompts.
        source: source of the key's tensor. ``"sim.dof_pos"``: a tensor of the simulator. ``"cfg.env.maxEffort"``: a
            constant, the number or list of numbers of the task's YAML. A number or a tuple of numbers: these, in every
            environment. A function: its result for the task, whose earlier keys are in ``task.state``. None: a tensor
            of the environment, one of ``object_keys``, or one of ``goal_keys``, which begins with zeros.
    """

    shape: tuple[int, ...] | None
    unit: str
    meaning: str
    source: FieldSource = None


@dataclass(frozen=True)
class EnvGroups:
    """The groups that share a task's environments; tensors are ``(num_envs, ...)``.

    Attributes:
        size: environments of a group.
        seeds, lanes: int64, the seed of each environment's group, and a number that its random draws depend on: its
            index in the group, unless several environments of a group shall draw the same.
        actions: the policies' actions, clipped, live, as wide as the widest group's.
        commands, initial_states, goals: bool, whether a function of the group computes commands, initial states, goals;
            otherwise the task's own do.
        keys: the keys of the state that the groups' functions may read; None for all.
    """

    size: int
    seeds: Tensor
    lanes: Tensor
    actions: Tensor
    commands: Tensor
    initial_states: Tensor
    goals: Tensor
    keys: Collection[str] | None = None

    @classmethod
    def alone(cls, num_envs: int, actions: Tensor) -> EnvGroups:
        """Return all environments as one group with seed 0 and the task's own shaping."""
        device = actions.device
        seeds, lanes = torch.zeros(num_envs, dtype=torch.int64, device=device), torch.arange(num_envs, device=device)
        none = torch.zeros(num_envs, dtype=torch.bool, device=device)
        return cls(num_envs, seeds, lanes, actions, none, none, none)


class Task(ABC):
    """A robot task without its shaping.

    Attributes:
        name: the registered name, e.g. ``Anymal``.
        num_envs, num_dofs, device, dt: environments; joints; torch device; seconds per control step.
        max_episode_length: control steps until the time-out.
        state: per-environment tensors ``(num_envs, ...)``, live and fixed in memory (views stay valid), refreshed in
            place by ``step`` and ``reset``. ``progress_buf`` ``(num_envs,)`` int64, control steps since the episode
            began, and ``actions`` are not here: the environment owns and adds them.
        object_keys: keys of ``state`` for the free objects, ``(num_envs, 13)`` each, as ``root_states``.
        default_state: ``root_states``, ``dof_pos``, ``dof_vel`` and ``object_keys``, as far as the task has them,
            ``(num_envs, ...)``: the initial state of episodes unless ``compute_initial_state`` sets it.
        constants: tensors without an environment axis, always on the CPU: numbers (0-d, so that ``.item()`` needs no
            device sync), indices, and one number per joint.
        fields: a Field for every key of ``state`` and ``constants``, in the order of printing.
        goal_keys: keys of ``state`` that ``compute_goal`` may set.
        new_goal: ``(num_envs,)`` bool, refreshed in place by ``step``: environments that have reached their goal and
            need a new one in the same episode; None if goals last for an episode.
        default_action_dim: width of the action for the task's own position drives; None if the task has none, so that
            a candidate or baseline must define ``compute_torque`` or ``compute_dof_target``.
        drive_formula: ``default_dof_target`` as one line for prompts, with keys of the state and of the config's
            ``env.control``; empty if there is none.
        fitness_meaning: one line for the header of every ranking: meaning, unit and range.
        fitness_bounds: the least and the greatest fitness of an episode; infinite if there is none.
        fitness_reduction: ``mean`` if an episode's fitness is the mean of its steps' over a full episode (the steps
            after an early end count 0), ``sum`` if it is their sum, for events that are counted.
        unstable: ``(num_envs,)`` bool, environments whose physics became unstable in the last step and that need a
            reset. An initial state beyond the simulator's limits makes the episode's first step unstable.
        timed_out: ``(num_envs,)`` bool, refreshed in place by ``step``: environments whose episode the task itself cuts
            short, as a time-out; None if only ``max_episode_length`` does.
        contact_overflows: ``(num_envs,)`` int32, number of control steps in which the simulator dropped contacts or
            constraints of an environment; ``step`` adds to it, and the reader may reset it to 0.
        engine_warnings: number of the simulator's warnings in all environments, by text.
        refusals: functions that candidates of this task cannot define, with the reason.
        patched_stages: stages, such as ``reward``, that candidates can shape by patches, which ``patch`` receives.
        quaternions: the order of their numbers in ``state``, for prompts.
        notes: a list in Markdown of what else a prompt and ``--describe`` say of the task, such as its config's terms;
            empty if names of joints, bodies and drives do.
        regroups: whether every tensor of ``get_state`` has a row for each environment, so that a race can regroup
            them; otherwise episodes begin anew at its rungs.
        randomizes: whether the task changes policies' actions and observations, by ``randomize_actions`` and
            ``randomize_observations``.
        first_progress: ``(num_envs,)`` int64, refreshed by ``prepare_reset``: the value of ``progress_buf`` with which
            episodes begin, so that those of a new training do not all end at once; None for 0.
        faults: what functions of candidates raised inside the task, by group; such a group is stopped.
        step_count: the environment's counter, which it sets before it calls any of the task's methods: random numbers
            of the task's own depend on it, on the seed and on the lane.
    """

    name: str
    num_envs: int
    num_dofs: int
    device: torch.device
    dt: float
    max_episode_length: int
    state: dict[str, Tensor]
    default_state: dict[str, Tensor]
    object_keys: tuple[str, ...] = ()
    constants: dict[str, Tensor]
    fields: dict[str, Field]
    goal_keys: tuple[str, ...]
    new_goal: Tensor | None = None
    default_action_dim: int | None
    drive_formula: str = ""
    fitness_meaning: str
    fitness_bounds: tuple[float, float] = (-math.inf, math.inf)
    fitness_reduction: str = "mean"
    clip_actions: float
    clip_observations: float
    unstable: Tensor
    timed_out: Tensor | None = None
    contact_overflows: Tensor
    engine_warnings: dict[str, int]
    refusals: Mapping[str, str] = {}
    patched_stages: tuple[str, ...] = ()
    quaternions: str = "xyzw"
    notes: str = ""
    regroups: bool = True
    randomizes: bool = False
    first_progress: Tensor | None = None
    faults: Mapping[int, Exception] = {}
    step_count: int = 0

    @property
    @abstractmethod
    def bytes_per_env(self) -> int:
        """Approximate memory on the device of each further environment, in bytes."""

    @abstractmethod
    def set_drive_mode(self, effort: Tensor) -> None:
        """Set per environment ``(num_envs,)`` bool whether commands are efforts (True) or position targets."""

    def patch(self, patches: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027
        """Receive the dicts of each group's patches by section of the task's config, before ``attach``.

        It is called if the task has ``patched_stages``.
        """

    def attach(self, groups: EnvGroups) -> None:  # noqa: B027
        """Receive the groups, before ``set_drive_mode``; by default it does nothing."""

    def prepare_reset(self, mask: Tensor) -> None:  # noqa: B027
        """Update ``default_state`` where ``mask`` is True and episodes begin, if it is not constant.

        It is called before the groups' functions compute initial states, and ``reset`` follows.
        """

    def restart(self) -> None:  # noqa: B027
        """Reset state that outlives episodes, such as a curriculum; a reset of all environments follows."""

    def finish_step(self) -> None:  # noqa: B027
        """Set ``state`` to what the step has left, after reward and terminal; by default it does nothing.

        A task whose step changes more than they may read, such as the last actions, shows them the state before that.
        Fitness and the last observation of an episode read the state at the end.
        """

    def ends(self) -> Mapping[str, Tensor]:
        """Return the conditions that end episodes early, in words, and where they hold: ``(num_envs,)`` bool.

        Together they are the terminal function of the unshaped baseline, after the last step. By default there are
        none, and nothing says why an episode ended.
        """
        return {}

    def settle(self) -> None:  # noqa: B027
        """Update what observations read, after the resets of a control step; by default it does nothing."""

    def refresh_state(self) -> None:  # noqa: B027
        """Update all keys of ``state``, also those that no function of the groups reads."""

    def randomize_actions(self, actions: Tensor, rows: slice) -> Tensor:
        """Return policies' actions ``(n, width)`` of the environments ``rows`` as the task randomizes them."""
        return actions

    def randomize_observations(self, obs: Tensor, rows: slice) -> Tensor:
        """Return policies' observations ``(n, width)`` of the environments ``rows`` as the task randomizes them."""
        return obs

    def pose_source(self) -> PoseSource | None:
        """Return the live poses of the environments, for pictures; None if the simulator does not give them."""
        return None

    def robot(self) -> Robot | None:
        """Return the robot, which can be disturbed; None if the task does not give access to it."""
        return None

    def velocity_ranges(self) -> Mapping[str, float]:
        """Return the greatest command of velocity by axis, x, y and yaw, that ``command`` takes; empty: it does not."""
        return {}

    def command(self, velocities: Tensor) -> None:  # noqa: B027
        """Command velocities ``(num_envs, 3)``, m/s and rad/s, from now on, without the task's own disturbances."""

    def unmeasured(self, group: int) -> Collection[str]:
        """Return what the task's own terms observe for a group and a robot does not measure, in words."""
        return ()

    def deployment(self, group: int) -> dict[str, Any]:
        """Return what programs of robots need to run a group's policy, by names of mjlab's exporter; empty: unknown."""
        return {}

    @abstractmethod
    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Map ``(n, default_action_dim)`` actions to ``(n, num_dofs)`` position targets of the task's own drives.

        It depends only on its arguments and on constants, not on the simulation.
        """

    @abstractmethod
    def step(self, command: Tensor) -> None:
        """Advance one control step with ``command`` ``(num_envs, num_dofs)`` held, and refresh ``state``."""

    @abstractmethod
    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        """Begin episodes, or set new goals, where ``mask`` ``(num_envs,)`` is True.

        ``initial`` has keys of ``default_state`` for all environments if episodes begin, and is empty if there are only
        new goals; ``goal`` has some of ``goal_keys``. Only the masked rows are read; other values do not change.
        """

    @abstractmethod
    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        """Score one control step from a state dict of n environments: ``(n,)``.

        The step on which an episode ends early, and the steps after it, count 0. A full episode has
        ``max_episode_length - 1`` steps, as in IsaacGymEnvs; with a score of 1 on each step the mean is 1.
        """

    @abstractmethod
    def get_state(self) -> dict[str, Tensor]:
        """Return the state from which ``set_state`` continues bitwise, as CPU tensors."""

    @abstractmethod
    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore what ``get_state`` returned and refresh ``state``."""
