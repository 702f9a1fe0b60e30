"""The sizes of stacked actor-critics, and the layout of their parameters and buffers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.mlp import (
    Shape,
    Tape,
    carve,
    get_activation,
    is_fused,
    make_tape,
    matrices,
    round_up,
    tape_shapes,
    with_one,
)


@dataclass(frozen=True)
class Architecture:
    """The sizes of a stack. Widths are rounded up, because kernels load 16 bytes at a time.

    Attributes:
        obs_dim: width of the policy's observations.
        critic_dim: width of the critic's observations; 0 if it sees the policy's.
        actions: number of actions.
        names: the layers of each MLP, by rl_games' keys. A shared network is one MLP, whose last layer has the columns
            of both heads; separate networks are an actor and a critic.
        widths: the widths of these layers' outputs.
        keeps: whether the activation needs a buffer for the backward pass.
        fused: whether the layers' gradients overwrite their outputs, see ``is_fused``.
    """

    obs_dim: int
    critic_dim: int
    actions: int
    names: tuple[tuple[str, ...], ...]
    widths: tuple[tuple[int, ...], ...]
    keeps: bool
    fused: bool

    @classmethod
    def of(
        cls,
        params: Mapping[str, Any],
        obs_dim: int,
        action_dim: int,
        device: torch.device,
        backend: Backend,
        critic_dim: int = 0,
    ) -> Architecture:
        """Read the ``network`` section of an rl_games YAML."""
        network = params["network"]
        units = tuple(network["mlp"]["units"])
        hidden = range(0, 2 * len(units), 2)  # every second module of rl_games' mlp is an activation
        actor, critic = (tuple(f"{name}.{i}" for i in hidden) for name in ("actor_mlp", "critic_mlp"))
        if network.get("separate", False):
            names = ((*actor, "mu"), (*critic, "value"))
            widths = ((*units, round_up(action_dim, 16)), (*units, 16))
        else:
            names = ((*actor, "mu value"),)
            widths = ((*units, round_up(action_dim + 1, 16)),)
        activation = get_activation(network["mlp"]["activation"], device)
        return cls(obs_dim, critic_dim, action_dim, names, widths, activation.keeps, is_fused(activation, backend))

    @property
    def dims(self) -> tuple[int, ...]:
        """Width of the observations that each MLP sees."""
        return (self.obs_dim, self.critic_dim or self.obs_dim)[: len(self.widths)]

    @property
    def inputs(self) -> int:
        """Width of the policy's input: observations, a 1 for the biases, zeros."""
        return with_bias(self.obs_dim)

    @property
    def critic_inputs(self) -> int:
        """Width of the critic's input; 0 if it is the policy's."""
        return with_bias(self.critic_dim) if self.critic_dim else 0

    def _shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of all weights, and of sigma."""
        weights = []
        for dim, widths in zip(self.dims, self.widths):
            weights += list(zip([with_bias(dim), *map(with_one, widths)], widths))
        return [*weights, (1, self.actions)]

    @property
    def size(self) -> int:
        """Number of elements of a group's row of parameters."""
        return round_up(self._used, 16)

    @property
    def _used(self) -> int:
        return sum(rows * columns for rows, columns in self._shapes())

    def views(self, flat: Tensor) -> tuple[list[list[Tensor]], Tensor]:
        """Return the weights of each MLP and sigma ``(K, 1, A)`` as views of ``(K, size)``."""
        views, start = [], 0
        for rows, columns in self._shapes():
            views.append(flat[:, start : start + rows * columns].view(-1, rows, columns))
            start += rows * columns
        depth = len(self.widths[0])
        return [views[i : i + depth] for i in range(0, len(views) - 1, depth)], views[-1]

    def of_networks(self, grad: Tensor) -> list[list[Tensor]]:
        """Return what belongs to actor and critic, which are separate, as views of ``(K, size)``."""
        ends = list(itertools.accumulate(rows * columns for rows, columns in self._shapes()))
        first, second = ends[len(self.widths[0]) - 1], ends[-2]
        return [[grad[:, :first], grad[:, second : self._used]], [grad[:, first:second]]]

    def workspace_shapes(self, groups: int, samples: int) -> list[Shape]:
        """Return the shapes of the tensors of ``carve_workspace``."""
        tapes = [tape_shapes(widths, self.keeps, self.fused, groups, samples) for widths in self.widths]
        inputs = [(groups, samples, width) for width in (self.inputs, self.critic_inputs) if width]
        return [(groups, self.size), *inputs, *itertools.chain(*tapes)]

    def carve_workspace(self, buffer: Tensor, groups: int, samples: int) -> Workspace:
        """Create a workspace in a flat tensor of at least ``carved_size(workspace_shapes)`` elements."""
        grad, obs, *rest = carve(buffer, self.workspace_shapes(groups, samples))
        critic_obs = rest.pop(0) if self.critic_dim else None
        grad[:, self._used :] = 0.0  # not used by parameters
        each = len(rest) // len(self.widths)
        parts = [rest[i * each : (i + 1) * each] for i in range(len(self.widths))]
        seen = (obs, obs if critic_obs is None else critic_obs)
        tapes = [make_tape(x, part, widths, self.fused) for x, part, widths in zip(seen, parts, self.widths)]
        d_weights, d_sigma = self.views(grad)
        return Workspace(obs, critic_obs, tapes, grad, [[matrices(w) for w in layers] for layers in d_weights], d_sigma)


def with_bias(dim: int) -> int:
    """Return the width of a network's input for observations of a width."""
    return round_up(dim + 1, 4)


class Workspace(NamedTuple):
    """Buffers for learning from a minibatch of K groups and N samples."""

    obs: Tensor  # (K, N, inputs): normalized observations, and the ones
    critic_obs: Tensor | None  # (K, N, critic_inputs), where the critic has its own
    tapes: list[Tape]  # one for each MLP
    grad: Tensor  # (K, P), by all parameters
    d_weights: list[list[Tensor]]  # views of grad: by the weights of each MLP, in the shapes of ``matrices``
    d_sigma: Tensor  # (K, 1, A), a view of grad
