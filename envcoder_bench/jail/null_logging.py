"""Replacements of ``logging`` and ``warnings`` without output.

Attributes of the real modules lead to files, streams and modules, with which a file could write its own answer.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50, "FATAL": 50}


class NullObject:
    """A logger, handler or formatter whose methods accept any arguments and do nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        self.name, self.level, self.handlers = "null", LEVELS["NOTSET"], []
        self.disabled = self.propagate = False

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_":
            raise AttributeError(name)
        return _ignore


class NullCatchWarnings:
    """Replace ``warnings.catch_warnings``; nothing is caught."""

    def __init__(self, *_: object, record: bool = False, **__: object) -> None:
        self.record = record

    def __enter__(self) -> Any:
        return [] if self.record else None

    def __exit__(self, *_: object) -> None:
        pass


def _ignore(*_: object, **__: object) -> None:
    pass


class _NullLogger(NullObject):
    def isEnabledFor(self, level: int) -> bool:
        return False

    def hasHandlers(self) -> bool:
        return False

    def getEffectiveLevel(self) -> int:
        return LEVELS["WARNING"]

    def getChild(self, suffix: str) -> _NullLogger:
        return self


def _get_logger(name: object = None) -> _NullLogger:
    return _NullLogger()


_METHODS = dict.fromkeys(
    ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"), _ignore
)
LOGGING = SimpleNamespace(
    **LEVELS,
    **_METHODS,
    **dict.fromkeys(("basicConfig", "disable", "shutdown", "captureWarnings", "addLevelName"), _ignore),
    **dict.fromkeys(("Handler", "StreamHandler", "NullHandler", "Formatter", "Filter"), NullObject),
    Logger=_NullLogger,
    getLogger=_get_logger,
    getLevelName=str,
)
WARNINGS = SimpleNamespace(
    **dict.fromkeys(("warn", "warn_explicit", "simplefilter", "filterwarnings", "resetwarnings"), _ignore),
    catch_warnings=NullCatchWarnings,
)
