"""Mistakes of a user, told apart from bugs: the commands print these without a traceback and exit with code 2."""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from pathlib import Path
from typing import Iterable, Iterator


class UserError(Exception):
    """Bad input; the message says what was wrong, where, and what would be right."""


class DiskError(UserError):
    """A file of a run cannot be read or written; what was saved in ``folder`` before is whole, and the run resumes."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class Stopped(KeyboardInterrupt):
    """Ctrl-C while a run was prepared or between its waves; the message says what was going on, if that is known.

    Attributes:
        folder: of the run, which goes on from there; None: it had not begun, and nothing was written.
    """

    def __init__(self, message: str, folder: Path | None) -> None:
        super().__init__(message)
        self.folder = folder


@contextmanager
def user_input() -> Iterator[None]:
    """Treat a ValueError raised inside as the user's: for calls that validate what the user gave."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error


def near_matches(word: str, known: Iterable[str]) -> str:
    """``" (did you mean X?)"`` for a misspelt word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=3)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
