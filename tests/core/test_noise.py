import math

import pytest
import torch

from envcoder_bench.core import noise

GOAL = 2  # a purpose


@pytest.mark.parametrize("draw", [noise.uniform, noise.normal])
def test_a_number_depends_on_its_counters_alone(draw):
    whole = draw(7, 100, noise.ACTION, 64, 12)
    assert torch.equal(draw(7, 100, noise.ACTION, 64, 12), whole)
    # fewer lanes or columns: the same numbers where both have them
    torch.testing.assert_close(draw(7, 100, noise.ACTION, 5, 3), whole[:5, :3], rtol=1e-6, atol=0)
    for other in (
        draw(8, 100, noise.ACTION, 64, 12),
        draw(7, 101, noise.ACTION, 64, 12),
        draw(7, 100, GOAL, 64, 12),
    ):
        assert not (other == whole).any(dim=1).all()


@pytest.mark.parametrize("seed", [0, 1, (1 << 63) - 1, -(1 << 63), -5])
def test_a_step_in_a_tensor_gives_the_same_numbers(seed):
    step = 1 << 40
    in_tensor = noise.uniform(seed, torch.tensor(step), GOAL, 40, 5)
    assert torch.equal(in_tensor, noise.uniform(seed, step, GOAL, 40, 5))


def test_uniform_numbers_are_uniform_and_independent():
    x = noise.uniform(3, 0, GOAL, 200_000, 4).double()
    assert x.min() >= 0.0
    assert x.max() < 1.0
    # five standard errors of the mean, of the variance and of a correlation
    n = len(x)
    assert (x.mean(0) - 0.5).abs().max() < 5 / math.sqrt(12 * n)
    assert (x.var(0) - 1 / 12).abs().max() < 5 * math.sqrt(1 / 180 / n)
    lagged = torch.cat([x.T, x.roll(1, 0).T])
    off_diagonal = torch.corrcoef(lagged) - torch.eye(8)
    assert off_diagonal.abs().max() < 5 / math.sqrt(n)


def test_normal_numbers_have_the_moments_of_a_normal():
    x = noise.normal(3, 0, noise.ACTION, 200_000, 2).double()
    n = len(x)
    assert torch.isfinite(x).all()
    assert x.mean(0).abs().max() < 5 / math.sqrt(n)
    assert (x.var(0) - 1).abs().max() < 5 * math.sqrt(2 / n)
    assert ((x**4).mean(0) - 3).abs().max() < 5 * math.sqrt(96 / n)


def test_consecutive_steps_and_seeds_are_uncorrelated():
    rows = [noise.uniform(seed, step, noise.ACTION, 50_000, 1).flatten() for seed in (0, 1) for step in (0, 1, 2)]
    off_diagonal = torch.corrcoef(torch.stack(rows).double()) - torch.eye(len(rows))
    assert off_diagonal.abs().max() < 5 / math.sqrt(50_000)


def test_stream_seeds_fit_a_generator_and_differ():
    seeds = {noise.stream_seed(s, t, p) for s in range(3) for t in range(10) for p in range(8)}
    assert len(seeds) == 240
    torch.Generator().manual_seed(max(seeds))
