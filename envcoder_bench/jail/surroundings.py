"""The surroundings of an untrusted file: the modules that it may import, remedies in messages, and the clocks.

The security boundary is the confined process (``confine``), not the list of modules: a file can reach other modules
through their attributes. The list gives clear messages, and keeps imports from searching for files that cannot be
opened.
"""

import builtins
import importlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from envcoder_bench.shaping.loading import GIVEN

HELPERS = ("envcoder_bench.torch_utils", "isaacgym.torch_utils", "isaacgymenvs.utils.torch_jit_utils")
MODULES = (
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "enum",
    "functools", "heapq", "itertools", "logging", "math", "numbers", "numpy", "numpy.linalg", "numpy.typing",
    "operator", "string", "textwrap", "time", "torch", "torch.cuda", "torch.distributions", "torch.jit",
    "torch.linalg", "torch.nn", "torch.nn.functional", "torch.special", "types", "typing", "typing_extensions",
    "warnings", *HELPERS,
)  # fmt: skip

_FILES = "a candidate cannot open files: write its numbers into the code"
_CODE = "write plain code instead"
# remedies for modules that may not be imported
_INSTEAD = {
    **dict.fromkeys(("os", "pathlib", "io", "json", "pickle", "yaml", "shutil", "glob", "tempfile"), _FILES),
    **dict.fromkeys(("sys", "gc", "inspect", "ctypes", "importlib", "builtins", "ast", "traceback"), _CODE),
    **dict.fromkeys(("threading", "multiprocessing", "subprocess", "socket", "asyncio"), "a candidate is one process"),
    **dict.fromkeys(("random", "numpy.random"), "use torch.rand or similar"),
    "datetime": "the time of an episode is progress_buf * dt",
}
_IMPORTABLE = "a candidate is one file; torch, numpy, math, typing, dataclasses and the like can be imported"
# remedies by words of a message
_REMEDIES = {
    "control flow": "write torch.where(condition, a, b)",
    "joins the environments": "reduce with dim=-1, and write torch.where(condition, a, b) in place of if; "
    "NaN stops a candidate without an assert",
    "an earlier call has kept": "read actions and progress_buf of the state; compute constants at the top of the file",
    "single environments": "compare torch.arange(n) and use torch.where",
    "library's generator": "use torch.rand or similar",
    "out of torch": "use the torch function",
    "raised PermissionError": "untrusted code has no files, network and other processes: write numbers into the code",
}


def names_given(modules: Iterable[str] = ()) -> dict[str, object]:
    """Return the names that a file can use without importing them; its imports are restricted.

    All allowed modules are imported, while files can still be opened.
    """
    allowed = {*MODULES, *modules}
    for module in allowed:
        importlib.import_module(module)
    packages = {module[:end] for module in allowed for end, letter in enumerate(module) if letter == "."}

    def restricted_import(
        name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
    ) -> Any:
        by_c_code = isinstance(fromlist, list)  # torch or numpy call PyImport_Import for the file
        if not by_c_code and (level or name not in allowed | packages):
            instead = _INSTEAD.get(name) or _INSTEAD.get(name.split(".")[0]) or _IMPORTABLE
            path = "." * level + name
            raise ModuleNotFoundError(f"untrusted code may not import {path} ({instead})", name=name)
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    # nobody reads prints, and printing would read a tensor's values
    file_builtins = {**vars(builtins), "__import__": restricted_import, "print": lambda *_, **__: None}
    return {**GIVEN, "__builtins__": file_builtins}


def remedy_of(message: str) -> str:
    """Return what to change after an error of torch or Python; empty if that is not known."""
    return next((remedy for words, remedy in _REMEDIES.items() if words in message), "")


# Clocks give the same times to every file, so that programs do not depend on the time of day. Each reading advances
# them. Setting them ahead shows which results depend on them.

_START, _TICK, _AHEAD = 1_700_000_000.0, 0.001, 1_234_567_891.23  # s
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_now = _START


def replace_clocks() -> None:
    """Replace the clocks of Python's module ``time``, as files see it."""
    calendar = {name: getattr(time, name) for name in ("localtime", "gmtime", "ctime")}
    for name in _CLOCKS:
        setattr(time, name, _seconds)
        setattr(time, f"{name}_ns", lambda *_: int(_seconds() * 1e9))
    for name, convert in calendar.items():
        setattr(time, name, lambda seconds=None, convert=convert: convert(_START if seconds is None else seconds))


def start_clocks() -> None:
    """Set the clocks to their first time."""
    global _now
    _now = _START


@contextmanager
def clocks_ahead() -> Iterator[None]:
    """Set the clocks ahead inside the block."""
    global _now
    _now += _AHEAD
    try:
        yield
    finally:
        _now -= _AHEAD


def _seconds(*_: object) -> float:
    global _now
    _now += _TICK
    return _now
