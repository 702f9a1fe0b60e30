"""Stacked actor-critic networks of all groups, with parameters ``(K, in, out)``, equivalent to rl_games' networks."""

import contextlib
import functools
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envcoder_bench.core import stream
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.trainers.base import Widths, widest
from envcoder_bench.trainers.ppo.architecture import Architecture, Workspace, units_of_critic
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.mlp import NONE, StackedMLP, get_activation

with settings_kept():  # importing rl_games changes how torch prints
    from rl_games.algos_torch.model_builder import ModelBuilder

_PREFIX = "a2c_network."
_SIGMA = f"{_PREFIX}sigma"
CRITIC = (f"{_PREFIX}critic_mlp.", f"{_PREFIX}value.")  # keys of a separate critic
STD_RANGE = (1e-6, 1e6)  # range of a standard deviation that Adam learns itself, as in rsl_rl


class ActorCriticOutput(NamedTuple):
    """The output of a network for a minibatch, and the loss's gradients by it: views of the workspace."""

    mu: Tensor  # (K, N, A)
    value: Tensor  # (K, N)
    d_mu: Tensor
    d_value: Tensor
    mu_kept: Tensor | None  # buffers of the heads' activations, for the backward pass
    value_kept: Tensor | None


class StackedActorCritic:
    """K actor-critics of one architecture, each with its own observation and action width.

    Group k is initialized as the network that rl_games builds for k's widths after ``torch.manual_seed(seeds[k])``.
    If critics have observations or layers of their own, the critic is that of the network for these and the same seed.
    Rows and columns beyond a group's widths are padding: zero, without gradient, and without effect on the output. They
    extend to the widest group, or to ``widths`` of observation, action and, if there is one, critic's observation.

    Attributes:
        flat: ``(K, P)`` all parameters, one row per group; the layers are views of it. Call ``weights_changed`` after
            changing them.
        parameters: the views by rl_games' key: weights ``(K, in, out)``, biases and sigma ``(K, 1, out)``.
        sigma: ``(K, 1, A)``, before its activation.
        action_mask: ``(K, 1, A)``, 0 in padded columns (None: no padding).
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        widths: Widths | None = None,
        backend: Backend | None = None,
        critic_dims: Sequence[int] = (),
    ) -> None:
        backend = backend or Backend.choose(device, dtype)
        # the widest group's sizes are those of all networks; padding fills the rest
        dims = list(zip(obs_dims, action_dims, *([critic_dims] if critic_dims else [])))
        widest_obs, widest_action, *critic = widths or widest(dims)
        network, space = params["network"], params["network"]["space"]["continuous"]
        self.architecture = Architecture.of(params, widest_obs, widest_action, device, backend, *critic)
        self.scalar_std = space.get("std_type", "log") == "scalar"
        self.flat = torch.zeros(len(obs_dims), self.architecture.size, device=device, dtype=dtype)
        # all numbers are in one tensor, which the optimizer steps at once
        weights, self.sigma = self.architecture.views(self.flat)
        activation = get_activation(network["mlp"]["activation"], device)
        self._mlps = [StackedMLP(backend, layers, activation) for layers in weights]
        self._mu_activation = get_activation(space["mu_activation"], device)
        self._value_activation = get_activation(network.get("value_activation", "None"), device)
        self._sigma_activation = get_activation(space["sigma_activation"], device)
        self._value_column = 0 if len(weights) == 2 else widest_action
        self.parameters = self.by_key(weights, self.sigma)

        # the initial weights of each group are those that rl_games draws with its seed
        stock = _build_stock(params, dims, seeds)
        self._shapes = [{key: _stacked(key, value).shape for key, value in tensors.items()} for tensors in stock]
        for k, tensors in enumerate(stock):
            self._copy(k, tensors)
        self.weights_changed()

        used = torch.arange(widest_action) < torch.tensor(action_dims).view(-1, 1, 1)
        self.action_mask: Tensor | None = None if bool(used.all()) else used.to(device, dtype)

    def by_key(self, weights: list[list[Tensor]], sigma: Tensor) -> dict[str, Tensor]:
        """Name the views of one row per group of parameters, or of gradients, by rl_games' keys."""
        views, at = {_SIGMA: sigma}, self._value_column
        columns = {"mu": slice(0, self.architecture.actions), "value": slice(at, at + 1)}
        shape = self.architecture
        for names, dim, widths, layers in zip(shape.names, shape.dims, shape.widths, weights):
            for name, rows, weight in zip(names, (dim, *widths), layers):
                for part in name.split():
                    x = weight[..., columns.get(part, slice(None))]
                    views[f"{_PREFIX}{part}.weight"] = x[:, :rows]
                    views[f"{_PREFIX}{part}.bias"] = x[:, rows : rows + 1]
        return views

    @property
    def has_plain_outputs(self) -> bool:
        """Whether means, values and sigma have no activation."""
        activations = self._mu_activation, self._value_activation, self._sigma_activation
        return all(activation is NONE for activation in activations)

    def log_sigma(self) -> Tensor:
        """Return the logarithm of the policy's standard deviation: ``(K, 1, A)``, 0 in padded columns."""
        if self.scalar_std:
            log_sigma = self.sigma.clamp(*STD_RANGE).log_()
        else:
            log_sigma = self.sigma.clone()
            self._sigma_activation.forward(log_sigma, None)
        return log_sigma if self.action_mask is None else log_sigma.mul_(self.action_mask)

    def bound_sigma(self, greatest: float) -> None:
        """Set standard deviations above ``greatest`` to it; sigma must not have an activation."""
        self.sigma.clamp_(max=greatest if self.scalar_std else math.log(greatest))

    def _mu(self, out: Tensor, kept: Tensor | None = None) -> Tensor:
        mu = out[..., : self.architecture.actions]
        self._mu_activation.forward(mu, kept)
        return mu if self.action_mask is None else mu.mul_(self.action_mask)

    def _value(self, out: Tensor, kept: Tensor | None = None) -> Tensor:
        value = out[..., self._value_column]
        self._value_activation.forward(value, kept)
        return value

    def weights_changed(self) -> None:
        """Prepare ``forward``, ``policy`` and ``value`` after ``flat`` was changed from outside."""
        for mlp in self._mlps:
            mlp.weights_changed()

    def make_workspace(self, buffer: Tensor, samples: int) -> Workspace:
        """Create a workspace in a buffer, for minibatches of ``samples`` samples."""
        work = self.architecture.carve_workspace(buffer, len(self.flat), samples)
        for mlp, tape in zip(self._mlps, work.tapes):
            mlp.begin(tape)
        return work

    def policy(self, obs: Tensor) -> Tensor:
        """Map normalized observations ``(K, N, inputs)`` to mean actions ``(K, N, A)``."""
        return self._mu(self._mlps[0].infer(obs))

    def value(self, obs: Tensor) -> Tensor:
        """Map the critic's normalized observations ``(K, N, inputs)`` to values ``(K, N)``."""
        return self._value(self._mlps[-1].infer(obs))

    def forward(self, obs: Tensor, critic_obs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map normalized observations ``(K, N, inputs)`` to mean actions ``(K, N, A)`` and values ``(K, N)``.

        ``critic_obs`` ``(K, N, critic_inputs)`` are the critics' own observations, if there are any.
        """
        outs = self._infer(obs, critic_obs)
        return self._mu(outs[0]), self._value(outs[-1])

    def _infer(self, obs: Tensor, critic_obs: Tensor | None) -> list[Tensor]:
        seen = (obs, obs if critic_obs is None else critic_obs)
        return [mlp.infer(x) for mlp, x in zip(self._mlps, seen)]

    def plain_outputs(self, obs: Tensor, critic_obs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As ``forward``, without activations of the outputs, and with any numbers in padded columns."""
        outs = self._infer(obs, critic_obs)
        return outs[0][..., : self.architecture.actions], outs[-1][..., self._value_column]

    def forward_for_training(self, work: Workspace) -> ActorCriticOutput:
        """Map ``work.obs`` and ``work.critic_obs`` as ``forward`` does, saving what ``backward`` needs."""
        for mlp, tape in zip(self._mlps, work.tapes):
            mlp.forward(tape)
        actor, critic = work.tapes[0], work.tapes[-1]
        actions, value = self.architecture.actions, self._value_column
        mu_kept = torch.empty_like(actor.result[..., :actions]) if self._mu_activation.keeps else None
        value_kept = torch.empty_like(critic.result[..., value]) if self._value_activation.keeps else None
        return ActorCriticOutput(
            self._mu(actor.result, mu_kept), self._value(critic.result, value_kept),
            actor.d_result[..., :actions], critic.d_result[..., value], mu_kept, value_kept,
        )  # fmt: skip

    def backward(self, work: Workspace, output: ActorCriticOutput, d_log_sigma: Tensor) -> Tensor:
        """Return the gradient of a loss by all parameters, ``(K, P)`` with the layout of ``flat``, in the workspace.

        Args:
            work, output: workspace and result of ``forward_for_training``; ``output.d_mu`` and ``output.d_value`` hold
                the loss's gradients, and are overwritten.
            d_log_sigma: ``(K, 1, A)``, the gradient by ``log_sigma()``; overwritten, too.
        """
        if self.action_mask is not None:
            d_log_sigma.mul_(self.action_mask)
            output.d_mu.mul_(self.action_mask)
        # heads
        self._mu_activation.backward(output.d_mu, output.mu, output.mu_kept)
        self._value_activation.backward(output.d_value, output.value, output.value_kept)
        # standard deviation, a parameter that does not depend on the observation
        if self.scalar_std:  # the derivative of its logarithm, and of the clamp
            low, high = STD_RANGE
            inside = (self.sigma >= low) & (self.sigma <= high)
            torch.mul(d_log_sigma.div_(self.sigma.clamp(low, high)), inside, out=work.d_sigma)
        else:
            sigma = self.sigma.clone()
            kept = torch.empty_like(sigma) if self._sigma_activation.keeps else None
            self._sigma_activation.forward(sigma, kept)
            self._sigma_activation.backward(d_log_sigma, sigma, kept)
            work.d_sigma.copy_(d_log_sigma)
        # layers
        for mlp, tape, weights in zip(self._mlps, work.tapes, work.d_weights):
            mlp.backward(tape, weights)
        return work.grad

    def load(self, group: int, weights: Mapping[str, Tensor]) -> None:
        """Copy rl_games weights (keys ``a2c_network...``) into one group."""
        self._copy(group, weights)
        self.weights_changed()

    @torch.no_grad()
    def _copy(self, group: int, weights: Mapping[str, Tensor]) -> None:
        for key, parameter in self.parameters.items():
            value = _stacked(key, weights[key])
            if self.scalar_std and key == _SIGMA:
                value = value.exp()
            parameter[group, : value.shape[0], : value.shape[1]] = value.to(parameter)

    def export(self, group: int) -> dict[str, Tensor]:
        """Return a group's weights with rl_games' keys and shapes, float32 on the CPU."""
        exported = {}
        for key, (rows, columns) in self._shapes[group].items():
            value = self.parameters[key][group, :rows, :columns].to("cpu", torch.float32)
            if self.scalar_std and key == _SIGMA:  # rl_games' model has its logarithm
                value = value.clamp(*STD_RANGE).log()
            exported[key] = (value.t() if key.endswith(".weight") else value[0]).clone().contiguous()
        return exported

    def split(self, flat: Tensor) -> list[dict[str, Tensor]]:
        """Copy each group's entries of ``(K, P)``, by rl_games' keys, without padding."""
        views = self.by_key(*self.architecture.views(flat))
        return [
            {key: views[key][k, :rows, :columns].clone() for key, (rows, columns) in shapes.items()}
            for k, shapes in enumerate(self._shapes)
        ]

    def join(self, parts: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """Join groups to a ``(K, P)`` tensor on the CPU, the reverse of ``split``."""
        flat = torch.zeros(len(parts), self.architecture.size, dtype=self.flat.dtype)
        views = self.by_key(*self.architecture.views(flat))
        for k, (shapes, part) in enumerate(zip(self._shapes, parts)):
            for key, (rows, columns) in shapes.items():
                views[key][k, :rows, :columns] = part[key]
        return flat


def _stacked(key: str, value: Tensor) -> Tensor:
    """Transpose an rl_games tensor to the layout of the stack: (in, out), vectors as (1, out)."""
    return value.t() if key.endswith(".weight") else value.unsqueeze(0)


def _build_stock(
    params: Mapping[str, Any], dims: Sequence[Sequence[int]], seeds: Sequence[int]
) -> list[dict[str, Tensor]]:
    """Return state dicts of rl_games' networks, one per group, each initialized from its seed.

    ``dims`` are widths of observation, action and, if critics have their own, of critics' observation.
    """

    network = params["network"]
    units, critic_units = tuple(network["mlp"]["units"]), units_of_critic(network)

    @functools.cache
    def model(hidden: tuple[int, ...]) -> Any:
        mlp = {**network["mlp"], "units": list(hidden)}
        return ModelBuilder().load({"model": dict(params["model"]), "network": {**network, "mlp": mlp}})

    @functools.cache
    def build(hidden: tuple[int, ...], obs_dim: int, action_dim: int, seed: int) -> dict[str, Tensor]:
        with stream.seeded(seed):
            stock = model(hidden).build({"input_shape": (obs_dim,), "actions_num": action_dim, "value_size": 1})
        return stock.state_dict()

    networks = []
    with contextlib.redirect_stdout(io.StringIO()):  # rl_games prints a line per network
        for (obs_dim, action_dim, *critic), seed in zip(dims, seeds):
            tensors = build(units, obs_dim, action_dim, seed)
            if critic or critic_units != units:
                other = build(critic_units, *(critic or [obs_dim]), action_dim, seed)
                tensors = _with_critic(tensors, other)
            networks.append(tensors)
    return networks


def _with_critic(tensors: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a network with the critic of another one, in the order of rl_games' keys."""
    merged: dict[str, Tensor] = {}
    for key, x in tensors.items():
        if key.startswith(CRITIC):
            merged.update({name: tensor for name, tensor in other.items() if name.startswith(CRITIC)})
        else:
            merged[key] = x
    return merged
