"""Advantages of a rollout in one Triton kernel, a thread for each environment."""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton


@jit
def _advantages(
    values, rewards, dones, time_outs, last_values, out, num_rows, num_steps, gamma, decay, BOOTSTRAP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = row < num_rows
    following = tl.load(last_values + row, mask=mask)
    running = tl.zeros((BLOCK,), dtype=tl.float32)
    at = row * num_steps + num_steps - 1
    for _ in range(0, num_steps):
        value, reward = tl.load(values + at, mask=mask), tl.load(rewards + at, mask=mask)
        if BOOTSTRAP:
            reward += gamma * value * tl.load(time_outs + at, mask=mask)
        going_on = 1.0 - tl.load(dones + at, mask=mask)
        running = reward + gamma * following * going_on - value + decay * going_on * running
        tl.store(out + at, running, mask=mask)
        following = value
        at -= 1


def advantages(
    values: Tensor, rewards: Tensor, dones: Tensor, time_outs: Tensor, last_values: Tensor, gamma: float, decay: float,
    bootstrap: bool,
) -> Tensor:  # fmt: skip
    """As ``ppo.generalized_advantages``, in one kernel; ``decay`` is gamma times tau, and tensors are contiguous."""
    out = torch.empty_like(values)
    rows, steps = last_values.numel(), values.shape[-1]
    _advantages[(triton.cdiv(rows, 128),)](
        values, rewards, dones, time_outs, last_values, out, rows, steps, gamma, decay, BOOTSTRAP=bootstrap, BLOCK=128
    )
    return out
