"""Hyperparameters of grouped FlashSAC, read from the ``params`` of a train config.

Constants: rsl_rl_flashsac (Holiday Robotics, BSD-3-Clause), isaaclab_flashsac/rl_cfg.py; arXiv 2604.04539.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from envcoder_bench.core.settings import Count
from envcoder_bench.trainers.sections import Positive, Section, Share, Switch, check_section

NUMBERS = ("learning_rate", "alpha_learning_rate", "init_alpha", "target_sigma")  # may differ between groups


class NetworkSettings(Section):
    """Sizes of the networks, ``params.network``."""

    actor_units: Count = 128
    critic_units: Count = 256
    blocks: Count = 2  # residual blocks of each network
    expansion: Count = 4  # width of a block's inner layer, in units


class SACSettings(NetworkSettings):
    """Hyperparameters of a group's learner (``params.config``); counts are of one group.

    Updates are counted in env-steps, so that a group of 256 environments learns as much from each env-step as one of
    4,096.
    """

    horizon_length: Count = 24  # control steps of an iteration, after which a run logs; learning does not depend on it
    gamma: Annotated[float, Field(ge=0, lt=1)] = 0.99
    n_step: Count = 3  # steps of rewards before the value of the next state
    batch_size: Annotated[int, Field(ge=2)] = 2048
    env_steps_per_update: Count = 512
    actor_period: Count = 2  # updates of the critics for each one of the actor and of the temperature
    critic_tau: Share = 0.01  # share of the critics in an update of the target critics
    learning_rate: Positive = 1e-3
    alpha_learning_rate: Positive = 3e-4
    init_alpha: Positive = 0.01  # first temperature
    target_sigma: Positive = 0.15  # standard deviation of actions whose entropy is the temperature's target
    num_bins: Annotated[int, Field(ge=2)] = 101  # of a value's distribution, from -value_limit to value_limit
    value_limit: Positive = 5.0  # greatest magnitude of the returns of scaled rewards
    replay_buffer_size: Count = 1_000_000  # transitions
    replay_dtype: Literal["float32", "bfloat16"] = "float32"  # of observations and actions
    num_warmup_steps: Count = 20_000  # env-steps of uniform actions before the first update
    noise_repeat_exponent: Positive = 2.0  # noise is repeated for k steps with a probability ~ k ** -exponent
    noise_repeat_max: Count = 16
    action_bound: Positive = 1.0  # actions are within +- this; a task may have another default
    mixed_precision: Switch = False  # products and activations of hidden layers in bfloat16
    matmul_precision: Literal["highest", "high", "medium"] = "high"

    @classmethod
    def from_params(cls, params: Mapping[str, Any], num_envs: int) -> SACSettings:
        """Read ``params`` for groups of ``num_envs`` environments.

        Raises:
            ValueError: a value is of the wrong type or out of range; names the key.
        """
        config, network = params["config"], params["network"]
        check_section(NetworkSettings, network, "network")
        check_section(SACSettings, config, "config")
        values = {**config, **{key: network[key] for key in NetworkSettings.model_fields if key in network}}
        settings = cls.model_validate(values)
        least = (settings.n_step + 2) * num_envs
        for key in ("replay_buffer_size", "num_warmup_steps"):
            if getattr(settings, key) < least:
                raise ValueError(
                    f"params.config.{key}: {getattr(settings, key)} must be at least {least}, the env-steps of n_step"
                    f" + 2 = {settings.n_step + 2} control steps of a group's {num_envs} environments"
                )
        return settings

    @property
    def target_entropy(self) -> float:
        """Entropy of a Gaussian of standard deviation ``target_sigma``, nats for each action."""
        return 0.5 * math.log(2 * math.pi * math.e * self.target_sigma**2)


def keys() -> list[str]:
    """Return the dotted keys of ``params`` that have an effect."""
    sizes = NetworkSettings.model_fields
    return [f"network.{key}" if key in sizes else f"config.{key}" for key in SACSettings.model_fields]
