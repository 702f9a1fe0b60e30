"""Robot tasks: model, state, goals and fitness. All shaping is candidates; see sources/registry.py."""

import importlib
from typing import Any

# what a task or a source from outside the package is written with and checked by. Looked up when it is used: naming
# tasks must not load torch, and check_task stands on the layers above this one
_PUBLIC = {
    "Field": "envcoder_bench.tasks.base",
    "Task": "envcoder_bench.tasks.base",
    "EnvGroups": "envcoder_bench.tasks.base",
    "TaskSource": "envcoder_bench.tasks.source",
    "TaskSpec": "envcoder_bench.tasks.spec",
    "Can": "envcoder_bench.tasks.spec",
    "SimTask": "envcoder_bench.tasks.sim_task",
    "actions": "envcoder_bench.tasks.sim_task",
    "read": "envcoder_bench.tasks.sim_task",
    "DT": "envcoder_bench.tasks.sim_task",
    "MAX_EPISODE_LENGTH": "envcoder_bench.tasks.sim_task",
    "PROGRESS": "envcoder_bench.tasks.sim_task",
    "check_task": "envcoder_bench.tools.task_check",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
