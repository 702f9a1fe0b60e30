"""checkpoint.pth: the state of a run as tensors and plain Python data, independent of class names."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Tuple

import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.results import Result

# format of run folders. Format 1 had no number, pickled classes and no run.json; format 2 had the environment's state
# and the observations in the agent's state
FORMAT = 3
GroupKey = Tuple[str, int]  # a candidate's name and a seed


@dataclass
class Checkpoint:
    """The state of a run: the results of finished waves, and the state of the wave in training.

    Attributes:
        results: rows of every candidate and seed that is done: failed at load, skipped, or in a finished wave.
        waves, seconds: number of finished waves, and the time they took.
        needed, peak: estimated memory of the largest wave, and the largest measured memory, in bytes.
        groups, training: candidate and seed of every group of the wave in training, and the session's state; empty and
            None between waves.
        rows: number of rows of each log file.
    """

    results: list[Result] = field(default_factory=list)
    waves: int = 0
    seconds: float = 0.0
    needed: int = 0
    peak: int = 0
    groups: list[GroupKey] = field(default_factory=list)
    training: dict[str, Any] | None = None
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> set[GroupKey]:
        return {(result.candidate, result.seed) for result in self.results}

    @property
    def begun(self) -> bool:
        """Whether any training is saved."""
        return bool(self.waves or self.training)


class _NotACheckpoint(Exception):
    """The file can be read but is not a checkpoint."""


def save_state(path: Path, state: Any) -> None:
    """``torch.save``, atomically: if the process is killed, the old file is unchanged."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomic(path, buffer.getvalue())


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint as plain data, which ``torch.load(path, weights_only=True)`` reads."""
    fields = {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}
    save_state(path, {"format": FORMAT, **fields, "results": [asdict(result) for result in checkpoint.results]})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of this format or of an older one, on the CPU.

    Raises:
        UserError: it is truncated, not a checkpoint, or of a newer format.
    """
    try:
        state = _load(path)
        if not isinstance(state, dict) or not isinstance(state.get("format"), int):
            raise _NotACheckpoint("it is not a checkpoint of a run")
        number = state.pop("format")
        refuse_newer(number, path)
        if number < 3 and state["training"] is not None:
            state["training"] = _without_agent(state["training"])
        return Checkpoint(**{**state, "results": [Result(**row) for row in state["results"]]})
    except (UserError, MemoryError):
        raise
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged file can make torch and pickle raise anything
        reason = error if isinstance(error, _NotACheckpoint) else "it is truncated, or not a checkpoint"
        raise UserError(
            f"{path} is damaged ({reason}): restore it from a copy; or delete it, and --resume trains all candidates"
            " from the beginning"
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


def _load(path: Path) -> Any:
    if not path.stat().st_size:
        raise _NotACheckpoint("it is empty")
    with zipfile.ZipFile(path) as parts:  # torch.load does not compare the checksums that torch.save writes
        changed = parts.testzip()
    if changed is not None:
        raise _NotACheckpoint(f"the checksum of {changed} is wrong")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        old = torch.load(path, map_location="cpu", weights_only=False, pickle_module=_format_1)
        return _from_format_1(old) if isinstance(old, _OldCheckpoint) else None


# format 1: instances of three classes, of which only the attributes are read


class _Attributes:
    """Stands for any class of format 1."""


class _OldCheckpoint(_Attributes):
    pass


_CLASSES = {
    ("envcoder_bench.run.folder", "Checkpoint"): _OldCheckpoint,
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
