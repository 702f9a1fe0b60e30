"""The replay ring of some groups, and the scale of their rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envcoder_bench.trainers.base import Widths
from envcoder_bench.trainers.offpolicy.settings import SACSettings

TERMINATED, TRUNCATED = 1, 2  # how an episode ended; 0: it went on


class Batch(NamedTuple):
    """Samples of each group, ``(groups, samples, ...)``.

    Attributes:
        reward: discounted sum of ``n_step`` rewards, or fewer where the episode terminated.
        continues: 0 where the episode terminated within these steps, else 1.
        valid: 0 where it was truncated within these steps, so that the state after them is not known; else 1.
        next_obs, next_critic_obs: after ``n_step`` steps.
    """

    obs: Tensor
    critic_obs: Tensor
    action: Tensor
    reward: Tensor
    continues: Tensor
    valid: Tensor
    next_obs: Tensor
    next_critic_obs: Tensor


class Replay:
    """The last control steps of some groups, ``(slots, groups, num_envs, ...)``; step t is in slot t % slots.

    The state after a step is the observation of a later slot, so that each observation is stored once.

    Args:
        widths: padded widths of observations, actions and, if critics have their own, critic observations.
        total_steps: control steps of the whole training, beyond which no memory is needed; None: it is not known.

    Attributes:
        written: number of control steps written.
    """

    def __init__(
        self, settings: SACSettings, groups: int, num_envs: int, widths: Widths, total_steps: int | None,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.settings, self.groups, self.num_envs = settings, groups, num_envs
        self.slots = ring_slots(settings, num_envs, total_steps)
        dtype = torch.bfloat16 if settings.replay_dtype == "bfloat16" else torch.float32

        def ring(*width: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(self.slots, groups, num_envs, *width, dtype=dtype, device=device)

        obs, action, critic = (*widths, 0)[:3]
        self.obs, self.action = ring(obs, dtype=dtype), ring(action, dtype=dtype)
        self.critic_obs = ring(critic, dtype=dtype) if critic else None
        self.reward, self.end = ring(), ring(dtype=torch.uint8)
        self.written = 0
        # what captured graphs read: the slot of the oldest step, and the number of steps with a state after them
        self._oldest, self._ready = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        self._group = torch.arange(groups, device=device).unsqueeze(1)

    def begin(self, obs: Tensor, critic_obs: Tensor | None, action: Tensor) -> None:
        """Write the observations ``(groups, num_envs, width)`` and the actions of a step."""
        slot = self.written % self.slots
        self.obs[slot].copy_(obs)
        self.action[slot].copy_(action)
        if self.critic_obs is not None and critic_obs is not None:
            self.critic_obs[slot].copy_(critic_obs)

    def finish(self, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """Write the results ``(groups, num_envs)`` of the step that ``begin`` began."""
        slot = self.written % self.slots
        self.reward[slot].copy_(reward)
        self.end[slot].copy_(TERMINATED * terminated + TRUNCATED * truncated)
        self.written += 1
        self._count()

    def _count(self) -> None:
        self._oldest.fill_(max(0, self.written - self.slots) % self.slots)
        self._ready.fill_(max(0, min(self.written, self.slots) - self.settings.n_step))

    def sample(self, numbers: Tensor, scale: Tensor) -> Batch:
        """Take samples by uniform numbers ``(groups, samples, 2)``; ``scale`` ``(groups,)`` multiplies rewards."""
        s, groups, samples = self.settings, *numbers.shape[:2]
        age = (numbers[..., 0].double() * self._ready).long()
        lane = (numbers[..., 1].double() * self.num_envs).long()
        rows = [
            (((self._oldest + age + k) % self.slots) * self.groups + self._group) * self.num_envs + lane
            for k in range(s.n_step + 1)
        ]

        def take(x: Tensor, row: Tensor) -> Tensor:
            return x.view(-1, x.shape[-1]).index_select(0, row.flatten()).view(groups, samples, -1).float()

        continues, valid = torch.ones(2, groups, samples, device=scale.device)
        reward = torch.zeros_like(valid)
        going = continues
        for k, row in enumerate(rows[:-1]):
            end = self.end.view(-1)[row]
            reward = reward + s.gamma**k * going * self.reward.view(-1)[row]
            continues = continues * (1.0 - going * (end == TERMINATED))
            valid = valid * (1.0 - going * (end == TRUNCATED))
            going = going * (end == 0)
        obs, next_obs = take(self.obs, rows[0]), take(self.obs, rows[-1])
        critic_obs, next_critic_obs = obs, next_obs
        if self.critic_obs is not None:
            critic_obs, next_critic_obs = take(self.critic_obs, rows[0]), take(self.critic_obs, rows[-1])
        reward = reward * scale.unsqueeze(1)
        return Batch(obs, critic_obs, take(self.action, rows[0]), reward, continues, valid, next_obs, next_critic_obs)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {"obs": self.obs, "action": self.action, "reward": self.reward, "end": self.end}
        return tensors if self.critic_obs is None else {**tensors, "critic_obs": self.critic_obs}

    def own(self, group: int, widths: Mapping[str, int]) -> dict[str, Any]:
        """Return a group's steps on the CPU, the oldest first, with the group's own widths."""
        count = min(self.written, self.slots)
        slots = torch.arange(self.written - count, self.written) % self.slots
        rows = {}
        for name, x in self._tensors().items():
            part = x[:count, group] if count < self.slots or self.written == count else x[slots.to(x.device), group]
            rows[name] = (part[..., : widths[name]] if name in widths else part).cpu().clone()
        return rows

    def set_own(self, group: int, written: int, values: Mapping[str, Tensor]) -> None:
        """Restore what ``own`` returned after ``written`` steps. Raises ValueError if it is of other widths."""
        count = min(len(values["reward"]), self.slots)
        slots = torch.arange(written - count, written) % self.slots
        for name, x in self._tensors().items():
            part = values[name][-count:] if count else values[name][:0]
            target = x[:, group]
            if part.shape[1] != self.num_envs:
                raise ValueError(f"the state's {name} is of {part.shape[1]} environments, not {self.num_envs}")
            if part.dim() > 2:
                target = target[..., : part.shape[2]]
            target[slots.to(x.device)] = part.to(x.device)
        self.written = written
        self._count()


def ring_slots(settings: SACSettings, num_envs: int, total_steps: int | None) -> int:
    """Return the number of control steps that the ring of a group holds."""
    slots = settings.replay_buffer_size // num_envs
    return slots if total_steps is None else max(settings.n_step + 2, min(slots, total_steps))


class RewardScale:
    """Scales rewards by the deviation of a group's discounted returns, or by the greatest return if that asks for more.

    Source: rsl_rl_flashsac, utils/reward_normalization.py.
    """

    def __init__(self, settings: SACSettings, groups: int, num_envs: int, device: torch.device) -> None:
        self.settings = settings
        zeros = torch.zeros(groups, device=device)
        self.tensors = {
            "returns": torch.zeros(groups, num_envs, device=device), "greatest": zeros.clone(), "mean": zeros.clone(),
            "var": torch.ones(groups, device=device), "count": zeros.clone(),
        }  # fmt: skip

    def observe(self, reward: Tensor, ended: Tensor) -> None:
        """Count the rewards of a step, and which episodes ended with it, ``(groups, num_envs)``."""
        returns, greatest, mean, var, count = self.tensors.values()
        returns.mul_(self.settings.gamma * ended.logical_not()).add_(reward)
        greatest.copy_(torch.maximum(greatest, returns.abs().amax(dim=1)))
        samples = returns.shape[1]
        total = count + samples
        delta = returns.mean(dim=1) - mean
        squares = var * (count + 1e-4) + returns.var(dim=1, correction=0) * samples
        var.copy_((squares + delta.square() * count * samples / total) / total)
        mean.add_(delta * samples / total)
        count.copy_(total)

    def factor(self) -> Tensor:
        """Return what rewards are multiplied with, ``(groups,)``."""
        deviation = (self.tensors["var"] + 1e-8).sqrt()
        return 1.0 / torch.maximum(deviation, self.tensors["greatest"] / self.settings.value_limit)
