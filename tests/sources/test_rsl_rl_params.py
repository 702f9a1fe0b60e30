"""Runner configs of rsl_rl, as mjlab 1.6 has them, as configs of a task outside of the package."""

import copy
import math
from dataclasses import MISSING
from typing import Any

import pytest
import yaml

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import compose_config
from envcoder_bench.sources.rsl_rl_params import rsl_rl_params
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

MODEL = {
    "hidden_dims": (512, 256, 128), "activation": "elu", "obs_normalization": True, "cnn_cfg": None, "rnn_type": None,
    "class_name": "MLPModel", "distribution_cfg": None,
}  # fmt: skip
# dataclasses.asdict of mjlab's unitree_g1_ppo_runner_cfg(), as far as the algorithm reads it
G1: dict[str, Any] = {
    "num_steps_per_env": 24,
    "clip_actions": None,
    "actor": {
        **MODEL, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    },
    "critic": MODEL,
    "algorithm": {
        "num_learning_epochs": 5, "num_mini_batches": 4, "learning_rate": 1e-3, "schedule": "adaptive", "gamma": 0.99,
        "lam": 0.95, "entropy_coef": 0.01, "desired_kl": 0.01, "max_grad_norm": 1.0, "value_loss_coef": 1.0,
        "use_clipped_value_loss": True, "clip_param": 0.2, "normalize_advantage_per_mini_batch": False,
        "optimizer": "adam", "share_cnn_encoders": False, "class_name": "PPO",
    },
}  # fmt: skip


def changed(**values: Any) -> dict[str, Any]:
    """G1's config with other values, by keys such as ``critic__activation``."""
    runner = copy.deepcopy(G1)
    for key, value in values.items():
        *path, last = key.split("__")
        node = runner
        for part in path:
            node = node[part]
        node[last] = value
    return runner


def hyperparameters(folder, train):
    (folder / "train.yaml").write_text(train if isinstance(train, str) else yaml.safe_dump(train))
    params = compose_config("pendulum").params
    return Hyperparameters.from_params(params, 4096), params


pytestmark = pytest.mark.usefixtures("forgotten")


def test_base_config_is_that_of_mjlabs_velocity_tasks(folder):
    base, params = hyperparameters(folder, "defaults: [RslRlPPO, _self_]\n")
    own, own_params = hyperparameters(folder, rsl_rl_params(G1))
    assert base == own and params == own_params
    assert GroupedPPO.critic_refusal(params) is None
    assert (own.kl_threshold, own.num_minibatches, own.mini_epochs, own.horizon_length) == (0.01, 4, 5, 24)
    assert own.critic_coef == 2.0 and own.bounds_loss_coef is None and own.grad_norm == 1.0
    assert own.empirical_normalization and own.grad_norm_per_network and own.schedule_type == "rollout"
    GroupedPPO.check(params, 64)


OLDER: dict[str, Any] = {
    "class_name": "ActorCritic", "init_noise_std": 0.5, "noise_std_type": "log", "activation": "elu",
    "actor_hidden_dims": [8], "critic_hidden_dims": [16], "actor_obs_normalization": {}, "critic_obs_normalization": {},
}  # fmt: skip


def test_an_actor_and_a_critic_are_read_if_both_are_set_else_the_policy():
    older = {key: x for key, x in G1.items() if key not in ("actor", "critic")} | {"policy": OLDER}
    assert rsl_rl_params({**G1, "policy": {}}) == rsl_rl_params(G1)
    assert rsl_rl_params({**older, "actor": {}, "critic": {"hidden_dims": MISSING}}) == rsl_rl_params(older)
    assert rsl_rl_params({**G1, "policy": OLDER}) == rsl_rl_params(G1)


@pytest.mark.parametrize("unset", [{}, copy.deepcopy(MISSING)])  # as Isaac Lab's to_dict and as asdict make it
@pytest.mark.parametrize("key", [
    "num_steps_per_env", "algorithm", "algorithm__gamma", "algorithm__schedule", "algorithm__use_clipped_value_loss",
    "actor", "actor__hidden_dims", "critic__activation",
])  # fmt: skip
def test_a_setting_that_is_not_set_is_named(key, unset):
    with pytest.raises(ValueError, match=f"has no '{key.rpartition('__')[2]}'"):
        rsl_rl_params(changed(**{key: unset}))


def test_numbers_of_a_runner_arrive(folder):
    runner = changed(
        algorithm__entropy_coef=0.005, algorithm__schedule="fixed", algorithm__value_loss_coef=0.5,
        num_steps_per_env=16,
        actor__hidden_dims=(64,), critic__hidden_dims=[64], actor__activation="identity", critic__activation="identity",
        actor__distribution_cfg__init_std=0.5, actor__distribution_cfg__std_type="log",
    )  # fmt: skip
    own, params = hyperparameters(folder, rsl_rl_params(runner))
    assert (own.entropy_coef, own.lr_schedule, own.critic_coef, own.horizon_length) == (0.005, "identity", 1.0, 16)
    network = params["network"]
    assert network["mlp"]["units"] == [64] and network["mlp"]["activation"] == "None"
    continuous = network["space"]["continuous"]
    assert continuous["std_type"] == "log" and continuous["sigma_init"]["val"] == pytest.approx(math.log(0.5))


def test_layers_of_the_critic_arrive(folder):
    _, params = hyperparameters(folder, rsl_rl_params(changed(critic__hidden_dims=(256, 128))))
    assert params["network"]["mlp"]["units"] == [512, 256, 128]
    assert params["network"]["mlp"]["critic_units"] == [256, 128]
    config, network = {**params["config"], "grad_norm_per_network": False}, {**params["network"], "separate": False}
    with pytest.raises(ValueError, match=r"network.mlp.critic_units: .* set network.separate to True"):
        GroupedPPO.check({**params, "config": config, "network": network}, 64)


@pytest.mark.parametrize("key, value", [
    ("critic__activation", "relu"), ("critic__obs_normalization", False),
    ("actor__rnn_type", "lstm"), ("actor__cnn_cfg", {"output_channels": [16]}),
    ("critic__class_name", "rsl_rl.CNNModel"),
    ("algorithm__optimizer", "sgd"), ("algorithm__normalize_advantage_per_mini_batch", True),
    ("actor__distribution_cfg__class_name", "BetaDistribution"), ("actor__distribution_cfg__learn_std", False),
])  # fmt: skip
def test_what_grouped_ppo_does_not_have_is_refused_by_its_key(key, value):
    with pytest.raises(ValueError, match=rf"rl_cfg\.{key.replace('__', '.')}: "):
        rsl_rl_params(changed(**{key: value}))


def test_unknown_default_is_refused_with_near_matches(folder):
    with pytest.raises(
        UserError, match=r"train.yaml: defaults: there is no RslRPPO in cfg/train \(did you mean RslRlPPO"
    ):
        hyperparameters(folder, "defaults: [RslRPPO]\n")


def test_a_policy_of_older_runners_is_an_actor_and_a_critic() -> None:
    """As Isaac Lab 2.x writes it; values that are not set are not True."""
    runner = {key: x for key, x in G1.items() if key not in ("actor", "critic")} | {"policy": OLDER}
    params = rsl_rl_params(runner)["params"]
    assert params["network"]["mlp"] == {"units": [8], "critic_units": [16], "activation": "elu"}
    space = params["network"]["space"]["continuous"]
    assert space["std_type"] == "log" and space["sigma_init"]["val"] == pytest.approx(math.log(0.5))
    assert params["config"]["normalize_input"] is False
    assert rsl_rl_params({**runner, "empirical_normalization": True})["params"]["config"]["normalize_input"] is True
    with pytest.raises(ValueError, match=r"rl_cfg\.policy\.class_name: ActorCriticRecurrent is not supported"):
        rsl_rl_params({**runner, "policy": {**OLDER, "class_name": "ActorCriticRecurrent"}})
