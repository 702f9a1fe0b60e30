import contextlib
import copy
import io
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from kernel_device import DEVICE, INTERPRETED, compares_kernels, sizes
from oracle import make_params
from rl_games.algos_torch.model_builder import ModelBuilder
from rl_games.algos_torch.network_builder import NetworkBuilder
from rl_games.algos_torch.players import PpoPlayerContinuous

from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.trainers.ppo.hyperparameters import ACTIVATIONS
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.mlp import _ACTIVATIONS, Activation, carved_size, get_activation
from envcoder_bench.trainers.ppo.network import StackedActorCritic

OBS_DIMS, ACTION_DIMS, SEEDS = [5, 9, 3], [2, 1, 4], [7, 8, 9]
CPU = torch.device("cpu")
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


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


def stock_model(params: dict[str, Any], obs_dim: int, action_dim: int, seed: int) -> torch.nn.Module:
    """What rl_games builds for one group, with normalizers where asked."""
    with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng():
        torch.manual_seed(seed)
        config = {"input_shape": (obs_dim,), "actions_num": action_dim, "value_size": 1}
        normalize = {key: params["config"][key] for key in ("normalize_input", "normalize_value")}
        return ModelBuilder().load(params).build({**config, **normalize})


def padded_obs(network: StackedActorCritic) -> torch.Tensor:
    """A network's input (3, 20, inputs): observations, 0 beyond each group's width, and the ones."""
    obs = torch.randn(3, 20, network.architecture.inputs, generator=torch.Generator().manual_seed(0))
    for k, o in enumerate(OBS_DIMS):
        obs[k, :, o:] = 0.0
    obs[..., max(OBS_DIMS)] = 1.0
    return obs


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_outputs_and_gradients_match_the_stock_network_of_each_group(activation: str, separate: bool) -> None:
    params = make_params(network__separate=separate, network__value_activation=activation)
    params["network"]["mlp"]["activation"] = activation
    params["network"]["space"]["continuous"].update(mu_activation=activation, sigma_activation=activation)
    network = StackedActorCritic(params, OBS_DIMS, ACTION_DIMS, SEEDS, CPU)
    obs, weight = padded_obs(network), torch.tensor([1.0, 10.0, 100.0])
    mu, value = network.forward(obs)
    torch.testing.assert_close((network.policy(obs), network.value(obs)), (mu, value))

    # whatever the memory held before: not even NaN may shine through
    size = carved_size(network.architecture.workspace_shapes(3, 20))
    work = network.make_workspace(torch.full((size,), float("nan")), 20)
    work.obs.copy_(obs)
    output = network.forward_for_training(work)
    torch.testing.assert_close((output.mu, output.value), (mu, value))

    # gradients of the sum of all squares, times a weight per group
    output.d_mu.copy_(2 * weight.view(3, 1, 1) * mu)
    output.d_value.copy_(2 * weight.view(3, 1) * value)
    grad = network.backward(work, output, 2 * weight.view(3, 1, 1) * network.log_sigma())
    gradients = network.by_key(*network.architecture.views(grad))
    for k, (o, a, seed) in enumerate(zip(OBS_DIMS, ACTION_DIMS, SEEDS)):
        stock = stock_model(params, o, a, seed).a2c_network
        exported = network.export(k)
        assert exported.keys() == {f"a2c_network.{key}" for key in stock.state_dict()}
        stock_mu, stock_sigma, stock_value, _ = stock({"obs": obs[k, :, :o]})
        torch.testing.assert_close(mu[k, :, :a], stock_mu.detach())
        torch.testing.assert_close(value[k], stock_value.detach().squeeze(1))
        torch.testing.assert_close(network.log_sigma()[k, :, :a].expand(20, a), stock_sigma.detach())
        assert (mu[k, :, a:] == 0).all() and (network.log_sigma()[k, :, a:] == 0).all()

        (weight[k] * (stock_mu.square().sum() + stock_value.square().sum() + stock_sigma[0].square().sum())).backward()
        for key, parameter in stock.named_parameters():
            assert torch.equal(exported[f"a2c_network.{key}"], parameter.detach()), key
            own = gradients[f"a2c_network.{key}"][k]
            own = own[: parameter.shape[1], : parameter.shape[0]].t() if key.endswith("weight") else own[0]
            torch.testing.assert_close(own[: len(parameter)], parameter.grad, rtol=1e-4, atol=1e-4)
        assert (grad[k] != 0).sum() <= sum(p.numel() for p in stock.parameters())  # none in the padding


def test_construction_leaves_the_global_generator_unchanged(capsys: pytest.CaptureFixture) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    StackedActorCritic(make_params(), OBS_DIMS, ACTION_DIMS, SEEDS, CPU)
    assert torch.equal(torch.rand(3), expected)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("normalize", [False, True])
def test_exported_policy_matches_in_the_stock_player(normalize: bool, tmp_path: Any) -> None:
    params = make_params(normalize_input=normalize, normalize_value=normalize)
    learner = GroupedLearner(OBS_DIMS, ACTION_DIMS, SEEDS, params, 6)
    rng = torch.Generator().manual_seed(0)
    if learner.obs_normalizer is not None and learner.value_normalizer is not None:
        learner.obs_normalizer.update(torch.randn(3, 50, 12, generator=rng) * 3 + 1)
        learner.value_normalizer.update(torch.randn(3, 50, 1, generator=rng) * 3 + 1)
    obs = torch.randn(3, 20, 9, generator=rng) * 3 + 1
    for k, (o, a) in enumerate(zip(OBS_DIMS, ACTION_DIMS)):
        torch.save({"model": learner.export(k)}, tmp_path / "policy.pth")
        player_params = copy.deepcopy(params)
        player_params["config"].update(
            device_name="cpu",
            env_info={
                "observation_space": gym.spaces.Box(-np.inf, np.inf, (o,), np.float32),
                "action_space": gym.spaces.Box(-1.0, 1.0, (a,), np.float32),
            },
        )
        with contextlib.redirect_stdout(io.StringIO()):
            player = PpoPlayerContinuous(player_params)
            player.restore(str(tmp_path / "policy.pth"))
        player.has_batch_dimension = True
        expected = learner.policy(obs)[k, :, :a].clamp(-1.0, 1.0)
        torch.testing.assert_close(player.get_action(obs[k, :, :o], is_deterministic=True), expected)
        values = player.model({"is_train": False, "obs": obs[k, :, :o]})["values"]
        torch.testing.assert_close(learner.values(obs)[k], values.squeeze(1))


@compares_kernels
@pytest.mark.parametrize("groups", sizes([1, 3], [3]))
@pytest.mark.parametrize("activation", ["elu", "tanh"])
@pytest.mark.parametrize("precision, tolerance", [("highest", 1e-5), ("high", 2e-3)])
def test_gradients_of_kernels_are_close_to_those_in_float64(
    precision: str, tolerance: float, activation: str, groups: int
) -> None:
    params = make_params()
    units, samples = ([80, 40, 20], 150) if INTERPRETED else ([256, 128, 64], 512)
    params["network"]["mlp"].update(units=units, activation=activation)
    dims, grads = (OBS_DIMS[:groups], ACTION_DIMS[:groups], SEEDS[:groups]), []
    torch.set_float32_matmul_precision(precision)
    for device, dtype in ((CPU, torch.float64), (DEVICE, torch.float32)):
        network = StackedActorCritic(params, *dims, device, dtype)
        size = carved_size(network.architecture.workspace_shapes(groups, samples))
        work = network.make_workspace(torch.empty(size, device=device, dtype=dtype), samples)
        rng = torch.Generator().manual_seed(0)
        work.obs.copy_(torch.randn(work.obs.shape, generator=rng))
        output = network.forward_for_training(work)
        for d in (output.d_mu, output.d_value):
            d.copy_(torch.randn(d.shape, generator=rng))
        grads.append(network.backward(work, output, torch.zeros_like(network.log_sigma())).cpu().double())
    torch.set_float32_matmul_precision("highest")
    error = (grads[0] - grads[1]).norm(dim=1) / grads[0].norm(dim=1)
    assert (error < tolerance).all(), error


@pytest.mark.parametrize(
    "device, groups, envs",
    [
        ("cpu", 1, 64),
        ("cpu", 3, 64),
        *(
            pytest.param("cuda", *size, marks=[pytest.mark.cuda, NEEDS_CUDA])
            for size in ((1, 256), (1, 4096), (3, 16384), (64, 256))
        ),
    ],
)
@pytest.mark.parametrize("units", [[256, 128, 64], [512, 256, 128]])
@pytest.mark.parametrize("activation", ["elu", "tanh"])
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_acting_and_learning_round_alike(
    precision: str, activation: str, units: list[int], device: str, groups: int, envs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of TF32 and bfloat16, rounding the factors changes 1e-3 of a number; another order of sums changes much less."""
    if (device, precision) == ("cpu", "medium"):
        products_of_bfloat16(monkeypatch)  # not every CPU has it
    params = make_params()
    params["network"]["mlp"].update(units=units, activation=activation)
    with settings_kept():
        torch.set_float32_matmul_precision(precision)
        network = StackedActorCritic(params, [40] * groups, [8] * groups, [0] * groups, torch.device(device))
        rng = torch.Generator().manual_seed(0)
        network.flat += 0.1 * torch.randn(network.flat.shape, generator=rng).to(device)  # biases begin with 0
        network.weights_changed()
        size = carved_size(network.architecture.workspace_shapes(groups, 2 * envs))
        work = network.make_workspace(torch.empty(size, device=device), 2 * envs)
        obs = torch.randn(groups, envs, network.architecture.inputs, generator=rng).to(device)
        mu, value = network.forward(obs)
        work.obs.copy_(obs.repeat(1, 2, 1))
        output = network.forward_for_training(work)
    for acting, learning in ((mu, output.mu[:, envs:]), (value, output.value[:, envs:])):
        assert (acting - learning).norm() < 1e-4 * acting.norm()


def products_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round the factors of all products."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16).to(x.dtype)

    for name in ("mm", "bmm"):
        product = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda a, b, p=product, **out: p(rounded(a), rounded(b), **out))
    addmm = torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda c, a, b: addmm(c, rounded(a), rounded(b)))
