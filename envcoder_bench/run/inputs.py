"""What a run begins with: its config and its candidates, read and checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.run.checks import check_task, check_values
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.shaping.discovery import find_candidates, select
from envcoder_bench.shaping.loading import load_source
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.registry import check_task_name


def run_config(task: str, overrides: Sequence[str]) -> DictConfig:
    """The config of a run, with its simulator and device chosen. Raises UserError for bad input."""
    with user_input():
        check_task_name(task)
        cfg = compose_config(task, overrides)
        check_values(cfg)
        check_task(cfg)
        cfg.sim, cfg.device = pick_simulator(cfg.sim, cfg.device)
    read_fitness(cfg)
    return cfg


def read_candidates(
    task: str, candidates: Sequence[Path] | None = None, candidate_idx: str | None = None
) -> list[CandidateSource]:
    """The candidates' texts.

    Args:
        task: a registered task.
        candidates: files or folders; default ``user_functions/<task>``.
        candidate_idx: positions to keep, e.g. ``"0,2,5"``.

    Raises:
        UserError: there are none, or one cannot be read.
    """
    with user_input():
        found = find_candidates(list(candidates or []), task, _candidates_root())
        if candidate_idx is not None:
            found = select(found, candidate_idx)
    try:
        return [CandidateSource(path.stem, str(path), load_source(path)) for path in found]
    except OSError as error:
        raise UserError(f"a candidate cannot be read: {error}") from error


def _candidates_root() -> Path:
    """The folder whose user_functions/ holds the candidates: the working folder, else where this package is."""
    return Path() if Path("user_functions").is_dir() else project_folder("user_functions").parent
