import pytest
import torch
from rl_games.algos_torch.network_builder import NetworkBuilder

from envcoder_bench.trainers.ppo.activations import _ACTIVATIONS, Activation, get_activation

CPU = torch.device("cpu")
EACH = [(name, "CUDA", activation) for name, activation in _ACTIVATIONS.items()]
EACH += [(name, "CPU", get_activation(name, CPU)) for name in _ACTIVATIONS if name == "elu"]


@pytest.mark.parametrize("name, where, activation", EACH, ids=[f"{name} on {where}" for name, where, _ in EACH])
def test_value_and_derivative_match_rl_games(name: str, where: str, activation: Activation) -> None:
    stock = NetworkBuilder.BaseNetwork().activations_factory.create(name)
    z = (3 * torch.randn(3, 50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).requires_grad_()
    expected, weight = stock(z), torch.linspace(-1, 1, 7, dtype=torch.float64).expand(3, 50, 7)
    y, grad = z.detach().clone(), weight.clone()
    kept = torch.full_like(y, float("nan")) if activation.keeps else None
    activation.forward(y, kept)
    activation.backward(grad, y, kept)
    torch.testing.assert_close(y, expected.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, z, weight)[0], rtol=1e-12, atol=1e-13)
    without = z.detach().clone()
    activation.forward(without, None)
    assert torch.equal(without, y)
