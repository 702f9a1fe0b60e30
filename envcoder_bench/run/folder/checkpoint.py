"""The state of a run in its folder, as tensors and plain Python data.

``checkpoint.pth`` has the results, and ``jobs/`` a file for each wave in training, or for groups that wait at a rung.
"""

import contextlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.compat.torch_archive import ArchiveError, load_plain
from envcoder_bench.core.errors import UserError
from envcoder_bench.results.rows import Result, result_of

FORMAT = 1  # version of run folders
GroupKey = tuple[str, int]  # a candidate's name and a seed


@dataclass
class SavedJob:
    """A wave in training; its state is in ``file``.

    Attributes:
        groups, iteration: candidate and seed of every group, and how many iterations are done.
        rows: number of its rows in each log file.
        parked: whether its groups wait at a rung of a race, and may go on in other waves.
    """

    groups: list[GroupKey]
    iteration: int
    rows: dict[str, int]
    file: Path
    parked: bool = False


@dataclass
class Checkpoint:
    """The state of a run.

    Attributes:
        results: rows of every candidate and seed that is done: failed at load, skipped, or in a finished wave.
        waves, seconds: number of finished waves, and the wall-clock time so far.
        needed, peak: estimated memory of the largest wave, and the largest measured memory, in bytes.
        rows: number of rows of each log file, as of ``RunLogs.rows``, without those of ``jobs``.
        jobs: waves in training, and groups that wait at a rung, each in a file of its own.
        decided: the rungs of a race at which candidates were stopped.
    """

    results: list[Result] = field(default_factory=list)
    waves: int = 0
    seconds: float = 0.0
    needed: int = 0
    peak: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    jobs: list[SavedJob] = field(default_factory=list)
    decided: list[int] = field(default_factory=list)

    @property
    def done(self) -> set[GroupKey]:
        return {result.key for result in self.results}

    @property
    def begun(self) -> bool:
        """Whether any training or evaluation is saved."""
        return bool(self.waves or self.jobs or any(result.measured for result in self.results))

    @property
    def waves_begun(self) -> list[list[GroupKey]]:
        """The groups of every wave that is in training."""
        return [job.groups for job in self.jobs if not job.parked]

    @property
    def all_rows(self) -> dict[str, int]:
        """The number of rows of each log file."""
        return sum_counts(self.rows, *(job.rows for job in self.jobs))

    def iterations(self) -> dict[GroupKey, int]:
        """The iteration from which each group in training continues."""
        begun: dict[GroupKey, int] = {}
        for job in self.jobs:
            begun.update({key: max(job.iteration, begun.get(key, 0)) for key in job.groups})
        return begun


def sum_counts(*counts: Mapping[str, int]) -> dict[str, int]:
    """Add counts by name."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


class _NotACheckpoint(Exception):
    """The file can be read but is not a checkpoint."""


def packed(state: Any) -> bytes:
    """Return what ``torch.save`` writes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def pack_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The file of a checkpoint, plain data which ``torch.load(path, weights_only=True)`` reads."""
    fields = {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__ if name != "jobs"}
    return packed({"format": FORMAT, **fields, "results": [asdict(result) for result in checkpoint.results]})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, without the jobs.

    Raises UserError if it is truncated, not a checkpoint, or of a newer format.
    """
    with _readable(path, "trains all candidates from the beginning"):
        state = _content(path, path)
        return Checkpoint(**{**state, "results": [result_of(row) for row in state["results"]]})


def pack_job(groups: list[GroupKey], training: dict[str, Any], rows: dict[str, int]) -> bytes:
    """The file of a SavedJob, with the state of its session."""
    return packed({"format": FORMAT, "groups": groups, "training": training, "rows": rows})


def load_job(path: Path, content: bytes | None = None) -> tuple[SavedJob, dict[str, Any]]:
    """Read what ``pack_job`` made: the job, and the state of its session.

    Args:
        path: of the file; where its ``content`` is given, another machine has it.

    Raises:
        UserError: as ``load_checkpoint``.
    """
    with _readable(path, "trains its candidates from the beginning"):
        state = _content(path if content is None else io.BytesIO(content), path)
        training = state["training"]
        groups = [(str(name), int(seed)) for name, seed in state["groups"]]
        return SavedJob(groups, training["iteration"], dict(state["rows"]), path, "parts" in training), training


def _content(file: Path | io.BytesIO, path: Path) -> dict[str, Any]:
    """What a file holds."""
    state = _load(file)
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise _NotACheckpoint("it is not a checkpoint of a run")
    refuse_newer(state.pop("format"), path)
    return state


@contextlib.contextmanager
def _readable(path: Path, otherwise: str) -> Iterator[None]:
    """Raise UserError where reading fails; ``otherwise`` is what --resume does without the file."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged file can make torch and pickle raise anything
        reason = error if isinstance(error, _NotACheckpoint) else "it is truncated, or not a checkpoint"
        raise UserError(
            f"{path} is damaged ({reason}): restore it from a copy; or delete it, and --resume {otherwise}"
        ) from error


def refuse_newer(number: int, path: Path) -> None:
    """Raise UserError if a file is of a newer format than this version writes."""
    if number > FORMAT:
        raise UserError(
            f"{path} has format {number}, and this version of EnvCoderBench reads formats up to {FORMAT}: use the"
            " version that wrote it, or a newer one"
        )


def _load(file: Path | io.BytesIO) -> Any:
    if isinstance(file, Path) and not file.stat().st_size:
        raise _NotACheckpoint("it is empty")
    try:
        return load_plain(file)
    except ArchiveError as error:
        raise _NotACheckpoint(str(error)) from error
