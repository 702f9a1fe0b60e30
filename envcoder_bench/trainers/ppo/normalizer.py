"""Running mean and standard deviation of all groups, equivalent to rl_games' RunningMeanStd.

If they are *empirical*, they are equivalent to rsl_rl's EmpiricalNormalization: ``(x - mean) / (std + 0.01)`` without a
clip, where the first batch replaces the initial statistics.

The update of the statistics and the normalization have two forms: operators of torch, and kernels (at the end).
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

EPSILON = 1e-5
CLIP = 5.0
EMPIRICAL_EPSILON = 1e-2
_NOTHING = 1e-30  # initial count of empirical statistics: negligible beside a sample, but not a division by 0

Factors = tuple[Tensor, Tensor]  # (K, 1, D) each: normalized data is x * first + second, clipped


class GroupedRunningMeanStd:
    """Statistics of ``(K, N, D)`` data over N, one row per group, in float64.

    Columns beyond a group's own width are padding: they normalize to exactly 0 and their statistics never change.

    Args:
        dims: each group's own number of columns.
        width: D, if it is not the largest of dims.
        bias: a column that normalizes to 1, for biases; None: no such column.
        empirical: whether to normalize as rsl_rl.

    Attributes:
        clip: largest absolute value of normalized data; 0: no limit.
    """

    def __init__(
        self,
        backend: Backend,
        dims: Sequence[int],
        device: torch.device,
        width: int | None = None,
        dtype: torch.dtype = torch.float32,
        bias: int | None = None,
        empirical: bool = False,
    ) -> None:
        self.backend, self.dims, self._bias = backend, list(dims), bias
        self.empirical, self.clip = empirical, 0.0 if empirical else CLIP
        groups, width = len(self.dims), width or max(self.dims)
        self.running_mean = torch.zeros(groups, width, dtype=torch.float64, device=device)
        self.running_var = torch.ones(groups, width, dtype=torch.float64, device=device)
        count = _NOTHING if empirical else 1.0
        self.count = torch.full((groups, 1), count, dtype=torch.float64, device=device)
        used = torch.arange(width) < torch.tensor(self.dims).unsqueeze(1)
        self._padding: Tensor | None = None if bool(used.all()) else ~used.to(device)
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
        if self.empirical:
            return var.sqrt() + EMPIRICAL_EPSILON
        # rl_games rounds the statistics to float32 before use, for any dtype of the data
        return var.to(torch.float32).add_(EPSILON).sqrt_().to(torch.float64)

    def _factors(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors and summands of ``normalize``: from ``(..., K, D)`` to ``(..., K, 1, D)``."""
        scale = self._deviation(var).reciprocal_()
        if self._padding is not None:
            scale.masked_fill_(self._padding, 0.0)
        shift = -(mean if self.empirical else mean.to(torch.float32)) * scale
        if self._bias is not None:
            shift[..., self._bias] = 1.0
        return scale.unsqueeze(-2).to(self._scale), shift.unsqueeze(-2).to(self._scale)

    def update(self, x: Tensor, alive: Tensor | None = None) -> None:
        """Add a batch ``(K, N, D)`` to the statistics of the groups where ``alive`` ``(K,)`` is True (None: all)."""
        self.update_each([x], 1, alive)

    def update_each(self, batches: Sequence[Tensor], rounds: int, alive: Tensor | None = None) -> list[Factors]:
        """Add batches ``(K, N, D)`` in turn, and all of them again in every round.

        Returns:
            The factors of ``normalize`` after each of these updates.
        """
        moments = [self._moments(x, alive) for x in batches]
        if self.backend.kernels:
            running = self.running_mean, self.running_var, self.count
            each = batches[0].shape[1]
            factors = _join_in_kernel(moments, each, rounds, running, alive, self._padding, self._bias, self.empirical)
            self._refresh()
            return list(zip(*(values.unbind() for values in factors)))
        means, variances = [], []
        for _ in range(rounds):
            for x, (mean, var) in zip(batches, moments):
                self._join(mean, var, x.shape[1], alive)
                means.append(self.running_mean.clone())
                variances.append(self.running_var.clone())
        self._refresh()
        return list(zip(*self._factors(torch.stack(means), torch.stack(variances))))

    def _moments(self, x: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and variance over N, ``(K, D)`` float64 each; 0 for groups that are not alive."""
        mean = self.backend.mean(x, keepdim=True)
        # two passes: on a CPU many times faster than torch.var, which does not vectorize over an outer dimension
        var = self.backend.mean((x - mean).square_()).to(torch.float64)
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
        """Center, scale and clip ``(K, N, D)`` to ``clip``, with ``factors`` or the present statistics."""
        scale, shift = factors or self.factors
        if self.backend.kernels:
            return _normalize_in_kernel(x, scale, shift, out, self.clip)
        normalized = torch.addcmul(shift, x, scale, out=out)
        return normalized.clamp_(-self.clip, self.clip) if self.clip else normalized

    def denormalize(self, x: Tensor) -> Tensor:
        """Undo ``normalize`` for ``(K, N, D)``, which is clipped to [-5, 5] first. Not for padded columns."""
        return torch.addcmul(self._mean, x.clamp(-CLIP, CLIP), self._std)

    def get_state(self) -> dict[str, Tensor]:
        return {key: getattr(self, key).cpu().clone() for key in ("running_mean", "running_var", "count")}

    def set_state(self, state: dict[str, Tensor]) -> None:
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
        """Join the states of the groups, in their order; the reverse of ``split_state``."""
        mean, var = torch.zeros(self.running_mean.shape).double(), torch.ones(self.running_var.shape).double()
        for k, (dim, part) in enumerate(zip(self.dims, parts)):
            mean[k, :dim], var[k, :dim] = part["running_mean"], part["running_var"]
        return {"running_mean": mean, "running_var": var, "count": torch.stack([part["count"] for part in parts])}

    def export(self, group: int) -> dict[str, Tensor]:
        """Return a group's statistics with the keys and shapes of rl_games' RunningMeanStd, on the CPU.

        Empirical ones have the variance with which rl_games' formula gives the same factors; rl_games clips.
        """
        dim = self.dims[group]
        var = self.running_var[group, :dim].cpu().clone()
        return {
            "running_mean": self.running_mean[group, :dim].cpu().clone(),
            "running_var": self._deviation(var).square() - EPSILON if self.empirical else var,
            "count": self.count[group, 0].cpu().clone(),
        }


# the same in kernels


@jit
def _join(
    mean, var, running_mean, running_var, counts, alive, padding, scale, shift, rounds, batches, groups, width, bias,
    EACH: tl.constexpr, EPSILON: tl.constexpr, EMPIRICAL: tl.constexpr, MASKED: tl.constexpr, PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    used, at, size = columns < width, k * width + columns, groups * width
    n = tl.full((), EACH, tl.float64)
    if MASKED:
        n *= tl.load(alive + k).to(tl.float64)
    count = tl.load(counts + k)
    in_group = tl.load(padding + at, mask=used, other=1) == 0 if PADDED else used
    m, v = tl.load(running_mean + at, mask=used, other=0.0), tl.load(running_var + at, mask=used, other=1.0)
    for _ in range(0, rounds):
        for i in range(0, batches):
            new_m = tl.load(mean + i * size + at, mask=used, other=0.0)
            new_v = tl.load(var + i * size + at, mask=used, other=0.0)
            # Chan, Golub and LeVeque (1983)
            count += n
            weight = tl.where(in_group, n / count, 0.0)
            delta = new_m - m
            m += weight * delta
            v += weight * delta * delta
            v += weight * (new_v - v)
            # as in rl_games, statistics are rounded to float32 before use
            center = m
            if EMPIRICAL:
                factor = 1.0 / (tl.sqrt(v) + EPSILON)
            else:
                factor = 1.0 / tl.sqrt(v.to(tl.float32) + EPSILON).to(tl.float64)
                center = m.to(tl.float32).to(tl.float64)
            factor = tl.where(in_group, factor, 0.0)
            summand = tl.where(columns == bias, 1.0, -center * factor)
            tl.store(scale + at, factor.to(tl.float32), mask=used)
            tl.store(shift + at, summand.to(tl.float32), mask=used)
            scale += size
            shift += size
    tl.store(running_mean + at, m, mask=used)
    tl.store(running_var + at, v, mask=used)
    tl.store(counts + k, count)


def _join_in_kernel(
    moments: list[tuple[Tensor, Tensor]], each: int, rounds: int, running: tuple[Tensor, Tensor, Tensor],
    alive: Tensor | None, padding: Tensor | None, bias: int | None, empirical: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As ``_join`` and ``_factors``, for all batches and rounds of ``update_each``.

    Args:
        moments: mean and variance ``(K, D)`` float64 of each batch.
        each: number of samples of a batch.
        running: mean, variance ``(K, D)`` and count ``(K, 1)``, float64; changed in place.
        padding: ``(K, D)`` bool, columns that a group does not have (None: no such columns).
        bias: the column that is 1 after normalization.
        empirical: whether to normalize as rsl_rl.

    Returns:
        Factors and summands of ``normalize`` after each step, ``(rounds * batches, K, 1, D)`` float32.
    """
    mean, var = (torch.stack(values) for values in zip(*moments))
    groups, width = running[0].shape
    scale, shift = torch.empty(2, rounds * len(moments), groups, 1, width, device=mean.device)
    _join[(groups,)](
        mean, var, *running, mean if alive is None else alive.view(torch.uint8),
        mean if padding is None else padding.view(torch.uint8), scale, shift, rounds, len(moments), groups, width,
        -1 if bias is None else bias, EACH=each, EPSILON=EMPIRICAL_EPSILON if empirical else EPSILON,
        EMPIRICAL=empirical, MASKED=alive is not None, PADDED=padding is not None,
        COLUMNS=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return scale, shift


@jit
def _normalize(
    x, scale, shift, out, num_rows, width, x_k, x_n, factor_k, out_k, out_n, CLIP: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    used = columns < width
    mask = (rows < num_rows)[:, None] & used[None, :]
    factor = tl.load(scale + k * factor_k + columns, mask=used, other=0.0)[None, :]
    summand = tl.load(shift + k * factor_k + columns, mask=used, other=0.0)[None, :]
    value = tl.load(x + k * x_k + rows[:, None] * x_n + columns[None, :], mask=mask, other=0.0) * factor + summand
    if CLIP > 0:
        value = tl.minimum(value, CLIP, propagate_nan=tl.PropagateNan.ALL)
        value = tl.maximum(value, -CLIP, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + k * out_k + rows[:, None] * out_n + columns[None, :], value, mask=mask)


def _normalize_in_kernel(x: Tensor, scale: Tensor, shift: Tensor, out: Tensor | None, clip: float) -> Tensor:
    """Scale, shift and clip ``(K, N, D)`` in one pass; scale and shift are contiguous ``(K, 1, D)``; clip 0: none."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    out = x.new_empty(x.shape) if out is None else out
    groups, count, width = x.shape
    columns = triton.next_power_of_2(width)
    rows = max(1, 2048 // columns)
    _normalize[(triton.cdiv(count, rows), groups)](
        x, scale, shift, out, count, width, x.stride(0), x.stride(1), scale.stride(0), out.stride(0), out.stride(1),
        CLIP=clip, ROWS=rows, COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out


# the input of a stack of networks: observations, which may be normalized, a 1 for the biases, and zeros


class ObservationInput:
    """Maps observations ``(K, N, d)`` to a network's input ``(K, N, width)``; padded columns become 0.

    Args:
        hp: whether, and how, observations are normalized.
        dims: each group's own number of observations.
        dim: number of observations of the stack, at least the largest of ``dims``.
        width: columns of the input.

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
                backend, dims, device, width, dtype, bias=dim, empirical=hp.empirical_normalization
            )
        used = (torch.arange(width) < torch.tensor(dims).view(-1, 1, 1)).to(device, dtype)
        is_bias = (torch.arange(width) == dim).expand_as(used).to(device, dtype)
        self._plain_factors: Factors = used, is_bias

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
