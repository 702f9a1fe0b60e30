"""The numbers of PPO that each group may have its own of: no shape, count or branch depends on them.

Formulas read them from ``Hyperparameters``: as floats where the groups of a learner agree, which costs nothing, else as
tensors ``(K,)`` float64 in fixed memory. ``per_group`` fits both to the data; products of several numbers are rounded
once, after it, so that a group's numbers are those that it has alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.settings import merged, nested, plain, select
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

Number = float | Tensor  # of all groups, or (K,) float64
NUMBERS = (
    "learning_rate", "kl_threshold", "gamma", "tau", "e_clip", "entropy_coef", "critic_coef", "bounds_loss_coef",
    "grad_norm", "weight_decay",
)  # fmt: skip
SCALE = "reward_shaper.scale_value"  # likewise, and no field of Hyperparameters


def group_numbers(params: Mapping[str, Any]) -> dict[str, float | str]:
    """Return the numbers by their keys in ``params``, with their values; or why one has no effect."""
    config = params["config"]
    values: dict[str, float | str] = {f"config.{name}": float(config.get(name) or 0.0) for name in NUMBERS}
    values[f"config.{SCALE}"] = float(select(config, SCALE, 1.0))
    if config["lr_schedule"] != "adaptive":
        values["config.kl_threshold"] = "only with lr_schedule adaptive"
    if not config.get("truncate_grads", False):
        values["config.grad_norm"] = "only with truncate_grads True"
    return values


def with_numbers(params: Mapping[str, Any], numbers: Mapping[str, float]) -> Mapping[str, Any]:
    """Return ``params`` with other values, by their dotted keys."""
    return plain(merged(params, nested(numbers))) if numbers else params


def of_groups(each: Sequence[Hyperparameters], device: torch.device) -> Hyperparameters:
    """Return the hyperparameters of groups together; if they differ, with each of the numbers as a tensor."""
    if all(one == each[0] for one in each):
        return each[0]
    columns = {name: [getattr(one, name) for one in each] for name in NUMBERS}
    used = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    return each[0].model_copy(
        update={
            name: torch.tensor([value or 0.0 for value in values], dtype=torch.float64, device=device)
            for name, values in used.items()
        }
    )


def reward_shaper(each: Sequence[Mapping[str, Any]], like: Tensor) -> dict[str, Any]:
    """Return the arguments of rl_games' reward shaper for rewards ``(K, n, T)`` from the ``params`` of each group."""
    arguments = dict(each[0]["config"]["reward_shaper"])
    scales = [select(params["config"], SCALE, 1.0) for params in each]
    if any(scale != scales[0] for scale in scales):
        arguments["scale_value"] = torch.tensor(scales, dtype=like.dtype, device=like.device).view(-1, 1, 1)
    return arguments


def is_swept(number: Number) -> bool:
    """Return whether groups differ in the numbers of which this is one."""
    return isinstance(number, Tensor)


def per_group(number: Number, like: Tensor) -> Any:  # torch takes either, with a signature for each
    """Return a number for arithmetic with data ``(K, ...)``: itself, or ``(K, 1, ...)`` in the dtype of the data."""
    return number.view(-1, *[1] * (like.dim() - 1)).to(like.dtype) if isinstance(number, Tensor) else number
