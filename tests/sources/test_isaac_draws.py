"""Random functions in the code of Isaac Gym tasks: they draw from rows of environments."""

import random

import numpy as np
import pytest
import torch

from envcoder_bench.compat.torch_draws import DrawsFromRows
from envcoder_bench.core import stream
from envcoder_bench.core.random_calls import FromStream
from envcoder_bench.sources.isaacgym_tasks.draws import Draws


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(4, 3) * torch.randn_like(x)


CALLS = {
    "rand": lambda x: torch.rand(4, 3),
    "randn": lambda x: torch.randn((4, 2)),
    "rand_like": lambda x: torch.rand_like(x),
    "randint": lambda x: torch.randint(2, 9, (4, 1)),
    "uniform_": lambda x: x.clone().uniform_(-2.0, 5.0),
    "normal_": lambda x: x.clone().normal_(),
    "normal": lambda x: torch.normal(x, x + 1.0),
    "bernoulli": lambda x: torch.bernoulli(torch.full((4, 3), 0.3)),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "dropout": lambda x: torch.nn.functional.dropout(torch.ones(4, 50)),
    "distribution": lambda x: torch.distributions.Normal(x, x + 1.0).sample(),
    "TorchScript": scripted,
}


@pytest.mark.parametrize("name", CALLS)
def test_draws_are_those_of_the_dispatch_mode(name):
    made = []
    for interception in (FromStream, DrawsFromRows):
        with torch.no_grad(), stream.use(5, 3, 7), interception():
            made.append([CALLS[name](torch.zeros(4, 3)) for _ in range(2)])
    for expected, drawn in zip(*made):
        assert expected.dtype == drawn.dtype and torch.equal(expected, drawn)
    assert not torch.equal(made[0][0], made[0][1])


def test_functions_of_torch_are_unchanged_outside_the_block():
    before = [torch.where, torch.nonzero, torch.Tensor.nonzero, torch.argwhere]
    torch.manual_seed(0)
    expected = torch.rand(3)
    with pytest.raises(RuntimeError), DrawsFromRows():
        raise RuntimeError
    assert before == [torch.where, torch.nonzero, torch.Tensor.nonzero, torch.argwhere]
    torch.manual_seed(0)
    with stream.use(5, 3, 7):
        assert torch.equal(torch.rand(3), expected)
    with DrawsFromRows():  # no stream in use, or a generator of its own
        torch.manual_seed(0)
        assert torch.equal(torch.rand(3), expected)
        with stream.use(5, 3, 7):
            assert torch.equal(torch.rand(3, generator=torch.Generator().manual_seed(0)), expected)
            assert not torch.equal(torch.rand(3), expected)


SEARCHES = {
    "method": lambda mask: mask.nonzero(as_tuple=False).squeeze(-1),
    "function": lambda mask: torch.nonzero(mask).flatten(),
    "tuple": lambda mask: mask.nonzero(as_tuple=True)[0],
    "where": lambda mask: torch.where(mask)[0],
    "argwhere": lambda mask: torch.argwhere(mask).flatten(),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_rows_found_by_a_mask_get_numbers_of_their_environments(search):
    def drawn(size, wanted):
        draws = Draws(size, torch.device("cpu"))
        mask = torch.zeros(size, dtype=torch.bool)
        mask[wanted] = True
        with draws.call("push", None, False):
            found = SEARCHES[search](mask)
            assert found.tolist() == wanted
            made = torch.rand(len(found), 2)
        assert not draws.shared
        return dict(zip(wanted, made.tolist()))

    some, others = drawn(8, [1, 4, 6]), drawn(8, [0, 4, 5, 6])
    assert some[4] == others[4] and some[6] == others[6] and some[1] != some[4]


def test_indexing_with_a_mask_finds_no_rows():
    draws = Draws(8, torch.device("cpu"))
    x, mask = torch.zeros(8), torch.arange(8) < 3
    with draws.call("push", None, False):
        x[mask] = 1.0
        torch.where(mask, x, 2.0 * x)
        torch.rand(3)
    assert draws.shared == {"push1"}


def test_calls_in_a_block_that_keeps_generators_draw_the_same_numbers():
    def drawn(draws):
        made = []
        for _ in range(3):
            draws.begin_step(4)
            with draws.call("reset", None, True):
                made.append((random.random(), np.random.uniform(), torch.randperm(20).tolist()))
                with draws.call("inner", None, True):
                    torch.randperm(5)
                made.append(torch.randperm(20).tolist())
        return made

    draws = Draws(4, torch.device("cpu"))
    states = (random.getstate(), torch.get_rng_state())
    with draws.generators_kept():
        kept = drawn(draws)
    assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])
    assert kept == drawn(draws) and kept[0] == kept[2]


class Sampler:
    """Resets in a method that names the environments otherwise."""

    def reset_idx(self, env_ids):
        self.spread(env_ids)

    def spread(self, instances):
        self.made = torch.rand(len(instances), 2)


def test_methods_called_by_a_reset_draw_for_its_environments():
    def drawn(env_ids):
        draws, task = Draws(8, torch.device("cpu")), Sampler()
        assert set(draws.wrap(task)) == {"spread"}
        with draws.call("reset", torch.tensor(env_ids), True):
            task.reset_idx(torch.tensor(env_ids))
        assert not draws.shared
        return dict(zip(env_ids, task.made.tolist()))

    some, others = drawn([1, 4]), drawn([0, 2, 4])
    assert some[4] == others[4] and len({tuple(x) for x in (*some.values(), *others.values())}) == 4
