"""Valid types and ranges of PPO's hyperparameters, the keys under ``params.config`` and ``params.network``."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from envcoder_bench.core.errors import near_matches

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
    "ppo", "truncate_grads", "schedule_entropy", "mixed_precision", "multi_gpu",
)  # fmt: skip


def check_ranges(params: Mapping[str, Any]) -> None:
    """Raise ValueError for a value of the wrong type or out of range, naming its key; keys may be absent."""
    config = params["config"]
    given = config.get("reward_shaper")
    shaper = {f"reward_shaper.{key}": x for key, x in given.items()} if isinstance(given, dict) else {}
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
        known = ", ".join(SCHEDULES[:-1])
        raise ValueError(f"params.config.lr_schedule: must be {known} or null, got {schedule}{hint}")
    network = params["network"]
    continuous = network["space"]["continuous"]
    for place, node in (
        ("mlp.initializer", network["mlp"].get("initializer")),
        ("space.continuous.mu_init", continuous.get("mu_init")),
        ("space.continuous.sigma_init", continuous.get("sigma_init")),
    ):
        name = node.get("name") if isinstance(node, dict) else None
        if name not in INITIALIZERS:
            hint = near_matches(str(name), INITIALIZERS)
            raise ValueError(f"params.network.{place}.name: must be one of {', '.join(INITIALIZERS)}, got {name}{hint}")
    bound = continuous.get("max_sigma")
    known = isinstance(bound, (int, float)) and not isinstance(bound, bool) and _POSITIVE.holds(bound)
    if bound is not None and not known:
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
