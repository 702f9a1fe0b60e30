"""The sizes of stacked actor-critics, the layout of their parameters and buffers, and an estimate of their memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envcoder_bench.trainers.base import MemoryEstimate, Params, Widths, widest
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.mlp import (
    Shape,
    Tape,
    carve,
    carved_size,
    get_activation,
    is_fused,
    make_tape,
    matrices,
    round_up,
    tape_shapes,
    with_one,
)
from mujoco_batches.process import usable_cpus


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
        units, critic_units = tuple(network["mlp"]["units"]), units_of_critic(network)
        actor, critic = (
            tuple(f"{name}.{2 * i}" for i in range(depth))  # every second module of rl_games' mlp is an activation
            for name, depth in (("actor_mlp", len(units)), ("critic_mlp", len(critic_units)))
        )
        if network.get("separate", False):
            names = ((*actor, "mu"), (*critic, "value"))
            widths = ((*units, round_up(action_dim, 16)), (*critic_units, 16))
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
        """Return the rows and columns of all weights, and of sigma."""
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
        rest = iter(views)
        return [list(itertools.islice(rest, len(widths))) for widths in self.widths], views[-1]

    def of_networks(self, grad: Tensor) -> list[list[Tensor]]:
        """Return the parts of separate actors and critics as views of ``(K, size)``."""
        ends = list(itertools.accumulate(rows * columns for rows, columns in self._shapes()))
        first, second = ends[len(self.widths[0]) - 1], ends[-2]
        return [[grad[:, :first], grad[:, second : self._used]], [grad[:, first:second]]]

    def workspace_shapes(self, groups: int, samples: int) -> list[Shape]:
        """Return the shapes of the tensors of ``carve_workspace``."""
        tapes = self._tape_shapes(groups, samples)
        inputs = [(groups, samples, width) for width in (self.inputs, self.critic_inputs) if width]
        return [(groups, self.size), *inputs, *itertools.chain(*tapes)]

    def _tape_shapes(self, groups: int, samples: int) -> list[list[Shape]]:
        return [tape_shapes(widths, self.keeps, self.fused, groups, samples) for widths in self.widths]

    def carve_workspace(self, buffer: Tensor, groups: int, samples: int) -> Workspace:
        """Create a workspace in a flat tensor of at least ``carved_size(workspace_shapes)`` elements."""
        grad, obs, *rest = carve(buffer, self.workspace_shapes(groups, samples))
        critic_obs = rest.pop(0) if self.critic_dim else None
        grad[:, self._used :] = 0.0  # these columns have no parameters
        tensors = iter(rest)
        parts = [list(itertools.islice(tensors, len(shapes))) for shapes in self._tape_shapes(groups, samples)]
        seen = (obs, obs if critic_obs is None else critic_obs)
        tapes = [make_tape(x, part, widths, self.fused) for x, part, widths in zip(seen, parts, self.widths)]
        d_weights, d_sigma = self.views(grad)
        return Workspace(obs, critic_obs, tapes, grad, [[matrices(w) for w in layers] for layers in d_weights], d_sigma)


def units_of_critic(network: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the widths of a separate critic's hidden layers: ``mlp.critic_units``, or those of the policy."""
    return tuple(network["mlp"].get("critic_units") or network["mlp"]["units"])


def with_bias(dim: int) -> int:
    """Return the width of a network's input for observations of a width."""
    return round_up(dim + 1, 4)


class Workspace(NamedTuple):
    """Buffers for learning from a minibatch of K groups and N samples."""

    obs: Tensor  # (K, N, inputs): normalized observations, and the ones
    critic_obs: Tensor | None  # (K, N, critic_inputs), if the critic has its own
    tapes: list[Tape]  # one for each MLP
    grad: Tensor  # (K, P), by all parameters
    d_weights: list[list[Tensor]]  # views of grad: by the weights of each MLP, in the shapes of ``matrices``
    d_sigma: Tensor  # (K, 1, A), a view of grad


# memory, before anything is allocated

WORKSPACE_BYTES = 3 << 29  # memory for all groups that learn at once on CUDA
_FLOAT = 4
# numbers that are neither weights, nor rollout, nor in the carved workspace; counted from the code
_PREPARED_PER_SAMPLE = 14  # advantages, returns, old log-probabilities, and temporaries
_LOSS_PER_SAMPLE, _LOSS_PER_ACTION = 16, 6
_NOISE_BYTES = 44  # per number while a rollout's noise is drawn: float32, and int64 counters
_CPU_WORKSPACE = 1.05  # factor on the learner's tensors, because torch's CPU kernels pack and copy matrices


@dataclass(frozen=True)
class LearnerBytes:
    """Bytes of the learner.

    Attributes:
        per_group: bytes that every group keeps: weights, Adam's moments, rollout.
        workspace: additional bytes of a group while it learns.
        fitting: number of groups whose workspaces fit in ``WORKSPACE_BYTES``.
    """

    per_group: int
    workspace: int
    fitting: int

    def at_once(self, num_groups: int) -> int:
        """Return the number of groups that learn at once on CUDA, in one workspace; the others wait.

        If groups have to wait, half of the workspace is used. On an H100, twice as many turns cost 250 groups of ANYmal
        less than 1 % of the speed.
        """
        return num_groups if num_groups <= self.fitting else max(1, self.fitting // 2)

    def total(self, num_groups: int) -> int:
        """Return the bytes of ``num_groups`` groups."""
        return num_groups * self.per_group + self.at_once(num_groups) * self.workspace


def learner_bytes(
    obs_dim: int, action_dim: int, num_envs: int, params: Mapping[str, Any], device: torch.device, critic_dim: int = 0
) -> LearnerBytes:
    """Compute the learner's memory for groups of ``num_envs`` environments.

    Args:
        obs_dim, action_dim, critic_dim: widths of the widest group; the last one is 0 if critics see the policy's.
        params: the ``params`` of an rl_games YAML.

    Raises:
        ValueError: ``params`` has an unsupported feature; names key and remedy.
    """
    hp = Hyperparameters.from_params(params, num_envs)
    architecture = Architecture.of(params, obs_dim, action_dim, device, Backend.choose(device), critic_dim)
    samples = num_envs * hp.horizon_length
    minibatch = samples // hp.num_minibatches
    copies = 3 if device.type == "cpu" else 4  # parameters, both of Adam's moments, and transposed ones
    weights = copies * architecture.size
    rollout = samples * (architecture.inputs + architecture.critic_inputs + 2 * action_dim + 4)
    step = num_envs * (obs_dim + critic_dim + action_dim + 1)  # observations in, actions out, last values
    carved = carved_size(architecture.workspace_shapes(1, minibatch))
    loss = minibatch * (_LOSS_PER_SAMPLE + _LOSS_PER_ACTION * action_dim)
    workspace = _FLOAT * (carved + loss + samples * _PREPARED_PER_SAMPLE)
    return LearnerBytes(_FLOAT * (weights + rollout + step), workspace, max(1, WORKSPACE_BYTES // workspace))


def estimate(params: Params, num_envs: int, num_seeds: int, device: torch.device) -> MemoryEstimate:
    """Return an estimate of the trainer's memory, see ``Trainer.memory``. Raises ValueError as ``learner_bytes``."""
    samples = num_envs * Hyperparameters.from_params(params, num_envs).horizon_length

    @cache
    def learner(widths: Widths) -> LearnerBytes:
        obs_dim, action_dim, *critic_dim = widths
        return learner_bytes(obs_dim, action_dim, num_envs, params, device, *critic_dim)

    def needed(widths: Sequence[Widths]) -> int:
        greatest = widest(widths)
        noise = _NOISE_BYTES * num_seeds * samples * greatest[1]  # groups with equal seeds share it
        if device.type != "cpu":
            return learner(greatest).total(len(widths)) + noise
        # a CPU does not pad groups to the widest, and as many learn at once as there are cores
        at_once = min(len(widths), usable_cpus())
        workspace = int(_CPU_WORKSPACE * learner(greatest).workspace)
        return sum(learner(group).per_group for group in widths) + at_once * workspace + noise

    return needed
