"""A block of groups that learn together, and its slices of the environment's tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.trainers.base import padded_widths, widest
from envcoder_bench.trainers.ppo import acting
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.rollout import StepIndex

NoiseKey = tuple[tuple[int, ...], int]  # distinct seeds and width; blocks with equal keys share their noise


class LearnerBlock:
    """Consecutive groups in one GroupedLearner, with their rollout.

    The learner works on copies of its own shape, so that on CPU, with one block per group, its results are bitwise
    independent of other blocks. All memory is fixed, as CUDA graphs require.

    Args:
        groups: the groups' slice of the environment's groups.
        obs_dims, action_dims, seeds: widths and seeds of these groups.
        critic_dims: widths of these groups' critic observations; empty: their critics see the policy's observations.
        answers: ``(3, G, n, T)``, the storage of rewards, dones and time-outs of all groups.
        numbers: numbers of these groups, see ``GroupedLearner``.
    """

    def __init__(
        self,
        backend: Backend,
        groups: slice,
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        params: Mapping[str, Any],
        num_envs: int,
        device: torch.device,
        answers: Tensor,
        critic_dims: Sequence[int] = (),
        numbers: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self.groups = groups
        dims = zip(obs_dims, action_dims, *([critic_dims] if critic_dims else []))
        widths = padded_widths(*widest(dims)) if backend.fixed_order else None
        self.learner = GroupedLearner(
            obs_dims, action_dims, seeds, params, num_envs, device, widths=widths, backend=backend,
            critic_dims=critic_dims, numbers=numbers,
        )  # fmt: skip
        self.rollout = self.learner.new_rollout(answers[:, groups])
        distinct = sorted(set(seeds))
        self.noise_key: NoiseKey = (tuple(distinct), self.learner.action_dim)
        self.seeds = torch.tensor(distinct, device=device).view(-1, 1, 1, 1)
        # index of each group's noise among the distinct seeds; None if all seeds are equal
        self._draw = None if len(distinct) == 1 else torch.tensor([distinct.index(s) for s in seeds], device=device)
        self.active = True
        # a CPU skips a block of a single failed group; in a larger block, or a graph, the group is masked out
        masked = len(seeds) > 1 or device.type == "cuda"
        self._alive = torch.ones(len(seeds), dtype=torch.bool, device=device) if masked else None
        self._dead = None if self._alive is None else ~self._alive.view(-1, 1, 1)

    def set_alive(self, alive: Sequence[bool]) -> None:
        """Set which of the block's groups continue; the others neither act nor learn."""
        self.active = any(alive)
        if self._alive is not None and self._dead is not None:
            self._alive.copy_(torch.tensor(list(alive)))
            torch.logical_not(self._alive.view(-1, 1, 1), out=self._dead)

    def count(self, obs: Tensor, critic_obs: Tensor | None) -> None:
        """Add a step's observations to the statistics; see ``act``."""
        seen = self._critic_rows(critic_obs)
        self.learner.count(self._rows(obs).contiguous(), seen, self._alive)

    def act(self, t: StepIndex, obs: Tensor, critic_obs: Tensor | None, numbers: Tensor, out: Tensor) -> None:
        """Sample step t's actions into ``out``; see ``acting.act``.

        Args:
            t: step of the rollout.
            obs: ``(G, n, obs_max)``, observations of all groups of the environment.
            critic_obs: ``(G, n, critic_max)``, if any group has them.
            numbers: noise of the whole rollout, ``(distinct seeds, T, n, A)``.
            out: ``(G, n, act_max)``, actions of all groups.
        """
        seen, rows = self._critic_rows(critic_obs), out[self.groups]
        acting.act(self.learner, self.rollout, t, self._rows(obs), numbers, self._draw, self._dead, rows, seen)

    def _rows(self, obs: Tensor) -> Tensor:
        return obs[self.groups, :, : self.learner.obs_dim]

    def _critic_rows(self, critic_obs: Tensor | None) -> Tensor | None:
        if critic_obs is None or not self.learner.critic_dim:
            return None
        return critic_obs[self.groups, :, : self.learner.critic_dim]

    def act_deterministically(self, obs: Tensor, out: Tensor) -> None:
        """Write mean actions for ``obs`` ``(G, n, obs_max)`` to ``out`` ``(G, n, act_max)``, for any n."""
        acting.write_actions(self.learner.policy(self._rows(obs).contiguous()), self._dead, out[self.groups])

    def update(self, last_obs: Tensor, last_critic_obs: Tensor | None, epoch: int, buffer: Tensor) -> dict[str, Tensor]:
        """Learn from the rollout, which ended at ``last_obs`` ``(G, n, obs_max)``; see ``GroupedLearner.update``."""
        seen = self._critic_rows(last_critic_obs)
        seen = self._rows(last_obs) if seen is None else seen
        self.rollout.last_values.copy_(self.learner.values(seen.contiguous()))
        return self.learner.update(self.rollout, epoch, self._alive, buffer)


def new_noise(blocks: Sequence[LearnerBlock], steps: int) -> dict[NoiseKey, Tensor]:
    """Allocate the exploration noise of one rollout: ``(distinct seeds, steps, num_envs, action_dim)`` by key."""
    return {
        block.noise_key: torch.empty(
            block.seeds.shape[0], steps, block.learner.num_envs, block.learner.action_dim, device=block.seeds.device
        )
        for block in blocks
    }


def draw_noise(blocks: Sequence[LearnerBlock], first_step: int, into: Mapping[NoiseKey, Tensor]) -> None:
    """Draw the exploration noise of one rollout.

    The counter's lane is the environment's index in the group, its column the action, so that the k-th environments of
    groups with equal seeds get equal noise.
    """
    drawn = set()
    for block in blocks:
        if block.noise_key not in drawn:
            drawn.add(block.noise_key)
            out = into[block.noise_key]
            step = torch.arange(first_step, first_step + out.shape[1], device=out.device).view(-1, 1, 1)
            out.copy_(noise.normal(block.seeds, step, Purpose.ACTION, out.shape[2], out.shape[3], out.device))
