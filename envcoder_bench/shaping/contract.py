"""Data classes of loaded candidates, their functions and the shaping of a group, and the faults of candidates."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.words import without_folders
from envcoder_bench.shaping.kinds import ALIASES, KINDS, SECTION_TYPES, SHAPER_TYPES, STAGES, near_type, of_stage

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from envcoder_bench.compile.program import Program

MAX_ACTION_DIM = 100


FaultKind = Literal[
    "invalid",  # the file, or a function in it, is not what a candidate must be; also all that is not below
    "raised",
    "returned",  # a value that the contract of its function does not allow
    "changed input",
    "not finite",
    "nothing asked",  # the file defines no function of the asked types
    "crashed",  # the process that worked on it
    "duplicate",  # of another candidate of a search
    "no code",  # a language model wrote no candidate
]


_TEXTS = ("message", "file", "function", "remedy", "twin")


@dataclass(frozen=True)
class Fault:
    """What is wrong with a candidate, where, and what to do about it.

    ``str()`` gives ``FILE:LINE: in FUNCTION: MESSAGE; REMEDY``, without the parts that are unknown. Nothing reads this
    text: files keep ``data``, and ``read_fault`` reads it.

    Attributes:
        message: one line, which may quote the candidate.
        file, line, function: the place in the user's file; empty or None if unknown.
        remedy: what to change; empty if the message says it.
        twin: the candidate that a duplicate equals.
    """

    message: str
    file: str = ""
    line: int | None = None
    function: str = ""
    kind: FaultKind = "invalid"
    remedy: str = ""
    twin: str = ""

    def __post_init__(self) -> None:
        for name in ("message", "remedy"):
            object.__setattr__(self, name, one_line(getattr(self, name)))

    @property
    def place(self) -> str:
        """``FILE:LINE``, or ``FILE``; empty if the file is not known."""
        return one_line(f"{self.file}:{self.line}" if self.file and self.line else self.file)

    @property
    def explanation(self) -> str:
        """``MESSAGE; REMEDY``."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    @property
    def text(self) -> str:
        """The fault without its place: ``in FUNCTION: MESSAGE; REMEDY``."""
        return f"in {one_line(self.function)}: {self.explanation}" if self.function else self.explanation

    @property
    def data(self) -> dict[str, Any]:
        """Plain data for a file; values that are the defaults are left out."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def without_folders(self) -> Fault:
        """Return the fault with file names instead of paths, which differ between machines."""
        names = {name: without_folders(getattr(self, name)) for name in ("message", "remedy")}
        return replace(self, file=re.split(r"[/\\]", self.file)[-1], **names)

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


def read_fault(value: Any) -> Fault | None:
    """Return the fault that a file holds as ``Fault.data``; None for an empty value.

    Keys and kinds of a later version are left out. Raises ValueError if the value is something else.
    """
    if not value or isinstance(value, Fault):
        return value or None
    if not isinstance(value, Mapping) or not isinstance(value.get("message"), str):
        raise ValueError("a fault must be a mapping with a message")
    line, kind = value.get("line"), value.get("kind")
    texts = {name: text for name in _TEXTS if isinstance(text := value.get(name), str)}
    known_kind: Any = kind if kind in get_args(FaultKind) else "invalid"
    return Fault(**texts, line=line if type(line) is int else None, kind=known_kind)


class CandidateError(Exception):
    """A fault that stops a candidate. Arguments as of Fault."""

    def __init__(
        self,
        message: str,
        file: str = "",
        line: int | None = None,
        function: str = "",
        kind: FaultKind = "invalid",
        remedy: str = "",
    ) -> None:
        self.fault = Fault(message, file, line, function, kind, remedy)
        super().__init__(message, file, line, function, kind, remedy)  # so that it pickles

    @classmethod
    def of(cls, fault: Fault) -> CandidateError:
        return cls(fault.message, fault.file, fault.line, fault.function, fault.kind, fault.remedy)

    def __str__(self) -> str:
        return str(self.fault)


class CandidateWarning(RuntimeWarning):
    """A remark on a candidate that does not stop it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)  # so that it pickles
        self.fault = fault


def skip_error(asked: Sequence[str], defined: Sequence[str], file: str) -> CandidateError:
    """Return the error of a candidate that a run skips: it defines no function of the ``asked`` types."""
    message = f"defines none of the asked {', '.join(asked)}; it defines {', '.join(defined)}"
    return CandidateError(message, file, kind="nothing asked")


@dataclass(frozen=True)
class CandidateFunction:
    """One loaded function of one candidate file.

    Attributes:
        type, file, line: the name of its kind (``kinds.KINDS``), and the place of its ``def``.
        call, parameters: the function; its parameters, whose ``annotation`` is float, int or bool where TorchScript
            expects a Python number.
        action_dim: the file's ``ACTION_DIM``, if this is an action function.
        random_line: the line at which it may draw random numbers, other than by helpers; None if it certainly does not.
        draws: whether it may draw random numbers, also by helpers such as ``torch_rand_float``.
        generator_line: the line at which it may draw from a generator instead of the group's stream; None if not.
        stateful_line: its line, if it is known to store something for its next call; else None.
        module: globals of the file, in which it may store something; None for a function whose code is not in this
            process.
        program: the program that ``call`` interprets, for such a function; else None.
    """

    type: str
    file: str
    line: int
    call: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]
    action_dim: int | None = None
    random_line: int | None = None
    draws: bool = False
    generator_line: int | None = None
    stateful_line: int | None = None
    module: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
    program: Program | None = None


@dataclass(frozen=True)
class Patch:
    """Dicts of a candidate file, which change the task's config in the place of a function.

    Attributes:
        type, file, line: the name of the kind of that function, and the place of the first dict.
        sections: the dicts, by section of the config.
        function: the function that reads what the changed terms return; None where the task uses them alone.
    """

    type: str
    file: str
    line: int
    sections: Mapping[str, Any] = field(compare=False)
    function: CandidateFunction | None = None


Definition = CandidateFunction | Patch  # of a kind in a candidate, and of a stage in a shaping


def functions_of(definitions: Mapping[str, Definition]) -> dict[str, CandidateFunction]:
    """Return the functions among definitions, those of patches included."""
    functions = {key: x.function if isinstance(x, Patch) else x for key, x in definitions.items()}
    return {key: function for key, function in functions.items() if function is not None}


def sections_of(definitions: Mapping[str, Definition]) -> dict[str, Any]:
    """Return the dicts of all patches among definitions, by section."""
    patches = [x for x in definitions.values() if isinstance(x, Patch)]
    return {section: changes for patch in patches for section, changes in patch.sections.items()}


def with_patches(
    functions: Mapping[str, CandidateFunction], sections: Mapping[str, Any], line: Callable[[str], int], file: str
) -> dict[str, Definition]:
    """Return what a file defines by kind: its functions, and patches in their place where it has dicts.

    Args:
        sections: the dicts, by section.
        line: returns the line of a section's dict.
    """
    definitions: dict[str, Definition] = dict(functions)
    for kind in dict.fromkeys(map(SECTION_TYPES.__getitem__, sections)):
        dicts = {section: changes for section, changes in sections.items() if SECTION_TYPES[section] == kind}
        definitions[kind] = Patch(kind, file, min(map(line, dicts)), dicts, functions.get(kind))
    return definitions


@dataclass(frozen=True)
class Dicts:
    """The dicts of an untrusted file, as plain data.

    Attributes:
        values: the dict of each section of a task's config: names, numbers, None, tuples and dicts of them.
        lines: by section, the lines of its keys, and of the section itself as "".
        functions: the names of the shaping functions that the file defines beside them.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, Mapping[str, int]]
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """One loaded candidate file.

    Attributes:
        definitions: its functions and patches, by the name of their kind.
        action_dim: its ``ACTION_DIM``, if it has one.
        dicts: the dicts of an untrusted file, from which its patches are made; else None.
    """

    name: str
    file: str
    source: str
    definitions: Mapping[str, Definition]
    action_dim: int | None = None
    dicts: Dicts | None = None

    @property
    def functions(self) -> dict[str, CandidateFunction]:
        """Its functions by the name of their kind, those of patches included."""
        return functions_of(self.definitions)


@dataclass(frozen=True)
class Shaping:
    """What shapes one group: functions and patches of the candidate, and of the baseline for the rest.

    Attributes:
        name, file: of the candidate.
        stages: functions and patches by stage (``kinds.STAGES``), in the order of ``kinds.KINDS``; other stages use the
            task's default.
        action_dim, effort, widths, components: filled in by ``checking.check``: the width of the action, whether it
            commands effort, the widths of results ``(n, width)`` by stage, and the names of the components.
        programs: filled in by ``trace``: programs by stage; the functions of other stages are called.
    """

    name: str
    file: str
    stages: Mapping[str, Definition]
    action_dim: int = 0
    effort: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
    components: tuple[str, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)

    @property
    def functions(self) -> dict[str, CandidateFunction]:
        """Its functions by stage, those of patches included."""
        return functions_of(self.stages)

    @property
    def patches(self) -> list[Patch]:
        """Its patches."""
        return [x for x in self.stages.values() if isinstance(x, Patch)]

    def with_functions(self, functions: Mapping[str, CandidateFunction]) -> Shaping:
        """Return a copy with these functions alone, by stage; patches stay, and have them in place of their own."""
        stages: dict[str, Definition] = dict(functions)
        stages.update(
            (stage, replace(patch, function=functions.get(stage)))
            for stage, patch in self.stages.items()
            if isinstance(patch, Patch)
        )
        return replace(self, stages=stages)

    @property
    def obs_dim(self) -> int:
        """The width of the observation."""
        return self.widths["observation"]

    @property
    def critic_dim(self) -> int:
        """The width of the critic's observation; 0 if it sees the policy's."""
        return self.widths["critic_observation"] if "critic_observation" in self.stages else 0


def assemble(candidate: Candidate, baseline: Candidate, shaper_types: Sequence[str] | None = None) -> Shaping:
    """Take the functions and patches of ``shaper_types`` (None: all) from the candidate, the rest from the baseline.

    What the candidate defines replaces what the baseline has in the same stage: ``compute_torque`` and
    ``compute_dof_target`` replace each other.

    Raises:
        ValueError: a shaper type does not exist.
        CandidateError: the candidate defines none of the shaper types, or a reward or observation is missing.
    """
    asked = [ALIASES.get(name, name) for name in (SHAPER_TYPES if shaper_types is None else shaper_types)]
    for name in asked:
        if name not in SHAPER_TYPES:
            raise ValueError(f"{name!r} is not a shaper type{near_type(name)}; there are {', '.join(SHAPER_TYPES)}")
    defined = {KINDS[name].stage: value for name, value in candidate.definitions.items() if name in asked}
    if not defined:
        raise skip_error(asked, list(candidate.definitions), candidate.file)
    # the candidate's definitions replace the baseline's, stage by stage
    combined = {**{KINDS[name].stage: value for name, value in baseline.definitions.items()}, **defined}
    for stage, kind in STAGES.items():
        if kind.required and stage not in combined:
            wanted = " or ".join(of_stage(stage))
            message = f"needs {wanted}: neither it nor the baseline {baseline.name} defines one"
            raise CandidateError(message, candidate.file)
    order = dict.fromkeys(KINDS[name].stage for name in SHAPER_TYPES)
    return Shaping(candidate.name, candidate.file, {stage: combined[stage] for stage in order if stage in combined})
