"""PPO's objective in two Triton kernels. In torch it has 66 operations, 17 of them on the actions of all samples.

Each group's sums are in an order that does not depend on the other groups.
"""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.losses import LOG_2PI, SOFT_BOUND, Terms
from envcoder_bench.trainers.ppo.network import ActorCriticOutput
from envcoder_bench.trainers.ppo.rollout import Batch

NUMBERS_AT_ONCE = 2048  # of a program: rows times columns
_BOUNDS = {"bound": 1, "regularisation": 2}  # bound_loss_type


@jit
def _samples(
    mu, value, actions, old_mu, old_neglogp, advantages, old_values, returns, log_sigma, action_dims, d_mu, d_value,
    partial, num_rows, num_actions, mu_k, mu_n, value_k, value_n, action_k, sample_k, low, high, clip, half_log_2pi,
    soft_bound, weight, value_weight, bound_weight,
    PPO: tl.constexpr, SMOOTH: tl.constexpr, CLIP_VALUE: tl.constexpr, BOUND: tl.constexpr, ROWS: tl.constexpr,
    ACTIONS: tl.constexpr,
):  # fmt: skip
    k, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    rows, columns = block * ROWS + tl.arange(0, ROWS), tl.arange(0, ACTIONS)
    own, used = rows < num_rows, columns < num_actions
    both = own[:, None] & used[None, :]
    log_s = tl.load(log_sigma + k * num_actions + columns, mask=used, other=0.0)
    sigma = tl.exp(log_s)[None, :]
    at = rows[:, None] * mu_n + columns[None, :]
    m = tl.load(mu + k * mu_k + at, mask=both, other=0.0)
    at_action = k * action_k + rows[:, None] * num_actions + columns[None, :]
    distance = (m - tl.load(actions + at_action, mask=both, other=0.0)) / sigma  # in standard deviations
    moved = tl.load(old_mu + at_action, mask=both, other=0.0) - m
    tl.store(old_mu + at_action, m, mask=both)
    squares = distance * distance
    neglogp = half_log_2pi * tl.load(action_dims + k) + tl.sum(log_s, axis=0) + 0.5 * tl.sum(squares, axis=1)

    sample = k * sample_k + rows
    advantage = tl.load(advantages + sample, mask=own, other=0.0)
    if PPO:
        ratio = tl.exp(tl.load(old_neglogp + sample, mask=own, other=0.0) - neglogp)
        surrogate = advantage * ratio
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
    policy_loss = tl.where(own, policy_loss, 0.0)
    d_neglogp = tl.where(own, d_neglogp, 0.0) * weight

    at_value = k * value_k + rows * value_n
    v = tl.load(value + at_value, mask=own, other=0.0)
    target = tl.load(returns + sample, mask=own, other=0.0)
    error = v - target
    value_loss, d_v = error * error, 2.0 * error
    if CLIP_VALUE:
        old = tl.load(old_values + sample, mask=own, other=0.0)
        change = v - old
        near = tl.maximum(change, -clip, propagate_nan=tl.PropagateNan.ALL)
        other = tl.minimum(near, clip, propagate_nan=tl.PropagateNan.ALL) + (old - target)
        d_v = tl.where((other * other > value_loss) & (tl.abs(change) > clip), 0.0, d_v)
        value_loss = tl.maximum(value_loss, other * other, propagate_nan=tl.PropagateNan.ALL)
    tl.store(d_value + at_value, d_v * value_weight, mask=own)

    d_m = distance / sigma * d_neglogp[:, None]
    bounds_loss = d_neglogp * 0.0
    if BOUND:
        beyond = m
        if BOUND == 1:
            beyond = tl.where(m > soft_bound, m - soft_bound, tl.where(m < -soft_bound, m + soft_bound, m * 0.0))
        bounds_loss = tl.sum(beyond * beyond, axis=1)
        d_m += 2.0 * beyond * bound_weight
    tl.store(d_mu + k * mu_k + at, d_m, mask=both)

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
    num_groups, ACTIONS: tl.constexpr,
):  # fmt: skip
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
    used, at = columns < num_actions, k * num_actions + columns
    new = tl.exp(tl.load(log_sigma + at, mask=used, other=0.0))
    old = tl.load(old_sigma + at, mask=used, other=1.0)
    kl = tl.log(old / new + 1e-5) + (new * new + moved / num_rows) / (2.0 * (old * old + 1e-5)) - 0.5
    kl = tl.where(columns < tl.load(action_dims + k), kl, 0.0)
    d_neglogp = tl.sum(tl.where(each == 3, scalars, 0.0), axis=0)
    tl.store(terms + k, tl.sum(kl, axis=0))
    tl.store(terms + (each + 1) * num_groups + k, scalars / num_rows, mask=each < 3)
    tl.store(d_log_sigma + at, d_neglogp - squares, mask=used)
    tl.store(sigma + at, new, mask=used)


def differentiate(
    hp: Hyperparameters, batch: Batch, index: int, output: ActorCriticOutput, log_sigma: Tensor, action_dims: Tensor
) -> Terms:
    """As ``objective.differentiate``, for float32 on CUDA."""
    rows, mu, value = batch.rows(index), output.mu, output.value
    samples = [x[:, rows] for x in (batch.neglogp, batch.advantages, batch.values, batch.returns)]
    actions, old_mu = batch.actions[:, rows], batch.mus[:, rows]
    groups, count, width = mu.shape
    columns = int(triton.next_power_of_2(width))
    size = max(1, NUMBERS_AT_ONCE // columns)
    blocks = int(triton.cdiv(count, size))
    partial = mu.new_empty(groups, blocks, 4 + 2 * columns)
    terms, d_log_sigma, sigma = mu.new_empty(4, groups), torch.empty_like(log_sigma), torch.empty_like(log_sigma)
    weight = 1.0 / count
    _samples[(blocks, groups)](
        mu, value, actions, old_mu, *samples, log_sigma, action_dims, output.d_mu, output.d_value, partial, count,
        width, mu.stride(0), mu.stride(1), value.stride(0), value.stride(1), actions.stride(0), samples[0].stride(0),
        1.0 - hp.e_clip, 1.0 + hp.e_clip, hp.e_clip, 0.5 * LOG_2PI, SOFT_BOUND, weight, 0.5 * hp.critic_coef * weight,
        (hp.bounds_loss_coef or 0.0) * weight, PPO=hp.ppo, SMOOTH=hp.use_smooth_clamp, CLIP_VALUE=hp.clip_value,
        BOUND=_BOUNDS.get(hp.bound_loss_type, 0), ROWS=size, ACTIONS=columns, num_warps=4,
    )  # fmt: skip
    _totals[(groups,)](
        partial, log_sigma, batch.sigmas[index], action_dims, terms, d_log_sigma, sigma, blocks, count, width, groups,
        ACTIONS=columns, num_warps=1,
    )  # fmt: skip
    batch.sigmas[index] = sigma
    kl, policy_loss, value_loss, bounds_loss = terms.unbind()
    return Terms(kl, policy_loss, value_loss, bounds_loss, d_log_sigma)
