"""checkpoint.pth: the state of a run as tensors and plain Python data, independent of class names."""

import contextlib
import io
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.results import Result
from envcoder_bench.tasks.base import UNTRAINED

# format of run folders. Format 1 had no number, pickled classes and no run.json; format 2 had the environment's state
# and the observations in the agent's state
FORMAT = 3
GroupKey = tuple[str, int]  # a candidate's name and a seed


@dataclass
class SavedJob:
    """A wave that one of several devices had in training; its state is in ``file``.

    Attributes:
        groups, iteration: candidate and seed of every group, and how many iterations are done.
        rows: how many rows of it each log file has.
        parked: whether its groups wait at a rung of a race, and may go on in other waves.
    """

    groups: list[GroupKey]
    iteration: int
    rows: dict[str, int]
    file: Path
    parked: bool = False


@dataclass
class Checkpoint:
    """The state of a run: the results of finished waves, and the state of the wave in training.

    Attributes:
        results: rows of every candidate and seed that is done: failed at load, skipped, or in a finished wave.
        waves, seconds: number of finished waves, and the time they took.
        needed, peak: estimated memory of the largest wave, and the largest measured memory, in bytes.
        groups, training: candidate and seed of every group of the wave in training, and the session's state; empty and
            None between waves.
        rows: number of rows of each log file, without those of ``jobs``.
        jobs: waves that several devices had in training, each in a file of its own; or in a race those at a rung.
        decided: the rungs of a race at which candidates were stopped.
    """

    results: list[Result] = field(default_factory=list)
    waves: int = 0
    seconds: float = 0.0
    needed: int = 0
    peak: int = 0
    groups: list[GroupKey] = field(default_factory=list)
    training: dict[str, Any] | None = None
    rows: dict[str, int] = field(default_factory=dict)
    jobs: list[SavedJob] = field(default_factory=list)
    decided: list[int] = field(default_factory=list)

    @property
    def done(self) -> set[GroupKey]:
        return {(result.candidate, result.seed) for result in self.results}

    @property
    def begun(self) -> bool:
        """Whether any training or evaluation is saved."""
        untrained = any(result.candidate == UNTRAINED for result in self.results)
        return bool(self.waves or self.training or self.jobs or untrained)

    @property
    def waves_begun(self) -> list[list[GroupKey]]:
        """The groups of every wave that was in training."""
        return [self.groups] * bool(self.groups) + [job.groups for job in self.jobs]

    @property
    def all_rows(self) -> dict[str, int]:
        """The number of rows of each log file."""
        total = dict(self.rows)
        for job in self.jobs:
            for name, count in job.rows.items():
                total[name] = total.get(name, 0) + count
        return total

    def iterations(self) -> int | dict[GroupKey, int]:
        """The iteration from which training is resumed: of the one wave, or of each group of several."""
        own = self.training["iteration"] if self.training else 0
        if not self.jobs:
            return own
        begun = {key: own for key in self.groups}
        for job in self.jobs:
            begun.update({key: max(job.iteration, begun.get(key, 0)) for key in job.groups})
        return begun


class _NotACheckpoint(Exception):
    """The file can be read but is not a checkpoint."""


def packed(state: Any) -> bytes:
    """Return what ``torch.save`` writes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def save_state(path: Path, state: Any) -> None:
    """``torch.save``, atomically: if the process is killed, the old file is unchanged."""
    write_atomic(path, packed(state))


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint as plain data, which ``torch.load(path, weights_only=True)`` reads."""
    fields = {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__ if name != "jobs"}
    if not checkpoint.decided:
        del fields["decided"]  # older versions can read the file
    save_state(path, {"format": FORMAT, **fields, "results": [asdict(result) for result in checkpoint.results]})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of this format or of an older one, on the CPU.

    Raises:
        UserError: it is truncated, not a checkpoint, or of a newer format.
    """
    with _readable(path, "trains all candidates from the beginning"):
        number, state = _content(path, path)
        if number < 3 and state["training"] is not None:
            state["training"] = _without_agent(state["training"])
        return Checkpoint(**{**state, "results": [Result(**row) for row in state["results"]]})


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
        _, state = _content(path if content is None else io.BytesIO(content), path)
        training = state["training"]
        groups = [(str(name), int(seed)) for name, seed in state["groups"]]
        return SavedJob(groups, training["iteration"], dict(state["rows"]), path, "parts" in training), training


def load_jobs(folder: Path, checkpoint: Checkpoint) -> list[SavedJob]:
    """The jobs of a folder, without those that ``checkpoint`` has got beyond."""
    newer = checkpoint.done.union(checkpoint.groups)
    jobs = [load_job(path)[0] for path in sorted(folder.glob("*.pth"))]
    return [job for job in jobs if not newer.issuperset(job.groups)]


def _content(file: Path | io.BytesIO, path: Path) -> tuple[int, dict[str, Any]]:
    """The number of a file's format, and what it holds."""
    state = _load(file)
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise _NotACheckpoint("it is not a checkpoint of a run")
    number = state.pop("format")
    refuse_newer(number, path)
    return number, state


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


def _without_agent(training: dict[str, Any]) -> dict[str, Any]:
    """Convert the state of a session from format 2."""
    agent = training["agent"]
    others = {key: value for key, value in training.items() if key != "agent"}
    return {**others, "trainer": agent, "obs": agent["obs"], "env": agent["env_state"]}


def _load(file: Path | io.BytesIO) -> Any:
    if isinstance(file, Path) and not file.stat().st_size:
        raise _NotACheckpoint("it is empty")
    with zipfile.ZipFile(file) as parts:  # torch.load does not compare the checksums that torch.save writes
        changed = parts.testzip()
    if changed is not None:
        raise _NotACheckpoint(f"the checksum of {changed} is wrong")
    if not isinstance(file, Path):
        file.seek(0)
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        old = torch.load(file, map_location="cpu", weights_only=False, pickle_module=_format_1)
        return _from_format_1(old) if isinstance(old, _OldCheckpoint) else None


# format 1: instances of three classes, of which only the attributes are read


class _Attributes:
    """Stands for any class of format 1."""


class _OldCheckpoint(_Attributes):
    pass


_CLASSES = {
    ("envcoder_bench.run.folder.run_folder", "Checkpoint"): _OldCheckpoint,
    ("envcoder_bench.report.results", "Result"): _Attributes,
    ("envcoder_bench.env.evaluation", "Episodes"): _Attributes,
}


class _Unpickler(pickle.Unpickler):
    """Creates only the classes of format 1 and those that tensors need."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) in _CLASSES:
            return _CLASSES[module_name, global_name]
        if (module_name, global_name) == ("collections", "OrderedDict") or module_name in ("torch", "torch._utils"):
            return super().find_class(module_name, global_name)
        raise _NotACheckpoint(f"it holds {module_name}.{global_name}")


_format_1 = ModuleType("format_1")  # a replacement for the pickle module in torch.load
vars(_format_1).update({**vars(pickle), "Unpickler": _Unpickler})


def _from_format_1(old: _Attributes) -> dict[str, Any]:
    known = vars(old)
    training = known["training"]
    if training is not None and training["episodes"] is not None:
        training["episodes"] = dict(vars(training["episodes"]))
    return {**known, "results": [dict(vars(row)) for row in known["results"]], "format": 1}
