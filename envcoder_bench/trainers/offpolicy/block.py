"""A block of groups that learn together off-policy: their networks, replay, reward scale and random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.trainers.base import Widths, widest
from envcoder_bench.trainers.offpolicy.learner import Learner
from envcoder_bench.trainers.offpolicy.replay import Replay, RewardScale
from envcoder_bench.trainers.offpolicy.settings import SACSettings

FIRST_UPDATE = 1 << 41  # counter of the first update's numbers, beyond the control steps of trainings and evaluations


class OffPolicyBlock:
    """Consecutive groups in one Learner, and their slices of the environment's tensors.

    All numbers come from counters of (seed, step), so that groups of equal seeds get equal ones.

    Args:
        groups: the groups' slice of the environment's groups.
        widths, seeds, all_settings: of these groups.
        total_steps: see ``Replay``.
    """

    def __init__(
        self, groups: slice, widths: Sequence[Widths], seeds: Sequence[int],
        all_settings: Sequence[SACSettings], num_envs: int, total_steps: int | None, device: torch.device,
    ) -> None:  # fmt: skip
        self.groups, self.num_envs, self.device = groups, num_envs, device
        self.widths, self.padded = list(widths), widest(widths)
        self.learner = Learner(widths, self.padded, seeds, all_settings, device)
        self.settings = settings = all_settings[0]
        self.replay = Replay(settings, len(seeds), num_envs, self.padded, total_steps, device)
        self.rewards = RewardScale(settings, len(seeds), num_envs, device)
        self.active = True
        self.updates = torch.zeros((), dtype=torch.int64, device=device)  # counts them, for random numbers
        # numbers of equal seeds are drawn once
        distinct = sorted(set(seeds))
        self._distinct = torch.tensor(distinct, device=device)
        self._seed_of_group = torch.tensor([distinct.index(seed) for seed in seeds], device=device)
        repeats = torch.arange(1, settings.noise_repeat_max + 1, device=device).double()
        shares = repeats**-settings.noise_repeat_exponent
        self._repeat_shares = (shares / shares.sum()).cumsum(0)
        self._noise = torch.zeros(len(seeds), settings.horizon_length, num_envs, self.padded[1], device=device)

    # acting

    def draw_noise(self, first_step: int, uniform_steps: int) -> None:
        """Draw an iteration's exploration: actions within +-1 for the first steps, then normal noise of the policy.

        Noise is repeated for a random number of steps, within the iteration.
        """
        seeds, shape = self._distinct.view(-1, 1, 1, 1), (self.num_envs, self.padded[1], self.device)
        steps = torch.arange(first_step, first_step + self.settings.horizon_length, device=self.device)
        drawn = noise.normal(seeds, self._noise_steps(steps).view(len(seeds), -1, 1, 1), Purpose.ACTION, *shape)
        if uniform_steps:
            uniform = noise.uniform(seeds, steps[:uniform_steps].view(-1, 1, 1), Purpose.ACTION, *shape)
            drawn[:, :uniform_steps] = 2.0 * uniform - 1.0
        torch.index_select(drawn, 0, self._seed_of_group, out=self._noise)

    def _noise_steps(self, steps: Tensor) -> Tensor:
        """Return the step whose noise each of consecutive ``steps`` has, for each distinct seed: ``(seeds, steps)``."""
        seeds, count = self._distinct.view(-1, 1, 1), len(steps)
        numbers = noise.uniform(seeds, steps[0], Purpose.POLICY_SAMPLE, 1, count, self.device).squeeze(1).double()
        repeats = 1 + torch.searchsorted(self._repeat_shares, numbers).clamp_(max=len(self._repeat_shares) - 1)
        ends = repeats.cumsum(dim=1)
        positions = torch.arange(count, device=self.device).expand(len(ends), count).contiguous()
        run = torch.searchsorted(ends, positions, right=True)
        return steps[0] + (ends - repeats).gather(1, run)

    def act(self, t: Tensor | int, obs: Tensor, uniform: bool) -> Tensor:
        """Return actions ``(groups, num_envs, action)`` of the iteration's step ``t``, for all groups' observations."""
        numbers = self._noise[:, t] if isinstance(t, int) else self._noise.index_select(1, t).squeeze(1)
        return numbers * self.learner.own_actions if uniform else self.learner.act(self._rows(obs, 0), numbers)

    def act_deterministically(self, obs: Tensor) -> Tensor:
        """Return mean actions for observations ``(all groups, n, obs_max)``, for any n."""
        return self.learner.act(self._rows(obs, 0), None)

    def _rows(self, x: Tensor, column: int) -> Tensor:
        """Return these groups' rows of a tensor of all groups, with their own padding."""
        return x[self.groups, :, : self.padded[column]]

    # recording

    def begin(self, obs: Tensor, critic_obs: Tensor | None, actions: Tensor) -> None:
        """Write a step's observations of all groups, and these groups' actions."""
        has_own = len(self.padded) > 2 and self.padded[2] > 0
        seen = self._rows(critic_obs, 2) if has_own and critic_obs is not None else None
        self.replay.begin(self._rows(obs, 0), seen, actions)

    def finish(self, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """Write the results of the step, ``(all groups, num_envs)``."""
        reward, terminated, truncated = (x[self.groups] for x in (reward, terminated, truncated))
        self.replay.finish(reward, terminated, truncated)
        self.rewards.observe(reward, terminated | truncated)

    # learning

    def update(self, with_actor: bool) -> None:
        """Sample from the replay, and update."""
        samples, width = self.settings.batch_size, self.padded[1]
        with torch.no_grad():
            numbers = self._numbers(noise.uniform, Purpose.REPLAY_SAMPLE, 0, samples, 2)
            batch = self.replay.sample(numbers, self.rewards.factor())
            # lanes of the states, then lanes of the next states
            actor_noise = self._numbers(noise.normal, Purpose.POLICY_SAMPLE, 0, samples, width) if with_actor else None
            next_noise = self._numbers(noise.normal, Purpose.POLICY_SAMPLE, samples, samples, width)
        # a graph is captured in this thread, and autograd would use another one
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            self.learner.update(batch, actor_noise, next_noise)
        self.updates.add_(1)

    def _numbers(self, draw: Any, purpose: Purpose, first_lane: int, lanes: int, columns: int) -> Tensor:
        """Draw the numbers of this update, ``(groups, lanes, columns)``."""
        every = torch.arange(first_lane, first_lane + lanes, device=self.device)
        if self.device.type == "cpu" and len(self._distinct) == 1:
            step = int(self.updates.item()) + FIRST_UPDATE
            drawn = draw(int(self._distinct.item()), step, purpose, every, columns)
            return drawn.expand(len(self._seed_of_group), lanes, columns)
        seeds = self._distinct.repeat_interleave(lanes).unsqueeze(1)
        step = self.updates + FIRST_UPDATE
        drawn = draw(seeds, step, purpose, every.repeat(len(self._distinct)), columns, self.device)
        return drawn.view(-1, lanes, columns).index_select(0, self._seed_of_group)

    # state

    def own(self, group: int) -> dict[str, Any]:
        """Return the state of the block's ``group`` on the CPU, without padding."""
        names = ("obs", "action", "critic_obs")
        return {
            "learner": self.learner.own(group),
            "replay": self.replay.own(group, dict(zip(names, self.widths[group]))),
            "rewards": {name: x[group].cpu().clone() for name, x in self.rewards.tensors.items()},
        }

    def set_own(self, group: int, state: Mapping[str, Any], written: int, updates: int) -> None:
        """Restore what ``own`` returned. Raises ValueError if it is of other widths."""
        self.learner.set_own(group, state["learner"])
        self.replay.set_own(group, written, state["replay"])
        for name, x in self.rewards.tensors.items():
            x[group].copy_(state["rewards"][name])
        self.updates.fill_(updates)
