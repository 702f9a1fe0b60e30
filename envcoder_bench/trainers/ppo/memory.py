"""Estimation of grouped PPO's memory before anything is allocated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from envcoder_bench.trainers.base import MemoryEstimate, Params, Widths, widest
from envcoder_bench.trainers.ppo.architecture import Architecture
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.mlp import carved_size
from isaacgym_mujoco.process import usable_cpus

WORKSPACE_BYTES = 3 << 29  # of all groups, if they learn at once on CUDA
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
        # on a CPU groups are not padded to the widest, and the number that learn at once is that of the cores
        at_once = min(len(widths), usable_cpus())
        workspace = int(_CPU_WORKSPACE * learner(greatest).workspace)
        return sum(learner(group).per_group for group in widths) + at_once * workspace + noise

    return needed
