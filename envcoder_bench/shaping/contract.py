"""Candidates and their functions once loaded, the functions that shape one group, and how a fault is reported."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.shaping.kinds import ALIASES, SHAPER_TYPES

if TYPE_CHECKING:  # torch, which the command line's --help does without
    from envcoder_bench.compile.program import Program

MAX_ACTION_DIM = 100


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
        type, file, line: the name of its kind (``kinds.KINDS``), and where its ``def`` is.
        call, parameters: the function; its parameters, whose ``annotation`` is float, int or bool where TorchScript
            wants a Python number.
        action_dim: the file's ``ACTION_DIM``, if this is an action function.
        random_line: where it may draw random numbers; None if it surely does not.
        generator_line: where it may draw them from a generator, not from the group's stream; None if surely not.
        stateful_line: where it may keep something for its next call; None if it surely does not.
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
    stateful_line: int | None = None
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
        functions: by stage (``kinds.STAGES``), in the order of ``kinds.KINDS``; a stage without one has its default.
        action_dim, effort, widths, components: filled in by ``checking.check``: the width of the action, whether it
            commands effort, by stage the widths of results ``(n, width)``, and the names of the components.
        programs: filled in by ``trace``: what stands for the functions of a stage; those that it does not name are
            called.
    """

    name: str
    file: str
    functions: Mapping[str, CandidateFunction]
    action_dim: int = 0
    effort: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
    components: tuple[str, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)

    @property
    def obs_dim(self) -> int:
        """The width of the observation."""
        return self.widths["observation"]
