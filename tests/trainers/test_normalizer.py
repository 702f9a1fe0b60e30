import contextlib
import io

import pytest
import torch
from rl_games.algos_torch.running_mean_std import RunningMeanStd

from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.normalizer import GroupedRunningMeanStd

CPU, TORCH = torch.device("cpu"), Backend(kernels=False, fixed_order=False)


@pytest.fixture(name="batches")
def _batches() -> torch.Tensor:
    """Three batches for groups of widths 2, 4, 3, padded with zeros: (batch, group, N, D)."""
    x = torch.randn(3, 3, 50, 4, generator=torch.Generator().manual_seed(0)) * 3 + 2
    x[:, 0, :, 2:] = 0.0
    x[:, 2, :, 3:] = 0.0
    return x


def test_normalizer_matches_rl_games_for_every_group(batches: torch.Tensor) -> None:
    grouped = GroupedRunningMeanStd(TORCH, [2, 4, 3], CPU)
    with contextlib.redirect_stdout(io.StringIO()):
        stock = [RunningMeanStd((d,)) for d in (2, 4, 3)]
    for batch in batches:
        grouped.update(batch)
        mine = grouped.normalize(batch)
        for k, (d, module) in enumerate(zip((2, 4, 3), stock)):
            torch.testing.assert_close(mine[k, :, :d], module(batch[k, :, :d]))
    for k, module in enumerate(stock):
        assert grouped.export(k).keys() == module.state_dict().keys()
        for key, value in module.state_dict().items():
            torch.testing.assert_close(grouped.export(k)[key], value, rtol=1e-6, atol=1e-6)
    module = stock[1].eval()
    y = torch.linspace(-7, 7, 40).view(1, 10, 4).expand(3, 10, 4)
    torch.testing.assert_close(grouped.denormalize(y)[1], module(y[1], denorm=True))
    assert grouped.normalize(torch.full((3, 1, 4), 1e9))[1].max() == 5.0


def test_padding_is_inert_even_if_not_zero(batches: torch.Tensor) -> None:
    clean, dirty = (GroupedRunningMeanStd(TORCH, [2, 4, 3], CPU) for _ in range(2))
    polluted = batches.clone()
    polluted[:, 0, :, 2:] = 1e6
    for batch, other in zip(batches, polluted):
        clean.update(batch)
        dirty.update(other)
    assert torch.equal(clean.normalize(batches[0]), dirty.normalize(polluted[0]))
    assert (dirty.normalize(polluted[0])[0, :, 2:] == 0).all()
    assert (dirty.running_mean[0, 2:] == 0).all() and (dirty.running_var[0, 2:] == 1).all()


def test_frozen_group_keeps_its_statistics_without_affecting_others(batches: torch.Tensor) -> None:
    free, frozen = (GroupedRunningMeanStd(TORCH, [2, 4, 3], CPU) for _ in range(2))
    alive = torch.tensor([True, False, True])
    for batch in batches:
        free.update(batch)
        broken = batch.clone()
        broken[1] = float("nan")
        frozen.update(broken, alive)
    assert (frozen.running_mean[1] == 0).all() and (frozen.running_var[1] == 1).all() and frozen.count[1] == 1
    for k in (0, 2):
        for key, value in free.export(k).items():
            assert torch.equal(frozen.export(k)[key], value)


def test_state_restores_the_normalizer(batches: torch.Tensor) -> None:
    a, b = (GroupedRunningMeanStd(TORCH, [2, 4, 3], CPU) for _ in range(2))
    a.update(batches[0])
    b.set_state(a.get_state())
    assert torch.equal(a.normalize(batches[1]), b.normalize(batches[1]))
