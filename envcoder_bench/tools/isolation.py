"""Measure whether a candidate gives bitwise the same results alone and beside others."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.run.train.session import make_trainer
from envcoder_bench.trainers.base import train_iteration

BESIDE = 1  # the index of the measured group among the three groups


@dataclass(frozen=True)
class Isolation:
    """The result of the measurement.

    Attributes:
        rollout: the first step of random actions whose observation, reward or end differs; None: all are equal.
        weights: the first iteration after which a weight differs; None: all are equal.
        episodes: number of episodes that ended in the rollout; resets were measured if any ended.
        shared: methods of the task that drew random numbers without a link to an environment.
    """

    rollout: int | None
    weights: int | None
    episodes: int
    shared: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether all results are equal."""
        return self.rollout is None and self.weights is None

    def __str__(self) -> str:
        if self.clean:
            return f"equal bit by bit alone and beside others ({self.episodes} episodes ended)"
        parts = [] if self.rollout is None else [f"a rollout differs from step {self.rollout} on"]
        parts += [] if self.weights is None else [f"its weights differ after iteration {self.weights}"]
        drawn = f"; random numbers that belong to no environment: {', '.join(self.shared)}" if self.shared else ""
        return f"a candidate beside others is not what it is alone: {' and '.join(parts)}{drawn}"


def measure_isolation(spec: RunSpec, group: Group, other: Group, steps: int = 300, iterations: int = 3) -> Isolation:
    """Play and train a group alone, and as the second of three groups, on a CPU.

    Args:
        other: another candidate, the first of the three groups; the third is the group itself with another seed.
        steps: number of steps with random actions, which differ between the groups.
        iterations: number of iterations of training.
    """
    rollout, episodes = _compare_rollouts(*_make_envs(spec, group, other), steps)
    single_env, joint_env = _make_envs(spec, group, other)
    weights = _compare_training(spec.config, single_env, joint_env, iterations)
    shared = getattr(getattr(joint_env.task, "_draws", None), "shared", ())
    return Isolation(rollout, weights, episodes, tuple(sorted(shared)))


def _make_envs(spec: RunSpec, group: Group, other: Group) -> tuple[GroupedVecTask, GroupedVecTask]:
    """Return an environment of the group alone, and one of three groups."""
    n = spec.config.num_envs_per_candidate
    single_env = build_env(spec, [group.shaping], [0], n)
    joint_env = build_env(spec, [other.shaping, group.shaping, group.shaping], [0, 0, 1], n)
    return single_env, joint_env


def _compare_rollouts(single_env: GroupedVecTask, joint_env: GroupedVecTask, steps: int) -> tuple[int | None, int]:
    """Return the first step after which the group's results differ, or None, and the number of ended episodes."""
    rows, width = joint_env.layout.slice(BESIDE), single_env.obs_dims[0]
    generator, ended = torch.Generator().manual_seed(0), 0
    single_obs, joint_obs = single_env.reset(), joint_env.reset()
    if not torch.equal(single_obs, joint_obs[rows, :width]):
        return 0, 0
    for step in range(steps):
        actions = 2.0 * torch.rand(joint_env.actions.shape, generator=generator) - 1.0
        single = single_env.step(actions[rows, : single_env.actions.shape[1]])
        joint = joint_env.step(actions)
        ended += int(single.done.sum())
        # everything that a learner sees
        pairs: list[tuple[Tensor, Tensor]] = [
            (single.obs, joint.obs[rows, :width]),
            (single.reward, joint.reward[rows]),
            (single.terminated, joint.terminated[rows]),
        ]
        if single_env.critic_obs is not None and joint_env.critic_obs is not None:
            pairs.append((single_env.critic_obs, joint_env.critic_obs[rows, : single_env.critic_dims[0]]))
        if not all(torch.equal(x, y) for x, y in pairs):
            return step + 1, ended
    return None, ended


def _compare_training(
    cfg: RunConfig, single_env: GroupedVecTask, joint_env: GroupedVecTask, iterations: int
) -> int | None:
    """Return the first iteration after which the group's weights differ, or None."""
    envs = (single_env, joint_env)
    trainers = [make_trainer(cfg, env) for env in envs]
    obs = [env.reset() for env in envs]
    for iteration in range(iterations):
        for k, env in enumerate(envs):
            obs[k], _ = train_iteration(trainers[k], env, obs[k])
        if not _equal(trainers[0].export(0), trainers[1].export(BESIDE)):
            return iteration + 1
    return None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return all(_equal(a[key], b.get(key)) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return True  # counters of the training's progress
