"""``logging`` and ``warnings`` that say nothing: nobody reads what an untrusted file says.

The real ones have files, streams and modules in their attributes, with which a file could write its own answer.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50, "FATAL": 50}


class Quiet:
    """An object whose methods take anything and do nothing: a logger, a handler, a formatter."""

    def __init__(self, *_: object, **__: object) -> None:
        self.name, self.level, self.handlers = "quiet", LEVELS["NOTSET"], []
        self.disabled = self.propagate = False

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_":
            raise AttributeError(name)
        return _nothing


class NoWarnings:
    """``warnings.catch_warnings``: there is none to catch."""

    def __init__(self, *_: object, record: bool = False, **__: object) -> None:
        self.record = record

    def __enter__(self) -> Any:
        return [] if self.record else None

    def __exit__(self, *_: object) -> None:
        pass


def _nothing(*_: object, **__: object) -> None:
    pass


class _Logger(Quiet):
    def isEnabledFor(self, level: int) -> bool:
        return False

    def hasHandlers(self) -> bool:
        return False

    def getEffectiveLevel(self) -> int:
        return LEVELS["WARNING"]

    def getChild(self, suffix: str) -> _Logger:
        return self


def _get_logger(name: object = None) -> _Logger:
    return _Logger()


_said = dict.fromkeys(("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"), _nothing)
LOGGING = SimpleNamespace(
    **LEVELS,
    **_said,
    **dict.fromkeys(("basicConfig", "disable", "shutdown", "captureWarnings", "addLevelName"), _nothing),
    **dict.fromkeys(("Handler", "StreamHandler", "NullHandler", "Formatter", "Filter"), Quiet),
    Logger=_Logger,
    getLogger=_get_logger,
    getLevelName=str,
)
WARNINGS = SimpleNamespace(
    **dict.fromkeys(("warn", "warn_explicit", "simplefilter", "filterwarnings", "resetwarnings"), _nothing),
    catch_warnings=NoWarnings,
)
