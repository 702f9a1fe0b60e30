"""Rank environment-shaping candidates for robot RL in one process: one simulation, one policy per candidate.

    result = envcoder_bench.evaluate("Cartpole", {"upright": "def compute_reward(pole_angle): ..."}, seeds=3)

Messages of a run go to the logger ``envcoder_bench``.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envcoder_bench.adapters.make import make_env
    from envcoder_bench.api import check, describe, evaluate, extend, resume, stress_run
    from envcoder_bench.core.errors import Stopped, UserError
    from envcoder_bench.run.folder.policies import load_policy
    from envcoder_bench.run.hooks import Reporter, StopRequest
    from envcoder_bench.run.result import RunResult
    from envcoder_bench.serve.evaluator import Evaluator

__version__ = "0.2.0"
__all__ = [
    "Evaluator", "Reporter", "RunResult", "StopRequest", "Stopped", "UserError", "check", "describe", "evaluate",
    "extend", "load_policy", "make_env", "resume", "stress_run",
]  # fmt: skip

# a checkout is used with its own packages, also where those are not installed
_packages = Path(__file__).resolve().parent.parent / "packages"
if (_packages / "mujoco_batches").is_dir() and str(_packages) not in sys.path:
    sys.path.insert(1, str(_packages))

import mujoco_batches  # noqa: E402, F401, before MuJoCo: where OpenGL is missing, it imports that without

logging.getLogger(__name__).addHandler(logging.NullHandler())

_WHERE = {
    "Evaluator": "serve.evaluator",
    "Reporter": "run.hooks",
    "RunResult": "run.result",
    "StopRequest": "run.hooks",
    "Stopped": "core.errors",
    "UserError": "core.errors",
    "check": "api",
    "describe": "api",
    "evaluate": "api",
    "extend": "api",
    "load_policy": "run.folder.policies",
    "make_env": "adapters.make",
    "resume": "api",
    "stress_run": "api",
}


def __getattr__(name: str) -> Any:
    """Import attributes lazily, so that ``import envcoder_bench`` loads neither torch nor a simulator."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
