"""Statistics of episodes against numbers computed by hand."""

import math

import pytest
import torch
from kernel_device import DEVICE, compares_kernels

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.episode_stats import EpisodeStats


def play(stats: EpisodeStats) -> None:
    """Three steps of two groups of two environments."""
    for reward, done, unstable in (
        ([1.0, 2.0, 4.0, 8.0], [0, 1, 0, 0], [0, 1, 0, 0]),
        ([0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0], [0, 1, 0, 0]),
        ([3.0, 3.0, 3.0, 3.0], [0, 0, 0, 0], [0, 0, 1, 0]),
    ):
        stats.add(torch.tensor(reward), torch.tensor(done) > 0, torch.tensor(unstable) > 0)


@pytest.mark.parametrize("looked_at", [False, True])
def test_sums_of_a_group(looked_at: bool) -> None:
    stats = EpisodeStats(GroupLayout(2, 2), torch.device("cpu"))
    play(stats)
    if looked_at:  # twice: nothing counts again
        assert [stats.training_episodes.tolist() for _ in range(2)] == [[3, 0], [3, 0]]
    assert stats.unstable_resets.tolist() == [2, 1]
    first = stats.shaped_return().tolist()
    assert first[0] == pytest.approx((2.0 + 1.5 + 0.5) / 3) and math.isnan(first[1])
    assert stats.training_episodes.tolist() == [3, 0]
    stats.add(torch.zeros(4), torch.tensor([True, False, True, True]), torch.zeros(4, dtype=torch.bool))
    assert stats.shaped_return().tolist() == [3.0, pytest.approx((7.5 + 11.5) / 2)]
    assert stats.training_episodes.tolist() == [4, 2]


def test_state_of_unfinished_sums() -> None:
    layout = GroupLayout(2, 2)
    own, other = (EpisodeStats(layout, torch.device("cpu")) for _ in range(2))
    play(own)
    other.add(torch.ones(4), torch.ones(4) > 0, torch.ones(4) > 0)  # replaced, too
    state = EpisodeStats.join_states(own.split_state(own.get_state()))
    other.set_state(dict(reversed(list(state.items()))))
    for stats in (own, other):
        stats.add(torch.ones(4), torch.ones(4) > 0, torch.zeros(4) > 0)
    assert own.unstable_resets.tolist() == other.unstable_resets.tolist() == [2, 1]
    assert torch.equal(own.shaped_return(), other.shaped_return())
    assert own.last_return.tolist() == [pytest.approx((4.0 + 4.0 + 4.0) / 5), (8.5 + 12.5) / 2]


def test_an_episode_that_terminates_at_the_time_limit_is_not_truncated() -> None:
    stats = EpisodeStats(GroupLayout(1, 5), torch.device("cpu"))
    terminal, unstable, cut = torch.eye(5)[[0, 1, 3]].bool()
    progress = torch.tensor([7, 7, 7, 2, 2])
    reward, *ends = stats.end_step(torch.ones(5), terminal, unstable, progress, cut, 7)
    assert reward.tolist() == [1, 0, 1, 1, 1]
    terminated, truncated, done = (x.nonzero().flatten().tolist() for x in ends)
    assert (terminated, truncated, done) == ([0, 1], [2, 3], [0, 1, 2, 3])


@compares_kernels
@pytest.mark.parametrize("cuts", [False, True])
def test_kernel_of_the_end_of_a_step_matches_torch(cuts: bool) -> None:
    layout, rng = GroupLayout(3, 111), torch.Generator().manual_seed(0)
    fused, plain = EpisodeStats(layout, DEVICE), EpisodeStats(layout, DEVICE)
    fused._kernels, plain._kernels = True, False
    for step in range(4):
        reward = torch.randn(333, generator=rng).to(DEVICE)
        terminal, unstable, cut = (torch.randn(3, 333, generator=rng) > 1.5).to(DEVICE)
        progress = torch.randint(0, 5, (333,), generator=rng).to(DEVICE)
        got, want = (
            stats.end_step(reward, terminal, unstable, progress, cut if cuts else None, 4) for stats in (fused, plain)
        )
        for mine, other in zip(got, want):
            assert torch.equal(mine, other) and mine.dtype == other.dtype, step
        assert (want[0][unstable] == 0).all() and torch.equal(want[1], terminal | unstable)
        assert torch.equal(want[2], ((progress >= 4) | (cut & cuts)) & ~want[1]) and want[2].any()
        assert torch.equal(want[3], want[1] | want[2]) and unstable.any()
    assert torch.equal(fused.unstable_resets, plain.unstable_resets)
    assert torch.equal(fused.training_episodes, plain.training_episodes)
    torch.testing.assert_close(fused.shaped_return(), plain.shaped_return())
