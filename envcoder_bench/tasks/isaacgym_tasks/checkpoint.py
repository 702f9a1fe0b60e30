"""Save and restore what an Isaac Gym task holds: its tensors and its numbers."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import Tensor

from envcoder_bench.tasks.isaacgym_tasks import tensors


def save_task(task: Any) -> dict[str, Tensor]:
    """Copy a task's tensors to the CPU.

    Keys are ``task.<attribute>.<key>``, for lists of tensors ``sequence.<attribute>.<index>``, and for numbers
    ``number.<attribute>``.
    """
    saved = {f"task.{'.'.join(place)}": x.to("cpu", copy=True) for place, x in tensors.tensors_of(task)}
    for name, sequence in tensors.sequences_of(task):
        saved.update({f"sequence.{name}.{k}": x.to("cpu", copy=True) for k, x in enumerate(sequence)})
    saved.update({f"number.{name}": x for name, x in exact(tensors.numbers_of(task)).items()})
    return saved


def restore_task(task: Any, state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore what ``save_task`` returned; tensors of equal shape are overwritten in place."""
    for key, x in state.items():
        kind, _, name = key.partition(".")
        if kind == "task":
            attribute, _, entry = name.partition(".")
            own = tensors.read(task, (attribute, entry))
            if isinstance(own, Tensor) and own.shape == x.shape and tensors.writable(own):
                own.copy_(x)
            else:
                tensors.write(task, (attribute, entry), x.to(device, copy=True))
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
    elif isinstance(sequence, list) and sequence[index].shape == x.shape and tensors.writable(sequence[index]):
        sequence[index].copy_(x)  # it may be a view of another tensor
    else:  # a history, whose elements may be one tensor now
        sequence[index] = x


def exact(numbers: Mapping[str, Any]) -> dict[str, Tensor]:
    """Convert numbers to tensors that hold them exactly."""
    made: dict[str, Tensor] = {}
    for name, value in numbers.items():
        if isinstance(value, float):
            made[name] = torch.tensor(value, dtype=torch.float64)
        elif isinstance(value, (bool, int)) and abs(value) < 2**62:
            made[name] = torch.tensor(value)
    return made
