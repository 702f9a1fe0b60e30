"""A trained policy of grouped FlashSAC as a plain PyTorch module, for use outside of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from envcoder_bench.trainers.offpolicy.batch_norm import EPSILON
from envcoder_bench.trainers.offpolicy.network import RMS_NORM_EPS, GroupedNetwork
from envcoder_bench.trainers.offpolicy.settings import SACSettings


class Residual(nn.Sequential):
    """Layers whose result is added to their input."""

    def forward(self, input: Tensor) -> Tensor:
        return input + super().forward(input)


class RMSNorm(nn.Module):
    """Division by the root mean square, times a weight; torch has it from 2.4 on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + RMS_NORM_EPS) * self.weight


class Scale(nn.Module):
    """Multiplication by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = float(factor)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def policy_module(actor: GroupedNetwork, group: int, widths: Sequence[int], settings: SACSettings) -> nn.Sequential:
    """Return a group's deterministic policy, ``(n, obs_dim)`` to ``(n, action_dim)``, on the CPU.

    Normalizations by running statistics are part of the linear layers beside them.
    """
    weights = {name: x[group].detach().cpu().double() for name, x in actor.parameters.views.items()}
    stats = {name: x[group].detach().cpu().double() for name, x in actor.buffers.views.items()}

    def affine(name: str) -> tuple[Tensor, Tensor]:
        factor = weights[f"{name}.scale"] * torch.rsqrt(stats[f"{name}.var"] + EPSILON)
        return factor, weights[f"{name}.shift"] - stats[f"{name}.mean"] * factor

    def normalized(name: str, norm: str) -> dict[str, Tensor]:
        factor, offset = affine(norm)
        return {"weight": (weights[name] * factor).T, "bias": offset}

    obs, action = widths[:2]
    factor, offset = affine("norm")
    layers = {
        "0": {"weight": (factor.unsqueeze(1) * weights["embed"]).T[:, :obs], "bias": offset @ weights["embed"]},
        **{
            f"{1 + k}.{layer}": normalized(f"{k}.{name}", f"{k}.norm_{name}")
            for k in range(settings.blocks)
            for layer, name in ((0, "up"), (2, "down"))
        },
        f"{1 + settings.blocks}": {"weight": weights["post.scale"]},
        f"{2 + settings.blocks}": {
            "weight": weights["mean"].T[:action], "bias": weights["mean.bias"].squeeze(0)[:action]
        },
    }  # fmt: skip
    module = _empty(settings, obs, action)
    module.load_state_dict(
        {f"{layer}.{name}": x.float() for layer, tensors in layers.items() for name, x in tensors.items()}
    )
    return module


def policy_from_params(params: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Sequential:
    """Return the policy of a policy file.

    Args:
        params: of the run's train config.
        weights: the ``model`` of the file.

    Raises:
        KeyError, RuntimeError: the weights are not those of such a network.
    """
    settings = SACSettings.from_params(params, 1)
    head = weights[f"{2 + settings.blocks}.weight"]
    module = _empty(settings, weights["0.weight"].shape[1], head.shape[0])
    module.load_state_dict(weights)
    return module


def _empty(s: SACSettings, obs: int, action: int) -> nn.Sequential:
    units, wide = s.actor_units, s.actor_units * s.expansion
    blocks = [Residual(nn.Linear(units, wide), nn.ReLU(), nn.Linear(wide, units), nn.ReLU()) for _ in range(s.blocks)]
    layers = [nn.Linear(obs, units), *blocks, RMSNorm(units), nn.Linear(units, action), nn.Tanh()]
    return nn.Sequential(*layers, *([] if s.action_bound == 1.0 else [Scale(s.action_bound)]))
