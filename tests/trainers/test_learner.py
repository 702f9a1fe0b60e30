"""Properties across the groups of one stack."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from oracle import make_params

from envcoder_bench.trainers.ppo import architecture, mlp
from envcoder_bench.trainers.ppo import network as networks
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.mlp import ELU, NONE
from envcoder_bench.trainers.ppo.rollout import Rollout

OBS_DIMS, ACTION_DIMS, SEEDS, CRITIC_DIMS = [5, 9, 3], [2, 1, 4], [7, 8, 9], [4, 15, 7]
CRITICS = pytest.mark.parametrize("critic_dims", [[], CRITIC_DIMS], ids=["alike", "asymmetric"])


def make_learner(critic_dims: Sequence[int] = (), **overrides: Any) -> GroupedLearner:
    params = make_params(**{"network__separate": bool(critic_dims), **overrides})
    return GroupedLearner(OBS_DIMS, ACTION_DIMS, SEEDS, params, 6, critic_dims=list(critic_dims))


def play(learner: GroupedLearner, seed: int, broken: int | None = None, padding: float = 0.0) -> Rollout:
    """Fill a rollout with random data; one group may be NaN, and the padding of observations may be dirty."""
    rng = torch.Generator().manual_seed(seed)
    rollout = learner.new_rollout()
    critic_obs = rollout.critic_obs
    for obs, dims in ((rollout.obs, OBS_DIMS), (critic_obs, CRITIC_DIMS)):
        if obs is not None:
            obs.copy_(torch.randn(obs.shape, generator=rng) * 2 + 1)
            for k, width in enumerate(dims):
                obs[k, ..., width:] = padding
    rollout.rewards.copy_(torch.randn(rollout.rewards.shape, generator=rng))
    rollout.dones.copy_(torch.rand(rollout.dones.shape, generator=rng) < 0.2)
    if broken is not None:
        for x in (rollout.obs, rollout.rewards, critic_obs):
            if x is not None:
                x[broken] = float("nan")
    for t in range(rollout.rewards.shape[2]):
        noise = torch.randn(3, 6, learner.action_dim, generator=rng)
        result = learner.act(rollout.obs[:, :, t], noise, None if critic_obs is None else critic_obs[:, :, t])
        rollout.actions[:, :, t], rollout.mus[:, :, t] = result["actions"], result["mus"]
        rollout.values[:, :, t] = result["values"]
    return rollout


def exported(learner: GroupedLearner) -> dict[str, torch.Tensor]:
    parts = [{**learner.export(k), **(learner.export_central_value(k) or {})} for k in range(3)]
    return {f"{k}.{key}": value for k, part in enumerate(parts) for key, value in part.items()}


@CRITICS
def test_nan_in_one_group_leaves_the_others_bitwise_unchanged(critic_dims: list[int]) -> None:
    clean, broken = make_learner(critic_dims), make_learner(critic_dims)
    for seed in range(2):
        stats = clean.update(play(clean, seed), seed + 1)
        broken_stats = broken.update(play(broken, seed, broken=1), seed + 1)
    assert torch.isnan(broken.network.flat[1]).any()
    for key, value in exported(clean).items():
        assert key.startswith("1.") or torch.equal(exported(broken)[key], value), key
    for name in stats:
        assert torch.equal(stats[name][[0, 2]], broken_stats[name][[0, 2]]), name


@pytest.mark.slow
def test_failed_group_keeps_its_state() -> None:
    clean, frozen = make_learner(), make_learner()
    before = exported(frozen)
    alive = torch.tensor([True, False, True])
    for seed in range(2):
        clean.update(play(clean, seed), seed + 1)
        frozen.update(play(frozen, seed, broken=1), seed + 1, alive)
    for key, value in exported(frozen).items():
        assert torch.equal(value, before[key] if key.startswith("1.") else exported(clean)[key]), key


@CRITICS
@pytest.mark.parametrize("normalize", [False, True])
def test_padding_stays_zero_and_inert(normalize: bool, critic_dims: list[int]) -> None:
    options: dict[str, Any] = {"normalize_input": normalize, "weight_decay": 0.01, "entropy_coef": 0.1}
    clean, dirty = (make_learner(critic_dims, **options) for _ in range(2))
    for seed in range(2):
        clean_rollout, dirty_rollout = play(clean, seed), play(dirty, seed, padding=1e3)
        for k, width in enumerate(ACTION_DIMS):
            assert (dirty_rollout.actions[k, ..., width:] == 0).all()
            assert (dirty_rollout.mus[k, ..., width:] == 0).all()
        clean.update(clean_rollout, seed + 1)
        dirty.update(dirty_rollout, seed + 1)
    _assert_same(dirty.get_state(), clean.get_state())
    parameters = dirty.network.parameters
    for k, (o, a) in enumerate(zip(OBS_DIMS, ACTION_DIMS)):
        assert (parameters["a2c_network.actor_mlp.0.weight"][k, o:] == 0).all()
        assert (parameters["a2c_network.mu.weight"][k, :, a:] == 0).all()
        assert (parameters["a2c_network.mu.bias"][k, :, a:] == 0).all()
        assert (parameters["a2c_network.sigma"][k, :, a:] == 0).all()
        assert (parameters["a2c_network.actor_mlp.0.weight"][k, :o] != 0).all()
    for k, width in enumerate(critic_dims):
        first = parameters["a2c_network.critic_mlp.0.weight"][k]
        assert (first[:width] != 0).all() and (first[width:] == 0).all()
    used = sum(value.numel() for key, value in exported(dirty).items() if "a2c_network" in key)
    assert (dirty.adam.exp_avg != 0).sum() <= used


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("activation", ["elu", "tanh", "softplus"])
def test_layers_that_read_a_copy_of_the_weights_give_the_same(
    activation: str, separate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on CUDA, with torch in place of the kernels: no change of the weights may be missed."""

    def linear(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, elu: bool, alike: bool = False) -> None:
        width = weight.shape[-2]
        y = x @ weight.mT
        out[..., :width] = torch.nn.functional.elu(y) if elu else y
        out[..., width:] = 0.0
        out[..., width : width + 1] = 1.0

    def backward(grad: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_((grad @ weight.mT) * torch.where(y > 0, 1.0, y + 1.0))

    layers = {**make_params()["network"]["mlp"], "activation": activation}

    def train() -> list[torch.Tensor]:
        learner, resumed = (make_learner(network__separate=separate, network__mlp=layers) for _ in range(2))
        for seed in range(2):
            learner.update(play(learner, seed), seed + 1)
        resumed.set_state(learner.get_state())
        acted = list(vars(play(resumed, 2)).values())
        network = make_learner(network__separate=separate, network__mlp=layers).network
        for k in range(3):
            network.load(k, learner.export(k))
        obs = resumed.new_rollout().obs[:, :, 0] + 1.0
        return [*acted, learner.network.flat, *network.forward(obs), network.policy(obs), network.value(obs)]

    if activation == "elu":
        for module in (architecture, networks):
            monkeypatch.setattr(module, "get_activation", lambda name, device: NONE if name == "None" else ELU)
    wanted, size = train(), make_learner(network__mlp=layers).workspace_size()
    monkeypatch.setattr(mlp, "has_kernel_of_layers", lambda *args: True)
    for module in (mlp, architecture):
        monkeypatch.setattr(module, "is_fused", lambda activation, *args: activation is ELU)
    for name, function in (("linear", linear), ("elu_linear_backward", backward)):
        monkeypatch.setattr(mlp, name, function)
    monkeypatch.setattr(mlp, "transpose", lambda x, out: out.copy_(x.mT))
    torch.testing.assert_close(train(), wanted, rtol=1e-4, atol=1e-5)
    assert activation != "elu" or make_learner(network__mlp=layers).workspace_size() < 0.85 * size


def test_first_minibatch_sees_the_policy_of_the_rollout() -> None:
    learner = make_learner(mini_epochs=1, num_minibatches=1, lr_schedule=None, normalize_input=False)
    stats = learner.update(play(learner, 0), 1)
    # KL of a policy with itself, by rl_games' formula, is log(1 + 1e-5) and a little less per action
    assert (stats["kl"].abs() < 1e-4).all()
    assert (stats["policy_loss"].abs() < 1e-5).all()  # normalized advantages at ratio 1


def test_group_states_are_independent_of_the_widths_of_other_groups() -> None:
    stack = make_learner(entropy_coef=0.1)
    for seed in range(2):
        stack.update(play(stack, seed), seed + 1)
    state = stack.get_state()
    parts = stack.split_state(state)
    _assert_same(stack.join_states(parts), state)
    # in another order, beside a wider one
    kept = [2, 0]
    obs_dims, action_dims = [OBS_DIMS[k] for k in kept], [ACTION_DIMS[k] for k in kept]
    wider = GroupedLearner([20, *obs_dims], [6, *action_dims], [1, 9, 7], make_params(entropy_coef=0.1), 6)
    first = wider.split_state(wider.get_state())[0]
    first["adam"]["powers"] = parts[0]["adam"]["powers"]
    wider.set_state(wider.join_states([first, *(parts[k] for k in kept)]))
    for k, part in zip(kept, wider.split_state(wider.get_state())[1:]):
        _assert_same(part, parts[k])
    for k, position in zip(kept, (1, 2)):
        for key, value in stack.export(k).items():
            assert torch.equal(wider.export(position)[key], value), key
    first["adam"]["powers"] = first["adam"]["powers"] * 0.9
    with pytest.raises(ValueError, match="not at the same iteration"):
        wider.join_states([first, *(parts[k] for k in kept)])


def _assert_same(state: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert state.keys() == expected.keys()
        for key, value in expected.items():
            _assert_same(state[key], value)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(state, expected)
    else:
        assert state == expected
