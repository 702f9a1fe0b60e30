"""Hyperparameters of PPO, read from an rl_games YAML; unsupported features and values are refused by name."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.settings import Count, select
from envcoder_bench.trainers.sections import (
    Finite,
    NotNan,
    NotNegative,
    Positive,
    Section,
    Share,
    Switch,
    check_section,
    yaml_word,
)

ACTIVATIONS = ("relu", "tanh", "sigmoid", "elu", "selu", "swish", "gelu", "softplus", "None")
SCHEDULES = ("adaptive", "linear", "identity", "None")
INITIALIZERS = (  # rl_games' names
    "default", "const_initializer", "orthogonal_initializer", "orthogonal", "glorot_normal_initializer",
    "glorot_uniform_initializer", "variance_scaling_initializer", "random_uniform_initializer", "kaiming_normal",
)  # fmt: skip

DERIVED = "derived"  # marks a field that follows from several keys


class RewardShaper(Section):
    """The numbers of rl_games' reward shaper."""

    scale_value: Finite = 1.0
    shift_value: Finite = 0.0
    min_val: NotNan = -math.inf
    max_val: NotNan = math.inf


class ContinuousSpace(Section):
    """The numbers of the policy's distribution."""

    # keys that rl_games lacks: the greatest standard deviation, and whether Adam learns its logarithm (log) or the
    # deviation itself (scalar)
    max_sigma: Positive | None = None
    std_type: str = "log"


class Hyperparameters(ContinuousSpace):
    """Hyperparameters of a group's PPO, with rl_games' names and meanings (``params.config`` of its YAML)."""

    horizon_length: Count
    mini_epochs: Count
    num_minibatches: Count
    # used without a number of minibatches: samples, or control steps of all environments
    minibatch_size: Count | None = None
    minibatch_size_per_env: Count | None = None
    gamma: Share
    tau: Share
    e_clip: Annotated[float, Field(gt=0, le=1)]  # above 1 the clipped ratio has no lower bound
    clip_value: Switch
    critic_coef: NotNegative
    entropy_coef: Finite
    bounds_loss_coef: NotNegative | None = None
    bound_loss_type: str = "bound"
    normalize_input: Switch
    empirical_normalization: Switch = False  # normalize the input as rsl_rl. A key that rl_games lacks
    normalize_value: Switch = False
    normalize_advantage: Switch
    value_bootstrap: Switch = True
    use_smooth_clamp: Switch = False
    ppo: Switch = True
    truncate_grads: Switch = False
    grad_norm: Positive | None = None  # None: gradients are not clipped
    # clip the gradients of actor and critic separately, as rsl_rl. A key that rl_games lacks
    grad_norm_per_network: Switch = False
    weight_decay: NotNegative = 0.0
    learning_rate: NotNegative
    lr_schedule: str  # adaptive, linear or identity
    # legacy: the rate may change after every minibatch; standard: after every mini epoch; rollout, as in rsl_rl: before
    # every step, by the divergence from the policy of the rollout. rl_games lacks the last one
    schedule_type: str = "legacy"
    kl_threshold: Positive = 0.0  # used by the adaptive schedule
    linear_steps: Annotated[int, DERIVED] = 0  # epochs until a linear schedule ends; 0: it stays at the start
    schedule_entropy: Switch = False
    clip_actions: Switch = True  # clip actions to [-1, 1] before the environment takes them
    matmul_precision: str = "high"  # an argument of torch.set_float32_matmul_precision; rl_games' Runner uses high

    @classmethod
    def from_params(cls, params: Mapping[str, Any], num_envs: int) -> Hyperparameters:
        """Read the ``params`` of an rl_games YAML for groups of ``num_envs`` environments.

        Raises:
            ValueError: an unsupported feature is enabled, or a value is out of range; names key and remedy.
        """
        check_supported(params)
        check_ranges(params)
        config = {**params["config"], "num_minibatches": _count_minibatches(params["config"], num_envs)}
        config["lr_schedule"], config["linear_steps"] = _schedule(config)
        continuous = params["network"]["space"]["continuous"]
        config.update({key: continuous[key] for key in ContinuousSpace.model_fields if key in continuous})
        if not config.get("truncate_grads", False):
            config["grad_norm"] = None
        if config["lr_schedule"] != "adaptive":
            config.pop("kl_threshold", None)
        return cls.model_validate(config)


def keys() -> list[str]:
    """Return the dotted keys of ``params`` that the sections declare, and the key of the critic's own layers."""
    sections = (
        ("config", Hyperparameters), ("config.reward_shaper", RewardShaper),
        ("network.space.continuous", ContinuousSpace),
    )  # fmt: skip
    declared = [
        f"{prefix}.{name}"
        for prefix, section in sections
        for name, field in section.model_fields.items()
        if DERIVED not in field.metadata and (section is ContinuousSpace or name not in ContinuousSpace.model_fields)
    ]
    return [*declared, "network.mlp.critic_units"]


def _is_not(*names: object) -> Callable[[Any], bool]:
    return lambda value: value not in names


# a test for refused values, and the remedy, by key under params; the value of a missing key is None
_UNSUPPORTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "config.mixed_precision": (bool, "set it to False, and matmul_precision to what may be lost in products"),
    "config.multi_gpu": (bool, "set it to False: all groups train on one device"),
    "config.central_value_config": (
        _is_not(None),
        "delete it, set network.separate to True and define compute_critic_observation",
    ),
    "config.self_play": (bool, "set it to False"),
    "config.self_play_config": (_is_not(None), "delete it"),
    "config.use_action_masks": (bool, "set it to False: actions are continuous"),
    "config.normalize_rms_advantage": (
        bool, "set it to False: advantages are normalized per batch (normalize_advantage)",
    ),
    "config.population_based_training": (bool, "set it to False"),
    "config.use_diagnostics": (bool, "set it to False"),
    "config.freeze_critic": (bool, "set it to False"),
    "config.epochs_between_resets": (lambda x: (x or 0) > 0, "set it to 0: episodes end by terminal and time-out"),
    "config.schedule_type": (_is_not(None, "legacy", "standard", "rollout"), "use legacy, standard or rollout"),
    "config.matmul_precision": (_is_not(None, "highest", "high", "medium"), "use highest, high or medium"),
    "model.name": (
        _is_not("continuous_a2c_logstd"), "use continuous_a2c_logstd (a Gaussian policy with a log-deviation)",
    ),
    "network.name": (_is_not(None, "actor_critic"), "use actor_critic"),
    **dict.fromkeys(
        [f"network.{key}" for key in ("rnn", "cnn", "joint_obs_actions", "central_value")],
        (bool, "delete it: stacked networks are plain MLPs"),
    ),
    "network.normalization": (_is_not(None, "None"), "delete it: no normalizing layers"),
    "network.mlp.d2rl": (bool, "set it to False"),
    "network.space.continuous.fixed_sigma": (lambda x: not x, "set it to True: one sigma per action"),
    **dict.fromkeys(
        ["network.mlp.activation", *(f"network.space.continuous.{of}_activation" for of in ("mu", "sigma"))],
        (_is_not(*ACTIVATIONS), f"use one of {', '.join(ACTIVATIONS)}"),
    ),
    "network.value_activation": (_is_not(None, *ACTIVATIONS), f"use one of {', '.join(ACTIVATIONS)}"),
    "network.space.continuous.std_type": (_is_not(None, "log", "scalar"), "use log or scalar"),
}  # fmt: skip


def check_supported(params: Mapping[str, Any]) -> None:
    """Raise ValueError for a feature of rl_games that is not supported, naming the key and the remedy."""
    config, network = params["config"], params["network"]
    space = network.get("space", {})
    if "continuous" not in space:
        raise _unsupported("network.space", ", ".join(space) or None, "use continuous")
    # values of single keys
    for key, (refused, remedy) in _UNSUPPORTED.items():
        value = select(params, key)
        if refused(value):
            raise _unsupported(key, value, remedy)
    # keys that exclude each other
    if config.get("grad_norm_per_network", False) and not network.get("separate", False):
        raise _unsupported("config.grad_norm_per_network", True, "set it to False, or network.separate to True")
    if network["mlp"].get("critic_units") and not network.get("separate", False):
        raise _unsupported("network.mlp.critic_units", network["mlp"]["critic_units"], "set network.separate to True")
    continuous = space["continuous"]
    for key, is_used in (
        ("max_sigma", continuous.get("max_sigma") is not None),
        ("std_type", continuous.get("std_type", "log") == "scalar"),
    ):
        if is_used and continuous["sigma_activation"] != "None":
            key, remedy = f"network.space.continuous.{key}", f"set sigma_activation to None or delete {key}"
            raise _unsupported(key, "with a sigma_activation", remedy)


def _unsupported(key: str, value: Any, remedy: str) -> ValueError:
    return ValueError(f"params.{key}: {value} is not supported by grouped training; {remedy}")


def check_ranges(params: Mapping[str, Any]) -> None:
    """Raise ValueError for a value of the wrong type or out of range, naming its key; keys may be absent."""
    network, config = params["network"], dict(params["config"])
    continuous, schedule = network["space"]["continuous"], str(config.get("lr_schedule"))
    if schedule not in SCHEDULES:
        hint = near_matches(schedule, SCHEDULES)
        names = ", ".join(SCHEDULES[:-1])
        raise ValueError(f"params.config.lr_schedule: must be {names} or null, got {schedule}{hint}")
    if config.get("num_minibatches") is None:
        config.pop("num_minibatches", None)  # the number follows from the size
    # the sections, by their types
    check_section(Hyperparameters, {**config, "lr_schedule": schedule}, "config")
    if config.get("truncate_grads") and config.get("grad_norm", 1.0) is None:
        raise ValueError("params.config.grad_norm: must be a number above 0 where truncate_grads is True, got null")
    rewards = config.get("reward_shaper")
    check_section(RewardShaper, rewards if isinstance(rewards, Mapping) else {}, "config.reward_shaper")
    check_section(ContinuousSpace, continuous, "network.space.continuous")
    # the network's initializers and layers, which have no types
    for key, node in (
        ("mlp.initializer", network["mlp"].get("initializer")),
        ("space.continuous.mu_init", continuous.get("mu_init")),
        ("space.continuous.sigma_init", continuous.get("sigma_init")),
    ):
        name = node.get("name") if isinstance(node, dict) else None
        if name not in INITIALIZERS:
            hint = near_matches(str(name), INITIALIZERS)
            raise ValueError(f"params.network.{key}.name: must be one of {', '.join(INITIALIZERS)}, got {name}{hint}")
    for key in ("units", "critic_units"):
        units = network["mlp"].get(key, [] if key == "critic_units" else None)
        if not isinstance(units, (list, tuple)) or not all(type(unit) is int and unit >= 1 for unit in units):
            raise ValueError(
                f"params.network.mlp.{key}: must be a list of whole numbers of at least 1, such as [256,128,64], got"
                f" {yaml_word(units)}"
            )


# values that follow from several keys


def _schedule(config: Mapping[str, Any]) -> tuple[str, int]:
    """Return the learning-rate schedule, and the number of epochs of a linear one."""
    name = config["lr_schedule"]
    if name not in ("adaptive", "linear"):
        return "identity", 0
    max_epochs = int(config.get("max_epochs", -1))
    max_frames = int(config.get("max_frames", -1))
    if name == "linear" and max_epochs == -1 and max_frames == -1:
        return "identity", 0  # a linear schedule needs an end, as in rl_games
    # with max_frames only, the rate stays constant: rl_games passes 0 frames to the schedule
    return name, max(0, max_epochs)


def _count_minibatches(config: Mapping[str, Any], num_envs: int) -> int:
    """Return a group's minibatches per mini epoch: the requested count, or the next larger divisor of its batch."""
    batch = int(config["horizon_length"]) * num_envs
    # the wanted number, rounded up if it follows from a size
    if config.get("num_minibatches") is not None:
        key, wanted = "num_minibatches", config["num_minibatches"]
    elif config.get("minibatch_size") is not None:
        key, wanted = "minibatch_size", -(-batch // config["minibatch_size"])
    elif config.get("minibatch_size_per_env") is not None:
        key, wanted = "minibatch_size_per_env", -(-batch // (num_envs * config["minibatch_size_per_env"]))
    else:
        raise ValueError("params.config has neither num_minibatches nor minibatch_size: set one of them")
    # more minibatches than samples: name the key that the user wrote
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
    # all minibatches have one size
    count = next(n for n in range(wanted, batch + 1) if batch % n == 0)
    exact = count == wanted if key == "num_minibatches" else batch == count * _requested_size(config, key, num_envs)
    if not exact:
        _warn_once(
            f"params.config.{key}: {config[key]} does not divide a group's batch of {batch};"
            f" using {count} minibatch{'es' if count > 1 else ''} of {batch // count}"
        )
    return count


def _follows_from_size(config: Mapping[str, Any]) -> bool:
    """Return whether ``num_minibatches`` follows from ``minibatch_size`` and a batch of ``num_actors`` environments."""
    size, actors = config.get("minibatch_size"), config.get("num_actors")
    are_numbers = type(size) is int and type(actors) is int
    return are_numbers and config["num_minibatches"] * size == actors * config["horizon_length"]


@functools.cache
def _warn_once(message: str) -> None:
    """Log a warning once, although every learner reads the same config."""
    logging.getLogger(__name__).warning(message)


def _requested_size(config: Mapping[str, Any], key: str, num_envs: int) -> int:
    return int(config[key]) * (num_envs if key == "minibatch_size_per_env" else 1)
