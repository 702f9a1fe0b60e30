"""Running mean and standard deviation of every group at once, as rl_games' RunningMeanStd keeps them for one."""
from __future__ import annotations

from typing import Dict, Optional, Sequence, Union

import torch
from torch import Tensor

EPSILON = 1e-5
CLIP = 5.0


class GroupedRunningMeanStd:
    """Statistics of ``(K, N, D)`` data over N, one row per group, in float64.

    Columns beyond a group's own width are padding: they normalize to exactly 0 and their statistics never change.

    Args:
        dims: each group's own number of columns; D is the largest.
        device: where the statistics live.
    """

    def __init__(self, dims: Sequence[int], device: torch.device) -> None:
        self.dims = list(dims)
        groups, width = len(self.dims), max(self.dims)
        self.running_mean = torch.zeros(groups, width, dtype=torch.float64, device=device)
        self.running_var = torch.ones(groups, width, dtype=torch.float64, device=device)
        self.count = torch.ones(groups, 1, dtype=torch.float64, device=device)
        own = torch.arange(width) < torch.tensor(self.dims).unsqueeze(1)
        self._padding: Optional[Tensor] = None if bool(own.all()) else ~own.to(device)
        self._mean = torch.empty(groups, 1, width, device=device)
        self._std = torch.empty_like(self._mean)
        self._refresh()

    def _refresh(self) -> None:
        # rl_games rounds the statistics to float32 before it uses them, whatever the dtype of the data
        self._mean.copy_(self.running_mean.unsqueeze(1))
        torch.sqrt(self.running_var.to(torch.float32).unsqueeze(1) + EPSILON, out=self._std)
        if self._padding is not None:
            self._std.masked_fill_(self._padding.unsqueeze(1), float("inf"))  # x / inf is 0

    def update(self, x: Tensor, alive: Optional[Tensor] = None) -> None:
        """Add a batch ``(K, N, D)`` to the statistics of the groups where ``alive`` ``(K,)`` is True (None: all)."""
        mean = x.mean(dim=1, keepdim=True)
        # two passes: on CPU many times faster than torch.var, which does not vectorise over an outer dimension
        var = (x - mean).square_().mean(dim=1).to(torch.float64)
        mean = mean.squeeze(1).to(torch.float64)
        n: Union[int, Tensor] = x.shape[1]
        if alive is not None:
            alive = alive.unsqueeze(1)
            n = n * alive
            mean, var = torch.where(alive, mean, self.running_mean), torch.where(alive, var, self.running_var)
        self.count += n
        weight = self.count.reciprocal() * n  # not n / count, which rounds otherwise where n is a tensor
        if self._padding is not None:
            weight = weight.masked_fill(self._padding, 0.0)
        # Chan, Golub and LeVeque (1983): the moments of two samples joined
        delta = mean - self.running_mean
        self.running_mean.lerp_(mean, weight)
        self.running_var.addcmul_(delta * delta, weight).lerp_(var, weight)
        self._refresh()

    def normalize(self, x: Tensor) -> Tensor:
        """Center, scale and clip ``(K, N, D)`` to [-5, 5]."""
        return (x - self._mean).div_(self._std).clamp_(-CLIP, CLIP)

    def denormalize(self, x: Tensor) -> Tensor:
        """Undo ``normalize`` for ``(K, N, D)``, which is clipped to [-5, 5] first. Not for padded columns."""
        return x.clamp(-CLIP, CLIP) * self._std + self._mean

    def state_dict(self) -> Dict[str, Tensor]:
        return {key: getattr(self, key).cpu().clone() for key in ("running_mean", "running_var", "count")}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        for key in ("running_mean", "running_var", "count"):
            getattr(self, key).copy_(state[key])
        self._refresh()

    def export(self, group: int) -> Dict[str, Tensor]:
        """One group's statistics with the keys and shapes of rl_games' RunningMeanStd, on the CPU."""
        dim = self.dims[group]
        return {
            "running_mean": self.running_mean[group, :dim].cpu().clone(),
            "running_var": self.running_var[group, :dim].cpu().clone(),
            "count": self.count[group, 0].cpu().clone(),
        }
