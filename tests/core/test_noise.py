import itertools
import math

import pytest
import torch

from envcoder_bench.core import noise
from envcoder_bench.core.noise_kernels import hash_lanes, uniform_lanes
from envcoder_bench.core.purposes import PURPOSES, STRIDE, Purpose, counter_offset

GOAL = 2  # a purpose


@pytest.mark.parametrize("draw", [noise.uniform, noise.normal])
def test_noise_depends_only_on_its_counters(draw):
    whole = draw(7, 100, Purpose.ACTION, 64, 12)
    assert torch.equal(draw(7, 100, Purpose.ACTION, 64, 12), whole)
    # fewer lanes or columns: the same numbers where both have them
    torch.testing.assert_close(draw(7, 100, Purpose.ACTION, 5, 3), whole[:5, :3], rtol=1e-6, atol=0)
    for other in (
        draw(8, 100, Purpose.ACTION, 64, 12),
        draw(7, 101, Purpose.ACTION, 64, 12),
        draw(7, 100, GOAL, 64, 12),
    ):
        assert not (other == whole).any(dim=1).all()


def test_numbers_of_the_first_16_purposes_are_those_of_earlier_versions():
    """Their counter is 16 times the step plus the purpose, hashed here with Python's integers."""

    def mix(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % (1 << 64)
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % (1 << 64)
        return x ^ (x >> 31)

    golden = 0x9E3779B97F4A7C15
    for purpose in range(16):
        for step in (0, 5, noise.EVALUATION_STEP + 7):
            x = 3
            for count, factor in ((1, golden), (16 * step + purpose, 1), (4 + 1, golden), (2 + 1, golden)):
                x = mix((x + count * factor + golden * (factor == 1)) % (1 << 64))
            assert noise.uniform(3, step, purpose, 5, 3)[4, 2].item() == (x >> 40) * 2.0**-24


def test_counters_of_all_purposes_differ_at_all_steps():
    last = 2 * noise.EVALUATION_STEP + (1 << 57)  # of the adapters
    steps = [0, 1, 2, 1 << 20, noise.EVALUATION_STEP - 1, noise.EVALUATION_STEP, 1 << 53, 1 << 54, last]
    counters = {(step * STRIDE + counter_offset(purpose)) % (1 << 64) for step in steps for purpose in range(PURPOSES)}
    assert len(counters) == len(steps) * PURPOSES and max(Purpose) < 48 < PURPOSES
    rows = [noise.uniform(3, step, purpose, 1, 4) for step in steps for purpose in range(PURPOSES)]
    assert len({tuple(row[0].tolist()) for row in rows}) == len(rows)


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
    x = noise.normal(3, 0, Purpose.ACTION, 200_000, 2).double()
    n = len(x)
    assert torch.isfinite(x).all()
    assert x.mean(0).abs().max() < 5 / math.sqrt(n)
    assert (x.var(0) - 1).abs().max() < 5 * math.sqrt(2 / n)
    assert ((x**4).mean(0) - 3).abs().max() < 5 * math.sqrt(96 / n)


def test_consecutive_steps_and_seeds_are_uncorrelated():
    rows = [noise.uniform(seed, step, Purpose.ACTION, 50_000, 1).flatten() for seed in (0, 1) for step in (0, 1, 2)]
    off_diagonal = torch.corrcoef(torch.stack(rows).double()) - torch.eye(len(rows))
    assert off_diagonal.abs().max() < 5 / math.sqrt(50_000)


def test_stream_seeds_fit_a_generator_and_differ():
    seeds = {noise.stream_seed(s, t, p) for s in range(3) for t in range(10) for p in range(8)}
    assert len(seeds) == 240
    torch.Generator().manual_seed(max(seeds))


@pytest.mark.parametrize("seeds", [1, 40])
def test_hash_implementations_give_the_same_numbers(seeds):
    generator = torch.Generator().manual_seed(0)
    seed = torch.randint(-(1 << 62), 1 << 62, (seeds, 1), generator=generator) * 2
    lanes, step = torch.randint(0, 1 << 20, (40,), generator=generator), noise.EVALUATION_STEP - 3
    for at, purpose in itertools.product((step, -step, 0, 1 << 57), (GOAL, 17, 40, PURPOSES - 1)):
        numbers = noise.uniform(seed, at, purpose, lanes, 7)
        own = noise._hash_torch(seed, at, purpose, lanes, 7, torch.device("cpu"))
        assert torch.equal(noise._hash(seed, at, purpose, lanes, 7, torch.device("cpu")), own)  # numpy
        for now in (at, torch.tensor(at)):
            assert torch.equal(hash_lanes(seed.flatten(), now, purpose, lanes, 7), own)  # Warp
            assert torch.equal(uniform_lanes(seed.flatten(), now, purpose, lanes, 7), numbers)
    assert hash_lanes(seed.flatten(), 0, 0, lanes[:0], 7).shape == (0, 7)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_lane_tensor_gives_the_same_numbers_on_cuda():
    seed, lanes = torch.tensor([[5], [-7], [1 << 62]]), torch.tensor([2, 0, 9])
    for draw in (noise.uniform, lambda *a: noise.integers(*a[:-1], 0, 1000, a[-1])):
        own = draw(seed, -40, GOAL, lanes, 5, "cpu")
        with torch.cuda.stream(torch.cuda.Stream()):
            assert torch.equal(draw(seed.cuda(), -40, GOAL, lanes.cuda(), 5, "cuda").cpu(), own)
