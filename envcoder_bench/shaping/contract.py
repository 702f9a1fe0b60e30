"""The seven functions a candidate may define, what is known of them once loaded, and how a fault in one is reported."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from envcoder_bench.core.errors import UserError, near_matches

if TYPE_CHECKING:  # torch, which the command line's --help does without
    from envcoder_bench.compile.program import Program

REWARD = "compute_reward"
OBSERVATION = "compute_observation"
TORQUE = "compute_torque"
DOF_TARGET = "compute_dof_target"
INITIAL_STATE = "compute_initial_state"
GOAL = "compute_goal"
TERMINAL = "compute_terminal"

SHAPER_TYPES: tuple[str, ...] = (REWARD, OBSERVATION, TORQUE, DOF_TARGET, INITIAL_STATE, GOAL, TERMINAL)
ACTION_TYPES: tuple[str, ...] = (TORQUE, DOF_TARGET)  # two ways to do one thing: a shaping has at most one of them
ALIASES: dict[str, str] = {"compute_done": TERMINAL}
INITIAL_STATE_KEYS: tuple[str, ...] = ("root_states", "dof_pos", "dof_vel")
MAX_ACTION_DIM = 100
FITNESS = "compute_fitness"  # no shaping: the user's own, of a file beside the candidates


def near_type(name: str, types: Sequence[str] = (*SHAPER_TYPES, *ALIASES)) -> str:
    """``" (did you mean compute_X?)"`` for a misspelt function name; all share a prefix, so only close ones count."""
    close = difflib.get_close_matches(name, types, n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""


def known_types(names: Sequence[str]) -> list[str]:
    """The shaper types of these names, without aliases. Raises UserError with near matches."""
    kinds = [ALIASES.get(name, name) for name in names]
    for name, kind in zip(names, kinds):
        if kind not in SHAPER_TYPES:
            hint = near_matches(str(name), [*SHAPER_TYPES, *ALIASES])
            raise UserError(f"unknown shaper type '{name}'{hint}; there are {', '.join(SHAPER_TYPES)}")
    return kinds


@dataclass(eq=False)  # compared by identity, so that it can be hashed as every exception
class CandidateError(Exception):
    """A candidate's fault, as the results show it: where in the user's file, and what to change.

    ``str()`` gives ``FILE:LINE: in FUNCTION: MESSAGE`` with the parts that are known.
    """

    message: str
    file: str = ""
    line: int | None = None
    function: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.message, self.file, self.line, self.function)  # so that it pickles

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        where = f"in {self.function}: " if self.function else ""
        return f"{place}{where}{self.message}"


_NONE_ASKED = "defines none of the asked "


def nothing_asked(asked: Sequence[str], defined: Sequence[str], file: str) -> CandidateError:
    """The error of a file that is a candidate, but defines no function of the ``asked`` types."""
    return CandidateError(f"{_NONE_ASKED}{', '.join(asked)}; it defines {', '.join(defined)}", file)


def none_asked(error: CandidateError) -> bool:
    """Whether ``error`` is that of ``nothing_asked``, which may have come as text out of another process."""
    return error.message.startswith(_NONE_ASKED)


@dataclass(frozen=True)
class CandidateFunction:
    """One loaded function of one candidate file.

    Attributes:
        type, file, line: one of SHAPER_TYPES, or FITNESS, and where its ``def`` is.
        call, parameters: the function; its parameters, whose ``annotation`` is float, int or bool where TorchScript
            wants a Python number.
        action_dim: the file's ``ACTION_DIM``, if this is an action function.
        random_line: where it may draw random numbers; None if it surely does not.
        generator_line: where it may draw them from a generator, not from the group's stream; None if surely not.
        memory_line: where it may keep something for its next call; None if it surely does not.
        program: what ``call`` interprets, if the function's own code is not here; None: tracing finds out.
    """

    type: str
    file: str
    line: int
    call: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]
    action_dim: int | None = None
    random_line: int | None = None
    generator_line: int | None = None
    memory_line: int | None = None
    program: Program | None = None


@dataclass(frozen=True)
class Candidate:
    """One loaded candidate file; ``action_dim`` is its ``ACTION_DIM``, if it has one."""

    name: str
    file: str
    source: str
    functions: dict[str, CandidateFunction]
    action_dim: int | None = None


@dataclass(frozen=True)
class Shaping:
    """The functions that shape one group: the candidate's own and, for the rest, the baseline's.

    Attributes:
        name, file: the candidate's.
        action: ``compute_torque`` or ``compute_dof_target``, or None for the task's own drives.
        fitness: what an evaluation measures instead of the task's own fitness; None in training.
        obs_dim, action_dim, effort, components: filled in by ``checking.check``: widths of observation and action,
            whether the action commands effort, and the names of the reward's components.
        programs: filled in by ``trace``: what stands for the functions of a stage (reward, command, ...); those that
            it does not name are called.
    """

    name: str
    file: str
    reward: CandidateFunction
    observation: CandidateFunction
    action: CandidateFunction | None = None
    initial_state: CandidateFunction | None = None
    goal: CandidateFunction | None = None
    terminal: CandidateFunction | None = None
    fitness: CandidateFunction | None = None
    obs_dim: int = 0
    action_dim: int = 0
    effort: bool = False
    components: tuple[str, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)
