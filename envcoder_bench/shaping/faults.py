"""Conversion of exceptions to CandidateError, with the line of the candidate's file and a one-line message."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter

import torch

from envcoder_bench.core import noise
from envcoder_bench.shaping.contract import CandidateError, CandidateFunction

FAULTS = (Exception, SystemExit)  # exceptions of candidates; KeyboardInterrupt comes from the user

_SCRIPT_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_SETTINGS = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
}


class BadReturn(Exception):
    """A function returned what its contract does not allow; the message starts with "returned"."""


class Mutation(Exception):
    """A function changed its input in place; the message says which."""


def line_in(error: BaseException, file: str) -> int | None:
    """The line of ``file`` where ``error`` came up: the innermost frame there, or the one TorchScript names."""
    script = [int(line) for name, line in _SCRIPT_FRAME.findall(str(error)) if name == file]
    frames = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return script[-1] if script else frames[-1] if frames else None


def one_line(error: BaseException) -> str:
    """``Type: message`` on one line; of TorchScript's long reports the line that says what happened."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "TorchScript interpreter" in lines[0]:
        return lines[-1]
    if "<--- HERE" in text:  # TorchScript's compiler: the reason may be a later line
        lines[:1] = [" ".join([*lines[:1], *[line for line in lines[1:] if line.startswith("Expected ")][:1]])]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def at_step(step: int | None) -> str:
    """When a fault came up, for the end of its message."""
    if step is None:
        return ""
    if step >= noise.EVALUATION_STEP:
        return f" (step {step - noise.EVALUATION_STEP} of an evaluation)"
    return f" (environment step {step})"


def from_exception(
    error: BaseException, function: CandidateFunction | None, file: str = "", step: int | None = None
) -> CandidateError:
    """Tell what ``function`` (None: a file while it was loaded) did wrong, and at which environment step."""
    when = at_step(step)
    if function is None:
        return CandidateError(f"raised {one_line(error)} while the file was loaded", file, line_in(error, file))
    if isinstance(error, (BadReturn, Mutation)):
        return CandidateError(f"{error}{when}", function.file, function.line, function.type)
    line = line_in(error, function.file) or function.line
    return CandidateError(f"raised {one_line(error)}{when}{_hint(error, function)}", function.file, line, function.type)


def _hint(error: BaseException, function: CandidateFunction) -> str:
    """Return what to change if a function without named parameters did not find its arguments."""
    kinds = {parameter.kind for parameter in function.parameters}
    unnamed = kinds and kinds <= {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    if not unnamed or not isinstance(error, (TypeError, IndexError)):
        return ""
    return (
        "; *args is empty and **kwargs has every key of the state: name the parameters, and decorate a function that"
        " wraps another with functools.wraps"
    )


@contextmanager
def shared_settings() -> Iterator[None]:
    """Restore torch's process-wide settings if the block changes them, and raise ValueError."""
    before = {name: get() for name, (get, _) in _SETTINGS.items()}
    changed = []
    try:
        yield
    finally:
        for name, (get, restore) in _SETTINGS.items():
            if get() != before[name]:
                changed.append(name)
                restore(before[name])  # type: ignore[arg-type]
    if changed:
        raise ValueError(f"changes torch's {' and '.join(changed)}, which all candidates share: remove that call")
