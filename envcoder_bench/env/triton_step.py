"""The end of a control step as one Triton kernel, in place of some 20 operations of torch."""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton

StepEnd = tuple[Tensor, Tensor, Tensor, Tensor]  # (num_envs,): reward; bool: terminated, truncated, done


@jit
def _end_step(
    reward, terminal, unstable, progress, timed_out, counted, terminated, truncated, done, returns, recent, num_envs,
    last, CUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < num_envs
    blown_up = tl.load(unstable + i, mask=mask, other=0) != 0
    own = tl.where(blown_up, 0.0, tl.load(reward + i, mask=mask, other=0.0))
    ends = (tl.load(terminal + i, mask=mask, other=0) != 0) | blown_up
    late = tl.load(progress + i, mask=mask, other=0) >= last
    if CUTS:
        late = late | (tl.load(timed_out + i, mask=mask, other=0) != 0)
    late = late & (ends == 0)
    over = ends | late
    total = tl.load(returns + i, mask=mask, other=0.0) + own
    tl.store(counted + i, own, mask=mask)
    tl.store(terminated + i, ends, mask=mask)
    tl.store(truncated + i, late, mask=mask)
    tl.store(done + i, over, mask=mask)
    tl.store(returns + i, tl.where(over, 0.0, total), mask=mask)
    tl.store(recent + i, tl.load(recent + i, mask=mask) + tl.where(over, total, 0.0), mask=mask)
    tl.store(recent + num_envs + i, tl.load(recent + num_envs + i, mask=mask) + over.to(tl.float32), mask=mask)
    recent += 2 * num_envs
    tl.store(recent + i, tl.load(recent + i, mask=mask) + blown_up.to(tl.float32), mask=mask)


def end_step(
    reward: Tensor, terminal: Tensor, unstable: Tensor, progress: Tensor, timed_out: Tensor | None, last: int,
    returns: Tensor, recent: Tensor,
) -> StepEnd:  # fmt: skip
    """Find which episodes end, and count the step, as ``GroupedVecTask._end_step`` and ``EpisodeStats.add``.

    Args:
        reward: ``(num_envs,)``, counted as 0 where ``unstable``.
        terminal, unstable, timed_out: ``(num_envs,)`` bool, reasons to end an episode.
        progress: ``(num_envs,)`` int64; episodes end at ``last``.
        returns, recent: ``EpisodeStats.per_env``; changed in place.
    """
    reward, progress = reward.contiguous(), progress.contiguous()
    counted = torch.empty_like(reward)
    ended = torch.empty(3, *reward.shape, dtype=torch.bool, device=reward.device)
    flags = (x.to(torch.bool).contiguous() for x in (terminal, unstable, terminal if timed_out is None else timed_out))
    terminal, unstable, cut, *out = (x.view(torch.uint8) for x in (*flags, *ended))
    _end_step[(triton.cdiv(len(reward), 256),)](
        reward, terminal, unstable, progress, cut, counted, *out, returns, recent, len(reward), last,
        CUTS=timed_out is not None, BLOCK=256, num_warps=4,
    )  # fmt: skip
    terminated, truncated, done = ended
    return counted, terminated, truncated, done
