"""One candidate's environments as the ``VecEnv`` of rsl_rl."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from envcoder_bench.adapters.single import SingleCandidateEnv
from envcoder_bench.core.errors import UserError


class RslRlVecEnv:
    """Environments for rsl_rl's runners: observations are a TensorDict with the group ``policy``.

    Attributes:
        num_envs, num_actions, max_episode_length, device, cfg: attributes of rsl_rl's ``VecEnv``.
        episode_length_buf: ``(num_envs,)`` int64, control steps since the episode began. The environments do not read
            what is written to it, such as rsl_rl's random initial lengths.
    """

    def __init__(self, env: SingleCandidateEnv) -> None:
        try:
            from tensordict import TensorDict
        except ImportError as error:
            raise UserError("api='rsl_rl' needs the package tensordict: pip install tensordict") from error
        self._pack: Any = TensorDict
        self.env, self.num_envs, self.num_actions = env, env.num_envs, env.action_dim
        self.max_episode_length, self.device = env.max_steps, env.device
        self.cfg: dict[str, Any] = {"task": env.task, "candidate": env.candidate}
        self._obs = env.reset()

    @property
    def episode_length_buf(self) -> Tensor:
        return self.env.env.progress_buf.clone()

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        pass

    @property
    def unwrapped(self) -> RslRlVecEnv:
        return self

    def get_observations(self) -> Any:
        """Return the present observations."""
        return self._packed()

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment."""
        self._obs = self.env.reset()
        return self._packed(), {}

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """Advance one control step: observations, rewards, dones (int64) and ``{"time_outs": ...}``."""
        step = self.env.step(actions)
        self._obs = step.obs
        return self._packed(), step.reward, step.done.to(torch.int64), {"time_outs": step.truncated}

    def _packed(self) -> Any:
        return self._pack({"policy": self._obs}, batch_size=[self.num_envs], device=self.device)
