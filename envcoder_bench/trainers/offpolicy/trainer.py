"""The trainer of grouped FlashSAC: off-policy, with a replay ring for each group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout, common
from envcoder_bench.core.profiling import span
from envcoder_bench.core.torch_settings import is_deterministic
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import MemoryEstimate, Params, Stats, Widths, widest
from envcoder_bench.trainers.blocks import BlockTrainer, CapturedFunction, cut_equal_blocks
from envcoder_bench.trainers.offpolicy.block import OffPolicyBlock
from envcoder_bench.trainers.offpolicy.memory import estimate, groups_at_once
from envcoder_bench.trainers.offpolicy.policy import policy_from_params, policy_module
from envcoder_bench.trainers.offpolicy.settings import NUMBERS, SACSettings, keys
from envcoder_bench.trainers.sections import with_numbers


class GroupedSAC(BlockTrainer):
    """Trains the groups in blocks: one for each group on a CPU and in deterministic runs, else as memory allows.

    It updates after the control steps, in ``record``; ``learn`` only returns the statistics of the last update:
    ``entropy``, ``value_loss``, ``policy_loss`` and ``alpha``.

    Raises:
        ValueError: the params have an invalid value; names the key.
    """

    sections = ("network",)
    deterministic = True

    def __init__(
        self,
        layout: GroupLayout,
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        params: Params,
        device: torch.device,
        critic_dims: Sequence[int] = (),
        numbers: Sequence[Mapping[str, float]] = (),
    ) -> None:
        every = [
            SACSettings.from_params(with_numbers(params, values), layout.envs_per_group)
            for values in numbers or [{}] * layout.num_groups
        ]
        self._settings = s = every[0]
        torch.set_float32_matmul_precision(s.matmul_precision)
        self.horizon = s.horizon_length
        groups, n, on_cpu = layout.num_groups, layout.envs_per_group, device.type == "cpu"
        widths: list[Widths] = list(zip(obs_dims, action_dims, list(critic_dims) or [0] * groups))
        self._padded = widest(widths)
        self._begin(layout, device, self._padded[0])
        at_once = 1 if on_cpu or is_deterministic() else groups_at_once(s, groups)
        total = params["config"].get("max_epochs")
        steps = None if total is None or total < 0 else total * s.horizon_length
        self.blocks = [
            OffPolicyBlock(members, widths[members], seeds[members], every[members], n, steps, device)
            for members in _cut(widths, at_once)
        ]

        # captured graphs read fixed observations
        self._seen = torch.zeros(groups, n, self._padded[0], device=device)
        capture = partial(CapturedFunction, device=device, pool=self._pool)
        self._explore = capture(self._act_and_count)
        self._updates = [
            tuple(capture(partial(block.update, with_actor)) for with_actor in (False, True)) for block in self.blocks
        ]
        self._update_count = 0
        self._is_alive = torch.ones(groups, 1, 1, device=device)

    # what a run asks before it begins

    @classmethod
    def keys(cls) -> Sequence[str]:
        return keys()

    @classmethod
    def check(cls, params: Params, num_envs: int) -> None:
        SACSettings.from_params(params, num_envs)

    @classmethod
    def memory(cls, params: Params, num_envs: int, num_seeds: int, device: torch.device) -> MemoryEstimate:
        return estimate(params, num_envs, device)

    @classmethod
    def critic_refusal(cls, params: Params) -> str | None:
        return None

    @classmethod
    def group_numbers(cls, params: Params) -> Mapping[str, float | str]:
        settings = SACSettings.from_params(params, 1)
        return {f"config.{name}": float(getattr(settings, name)) for name in NUMBERS}

    @classmethod
    def depends_on_length(cls, params: Params) -> bool:
        return False

    @classmethod
    def remark(cls, params: Params, env_steps: float) -> str:
        settings = SACSettings.from_params(params, 1)
        line = f"actions are within ±{settings.action_bound:g} (train.params.config.action_bound)"
        first = settings.num_warmup_steps + settings.env_steps_per_update
        if env_steps >= first:
            return line
        late = f"the first update comes after {first:,} env-steps (train.params.config.num_warmup_steps)"
        return f"{line}; nothing is learned: {late}, and this run has {env_steps:,.0f} for each policy"

    # the loop

    def set_alive(self, alive: Sequence[bool]) -> None:
        if list(alive) != self._alive:
            self._alive = list(alive)
            self._is_alive.copy_(torch.tensor(self._alive).view(-1, 1, 1))
            for block in self.blocks:
                block.active = any(self._alive[block.groups])

    @property
    def _steps(self) -> int:
        """Control steps so far."""
        return self.epoch * self.horizon + self._step

    @torch.no_grad()
    def act(self, obs: Tensor, critic_obs: Tensor | None = None) -> Tensor:
        warm_up = -(-self._settings.num_warmup_steps // self._layout.envs_per_group)
        if self._step == 0:
            for block in self.blocks:
                block.draw_noise(self._steps, min(max(0, warm_up - self._steps), self.horizon))
            self._device_step.zero_()
        seen, critics_see = self._layout.split(obs), None
        if critic_obs is not None:
            critics_see = self._layout.split(critic_obs)
        uniform = self._steps < warm_up
        if self._pool is None or uniform:
            self._seen = seen if self._pool is None else self._seen.copy_(seen)
            actions = self._act(self._step, uniform)
            self._device_step.add_(1)
        else:
            self._seen.copy_(seen)
            actions = self._explore()
        for block in self.blocks:
            block.begin(seen, critics_see, actions[block.groups, :, : block.padded[1]])
        return self._layout.merge(self._bounded(actions))

    def _act(self, t: Tensor | int, uniform: bool = False) -> Tensor:
        """Sample actions within +-1 for step ``t``, ``(groups, num_envs, act_max)``."""
        actions = self._seen.new_zeros(*self._seen.shape[:2], self._padded[1])
        for block in self.blocks:
            if block.active or self._pool is not None:  # captured graphs include dead groups
                actions[block.groups, :, : block.padded[1]] = block.act(t, self._seen, uniform)
        return actions

    def _bounded(self, actions: Tensor) -> Tensor:
        """Scale actions to the bound; those of failed groups are 0, and not NaN."""
        return torch.where(self._is_alive > 0, actions * self._settings.action_bound, 0.0)

    @torch.no_grad()
    def record(self, step: EnvStep) -> None:
        split = self._layout.split
        for block in self.blocks:
            block.finish(split(step.reward), split(step.terminated), split(step.truncated))
        self._step += 1
        # updates that the env-steps of a group are worth, from the end of the warm-up on
        s = self._settings
        worth = (self._steps * self._layout.envs_per_group - s.num_warmup_steps) // s.env_steps_per_update
        with span("update"):
            while self._update_count < worth:
                self._update()

    def _update(self) -> None:
        with_actor = self._update_count % self._settings.actor_period == 0
        self._run(update[with_actor] for block, update in zip(self.blocks, self._updates) if block.active)
        self._update_count += 1

    def learn(self, last_obs: Tensor, last_critic_obs: Tensor | None = None) -> Stats:
        self.epoch += 1
        self._step = 0
        stats = {
            name: torch.cat([block.learner.stats[name] for block in self.blocks])
            for name in self.blocks[0].learner.stats
        }
        dead = self._is_alive.view(-1) == 0
        return {name: x.masked_fill(dead, math.nan) for name, x in stats.items()}

    # policies

    @torch.no_grad()
    def _mean_actions(self, layout: GroupLayout, obs: Tensor) -> Tensor:
        actions = obs.new_zeros(*obs.shape[:2], self._padded[1])
        for block in self.blocks:
            if block.active or self._pool is not None:
                actions[block.groups, :, : block.padded[1]] = block.act_deterministically(obs)
        return layout.merge(self._bounded(actions))

    def export(self, group: int) -> dict[str, Any]:
        block, member = self._find(group)
        module = policy_module(block.learner.actor, member, block.widths[member], self._settings)
        return self._exported(module.state_dict())

    @classmethod
    def load_policy(cls, params: Params, exported: Mapping[str, Any]) -> torch.nn.Module:
        try:
            return policy_from_params(params, exported["model"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"the policy does not fit the network of the config: {error}") from error

    # state

    def get_state(self) -> dict[str, Any]:
        """Return the state between two iterations, with the replay rings."""
        counts = {"epoch": self.epoch, "updates": self._update_count}
        return {"groups": [block.own(k) for block in self.blocks for k in range(len(block.widths))], **counts}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if len(state["groups"]) != self._layout.num_groups:
            raise ValueError(
                f"the checkpoint has {len(state['groups'])} groups and this run has {self._layout.num_groups}: resume"
                " with the same candidates and seeds"
            )
        self.epoch, self._update_count = state["epoch"], state["updates"]
        for group, part in enumerate(state["groups"]):
            block, member = self._find(group)
            block.set_own(member, part, self.epoch * self.horizon, self._update_count)

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{**state, "groups": [part]} for part in state["groups"]]

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        counts = {key: common(parts, key) for key in ("epoch", "updates")}
        return {"groups": [part["groups"][0] for part in parts], **counts}


def _cut(widths: Sequence[Widths], at_once: int) -> list[slice]:
    """Divide groups into blocks of adjacent ones that all have critic observations, or all do not."""
    return cut_equal_blocks([critic > 0 for _, _, critic in widths], at_once)
