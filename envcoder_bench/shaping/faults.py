"""Conversion of exceptions to CandidateError, with the line of the candidate's file and a one-line message."""

import dis
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.run_log import note
from envcoder_bench.shaping.contract import CandidateError, CandidateFunction, Fault
from envcoder_bench.shaping.remedies import (
    Shape,
    argument_remedy,
    branch_remedy,
    column_remedy,
    device_remedy,
    name_remedy,
    numpy_remedy,
)

FAULTS = (Exception, SystemExit)  # exceptions of candidates; others that they raise become ``Exit``
MAX_MESSAGE = 1000  # characters of an exception's message
LIKE = 0.75  # least likeness of a name to the one that it may be meant for

_UNDEFINED = re.compile(r"undefined value (\w+)")  # a message of TorchScript
_SCRIPT_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


class BadReturn(Exception):
    """A function returned what its contract does not allow; the message starts with "returned".

    Attributes:
        got, want: the shape of a tensor and what it must be; empty where the shape is not what is wrong.
        not_finite: whether it holds NaN or infinity.
    """

    def __init__(self, message: str, got: Shape = (), want: Shape = (), not_finite: bool = False) -> None:
        super().__init__(message)
        self.got, self.want, self.not_finite = got, want, not_finite


class Mutation(Exception):
    """A function changed its input in place; the message says which."""

    REMEDY = "return new tensors, or work on x.clone()"


class Exit(Exception):
    """A candidate raised an exception that would end the run, such as GeneratorExit; it is the cause."""


def by_user(error: BaseException, file: str) -> bool:
    """Return whether Ctrl-C raised an exception, and not a statement of ``file``."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    frame, at = None, 0
    trace = error.__traceback__
    while trace is not None:
        frame, at, trace = trace.tb_frame, trace.tb_lasti, trace.tb_next
    code = None if frame is None else frame.f_code
    return code is None or code.co_filename != file or dis.opname[code.co_code[at]] != "RAISE_VARARGS"


@contextmanager
def of_candidate(file: str) -> Iterator[None]:
    """Make each exception inside the block the fault of a candidate's file; run.log has the traceback.

    Use it for code of this package that reads a candidate: a file that it does not expect costs this candidate only.
    """
    try:
        yield
    except (CandidateError, UserError):
        raise
    except BaseException as error:
        if by_user(error, file):
            raise
        note(f"{file}: a fault of a file, or of this package in reading it\n{traceback.format_exc()}")
        message = f"cannot be used: it raises {one_line(error)}"
        raise CandidateError(message, file, line_in(error, file), kind="raised") from error


def _text(error: BaseException) -> str:
    """Return the message of an exception, whose class may be a candidate's."""
    try:
        return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    except BaseException:  # any kind: only the first exception counts
        return ""


def line_in(error: BaseException, file: str) -> int | None:
    """Return the line of ``file`` where ``error`` was raised: its innermost frame, or a line that TorchScript names."""
    error = _cause(error)
    script = [int(line) for name, line in _SCRIPT_FRAME.findall(_text(error)) if name == file]
    frames = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return script[-1] if script else frames[-1] if frames else None


def one_line(error: BaseException) -> str:
    """Return ``Type: message`` on one line; of TorchScript's long reports the line that says what happened."""
    error = _cause(error)
    text = _text(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "TorchScript interpreter" in lines[0]:
        return lines[-1]
    if "<--- HERE" in text:  # TorchScript's compiler: the reason may be a later line
        lines[:1] = [" ".join([*lines[:1], *[line for line in lines[1:] if line.startswith("Expected ")][:1]])]
    return f"{type(error).__name__}: {lines[0][:MAX_MESSAGE]}" if lines else type(error).__name__


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ or error if isinstance(error, Exit) else error


def at_step(step: int | None) -> str:
    """Return the step of a fault in words, for the end of its message."""
    if step is None:
        return ""
    if step >= noise.EVALUATION_STEP:
        return f" (step {step - noise.EVALUATION_STEP} of an evaluation)"
    return f" (environment step {step})"


def from_exception(
    error: BaseException,
    function: CandidateFunction | None,
    file: str = "",
    step: int | None = None,
    keys: Iterable[str] = (),
    returned_at: int | None = None,
) -> CandidateError:
    """Return what ``function`` (None: a file while it was loaded) did wrong, and at which environment step.

    ``keys`` are those of the state; ``returned_at`` is the line of the return statement that ran, where it is known.
    """
    when, name = at_step(step), _undefined_name(error)
    keys, parameters = [*keys], [] if function is None else [parameter.name for parameter in function.parameters]
    near = near_matches(name, dict.fromkeys([*parameters, *keys]), LIKE) if name else ""
    remedy = name_remedy(name, function, keys, bool(near)) if name else ""
    near = "" if remedy else near
    remedy = remedy or device_remedy(_text(error)) or branch_remedy(_text(error))
    if function is None:
        message = f"raised {one_line(error)} while the file was loaded{near}"
        return CandidateError(message, file, line_in(error, file), kind="raised", remedy=remedy)
    if isinstance(error, BadReturn):
        line, remedy = returned_at or return_line(function), column_remedy(error.got, error.want, function)
        return CandidateError(f"{error}{when}", function.file, line, function.type, "returned", remedy)
    if isinstance(error, Mutation):
        message = f"{error}{when}"
        return CandidateError(message, function.file, function.line, function.type, "changed input", error.REMEDY)
    if not near:
        remedy = remedy or numpy_remedy(error, _text(error), _in_numpy(error)) or argument_remedy(error, function)
    line = line_in(error, function.file) or function.line
    message = f"raised {one_line(error)}{when}{near}"
    return CandidateError(message, function.file, line, function.type, "raised", remedy)


def _in_numpy(error: BaseException) -> bool:
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(name.partition(".")[0] == "numpy" for name in modules)


def of_patch(error: BaseException, file: str, step: int | None = None) -> Fault:
    """Return the fault of a function of a file that the task calls, such as a reward term."""
    cause = error.__cause__ or error
    line = line_in(cause, file) or getattr(error, "line", None)
    return Fault(f"{error}{at_step(step)}", file, line, kind="raised", remedy=device_remedy(_text(cause)))


def return_line(function: CandidateFunction) -> int:
    """Return the line of a function's return statement, or of its ``def`` if it has several."""
    lines = _return_lines(_code(function))
    return lines[0] if len(lines) == 1 else function.line


@contextmanager
def noting_returns(function: CandidateFunction) -> Iterator[list[int]]:
    """Note the line of the last return of the function inside the block; nothing if it has one return only."""
    code, lines = _code(function), []
    if len(_return_lines(code)) < 2:
        yield lines
        return

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is code:
            lines[:] = [frame.f_lineno]

    # a profiler may be at work already
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield lines
    finally:
        sys.setprofile(before)


def _code(function: CandidateFunction) -> CodeType | None:
    code = getattr(inspect.unwrap(function.call), "__code__", None)
    return code if code is not None and code.co_filename == function.file else None


def _return_lines(code: CodeType | None) -> list[int]:
    """Return the lines of the return statements of a function's code."""
    if code is None:
        return []
    steps = [step for step in dis.get_instructions(code) if step.opname in ("RETURN_VALUE", "RETURN_CONST")]
    return sorted({line for step in steps if step.positions is not None and (line := step.positions.lineno)})


def _undefined_name(error: BaseException) -> str:
    """Return the name that is not defined, if that is the error; else an empty string."""
    script = _UNDEFINED.search(_text(error))
    name = getattr(error, "name", None) if type(error) is NameError else script[1] if script else None
    return name if isinstance(name, str) else ""
