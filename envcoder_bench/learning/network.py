"""Actor-critic networks of all groups in one: parameters stacked to ``(K, in, out)``, layers run by baddbmm."""
from __future__ import annotations

import contextlib
import io
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from rl_games.algos_torch.model_builder import ModelBuilder
from torch import Tensor

# rl_games' names. In place where autograd needs only the result: this halves the activations kept for the backward pass
_ACTIVATIONS: Dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
    "elu": F.elu_,
    "selu": F.selu_,
    "swish": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "None": lambda x: x,
}


class StackedActorCritic:
    """K actor-critics of one architecture, each with its own observation and action width.

    Group k starts as the network that rl_games itself builds for k's widths after ``torch.manual_seed(seeds[k])``.
    Rows and columns beyond a group's widths are padding: zero, without gradient, and without effect on any output.

    Attributes:
        flat: ``(K, P)`` all parameters, one row per group; the layers are views of it.
        parameters: the views by rl_games' key: weights ``(K, in, out)``, biases and sigma ``(K, 1, out)``.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        network, space = params["network"], params["network"]["space"]["continuous"]
        self.separate = bool(network.get("separate", False))
        self._activation = _ACTIVATIONS[network["mlp"]["activation"]]
        self._value_activation = _ACTIVATIONS[network.get("value_activation", "None")]
        self._mu_activation = _ACTIVATIONS[space["mu_activation"]]
        self._sigma_activation = _ACTIVATIONS[space["sigma_activation"]]
        layers = range(0, 2 * len(network["mlp"]["units"]), 2)  # every second module of rl_games' mlp is an activation
        self._actor_mlp = [f"a2c_network.actor_mlp.{i}" for i in layers]
        self._critic_mlp = [f"a2c_network.critic_mlp.{i}" for i in layers] if self.separate else []

        own = _build_stock(params, obs_dims, action_dims, seeds)
        self._shapes = [{key: _stacked(key, value).shape for key, value in weights.items()} for weights in own]
        widest = {key: tuple(max(sizes) for sizes in zip(*(s[key] for s in self._shapes))) for key in self._shapes[0]}
        self.flat, self.parameters = _allocate(len(own), widest, device, dtype)
        for k, weights in enumerate(own):
            self.load(k, weights)
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self._tail = torch.zeros(len(own), self.flat.shape[1] - _size(widest), device=device, dtype=dtype)

        own_columns = torch.arange(max(action_dims)) < torch.tensor(action_dims).view(-1, 1, 1)
        self.action_mask: Optional[Tensor] = None if bool(own_columns.all()) else own_columns.to(device, dtype)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.parameters[name + ".bias"], x, self.parameters[name + ".weight"])

    def _mlp(self, names: List[str], x: Tensor) -> Tensor:
        for name in names:
            x = self._activation(self._linear(name, x))
        return x

    def _mu(self, features: Tensor) -> Tensor:
        mu = self._mu_activation(self._linear("a2c_network.mu", features))
        return mu if self.action_mask is None else mu * self.action_mask

    def _value(self, features: Tensor) -> Tensor:
        return self._value_activation(self._linear("a2c_network.value", features)).squeeze(-1)

    def log_sigma(self) -> Tensor:
        """Logarithm of the policy's standard deviation: ``(K, 1, A)``, 0 in padded columns."""
        log_sigma = self._sigma_activation(self.parameters["a2c_network.sigma"].clone())
        return log_sigma if self.action_mask is None else log_sigma * self.action_mask

    def forward(self, obs: Tensor) -> Tuple[Tensor, Tensor]:
        """Map normalized observations ``(K, N, D)`` to mean actions ``(K, N, A)`` and values ``(K, N)``."""
        features = self._mlp(self._actor_mlp, obs)
        return self._mu(features), self._value(self._mlp(self._critic_mlp, obs) if self.separate else features)

    def policy(self, obs: Tensor) -> Tensor:
        """Map normalized observations ``(K, N, D)`` to mean actions ``(K, N, A)``."""
        return self._mu(self._mlp(self._actor_mlp, obs))

    def value(self, obs: Tensor) -> Tensor:
        """Map normalized observations ``(K, N, D)`` to values ``(K, N)``."""
        return self._value(self._mlp(self._critic_mlp if self.separate else self._actor_mlp, obs))

    def gradient(self, loss: Tensor) -> Tensor:
        """Differentiate a scalar: ``(K, P)``, laid out as ``flat``."""
        leaves = list(self.parameters.values())
        grads = torch.autograd.grad(loss, leaves)
        return torch.cat([grad.flatten(1) for grad in grads] + [self._tail], dim=1)

    @torch.no_grad()
    def load(self, group: int, weights: Mapping[str, Tensor]) -> None:
        """Copy rl_games weights (keys ``a2c_network...``) into one group."""
        for key, parameter in self.parameters.items():
            value = _stacked(key, weights[key])
            parameter[group, : value.shape[0], : value.shape[1]] = value.to(parameter)

    def export(self, group: int) -> Dict[str, Tensor]:
        """One group's weights with rl_games' keys and shapes, float32 on the CPU."""
        exported = {}
        for key, (rows, columns) in self._shapes[group].items():
            value = self.parameters[key].detach()[group, :rows, :columns].to("cpu", torch.float32)
            exported[key] = (value.t() if key.endswith(".weight") else value[0]).clone().contiguous()
        return exported


def _stacked(key: str, value: Tensor) -> Tensor:
    """Bring one rl_games tensor to the orientation of the stack: (in, out), vectors as (1, out)."""
    return value.t() if key.endswith(".weight") else value.unsqueeze(0)


def _size(shapes: Mapping[str, Tuple[int, ...]]) -> int:
    return sum(rows * columns for rows, columns in shapes.values())


def _allocate(
    groups: int, shapes: Mapping[str, Tuple[int, ...]], device: torch.device, dtype: torch.dtype
) -> Tuple[Tensor, Dict[str, Tensor]]:
    """Zeros ``(groups, P)`` for every parameter, and the parameters as views of it."""
    # matrices first and rows of a multiple of 64 bytes: matrix kernels load aligned data faster
    order = sorted(shapes, key=lambda key: not key.endswith(".weight"))
    flat = torch.zeros(groups, -(-_size(shapes) // 16) * 16, device=device, dtype=dtype)
    views, start = {}, 0
    for key in order:
        rows, columns = shapes[key]
        views[key] = flat[:, start : start + rows * columns].view(groups, rows, columns).detach()
        start += rows * columns
    return flat, views


def _build_stock(
    params: Mapping[str, Any], obs_dims: Sequence[int], action_dims: Sequence[int], seeds: Sequence[int]
) -> List[Dict[str, Tensor]]:
    """State dicts of the networks that rl_games builds, one per group, each from its own seed."""
    with contextlib.redirect_stdout(io.StringIO()):  # rl_games prints a line per network
        model = ModelBuilder().load({"model": dict(params["model"]), "network": params["network"]})
        built: Dict[Tuple[int, int, int], Dict[str, Tensor]] = {}
        for key in zip(obs_dims, action_dims, seeds):
            if key not in built:
                obs_dim, action_dim, seed = key
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed)
                    stock = model.build({"input_shape": (obs_dim,), "actions_num": action_dim, "value_size": 1})
                built[key] = stock.state_dict()
    return [built[key] for key in zip(obs_dims, action_dims, seeds)]
