"""What tests of one process share: a test that leaves it changed decides what later ones see."""

import gc
import logging
import operator
import os
import random
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from itertools import compress, count
from typing import Any

import numpy as np
import torch

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)
# of pytest's tmp_path; a checkout may itself be in the folder for temporary files
_TEMPORARY = os.path.join(os.path.realpath(tempfile.gettempdir()), "pytest-of-")
_CANDIDATES = "envcoder_candidate_"  # their modules go with their last function
_TASKS = "isaacgym_task_"  # files of Isaac Gym tasks
_MOUNTED = re.compile(r"envcoder_bench\.tasks\.[A-Z]")  # modules of outside tasks, which the registry forgets, too
_LIBRARIES = (  # set where they are first used
    b"PYTEST_CURRENT_TEST", b"KINETO_LOG_LEVEL", b"TORCHINDUCTOR_CACHE_DIR", b"CRC32C_SW_MODE", b"WANDB_SERVICE",
    b"PYTHONBREAKPOINT",
)  # fmt: skip


def _environment() -> dict[bytes, bytes]:
    found = os.environ._data.copy()  # items() decodes each
    for name in _LIBRARIES:
        found.pop(name, None)
    return found


def _put_environment(old: dict[bytes, bytes]) -> None:
    for name in set(_environment()) - set(old):
        del os.environb[name]
    os.environb.update(old)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a deleted folder"


def _finders() -> list[Any]:
    """Those of the package; a library that is imported first in a test may add its own."""
    return [x for x in sys.meta_path if type(x).__module__.startswith("isaacgym_mujoco")]


def _import_places() -> dict[str, list[Any]]:
    return {"path": list(sys.path), "finders": _finders()}


def _put_import_places(old: dict[str, list[Any]]) -> None:
    sys.path[:] = old["path"]
    sys.meta_path[:] = old["finders"] + [x for x in sys.meta_path if x not in _finders()]


def _torch() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
    }


def _put_torch(old: dict[str, Any]) -> None:
    torch.set_num_threads(old["threads"])
    torch.set_default_dtype(old["dtype"])
    torch.set_grad_enabled(old["grad"])
    torch.use_deterministic_algorithms(old["deterministic"])
    torch.set_float32_matmul_precision(old["matmul"])


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict
    packages = ("envcoder_bench", "isaacgym_mujoco", "mujoco_batches")
    own = [known[name] for name in sorted(x for x in known if x.startswith(packages))]
    return [logging.root, *(logger for logger in own if isinstance(logger, logging.Logger))]


def _logging() -> dict[str, tuple[Any, ...]]:
    found = {x.name: (x.level, x.propagate, x.disabled, tuple(x.handlers)) for x in _loggers()}
    fresh = (logging.NOTSET, True, False, ())
    return {"": (logging.root.manager.disable,), **{name: x for name, x in found.items() if x != fresh}}


def _put_logging(old: dict[str, tuple[Any, ...]]) -> None:
    logging.disable(old[""][0])
    for logger in _loggers():
        level, propagate, disabled, handlers = old.get(logger.name, (logging.NOTSET, True, False, ()))
        logger.setLevel(level)
        logger.propagate, logger.disabled, logger.handlers[:] = propagate, disabled, handlers


def _exception_hook() -> Any:
    """Return the hook; in place of that of W&B, which stays once it is used, the one that it calls."""
    owner = getattr(sys.excepthook, "__self__", None)
    if type(owner).__module__.startswith("wandb."):
        return getattr(owner, "_orig_excepthook", None) or sys.__excepthook__
    return sys.excepthook


def _hooks() -> dict[str, Any]:
    return {"excepthook": _exception_hook(), "gc": gc.isenabled(), **{s.name: signal.getsignal(s) for s in _SIGNALS}}


def _put_hooks(old: dict[str, Any]) -> None:
    sys.excepthook = old["excepthook"]
    (gc.enable if old["gc"] else gc.disable)()
    for number in _SIGNALS:
        if old[number.name] is not None:
            signal.signal(number, old[number.name])


def _tasks() -> dict[str, dict[str, Any]]:
    registry, shipped, sim_task = (
        sys.modules.get(f"envcoder_bench.{name}") for name in ("sources.registry", "sources.shipped", "tasks.sim_task")
    )
    found = getattr(registry, "_found", {})
    folders = getattr(shipped, "FOLDERS", ())
    return {
        "_found": {name: spec for name, spec in found.items() if spec.digest or name not in folders},
        "_by_address": dict(getattr(registry, "_by_address", {})),
        "YAML_FILES": dict(getattr(sim_task, "YAML_FILES", {})),
    }


def _put_tasks(old: dict[str, dict[str, Any]]) -> None:
    registry, sim_task = (sys.modules[f"envcoder_bench.{name}"] for name in ("sources.registry", "tasks.sim_task"))
    for name in set(_tasks()["_found"]) - set(old["_found"]):
        del registry._found[name]
    registry._found.update(old["_found"])
    for owner, name in ((registry, "_by_address"), (sim_task, "YAML_FILES")):
        getattr(owner, name).clear()
        getattr(owner, name).update(old[name])


# of each part: how to read it, and how to write it back
_PARTS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "environment variables": (_environment, _put_environment),
    "working folder": (_folder, os.chdir),
    "import path": (_import_places, _put_import_places),
    "torch": (_torch, _put_torch),
    "logging": (_logging, _put_logging),
    "hooks": (_hooks, _put_hooks),
    "tasks": (_tasks, _put_tasks),
}
_UNTOLD = ("tasks", "torch")  # whatever uses an outside task or a trainer changes these


def seed() -> None:
    """Seed the process' generators, so that a test draws the same numbers after whichever other one."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


def snapshot() -> dict[str, Any]:
    """Return what ``restore`` compares.

    Modules are lists: those of thousands are copied and compared in microseconds, a dict in a millisecond.
    """
    modules = list(sys.modules), list(sys.modules.values())
    return {"modules": modules, **{name: read() for name, (read, _) in _PARTS.items()}}


def restore(before: dict[str, Any]) -> list[str]:
    """Write back what has changed since a snapshot, and return the changes that a test should have undone.

    New modules stay, except those of temporary files, of outside tasks and with the names of Isaac Gym's.
    """
    changes = _restore_modules(*before["modules"])
    shared = sys.modules.get("envcoder_bench.shaping.shared")
    if shared:  # that a candidate has named SciPy: all later loads would take milliseconds more
        shared._scipy_used.clear()
    for name, (read, write) in _PARTS.items():
        now = read()
        if now != before[name]:
            write(before[name])
            if name not in _UNTOLD:
                changes.append(f"{name}: {_difference(before[name], now)}")
    return changes


def _restore_modules(names: list[str], modules: list[Any]) -> list[str]:
    now = list(sys.modules.values())
    if now == modules:  # as after most tests
        return []
    same = next(compress(count(), map(operator.is_not, now, modules)), min(len(now), len(modules)))
    before = dict(zip(names[same:], modules[same:]))
    for name in [name for name in list(sys.modules)[same:] if name not in before and _is_of_a_test(name)]:
        del sys.modules[name]
    changed = [n for n, x in before.items() if sys.modules.get(n) is not x and not n.startswith(_CANDIDATES)]
    for name in changed:
        sys.modules[name] = before[name]
    return [f"module {name} is another one, or gone" for name in changed if not name.startswith(_TASKS)]


def _is_of_a_test(name: str) -> bool:
    if name.startswith(_CANDIDATES):
        return False
    if name.split(".")[0] in ("isaacgym", "isaacgymenvs") or name.startswith(_TASKS) or _MOUNTED.match(name):
        return True
    fields = getattr(sys.modules[name], "__dict__", {})
    places = [fields.get("__file__"), *(fields["__path__"] if isinstance(fields.get("__path__"), list) else ())]
    places = [place for place in places if isinstance(place, str) and not place.startswith(sys.prefix)]
    return any(os.path.realpath(place).startswith(_TEMPORARY) for place in places)


def _difference(before: Any, now: Any) -> str:
    if not isinstance(before, dict):
        return f"{before!r} became {now!r}"
    names = [name for name in {**before, **now} if before.get(name, ...) != now.get(name, ...)]
    return ", ".join(f"{name}: {before.get(name, 'absent')!r} became {now.get(name, 'absent')!r}" for name in names)
