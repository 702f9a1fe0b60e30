"""Torch's random functions in candidate code draw from the group's stream."""

import math

import pytest
import torch
import torch.nn.functional as F

from envcoder_bench.core import stream
from envcoder_bench.core.random_calls import FromStream

GOAL, REWARD = 2, 3  # two purposes


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.rand(x.shape[0], 3, device=x.device) + torch.rand_like(x[:, :3])


def _choose(x):
    return torch.multinomial(torch.softmax(x, dim=-1), 1)


D = torch.distributions
# each gives one row for every row of x (n, 4), and its first two moments where they are known
CALLS = {
    "rand": (lambda x: torch.rand(len(x), 3), 0.5, 1 / 12),
    "rand size": (lambda x: torch.rand((x.shape[0], 3), dtype=torch.float64), 0.5, 1 / 12),
    "rand one axis": (lambda x: torch.rand(x.size(0), device=x.device), 0.5, 1 / 12),
    "rand_like": (torch.rand_like, 0.5, 1 / 12),
    "randn": (lambda x: torch.randn(len(x), 2), 0.0, 1.0),
    "randn_like": (lambda x: torch.randn_like(x, dtype=torch.float64), 0.0, 1.0),
    "randint": (lambda x: torch.randint(0, 4, (len(x),)), 1.5, 1.25),
    "randint of one bound": (lambda x: torch.randint(4, (len(x), 2)), 1.5, 1.25),
    "randint floats": (lambda x: torch.randint(-1, 2, (len(x), 2), dtype=torch.float32), 0.0, 2 / 3),
    "randint_like": (lambda x: torch.randint_like(x, 4), 1.5, 1.25),
    "randint_like of two": (lambda x: torch.randint_like(x, 1, 5), 2.5, 1.25),
    "normal of numbers": (lambda x: torch.normal(2.0, 3.0, (len(x), 3)), 2.0, 9.0),
    "normal of means": (lambda x: torch.normal(0 * x + 2.0, 3.0), 2.0, 9.0),
    "normal of deviations": (lambda x: torch.normal(2.0, 0 * x + 3.0), 2.0, 9.0),
    "normal of both": (lambda x: torch.normal(0 * x[:, :1], 0 * x + 3.0), 0.0, 9.0),
    "bernoulli": (lambda x: torch.bernoulli(0 * x + 0.3), 0.3, 0.21),
    "bernoulli p": (lambda x: torch.bernoulli(x, 0.3), 0.3, 0.21),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.3), 0.3, 0.21),
    "bernoulli_ of a tensor": (lambda x: torch.empty_like(x).bernoulli_(0 * x + 0.3), 0.3, 0.21),
    "uniform_": (lambda x: torch.empty(len(x), 3).uniform_(-1, 1), 0.0, 1 / 3),
    "new and uniform_": (lambda x: x.new_empty(len(x)).uniform_(), 0.5, 1 / 12),
    "normal_": (lambda x: torch.empty_like(x).normal_(1.0, 2.0), 1.0, 4.0),
    "random_": (lambda x: torch.empty(len(x), 3, dtype=torch.int64).random_(0, 4), 1.5, 1.25),
    "random_ to": (lambda x: torch.empty(len(x), 3).random_(4), 1.5, 1.25),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.25),
    "geometric_": (lambda x: torch.empty_like(x).geometric_(0.4), 2.5, 3.75),
    "log_normal_": (lambda x: torch.empty_like(x).log_normal_(0.0, 0.5).log(), 0.0, 0.25),
    "cauchy_": (lambda x: torch.atan(torch.empty_like(x).cauchy_()), 0.0, math.pi**2 / 12),
    "gumbel_softmax": (F.gumbel_softmax, None, None),
    "dropout": (lambda x: F.dropout(torch.ones_like(x), 0.5), 1.0, 1.0),
    "multinomial": (_choose, None, None),
    "multinomial, some": (lambda x: torch.multinomial(torch.ones_like(x), 3, replacement=True), 1.5, 1.25),
    "multinomial, others": (lambda x: torch.multinomial(torch.ones_like(x), 3), 1.5, 1.25),
    "multinomial, one row": (lambda x: torch.multinomial(torch.ones(4), len(x), replacement=True), 1.5, 1.25),
    "TorchScript": (scripted, 1.0, 1 / 6),
    "Normal": (lambda x: D.Normal(0 * x, 2.0).sample(), 0.0, 4.0),
    "Uniform": (lambda x: D.Uniform(0 * x - 1, 0 * x + 1).sample(), 0.0, 1 / 3),
    "Categorical": (lambda x: D.Categorical(probs=torch.ones_like(x)).sample(), 1.5, 1.25),
    "Bernoulli": (lambda x: D.Bernoulli(probs=0 * x + 0.3).sample(), 0.3, 0.21),
}


def draw(call, x, seed=3, step=17, purpose=GOAL):
    with torch.no_grad(), stream.use(seed, step, purpose), FromStream():
        return call(x)


@pytest.fixture
def x():
    return torch.linspace(-2, 2, 8192 * 4).reshape(8192, 4)


@pytest.mark.parametrize("name", CALLS)
def test_random_numbers_depend_only_on_the_stream_and_the_lane(name, x):
    call = CALLS[name][0]
    torch.manual_seed(0)
    first, generator = draw(call, x), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(draw(call, x), first)
    assert torch.equal(draw(call, x[:64]), first[:64])  # however many others there are
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), generator)  # nobody else's numbers change
    for other in (dict(seed=4), dict(step=18), dict(purpose=REWARD)):
        assert not torch.equal(draw(call, x, **other), first)


@pytest.mark.parametrize("name", CALLS)
def test_random_calls_have_torchs_shapes_dtypes_and_moments(name, x):
    call, mean, variance = CALLS[name]
    got, want = draw(call, x), call(x)
    assert got.shape == want.shape and got.dtype == want.dtype
    assert torch.isfinite(got.double()).all()
    if mean is not None:
        numbers = got.double()
        spread = math.sqrt(variance / numbers.numel())
        assert abs(numbers.mean().item() - mean) < 5 * spread
        assert numbers.var().item() == pytest.approx(variance, rel=0.15)
    if not got.is_floating_point():
        assert set(got.unique().tolist()) == set(want.unique().tolist())


def test_multinomial_follows_its_weights(x):
    shares = draw(lambda x: torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), len(x), replacement=True), x)
    assert (torch.bincount(shares, minlength=3) / len(x)).tolist() == pytest.approx([0.25, 0.0, 0.75], abs=0.03)
    pairs = draw(lambda x: torch.multinomial(torch.ones_like(x), 2), x)
    assert (pairs[:, 0] != pairs[:, 1]).all()


def test_random_integers_cover_the_range_of_their_dtype(x):
    for kind in (torch.int32, torch.uint8, torch.int64, torch.float32):
        got = draw(lambda x, kind=kind: torch.empty(len(x), dtype=kind).random_(), x)
        highest = 2**24 if kind == torch.float32 else torch.iinfo(kind).max
        assert got.min() >= 0 and 0.9 * highest < got.double().max() <= highest


def test_explicit_generator_is_used_unchanged(x):
    def call(x):
        return torch.rand(len(x), generator=torch.Generator().manual_seed(5))

    assert torch.equal(draw(call, x), draw(call, x, step=99)) and torch.equal(draw(call, x), call(x))


def test_torch_draws_outside_a_stream(x):
    torch.manual_seed(0)
    want = torch.rand(5)
    torch.manual_seed(0)
    with FromStream():
        assert torch.equal(torch.rand(5), want)


def test_dropout_operators_draw_the_same_numbers():
    """F.dropout calls bernoulli_ on a CPU, and native_dropout on CUDA."""
    x = torch.ones(4096, 3)
    want = draw(lambda x: F.dropout(x, 0.3), x)
    got = draw(lambda x: torch.native_dropout(x, 0.3, True)[0], x)
    torch.testing.assert_close(got, want)
    assert 0.68 < (want > 0).double().mean() < 0.72


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CALLS)
def test_cuda_device_draws_the_same_numbers(name, x):
    call = CALLS[name][0]
    with torch.device("cuda"):
        got = draw(call, x.cuda()).cpu().double()
    want = draw(call, x).double()
    assert ((got - want).abs() > 1e-4 * (1 + want.abs())).double().mean() < 1e-3
