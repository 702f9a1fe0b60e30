"""One candidate's environments behind the operations that all adapters need."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.noise import EVALUATION_STEP, stream_seed
from envcoder_bench.core.torch_settings import ALONE
from envcoder_bench.env.base import EnvStep
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.inputs import override_words, read_candidates, resolve
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare_one
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN

CandidateLike = None | str | Path | Mapping[str, str]
_POLL = 100  # steps between two readings of the fault flags; each reading waits for the device


class SingleCandidateEnv:
    """A GroupedVecTask with one group; a fault of the candidate is an exception.

    Attributes:
        env: the environments.
        task, candidate: names.
        num_envs, obs_dim, action_dim, max_steps: environments, widths, and control steps until the time-out.
        clip_observations, clip_actions: limits of observations and actions; may be infinite.
        device: the device of all tensors.
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
        has other random numbers. With a seed they are always the same; without one they continue.
        """
        if seed is not None:
            is_group_seed = seed == self.env.group_seeds[0]
            # the counters follow those of training and evaluation; noise has room for 2^58 steps
            first = 0 if is_group_seed else 2 * EVALUATION_STEP + stream_seed(seed, 0, 0) % (1 << 57)
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


def make_single(
    task: str,
    candidate: CandidateLike = None,
    num_envs: int = 256,
    seed: int = 0,
    evaluation: bool = False,
    shaper_types: Sequence[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    **settings: Any,
) -> SingleCandidateEnv:
    """Make the environments that the adapters wrap. Arguments and errors are those of ``make.make_env``."""
    sizes = {"num_envs_per_candidate": num_envs, "seed": seed, "seeds": 1}
    for key in sorted({*sizes, "devices", "ray", "isolate"} & settings.keys()):
        raise UserError(f"{key} is not a setting of make_env: it makes one group of environments on one device")
    spec = resolve(task, override_words(task, overrides, shaper_types, {**settings, **sizes}), ranks=False)
    source = _source(spec, candidate)
    group = prepare_one(spec, source, seed)
    with ALONE, user_input():
        env = build_env(spec, [group.evaluation if evaluation else group.shaping], [seed], num_envs)
    return SingleCandidateEnv(env, spec.task.name, source.name)


def _source(spec: RunSpec, candidate: CandidateLike) -> CandidateSource:
    """Read the candidate; raise UserError if there are several."""
    baseline = HUMAN if candidate is None else candidate
    if isinstance(baseline, str) and baseline in BASELINE_FILES:
        return next(source for source in baseline_sources(spec.task, spec.config.task) if source.name == baseline)
    sources = read_candidates(spec.task.name, candidate)
    if len(sources) != 1:
        raise UserError(f"make_env takes one candidate, and {candidate} has {len(sources)}: give one file")
    return sources[0]
