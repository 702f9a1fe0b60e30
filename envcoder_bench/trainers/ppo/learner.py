"""PPO for K groups at once, each of which acts and learns as rl_games' A2CAgent."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.trainers.base import Widths
from envcoder_bench.trainers.ppo.adam import GroupedAdam, clip_norm, next_entropy_coef, update_learning_rates
from envcoder_bench.trainers.ppo.architecture import Workspace
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.group_numbers import (
    Number,
    join_hyperparameters,
    per_group,
    reward_shaper,
)
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.mlp import carved_size
from envcoder_bench.trainers.ppo.network import CRITIC, StackedActorCritic
from envcoder_bench.trainers.ppo.normalizer import Factors, GroupedRunningMeanStd, ObservationInput
from envcoder_bench.trainers.ppo.objective import differentiate, entropy, neglogp
from envcoder_bench.trainers.ppo.rollout import Batch, Rollout, generalized_advantages, normalize_advantages
from envcoder_bench.trainers.sections import with_numbers

with settings_kept():  # importing rl_games changes how torch prints
    from rl_games.common.tr_helpers import DefaultRewardsShaper


class GroupedLearner:
    """K policies with separate weights, optimizers, learning rates, normalizers, advantages and clipping.

    Groups do not affect each other, and neither ``act`` nor ``update`` waits for the device.

    Args:
        obs_dims, action_dims, seeds: one per group; narrower groups are padded to the widest.
        critic_dims: widths of the critics' own observations; empty: critics see the policies' observations.
        params: the ``params`` of an rl_games YAML.
        numbers: one mapping per group: its values of keys in ``group_numbers``; empty: all groups use ``params``.
        num_envs: environments per group.
        device, dtype: device and dtype of weights and data.
        widths: widths of observation, action and critic's observation after padding; None: the greatest of the groups.
        backend: kernels or torch; None: the result of ``Backend.choose``.

    Attributes:
        obs_input, critic_input: make the inputs of the networks; the latter is None if critics see the policy's.
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
        widths: Widths | None = None,
        backend: Backend | None = None,
        critic_dims: Sequence[int] = (),
        numbers: Sequence[Mapping[str, float]] = (),
    ) -> None:
        device = torch.device(device)
        self.backend = backend = backend or Backend.choose(device, dtype)
        # hyperparameters that differ by group become tensors
        group_params = [with_numbers(params, values) for values in numbers or [{}]]
        settings = [Hyperparameters.from_params(values, num_envs) for values in group_params]
        self.hp = hp = join_hyperparameters(settings, device)
        self.num_groups, self.num_envs = len(obs_dims), num_envs
        self.network = StackedActorCritic(
            params, obs_dims, action_dims, seeds, device, dtype, widths, backend, critic_dims
        )
        shape = self.network.architecture
        self.obs_dim, self.action_dim, self.critic_dim = shape.obs_dim, shape.actions, shape.critic_dim
        self.adam = GroupedAdam(backend, self.network.flat, hp.learning_rate, hp.weight_decay)
        self.entropy_coef: Number = hp.entropy_coef
        self.obs_input = ObservationInput(backend, hp, obs_dims, shape.obs_dim, shape.inputs, device, dtype)
        self.critic_input: ObservationInput | None = None
        if critic_dims:
            self.critic_input = ObservationInput(
                backend, hp, critic_dims, shape.critic_dim, shape.critic_inputs, device, dtype
            )
        self.value_normalizer = None
        if hp.normalize_value:
            self.value_normalizer = GroupedRunningMeanStd(backend, [1] * len(obs_dims), device, dtype=dtype)
        self.action_dims = torch.tensor(action_dims, device=device, dtype=dtype).unsqueeze(1)
        shaper = reward_shaper(group_params, self.network.flat)
        self._shape_rewards: Callable[[Tensor], Any] = DefaultRewardsShaper(**shaper)

    def new_rollout(self, answers: Tensor | None = None) -> Rollout:
        """Allocate a rollout, whose observations are as wide as the networks' inputs; see ``Rollout.empty``."""
        shape = self.network.architecture
        return Rollout.empty(
            self.num_groups, self.num_envs, self.hp.horizon_length, shape.inputs, self.action_dim,
            like=self.network.flat, answers=answers, critic_dim=shape.critic_inputs,
        )  # fmt: skip

    @property
    def obs_normalizer(self) -> GroupedRunningMeanStd | None:
        """Statistics of the policies' observations."""
        return self.obs_input.normalizer

    @property
    def critic_normalizer(self) -> GroupedRunningMeanStd | None:
        """Statistics of the critics' own observations."""
        return self.critic_input and self.critic_input.normalizer

    @property
    def _normalizers(self) -> dict[str, GroupedRunningMeanStd | None]:
        """All running statistics by their name in a checkpoint, without critics that have no observations."""
        critics = {} if self.critic_input is None else {"critic_normalizer": self.critic_normalizer}
        return {"obs_normalizer": self.obs_normalizer, "value_normalizer": self.value_normalizer, **critics}

    @property
    def minibatch_size(self) -> int:
        """Number of samples of a group in a minibatch."""
        return self.num_envs * self.hp.horizon_length // self.hp.num_minibatches

    def workspace_size(self) -> int:
        """Return the number of elements of the buffer that ``update`` needs."""
        return carved_size(self.network.architecture.workspace_shapes(self.num_groups, self.minibatch_size))

    def _denormalize_values(self, values: Tensor) -> Tensor:
        if self.value_normalizer is None:
            return values
        return self.value_normalizer.denormalize(values.unsqueeze(-1)).squeeze(-1)

    @torch.no_grad()
    def count(self, obs: Tensor, critic_obs: Tensor | None = None, alive: Tensor | None = None) -> None:
        """Add a step's observations ``(K, n, D)`` to their statistics, for ``empirical_normalization``."""
        self.obs_input.count(obs, alive)
        if self.critic_input is not None and critic_obs is not None:
            self.critic_input.count(critic_obs, alive)

    @torch.no_grad()
    def act(self, obs: Tensor, noise: Tensor, critic_obs: Tensor | None = None) -> dict[str, Tensor]:
        """Sample actions.

        Args:
            obs: ``(K, n, D)``.
            noise: standard normal numbers ``(K, n, A)``, or ``(1, n, A)`` for all groups.
            critic_obs: ``(K, n, C)``, where critics have their own.

        Returns:
            ``actions`` and their means ``mus`` ``(K, n, A)``, 0 in padded columns, and ``values`` ``(K, n)`` in units
            of the shaped reward.
        """
        seen = None
        if self.critic_input is not None and critic_obs is not None:
            seen = self.critic_input(critic_obs)
        mu, values = self.network.forward(self.obs_input(obs), seen)
        sigma = torch.exp(self.network.log_sigma())
        if self.network.action_mask is not None:
            sigma = sigma * self.network.action_mask
        return {"actions": mu + sigma * noise, "mus": mu, "values": self._denormalize_values(values)}

    @torch.no_grad()
    def policy(self, obs: Tensor) -> Tensor:
        """Map observations ``(K, N, D)`` to mean actions ``(K, N, A)``."""
        return self.network.policy(self.obs_input(obs))

    @torch.no_grad()
    def values(self, obs: Tensor) -> Tensor:
        """Map the critics' observations ``(K, N, D)`` to values ``(K, N)`` in units of the shaped reward."""
        return self._denormalize_values(self.network.value((self.critic_input or self.obs_input)(obs)))

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
                self._train_minibatch(batch, mini_epoch * hp.num_minibatches + i, work, alive, stats, epoch)
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
        """Prepare a batch for all minibatches and mini epochs; rl_games' ``prepare_dataset``."""
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
            critic_obs=None if rollout.critic_obs is None else rollout.critic_obs.flatten(1, 2),
            actions=actions,
            neglogp=neglogp(actions, mus, log_sigma, self.action_dims),
            values=values,
            returns=returns,
            advantages=advantages,
            mus=mus,
            sigmas=[torch.exp(log_sigma)] * self.hp.num_minibatches,
        )

        # statistics of the observations are updated with every minibatch of every mini epoch, as in rl_games, whose
        # train_actor_critic begins with set_train(); empirical ones have counted the rollout's steps already
        if not self.hp.empirical_normalization:
            batch.obs_factors = self._count_minibatches(self.obs_normalizer, batch, batch.obs, alive)
            batch.critic_factors = self._count_minibatches(self.critic_normalizer, batch, batch.critic_obs, alive)
        return batch

    def _count_minibatches(
        self, normalizer: GroupedRunningMeanStd | None, batch: Batch, obs: Tensor | None, alive: Tensor | None
    ) -> list[Factors]:
        """Update statistics with all minibatches of all mini epochs; return the factors after each of them."""
        if normalizer is None or obs is None:
            return []
        minibatches = [obs[:, batch.rows(i)] for i in range(self.hp.num_minibatches)]
        return normalizer.update_each(minibatches, self.hp.mini_epochs, alive)

    @staticmethod
    def _update_value_normalizer(normalizer: GroupedRunningMeanStd, values: Tensor, alive: Tensor | None) -> Tensor:
        normalizer.update(values.unsqueeze(-1), alive)
        return normalizer.normalize(values.unsqueeze(-1)).squeeze(-1)

    def _train_minibatch(
        self, batch: Batch, step: int, work: Workspace, alive: Tensor | None, stats: defaultdict[str, list[Tensor]],
        epoch: int,
    ) -> None:  # fmt: skip
        """Take a gradient step; rl_games' ``calc_gradients``."""
        hp, network, index = self.hp, self.network, step % self.hp.num_minibatches

        # forward pass
        rows = batch.rows(index)
        self.obs_input(batch.obs[:, rows], batch.obs_factors[step] if batch.obs_factors else None, work.obs)
        if self.critic_input is not None and batch.critic_obs is not None:
            factors = batch.critic_factors[step] if batch.critic_factors else None
            self.critic_input(batch.critic_obs[:, rows], factors, work.critic_obs)
        output = network.forward_for_training(work)
        log_sigma = network.log_sigma()

        # surrogate, value and bound loss, divergence, and the gradients by the outputs
        terms = differentiate(self.backend, hp, batch, index, output, log_sigma, self.action_dims, network.action_mask)

        # backward pass; the gradient of the entropy by log sigma is 1
        d_log_sigma = terms.d_log_sigma.sub_(per_group(self.entropy_coef, terms.d_log_sigma))
        grad = network.backward(work, output, d_log_sigma)

        # gradient clipping and Adam
        if hp.schedule_type == "rollout":
            self._schedule(terms.kl, epoch)
        if hp.grad_norm is not None and hp.grad_norm_per_network:
            for parts in network.architecture.of_networks(grad):
                clip_norm(self.backend, parts, hp.grad_norm)
            self.adam.step(grad, None, alive)
        else:
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
        """Return a group as the state dict of rl_games' model for its widths, on the CPU.

        The model's critic is zeros if the group's sees other observations, see ``export_central_value``.
        """
        state = self.network.export(group)
        if self.critic_input is not None:
            first, obs_dim = state["a2c_network.critic_mlp.0.weight"], self.obs_input.dims[group]
            zeros = {key: torch.zeros_like(x) for key, x in state.items() if key.startswith(CRITIC)}
            state.update(zeros | {"a2c_network.critic_mlp.0.weight": first.new_zeros(len(first), obs_dim)})
        return {**state, **self._exported_statistics(group, self.obs_normalizer)}

    def export_central_value(self, group: int) -> dict[str, Tensor] | None:
        """Return a group's critic as the state dict of rl_games' CentralValueTrain, on the CPU.

        Return None if the critic sees the policy's observations.
        """
        if self.critic_input is None:
            return None
        critic = {key: x for key, x in self.network.export(group).items() if key.startswith(CRITIC)}
        state = {key.replace("critic_mlp", "actor_mlp"): x for key, x in critic.items()}
        state.update(self._exported_statistics(group, self.critic_normalizer))
        return {f"model.{key}": x for key, x in state.items()}

    def _exported_statistics(self, group: int, of_obs: GroupedRunningMeanStd | None) -> dict[str, Tensor]:
        normalizers = {"running": of_obs, "value": self.value_normalizer}
        each = {name: {} if x is None else x.export(group) for name, x in normalizers.items()}
        return {f"{name}_mean_std.{key}": value for name, values in each.items() for key, value in values.items()}

    def get_state(self) -> dict[str, Any]:
        """Return the state that ``set_state`` needs, on the CPU."""
        entropy_coef = self.entropy_coef
        return {
            "params": self.network.flat.cpu().clone(),
            "adam": self.adam.get_state(),
            "entropy_coef": entropy_coef.cpu().clone() if isinstance(entropy_coef, Tensor) else entropy_coef,
            **{key: normalizer and normalizer.get_state() for key, normalizer in self._normalizers.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.network.flat.copy_(state["params"])
        self.network.weights_changed()
        self.adam.set_state(state["adam"])
        coef = state["entropy_coef"]
        self.entropy_coef = coef.to(self.network.flat.device) if isinstance(coef, Tensor) else coef
        for key, normalizer in self._normalizers.items():
            if normalizer is not None:
                normalizer.set_state(state[key])

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a state for each group, without its padding."""
        coef = state["entropy_coef"]
        coefs = coef.tolist() if isinstance(coef, Tensor) else [coef] * self.num_groups
        parts: list[dict[str, Any]] = [{"entropy_coef": value} for value in coefs]
        for part, params in zip(parts, self.network.split(state["params"])):
            part["params"] = params
        for part, adam in zip(parts, self.adam.split_state(state["adam"], self.network.split)):
            part["adam"] = adam
        for key, normalizer in self._normalizers.items():
            for k, part in enumerate(parts):
                part[key] = normalizer and normalizer.split_state(state[key])[k]
        return parts

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state of a learner from the parts of its groups."""
        coefs = [part["entropy_coef"] for part in parts]
        state: dict[str, Any] = {
            "params": self.network.join([part["params"] for part in parts]),
            "adam": self.adam.join_states([part["adam"] for part in parts], self.network.join),
            "entropy_coef": torch.tensor(coefs, dtype=torch.float64) if len({*coefs}) > 1 else coefs[0],
        }
        for key, normalizer in self._normalizers.items():
            state[key] = normalizer and normalizer.join_states([part[key] for part in parts])
        return state
