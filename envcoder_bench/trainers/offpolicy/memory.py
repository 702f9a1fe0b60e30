"""The memory of grouped FlashSAC, before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from envcoder_bench.trainers.base import MemoryEstimate, Widths, widest
from envcoder_bench.trainers.offpolicy.learner import actor_shape, critic_shape
from envcoder_bench.trainers.offpolicy.replay import ring_slots
from envcoder_bench.trainers.offpolicy.settings import SACSettings

AT_ONCE = 8 * 2**30  # bytes that the activations of one block's update may take


def groups_at_once(settings: SACSettings, groups: int) -> int:
    """Return how many groups a CUDA device updates together."""
    return max(1, min(groups, AT_ONCE // activation_bytes(settings)))


def activation_bytes(s: SACSettings) -> int:
    """Return the bytes of one group's activations and temporary tensors in an update."""
    layers = s.blocks * 2 * (s.expansion + 2) * s.critic_units
    each = layers * (2 if s.mixed_precision else 4) + 8 * s.num_bins * 4
    return 2 * (2 * s.batch_size) * each  # two critics, both states of a transition


def estimate(params: Mapping[str, Any], num_envs: int, device: torch.device) -> MemoryEstimate:
    """Return a function that estimates the bytes of groups by their widths."""
    s = SACSettings.from_params(params, num_envs)
    total = params["config"].get("max_epochs")
    steps = None if total is None or total < 0 else total * s.horizon_length
    transitions = ring_slots(s, num_envs, steps) * num_envs
    size = 2 if s.replay_dtype == "bfloat16" else 4

    def weights(obs: int, action: int, critic: int) -> int:
        actor, value = actor_shape(s, obs, action), critic_shape(s, critic or obs, action)
        count = [sum(math.prod(shape) for shape in each.parameters.values()) for each in (actor, value)]
        return 4 * (4 * count[0] + 2 * 5 * count[1])  # weight, gradient, two moments; of a target the weight alone

    def needed(widths: Sequence[Widths]) -> int:
        obs, action, critic = (*widest(widths), 0)[:3]
        ring = transitions * (size * (obs + action + critic) + 5)
        at_once = 1 if device.type == "cpu" else groups_at_once(s, len(widths))
        return len(widths) * (ring + weights(obs, action, critic)) + at_once * activation_bytes(s)

    return needed
