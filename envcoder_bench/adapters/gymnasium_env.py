"""One candidate's environments as a ``gymnasium.vector.VectorEnv``."""

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envcoder_bench.adapters.single import SingleCandidateEnv
from envcoder_bench.core.errors import UserError


class GymnasiumVectorEnv(VectorEnv):
    """Environments with NumPy arrays, which are reset in the same step in which their episode ends.

    ``infos["_final_obs"]`` tells which episodes have ended, and ``infos["final_obs"]`` has their last observations.
    Rewards are float32. ``tensors`` avoids the copies to the CPU.

    Attributes:
        tensors: the same environments with tensors on their device: ``tensors.reset()``, ``tensors.step(actions)``.
    """

    def __init__(self, env: SingleCandidateEnv) -> None:
        self.tensors, self.num_envs = env, env.num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.single_observation_space = _box(env.clip_observations, env.obs_dim)
        self.single_action_space = _box(env.clip_actions, env.action_dim)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode in every environment.

        Args:
            seed: one number for all environments.
            options: not supported.
        """
        super().reset(seed=seed)
        if options:
            raise UserError(f"reset has no options here, got {', '.join(options)}")
        return _array(self.tensors.reset(seed)), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance one control step with ``actions`` ``(num_envs, action_dim)``."""
        taken = torch.from_numpy(np.ascontiguousarray(actions, dtype=np.float32))
        step = self.tensors.step(taken, final_obs=True)
        assert step.final_obs is not None
        done, infos = _array(step.done), {}
        if done.any():
            final = np.full(self.num_envs, None, dtype=object)  # Gymnasium's own vector environments do this
            last = _array(step.final_obs)
            for k in np.flatnonzero(done):
                final[k] = last[k]
            infos = {"final_obs": final, "_final_obs": done, "final_info": {}, "_final_info": done.copy()}
        return _array(step.obs), _array(step.reward), _array(step.terminated), _array(step.truncated), infos

    def __repr__(self) -> str:
        return f"GymnasiumVectorEnv({self.tensors.task}, {self.tensors.candidate}, num_envs={self.num_envs})"


def _box(limit: float, width: int) -> Box:
    return Box(-limit, limit, (width,), np.float32)


def _array(x: torch.Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()
