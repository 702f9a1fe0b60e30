"""PPO's objective of a minibatch, for all groups: its terms, and its gradients by the networks' outputs.

L = policy loss + critic_coef / 2 value loss + bounds_loss_coef bound loss - entropy_coef entropy, each a mean over the
group's samples, as in rl_games' ``A2CAgent.calc_gradients``. Gradients are written out by hand, a formula beside its
loss. ``differentiate`` has two forms: some 66 operators of torch, or two kernels (at the end of this file).

Shapes: K groups, N samples, A actions (padded columns have mu = x = 0).
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.group_numbers import Number, is_swept, per_group
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.network import ActorCriticOutput
from envcoder_bench.trainers.ppo.rollout import Batch

LOG_2PI = math.log(2.0 * math.pi)
SOFT_BOUND = 1.1  # mean actions beyond this are penalized by the bound loss
NUMBERS_AT_ONCE = 2048  # rows times columns of a kernel's program
_BOUNDS = {"bound": 1, "regularisation": 2}  # bound_loss_type


class Terms(NamedTuple):
    """The terms of the objective of a minibatch: means over its samples ``(K,)``, and a gradient."""

    kl: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    bounds_loss: Tensor
    d_log_sigma: Tensor  # (K, 1, A), without the entropy's part


def neglogp(actions: Tensor, mu: Tensor, log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Return the negative log-probability under a diagonal Gaussian.

    Args:
        actions, mu: ``(K, N, A)``.
        log_sigma: ``(K, 1, A)``, 0 in padded columns.
        action_dims: ``(K, 1)`` float, each group's own number of actions.

    Returns:
        ``(K, N)``.
    """
    return neglogp_of_squares(((actions - mu) * torch.exp(-log_sigma)).square(), log_sigma, action_dims)


def neglogp_of_squares(squares: Tensor, log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Return ``neglogp`` from squared distances from the mean in standard deviations, ``(K, N, A)``."""
    return torch.add(0.5 * LOG_2PI * action_dims + log_sigma.sum(dim=-1), squares.sum(dim=-1), alpha=0.5)


def entropy(log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Return the Gaussian's entropy ``(K,)``, which is equal for all samples: sigma does not depend on the state."""
    return (log_sigma.sum(dim=-1) + (0.5 + 0.5 * LOG_2PI) * action_dims).squeeze(1)


def policy_kl(
    backend: Backend, mu: Tensor, sigma: Tensor, old_mu: Tensor, old_sigma: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return the KL divergence ``(K,)`` of the new policy from the old, as rl_games' ``torch_ext.policy_kl``.

    Args:
        mu, old_mu: ``(K, N, A)``.
        sigma, old_sigma: ``(K, 1, A)``.
        mask: ``(K, 1, A)``, 0 in padded columns (None: no padding).
    """
    twice_variance = 2.0 * (old_sigma**2 + 1e-5)
    # only the squared distance of the means depends on the sample; the rest is one number per action
    distance = backend.mean((old_mu - mu).square_(), keepdim=True)
    kl = torch.log(old_sigma / sigma + 1e-5) + (sigma**2 + distance) / twice_variance - 0.5
    return (kl if mask is None else kl * mask).sum(dim=-1).squeeze(1)


def rollout_kl(
    backend: Backend, mu: Tensor, sigma: Tensor, old_mu: Tensor, old_sigma: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return the KL divergence ``(K,)`` of the old policy from the new, as rsl_rl; see ``policy_kl``."""
    distance = backend.mean((old_mu - mu).square_(), keepdim=True)
    kl = torch.log(sigma / old_sigma) + (old_sigma**2 + distance) / (2.0 * sigma**2) - 0.5
    return (kl if mask is None else kl * mask).sum(dim=-1).squeeze(1)


def bound_loss(mu: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Compute a penalty on large mean actions: ``bound`` beyond +-1.1, ``regularisation`` everywhere, else none.

    Returns:
        The loss ``(K, N)``, and its gradient by ``mu`` ``(K, N, A)``.
    """
    if kind not in ("bound", "regularisation"):
        return torch.zeros_like(mu[..., 0]), torch.zeros_like(mu)
    beyond = F.softshrink(mu, SOFT_BOUND) if kind == "bound" else mu  # the part of mu beyond the bound
    return beyond.square().sum(dim=-1), 2.0 * beyond


def policy_loss(hp: Hyperparameters, old_neglogp: Tensor, neglogp: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """Compute PPO's clipped surrogate (Schulman et al., 2017), to be minimised; rl_games' ``actor_loss``.

    Returns:
        The loss ``(K, N)``, and its gradient by ``neglogp`` ``(K, N)``.
    """
    if not hp.ppo:
        return neglogp * advantages, advantages
    ratio = torch.exp(old_neglogp - neglogp)
    low, high = per_group(1.0 - hp.e_clip, ratio), per_group(1.0 + hp.e_clip, ratio)
    surrogate = advantages * ratio
    if hp.use_smooth_clamp:
        step = torch.sigmoid((4.0 / (high - low)) * (ratio - low) - 2.0)
        clipped = advantages * (step * (high - low) + low)
        d_clipped = 4.0 * step * (1.0 - step) * surrogate
    else:
        clipped = advantages * ratio.clamp(low, high)
        d_clipped = torch.zeros_like(surrogate)  # within the clip both are equal, and the first counts
    return -torch.minimum(surrogate, clipped), torch.where(surrogate <= clipped, surrogate, d_clipped)


def value_loss(hp: Hyperparameters, old_values: Tensor, values: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the critic's squared error, clipped around old values if enabled; rl_games' ``default_critic_loss``.

    Returns:
        The loss ``(K, N)``, and its gradient by ``values`` ``(K, N)``.
    """
    error = values - returns
    loss, gradient = error.square(), 2.0 * error
    if not hp.clip_value:
        return loss, gradient
    change, clip = values - old_values, per_group(hp.e_clip, values)
    clipped = (change.clamp(-clip, clip) + (old_values - returns)).square()
    stopped = (clipped > loss) & (change.abs() > clip)
    return torch.maximum(loss, clipped), gradient.masked_fill_(stopped, 0.0)


def _weights(hp: Hyperparameters, count: int) -> tuple[Number, Number]:
    """Return the weights of a sample's value and bound loss, which include the 1 / N of the mean."""
    bounds = 0.0 if hp.bounds_loss_coef is None else hp.bounds_loss_coef
    return 0.5 * hp.critic_coef * (1.0 / count), bounds * (1.0 / count)


def differentiate(
    backend: Backend, hp: Hyperparameters, batch: Batch, index: int, output: ActorCriticOutput, log_sigma: Tensor,
    action_dims: Tensor, mask: Tensor | None,
) -> Terms:  # fmt: skip
    """Fill in ``output.d_mu`` and ``output.d_value``; set ``batch.mus`` and ``batch.sigmas`` to the present policy.

    With ``schedule_type: rollout``, ``batch.mus`` and ``batch.sigmas`` stay those of the rollout's policy.

    Gradients are those of the mean over each group's samples, so that groups do not affect each other.

    Args:
        batch: the batch, of which minibatch ``index`` is used.
        log_sigma: ``(K, 1, A)``, 0 in padded columns.
        action_dims: ``(K, 1)`` float, each group's number of actions.
        mask: ``(K, 1, A)``, 0 in padded columns (None: no padding).
    """
    if backend.kernels:
        return _differentiate_in_kernels(hp, batch, index, output, log_sigma, action_dims)
    rows, mu, sigma = batch.rows(index), output.mu, torch.exp(log_sigma)

    # log-probability of the rollout's actions
    distance = (mu - batch.actions[:, rows]).div_(sigma)  # in standard deviations
    squares = distance.square()
    new_neglogp = neglogp_of_squares(squares, log_sigma, action_dims)

    # losses, and their gradients by log-probability, value and mean
    surrogate, d_neglogp = policy_loss(hp, batch.neglogp[:, rows], new_neglogp, batch.advantages[:, rows])
    critic, d_value = value_loss(hp, batch.values[:, rows], output.value, batch.returns[:, rows])
    bounds, d_mu = bound_loss(mu, hp.bound_loss_type)

    # divergence from the policy before
    if hp.schedule_type == "rollout":
        kl = rollout_kl(backend, mu, sigma, batch.mus[:, rows], batch.sigmas[index], mask)
    else:
        kl = policy_kl(backend, mu, sigma, batch.mus[:, rows], batch.sigmas[index], mask)
        # as in rl_games: the next mini epoch measures its divergence from this policy
        batch.mus[:, rows] = mu
        batch.sigmas[index] = sigma

    # gradients of the objective by the networks' outputs; that of a mean has a weight of 1 / N
    value_weight, bound_weight = _weights(hp, mu.shape[1])
    torch.mul(d_value, per_group(value_weight, d_value), out=output.d_value)
    d_neglogp = (d_neglogp * (1.0 / mu.shape[1])).unsqueeze(-1)
    d_mu.mul_(per_group(bound_weight, d_mu))
    torch.addcmul(d_mu, distance.div_(sigma), d_neglogp, out=output.d_mu)
    d_log_sigma = backend.total(d_neglogp, keepdim=True) - backend.total(squares.mul_(d_neglogp), keepdim=True)
    return Terms(kl, backend.mean(surrogate), backend.mean(critic), backend.mean(bounds), d_log_sigma)


# the same as two kernels


@jit
def _samples(
    mu, value, actions, old_mu, old_neglogp, advantages, old_values, returns, log_sigma, action_dims, d_mu, d_value,
    partial, num_rows, num_actions, mu_k, mu_n, value_k, value_n, action_k, sample_k, low, high, clip, half_log_2pi,
    soft_bound, weight, value_weight, bound_weight,
    PPO: tl.constexpr, SMOOTH: tl.constexpr, CLIP_VALUE: tl.constexpr, BOUND: tl.constexpr, KEEP: tl.constexpr,
    SWEPT: tl.constexpr, ROWS: tl.constexpr, ACTIONS: tl.constexpr,
):  # fmt: skip
    # log-probability of the rollout's actions; without KEEP, the new mean replaces the old policy's
    k, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    if SWEPT:
        low, high, clip = tl.load(low + k), tl.load(high + k), tl.load(clip + k)
        value_weight, bound_weight = tl.load(value_weight + k), tl.load(bound_weight + k)
    rows, columns = block * ROWS + tl.arange(0, ROWS), tl.arange(0, ACTIONS)
    in_group, used = rows < num_rows, columns < num_actions
    both = in_group[:, None] & used[None, :]
    log_s = tl.load(log_sigma + k * num_actions + columns, mask=used, other=0.0)
    sigma = tl.exp(log_s)[None, :]
    at = rows[:, None] * mu_n + columns[None, :]
    m = tl.load(mu + k * mu_k + at, mask=both, other=0.0)
    at_action = k * action_k + rows[:, None] * num_actions + columns[None, :]
    distance = (m - tl.load(actions + at_action, mask=both, other=0.0)) / sigma  # in standard deviations
    moved = tl.load(old_mu + at_action, mask=both, other=0.0) - m
    if not KEEP:
        tl.store(old_mu + at_action, m, mask=both)
    squares = distance * distance
    neglogp = half_log_2pi * tl.load(action_dims + k) + tl.sum(log_s, axis=0) + 0.5 * tl.sum(squares, axis=1)

    # policy loss
    sample = k * sample_k + rows
    advantage = tl.load(advantages + sample, mask=in_group, other=0.0)
    if PPO:
        ratio = tl.exp(tl.load(old_neglogp + sample, mask=in_group, other=0.0) - neglogp)
        surrogate = advantage * ratio
        # clamps let NaN through, as torch's, so that a group that diverged is noticed
        if SMOOTH:
            step = tl.sigmoid((4.0 / (high - low)) * (ratio - low) - 2.0)
            clipped = advantage * (step * (high - low) + low)
            d_clipped = 4.0 * step * (1.0 - step) * surrogate
        else:
            inside = tl.maximum(ratio, low, propagate_nan=tl.PropagateNan.ALL)
            clipped = advantage * tl.minimum(inside, high, propagate_nan=tl.PropagateNan.ALL)
            d_clipped = surrogate * 0.0
        policy_loss = -tl.minimum(surrogate, clipped, propagate_nan=tl.PropagateNan.ALL)
        d_neglogp = tl.where(surrogate <= clipped, surrogate, d_clipped)
    else:
        policy_loss, d_neglogp = neglogp * advantage, advantage
    policy_loss = tl.where(in_group, policy_loss, 0.0)
    d_neglogp = tl.where(in_group, d_neglogp, 0.0) * weight

    # value loss
    at_value = k * value_k + rows * value_n
    v = tl.load(value + at_value, mask=in_group, other=0.0)
    target = tl.load(returns + sample, mask=in_group, other=0.0)
    error = v - target
    value_loss, d_v = error * error, 2.0 * error
    if CLIP_VALUE:
        old = tl.load(old_values + sample, mask=in_group, other=0.0)
        change = v - old
        near = tl.maximum(change, -clip, propagate_nan=tl.PropagateNan.ALL)
        other = tl.minimum(near, clip, propagate_nan=tl.PropagateNan.ALL) + (old - target)
        d_v = tl.where((other * other > value_loss) & (tl.abs(change) > clip), 0.0, d_v)
        value_loss = tl.maximum(value_loss, other * other, propagate_nan=tl.PropagateNan.ALL)
    tl.store(d_value + at_value, d_v * value_weight, mask=in_group)

    # bound loss, and the gradient by the mean
    d_m = distance / sigma * d_neglogp[:, None]
    bounds_loss = d_neglogp * 0.0
    if BOUND:
        beyond = m
        if BOUND == 1:
            beyond = tl.where(m > soft_bound, m - soft_bound, tl.where(m < -soft_bound, m + soft_bound, m * 0.0))
        bounds_loss = tl.sum(beyond * beyond, axis=1)
        d_m += 2.0 * beyond * bound_weight
    tl.store(d_mu + k * mu_k + at, d_m, mask=both)

    # sums over the rows of this program
    # policy, value and bound loss, d_neglogp; then for each action squares and moved means
    partial += (k * tl.num_programs(0) + block) * (4 + 2 * ACTIONS)
    tl.store(partial, tl.sum(policy_loss, axis=0))
    tl.store(partial + 1, tl.sum(value_loss, axis=0))
    tl.store(partial + 2, tl.sum(bounds_loss, axis=0))
    tl.store(partial + 3, tl.sum(d_neglogp, axis=0))
    tl.store(partial + 4 + columns, tl.sum(squares * d_neglogp[:, None], axis=0))
    tl.store(partial + 4 + ACTIONS + columns, tl.sum(moved * moved, axis=0))


@jit
def _totals(
    partial, log_sigma, old_sigma, action_dims, terms, d_log_sigma, sigma, num_blocks, num_rows, num_actions,
    num_groups, KEEP: tl.constexpr, ACTIONS: tl.constexpr,
):  # fmt: skip
    # sums over the programs of a group, in fixed order
    k = tl.program_id(0).to(tl.int64)
    columns, each = tl.arange(0, ACTIONS), tl.arange(0, 4)
    scalars = tl.zeros((4,), dtype=tl.float32)
    squares, moved = tl.zeros((ACTIONS,), dtype=tl.float32), tl.zeros((ACTIONS,), dtype=tl.float32)
    partial += k * num_blocks * (4 + 2 * ACTIONS)
    for _ in range(0, num_blocks):
        scalars += tl.load(partial + each)
        squares += tl.load(partial + 4 + columns)
        moved += tl.load(partial + 4 + ACTIONS + columns)
        partial += 4 + 2 * ACTIONS
    # divergence, as policy_kl or rollout_kl
    used, at = columns < num_actions, k * num_actions + columns
    new = tl.exp(tl.load(log_sigma + at, mask=used, other=0.0))
    old = tl.load(old_sigma + at, mask=used, other=1.0)
    if KEEP:
        kl = tl.log(new / old) + (old * old + moved / num_rows) / (2.0 * new * new) - 0.5
    else:
        kl = tl.log(old / new + 1e-5) + (new * new + moved / num_rows) / (2.0 * (old * old + 1e-5)) - 0.5
    kl = tl.where(columns < tl.load(action_dims + k), kl, 0.0)
    # the order is that of Terms: kl, then the three losses
    d_neglogp = tl.sum(tl.where(each == 3, scalars, 0.0), axis=0)
    tl.store(terms + k, tl.sum(kl, axis=0))
    tl.store(terms + (each + 1) * num_groups + k, scalars / num_rows, mask=each < 3)
    tl.store(d_log_sigma + at, d_neglogp - squares, mask=used)
    tl.store(sigma + at, new, mask=used)


def _differentiate_in_kernels(
    hp: Hyperparameters, batch: Batch, index: int, output: ActorCriticOutput, log_sigma: Tensor, action_dims: Tensor
) -> Terms:
    """As ``differentiate``; ``_samples`` sums over the rows of a program, ``_totals`` over the programs of a group."""
    rows, mu, value = batch.rows(index), output.mu, output.value
    samples = [x[:, rows] for x in (batch.neglogp, batch.advantages, batch.values, batch.returns)]
    actions, old_mu = batch.actions[:, rows], batch.mus[:, rows]
    groups, count, width = mu.shape
    columns = int(triton.next_power_of_2(width))
    size = max(1, NUMBERS_AT_ONCE // columns)
    blocks = int(triton.cdiv(count, size))
    partial = mu.new_empty(groups, blocks, 4 + 2 * columns)
    terms, d_log_sigma, sigma = mu.new_empty(4, groups), torch.empty_like(log_sigma), torch.empty_like(log_sigma)
    keep = hp.schedule_type == "rollout"
    clips = [per_group(x, mu) for x in (1.0 - hp.e_clip, 1.0 + hp.e_clip, hp.e_clip)]
    weights = [per_group(x, mu) for x in _weights(hp, count)]
    _samples[(blocks, groups)](
        mu, value, actions, old_mu, *samples, log_sigma, action_dims, output.d_mu, output.d_value, partial, count,
        width, mu.stride(0), mu.stride(1), value.stride(0), value.stride(1), actions.stride(0), samples[0].stride(0),
        *clips, 0.5 * LOG_2PI, SOFT_BOUND, 1.0 / count, *weights, PPO=hp.ppo, SMOOTH=hp.use_smooth_clamp,
        CLIP_VALUE=hp.clip_value, BOUND=_BOUNDS.get(hp.bound_loss_type, 0), KEEP=keep, SWEPT=is_swept(hp.e_clip),
        ROWS=size, ACTIONS=columns, num_warps=4,
    )  # fmt: skip
    _totals[(groups,)](
        partial, log_sigma, batch.sigmas[index], action_dims, terms, d_log_sigma, sigma, blocks, count, width, groups,
        KEEP=keep, ACTIONS=columns, num_warps=1,
    )  # fmt: skip
    if not keep:
        batch.sigmas[index] = sigma
    kl, policy_loss, value_loss, bounds_loss = terms.unbind()
    return Terms(kl, policy_loss, value_loss, bounds_loss, d_log_sigma)
