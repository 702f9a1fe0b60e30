"""The kinds of functions that a candidate may define, and the fitness function that a user may: one table.

Whatever lists kinds reads them here: loading, checking, tracing, dispatch, evaluation, the jail, prompts, profiles and
``--describe``. A new kind is a row of ``KINDS`` and a call in the environment, ``Dispatcher.run(stage, step)``.

Nothing here imports torch, which ``--help`` and ``--describe`` do without.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NamedTuple, Sequence

if TYPE_CHECKING:
    from torch import Tensor

REWARD = "compute_reward"
OBSERVATION = "compute_observation"
TORQUE = "compute_torque"
DOF_TARGET = "compute_dof_target"
INITIAL_STATE = "compute_initial_state"
GOAL = "compute_goal"
TERMINAL = "compute_terminal"
FITNESS = "compute_fitness"

INITIAL_STATE_KEYS: tuple[str, ...] = ("root_states", "dof_pos", "dof_vel")
VALUE = "value"  # the name of a result that is one tensor
ANY = -1  # a width that the candidate chooses

# when a function is called, in the order of a control step
BEFORE_PHYSICS, AFTER_PHYSICS, NEW_EPISODE, BEFORE_POLICY, IN_EVALUATION = CALLED = (
    "before the physics of every control step",
    "after the physics of every control step",
    "where an episode begins",
    "before the policy acts",
    "after the physics of every control step of an evaluation",
)
# whose function evaluations use
CANDIDATE, UNSHAPED, RUN = ("the candidate's", "the unshaped task's", "the run's")


class Part(NamedTuple):
    """One tensor of a result: its shape without the axis of environments, and whether it must be floating point."""

    shape: tuple[int, ...]
    floating: bool


@dataclass(frozen=True)
class Kind:
    """One kind of function.

    Attributes:
        name, aliases: of the function in a file.
        stage: what it makes. Functions of one stage take each other's place: a file has one of them, and all columns
            but ``name``, ``returns`` and ``effort`` are equal.
        purpose: of its random numbers (``core.noise``): from 1 to 15, another one for every stage.
        called: when, one of ``CALLED``.
        judged_with: whose function evaluations use: ``CANDIDATE``, ``UNSHAPED`` or ``RUN`` (the file of ``--fitness``).
        returns: the result in words, for n environments. ``$joints`` stands for the shape of a tensor with a number
            for each joint, ``$keys`` for the keys that the task allows.
        absent: what takes its place if neither the candidate nor the baseline defines it, in words.
        shape: of the result for one environment, of the task; None: the result is a dict of tensors of the state.
        floating: whether the result must be floating point; if not, bools and integers are allowed, too.
        components: whether it may return a pair of the result and a dict of its components. One stage has them.
        keys, rest: of a dict: the keys that it may have, as far as the task's state has them; the live tensors by key,
            whose rows are the result where no function sets them.
        acts: whether the policy's action is one of its parameters.
        effort: whether the result commands efforts, not position targets.
        default: the task's method that is called with action and state where there is no function.
        required: whether a candidate cannot do without it.
        shaper: whether candidates define it and ``--shaper_types`` knows it.
        untrusted_width: the most numbers that untrusted code may return for one environment, of a width ``ANY``.
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
        """The function as it is usually defined, e.g. ``compute_goal(state_dict)``."""
        return f"{self.name}({'action, ' if self.acts else ''}state_dict)"

    @property
    def noun(self) -> str:
        """What the stage makes, for messages: ``the initial state``."""
        return f"the {self.stage.replace('_', ' ')}"

    def parts(self, task: Any) -> dict[str, Part]:
        """The tensors that it may return for a task, by key; ``VALUE`` if it returns one tensor."""
        if self.shape is not None:
            return {VALUE: Part(self.shape(task), self.floating)}
        assert self.keys is not None
        own = {key: task.state[key] for key in self.keys(task) if key in task.state}
        return {key: Part(tuple(x.shape[1:]), x.is_floating_point()) for key, x in own.items()}


def _number(task: Any) -> tuple[int, ...]:
    return ()


_COMMAND: dict[str, Any] = {
    "stage": "command",
    "purpose": 6,  # core.noise.CONTROL
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
        purpose=3,
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
        purpose=4,
        called=BEFORE_POLICY,
        judged_with=CANDIDATE,
        returns="(n, k) float, any k",
        absent="an error",
        shape=lambda task: (ANY,),
        required=True,
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
        purpose=1,
        called=NEW_EPISODE,
        judged_with=UNSHAPED,
        returns="a dict of some of $keys, a row for every environment",
        absent="the task's default state",
        keys=lambda task: (*INITIAL_STATE_KEYS, *task.object_keys),
        rest=lambda task: task.default_state,
    ),
    Kind(
        name=GOAL,
        stage="goal",
        purpose=2,
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
        purpose=5,
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
        purpose=8,
        called=IN_EVALUATION,
        judged_with=RUN,
        returns="(n,) float, the fitness of this control step",
        absent="the task's fitness",
        shape=_number,
        shaper=False,
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}
# one kind of each stage, in the order of a control step
STAGES: dict[str, Kind] = {kind.stage: kind for kind in sorted(_ROWS, key=lambda kind: CALLED.index(kind.called))}
SHAPER_TYPES: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if kind.shaper)
ACTION_TYPES: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if kind.acts)
ALIASES: dict[str, str] = {alias: name for name, kind in KINDS.items() for alias in kind.aliases}


def of_stage(stage: str) -> tuple[str, ...]:
    """The names of the functions that make one thing."""
    return tuple(name for name, kind in KINDS.items() if kind.stage == stage)


def in_words(stage: str) -> str:
    """What the functions of a stage give, e.g. ``torque or dof target``."""
    return " or ".join(name.replace("compute_", "").replace("_", " ") for name in of_stage(stage))


def near_type(name: str, types: Sequence[str] = (*SHAPER_TYPES, *ALIASES)) -> str:
    """``" (did you mean compute_X?)"`` for a misspelt function name; all share a prefix, so only close ones count."""
    close = difflib.get_close_matches(name, types, n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""
