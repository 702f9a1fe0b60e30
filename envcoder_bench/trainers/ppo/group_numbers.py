"""The numbers of PPO that may differ between groups: no shape, count or branch depends on them.

Formulas read them from ``Hyperparameters``: floats if the groups of a learner agree, which costs nothing, else tensors
``(K,)`` float64 in fixed memory. ``per_group`` fits both to the data. A product of several numbers is rounded only
once, after ``per_group``, so that a group computes with the same numbers as alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.settings import select
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

Number = float | Tensor  # a number of all groups, or (K,) float64
NUMBERS = (
    "learning_rate", "kl_threshold", "gamma", "tau", "e_clip", "entropy_coef", "critic_coef", "bounds_loss_coef",
    "grad_norm", "weight_decay",
)  # fmt: skip
SCALE = "reward_shaper.scale_value"  # may differ, too; it is a field of RewardShaper


def group_numbers(params: Mapping[str, Any]) -> dict[str, float | str]:
    """Return the numbers' values by their keys in ``params``, or the condition on which a number has an effect."""
    config = params["config"]
    values: dict[str, float | str] = {f"config.{name}": float(config.get(name) or 0.0) for name in NUMBERS}
    values[f"config.{SCALE}"] = float(select(config, SCALE, 1.0))
    if config["lr_schedule"] != "adaptive":
        values["config.kl_threshold"] = "only with lr_schedule adaptive"
    if not config.get("truncate_grads", False):
        values["config.grad_norm"] = "only with truncate_grads True"
    return values


def join_hyperparameters(groups: Sequence[Hyperparameters], device: torch.device) -> Hyperparameters:
    """Return common hyperparameters of all groups; if groups differ, the numbers become tensors."""
    first = groups[0]
    if all(hp == first for hp in groups):
        return first
    tensors: dict[str, Tensor] = {}
    for name in NUMBERS:
        values = [getattr(hp, name) for hp in groups]
        if any(value is not None for value in values):
            tensors[name] = torch.tensor([value or 0.0 for value in values], dtype=torch.float64, device=device)
    return first.model_copy(update=tensors)


def reward_shaper(groups: Sequence[Mapping[str, Any]], like: Tensor) -> dict[str, Any]:
    """Return the arguments of rl_games' reward shaper for rewards ``(K, n, T)`` from the ``params`` of each group."""
    arguments = dict(groups[0]["config"]["reward_shaper"])
    scales = [select(params["config"], SCALE, 1.0) for params in groups]
    if any(scale != scales[0] for scale in scales):
        arguments["scale_value"] = torch.tensor(scales, dtype=like.dtype, device=like.device).view(-1, 1, 1)
    return arguments


def is_swept(number: Number) -> bool:
    """Return whether a number differs between groups."""
    return isinstance(number, Tensor)


def per_group(number: Number, like: Tensor) -> Any:  # torch takes either, with a signature for each
    """Return a number for arithmetic with data ``(K, ...)``: itself, or ``(K, 1, ...)`` in the dtype of the data."""
    return number.view(-1, *[1] * (like.dim() - 1)).to(like.dtype) if isinstance(number, Tensor) else number
