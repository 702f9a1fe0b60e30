"""A trainer of one's own, behind ``envcoder_bench.trainers.base``: ElegantRL's PPO, one learner for each group.

    pip install --no-deps elegantrl==0.3.6
    PYTHONPATH=examples eval-shapers --task Cartpole --trainer elegantrl_trainer:ElegantPPO

Groups act and learn one after the other, so it takes longer than the package's own trainer.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from elegantrl.agents import AgentPPO
from elegantrl.train.config import Config
from torch import Tensor

from envcoder_bench.core import noise, stream
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import MemoryEstimate, Params, Stats, Trainer, Widths
from envcoder_bench.trainers.ppo import hyperparameters
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.policy import policy_module

STATE_VALUE_TAU = 0.1  # ElegantRL's weight of a new batch in the running statistics of observations and returns
_LEARN = 1 << 39  # steps of random numbers for updates, beyond those for actions
_FLOAT = 4  # bytes


class ElegantPPO(Trainer):
    """ElegantRL's AgentPPO, unmodified; ``elegantrl_config`` says which ``params`` it reads.

    It takes longer than GroupedPPO, because groups act and learn in a loop. Random numbers depend on the group's seed
    and the step, so that groups do not affect each other and a resumed run continues bitwise.

    Statistics: ``learning_rate``, ``entropy``, ``value_loss`` and ``policy_loss``.
    """

    def __init__(
        self, layout: GroupLayout, obs_dims: Sequence[int], action_dims: Sequence[int], seeds: Sequence[int],
        params: Params, device: torch.device,
    ) -> None:  # fmt: skip
        config = elegantrl_config(params, layout.envs_per_group)
        self.horizon, self.epoch = config.horizon_len, 0
        self._layout, self._device, self._seeds = layout, device, list(seeds)
        self._dims, self._width = list(zip(obs_dims, action_dims)), max(action_dims)
        self._scale, self._rate = config.reward_scale, config.learning_rate
        gpu = -1 if device.type == "cpu" else (device.index or 0)
        self._agents: list[Any] = []
        for (obs_dim, action_dim), seed in zip(self._dims, seeds):
            with stream.seeded(seed, device):
                self._agents.append(AgentPPO(config.net_dims, obs_dim, action_dim, gpu_id=gpu, args=config))
        self._buffers = [self._buffer(*dims) for dims in self._dims]
        self._alive = [True] * layout.num_groups
        self._step = 0

    def _buffer(self, obs_dim: int, action_dim: int) -> list[Tensor]:
        """Allocate a rollout: states, actions before tanh, log-probabilities, rewards, 1 where no episode ended."""
        shape = (self.horizon, self._layout.envs_per_group)
        return [torch.zeros(*shape, *rest, device=self._device) for rest in ((obs_dim,), (action_dim,), (), (), ())]

    @classmethod
    def keys(cls) -> Sequence[str]:
        return hyperparameters.keys()  # ``elegantrl_config`` reads some of them

    @classmethod
    def check(cls, params: Params, num_envs: int) -> None:
        elegantrl_config(params, num_envs)

    @classmethod
    def memory(cls, params: Params, num_envs: int, num_seeds: int, device: torch.device) -> MemoryEstimate:
        config = elegantrl_config(params, num_envs)
        samples = num_envs * config.horizon_len

        def needed(widths: Sequence[Widths]) -> int:
            total = 0
            for obs_dim, action_dim in widths:
                ends = [obs_dim, *config.net_dims], [*config.net_dims, action_dim + 1]
                weights = 2 * sum(rows * columns for rows, columns in zip(*ends))  # actor and critic
                total += 4 * weights + samples * (obs_dim + action_dim + 3)  # gradients and Adam's moments, too
            update = samples * (8 + 4 * sum(config.net_dims))  # one group at a time
            return _FLOAT * (total + update)

        return needed

    @classmethod
    def depends_on_length(cls, params: Params) -> bool:
        return False

    def set_alive(self, alive: Sequence[bool]) -> None:
        self._alive = list(alive)

    def _each(self) -> list[tuple[int, Any]]:
        return [(group, agent) for group, agent in enumerate(self._agents) if self._alive[group]]

    def _obs_of(self, obs: Tensor, layout: GroupLayout, group: int) -> Tensor:
        return layout.split(obs)[group, :, : self._dims[group][0]].contiguous()

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        taken = torch.zeros(*self._layout.split(obs).shape[:2], self._width, device=self._device)
        for group, agent in self._each():
            states, actions, logprobs, *_ = self._buffers[group]
            states[self._step] = self._obs_of(obs, self._layout, group)
            with self._random(group, self.epoch * self.horizon + self._step):
                actions[self._step], logprobs[self._step] = agent.act.get_action(states[self._step])
            taken[group, :, : self._dims[group][1]] = agent.act.convert_action_for_env(actions[self._step])
        return self._layout.merge(taken)

    def _random(self, group: int, step: int) -> Any:
        return stream.seeded(noise.stream_seed(self._seeds[group], step, Purpose.ACTION), self._device)

    def record(self, step: EnvStep) -> None:
        rewards, done = self._layout.split(step.reward), self._layout.split(step.done)
        for group, _ in self._each():
            self._buffers[group][3][self._step] = rewards[group] * self._scale
            self._buffers[group][4][self._step] = 1.0 - done[group].float()
        self._step += 1

    def learn(self, last_obs: Tensor) -> Stats:
        self._step = 0
        names = ("learning_rate", "entropy", "value_loss", "policy_loss")
        stats = {name: torch.full((self._layout.num_groups,), math.nan, device=self._device) for name in names}
        for group, agent in self._each():
            agent.last_state = self._obs_of(last_obs, self._layout, group)
            with torch.enable_grad(), self._random(group, _LEARN + self.epoch):
                critic, actor, log_std = agent.update_net([x.clone() for x in self._buffers[group]])
            entropy = self._dims[group][1] * (log_std + 0.5 * math.log(2.0 * math.pi * math.e))
            for name, value in zip(names, (self._rate, entropy, critic, -actor)):
                stats[name][group] = value
        self.epoch += 1
        return stats

    def policy(self, layout: GroupLayout) -> Callable[[Tensor], Tensor]:
        @torch.no_grad()
        def policy(obs: Tensor) -> Tensor:
            actions = torch.zeros(*layout.split(obs).shape[:2], self._width, device=self._device)
            for group, agent in self._each():
                actions[group, :, : self._dims[group][1]] = agent.act(self._obs_of(obs, layout, group))
            return layout.merge(actions)

        return policy

    def export(self, group: int) -> dict[str, Any]:
        frame = self.epoch * self.horizon * self._layout.envs_per_group
        return {"model": export_weights(self._agents[group]), "epoch": self.epoch, "frame": frame}

    @classmethod
    def load_policy(cls, params: Params, exported: Mapping[str, Any]) -> torch.nn.Module:
        try:
            return policy_module(rl_games_params(params), exported["model"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"the policy does not fit the network of the config: {error}") from error

    def get_state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "agents": [_to_cpu(_parts(agent)) for agent in self._agents]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        if len(state["agents"]) != len(self._agents):
            raise ValueError(f"the checkpoint has {len(state['agents'])} groups and this run has {len(self._agents)}")
        for agent, parts in zip(self._agents, state["agents"]):
            for name in _NAMES:
                getattr(agent, name).load_state_dict(parts[name])
        self.epoch = state["epoch"]


_NAMES = ("act", "cri", "act_optimizer", "cri_optimizer")


def _parts(agent: Any) -> dict[str, Any]:
    return {name: dict(getattr(agent, name).state_dict()) for name in _NAMES}


def _to_cpu(state: Any) -> Any:
    """Copy nested dicts and lists with their tensors on the CPU."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: _to_cpu(value) for key, value in state.items()}
    return [_to_cpu(value) for value in state] if isinstance(state, list) else state


def elegantrl_config(params: Params, num_envs: int) -> Any:
    """Return ElegantRL's Config for groups of ``num_envs`` environments.

    ``horizon_length``, ``mini_epochs``, ``num_minibatches``, ``gamma``, ``tau``, ``e_clip``, ``entropy_coef``,
    ``learning_rate``, ``grad_norm``, ``reward_shaper.scale_value``, ``normalize_input`` and ``network.mlp.units`` have
    an effect. The rest is ElegantRL's: ReLU, separate networks, actions through tanh, a constant learning rate, one
    deviation per action that begins at 1, and time-outs that end the return.

    Raises:
        ValueError: the params are not valid; names the key.
    """
    hp = Hyperparameters.from_params(params, num_envs)
    config = Config(AgentPPO)
    config.num_envs, config.horizon_len = num_envs, hp.horizon_length
    config.net_dims = tuple(params["network"]["mlp"]["units"])
    config.gamma, config.lambda_gae_adv = hp.gamma, hp.tau
    config.ratio_clip, config.lambda_entropy = hp.e_clip, hp.entropy_coef
    config.learning_rate = hp.learning_rate
    config.clip_grad_norm = float("inf") if hp.grad_norm is None else hp.grad_norm
    config.reward_scale = float(params["config"].get("reward_shaper", {}).get("scale_value", 1.0))
    config.state_value_tau = STATE_VALUE_TAU if hp.normalize_input else 0.0
    config.batch_size = num_envs * hp.horizon_length // hp.num_minibatches
    # ElegantRL updates int(horizon_len * repeat_times / batch_size) times, of which mini_epochs see every sample once
    config.repeat_times = hp.mini_epochs * hp.num_minibatches * config.batch_size / hp.horizon_length
    return config


@torch.no_grad()
def export_weights(agent: Any) -> dict[str, Tensor]:
    """Return the weights of an AgentPPO as rl_games' model for ``rl_games_params``.

    The normalization of observations is part of the first layers, that of values of the last one.
    """
    actor, critic = _layers(agent.act), _layers(agent.cri)
    weight, bias = critic[-1]
    critic[-1] = weight * agent.cri.value_std, bias * agent.cri.value_std + agent.cri.value_avg
    named: dict[str, tuple[Tensor, Tensor]] = {"mu": actor.pop(), "value": critic.pop()}
    named.update({f"actor_mlp.{2 * k}": layer for k, layer in enumerate(actor)})
    named.update({f"critic_mlp.{2 * k}": layer for k, layer in enumerate(critic)})
    exported = {"a2c_network.sigma": agent.act.action_std_log[0].cpu().clone()}
    for name, (weight, bias) in named.items():
        exported[f"a2c_network.{name}.weight"] = weight.float().cpu().contiguous()
        exported[f"a2c_network.{name}.bias"] = bias.float().cpu().contiguous()
    return exported


def rl_games_params(params: Params) -> dict[str, Any]:
    """Return the ``params`` of the exported network: ReLU, separate, tanh, without normalization."""
    exported = copy.deepcopy(dict(params))
    exported["network"].update(separate=True)
    exported["network"]["mlp"]["activation"] = "relu"
    exported["network"]["space"]["continuous"]["mu_activation"] = "tanh"
    exported["config"].update(normalize_input=False, normalize_value=False)
    return exported


def _layers(network: Any) -> list[tuple[Tensor, Tensor]]:
    """Return weights and biases; the first layer's include the network's normalization of its input."""
    linear = [layer for layer in network.net if isinstance(layer, torch.nn.Linear)]
    layers = [(layer.weight.double(), layer.bias.double()) for layer in linear]
    weight, bias = layers[0]
    scaled = weight / network.state_std.double()
    layers[0] = scaled, bias - scaled @ network.state_avg.double()
    return layers
