"""Adam with gradient clipping and a learning rate per group, for all parameters of all groups at once; its schedules.

A step is a dozen passes over memory in torch, and one pass as a kernel.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.groups import common
from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.group_numbers import Number, is_swept, per_group
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class GroupedAdam:
    """Adam (Kingma and Ba, 2015) as ``torch.optim.Adam``, where row k of ``params`` ``(K, P)`` is group k's network.

    Attributes:
        learning_rate: ``(K,)`` float64 on the device; change it in place.
    """

    def __init__(self, backend: Backend, params: Tensor, learning_rate: Number, weight_decay: Number = 0.0) -> None:
        self.backend, self.params, self.weight_decay = backend, params, weight_decay
        groups, device = params.shape[0], params.device
        self.learning_rate = torch.zeros(groups, dtype=torch.float64, device=device).add_(learning_rate)
        self.powers = torch.ones(2, dtype=torch.float64, device=device)  # the betas to the power of the number of steps
        self._betas = torch.tensor([BETA1, BETA2], dtype=torch.float64, device=device)
        self.exp_avg = torch.zeros_like(params)
        self.exp_avg_sq = torch.zeros_like(params)

    @torch.no_grad()
    def step(self, grad: Tensor, max_norm: Number | None = None, alive: Tensor | None = None) -> None:
        """Update the parameters in place.

        Args:
            grad: ``(K, P)``; overwritten.
            max_norm: scale each group's gradient down to this norm, as ``torch.nn.utils.clip_grad_norm_``.
            alive: ``(K,)`` bool, groups to update (None: all).
        """
        norm = None if max_norm is None else self.backend.norm(grad)
        self.powers.mul_(self._betas)
        if self.backend.kernels:
            _adam_in_kernel(self, grad, norm, max_norm, alive)
            return
        # bias corrections, of numbers per group instead of (K, P) tensors
        bias1, bias2 = (1 - self.powers).unbind()
        root = bias2.sqrt()
        step_size, epsilon = (self.learning_rate * (root / bias1)).to(grad.dtype), EPSILON * root
        # gradient clipping and weight decay
        if norm is not None and max_norm is not None:
            grad.mul_(_clip_factor(norm, max_norm))
        decay = per_group(self.weight_decay, grad)
        if isinstance(decay, Tensor):
            grad.addcmul_(self.params, decay)
        elif decay:
            grad.add_(self.params, alpha=decay)
        # first and second moment
        self.exp_avg.lerp_(grad, 1 - BETA1)
        self.exp_avg_sq.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        # update
        denominator = torch.sqrt(self.exp_avg_sq, out=grad).add_(epsilon)
        update = torch.div(self.exp_avg, denominator, out=grad)
        if alive is not None:
            update.masked_fill_(~alive.unsqueeze(1), 0.0)
        self.params.addcmul_(update, step_size.unsqueeze(1), value=-1.0)

    def get_state(self) -> dict[str, Tensor]:
        keys = ("learning_rate", "powers", "exp_avg", "exp_avg_sq")
        return {key: getattr(self, key).cpu().clone() for key in keys}

    def set_state(self, state: dict[str, Tensor]) -> None:
        for key, value in state.items():
            getattr(self, key).copy_(value)

    @staticmethod
    def split_state(state: Mapping[str, Tensor], split: Callable[[Tensor], list[Any]]) -> list[dict[str, Any]]:
        """Return a state for each group; ``split`` divides a tensor with the layout of ``params``."""
        moments = zip(state["learning_rate"], split(state["exp_avg"]), split(state["exp_avg_sq"]))
        return [
            {"learning_rate": rate.clone(), "exp_avg": avg, "exp_avg_sq": square, "powers": state["powers"].clone()}
            for rate, avg, square in moments
        ]

    @staticmethod
    def join_states(parts: Sequence[Mapping[str, Any]], join: Callable[[Sequence[Any]], Tensor]) -> dict[str, Tensor]:
        """Return the state of several groups; ``join`` is the reverse of ``split``."""
        return {
            "learning_rate": torch.stack([part["learning_rate"] for part in parts]),
            "powers": common(parts, "powers"),
            **{key: join([part[key] for part in parts]) for key in ("exp_avg", "exp_avg_sq")},
        }


def clip_norm(backend: Backend, parts: Sequence[Tensor], max_norm: Number) -> None:
    """Scale each group's gradient of one network, ``(K, ...)`` views, down to a norm, as ``clip_grad_norm_``."""
    norm = torch.stack([backend.norm(part) for part in parts]).square().sum(dim=0).sqrt_()
    factor = _clip_factor(norm, max_norm)
    for part in parts:
        part.mul_(factor)


def _clip_factor(norm: Tensor, max_norm: Number) -> Tensor:
    # torch divides a float by a tensor in these two steps, too
    return (norm + 1e-6).reciprocal_().mul_(per_group(max_norm, norm)).clamp_(max=1.0).unsqueeze(1)


# the same as one kernel


@jit
def _adam(
    weights, grad, exp_avg, exp_avg_sq, norm, learning_rate, powers, alive, size, max_norm, decay,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, CLIPPED: tl.constexpr, MASKED: tl.constexpr,
    SWEPT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < (size * tl.load(alive + k).to(tl.int32) if MASKED else size)
    at += k * size
    # bias corrections
    root = tl.sqrt(1.0 - tl.load(powers + 1))  # float64, as the learning rate
    step_size = (tl.load(learning_rate + k) * (root / (1.0 - tl.load(powers)))).to(tl.float32)
    # gradient clipping and weight decay
    p = tl.load(weights + at, mask=mask)
    g = tl.load(grad + at, mask=mask)
    if CLIPPED:
        limit = tl.load(max_norm + k) if SWEPT else max_norm
        g *= tl.minimum(limit / (tl.load(norm + k) + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL)
    # a sum of two products has two roundings; as fma, swept numbers and those of the config round alike
    g = tl.fma(tl.load(decay + k) if SWEPT else decay, p, g)
    # first and second moment
    m = tl.load(exp_avg + at, mask=mask)
    v = tl.load(exp_avg_sq + at, mask=mask)
    m += (g - m) * (1.0 - BETA1)
    v = tl.fma(g * g, 1.0 - BETA2, v * BETA2)
    tl.store(exp_avg + at, m, mask=mask)
    tl.store(exp_avg_sq + at, v, mask=mask)
    # update
    root_epsilon = (EPSILON * root).to(tl.float32)  # pyright: ignore[reportAttributeAccessIssue]
    tl.store(weights + at, p - step_size * m / (tl.sqrt(v) + root_epsilon), mask=mask)


def _adam_in_kernel(
    adam: GroupedAdam, grad: Tensor, norm: Tensor | None, max_norm: Number | None, alive: Tensor | None
) -> None:
    """Update the parameters; ``norm`` ``(K,)`` are the gradients' norms if they are clipped to ``max_norm``."""
    params, (groups, size) = adam.params, adam.params.shape
    clipped = norm is not None and max_norm is not None
    _adam[(triton.cdiv(size, 1024), groups)](
        params, grad, adam.exp_avg, adam.exp_avg_sq, norm if clipped else params, adam.learning_rate, adam.powers,
        params if alive is None else alive.view(torch.uint8), size,
        per_group(0.0 if max_norm is None else max_norm, grad), per_group(adam.weight_decay, grad), BETA1=BETA1,
        BETA2=BETA2, EPSILON=EPSILON, CLIPPED=clipped, MASKED=alive is not None, SWEPT=is_swept(adam.weight_decay),
        BLOCK=1024,
    )  # fmt: skip


# schedules of learning rates and of the entropy coefficient

MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-6, 1e-2  # rl_games' limits of every schedule
ROLLOUT_MIN_LEARNING_RATE = 1e-5  # rsl_rl's
MIN_ENTROPY_COEF = 1e-4


def update_learning_rates(backend: Backend, hp: Hyperparameters, rates: Tensor, kl: Tensor, epoch: int) -> None:
    """Change the learning rates ``(K,)`` float64 in place, see ``next_learning_rate``."""
    if backend.kernels and hp.lr_schedule == "adaptive":
        threshold, swept = per_group(hp.kl_threshold, kl), is_swept(hp.kl_threshold)
        low, high = (0.0, 0.0) if swept else (0.5 * threshold, 2.0 * threshold)
        _adapt[(triton.cdiv(len(kl), 128),)](
            rates, kl, threshold if swept else rates, len(kl), LOW=low, HIGH=high, LEAST=_least(hp),
            MOST=MAX_LEARNING_RATE, ABOVE=_above(hp), SWEPT=swept, num_warps=1,
        )  # fmt: skip
    else:
        rates.copy_(next_learning_rate(hp, rates, kl, epoch))


def next_learning_rate(hp: Hyperparameters, learning_rate: Tensor, kl: Tensor, epoch: int) -> Tensor:
    """Return the next learning rates ``(K,)`` from the groups' divergences ``kl`` ``(K,)`` and the epoch (from 1).

    rl_games' ``AdaptiveScheduler`` and ``LinearScheduler``; for ``schedule_type: rollout`` the limits are rsl_rl's.
    """
    if hp.lr_schedule == "adaptive":
        kl = kl.to(learning_rate.dtype)
        lower = (learning_rate / 1.5).clamp_(min=_least(hp))
        higher = (learning_rate * 1.5).clamp_(max=MAX_LEARNING_RATE)
        changed = torch.where(kl > 2.0 * hp.kl_threshold, lower, learning_rate)
        return torch.where((kl < 0.5 * hp.kl_threshold) & (kl > _above(hp)), higher, changed)
    if hp.lr_schedule == "linear":
        return torch.zeros_like(learning_rate).add_(_interpolate(hp, MIN_LEARNING_RATE, hp.learning_rate, epoch))
    return learning_rate


def _least(hp: Hyperparameters) -> float:
    return ROLLOUT_MIN_LEARNING_RATE if hp.schedule_type == "rollout" else MIN_LEARNING_RATE


def _above(hp: Hyperparameters) -> float:
    """Return the divergence above which the rate may rise: as in rsl_rl not at 0, before the policy has changed."""
    return 0.0 if hp.schedule_type == "rollout" else -math.inf


def next_entropy_coef(hp: Hyperparameters, epoch: int) -> Number:
    """Return the entropy coefficient of the schedule at an epoch (from 1)."""
    if hp.lr_schedule == "linear" and hp.schedule_entropy:
        return _interpolate(hp, MIN_ENTROPY_COEF, hp.entropy_coef, epoch)
    return hp.entropy_coef


def _interpolate(hp: Hyperparameters, end: float, start: Number, epoch: int) -> Number:
    steps = hp.linear_steps
    return end + (start - end) * (max(0, steps - epoch) / steps if steps else 1.0)


# the adaptive rates as one kernel


@jit
def _adapt(
    rate, kl, threshold, num_groups, LOW: tl.constexpr, HIGH: tl.constexpr, LEAST: tl.constexpr, MOST: tl.constexpr,
    ABOVE: tl.constexpr, SWEPT: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, 128) + tl.program_id(0) * 128
    mask = k < num_groups
    old, distance = tl.load(rate + k, mask=mask), tl.load(kl + k, mask=mask).to(tl.float64)
    lower, higher = old / 1.5, old * 1.5
    # the compiler rounds these constants to float32, as those of groups are
    falls = distance > (2.0 * tl.load(threshold + k, mask=mask) if SWEPT else HIGH)
    rises = distance < (0.5 * tl.load(threshold + k, mask=mask) if SWEPT else LOW)
    new = tl.where(falls, tl.where(lower > LEAST, lower, LEAST), old)
    new = tl.where(rises & (distance > ABOVE), tl.where(higher < MOST, higher, MOST), new)
    tl.store(rate + k, new, mask=mask)
