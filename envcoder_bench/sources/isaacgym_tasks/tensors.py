"""A task's tensors by name: with rows for each environment or without, its numbers; their mirror and their copies."""

import math
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_NUMBERS = 512  # the most in a constant; larger tensors, such as terrains, are left out
# attributes of VecTask and BaseTask that no reward or observation needs
_BOOKKEEPING = re.compile(
    r"device|headless|graphics|render|record|frame|viewer|num_(environments|agents|observations|states|envs|obs)$|sim_|"
    r"physics_engine|last_(step|rand)|first_randomization|control_(steps|freq)|debug|print|randomize|virtual|_handles?$"
    r"|total_|enable_|init_done|force_render|plane_|clip_|aggregate|randomization_|counter|height_samples|custom_origins|privileged"
)
_NUMBERED = re.compile(r"ind(ex|ic)|handle|ids?$")  # tensors of indices of actors and bodies in the whole simulation
Slot = tuple[str, str]  # an attribute, and a key if the attribute is a dict, else ""


@dataclass(frozen=True)
class Row:
    """The rows of a tensor ``(num_envs * repeats, ...)`` that an environment has; ``shape`` is that of its view."""

    repeats: int
    shape: tuple[int, ...]
    dtype: torch.dtype


def tensors_of(task: Any) -> Iterator[tuple[Slot, Tensor]]:
    """Yield the tensors in a task's attributes, and in attributes that are dicts."""
    for name, value in list(vars(task).items()):
        if isinstance(value, Tensor):
            yield (name, ""), value
        elif isinstance(value, dict):
            for key, x in list(value.items()):
                if isinstance(x, Tensor) and isinstance(key, str):
                    yield (name, key), x


def sequences_of(task: Any) -> Iterator[tuple[str, Sequence[Tensor]]]:
    """Yield the lists and deques of tensors in attributes of a task and of its class, such as histories."""
    for name, value in {**vars(type(task)), **vars(task)}.items():
        if isinstance(value, (list, deque)) and value and all(isinstance(x, Tensor) for x in value):
            yield name, value


def histories_of(task: Any, num_envs: int) -> tuple[str, ...]:
    """Return the names of ``sequences_of`` whose elements have rows for each environment; see ``rows_of``."""
    sequences = sequences_of(task)
    return tuple(
        name for name, sequence in sequences if all(x.dim() and x.numel() and x.shape[0] == num_envs for x in sequence)
    )


def read(task: Any, slot: Slot) -> Any:
    """Return the value of a slot; None if it is missing."""
    value = getattr(task, slot[0], None)
    return value.get(slot[1]) if slot[1] and isinstance(value, dict) else value


def write(task: Any, slot: Slot, x: Tensor) -> None:
    """Replace the tensor of a slot."""
    if slot[1]:
        getattr(task, slot[0])[slot[1]] = x
    else:
        setattr(task, slot[0], x)


def rows_of(task: Any, num_envs: int) -> dict[Slot, Row]:
    """Return the tensors with rows for each environment; no other axis may have the length ``num_envs``."""
    rows: dict[Slot, Row] = {}
    for slot, x in tensors_of(task):
        if x.dim() == 0 or x.shape[0] == 0 or x.shape[0] % num_envs or x.numel() == 0:
            continue
        repeats = x.shape[0] // num_envs
        shape = tuple(x.shape[1:]) if repeats == 1 else (repeats, *x.shape[1:])
        rows[slot] = Row(repeats, shape, x.dtype)
    return rows


def fits(task: Any, slot: Slot, row: Row, num_envs: int) -> bool:
    """Return whether a tensor has the rows that are expected of it, or is missing."""
    x = read(task, slot)
    return not isinstance(x, Tensor) or x.numel() == num_envs * math.prod(row.shape)


def view(x: Tensor, row: Row, num_envs: int) -> Tensor:
    """Return a tensor as ``(num_envs, ...)``."""
    return x if row.repeats == 1 else x.reshape(num_envs, *row.shape)


def writable(x: Tensor) -> bool:
    """Return whether rows of a tensor can be written: it is neither expanded nor an inference tensor."""
    return 0 not in x.stride() and not x.is_inference()


@torch.no_grad()  # a source may require a gradient, as some rewards of TorchScript do
def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors to tensors of equal shapes, one after another or, on CUDA, with few kernels and the same result."""
    if any(x.is_cuda for x in targets):
        copy_at_once(targets, sources)
        return
    for target, source in zip(targets, sources):
        target.copy_(source)


@torch.no_grad()
def copy_at_once(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors with one call for all contiguous tensors of a type."""
    dense: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    targets_at = {x.untyped_storage().data_ptr() for x in targets}
    in_order = any(x.untyped_storage().data_ptr() in targets_at for x in sources)
    for target, source in zip(targets, sources):
        alike = not in_order and target.dtype == source.dtype and target.device == source.device
        if alike and target.is_contiguous() and source.is_contiguous():
            pair = dense.setdefault(target.dtype, ([], []))
            pair[0].append(target)
            pair[1].append(source)
        else:
            target.copy_(source)
    for pair in dense.values():
        torch._foreach_copy_(*pair)  # pyright: ignore[reportPrivateImportUsage]


class Unmasked:
    """Saved rows, to undo changes of environments that are not reset: task code may write to all rows.

    Args:
        task: the task.
        rows: its tensors with rows for each environment.
        histories: its lists and deques of such tensors, to which observing may append.
    """

    def __init__(self, task: Any, rows: dict[Slot, Row], histories: Sequence[str] = ()) -> None:
        self._task, self._rows, self._histories = task, rows, histories
        self._past: dict[str, list[Tensor]] = {}
        self._before: dict[Slot, tuple[Tensor, int | None]] = {}  # tensors and their versions
        self._saved: dict[Slot, Tensor] = {}
        self._first: dict[int, Slot] = {}  # the slot of each tensor's copy, by its id

    def save(self) -> None:
        """Save all rows."""
        self._before.clear()
        self._first.clear()
        self._past = {name: [x.clone() for x in getattr(self._task, name, ())] for name in self._histories}
        targets, sources = [], []
        for slot in self._rows:
            x = read(self._task, slot)
            if not isinstance(x, Tensor):
                continue
            self._before[slot] = x, _version(x)
            # one tensor may have several names
            if id(x) in self._first:
                continue
            self._first[id(x)] = slot
            # buffers are kept, because a new one each time would cost as much as the copy
            kept = self._saved.get(slot)
            if kept is None or kept.shape != x.shape or kept.dtype != x.dtype or kept.device != x.device:
                kept = self._saved[slot] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            targets.append(kept)
            sources.append(x)
        copy_all(targets, sources)

    def restore(self, mask: Tensor) -> None:
        """Restore the rows where ``mask`` ``(num_envs,)`` is False, of the tensors that have changed since."""
        self._restore_histories(mask)  # first, because their elements may also be attributes, written in place below
        done: set[int] = set()
        storages: set[int] = set()  # restored as a whole
        masks: dict[int, Tensor] = {1: mask}
        for slot, row in self._rows.items():
            now = read(self._task, slot)
            before, version = self._before.get(slot, (None, None))
            if before is None or not isinstance(now, Tensor) or now.shape != before.shape:
                continue
            if now is before and version is not None and version == now._version:
                continue
            if id(now) in done or 0 in now.stride():  # expanded: all environments share one row
                continue
            done.add(id(now))
            if row.repeats not in masks:
                masks[row.repeats] = mask.repeat_interleave(row.repeats)
            mask_of_rows = masks[row.repeats]
            if now.dim() == 0 or len(mask_of_rows) != now.shape[0]:  # the first axis had the right length by chance
                continue
            storage, whole = now.untyped_storage(), _spans_rows(now)
            if now is before and whole and storage.data_ptr() in storages:
                continue
            # some tasks keep properties on the CPU
            mask_of_rows = mask_of_rows.view(-1, *[1] * (now.dim() - 1)).to(now.device)
            restored = torch.where(mask_of_rows, now, self._saved[self._first[id(before)]])
            if before.is_inference():  # it cannot be written in place
                write(self._task, slot, restored)
                continue
            before.copy_(restored)  # views of the former tensor stay valid
            if now is not before:
                write(self._task, slot, before)
            elif whole and now.numel() * now.element_size() == storage.nbytes():
                storages.add(storage.data_ptr())

    def _restore_histories(self, mask: Tensor) -> None:
        for name, past in self._past.items():
            history = getattr(self._task, name, None)
            if not isinstance(history, (list, deque)) or [x.shape for x in history] != [x.shape for x in past]:
                continue
            for k, (now, before) in enumerate(zip(list(history), past)):
                rows = mask.view(-1, *[1] * (now.dim() - 1)).to(now.device)
                history[k] = torch.where(rows, now, before)


def _version(x: Tensor) -> int | None:
    """Return a count that every write in place changes; None if a tensor has none."""
    return None if x.is_inference() else x._version


def _spans_rows(x: Tensor) -> bool:
    """Return whether equal parts of a tensor's storage hold its rows."""
    return x.stride(0) * x.shape[0] * x.element_size() == x.untyped_storage().nbytes()


def constants_of(task: Any, num_envs: int) -> dict[str, Tensor]:
    """Return a task's small values without rows for each environment, on the CPU.

    These are attributes that are numbers, lists of numbers, arrays or tensors, and numbers in dicts, as ``name_key``.
    ``num_envs`` is as in ``rows_of``; with 0, tensors with rows are included.
    """
    values: dict[str, Any] = {}
    for name, value in vars(task).items():
        if isinstance(value, dict) and name not in ("cfg", "extras"):
            values.update({f"{name}_{key}": x for key, x in value.items() if isinstance(x, (int, float))})
        elif isinstance(value, Tensor):
            if not (value.dim() and value.shape[0] == num_envs):
                values[name] = value
        elif _is_numbers(value):
            values[name] = value
    # small and finite ones that are not counters
    constants: dict[str, Tensor] = {}
    for name, value in values.items():
        if name.startswith("_") or _BOOKKEEPING.search(name):
            continue
        x = value if isinstance(value, Tensor) else torch.tensor(value)
        if 0 < x.numel() <= MOST_NUMBERS and bool(torch.isfinite(x).all()):
            constants[name] = x.detach().to("cpu", torch.float32 if x.is_floating_point() else x.dtype, copy=True)
    return constants


def _is_numbers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= MOST_NUMBERS and all(isinstance(x, (int, float)) for x in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiub" and 0 < value.size <= MOST_NUMBERS
    return isinstance(value, (int, float, np.number))


def numbers_of(task: Any) -> dict[str, Any]:
    """Return a task's counters and settings: its attributes that are one number."""
    return {name: value for name, value in vars(task).items() if isinstance(value, (int, float))}


class Mirror:
    """The state's tensors of a task: copies of the task's tensors, which the task may write or replace in a step.

    Tensors that the task keeps on the CPU, as legged_gym's frictions, are copied only after a change, because a copy to
    a CUDA device waits.

    Args:
        task: the task.
        keys: keys of the state and their slots in the task.
        rows: of all slots.
        num_envs: number of environments.
        device: of the state.

    Attributes:
        state: tensors ``(num_envs, ...)`` by their keys.
    """

    def __init__(
        self, task: Any, keys: dict[str, Slot], rows: dict[Slot, Row], num_envs: int, device: torch.device
    ) -> None:
        self._task, self._keys, self._rows, self._num_envs = task, keys, rows, num_envs
        self.state: dict[str, Tensor] = {}
        self._copied: dict[str, tuple[Tensor, int]] = {}  # tensors on another device, and their versions
        for key, slot in keys.items():
            tensor, row = self.row(slot), rows[slot]
            if tensor is None and isinstance(read(task, slot), Tensor):
                raise ValueError(
                    f"the task's '{key}' has another shape than in the small simulation that its state was read from:"
                    " its shape depends on the number of environments"
                )
            if tensor is None:  # the task makes it in a step
                tensor = torch.zeros(num_envs, *row.shape, dtype=row.dtype, device=device)
            self.state[key] = tensor.detach().to(device, copy=True, memory_format=torch.contiguous_format)

    def row(self, slot: Slot) -> Tensor | None:
        """Return the task's tensor of a slot as ``(num_envs, ...)``; None if it has another size, or is missing."""
        x, row = read(self._task, slot), self._rows[slot]
        if not isinstance(x, Tensor) or not fits(self._task, slot, row, self._num_envs):
            return None
        return view(x, row, self._num_envs)

    def live(self) -> dict[str, Tensor]:
        """Return the task's present tensors by the keys of the state, without those that it keeps on another device."""
        rows = {key: self.row(slot) for key, slot in self._keys.items()}
        return {key: x for key, x in rows.items() if x is not None and x.device == self.state[key].device}

    def sync(self, keys: Collection[str] | None = None) -> None:
        """Copy the task's tensors to the state, those of ``keys`` or all."""
        targets, sources = [], []
        for key, slot in self._keys.items():
            if keys is not None and key not in keys:
                continue
            tensor, kept = self.row(slot), self.state[key]
            if tensor is None:
                continue
            if tensor.device != kept.device:
                source, version = self._copied.get(key, (None, 0))
                whole = read(self._task, slot)
                if source is whole and version == whole._version:
                    continue
                self._copied[key] = (whole, whole._version)
            targets.append(kept)
            sources.append(tensor)
        copy_all(targets, sources)


def save(task: Any) -> dict[str, Tensor]:
    """Copy a task's tensors to the CPU.

    Keys are ``task.<attribute>.<key>``, for lists of tensors ``sequence.<attribute>.<index>``, and for numbers
    ``number.<attribute>``.
    """
    saved = {f"task.{'.'.join(slot)}": x.to("cpu", copy=True) for slot, x in tensors_of(task)}
    for name, sequence in sequences_of(task):
        saved.update({f"sequence.{name}.{k}": x.to("cpu", copy=True) for k, x in enumerate(sequence)})
    saved.update({f"number.{name}": x for name, x in _exact(numbers_of(task)).items()})
    return saved


def restore(task: Any, state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore what ``save`` returned; tensors of equal shape are overwritten in place."""
    for key, x in state.items():
        kind, _, name = key.partition(".")
        if kind == "task":
            attribute, _, entry = name.partition(".")
            tensor = read(task, (attribute, entry))
            if isinstance(tensor, Tensor) and tensor.shape == x.shape and writable(tensor):
                tensor.copy_(x)
            else:
                write(task, (attribute, entry), x.to(device, copy=True))
        elif kind == "sequence":
            attribute, _, index = name.partition(".")
            _restore_element(getattr(task, attribute), int(index), x.to(device, copy=True))
        elif kind == "number":
            now, value = getattr(task, name, None), x.item()
            setattr(task, name, type(now)(value) if isinstance(now, (bool, int)) else value)


def _restore_element(sequence: Any, index: int, x: Tensor) -> None:
    """Set an element of a list or deque; a sequence that is shorter in a new instance grows."""
    if index >= len(sequence):
        sequence.append(x)
    elif isinstance(sequence, list) and sequence[index].shape == x.shape and writable(sequence[index]):
        sequence[index].copy_(x)  # it may be a view of another tensor
    else:  # a history, whose elements may be one tensor now
        sequence[index] = x


def _exact(numbers: Mapping[str, Any]) -> dict[str, Tensor]:
    """Convert numbers to tensors that hold them exactly."""
    exact_numbers: dict[str, Tensor] = {}
    for name, value in numbers.items():
        if isinstance(value, float):
            exact_numbers[name] = torch.tensor(value, dtype=torch.float64)
        elif isinstance(value, (bool, int)) and abs(value) < 2**62:
            exact_numbers[name] = torch.tensor(value)
    return exact_numbers


def make_alike(task: Any, rows: Mapping[Slot, Row], histories: Sequence[str], lanes: Tensor) -> None:
    """Copy the rows of a task's tensors to every environment from the one whose index is its lane.

    Args:
        rows: its tensors that have rows for each environment.
        histories: its lists and deques of such tensors.
        lanes: ``(num_envs,)``, the index of each environment in its group.
    """
    num_envs = len(lanes)
    for slot, row in rows.items():
        x = read(task, slot)
        if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != num_envs * row.repeats:
            continue
        if writable(x) and (x.is_floating_point() or not _NUMBERED.search("".join(slot))):
            rows_of_lanes = x.reshape(num_envs, row.repeats, *x.shape[1:])[lanes.to(x.device)]
            x.copy_(rows_of_lanes.reshape(x.shape))
    for name in histories:
        for x in getattr(task, name):
            x.copy_(x[lanes.to(x.device)])
