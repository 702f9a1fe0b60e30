"""PPO for K groups at once: acting and learning as in rl_games' A2CAgent for one."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.core.groups import common
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.trainers.ppo.adam import GroupedAdam
from envcoder_bench.trainers.ppo.advantages import generalized_advantages, normalize_advantages
from envcoder_bench.trainers.ppo.architecture import Workspace
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.mlp import carved_size
from envcoder_bench.trainers.ppo.network import StackedActorCritic
from envcoder_bench.trainers.ppo.normalizer import Factors, GroupedRunningMeanStd
from envcoder_bench.trainers.ppo.objective import differentiate, entropy, neglogp
from envcoder_bench.trainers.ppo.rollout import Batch, Rollout
from envcoder_bench.trainers.ppo.schedules import next_entropy_coef, update_learning_rates

with settings_kept():  # importing rl_games changes how torch prints
    from rl_games.common.tr_helpers import DefaultRewardsShaper


class GroupedLearner:
    """K policies with separate weights, optimizers, learning rates, normalizers, advantages and clipping.

    Groups do not affect each other, and neither ``act`` nor ``update`` waits for the device.

    Args:
        obs_dims, action_dims, seeds: one per group; narrower groups are padded to the widest.
        params: the ``params`` of an rl_games YAML.
        num_envs: environments per group.
        device, dtype: device and dtype of weights and data.
        widths: of observation and action to which the groups are padded; None: those of the widest groups.
        backend: how to compute; None: as ``Backend.choose``.

    Attributes:
        plain_factors: factor and summand of observations if they are not normalized.
        action_dims: ``(K, 1)``, the groups' numbers of actions.

    Raises:
        ValueError: ``params`` has an unsupported feature; names key and remedy.
    """

    def __init__(
        self,
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        params: Mapping[str, Any],
        num_envs: int,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        widths: tuple[int, int] | None = None,
        backend: Backend | None = None,
    ) -> None:
        device = torch.device(device)
        self.backend = backend = backend or Backend.choose(device, dtype)
        self.hp = hp = Hyperparameters.from_params(params, num_envs)
        self.num_groups, self.num_envs = len(obs_dims), num_envs
        self.obs_dim, self.action_dim = widths or (max(obs_dims), max(action_dims))
        self.network = StackedActorCritic(params, obs_dims, action_dims, seeds, device, dtype, widths, backend)
        self.adam = GroupedAdam(backend, self.network.flat, hp.learning_rate, hp.weight_decay)
        self.entropy_coef = hp.entropy_coef
        width = self.network.architecture.inputs
        self.obs_normalizer = self.value_normalizer = None
        if hp.normalize_input:
            self.obs_normalizer = GroupedRunningMeanStd(backend, obs_dims, device, width, dtype, one=self.obs_dim)
        if hp.normalize_value:
            self.value_normalizer = GroupedRunningMeanStd(backend, [1] * len(obs_dims), device, dtype=dtype)
        used = (torch.arange(width) < torch.tensor(obs_dims).view(-1, 1, 1)).to(device, dtype)
        one = (torch.arange(width) == self.obs_dim).expand_as(used).to(device, dtype)
        self.plain_factors: Factors = used, one
        self.action_dims = torch.tensor(action_dims, device=device, dtype=dtype).unsqueeze(1)
        self._shape_rewards: Callable[[Tensor], Any] = DefaultRewardsShaper(**params["config"]["reward_shaper"])

    def new_rollout(self, answers: Tensor | None = None) -> Rollout:
        """Allocate a rollout, whose observations are as wide as the network's input; see ``Rollout.empty``."""
        return Rollout.empty(
            self.num_groups, self.num_envs, self.hp.horizon_length, self.network.architecture.inputs,
            self.action_dim, like=self.network.flat, answers=answers,
        )  # fmt: skip

    @property
    def minibatch_size(self) -> int:
        """Number of samples of a group in a minibatch."""
        return self.num_envs * self.hp.horizon_length // self.hp.num_minibatches

    def workspace_size(self) -> int:
        """Return the number of elements of the buffer that ``update`` needs."""
        return carved_size(self.network.architecture.workspace_shapes(self.num_groups, self.minibatch_size))

    def _normalize_obs(self, obs: Tensor, factors: Factors | None = None, out: Tensor | None = None) -> Tensor:
        """Map observations to the network's input."""
        missing = self.network.architecture.inputs - obs.shape[-1]
        if missing:
            obs = F.pad(obs, (0, missing))
        if self.obs_normalizer is not None:
            return self.obs_normalizer.normalize(obs, factors, out)
        scale, shift = self.plain_factors
        return torch.addcmul(shift, obs, scale, out=out)

    def _denormalize_values(self, values: Tensor) -> Tensor:
        if self.value_normalizer is None:
            return values
        return self.value_normalizer.denormalize(values.unsqueeze(-1)).squeeze(-1)

    @torch.no_grad()
    def act(self, obs: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Sample actions.

        Args:
            obs: ``(K, n, D)``.
            noise: standard normal numbers ``(K, n, A)``, or ``(1, n, A)`` for all groups.

        Returns:
            ``actions`` and their means ``mus`` ``(K, n, A)``, 0 in padded columns, and ``values`` ``(K, n)`` in units
            of the shaped reward.
        """
        mu, values = self.network.forward(self._normalize_obs(obs))
        sigma = torch.exp(self.network.log_sigma())
        if self.network.action_mask is not None:
            sigma = sigma * self.network.action_mask
        return {"actions": mu + sigma * noise, "mus": mu, "values": self._denormalize_values(values)}

    @torch.no_grad()
    def policy(self, obs: Tensor) -> Tensor:
        """Map observations ``(K, N, D)`` to mean actions ``(K, N, A)``."""
        return self.network.policy(self._normalize_obs(obs))

    @torch.no_grad()
    def values(self, obs: Tensor) -> Tensor:
        """Map observations ``(K, N, D)`` to values ``(K, N)`` in units of the shaped reward."""
        return self._denormalize_values(self.network.value(self._normalize_obs(obs)))

    @torch.no_grad()
    def update(
        self, rollout: Rollout, epoch: int, alive: Tensor | None = None, buffer: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Learn from a rollout of the present policies.

        Args:
            rollout: the rollout; ``mus`` is overwritten.
            epoch: number of iterations including this one, for a linear schedule.
            alive: ``(K,)`` bool, groups to update; the others keep weights and statistics (None: all).
            buffer: a 1-d tensor of at least ``workspace_size()`` elements to work in (None: allocated).

        Returns:
            ``(K,)`` tensors: means over the minibatches of ``kl``, ``entropy``, ``policy_loss``, ``value_loss`` and
            ``bounds_loss``, and the ``learning_rate`` at the start of the next update.
        """
        hp, batch = self.hp, self._prepare(rollout, alive)
        if buffer is None:
            buffer = self.network.flat.new_empty(self.workspace_size())
        work = self.network.make_workspace(buffer, self.minibatch_size)
        stats: defaultdict[str, list[Tensor]] = defaultdict(list)
        for mini_epoch in range(hp.mini_epochs):
            for i in range(hp.num_minibatches):
                self._train_minibatch(batch, mini_epoch * hp.num_minibatches + i, work, alive, stats)
                if hp.schedule_type == "legacy":
                    self._schedule(stats["kl"][-1], epoch)
            if hp.schedule_type == "standard":
                self._schedule(torch.stack(stats["kl"][-hp.num_minibatches :]).mean(dim=0), epoch)
        self.network.weights_changed()

        # means over the minibatches; the entropy is linear in the logarithm of sigma
        mean_entropy = entropy(torch.stack(stats.pop("log_sigma")).mean(dim=0), self.action_dims)
        means = {name: torch.stack(values).mean(dim=0) for name, values in stats.items()}
        return {**means, "entropy": mean_entropy, "learning_rate": self.adam.learning_rate.clone()}

    def _prepare(self, rollout: Rollout, alive: Tensor | None) -> Batch:
        """Compute what all minibatches and mini epochs share; rl_games' ``prepare_dataset``."""
        # advantages and returns
        advantages = generalized_advantages(self.backend, self.hp, rollout, self._shape_rewards(rollout.rewards))
        values, returns = rollout.values.flatten(1), (advantages + rollout.values).flatten(1)
        advantages = returns - values
        if self.hp.normalize_advantage:
            advantages = normalize_advantages(self.backend, advantages)

        # normalized values; as in rl_games, the statistics are updated with the old values, then with the returns
        if self.value_normalizer is not None:
            values = self._update_value_normalizer(self.value_normalizer, values, alive)
            returns = self._update_value_normalizer(self.value_normalizer, returns, alive)

        # the policy that acted
        actions, mus = rollout.actions.flatten(1, 2), rollout.mus.flatten(1, 2)
        log_sigma = self.network.log_sigma()
        batch = Batch(
            obs=rollout.obs.flatten(1, 2),
            actions=actions,
            neglogp=neglogp(actions, mus, log_sigma, self.action_dims),
            values=values,
            returns=returns,
            advantages=advantages,
            mus=mus,
            sigmas=[torch.exp(log_sigma)] * self.hp.num_minibatches,
        )

        # statistics of the observations; as in rl_games, whose train_actor_critic begins with set_train(), they are
        # updated with every minibatch of every mini epoch
        if self.obs_normalizer is not None:
            minibatches = [batch.obs[:, batch.rows(i)] for i in range(self.hp.num_minibatches)]
            batch.obs_factors = self.obs_normalizer.update_each(minibatches, self.hp.mini_epochs, alive)
        return batch

    @staticmethod
    def _update_value_normalizer(normalizer: GroupedRunningMeanStd, values: Tensor, alive: Tensor | None) -> Tensor:
        normalizer.update(values.unsqueeze(-1), alive)
        return normalizer.normalize(values.unsqueeze(-1)).squeeze(-1)

    def _train_minibatch(
        self, batch: Batch, step: int, work: Workspace, alive: Tensor | None, stats: defaultdict[str, list[Tensor]]
    ) -> None:
        """Take a gradient step; rl_games' ``calc_gradients``."""
        hp, network, index = self.hp, self.network, step % self.hp.num_minibatches

        # forward pass
        rows = batch.rows(index)
        self._normalize_obs(batch.obs[:, rows], batch.obs_factors[step] if batch.obs_factors else None, work.obs)
        output = network.forward_for_training(work)
        log_sigma = network.log_sigma()

        # surrogate, value and bound loss, divergence, and the gradients by the outputs
        terms = differentiate(self.backend, hp, batch, index, output, log_sigma, self.action_dims, network.action_mask)

        # backward pass; the gradient of the entropy by log sigma is 1
        grad = network.backward(work, output, terms.d_log_sigma.sub_(self.entropy_coef))

        # gradient clipping and Adam
        self.adam.step(grad, hp.grad_norm, alive)
        if hp.max_sigma is not None:
            network.bound_sigma(hp.max_sigma)

        stats["log_sigma"].append(log_sigma)
        for name in ("kl", "policy_loss", "value_loss", "bounds_loss"):
            stats[name].append(getattr(terms, name))

    def _schedule(self, kl: Tensor, epoch: int) -> None:
        update_learning_rates(self.backend, self.hp, self.adam.learning_rate, kl, epoch)
        self.entropy_coef = next_entropy_coef(self.hp, epoch)

    def export(self, group: int) -> dict[str, Tensor]:
        """Return a group as the state dict of rl_games' model for its widths, on the CPU."""
        state = self.network.export(group)
        for name, normalizer in (("running", self.obs_normalizer), ("value", self.value_normalizer)):
            if normalizer is not None:
                state.update({f"{name}_mean_std.{key}": value for key, value in normalizer.export(group).items()})
        return state

    def get_state(self) -> dict[str, Any]:
        """Return the state that ``set_state`` needs, on the CPU."""
        return {
            "params": self.network.flat.cpu().clone(),
            "adam": self.adam.get_state(),
            "entropy_coef": self.entropy_coef,
            "obs_normalizer": self.obs_normalizer and self.obs_normalizer.get_state(),
            "value_normalizer": self.value_normalizer and self.value_normalizer.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.network.flat.copy_(state["params"])
        self.network.weights_changed()
        self.adam.set_state(state["adam"])
        self.entropy_coef = state["entropy_coef"]
        for key in ("obs_normalizer", "value_normalizer"):
            normalizer = getattr(self, key)
            if normalizer is not None:
                normalizer.set_state(state[key])

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a state for each group, without its padding."""
        parts: list[dict[str, Any]] = [{"entropy_coef": state["entropy_coef"]} for _ in range(self.num_groups)]
        for part, params in zip(parts, self.network.split(state["params"])):
            part["params"] = params
        for part, adam in zip(parts, self.adam.split_state(state["adam"], self.network.split)):
            part["adam"] = adam
        for key in ("obs_normalizer", "value_normalizer"):
            normalizer = getattr(self, key)
            for k, part in enumerate(parts):
                part[key] = normalizer and normalizer.split_state(state[key])[k]
        return parts

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state of a learner from the parts of its groups."""
        joined: dict[str, Any] = {
            "params": self.network.join([part["params"] for part in parts]),
            "adam": self.adam.join_states([part["adam"] for part in parts], self.network.join),
            "entropy_coef": common(parts, "entropy_coef"),
        }
        for key in ("obs_normalizer", "value_normalizer"):
            normalizer = getattr(self, key)
            joined[key] = normalizer and normalizer.join_states([part[key] for part in parts])
        return joined
