"""A policy as a module equals the trainer's own, for all that a config may choose."""

import pytest
import torch
from linear_env import LinearEnv
from oracle import make_params

from envcoder_bench.trainers.base import train_iteration
from envcoder_bench.trainers.ppo.hyperparameters import ACTIVATIONS
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

SPACE = make_params()["network"]["space"]["continuous"]
MLP = make_params()["network"]["mlp"]


def trained(**overrides):
    params = make_params(**overrides)
    env = LinearEnv([5, 9, 3], [2, 5, 1], [7, 8, 9], 6)
    trainer = GroupedPPO(env.layout, env.obs_dims, env.action_dims, env.group_seeds, params, torch.device("cpu"))
    obs = env.reset()
    for _ in range(2):
        obs, _ = train_iteration(trainer, env, obs)
    return params, env, trainer, obs


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"normalize_input": False},
        {"clip_actions": False},
        {"network__separate": True},
        {"network__space": {"continuous": {**SPACE, "mu_activation": "tanh"}}},
        *({"network__mlp": {**MLP, "activation": name, "units": [12]}} for name in ACTIVATIONS),
    ],
    ids=str,
)
def test_loaded_policy_matches_the_trainer(overrides):
    params, env, trainer, obs = trained(**overrides)
    obs = torch.cat([obs, obs * 0.1])[: env.num_envs] * 3.0  # beyond what was seen, too
    wanted = env.layout.split(trainer.policy(env.layout)(obs))
    for group, (width, actions) in enumerate(zip(env.obs_dims, env.action_dims)):
        module = GroupedPPO.load_policy(params, trainer.export(group))
        with torch.no_grad():
            got = module(env.layout.split(obs)[group, :, :width])
        torch.testing.assert_close(got, wanted[group, :, :actions], rtol=0, atol=2e-6)


@pytest.mark.parametrize("part", ["model", "a2c_network.mu.weight", "running_mean_std.running_mean"])
def test_policy_of_another_network_is_refused(part):
    params, _, trainer, _ = trained()
    exported = trainer.export(0)
    exported.pop(part, None)
    exported.get("model", {}).pop(part, None)
    with pytest.raises(ValueError, match="does not fit the network of the config"):
        GroupedPPO.load_policy(params, exported)


def test_policy_of_other_widths_is_refused():
    params, _, trainer, _ = trained()
    weights = trainer.export(0)["model"]
    weights["a2c_network.mu.weight"] = torch.zeros(2, 7)
    with pytest.raises(ValueError, match="does not fit the network of the config"):
        GroupedPPO.load_policy(params, {"model": weights})
