"""Random numbers of a task, which are the same for all candidates and seeds."""

from __future__ import annotations

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.sources.term_tasks.draws import TermStream


class SharedDraws(TermStream):
    """Draws of any number of rows: row k of a call is the same in each simulation of the task."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), -1)

    def next(self, rows: int, device: str | torch.device) -> tuple[noise.Counter, noise.Lanes]:
        lanes: Tensor = torch.arange(rows, device=device)
        self._lanes, self._offsets = lanes, torch.zeros_like(lanes).unsqueeze(1)
        return super().next(rows, device)
