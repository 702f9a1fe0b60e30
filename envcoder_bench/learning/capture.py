"""A whole update as one CUDA graph: few groups are bound by the launches, of which an update has thousands."""
from __future__ import annotations

from typing import Dict, Optional

import torch
from torch import Tensor

from envcoder_bench.learning.learner import GroupedLearner
from envcoder_bench.learning.rollout import Rollout


class CapturedUpdate:
    """``learner.update(rollout, ...)``: run eagerly once, then captured, then replayed; eagerly always on CPU.

    The rollout and all that the learner remembers stay where they are in memory, which is what a graph needs. A
    linear schedule computes its values on the host, which a graph would freeze: such updates run eagerly too.
    """

    def __init__(self, learner: GroupedLearner, rollout: Rollout) -> None:
        self._learner, self._rollout = learner, rollout
        self._possible = learner.network.flat.is_cuda and learner.settings.lr_schedule != "linear"
        self._warm, self._alive = False, None
        self._graph: Optional[torch.cuda.CUDAGraph] = None
        self._stats: Dict[str, Tensor] = {}

    def __call__(self, epoch: int, alive: Optional[Tensor]) -> Dict[str, Tensor]:
        """Update, as ``GroupedLearner.update``; the next call overwrites the statistics.

        ``alive`` is told apart by identity: pass the same tensor as long as it holds the same values.
        """
        if not self._possible or not self._warm or alive is not self._alive:
            self._graph, self._warm, self._alive = None, True, alive
            return self._learner.update(self._rollout, epoch, alive)  # libraries get their handles and kernels here
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(self._learner.network.flat.device), torch.cuda.graph(self._graph):
                self._stats = self._learner.update(self._rollout, epoch, alive)
        self._graph.replay()
        return self._stats
