"""A block of groups that learn together, and its window on the environment's tensors."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.rollout import StepIndex, put, take

NoiseKey = Tuple[Tuple[int, ...], int]  # distinct seeds and width: blocks that agree in both share one draw


class LearnerBlock:
    """Consecutive groups in one GroupedLearner, with the rollout they are playing.

    The learner sees copies of its own shape alone, so on CPU, with a block for each group, its results are bitwise
    the same whatever runs beside it. All memory stays where it is, as CUDA graphs need it.

    Args:
        groups: which groups of the environment.
        obs_dims, action_dims, seeds: of these groups.
        params: of rl_games' YAML.
        num_envs: environments per group.
        device: where to learn.
        answers: ``(3, G, n, T)``, where rewards, dones and time-outs of all groups will be found.
    """

    def __init__(
        self,
        groups: slice,
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        params: Mapping[str, Any],
        num_envs: int,
        device: torch.device,
        answers: Tensor,
    ) -> None:
        self.groups = groups
        self.learner = GroupedLearner(obs_dims, action_dims, seeds, params, num_envs, device)
        self.rollout = self.learner.new_rollout(answers[:, groups])
        distinct = sorted(set(seeds))
        self.noise_key: NoiseKey = (tuple(distinct), self.learner.action_dim)
        self.seeds = torch.tensor(distinct, device=device).view(-1, 1, 1, 1)
        # where each group finds its noise among the distinct seeds'; None: there is one seed for all
        self._draw = None if len(distinct) == 1 else torch.tensor([distinct.index(s) for s in seeds], device=device)
        self.active = True
        # a single group that has failed is passed over on a CPU; in a larger block, or a graph, it is masked out
        masked = len(seeds) > 1 or device.type == "cuda"
        self._alive = torch.ones(len(seeds), dtype=torch.bool, device=device) if masked else None
        self._dead = None if self._alive is None else ~self._alive.view(-1, 1, 1)

    def set_alive(self, alive: Sequence[bool]) -> None:
        """Say which of the block's groups go on; the others do nothing and learn nothing."""
        self.active = any(alive)
        if self._alive is not None and self._dead is not None:
            self._alive.copy_(torch.tensor(list(alive)))
            torch.logical_not(self._alive.view(-1, 1, 1), out=self._dead)

    def _own(self, obs: Tensor) -> Tensor:
        return obs[self.groups, :, : self.learner.obs_dim].contiguous()

    def _write_actions(self, actions: Tensor, out: Tensor) -> None:
        if self._dead is not None:
            actions = actions.masked_fill(self._dead, 0.0)
        out[self.groups, :, : self.learner.action_dim] = actions

    def act(self, t: StepIndex, obs: Tensor, numbers: Tensor, out: Tensor) -> None:
        """Sample step t's actions into ``out``.

        Args:
            t: step of the rollout.
            obs: ``(G, n, obs_max)`` of all groups of the environment.
            numbers: noise of the whole rollout ``(distinct seeds, T, n, A)``.
            out: ``(G, n, act_max)`` of all groups.
        """
        rollout, numbers, width = self.rollout, take(numbers, 1, t), self.learner.obs_dim
        put(rollout.obs[..., :width], t, obs[self.groups, :, :width])
        own = take(rollout.obs, 2, t)
        result = self.learner.act(own, numbers if self._draw is None else numbers.index_select(0, self._draw))
        put(rollout.actions, t, result["actions"])
        put(rollout.mus, t, result["mus"])
        put(rollout.values, t, result["values"])
        self._write_actions(result["actions"], out)

    def act_deterministically(self, obs: Tensor, out: Tensor) -> None:
        """Write mean actions for ``obs`` ``(G, n, obs_max)``, n being any number, into ``out`` ``(G, n, act_max)``."""
        self._write_actions(self.learner.policy(self._own(obs)), out)

    def update(self, last_obs: Tensor, epoch: int, buffer: Tensor) -> dict[str, Tensor]:
        """Learn from the rollout, which ended at ``last_obs`` ``(G, n, obs_max)``; the rest as the learner's."""
        self.rollout.last_values.copy_(self.learner.values(self._own(last_obs)))
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

    Lane and column of the counter are environment in the group and action, so the k-th environments of all groups
    with one seed explore alike.
    """
    drawn = set()
    for block in blocks:
        if block.noise_key not in drawn:
            drawn.add(block.noise_key)
            out = into[block.noise_key]
            step = torch.arange(first_step, first_step + out.shape[1], device=out.device).view(-1, 1, 1)
            out.copy_(noise.normal(block.seeds, step, noise.ACTION, out.shape[2], out.shape[3], out.device))


def cut_blocks(num_groups: int, largest: int) -> list[slice]:
    """Cut the groups into the fewest blocks of at most ``largest``, of nearly equal size."""
    count = -(-num_groups // largest)
    bounds = [num_groups * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in zip(bounds, bounds[1:])]
