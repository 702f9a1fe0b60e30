"""The input of a stack of networks: observations, normalized or not, a 1 for the biases, zeros."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.normalizer import Factors, GroupedRunningMeanStd


class ObservationInput:
    """Maps observations ``(K, N, d)`` to a network's input ``(K, N, width)``; padded columns become 0.

    Args:
        backend: how to compute.
        hp: whether, and how, observations are normalized.
        dims: each group's own number of observations.
        dim: number of observations of the stack, at least the largest of ``dims``.
        width: columns of the input.
        device, dtype: of the data.

    Attributes:
        normalizer: statistics of the observations; None if they are not normalized.
    """

    def __init__(
        self,
        backend: Backend,
        hp: Hyperparameters,
        dims: Sequence[int],
        dim: int,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.dims, self.width = list(dims), width
        self.normalizer: GroupedRunningMeanStd | None = None
        if hp.normalize_input:
            self.normalizer = GroupedRunningMeanStd(
                backend, dims, device, width, dtype, one=dim, empirical=hp.empirical_normalization
            )
        used = (torch.arange(width) < torch.tensor(dims).view(-1, 1, 1)).to(device, dtype)
        one = (torch.arange(width) == dim).expand_as(used).to(device, dtype)
        self._plain_factors: Factors = used, one

    @property
    def factors(self) -> Factors:
        """Factor and summand ``(K, 1, width)`` of the present statistics."""
        return self._plain_factors if self.normalizer is None else self.normalizer.factors

    @property
    def clip(self) -> float:
        """Largest absolute value of the result; 0: no limit."""
        return 0.0 if self.normalizer is None else self.normalizer.clip

    def pad(self, obs: Tensor) -> Tensor:
        """Add the missing columns."""
        missing = self.width - obs.shape[-1]
        return F.pad(obs, (0, missing)) if missing else obs

    def __call__(self, obs: Tensor, factors: Factors | None = None, out: Tensor | None = None) -> Tensor:
        """Normalize observations with ``factors``, or the present statistics."""
        obs = self.pad(obs)
        if self.normalizer is not None:
            return self.normalizer.normalize(obs, factors, out)
        scale, shift = self._plain_factors
        return torch.addcmul(shift, obs, scale, out=out)

    def count(self, obs: Tensor, alive: Tensor | None) -> None:
        """Add observations ``(K, N, d)`` to the statistics, if there are any."""
        if self.normalizer is not None:
            self.normalizer.update(self.pad(obs), alive)
