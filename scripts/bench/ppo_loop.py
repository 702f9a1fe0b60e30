"""PPO as one would write it for many candidates without stacking them: a module and an Adam each, one after another.

The networks, losses and schedule are rl_games' own, so is the order of operations. Nothing is slower than it needs to
be: Adam is fused, and rl_games' bookkeeping around all this is left out.
"""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

import torch
from rl_games.algos_torch.model_builder import ModelBuilder
from rl_games.algos_torch.torch_ext import policy_kl
from rl_games.common.common_losses import actor_loss, critic_loss
from rl_games.common.schedulers import AdaptiveScheduler
from torch import Tensor


class Learner:
    """One candidate's policy, and what it remembers of a rollout: lists of ``(n, ...)``, one entry per step."""

    def __init__(self, params: dict[str, Any], obs_dim: int, action_dim: int, num_envs: int, device: Any) -> None:
        self.config = config = params["config"]
        with contextlib.redirect_stdout(io.StringIO()):  # rl_games prints what it builds
            network = ModelBuilder().load(copy.deepcopy(params))
            self.model = network.build(
                {
                    "actions_num": action_dim,
                    "input_shape": (obs_dim,),
                    "num_seqs": num_envs,
                    "value_size": 1,
                    "normalize_value": config["normalize_value"],
                    "normalize_input": config["normalize_input"],
                }
            ).to(device)
        self.lr = float(config["learning_rate"])
        self.optimizer = torch.optim.Adam(self.model.parameters(), self.lr, eps=1e-8, fused=True)
        self.scheduler = AdaptiveScheduler(config["kl_threshold"])
        self.steps: list[dict[str, Tensor]] = []

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        """Sample actions for ``(n, obs_dim)``."""
        self.model.eval()
        result = self.model({"is_train": False, "prev_actions": None, "obs": obs, "rnn_states": None})
        kept = {key: result[key] for key in ("actions", "mus", "sigmas", "neglogpacs", "values")}
        self.steps.append({"obs": obs, **kept})
        return result["actions"]

    @torch.no_grad()
    def observe(self, reward: Tensor, done: Tensor, time_out: Tensor) -> None:
        """Remember what the last action brought, ``(n,)`` each, as rl_games shapes and bootstraps it."""
        reward = reward.unsqueeze(1) * self.config["reward_shaper"]["scale_value"]
        if self.config["value_bootstrap"]:
            reward = reward + self.config["gamma"] * self.steps[-1]["values"] * time_out.unsqueeze(1).float()
        self.steps[-1].update(reward=reward, done=done.unsqueeze(1).float())

    def update(self, last_obs: Tensor) -> None:
        """Learn from the rollout and forget it."""
        config, batch = self.config, self._batch(last_obs)
        size = batch["obs"].shape[0] // config["num_minibatches"]
        self.model.train()
        for _ in range(config["mini_epochs"]):
            for i in range(config["num_minibatches"]):
                rows = slice(i * size, (i + 1) * size)
                self._minibatch({key: x[rows] for key, x in batch.items()})

    @torch.no_grad()
    def _batch(self, last_obs: Tensor) -> dict[str, Tensor]:
        """Advantages by GAE, and everything as ``(n * steps, ...)``, environment by environment."""
        self.model.eval()
        last = self.model({"is_train": False, "prev_actions": None, "obs": last_obs, "rnn_states": None})["values"]
        gamma, tau = self.config["gamma"], self.config["tau"]
        advantage = torch.zeros_like(last)
        advantages: list[Tensor] = []
        for step in reversed(self.steps):
            alive = 1.0 - step["done"]
            advantage = step["reward"] + gamma * last * alive - step["values"] + gamma * tau * alive * advantage
            advantages.insert(0, advantage)
            last = step["values"]
        keys = ("obs", "actions", "mus", "sigmas", "neglogpacs", "values")
        batch = {key: torch.stack([step[key] for step in self.steps], dim=1).flatten(0, 1) for key in keys}
        advantage = torch.stack(advantages, dim=1).flatten(0, 1)
        batch["returns"] = advantage + batch["values"]
        batch["advantages"] = (advantage.mean(dim=1) - advantage.mean()) / (advantage.std() + 1e-8)
        if self.config["normalize_value"]:
            normalizer = self.model.value_mean_std.train()
            batch["values"], batch["returns"] = normalizer(batch["values"]), normalizer(batch["returns"])
            normalizer.eval()
        self.steps = []
        return batch

    def _minibatch(self, batch: dict[str, Tensor]) -> None:
        config, clip = self.config, self.config["e_clip"]
        new = self.model({"is_train": True, "prev_actions": batch["actions"], "obs": batch["obs"]})
        policy = actor_loss(batch["neglogpacs"], new["prev_neglogp"], batch["advantages"], True, clip)
        value = critic_loss(self.model, batch["values"], new["values"], clip, batch["returns"], config["clip_value"])
        mu = new["mus"]
        bounds = (torch.clamp(mu - 1.1, min=0.0) ** 2 + torch.clamp(-1.1 - mu, min=0.0) ** 2).sum(dim=-1)
        loss = policy.mean() + 0.5 * config["critic_coef"] * value.mean() + config["bounds_loss_coef"] * bounds.mean()
        loss = loss - config["entropy_coef"] * new["entropy"].mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if config["truncate_grads"]:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), config["grad_norm"])
        self.optimizer.step()
        with torch.no_grad():
            kl = policy_kl(mu, new["sigmas"], batch["mus"], batch["sigmas"])
            batch["mus"].copy_(mu)  # a view of the whole batch: the next mini epoch measures from here
            batch["sigmas"].copy_(new["sigmas"])
        self.lr, _ = self.scheduler.update(self.lr, config["entropy_coef"], 0, 0, kl.item())
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
