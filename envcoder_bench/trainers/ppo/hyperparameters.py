"""Hyperparameters of PPO, read from an rl_games YAML; unsupported features and values are refused by name."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from envcoder_bench.core.errors import near_matches

ACTIVATIONS = ("relu", "tanh", "sigmoid", "elu", "selu", "swish", "gelu", "softplus", "None")

# key under params.config -> (test for refused values, remedy)
_REFUSED_CONFIG: dict[str, tuple[Callable[[Any], bool], str]] = {
    "mixed_precision": (bool, "set it to False, and matmul_precision to what may be lost in products"),
    "multi_gpu": (bool, "set it to False: all groups train on one device"),
    "central_value_config": (
        lambda value: value is not None,
        "delete it, set network.separate to True and define compute_critic_observation",
    ),
    "self_play": (bool, "set it to False"),
    "self_play_config": (lambda value: value is not None, "delete it"),
    "use_action_masks": (bool, "set it to False: actions are continuous"),
    "normalize_rms_advantage": (bool, "set it to False: advantages are normalized per batch (normalize_advantage)"),
    "population_based_training": (bool, "set it to False"),
    "use_diagnostics": (bool, "set it to False"),
    "freeze_critic": (bool, "set it to False"),
    "epochs_between_resets": (lambda value: value > 0, "set it to 0: episodes end by terminal and time-out"),
}


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of a group's PPO, with rl_games' names and meanings (``params.config`` of its YAML)."""

    horizon_length: int
    mini_epochs: int
    num_minibatches: int
    gamma: float
    tau: float
    e_clip: float
    clip_value: bool
    critic_coef: float
    entropy_coef: float
    bounds_loss_coef: float | None
    bound_loss_type: str
    normalize_input: bool
    empirical_normalization: bool  # of the input, as in rsl_rl. A key that rl_games lacks
    normalize_value: bool
    normalize_advantage: bool
    value_bootstrap: bool
    use_smooth_clamp: bool
    ppo: bool
    grad_norm: float | None  # None: gradients are not clipped
    grad_norm_per_network: bool  # clip those of actor and critic each by itself, as rsl_rl. A key that rl_games lacks
    weight_decay: float
    learning_rate: float
    lr_schedule: str  # adaptive, linear or identity
    # legacy: the rate may change after every minibatch; standard: after every mini epoch; rollout, not a value of
    # rl_games: before every step, by the divergence from the policy of the rollout, as in rsl_rl
    schedule_type: str
    kl_threshold: float
    linear_steps: int  # epochs until a linear schedule ends; 0: it stays at the start
    schedule_entropy: bool
    clip_actions: bool  # to [-1, 1], before the environment takes them
    max_sigma: float | None  # greatest standard deviation of the policy; None: no bound. A key that rl_games lacks
    matmul_precision: str  # of float32 products, as torch.set_float32_matmul_precision; rl_games' Runner says high

    @classmethod
    def from_params(cls, params: Mapping[str, Any], num_envs: int) -> Hyperparameters:
        """Read the ``params`` of an rl_games YAML for groups of ``num_envs`` environments.

        Raises:
            ValueError: an unsupported feature is enabled, or a value is out of range; names key and remedy.
        """
        check_supported(params)
        check_ranges(params)
        config = params["config"]
        schedule, linear_steps = _schedule(config)
        truncate = bool(config.get("truncate_grads", False))
        return cls(
            horizon_length=int(config["horizon_length"]),
            mini_epochs=int(config["mini_epochs"]),
            num_minibatches=_count_minibatches(config, num_envs),
            gamma=float(config["gamma"]),
            tau=float(config["tau"]),
            e_clip=float(config["e_clip"]),
            clip_value=bool(config["clip_value"]),
            critic_coef=float(config["critic_coef"]),
            entropy_coef=float(config["entropy_coef"]),
            bounds_loss_coef=None if config.get("bounds_loss_coef") is None else float(config["bounds_loss_coef"]),
            bound_loss_type=config.get("bound_loss_type", "bound"),
            normalize_input=bool(config["normalize_input"]),
            empirical_normalization=bool(config.get("empirical_normalization", False)),
            normalize_value=bool(config.get("normalize_value", False)),
            normalize_advantage=bool(config["normalize_advantage"]),
            value_bootstrap=bool(config.get("value_bootstrap", True)),
            use_smooth_clamp=bool(config.get("use_smooth_clamp", False)),
            ppo=bool(config.get("ppo", True)),
            grad_norm=float(config["grad_norm"]) if truncate else None,
            grad_norm_per_network=bool(config.get("grad_norm_per_network", False)),
            weight_decay=float(config.get("weight_decay", 0.0)),
            learning_rate=float(config["learning_rate"]),
            lr_schedule=schedule,
            schedule_type=config.get("schedule_type", "legacy"),
            kl_threshold=float(config["kl_threshold"]) if schedule == "adaptive" else 0.0,
            linear_steps=linear_steps,
            schedule_entropy=bool(config.get("schedule_entropy", False)),
            clip_actions=bool(config.get("clip_actions", True)),
            max_sigma=params["network"]["space"]["continuous"].get("max_sigma"),
            matmul_precision=config.get("matmul_precision", "high"),
        )


def check_supported(params: Mapping[str, Any]) -> None:
    """Raise ValueError for a feature of rl_games that is not supported, naming the key and the remedy."""
    config, network = params["config"], params["network"]
    for key, (refused, remedy) in _REFUSED_CONFIG.items():
        if key in config and refused(config[key]):
            raise _unsupported(f"config.{key}", config[key], remedy)
    if config.get("schedule_type", "legacy") not in ("legacy", "standard", "rollout"):
        raise _unsupported("config.schedule_type", config["schedule_type"], "use legacy, standard or rollout")
    if config.get("grad_norm_per_network", False) and not network.get("separate", False):
        raise _unsupported("config.grad_norm_per_network", True, "set it to False, or network.separate to True")
    precision = config.get("matmul_precision", "high")
    if precision not in ("highest", "high", "medium"):
        raise _unsupported("config.matmul_precision", precision, "use highest, high or medium")
    model = params["model"]["name"]
    if model != "continuous_a2c_logstd":
        raise _unsupported("model.name", model, "use continuous_a2c_logstd (a Gaussian policy with a log-deviation)")
    if network.get("name", "actor_critic") != "actor_critic":
        raise _unsupported("network.name", network["name"], "use actor_critic")
    for key in ("rnn", "cnn", "joint_obs_actions", "central_value"):
        if network.get(key):
            raise _unsupported(f"network.{key}", "...", "delete it: stacked networks are plain MLPs")
    if network.get("normalization") not in (None, "None"):
        raise _unsupported("network.normalization", network["normalization"], "delete it: no normalizing layers")
    if network["mlp"].get("d2rl", False):
        raise _unsupported("network.mlp.d2rl", True, "set it to False")
    space = network.get("space", {})
    if "continuous" not in space:
        raise _unsupported("network.space", ", ".join(space) or None, "use continuous")
    if not space["continuous"].get("fixed_sigma", False):
        raise _unsupported("network.space.continuous.fixed_sigma", False, "set it to True: one sigma per action")
    for key, name in (
        ("network.mlp.activation", network["mlp"]["activation"]),
        ("network.value_activation", network.get("value_activation", "None")),
        ("network.space.continuous.mu_activation", space["continuous"]["mu_activation"]),
        ("network.space.continuous.sigma_activation", space["continuous"]["sigma_activation"]),
    ):
        if name not in ACTIVATIONS:
            raise _unsupported(key, name, f"use one of {', '.join(ACTIVATIONS)}")
    std_type = space["continuous"].get("std_type", "log")
    if std_type not in ("log", "scalar"):
        raise _unsupported("network.space.continuous.std_type", std_type, "use log or scalar")
    for key, used in (
        ("max_sigma", space["continuous"].get("max_sigma") is not None),
        ("std_type", std_type == "scalar"),
    ):
        if used and space["continuous"]["sigma_activation"] != "None":
            key, remedy = f"network.space.continuous.{key}", f"set sigma_activation to None or delete {key}"
            raise _unsupported(key, "with a sigma_activation", remedy)


def _unsupported(key: str, value: Any, remedy: str) -> ValueError:
    return ValueError(f"params.{key}: {value} is not supported by grouped training; {remedy}")


# valid types and ranges

SCHEDULES = ("adaptive", "linear", "identity", "None")
INITIALIZERS = (  # of rl_games
    "default", "const_initializer", "orthogonal_initializer", "orthogonal", "glorot_normal_initializer",
    "glorot_uniform_initializer", "variance_scaling_initializer", "random_uniform_initializer", "kaiming_normal",
)  # fmt: skip


class Range(NamedTuple):
    """A test for valid numbers, and its description."""

    holds: Callable[[float], bool]
    text: str


_FINITE = Range(math.isfinite, "a number")
_POSITIVE = Range(lambda x: 0 < x < math.inf, "a number above 0")
_NOT_NEGATIVE = Range(lambda x: 0 <= x < math.inf, "a number of at least 0")
_SHARE = Range(lambda x: 0 <= x <= 1, "a number from 0 to 1")

_NUMBERS = {
    "gamma": _SHARE,
    "tau": _SHARE,
    # above 1 the clipped ratio has no lower bound
    "e_clip": Range(lambda x: 0 < x <= 1, "a number above 0 and at most 1"),
    "learning_rate": _NOT_NEGATIVE,
    "kl_threshold": _POSITIVE,
    "critic_coef": _NOT_NEGATIVE,
    "entropy_coef": _FINITE,
    "bounds_loss_coef": _NOT_NEGATIVE,
    "grad_norm": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
}
_REWARD_SHAPER = {
    "scale_value": _FINITE,
    "shift_value": _FINITE,
    "min_val": Range(lambda x: not math.isnan(x), "a number"),
    "max_val": Range(lambda x: not math.isnan(x), "a number"),
}
_WHOLE = ("horizon_length", "mini_epochs")
_WHOLE_OR_NULL = ("num_minibatches", "minibatch_size", "minibatch_size_per_env")
_SWITCHES = (
    "clip_value", "normalize_input", "normalize_value", "normalize_advantage", "value_bootstrap", "use_smooth_clamp",
    "ppo", "truncate_grads", "schedule_entropy", "mixed_precision", "multi_gpu", "empirical_normalization",
    "grad_norm_per_network",
)  # fmt: skip


def check_ranges(params: Mapping[str, Any]) -> None:
    """Raise ValueError for a value of the wrong type or out of range, naming its key; keys may be absent."""
    config = params["config"]
    rewards = config.get("reward_shaper")
    shaper = {f"reward_shaper.{key}": x for key, x in rewards.items()} if isinstance(rewards, dict) else {}
    numbers = {**_NUMBERS, **{f"reward_shaper.{key}": allowed for key, allowed in _REWARD_SHAPER.items()}}
    for key, value in {**config, **shaper}.items():
        if key not in numbers or (key == "bounds_loss_coef" and value is None):
            continue
        allowed = numbers[key]
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not allowed.holds(value):
            raise ValueError(f"params.config.{key}: must be {allowed.text}, got {_shown(value)}")
    for key in (*_WHOLE, *_WHOLE_OR_NULL):
        value = config.get(key)
        if key not in config or (value is None and key in _WHOLE_OR_NULL):
            continue
        if type(value) is not int or value < 1:
            raise ValueError(f"params.config.{key}: must be a whole number of at least 1, got {_shown(value)}")
    for key in _SWITCHES:
        if key in config and not isinstance(config[key], bool):
            raise ValueError(f"params.config.{key}: must be True or False, got {_shown(config[key])}")
    schedule = config.get("lr_schedule")
    if str(schedule) not in SCHEDULES:
        hint = near_matches(str(schedule), SCHEDULES)
        names = ", ".join(SCHEDULES[:-1])
        raise ValueError(f"params.config.lr_schedule: must be {names} or null, got {schedule}{hint}")
    network = params["network"]
    continuous = network["space"]["continuous"]
    for key, node in (
        ("mlp.initializer", network["mlp"].get("initializer")),
        ("space.continuous.mu_init", continuous.get("mu_init")),
        ("space.continuous.sigma_init", continuous.get("sigma_init")),
    ):
        name = node.get("name") if isinstance(node, dict) else None
        if name not in INITIALIZERS:
            hint = near_matches(str(name), INITIALIZERS)
            raise ValueError(f"params.network.{key}.name: must be one of {', '.join(INITIALIZERS)}, got {name}{hint}")
    bound = continuous.get("max_sigma")
    is_positive = isinstance(bound, (int, float)) and not isinstance(bound, bool) and _POSITIVE.holds(bound)
    if bound is not None and not is_positive:
        key = "params.network.space.continuous.max_sigma"
        raise ValueError(f"{key}: must be {_POSITIVE.text} or null, got {_shown(bound)}")
    units = network["mlp"]["units"]
    if not isinstance(units, (list, tuple)) or not all(type(unit) is int and unit >= 1 for unit in units):
        raise ValueError(
            "params.network.mlp.units: must be a list of whole numbers of at least 1, such as [256,128,64], got"
            f" {_shown(units)}"
        )


def _shown(value: object) -> str:
    return "null" if value is None else str(value)


# what follows from several keys


def _schedule(config: Mapping[str, Any]) -> tuple[str, int]:
    """Return the learning-rate schedule, and the number of epochs of a linear one."""
    name = config["lr_schedule"]
    if name not in ("adaptive", "linear"):
        return "identity", 0
    max_epochs = int(config.get("max_epochs", -1))
    max_frames = int(config.get("max_frames", -1))
    if name == "linear" and max_epochs == -1 and max_frames == -1:
        return "identity", 0  # as in rl_games: a linear schedule needs an end
    # as in rl_games, which passes 0 frames to the schedule: with max_frames only, the rate stays constant
    return name, max(0, max_epochs)


def _count_minibatches(config: Mapping[str, Any], num_envs: int) -> int:
    """Return a group's minibatches per mini epoch: the requested count, or the next larger divisor of its batch."""
    batch = int(config["horizon_length"]) * num_envs
    if config.get("num_minibatches") is not None:
        key, wanted = "num_minibatches", config["num_minibatches"]
    elif config.get("minibatch_size") is not None:
        key, wanted = "minibatch_size", -(-batch // config["minibatch_size"])
    elif config.get("minibatch_size_per_env") is not None:
        key, wanted = "minibatch_size_per_env", -(-batch // (num_envs * config["minibatch_size_per_env"]))
    else:
        raise ValueError("params.config has neither num_minibatches nor minibatch_size: set one of them")
    if not 1 <= wanted <= batch:
        steps, why, remedy = config["horizon_length"], "", ""
        if key == "num_minibatches" and _follows_from_size(config):
            key = "minibatch_size"
            why = f", being of the batch of num_actors={config['num_actors']} environments x {steps} steps"
            remedy = ": set num_actors to the environments that it is meant for, or num_minibatches instead of it"
        raise ValueError(
            f"params.config.{key}: {config[key]} asks for {wanted} minibatches{why}; a group's batch of {batch}"
            f" ({num_envs} environments x {steps} steps) can be cut into 1 to {batch}{remedy}"
        )
    count = next(n for n in range(wanted, batch + 1) if batch % n == 0)
    exact = count == wanted if key == "num_minibatches" else batch == count * _requested_size(config, key, num_envs)
    if not exact:
        _say_once(
            f"params.config.{key}: {config[key]} does not divide a group's batch of {batch};"
            f" using {count} minibatch{'es' if count > 1 else ''} of {batch // count}"
        )
    return count


def _follows_from_size(config: Mapping[str, Any]) -> bool:
    """Return whether ``num_minibatches`` is what ``minibatch_size`` makes of a batch of ``num_actors`` environments."""
    size, actors = config.get("minibatch_size"), config.get("num_actors")
    are_numbers = type(size) is int and type(actors) is int
    return are_numbers and config["num_minibatches"] * size == actors * config["horizon_length"]


@functools.cache
def _say_once(message: str) -> None:
    """Log a warning once, although every learner reads the same config."""
    logging.getLogger(__name__).warning(message)


def _requested_size(config: Mapping[str, Any], key: str, num_envs: int) -> int:
    return int(config[key]) * (num_envs if key == "minibatch_size_per_env" else 1)
