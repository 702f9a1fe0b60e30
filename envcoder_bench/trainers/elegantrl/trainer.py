"""The trainer that gives each group an AgentPPO of ElegantRL, one after the other."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core import noise, stream
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import MemoryEstimate, Params, Stats, Trainer, Widths
from envcoder_bench.trainers.elegantrl.settings import elegantrl_config, import_elegantrl
from envcoder_bench.trainers.elegantrl.weights import export_weights, rl_games_params
from envcoder_bench.trainers.ppo.policy import policy_module

log = logging.getLogger(__name__)

_LEARN = 1 << 39  # steps of random numbers for updates, beyond those for actions
_FLOAT = 4


class ElegantPPO(Trainer):
    """ElegantRL's AgentPPO, unmodified; ``elegantrl_config`` says which ``params`` it reads.

    It takes longer than GroupedPPO, because groups act and learn in a loop. Random numbers depend on the group's seed
    and the step, so that groups do not affect each other and a resumed run continues bitwise.

    Statistics: ``learning_rate``, ``entropy``, ``value_loss`` and ``policy_loss``.

    Raises:
        ValueError: the package elegantrl is missing, or a parameter is not valid.
    """

    def __init__(
        self, layout: GroupLayout, obs_dims: Sequence[int], action_dims: Sequence[int], seeds: Sequence[int],
        params: Params, device: torch.device,
    ) -> None:  # fmt: skip
        agent_class, _ = import_elegantrl()
        config = elegantrl_config(params, layout.envs_per_group)
        self.horizon, self.epoch = config.horizon_len, 0
        self._layout, self._device, self._seeds = layout, device, list(seeds)
        self._dims, self._width = list(zip(obs_dims, action_dims)), max(action_dims)
        self._scale, self._rate = config.reward_scale, config.learning_rate
        gpu = -1 if device.type == "cpu" else (device.index or 0)
        self._agents: list[Any] = []
        for (obs_dim, action_dim), seed in zip(self._dims, seeds):
            with stream.seeded(seed, device):
                self._agents.append(agent_class(config.net_dims, obs_dim, action_dim, gpu_id=gpu, args=config))
        self._buffers = [self._buffer(*dims) for dims in self._dims]
        self._alive = [True] * layout.num_groups
        self._step = 0
        self._warned = False

    def _buffer(self, obs_dim: int, action_dim: int) -> list[Tensor]:
        """Allocate a rollout: states, actions before tanh, log-probabilities, rewards, 1 where no episode ended."""
        shape = (self.horizon, self._layout.envs_per_group)
        return [torch.zeros(*shape, *rest, device=self._device) for rest in ((obs_dim,), (action_dim,), (), (), ())]

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
            update = samples * (8 + 4 * sum(config.net_dims))  # of one group at a time
            return _FLOAT * (total + update)

        return needed

    @classmethod
    def depends_on_length(cls, params: Params) -> bool:
        return False

    def set_alive(self, alive: Sequence[bool]) -> None:
        self._alive = list(alive)

    def _each(self) -> list[tuple[int, Any]]:
        return [(group, agent) for group, agent in enumerate(self._agents) if self._alive[group]]

    def _own(self, obs: Tensor, layout: GroupLayout, group: int) -> Tensor:
        return layout.split(obs)[group, :, : self._dims[group][0]].contiguous()

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        taken = torch.zeros(*self._layout.split(obs).shape[:2], self._width, device=self._device)
        for group, agent in self._each():
            states, actions, logprobs, *_ = self._buffers[group]
            states[self._step] = self._own(obs, self._layout, group)
            with self._random(group, self.epoch * self.horizon + self._step):
                actions[self._step], logprobs[self._step] = agent.act.get_action(states[self._step])
            taken[group, :, : self._dims[group][1]] = agent.act.convert_action_for_env(actions[self._step])
        return self._layout.merge(taken)

    def _random(self, group: int, step: int) -> Any:
        return stream.seeded(noise.stream_seed(self._seeds[group], step, noise.ACTION), self._device)

    def record(self, step: EnvStep) -> None:
        rewards, done = self._layout.split(step.reward), self._layout.split(step.done)
        for group, _ in self._each():
            self._buffers[group][3][self._step] = rewards[group] * self._scale
            self._buffers[group][4][self._step] = 1.0 - done[group].float()
        self._step += 1

    def learn(self, last_obs: Tensor) -> Stats:
        if not self._warned:  # not where its policies are only evaluated
            self._warned, count = True, self._layout.num_groups
            log.warning("elegantrl_ppo trains %s groups one after the other: it takes longer than ppo", count)
        self._step = 0
        names = ("learning_rate", "entropy", "value_loss", "policy_loss")
        stats = {name: torch.full((self._layout.num_groups,), math.nan, device=self._device) for name in names}
        for group, agent in self._each():
            agent.last_state = self._own(last_obs, self._layout, group)
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
                actions[group, :, : self._dims[group][1]] = agent.act(self._own(obs, layout, group))
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
        for agent, own in zip(self._agents, state["agents"]):
            for name in _NAMES:
                getattr(agent, name).load_state_dict(own[name])
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
