"""One candidate's environments as the vecenv of rl_games."""

from typing import Any

import gymnasium
import numpy as np
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from torch import Tensor

from envcoder_bench.adapters.single import SingleCandidateEnv, make_single


class RlGamesVecEnv(IVecEnv):
    """Environments for rl_games' agents, with tensors on the device. Actions are -1 to 1, as in IsaacGymEnvs."""

    def __init__(self, env: SingleCandidateEnv) -> None:
        self.env = env

    def reset(self) -> Tensor:
        """Begin an episode in every environment; return observations."""
        return self.env.reset()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        """Advance one control step: observations, rewards, dones and ``{"time_outs": ...}``."""
        step = self.env.step(actions)
        return step.obs, step.reward, step.done, {"time_outs": step.truncated}

    def get_env_info(self) -> dict[str, Any]:
        """Return the spaces of one environment."""
        limit = float(self.env.clip_observations)
        observations = gymnasium.spaces.Box(-limit, limit, (self.env.obs_dim,), np.float32)
        actions = gymnasium.spaces.Box(-1.0, 1.0, (self.env.action_dim,), np.float32)
        return {"observation_space": observations, "action_space": actions, "agents": 1, "value_size": 1}


def register(name: str, task: str, **arguments: Any) -> None:
    """Register the environments of a candidate with rl_games. Its YAML then has ``env_name: name``.

    Args:
        name: the name in rl_games.
        task, arguments: arguments of ``make_env``, except ``num_envs``: the YAML's ``num_actors`` sets that.
    """

    def make(_name: str, num_actors: int, **more: Any) -> RlGamesVecEnv:
        return RlGamesVecEnv(make_single(task, num_envs=num_actors, **{**arguments, **more}))

    vecenv.register(name, make)
    env_configurations.register(name, {"vecenv_type": name, "env_creator": lambda **more: make(name, 1, **more)})
