"""The table of the kinds of functions that a candidate may define, and of the fitness function.

Loading, checking, tracing, dispatch, evaluation, the jail, prompts, profiles and ``--describe`` all read this table. To
add a kind, add a row to ``_ROWS`` and a call of ``Dispatcher.run(stage, step)`` in ``env/grouped_vec_task.py``; without
the call, functions of the kind are loaded and checked, but never used. ``tests/test_new_kind.py`` does this to a copy
of the package, and ``CONTRIBUTING.md`` lists what else to change.

This module does not import torch, so that ``--help`` and ``--describe`` start quickly.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from envcoder_bench.core.purposes import Purpose

if TYPE_CHECKING:
    from torch import Tensor

REWARD = "compute_reward"
OBSERVATION = "compute_observation"
CRITIC_OBSERVATION = "compute_critic_observation"
TORQUE = "compute_torque"
DOF_TARGET = "compute_dof_target"
INITIAL_STATE = "compute_initial_state"
GOAL = "compute_goal"
TERMINAL = "compute_terminal"
FITNESS = "compute_fitness"

INITIAL_STATE_KEYS: tuple[str, ...] = ("root_states", "dof_pos", "dof_vel")
VALUE = "value"  # the name of the part of a result that is a single tensor
ANY = -1  # a width chosen by the candidate

# when functions are called, in the order of a control step
BEFORE_PHYSICS, AFTER_PHYSICS, NEW_EPISODE, BEFORE_POLICY, IN_EVALUATION = CALLED = (
    "before the physics of every control step",
    "after the physics of every control step",
    "where an episode begins",
    "before the policy acts",
    "after the physics of every control step of an evaluation",
)
# the origin of the function that evaluations use
CANDIDATE, UNSHAPED, RUN = ("the candidate's", "the unshaped task's", "the run's")
TRAINING_ALONE = "not called"  # evaluations do not call it


class Part(NamedTuple):
    """A tensor of a result: its shape without the axis of environments, and whether it must be floating point."""

    shape: tuple[int, ...]
    floating: bool


@dataclass(frozen=True)
class Kind:
    """A kind of function.

    Attributes:
        name, aliases: names of the function in a file.
        stage: what it computes. Functions of one stage exclude each other: a file has one of them. Their rows differ
            only in ``name``, ``returns`` and ``effort``.
        purpose: purpose of its random numbers, unique for the stage: a ``Purpose``, or a number from 48 to 63.
        called: when it is called, one of ``CALLED``.
        judged_with: origin of the function in evaluations: ``CANDIDATE``, ``UNSHAPED``, ``RUN`` (the ``--fitness``
            file) or ``TRAINING_ALONE``.
        returns: description of the result for n environments. ``$joints`` stands for the shape of a tensor with one
            number per joint, ``$keys`` for the keys that the task allows.
        absent: description of the default if neither the candidate nor the baseline defines it.
        shape: shape of the result for one environment, as a function of the task; None if the result is a dict of
            tensors of the state.
        floating: whether the result must be floating point; otherwise bools and integers are allowed, too.
        finite: whether a number that is not finite is a fault of the call; otherwise the reader of the results decides.
        components: whether it may return a pair of the result and a dict of its components. One stage has them.
        keys, rest: for a dict: the keys that it may have, as far as the task's state has them, as a function of the
            task or its contract; the live tensors by key that give the rows not set by a function.
        acts: whether the policy's action is a parameter.
        effort: whether the result commands efforts instead of position targets.
        default: the task's method that is called with action and state without a function.
        required: whether every shaping needs it.
        shaper: whether candidates define it, and ``--shaper_types`` accepts it.
        untrusted_width: the largest width per environment that untrusted code may return, if the width is ``ANY``.
    """

    name: str
    stage: str
    purpose: int
    called: str
    judged_with: str
    returns: str
    absent: str
    aliases: tuple[str, ...] = ()
    shape: Callable[[Any], tuple[int, ...]] | None = None
    floating: bool = True
    finite: bool = True
    components: bool = False
    keys: Callable[[Any], Iterable[str]] | None = None
    rest: Callable[[Any], Mapping[str, Tensor]] | None = None
    acts: bool = False
    effort: bool = False
    default: str = ""
    required: bool = False
    shaper: bool = True
    untrusted_width: int = 0

    @property
    def signature(self) -> str:
        """The usual signature of the function, e.g. ``compute_goal(state_dict)``."""
        return f"{self.name}({'action, ' if self.acts else ''}state_dict)"

    @property
    def noun(self) -> str:
        """The result of the stage in messages, e.g. ``the initial state``."""
        return f"the {self.stage.replace('_', ' ')}"

    def parts(self, task: Any) -> dict[str, Part]:
        """Return the parts of a result for a task by key; ``VALUE`` if the result is one tensor."""
        if self.shape is not None:
            return {VALUE: Part(self.shape(task), self.floating)}
        assert self.keys is not None
        goals = {key: task.state[key] for key in self.keys(task) if key in task.state}
        return {key: Part(tuple(x.shape[1:]), x.is_floating_point()) for key, x in goals.items()}


def _number(task: Any) -> tuple[int, ...]:
    return ()


_COMMAND: dict[str, Any] = {
    "stage": "command",
    "purpose": Purpose.COMMAND,
    "called": BEFORE_PHYSICS,
    "judged_with": CANDIDATE,
    "absent": "the task's own position drives",
    "shape": lambda task: (task.num_dofs,),
    "acts": True,
    "default": "default_dof_target",
}

_ROWS = (
    Kind(
        name=REWARD,
        stage="reward",
        purpose=Purpose.REWARD,
        called=AFTER_PHYSICS,
        judged_with=UNSHAPED,
        returns="(n,) float, or a pair of it and {component: (n,)}",
        absent="an error",
        shape=_number,
        components=True,
        required=True,
    ),
    Kind(
        name=OBSERVATION,
        stage="observation",
        purpose=Purpose.OBSERVATION,
        called=BEFORE_POLICY,
        judged_with=CANDIDATE,
        returns="(n, k) float, any k",
        absent="an error",
        shape=lambda task: (ANY,),
        required=True,
        untrusted_width=1_024,
    ),
    Kind(
        name=CRITIC_OBSERVATION,
        stage="critic_observation",
        purpose=Purpose.CRITIC_OBSERVATION,
        called=BEFORE_POLICY,
        judged_with=TRAINING_ALONE,
        returns="(n, k) float, any k, what the value function sees in training",
        absent="the critic sees the policy's observation",
        shape=lambda task: (ANY,),
        untrusted_width=1_024,
    ),
    Kind(
        name=TORQUE,
        returns="$joints joint torques, N m (forces, N), held for the control step",
        effort=True,
        **_COMMAND,
    ),
    Kind(
        name=DOF_TARGET,
        returns="$joints position targets of the joints' PD drives where the model has them, rad, held for the control"
        " step; a file has this or compute_torque",
        **_COMMAND,
    ),
    Kind(
        name=INITIAL_STATE,
        stage="initial_state",
        purpose=Purpose.INITIAL_STATE,
        called=NEW_EPISODE,
        judged_with=UNSHAPED,
        returns="a dict of some of $keys, a row for every environment",
        absent="the task's default state",
        keys=lambda task: [key for key in (*INITIAL_STATE_KEYS, *task.object_keys) if key in task.default_state],
        rest=lambda task: task.default_state,
    ),
    Kind(
        name=GOAL,
        stage="goal",
        purpose=Purpose.GOAL,
        called=NEW_EPISODE,
        judged_with=UNSHAPED,
        returns="a dict of some of $keys, a row for every environment",
        absent="the goal stays as it is",
        keys=lambda task: task.goal_keys,
        rest=lambda task: {key: task.state[key] for key in task.goal_keys},
    ),
    Kind(
        name=TERMINAL,
        aliases=("compute_done",),
        stage="terminal",
        purpose=Purpose.TERMINAL,
        called=AFTER_PHYSICS,
        judged_with=UNSHAPED,
        returns="(n,), true or nonzero where the episode ends; time-outs are added",
        absent="time-outs alone",
        shape=_number,
        floating=False,
    ),
    Kind(
        name=FITNESS,
        stage="fitness",
        purpose=Purpose.FITNESS,
        called=IN_EVALUATION,
        judged_with=RUN,
        returns="(n,) float, the fitness of this control step",
        absent="the task's fitness",
        shape=_number,
        finite=False,  # the step that ends an episode does not count
        shaper=False,
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}
# one kind of each stage, in the order of a control step
STAGES: dict[str, Kind] = {kind.stage: kind for kind in sorted(_ROWS, key=lambda kind: CALLED.index(kind.called))}
SHAPER_TYPES: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if kind.shaper)
ACTION_TYPES: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if kind.acts)
# sections of a manager-based task's config that candidates patch, and the kind of function that each replaces
SECTION_TYPES: dict[str, str] = {
    "rewards": REWARD,
    "observations": OBSERVATION,
    "terminations": TERMINAL,
    "commands": GOAL,
    "events": INITIAL_STATE,
    "curriculum": GOAL,
}
ALIASES: dict[str, str] = {alias: name for name, kind in KINDS.items() for alias in kind.aliases}


def of_stage(stage: str) -> tuple[str, ...]:
    """Return the names of the functions of a stage."""
    return tuple(name for name, kind in KINDS.items() if kind.stage == stage)


def in_words(stage: str) -> str:
    """Return the results of a stage's functions as text, e.g. ``torque or dof target``."""
    return " or ".join(name.replace("compute_", "").replace("_", " ") for name in of_stage(stage))


def near_type(name: str, types: Sequence[str] = (*SHAPER_TYPES, *ALIASES)) -> str:
    """Return ``" (did you mean compute_X?)"`` for a misspelt function name, if one is close despite the same prefix."""
    close = difflib.get_close_matches(name, types, n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""
