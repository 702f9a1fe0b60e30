import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from envcoder_bench.core import noise, stream
from envcoder_bench.torch_utils import torch_rand_float

GOAL, REWARD = 2, 3  # two purposes


def draw(seed=0, step: noise.Counter = 0, purpose=GOAL, shape=(8, 3), calls=1, make=stream.uniform):
    with stream.use(seed, step, purpose):
        return [make(shape) for _ in range(calls)]


@pytest.mark.parametrize("make", [stream.uniform, stream.normal])
def test_stream_depends_on_seed_step_and_purpose(make):
    assert torch.equal(draw(make=make)[0], draw(make=make)[0])
    for other in ({"seed": 1}, {"step": 1}, {"purpose": REWARD}):
        assert not torch.equal(draw(make=make)[0], draw(make=make, **other)[0])


def test_calls_differ_and_are_counted_from_the_start_of_the_block():
    first, second = draw(calls=2)
    assert not torch.equal(first, second)
    assert torch.equal(draw(calls=2)[1], second)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 2, 3), ()])
def test_uniform_supports_any_shape(shape):
    numbers = draw(shape=shape)[0]
    assert numbers.shape == shape and numbers.dtype is torch.float32
    assert bool(((numbers >= 0) & (numbers < 1)).all())


def test_blocks_nest():
    with stream.use(0, 0, GOAL):
        first = stream.uniform((4, 1))
        with stream.use(1, 0, GOAL):
            stream.uniform((4, 1))
        second = stream.uniform((4, 1))
    assert torch.equal(torch.stack([first, second]), torch.stack(draw(shape=(4, 1), calls=2)))


def test_helpers_draw_from_torch_outside_a_block():
    torch.manual_seed(0)
    expected = torch.rand(4, 2)
    torch.manual_seed(0)
    assert torch.equal(torch_rand_float(0.0, 1.0, (4, 2), "cpu"), expected)
    with pytest.raises(KeyError), stream.use(0, 0, 0):
        raise KeyError
    torch.manual_seed(0)
    assert torch.equal(stream.uniform((4, 2)), expected)


def test_seeded_sets_and_restores_every_generator():
    def numbers():
        return torch.rand(3).tolist(), random.random(), float(np.random.rand())

    def reset():
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)

    reset()
    expected = numbers()
    reset()
    with stream.seeded(5):
        one = numbers()
    with pytest.raises(KeyError), stream.seeded(5):
        assert numbers() == one
        raise KeyError
    with stream.seeded(6):
        assert numbers() != one
    assert numbers() == expected


def test_seeded_blocks_are_thread_safe():
    """Each block draws the same numbers as without other threads, and the generators are restored."""

    def draw(seed):
        with stream.seeded(seed):
            return [float(torch.rand(())) + random.random() + np.random.rand() for _ in range(20)]

    alone, before = [draw(seed) for seed in range(40)], torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(draw, range(40))) == alone
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_restores_generators_seeded_inside_the_block():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    with stream.seeded(None):
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
