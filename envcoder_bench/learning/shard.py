"""A block of groups that learn together, and its window on the environment's tensors."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench import noise
from envcoder_bench.learning.capture import CapturedUpdate
from envcoder_bench.learning.learner import GroupedLearner

NoiseKey = Tuple[Tuple[int, ...], int]  # distinct seeds and width: shards that agree in both share one draw


class Shard:
    """Consecutive groups in one GroupedLearner, with the rollout they are playing.

    The learner sees copies of its own shape alone, so on CPU, with a shard for each group, its results are bitwise
    the same whatever runs beside it.

    Args:
        groups: which groups of the environment.
        obs_dims, action_dims, seeds: of these groups.
        params: of rl_games' YAML.
        num_envs: environments per group.
        device: where to learn.
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
    ) -> None:
        self.groups = groups
        self.learner = GroupedLearner(obs_dims, action_dims, seeds, params, num_envs, device)
        self.rollout = self.learner.new_rollout()
        self._update = CapturedUpdate(self.learner, self.rollout)
        distinct = sorted(set(seeds))
        self.noise_key: NoiseKey = (tuple(distinct), self.learner.action_dim)
        self.seeds = torch.tensor(distinct, device=device).view(-1, 1, 1, 1)
        # where each group finds its noise among the distinct seeds'; None: there is one seed for all
        self._draw = None if len(distinct) == 1 else torch.tensor([distinct.index(s) for s in seeds], device=device)
        self.active = True
        self._alive: Optional[Tensor] = None

    def set_alive(self, alive: Sequence[bool]) -> None:
        """Say which of the shard's groups go on; the others do nothing and learn nothing."""
        self.active = any(alive)
        device = self.learner.network.flat.device
        self._alive = None if all(alive) else torch.tensor(list(alive), device=device)

    def _own(self, obs: Tensor) -> Tensor:
        return obs[self.groups, :, : self.learner.obs_dim].contiguous()

    def _write_actions(self, actions: Tensor, out: Tensor) -> None:
        if self._alive is not None:
            actions = actions.masked_fill(~self._alive.view(-1, 1, 1), 0.0)
        out[self.groups, :, : self.learner.action_dim] = actions

    def act(self, t: int, obs: Tensor, numbers: Tensor, out: Tensor) -> None:
        """Sample step t's actions into ``out``.

        Args:
            t: step of the rollout.
            obs: ``(G, n, obs_max)`` of all groups of the environment.
            numbers: noise of the whole rollout ``(distinct seeds, T, n, A)``.
            out: ``(G, n, act_max)`` of all groups.
        """
        rollout, own = self.rollout, self._own(obs)
        step_noise = numbers[:, t] if self._draw is None else numbers[:, t].index_select(0, self._draw)
        result = self.learner.act(own, step_noise)
        rollout.obs[:, :, t, : self.learner.obs_dim] = own
        rollout.actions[:, :, t] = result["actions"]
        rollout.mus[:, :, t] = result["mus"]
        rollout.values[:, :, t] = result["values"]
        self._write_actions(result["actions"], out)

    def observe(self, t: int, rewards: Tensor, dones: Tensor, time_outs: Tensor) -> None:
        """Remember what step t brought: ``(G, n)`` each."""
        self.rollout.rewards[:, :, t] = rewards[self.groups]
        self.rollout.dones[:, :, t] = dones[self.groups]
        self.rollout.time_outs[:, :, t] = time_outs[self.groups]

    def act_deterministically(self, obs: Tensor, out: Tensor) -> None:
        """Write mean actions for ``obs`` ``(G, n, obs_max)``, n being any number, into ``out`` ``(G, n, act_max)``."""
        self._write_actions(self.learner.policy(self._own(obs)), out)

    def update(self, last_obs: Tensor, epoch: int) -> Dict[str, Tensor]:
        """Learn from the rollout, which ended at ``last_obs`` ``(G, n, obs_max)``; statistics as the learner's."""
        self.rollout.last_values.copy_(self.learner.values(self._own(last_obs)))
        return self._update(epoch, self._alive)


def draw_noise(shards: Sequence[Shard], first_step: int, steps: int) -> List[Tensor]:
    """Draw the exploration noise of one rollout: for each shard ``(distinct seeds, steps, num_envs, action_dim)``.

    Lane and column of the counter are environment in the group and action, so the k-th environments of all groups
    with one seed explore alike.
    """
    device = shards[0].seeds.device
    step = torch.arange(first_step, first_step + steps, device=device).view(-1, 1, 1)
    drawn: Dict[NoiseKey, Tensor] = {}
    for shard in shards:
        if shard.noise_key not in drawn:
            n, width = shard.learner.num_envs, shard.learner.action_dim
            drawn[shard.noise_key] = noise.normal(shard.seeds, step, noise.ACTION, n, width, device)
    return [drawn[shard.noise_key] for shard in shards]
