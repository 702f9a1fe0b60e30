"""One candidate's environments behind the operations that all adapters need."""

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.noise import EVALUATION_STEP, stream_seed
from envcoder_bench.env.base import EnvStep
from envcoder_bench.env.grouped_vec_task import GroupedVecTask

_POLL = 100  # steps between two looks at the device's fault flags, each of which waits for the device


class SingleCandidateEnv:
    """A GroupedVecTask with one group; a fault of the candidate is an exception.

    Attributes:
        env: the environments.
        task, candidate: names.
        num_envs, obs_dim, action_dim, max_steps: environments, widths, and control steps until the time-out.
        clip_observations, clip_actions: limits of observations and actions; may be infinite.
        device: of all tensors.
    """

    def __init__(self, env: GroupedVecTask, task: str, candidate: str) -> None:
        self.env, self.task, self.candidate = env, task, candidate
        self.num_envs, self.device = env.num_envs, env.device
        self.obs_dim, self.action_dim = env.obs_dims[0], env.action_dims[0]
        self.max_steps = env.full_episode
        self.clip_observations, self.clip_actions = env.task.clip_observations, env.task.clip_actions
        self._begun = False
        self._steps = 0

    @torch.no_grad()
    def reset(self, seed: int | None = None) -> Tensor:
        """Begin an episode in every environment; return observations ``(num_envs, obs_dim)``.

        The first reset without a seed, or with the seed of the group, begins as a GroupedVecTask does. Any other reset
        has other random numbers: with a seed always the same ones, without one the next ones.
        """
        if seed is not None:
            own = seed == self.env.group_seeds[0]
            # beyond the counters of training and evaluation; noise has room for 2^59 steps
            first = 0 if own else 2 * EVALUATION_STEP + stream_seed(seed, 0, 0) % (1 << 57)
            obs = self.env.begin_all(first)
        else:
            self.env.step_count += int(self._begun)
            obs = self.env.reset()
        self._begun = True
        self._check()
        return obs

    @torch.no_grad()
    def step(self, actions: Tensor, final_obs: bool = False) -> EnvStep:
        """Advance one control step; see ``GroupedVecTask.step``.

        Raises:
            UserError: the actions have another shape, or the candidate has a fault.
        """
        if tuple(actions.shape) != (self.num_envs, self.action_dim):
            shape = (self.num_envs, self.action_dim)
            raise UserError(
                f"actions of {self.task} with candidate {self.candidate} are {shape}, got {tuple(actions.shape)}"
            )
        step = self.env.step(actions.detach().to(self.device, torch.float32), final_obs)
        self._steps += 1
        if self.device.type == "cpu" or self._steps % _POLL == 0:
            self._check()
        return step

    def _check(self) -> None:
        """Raise UserError if the candidate has failed."""
        if self.device.type != "cpu":
            self.env.dispatch.poll()
        if not self.env.alive[0]:
            raise UserError(f"candidate {self.candidate} failed: {self.env.failures[0]}")
