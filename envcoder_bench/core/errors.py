"""Exceptions for user errors, as distinct from bugs: commands print them without a traceback and exit with code 2."""

import copyreg
import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.words import with_addresses


class OneLine:
    """An exception that notebooks show as one line, without a traceback."""

    def __reduce__(self) -> tuple[Any, ...]:  # Exception's calls __init__ with the message alone
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return [f"{type(self).__name__}: {self}"]


class UserError(OneLine, Exception):
    """Bad input; the message says what was wrong, where, and what would be right.

    Attributes:
        reason, advice: the text before the advice, and what to do; the latter is empty if the reason says it.
        file: the user's file that is wrong; None if it is not known.
    """

    def __init__(self, message: str, *, advice: str = "", file: Path | None = None) -> None:
        super().__init__(f"{message}; {advice}" if advice else message)
        self.reason, self.advice, self.file = message, advice, file

    def __str__(self) -> str:
        return with_addresses(super().__str__())


class UnknownKey(UserError):
    """A config has a key that does not exist."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class MachineError(UserError):
    """The machine ended a run: a file cannot be read or written, or no worker starts.

    The files saved in ``folder`` are intact, and the run can resume.
    """

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class NoWorker(UserError):
    """All workers of a run on several devices were lost, and none can be started."""


class Stopped(OneLine, KeyboardInterrupt):
    """Ctrl-C during the preparation of a run or between its waves; the message names the current step if known.

    The functions of ``envcoder_bench`` also raise it when Ctrl-C stopped a wave, and say how to resume.

    Attributes:
        folder: the run folder to resume from; None if the run had not begun and nothing was written.
    """

    def __init__(self, message: str, folder: Path | None) -> None:
        super().__init__(message)
        self.folder = folder


@contextmanager
def user_input(file: Path | None = None) -> Iterator[None]:
    """Convert a ValueError raised inside the block to UserError, for calls that validate user input.

    With ``file``, where the input is from, all messages begin with its name, also those of a UserError.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(f"{file}: {error}" if file else str(error), file=file) from None
    except UserError as error:
        if file is None:
            raise
        raise UserError(f"{file}: {error}", file=file) from error


def is_out_of_memory(error: Exception) -> bool:
    """Return whether torch, Python or Warp raised the error because memory could not be allocated."""
    text = str(error).lower()
    failed = "out of memory" in text or "failed to allocate" in text
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and failed)


@contextmanager
def recorded_input(file: Path) -> Iterator[None]:
    """Say in which file another version recorded a key that this one does not have, and the remedy."""
    try:
        yield
    except UnknownKey as error:
        advice = f"another version recorded it: remove it from {file.name}"
        raise UserError(f"{file}: {error}", advice=advice, file=file) from error


@contextmanager
def exit_on_user_error(program: str) -> Iterator[None]:
    """For scripts: print a user error, a missing file (exit code 2) or Ctrl-C (130) without a traceback."""
    try:
        yield
    except (UserError, FileNotFoundError) as error:
        missing = error.filename if isinstance(error, FileNotFoundError) else None
        message = str(error) if missing is None else f"{missing} does not exist"
        print(f"{program}: error: {one_line(message)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        print(f"{program}: {one_line(stop) or 'stopped'}", file=sys.stderr)
        sys.exit(130)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or else its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def type_and_line(error: BaseException) -> str:
    """Return an error's type, and the first line of its message if it has one."""
    line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def message_line(error: BaseException) -> str:
    """Return an error's whole message on one line, or else its type."""
    return " ".join(str(error).split()) or type(error).__name__


def near_matches(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``" (did you mean X?)"`` for a misspelt word, or the last part of a dotted one; or an empty string.

    ``cutoff`` is the least likeness, as of ``difflib.get_close_matches``.
    """
    words = list(words)
    # wrong case is the most common mistake, because IsaacGymEnvs' names have capitals
    close = [each for each in words if each.lower() == word.lower()][:1]
    close = (
        close
        or [each for each in words if each.endswith(f".{word}")]
        or difflib.get_close_matches(word, words, cutoff=cutoff)
    )
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__
