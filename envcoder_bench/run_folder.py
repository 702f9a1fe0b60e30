"""A run on disk: what it was asked to do, how far it got, and what came of it.

::

    config.yaml          everything the run was asked to do; --resume reads it
    results.csv          a row per candidate and seed
    summary.json         the ranking
    curves.csv           learning curves
    points.csv           the same at evaluations, with mean, min and max of reward components
    learning_curves.png  ranking.png
    tensorboard/         scalars per candidate and seed
    fitness.py           with --fitness: the file as it was
    candidates/<name>/   source.py, policy.pth (a plain rl_games checkpoint)
    profile/             with --profile: breakdown.json, trace.json
    checkpoint.pth       present while the run is unfinished
    .lock                held by the process that works on the run
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch
from filelock import FileLock, Timeout  # torch's own dependency
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envcoder_bench.errors import UserError
from envcoder_bench.report.files import write_atomic
from envcoder_bench.report.results import Result

GroupKey = Tuple[str, int]  # a candidate's name and a seed

FITNESS_NAME = "(fitness)"  # of the fitness file as a source: no candidate can have it
_BYTES = "surrogateescape"  # bytes of a candidate file that are no text are kept as they are
_LOCK = ".lock"


def save_checkpoint(path: Path, state: Any) -> None:
    """``torch.save`` that leaves the old file or the new one, whenever the process dies."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomic(path, buffer.getvalue())


@dataclass
class Checkpoint:
    """How far a run got: waves that are finished, and the one in training.

    Attributes:
        results: rows of every candidate and seed that is done: failed at load, or of a finished wave.
        waves, seconds: how many waves are finished, and the time they took.
        needed, peak: the memory of the largest wave by estimate, and the most that was measured, in bytes.
        groups, training: candidate and seed of every group of the wave in training, and the state it goes on from;
            empty and None between waves.
    """

    results: List[Result] = field(default_factory=list)
    waves: int = 0
    seconds: float = 0.0
    needed: int = 0
    peak: int = 0
    groups: List[GroupKey] = field(default_factory=list)
    training: Optional[Dict[str, Any]] = None

    @property
    def done(self) -> Set[GroupKey]:
        return {(result.candidate, result.seed) for result in self.results}


class CandidateSource(NamedTuple):
    """A candidate as the user wrote it: its name, its file (for messages) and the file's text."""

    name: str
    file: str
    source: str


class RunFolder:
    """Paths and atomic reading and writing of a run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.results = path / "results.csv"
        self.summary = path / "summary.json"
        self.curves = path / "curves.csv"
        self.points = path / "points.csv"
        self.fitness = path / "fitness.py"
        self.tensorboard = path / "tensorboard"
        self.checkpoint = path / "checkpoint.pth"
        self.profile = path / "profile"

    @classmethod
    def create(
        cls, path: Path, cfg: DictConfig, sources: List[CandidateSource], fitness: Optional[CandidateSource] = None
    ) -> RunFolder:
        """Make the folder with the config and a copy of every candidate's source, and of the fitness file's.

        Raises:
            UserError: the path is a file or a folder that is not empty.
        """
        if path.is_file():
            raise UserError(f"--output_dir {path} is a file; give a new folder")
        if path.is_dir() and any(path.iterdir()):
            held = (
                "already holds a run; go on with it by --resume, or"
                if (path / "config.yaml").exists()
                else "is not empty;"
            )
            raise UserError(f"--output_dir {path} {held} give a new folder")
        folder = cls(path)
        listed = [{"name": c.name, "file": c.file} for c in sources]
        try:
            for candidate in sources:
                home = folder.candidate(candidate.name)
                home.mkdir(parents=True, exist_ok=True)
                write_atomic(home / "source.py", candidate.source.encode("utf-8", _BYTES))
            if fitness is not None:
                write_atomic(folder.fitness, fitness.source.encode("utf-8", _BYTES))
            # last: a folder with a config.yaml can be resumed
            write_atomic(folder.config, OmegaConf.to_yaml({**cfg, "candidates": listed}))
        except OSError as error:
            raise UserError(f"--output_dir {path} cannot be written: {error}") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run to go on with it.

        Raises:
            UserError: there is no run.
        """
        folder = cls(path)
        if not folder.config.is_file():
            raise UserError(f"--resume {path}: there is no run here (no config.yaml)")
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder; the operating system forgets the lock of one that was killed.

        Raises:
            UserError: another process holds it.
        """
        lock = FileLock(self.path / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"{self.path}: another process is at work on this run: wait for its end, or stop it first"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def candidate(self, name: str) -> Path:
        """The folder of one candidate."""
        return self.path / "candidates" / name

    def read(self) -> Tuple[DictConfig, List[CandidateSource]]:
        """The config, and the candidates as they were when the run began, whatever became of the user's files.

        Raises:
            UserError: something of it is missing or damaged.
        """
        try:
            cfg = OmegaConf.load(self.config)
            assert isinstance(cfg, DictConfig)
            sources = [
                CandidateSource(c.name, c.file, (self.candidate(c.name) / "source.py").read_text("utf-8", _BYTES))
                for c in cfg.candidates
            ]
        except (OSError, YAMLError, OmegaConfBaseException, TypeError, AssertionError, UnicodeError) as error:
            raise UserError(f"--resume {self.path}: the run is damaged: {str(error).splitlines()[0]}") from error
        return cfg, sources

    def read_fitness(self, cfg: DictConfig) -> Optional[CandidateSource]:
        """The fitness file as it was when the run began; None: the run is ranked by the task's own fitness.

        Raises:
            UserError: it is missing or damaged.
        """
        if cfg.get("fitness") is None:
            return None
        try:
            return CandidateSource(FITNESS_NAME, cfg.fitness, self.fitness.read_text("utf-8", _BYTES))
        except (OSError, UnicodeError) as error:
            raise UserError(f"--resume {self.path}: the run is damaged: {error}") from error

    def load_checkpoint(self) -> Optional[Checkpoint]:
        """The last checkpoint, on the CPU, or None: the run was stopped before its first."""
        if not self.checkpoint.is_file():
            return None
        return torch.load(self.checkpoint, map_location="cpu", weights_only=False)
