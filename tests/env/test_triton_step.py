"""The Triton kernel of the end of a step gives what torch's operations give, on CUDA or in Triton's interpreter."""

import pytest
import torch
from kernel_device import DEVICE, compares_kernels

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env import triton_step
from envcoder_bench.env.episode_stats import EpisodeStats


@compares_kernels
@pytest.mark.parametrize("cuts", [False, True])
def test_end_of_a_step(cuts: bool) -> None:
    layout, rng = GroupLayout(3, 111), torch.Generator().manual_seed(0)
    own, want = EpisodeStats(layout, DEVICE), EpisodeStats(layout, DEVICE)
    for step in range(4):
        reward = torch.randn(333, generator=rng).to(DEVICE)
        terminal, unstable, cut = (torch.randn(3, 333, generator=rng) > 1.5).to(DEVICE)
        progress = torch.randint(0, 5, (333,), generator=rng).to(DEVICE)
        found = triton_step.end_step(reward, terminal, unstable, progress, cut if cuts else None, 4, *own.per_env)
        reward = torch.where(unstable, 0.0, reward)
        ends = terminal | unstable
        late = ((progress >= 4) | (cut & cuts)) & ~ends
        want.add(reward, ends | late, unstable)
        for mine, other in zip(found, (reward, ends, late, ends | late)):
            assert torch.equal(mine, other) and mine.dtype == other.dtype, step
        assert ends.any() and late.any() and unstable.any()
    assert torch.equal(own.unstable_resets, want.unstable_resets)
    assert torch.equal(own.training_episodes, want.training_episodes)
    torch.testing.assert_close(own.shaped_return(), want.shaped_return())
