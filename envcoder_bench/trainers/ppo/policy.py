"""A trained policy of grouped PPO as a plain PyTorch module, for use outside of training."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from envcoder_bench.trainers.ppo.normalizer import CLIP, EPSILON

_ACTIVATIONS = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "swish": nn.SiLU,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "None": nn.Identity,
}
_ACTOR, _MU = "a2c_network.actor_mlp.", "a2c_network.mu."


class Normalizer(nn.Module):
    """rl_games' normalization of observations: center, scale, clip to [-limit, limit]."""

    def __init__(self, mean: Tensor, var: Tensor, limit: float = CLIP) -> None:
        super().__init__()
        scale = (var.to(torch.float32) + EPSILON).sqrt().double().reciprocal()
        self.register_buffer("scale", scale.float())
        self.register_buffer("shift", (-mean.to(torch.float32) * scale).float())
        self.limit = limit
        self.scale: Tensor
        self.shift: Tensor

    def forward(self, obs: Tensor) -> Tensor:
        return torch.clamp(obs * self.scale + self.shift, -self.limit, self.limit)


class Clip(nn.Module):
    """Clip to ``[-limit, limit]``."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = float(limit)

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, -self.limit, self.limit)


def policy_module(params: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Sequential:
    """Build the deterministic policy: observations ``(n, obs_dim)`` to actions ``(n, action_dim)``.

    Args:
        params: the ``params`` of the run's rl_games YAML.
        weights: the ``model`` of a policy file.

    Raises:
        KeyError, RuntimeError: the weights are not those of such a network.
    """
    network = params["network"]
    layers: list[nn.Module] = []
    width = weights[f"{_ACTOR}0.weight"].shape[1]
    if params["config"]["normalize_input"]:
        mean, var = (weights[f"running_mean_std.running_{name}"] for name in ("mean", "var"))
        limit = math.inf if params["config"].get("empirical_normalization", False) else CLIP
        layers.append(Normalizer(mean.view(width), var.view(width), limit))
    # rl_games numbers activations, too: layers have even numbers
    for number, units in enumerate(network["mlp"]["units"]):
        layers.append(_linear(weights, f"{_ACTOR}{2 * number}.", width, units))
        layers.append(_ACTIVATIONS[network["mlp"]["activation"]]())
        width = units
    layers.append(_linear(weights, _MU, width, weights[f"{_MU}weight"].shape[0]))
    if network["space"]["continuous"]["mu_activation"] != "None":
        layers.append(_ACTIVATIONS[network["space"]["continuous"]["mu_activation"]]())
    if params["config"].get("clip_actions", True):
        layers.append(Clip(1.0))
    return nn.Sequential(*layers)


def _linear(weights: Mapping[str, Tensor], prefix: str, inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    layer.load_state_dict({name: weights[f"{prefix}{name}"] for name in ("weight", "bias")})
    return layer
