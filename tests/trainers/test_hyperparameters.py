import logging
from typing import Any

import pytest
from oracle import make_params

from envcoder_bench.trainers.ppo import hyperparameters
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters, check_ranges, check_supported


def count(num_envs: int, **overrides: Any) -> int:
    params = make_params(horizon_length=24, **overrides)
    return Hyperparameters.from_params(params, num_envs).num_minibatches


def test_minibatches_are_counted_per_group(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert count(4096, num_minibatches=None, minibatch_size=32768) == 3  # IsaacGymEnvs' Anymal
        assert count(64, num_minibatches=None, minibatch_size=512) == 3
        assert count(64, num_minibatches=None, minibatch_size_per_env=12) == 2
        assert count(64, num_minibatches=3) == 3
    assert caplog.messages == []


def test_non_dividing_minibatch_size_gives_the_next_larger_count(caplog: pytest.LogCaptureFixture) -> None:
    hyperparameters._warn_once.cache_clear()
    for _ in range(2):  # told only once
        assert count(64, num_minibatches=None, minibatch_size=500) == 4  # 1536 / 500 = 3.07
    assert count(64, num_minibatches=None, minibatch_size=32768) == 1
    assert count(10, num_minibatches=7) == 8  # 240 = 8 * 30
    assert caplog.messages == [
        "params.config.minibatch_size: 500 does not divide a group's batch of 1536; using 4 minibatches of 384",
        "params.config.minibatch_size: 32768 does not divide a group's batch of 1536; using 1 minibatch of 1536",
        "params.config.num_minibatches: 7 does not divide a group's batch of 240; using 8 minibatches of 30",
    ]


@pytest.mark.parametrize(
    "overrides, message",
    [
        ({"num_minibatches": 0}, "num_minibatches: must be a whole number of at least 1, got 0"),
        ({"num_minibatches": 49}, "num_minibatches: 49 asks for 49 minibatches; .* can be cut into 1 to 48"),
        ({"num_minibatches": 96, "minibatch_size": 1, "num_actors": 4}, "num_minibatches: 96 asks for 96 minib"),
        (
            {"num_minibatches": 96, "minibatch_size": 2, "num_actors": 24},
            r"minibatch_size: 2 asks for 96 minibatches, being of the batch of num_actors=24 environments x 8 steps; .*"
            r" of 48 \(6 environments x 8 steps\) can be cut into 1 to 48: set num_actors to .*, or num_minibatches",
        ),
        (
            {"num_minibatches": None, "minibatch_size": 0},
            "minibatch_size: must be a whole number .*, or null, got 0",
        ),
        ({"num_minibatches": None}, "has neither num_minibatches nor minibatch_size"),
    ],
)
def test_impossible_minibatches_are_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hyperparameters.from_params(make_params(**overrides), num_envs=6)


def continuous(**changes: Any) -> dict[str, Any]:
    return {"continuous": {**make_params()["network"]["space"]["continuous"], **changes}}


def mlp(**changes: Any) -> dict[str, Any]:
    return {**make_params()["network"]["mlp"], **changes}


REFUSED = [
    ({"mixed_precision": True}, "params.config.mixed_precision: True is not supported by grouped training; set it"),
    ({"matmul_precision": "low"}, "params.config.matmul_precision: low .* use highest, high or medium"),
    ({"multi_gpu": True}, "params.config.multi_gpu: True .* set it to False"),
    ({"central_value_config": {}}, "params.config.central_value_config: .* delete it"),
    ({"normalize_rms_advantage": True}, "params.config.normalize_rms_advantage: True"),
    ({"epochs_between_resets": 5}, "params.config.epochs_between_resets: 5 .* set it to 0"),
    ({"schedule_type": "standard_epoch"}, "params.config.schedule_type: standard_epoch .* use legacy, standard or"),
    ({"model": "discrete_a2c"}, "params.model.name: discrete_a2c .* use continuous_a2c_logstd"),
    ({"network__name": "resnet_actor_critic"}, "params.network.name: resnet_actor_critic .* use actor_critic"),
    ({"network__rnn": {"name": "lstm"}}, "params.network.rnn: .* delete it"),
    ({"network__cnn": {"type": "conv2d"}}, "params.network.cnn: .* delete it"),
    ({"network__central_value": True}, "params.network.central_value"),
    ({"network__normalization": "layer_norm"}, "params.network.normalization: layer_norm"),
    ({"network__mlp": mlp(d2rl=True)}, "params.network.mlp.d2rl: True .* set it to False"),
    ({"network__mlp": mlp(activation="mish")}, "params.network.mlp.activation: mish .* use one of relu, tanh"),
    ({"network__space": {"discrete": None}}, "params.network.space: discrete .* use continuous"),
    ({"network__space": continuous(fixed_sigma=False)}, "space.continuous.fixed_sigma: False .* set it to True"),
    ({"network__space": continuous(mu_activation="x")}, "space.continuous.mu_activation: x .* use one of"),
    (
        {"network__space": continuous(max_sigma=1.0, sigma_activation="tanh")},
        "space.continuous.max_sigma: with a sigma_activation .* set sigma_activation to None or delete max_sigma",
    ),
]


@pytest.mark.parametrize("overrides, message", REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_unsupported_features_are_refused_with_a_remedy(overrides: dict[str, Any], message: str) -> None:
    params = make_params(**overrides)
    params["model"]["name"] = overrides.get("model", params["model"]["name"])
    with pytest.raises(ValueError, match=message):
        check_supported(params)


def test_disabled_features_and_unknown_keys_are_accepted() -> None:
    off = {"mixed_precision": False, "multi_gpu": False, "central_value_config": None, "score_to_win": 20000}
    params = make_params(network__normalization=None, network__value_activation="None", reward_shaper=None, **off)
    check_supported(params)
    check_ranges(params)


OUT_OF_RANGE = [
    ({"gamma": 2}, "params.config.gamma: must be a number from 0 to 1, got 2"),
    ({"tau": -0.1}, "params.config.tau: must be a number from 0 to 1"),
    ({"e_clip": 0}, "params.config.e_clip: must be a number above 0 and at most 1"),
    ({"e_clip": 1.5}, "params.config.e_clip: must be"),
    ({"learning_rate": "fast"}, "params.config.learning_rate: must be a number of at least 0, got fast"),
    ({"learning_rate": float("nan")}, "params.config.learning_rate: must be"),
    ({"learning_rate": True}, "params.config.learning_rate: must be"),
    ({"critic_coef": None}, "params.config.critic_coef: must be a number of at least 0, got null"),
    ({"entropy_coef": float("inf")}, "params.config.entropy_coef: must be a number, got inf"),
    ({"grad_norm": 0}, "params.config.grad_norm: must be a number above 0"),
    ({"grad_norm": None}, "params.config.grad_norm: must be a number above 0 where truncate_grads is True, got null"),
    ({"horizon_length": 0}, "params.config.horizon_length: must be a whole number of at least 1"),
    ({"mini_epochs": 2.5}, "params.config.mini_epochs: must be a whole number"),
    ({"normalize_input": "maybe"}, "params.config.normalize_input: must be True or False, got maybe"),
    ({"lr_schedule": "adptive"}, r"params.config.lr_schedule: must be .*, got adptive \(did you mean adaptive\?\)"),
    ({"reward_shaper": {"scale_value": "big"}}, "params.config.reward_shaper.scale_value: must be a number, got big"),
    (
        {"network__space": continuous(max_sigma=0)},
        "space.continuous.max_sigma: must be a number above 0, or null, got 0",
    ),
    ({"network__mlp": mlp(units=256)}, r"params.network.mlp.units: must be a list of whole numbers .*, got 256"),
    ({"network__mlp": mlp(units=[64, 0])}, "params.network.mlp.units: must be"),
    ({"network__mlp": mlp(initializer={"name": "zeros"})}, "network.mlp.initializer.name: must be one of default"),
]


@pytest.mark.parametrize("overrides, message", OUT_OF_RANGE, ids=[message[:40] for _, message in OUT_OF_RANGE])
def test_values_out_of_range_are_refused_with_their_key(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hyperparameters.from_params(make_params(**overrides), num_envs=6)
