"""A policy as a module equals the trainer's own, for all that a config may choose."""

import pytest
import torch
from linear_env import Run, make_env
from oracle import make_params

from envcoder_bench.trainers.ppo.hyperparameters import ACTIVATIONS
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

SPACE = make_params()["network"]["space"]["continuous"]
MLP = make_params()["network"]["mlp"]


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
    run = Run(make_env([0, 1, 2]), **overrides).train(2)
    env, obs = run.env, run.obs * 3.0  # beyond what was seen, too
    wanted = env.layout.split(run.trainer.policy(env.layout)(obs))
    for group, (width, actions) in enumerate(zip(env.obs_dims, env.action_dims)):
        module = GroupedPPO.load_policy(run.params, run.trainer.export(group))
        with torch.no_grad():
            got = module(env.layout.split(obs)[group, :, :width])
        torch.testing.assert_close(got, wanted[group, :, :actions], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "part, value",
    [
        ("model", None),
        ("a2c_network.mu.weight", None),
        ("running_mean_std.running_mean", None),
        ("a2c_network.mu.weight", torch.zeros(2, 7)),
    ],
)
def test_policy_of_another_network_or_width_is_refused(part, value):
    run = Run(make_env([0]))
    exported = run.trainer.export(0)
    parts = exported if part == "model" else exported["model"]
    del parts[part]
    if value is not None:
        parts[part] = value
    with pytest.raises(ValueError, match="does not fit the network of the config"):
        GroupedPPO.load_policy(run.params, exported)
