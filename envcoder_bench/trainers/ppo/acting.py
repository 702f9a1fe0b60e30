"""Acting of a learner's groups, and the record of their steps, in torch or in kernels.

An action is mu(x) + sigma noise, of the normalized observation x. In torch that is some 20 operations beside the
networks' layers, which take longer than the layers if groups are few. As kernels it is one before the layers, one after
them, and one after the environment's step. The first two read the step from the device, so that a captured graph counts
by itself.
"""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.normalizer import CLIP
from envcoder_bench.trainers.ppo.rollout import Rollout, StepIndex, put, take


def act(
    learner: GroupedLearner, rollout: Rollout, t: StepIndex, obs: Tensor, noise: Tensor, draw: Tensor | None,
    dead: Tensor | None, out: Tensor, critic_obs: Tensor | None = None,
) -> None:  # fmt: skip
    """Sample the actions of step t, and record the step without its result.

    Args:
        rollout: receives the step's ``obs``, ``critic_obs``, ``actions``, ``mus`` and ``values``.
        t: the step; a tensor if a captured graph counts the steps, which is the condition for kernels.
        obs: ``(K, n, d)``; columns beyond the rollout's are ignored, missing ones are 0.
        noise: ``(seeds, T, n, A)``, standard normal numbers of the whole rollout.
        draw: ``(K,)`` int64, the index of each group's numbers in ``noise`` (None: all have the first).
        dead: ``(K, 1, 1)`` bool, groups that do not act (None: all act).
        out: ``(K, n, W)``, receives the actions; if W is larger than A, the other columns stay.
        critic_obs: ``(K, n, c)``, as ``obs``, if the rollout has them.
    """
    if learner.backend.kernels and isinstance(t, Tensor) and learner.network.has_plain_outputs:
        _act_in_kernels(learner, rollout, t, obs, noise, draw, dead, out, critic_obs)
        return
    put(rollout.obs[..., : obs.shape[-1]], t, obs)
    seen = None
    if rollout.critic_obs is not None and critic_obs is not None:
        put(rollout.critic_obs[..., : critic_obs.shape[-1]], t, critic_obs)
        seen = take(rollout.critic_obs, 2, t)
    numbers = take(noise, 1, t)
    result = learner.act(take(rollout.obs, 2, t), numbers if draw is None else numbers.index_select(0, draw), seen)
    put(rollout.actions, t, result["actions"])
    put(rollout.mus, t, result["mus"])
    put(rollout.values, t, result["values"])
    write_actions(result["actions"], dead, out)


def write_actions(actions: Tensor, dead: Tensor | None, out: Tensor) -> None:
    """Write ``(K, n, A)`` to the first columns of ``(K, n, W)``, with zeros for groups that are ``dead``."""
    if dead is not None:
        actions = actions.masked_fill(dead, 0.0)
    out[..., : actions.shape[-1]] = actions[..., : out.shape[-1]]


def record(kernels: bool, reward: Tensor, terminated: Tensor, truncated: Tensor, answers: Tensor, t: int) -> None:
    """Write step t of ``(3, G, n, T)``: rewards ``(G * n,)``, whether episodes ended, and whether by the time limit."""
    if kernels:
        _record_in_kernel(reward, terminated, truncated, answers, t)
        return
    for rows, x in zip(answers, (reward, terminated | truncated, truncated)):
        rows[:, :, t] = x.reshape(rows.shape[:2])


# the same as kernels


def _act_in_kernels(
    learner: GroupedLearner, rollout: Rollout, step: Tensor, obs: Tensor, noise: Tensor, draw: Tensor | None,
    dead: Tensor | None, out: Tensor, critic_obs: Tensor | None,
) -> None:  # fmt: skip
    network, values, critic_input = learner.network, learner.value_normalizer, learner.critic_input
    seen = [_observe_in_kernel(obs, rollout.obs, step, *learner.obs_input.factors, learner.obs_input.clip)]
    if critic_input is not None and rollout.critic_obs is not None and critic_obs is not None:
        seen.append(_observe_in_kernel(critic_obs, rollout.critic_obs, step, *critic_input.factors, critic_input.clip))
    mean, value = network.plain_outputs(*seen)
    scale = None if values is None else values.inverse_factors
    log_sigma = network.log_sigma() if network.scalar_std else network.sigma
    _decide_in_kernel(mean, value, log_sigma, noise, draw, learner.action_dims, dead, scale, CLIP, rollout, step, out)


@jit
def _observe(
    obs, recorded, scale, shift, out, step, num_rows, seen, width, num_steps, obs_k, obs_n, scale_k, shift_k,
    CLIP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    # record the observations
    in_group, used = (rows < num_rows)[:, None], (columns < width)[None, :]
    mask = in_group & (columns < seen)[None, :]
    x = tl.load(obs + k * obs_k + rows[:, None] * obs_n + columns[None, :], mask=mask, other=0.0)
    row = (k * num_rows + rows)[:, None]
    tl.store(recorded + (row * num_steps + tl.load(step)) * width + columns[None, :], x, mask=mask)
    # normalize them
    factor = tl.load(scale + k * scale_k + columns[None, :], mask=used, other=0.0)
    summand = tl.load(shift + k * shift_k + columns[None, :], mask=used, other=0.0)
    value = x * factor + summand
    if CLIP > 0:
        value = tl.minimum(value, CLIP, propagate_nan=tl.PropagateNan.ALL)
        value = tl.maximum(value, -CLIP, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + row * width + columns[None, :], value, mask=in_group & used)


def _observe_in_kernel(
    obs: Tensor, recorded: Tensor, step: Tensor, scale: Tensor, shift: Tensor, clip: float
) -> Tensor:
    """Record a step's observations, and return them normalized.

    Args:
        obs: ``(K, n, d)``, contiguous rows; columns beyond the recorded ones are ignored, missing ones are 0.
        recorded: ``(K, n, T, D)``, the rollout's observations; receives those of the step.
        step: ``(1,)`` int64.
        scale, shift: ``(K, 1, D)``, factors of normalization, whose last stride is 1.
        clip: largest absolute value after normalization; 0: no limit.

    Returns:
        ``(K, n, D)``.
    """
    groups, count, steps, width = recorded.shape
    out = recorded.new_empty(groups, count, width)
    columns = triton.next_power_of_2(width)
    rows = max(1, 2048 // columns)
    _observe[(triton.cdiv(count, rows), groups)](
        obs, recorded, scale, shift, out, step, count, min(obs.shape[2], width), width, steps, obs.stride(0),
        obs.stride(1), scale.stride(0), shift.stride(0), CLIP=clip, ROWS=rows, COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out


@jit
def _decide(
    mean, value, log_sigma, noise, draw, action_dims, dead, std, center, actions, mus, values, out, step, num_rows,
    num_actions, out_width, num_steps, mean_k, mean_n, value_k, value_n, sigma_k, out_k, out_n,
    DRAWN: tl.constexpr, MASKED: tl.constexpr, NORMALIZED: tl.constexpr, CLIP: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    in_group, t = rows < num_rows, tl.load(step)
    mask = in_group[:, None] & (columns < num_actions)[None, :]
    used = columns < tl.load(action_dims + k)
    # sample the actions
    deviation = tl.exp(tl.load(log_sigma + k * sigma_k + columns, mask=used, other=0.0))
    mu = tl.load(mean + k * mean_k + rows[:, None] * mean_n + columns[None, :], mask=mask, other=0.0)
    mu = tl.where(used[None, :], mu, 0.0)
    index = tl.load(draw + k) if DRAWN else 0
    at = ((index * num_steps + t) * num_rows + rows)[:, None] * num_actions + columns[None, :]
    drawn = tl.load(noise + at, mask=mask & used[None, :], other=0.0)
    action = mu + deviation[None, :] * drawn
    # record them, and hand them out
    sample = (k * num_rows + rows) * num_steps + t
    at = sample[:, None] * num_actions + columns[None, :]
    tl.store(mus + at, mu, mask=mask)
    tl.store(actions + at, action, mask=mask)
    if MASKED:
        action = tl.where(tl.load(dead + k) != 0, 0.0, action)
    mask = in_group[:, None] & (columns < out_width)[None, :]
    tl.store(out + k * out_k + rows[:, None] * out_n + columns[None, :], action, mask=mask)
    # values in units of the shaped reward
    v = tl.load(value + k * value_k + rows * value_n, mask=in_group, other=0.0)
    if NORMALIZED:
        v = tl.minimum(v, CLIP, propagate_nan=tl.PropagateNan.ALL)
        v = tl.maximum(v, -CLIP, propagate_nan=tl.PropagateNan.ALL)
        v = v * tl.load(std + k) + tl.load(center + k)
    tl.store(values + sample, v, mask=in_group)


def _decide_in_kernel(
    mean: Tensor, value: Tensor, log_sigma: Tensor, noise: Tensor, draw: Tensor | None, action_dims: Tensor,
    dead: Tensor | None, scale: tuple[Tensor, Tensor] | None, clip: float, rollout: Rollout, step: Tensor, out: Tensor,
) -> None:  # fmt: skip
    """Sample and record a step's actions, their means, and the values.

    Args:
        mean, value: ``(K, n, A)`` and ``(K, n)``, outputs of the networks; columns that a group does not have are
            ignored.
        log_sigma: ``(K, 1, A)``.
        noise, draw, dead, out: see ``act``.
        action_dims: ``(K, 1)`` float, number of actions of each group.
        scale: standard deviation and mean of the values ``(K, 1, 1)``; values are clipped to ``clip``, then scaled
            (None: values stay as they are).
        rollout: receives the step's ``actions``, ``mus`` and ``values``.
        step: ``(1,)`` int64.
    """
    groups, count, steps, width = rollout.actions.shape
    columns = max(16, triton.next_power_of_2(width))
    rows = max(1, 2048 // columns)
    std, center = scale or (mean, mean)
    flags = mean if dead is None else dead.view(torch.uint8)
    _decide[(triton.cdiv(count, rows), groups)](
        mean, value, log_sigma, noise, step if draw is None else draw, action_dims, flags, std, center,
        rollout.actions, rollout.mus, rollout.values, out, step, count, width, min(out.shape[2], width), steps,
        mean.stride(0), mean.stride(1), value.stride(0), value.stride(1), log_sigma.stride(0), out.stride(0),
        out.stride(1), DRAWN=draw is not None, MASKED=dead is not None, NORMALIZED=scale is not None, CLIP=clip,
        ROWS=rows, COLUMNS=columns, num_warps=4,
    )  # fmt: skip


@jit
def _record(reward, terminated, truncated, answers, num_rows, num_steps, t, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < num_rows
    late = tl.load(truncated + i, mask=mask, other=0) != 0
    done = (tl.load(terminated + i, mask=mask, other=0) != 0) | late
    at, size = i.to(tl.int64) * num_steps + t, tl.full((), 1, tl.int64) * num_rows * num_steps
    tl.store(answers + at, tl.load(reward + i, mask=mask, other=0.0), mask=mask)
    tl.store(answers + size + at, done.to(tl.float32), mask=mask)
    tl.store(answers + 2 * size + at, late.to(tl.float32), mask=mask)


def _record_in_kernel(reward: Tensor, terminated: Tensor, truncated: Tensor, answers: Tensor, t: int) -> None:
    count, reward = reward.numel(), reward.contiguous()
    terminated, truncated = (x.to(torch.bool).contiguous() for x in (terminated, truncated))
    _record[(triton.cdiv(count, 256),)](
        reward, terminated.view(torch.uint8), truncated.view(torch.uint8), answers, count, answers.shape[-1], t,
        BLOCK=256, num_warps=4,
    )  # fmt: skip
