"""The models that videos draw."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from envcoder_bench.sim.rendering import brightened, save_model, scenery
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.tasks.sim_task import SimTask


def model_bytes(cfg: DictConfig, plain: Any = None) -> bytes:
    """Return the model of a run's task in MuJoCo's binary format.

    Args:
        plain: the MjModel of the task's simulation, for tasks that have no model file.
    """
    spec = get_spec(cfg.task_source or cfg.task.name)
    model = scenery(spec.model_path) if issubclass(spec.task_class, SimTask) else brightened(plain)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mjb"
        save_model(model, path)
        return path.read_bytes()
