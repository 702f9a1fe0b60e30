"""The updates of FlashSAC for some groups at once.

Source of the formulas: rsl_rl_flashsac (Holiday Robotics, BSD-3-Clause), algorithms/flash_sac.py. They differ in this:
a transition that was truncated within its n steps has weight 0, where they store the last observation; a rate of
learning is constant; products are in float32 or bfloat16, without a loss scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.core.torch_settings import is_deterministic
from envcoder_bench.trainers.base import Widths
from envcoder_bench.trainers.offpolicy.network import ALL, GroupedNetwork, NetworkShape, Slab
from envcoder_bench.trainers.offpolicy.replay import Batch
from envcoder_bench.trainers.offpolicy.settings import SACSettings

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0
STATS = ("entropy", "value_loss", "policy_loss", "alpha")


def actor_shape(s: SACSettings, obs: int, action: int) -> NetworkShape:
    """Return the actor's shape for padded widths."""
    return NetworkShape(obs, s.actor_units, s.blocks, s.expansion, {"mean": action, "log_std": action})


def critic_shape(s: SACSettings, critic_obs: int, action: int) -> NetworkShape:
    """Return the shape of one critic for padded widths."""
    return NetworkShape(critic_obs + action, s.critic_units, s.blocks, s.expansion, {"value": s.num_bins})


class Learner:
    """Actors, pairs of critics, temperatures and their optimizers.

    Args:
        widths: widths of each group's observations, actions and, if critics have their own, critic observations.
        seeds: of the first weights.
        all_settings: of each group; they differ in ``NUMBERS`` alone.
    """

    def __init__(
        self, widths: Sequence[Widths], padded: Widths, seeds: Sequence[int], all_settings: Sequence[SACSettings],
        device: torch.device,
    ) -> None:  # fmt: skip
        groups = len(widths)
        self.settings = settings = all_settings[0]
        obs, action, critic = (*padded, 0)[:3]

        def own(column: int, padded_width: int) -> Tensor:
            counts = [(*each, 0)[column] or each[0] for each in widths]
            return torch.arange(padded_width, device=device) < torch.tensor(counts, device=device).unsqueeze(1)

        self.own_actions = own(1, action).float().unsqueeze(1)  # (groups, 1, action)
        half = settings.mixed_precision
        critic_inputs = torch.cat([own(2, critic or obs), own(1, action)], dim=1).repeat_interleave(2, dim=0)
        shape = critic_shape(settings, critic or obs, action)
        self.actor = GroupedNetwork(actor_shape(settings, obs, action), own(0, obs), [each[1] for each in widths], half)
        bins = [settings.num_bins] * len(critic_inputs)
        self.critic = GroupedNetwork(shape, critic_inputs, bins, half)
        self.target = GroupedNetwork(shape, critic_inputs, bins, half, grad=False)
        self.actor.initialize(seeds)
        # two critics of a group are neighbours
        self.critic.initialize([2 * seed + k for seed in seeds for k in (0, 1)], member=1)
        self.target.copy_(self.critic)
        self.log_alpha = Slab(groups, {"log_alpha": (1,)}, device, grad=True)
        self.log_alpha.flat.copy_(torch.tensor([[math.log(s.init_alpha)] for s in all_settings]))
        entropies = torch.tensor([s.target_entropy for s in all_settings], device=device)
        self.target_entropy = entropies * self.own_actions.sum(dim=(1, 2))
        self.bins = torch.linspace(-settings.value_limit, settings.value_limit, settings.num_bins, device=device)
        self.optimizers = {
            "actor": Adam(self.actor.parameters, [s.learning_rate for s in all_settings]),
            "critic": Adam(self.critic.parameters, [s.learning_rate for s in all_settings for _ in (0, 1)]),
            "alpha": Adam(self.log_alpha, [s.alpha_learning_rate for s in all_settings]),
        }
        self.stats = {name: torch.full((groups,), math.nan, device=device) for name in STATS}  # of the last updates

    @property
    def temperature(self) -> Tensor:
        """The weight of the entropy, ``(groups,)``."""
        return self.log_alpha.views["log_alpha"].squeeze(1).exp()

    # the policy

    def mean_and_log_std(self, obs: Tensor, training: bool = False, rows: slice = ALL) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the deviation of the Gaussian before tanh, ``(groups, rows, action)``."""
        mean, log_std = self.actor(obs, training, rows)
        return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (1.0 + torch.tanh(log_std))

    def act(self, obs: Tensor, noise: Tensor | None) -> Tensor:
        """Return actions within +-1, with ``noise`` of deviation 1, or the means."""
        mean, log_std = self.mean_and_log_std(obs)
        return torch.tanh(mean if noise is None else mean + log_std.exp() * noise) * self.own_actions

    def _sampled(self, mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions and their log-probabilities ``(groups, samples)``."""
        raw = mean + log_std.exp() * noise
        log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = log_prob - 2.0 * (math.log(2.0) - raw - F.softplus(-2.0 * raw))  # derivative of tanh
        return torch.tanh(raw) * self.own_actions, (log_prob * self.own_actions).sum(dim=2)

    # the critics

    def _log_probs(
        self, critic: GroupedNetwork, obs: Tensor, action: Tensor, training: bool, rows: slice = ALL
    ) -> Tensor:
        """Return log-probabilities of the values' bins for some ``rows``, ``(groups, 2, rows, bins)``."""
        both = torch.cat([obs, action], dim=2).unsqueeze(1).expand(-1, 2, -1, -1).flatten(0, 1)
        (logits,) = critic(both, training, rows)
        return F.log_softmax(logits.unflatten(0, (-1, 2)), dim=3)

    def target_distribution(self, log_probs: Tensor, batch: Batch, entropy_bonus: Tensor) -> Tensor:
        """Project ``reward + gamma^n (value + bonus)`` of the lesser critic onto the bins, ``(groups, samples, bins)``.

        Args:
            log_probs: of the next states by the target critics, ``(groups, 2, samples, bins)``.
            entropy_bonus: ``(groups, samples)``.
        """
        s = self.settings
        first, second = log_probs.exp().unbind(dim=1)
        lesser = torch.where(((first @ self.bins) <= (second @ self.bins)).unsqueeze(2), first, second)
        values = self.bins + entropy_bonus.unsqueeze(2)
        values = batch.reward.unsqueeze(2) + s.gamma**s.n_step * batch.continues.unsqueeze(2) * values
        position = (values.clamp(-s.value_limit, s.value_limit) + s.value_limit) * (
            (s.num_bins - 1) / (2 * s.value_limit)
        )
        if is_deterministic() and position.device.type == "cuda":  # scatter_add_ adds in any order there
            places = torch.arange(s.num_bins, device=position.device)
            shares = (1.0 - (position.unsqueeze(3) - places).abs()).clamp_(min=0.0)
            return (lesser.unsqueeze(3) * shares).sum(dim=2)
        lower = position.floor().clamp_(max=s.num_bins - 2)
        share = position - lower
        index = lower.long()
        target = torch.zeros_like(lesser)
        target.scatter_add_(2, index, lesser * (1.0 - share))
        return target.scatter_add_(2, index + 1, lesser * share)

    # updates

    def update(self, batch: Batch, actor_noise: Tensor | None, next_noise: Tensor) -> None:
        """Update the critics, before them actor and temperature if there is ``actor_noise``, then the target critics.

        Args:
            actor_noise, next_noise: of the policy in the states and in the next states, ``(groups, samples, action)``.
        """
        if actor_noise is not None:
            self._update_actor(batch, actor_noise)
        self._update_critic(batch, next_noise)
        self.target.parameters.flat.lerp_(self.critic.parameters.flat, self.settings.critic_tau)

    def _update_actor(self, batch: Batch, noise: Tensor) -> None:
        samples = batch.obs.shape[1]
        # the normalization sees both states, as in the critics' update; the loss sees the first
        both = torch.cat([batch.obs, batch.next_obs], dim=1)
        mean, log_std = self.mean_and_log_std(both, training=True, rows=slice(samples))
        actions, log_probs = self._sampled(mean, log_std, noise)
        values = (self._log_probs(self.critic, batch.critic_obs, actions, training=False).exp() @ self.bins).amin(dim=1)
        temperature = self.temperature
        losses = (log_probs * temperature.detach().unsqueeze(1) - values).mean(dim=1)
        entropy = -log_probs.detach().mean(dim=1)
        self._note(entropy=entropy, policy_loss=losses, alpha=temperature)
        self.optimizers["actor"].step(losses.sum())
        self.actor.project()
        self.optimizers["alpha"].step((temperature * (entropy - self.target_entropy)).sum())

    def _update_critic(self, batch: Batch, noise: Tensor) -> None:
        samples = batch.obs.shape[1]
        with torch.no_grad():
            next_action, next_log_prob = self._sampled(*self.mean_and_log_std(batch.next_obs), noise)
            bonus = -self.temperature.unsqueeze(1) * next_log_prob
            obs = torch.cat([batch.critic_obs, batch.next_critic_obs], dim=1)
            action = torch.cat([batch.action, next_action], dim=1)
            next_log_probs = self._log_probs(self.target, obs, action, training=True, rows=slice(samples, None))
            target = self.target_distribution(next_log_probs, batch, bonus)
        log_probs = self._log_probs(self.critic, obs, action, training=True, rows=slice(samples))
        entropies = -(target.unsqueeze(1) * log_probs).sum(dim=3).mean(dim=1)  # (groups, samples)
        losses = (entropies * batch.valid).mean(dim=1)
        self._note(value_loss=losses)
        self.optimizers["critic"].step(losses.sum())
        self.critic.project()

    def _note(self, **values: Tensor) -> None:
        for name, x in values.items():
            self.stats[name].copy_(x.detach())

    # state

    def _slabs(self) -> dict[str, tuple[GroupedNetwork | None, Mapping[str, Tensor]]]:
        """Return the tensors of the state by name, with the network whose shape they have."""
        networks = {"actor": self.actor, "critic": self.critic, "target": self.target}
        slabs: dict[str, tuple[GroupedNetwork | None, Mapping[str, Tensor]]] = {
            f"{name}.{kind}": (network, slab.views)
            for name, network in networks.items()
            for kind, slab in (("parameters", network.parameters), ("buffers", network.buffers))
        }
        slabs["alpha.parameters"] = None, self.log_alpha.views
        for name, optimizer in self.optimizers.items():
            for kind, slab in optimizer.moments.items():
                slabs[f"{name}.{kind}"] = networks.get(name), slab.views
        return slabs

    def own(self, group: int) -> dict[str, Any]:
        """Return a group's state on the CPU, without padding."""
        state: dict[str, Any] = {}
        for name, (network, views) in self._slabs().items():
            members = self._members(name, group)
            state[name] = [
                {key: x[k].detach().cpu().clone() for key, x in views.items()}
                if network is None
                else network.own(k, views)
                for k in members
            ]
        state["stats"] = {name: x[group].cpu().clone() for name, x in self.stats.items()}
        state["steps"] = {name: optimizer.steps for name, optimizer in self.optimizers.items()}
        return state

    @torch.no_grad()
    def set_own(self, group: int, state: Mapping[str, Any]) -> None:
        """Restore what ``own`` returned. Raises ValueError if it is of other widths."""
        for name, (network, views) in self._slabs().items():
            for k, values in zip(self._members(name, group), state[name]):
                if network is None:
                    for key, x in views.items():
                        x[k].copy_(values[key])
                else:
                    network.set_own(k, views, values)
        for name, x in self.stats.items():
            x[group].copy_(state["stats"][name])
        for name, optimizer in self.optimizers.items():
            optimizer.steps = state["steps"][name]

    def _members(self, name: str, group: int) -> Sequence[int]:
        is_pair = name.startswith(("critic", "target"))
        return (2 * group, 2 * group + 1) if is_pair else (group,)


class Adam:
    """torch's Adam on a slab, with the gradients of its views.

    Args:
        rates: of each row of the slab.

    Attributes:
        moments: its state by torch's names, in the slab's shape.
    """

    def __init__(self, slab: Slab, rates: Sequence[float]) -> None:
        on_cuda, device = slab.flat.device.type == "cuda", slab.flat.device
        # captured graphs read the rate and the step on the device
        learning_rate = torch.tensor(rates[0], device=device) if on_cuda else rates[0]
        # a step is proportional to the rate
        ratios = torch.tensor([[rate / rates[0]] for rate in rates], device=device)
        self._ratios = None if len(set(rates)) == 1 else ratios
        self._slab = slab
        self._adam = torch.optim.Adam([slab.flat], lr=learning_rate, fused=on_cuda or None, capturable=on_cuda)
        shapes = {name: tuple(x.shape[1:]) for name, x in slab.views.items()}
        self.moments = {name: Slab(len(slab.flat), shapes, device, grad=False) for name in ("exp_avg", "exp_avg_sq")}
        self._step = torch.zeros((), device=device)
        self._adam.state[slab.flat] = {"step": self._step, **{name: x.flat for name, x in self.moments.items()}}
        slab.flat.grad = torch.zeros_like(slab.flat)

    @property
    def steps(self) -> int:
        """The number of steps made."""
        return int(self._step.item())

    @steps.setter
    def steps(self, value: int) -> None:
        self._step.fill_(value)

    def step(self, loss: Tensor) -> None:
        """Make one step against the gradient of a scalar ``loss``."""
        gradients = torch.autograd.grad(loss, list(self._slab.views.values()))
        assert self._slab.flat.grad is not None
        torch.cat([x.flatten(1) for x in gradients], dim=1, out=self._slab.flat.grad)
        before = None if self._ratios is None else self._slab.flat.clone()
        self._adam.step()
        if before is not None and self._ratios is not None:
            torch.lerp(before, self._slab.flat, self._ratios, out=self._slab.flat)
