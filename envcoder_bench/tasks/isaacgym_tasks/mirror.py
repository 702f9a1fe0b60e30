"""Tensors of a task as tensors of the state, which stay in place."""

from typing import Any

import torch
from torch import Tensor

from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.tensors import Place, Row


class Mirror:
    """The state's tensors of a task: views of the task's tensors where these are contiguous, else copies.

    A task may replace its tensors in a step; ``sync`` copies from the new ones. Tensors that the task keeps on the CPU,
    as legged_gym's frictions, are copied only after a change, because a copy to a CUDA device waits.

    Args:
        task: the task.
        keys: keys of the state and their places in the task.
        rows: of all places.
        num_envs: number of environments.
        device: of the state.

    Attributes:
        state: tensors ``(num_envs, ...)`` by their keys.
    """

    def __init__(
        self, task: Any, keys: dict[str, Place], rows: dict[Place, Row], num_envs: int, device: torch.device
    ) -> None:
        self._task, self._keys, self._rows, self._num_envs = task, keys, rows, num_envs
        self.state: dict[str, Tensor] = {}
        self._copied: dict[str, tuple[Tensor, int]] = {}  # tensors on another device, and their versions
        for key, place in keys.items():
            own, row = self.row(place), rows[place]
            if own is None and isinstance(tensors.read(task, place), Tensor):
                raise ValueError(
                    f"the task's '{key}' has another shape than in the small simulation that its state was read from:"
                    " its shape depends on the number of environments"
                )
            if own is None:  # the task makes it in a step
                own = torch.zeros(num_envs, *row.shape, dtype=row.dtype, device=device)
            self.state[key] = own.contiguous().to(device)

    def row(self, place: Place) -> Tensor | None:
        """Return the task's tensor at a place as ``(num_envs, ...)``; None if it has another size, or is missing."""
        x, row = tensors.read(self._task, place), self._rows[place]
        if not isinstance(x, Tensor) or not tensors.fits(self._task, place, row, self._num_envs):
            return None
        return tensors.view(x, row, self._num_envs)

    def sync(self) -> None:
        """Copy tensors of the task that are not views of the state."""
        targets, sources = [], []
        for key, place in self._keys.items():
            own, kept = self.row(place), self.state[key]
            if own is None or own.data_ptr() == kept.data_ptr():
                continue
            if own.device != kept.device:
                source, version = self._copied.get(key, (None, 0))
                whole = tensors.read(self._task, place)
                if source is whole and version == whole._version:
                    continue
                self._copied[key] = (whole, whole._version)
            targets.append(kept)
            sources.append(own)
        tensors.copy_all(targets, sources)
