"""Running mean and standard deviation of all groups, equivalent to rl_games' RunningMeanStd."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from envcoder_bench.trainers.ppo import sums, triton_kernels, triton_normalizer

EPSILON = 1e-5
CLIP = 5.0

Factors = tuple[Tensor, Tensor]  # (K, 1, D) each: normalized data is x * first + second, clipped


class GroupedRunningMeanStd:
    """Statistics of ``(K, N, D)`` data over N, one row per group, in float64.

    Columns beyond a group's own width are padding: they normalize to exactly 0 and their statistics never change.

    Args:
        dims: each group's own number of columns.
        device: the device of the statistics.
        width: D, if it is not the largest of dims.
        one: a column that normalizes to 1; None: no such column.
        dtype: the dtype of the data.
    """

    def __init__(
        self,
        dims: Sequence[int],
        device: torch.device,
        width: int | None = None,
        dtype: torch.dtype = torch.float32,
        one: int | None = None,
    ) -> None:
        self.dims, self._one = list(dims), one
        groups, width = len(self.dims), width or max(self.dims)
        self.running_mean = torch.zeros(groups, width, dtype=torch.float64, device=device)
        self.running_var = torch.ones(groups, width, dtype=torch.float64, device=device)
        self.count = torch.ones(groups, 1, dtype=torch.float64, device=device)
        own = torch.arange(width) < torch.tensor(self.dims).unsqueeze(1)
        self._padding: Tensor | None = None if bool(own.all()) else ~own.to(device)
        # factors and summands (K, 1, D), with which one operation each normalizes and denormalizes
        self._scale, self._shift, self._std, self._mean = torch.empty(4, groups, 1, width, device=device, dtype=dtype)
        self._refresh()

    def _refresh(self) -> None:
        scale, shift = self._factors(self.running_mean, self.running_var)
        self._scale.copy_(scale)
        self._shift.copy_(shift)
        self._std.copy_(self._deviation(self.running_var).unsqueeze(1))
        self._mean.copy_(self.running_mean.to(torch.float32).unsqueeze(1))

    def _deviation(self, var: Tensor) -> Tensor:
        # rl_games rounds the statistics to float32 before use, for any dtype of the data
        return var.to(torch.float32).add_(EPSILON).sqrt_().to(torch.float64)

    def _factors(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors and summands of ``normalize``: from ``(..., K, D)`` to ``(..., K, 1, D)``."""
        scale = self._deviation(var).reciprocal_()
        if self._padding is not None:
            scale.masked_fill_(self._padding, 0.0)
        shift = -mean.to(torch.float32) * scale
        if self._one is not None:
            shift[..., self._one] = 1.0
        return scale.unsqueeze(-2).to(self._scale), shift.unsqueeze(-2).to(self._scale)

    def update(self, x: Tensor, alive: Tensor | None = None) -> None:
        """Add a batch ``(K, N, D)`` to the statistics of the groups where ``alive`` ``(K,)`` is True (None: all)."""
        self.update_each([x], 1, alive)

    def update_each(self, batches: Sequence[Tensor], rounds: int, alive: Tensor | None = None) -> list[Factors]:
        """Add batches ``(K, N, D)`` in turn, and all of them again in every round.

        Returns:
            The factors of ``normalize`` after each of these updates.
        """
        added = [self._moments(x, alive) for x in batches]
        if triton_kernels.usable(batches[0]):
            running = self.running_mean, self.running_var, self.count
            each = batches[0].shape[1]
            factors = triton_normalizer.join_moments(
                added, each, rounds, running, alive, self._padding, self._one, EPSILON
            )
            self._refresh()
            return list(zip(*(values.unbind() for values in factors)))
        joined = []
        for _ in range(rounds):
            for x, (mean, var) in zip(batches, added):
                self._join(mean, var, x.shape[1], alive)
                joined.append((self.running_mean.clone(), self.running_var.clone()))
        self._refresh()
        return list(zip(*self._factors(*(torch.stack(values) for values in zip(*joined)))))

    def _moments(self, x: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance over N, ``(K, D)`` float64 each; 0 for groups that are not alive."""
        mean = sums.mean(x, keepdim=True)
        # two passes: on a CPU many times faster than torch.var, which does not vectorize over an outer dimension
        var = sums.mean((x - mean).square_()).to(torch.float64)
        mean = mean.squeeze(1).to(torch.float64)
        if alive is not None:
            for values in (mean, var):
                values.masked_fill_(~alive.unsqueeze(1), 0.0)  # their weight is 0, but they may be NaN
        return mean, var

    def _join(self, mean: Tensor, var: Tensor, count: int, alive: Tensor | None) -> None:
        """Combine the moments of two samples (Chan, Golub and LeVeque, 1983)."""
        n = count if alive is None else count * alive.unsqueeze(1)
        self.count += n
        weight = self.count.reciprocal() * n  # n / count would round differently if n is a tensor
        if self._padding is not None:
            weight = weight.masked_fill(self._padding, 0.0)
        delta = mean - self.running_mean
        self.running_mean.lerp_(mean, weight)
        self.running_var.addcmul_(delta * delta, weight).lerp_(var, weight)

    @property
    def factors(self) -> Factors:
        """Factor and summand of ``normalize``."""
        return self._scale, self._shift

    @property
    def inverse_factors(self) -> Factors:
        """Factor and summand of ``denormalize``."""
        return self._std, self._mean

    def normalize(self, x: Tensor, factors: Factors | None = None, out: Tensor | None = None) -> Tensor:
        """Center, scale and clip ``(K, N, D)`` to [-5, 5], with ``factors`` or the present statistics."""
        scale, shift = factors or self.factors
        if triton_kernels.usable(x) and x.stride(-1) == 1:
            return triton_normalizer.normalize(x, scale, shift, CLIP, out)
        return torch.addcmul(shift, x, scale, out=out).clamp_(-CLIP, CLIP)

    def denormalize(self, x: Tensor) -> Tensor:
        """Undo ``normalize`` for ``(K, N, D)``, which is clipped to [-5, 5] first. Not for padded columns."""
        return torch.addcmul(self._mean, x.clamp(-CLIP, CLIP), self._std)

    def state_dict(self) -> dict[str, Tensor]:
        return {key: getattr(self, key).cpu().clone() for key in ("running_mean", "running_var", "count")}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for key in ("running_mean", "running_var", "count"):
            getattr(self, key).copy_(state[key])
        self._refresh()

    def split_state(self, state: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return a state for each group, without its padding."""
        mean, var, count = (state[key] for key in ("running_mean", "running_var", "count"))
        return [
            {"running_mean": mean[k, :dim].clone(), "running_var": var[k, :dim].clone(), "count": count[k].clone()}
            for k, dim in enumerate(self.dims)
        ]

    def join_states(self, parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the state of these groups, which are the object's own."""
        mean, var = torch.zeros(self.running_mean.shape).double(), torch.ones(self.running_var.shape).double()
        for k, (dim, part) in enumerate(zip(self.dims, parts)):
            mean[k, :dim], var[k, :dim] = part["running_mean"], part["running_var"]
        return {"running_mean": mean, "running_var": var, "count": torch.stack([part["count"] for part in parts])}

    def export(self, group: int) -> dict[str, Tensor]:
        """Return a group's statistics with the keys and shapes of rl_games' RunningMeanStd, on the CPU."""
        dim = self.dims[group]
        return {
            "running_mean": self.running_mean[group, :dim].cpu().clone(),
            "running_var": self.running_var[group, :dim].cpu().clone(),
            "count": self.count[group, 0].cpu().clone(),
        }
