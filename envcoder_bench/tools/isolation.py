"""Measure whether a task keeps candidates apart: the same one alone and beside others, bit by bit."""

from collections.abc import Sequence
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

AMONG = 1  # the place of the measured group beside others


@dataclass(frozen=True)
class Isolation:
    """What came of it.

    Attributes:
        rollout: the first step of random actions whose observation, reward or end differs; None: all are equal.
        weights: the first iteration after which a weight differs; None: all are equal.
        episodes: that ended in the group's rollout: without any, resets were not measured.
        shared: methods of the task that drew random numbers which belong to no environment.
    """

    rollout: int | None
    weights: int | None
    episodes: int
    shared: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return self.rollout is None and self.weights is None

    def __str__(self) -> str:
        if self.clean:
            return f"equal bit by bit alone and beside others ({self.episodes} episodes ended)"
        parts = [] if self.rollout is None else [f"a rollout differs from step {self.rollout} on"]
        parts += [] if self.weights is None else [f"its weights differ after iteration {self.weights}"]
        drawn = f"; random numbers that belong to no environment: {', '.join(self.shared)}" if self.shared else ""
        return f"a candidate beside others is not what it is alone: {' and '.join(parts)}{drawn}"


def measure_isolation(spec: RunSpec, group: Group, other: Group, steps: int = 300, iterations: int = 3) -> Isolation:
    """Play and train a group alone, and as the second of three; on a CPU.

    Args:
        other: another candidate, which stands before it; the third is the group itself with another seed.
        steps: of random actions, which differ between the groups.
        iterations: of training.
    """
    alone, among = _environment(spec, [group], [0]), _environment(spec, [other, group, group], [0, 0, 1])
    rollout, episodes = _first_difference(alone, among, steps)
    alone, among = _environment(spec, [group], [0]), _environment(spec, [other, group, group], [0, 0, 1])
    weights = _train(spec.config, alone, among, iterations)
    shared = getattr(getattr(among.task, "_draws", None), "shared", ())
    return Isolation(rollout, weights, episodes, tuple(sorted(shared)))


def _environment(spec: RunSpec, groups: Sequence[Group], seeds: Sequence[int]) -> GroupedVecTask:
    return build_env(spec, [group.shaping for group in groups], seeds, spec.config.num_envs_per_candidate)


def _first_difference(alone: GroupedVecTask, among: GroupedVecTask, steps: int) -> tuple[int | None, int]:
    rows, width = among.layout.slice(AMONG), alone.obs_dims[0]
    generator, ended = torch.Generator().manual_seed(0), 0
    before, beside = alone.reset(), among.reset()
    if not torch.equal(before, beside[rows, :width]):
        return 0, 0
    for step in range(steps):
        actions = 2.0 * torch.rand(among.actions.shape, generator=generator) - 1.0
        one = alone.step(actions[rows, : alone.actions.shape[1]])
        all_of_them = among.step(actions)
        ended += int(one.done.sum())
        # everything that a learner sees
        pairs: list[tuple[Tensor, Tensor]] = [
            (one.obs, all_of_them.obs[rows, :width]),
            (one.reward, all_of_them.reward[rows]),
            (one.terminated, all_of_them.terminated[rows]),
        ]
        if alone.critic_obs is not None and among.critic_obs is not None:
            pairs.append((alone.critic_obs, among.critic_obs[rows, : alone.critic_dims[0]]))
        if not all(torch.equal(x, y) for x, y in pairs):
            return step + 1, ended
    return None, ended


def _train(cfg: RunConfig, alone: GroupedVecTask, among: GroupedVecTask, iterations: int) -> int | None:
    trainers = [make_trainer(cfg, env) for env in (alone, among)]
    seen = [env.reset() for env in (alone, among)]
    for iteration in range(iterations):
        for k, env in enumerate((alone, among)):
            seen[k], _ = train_iteration(trainers[k], env, seen[k])
        if not _equal(trainers[0].export(0), trainers[1].export(AMONG)):
            return iteration + 1
    return None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return all(_equal(a[key], b.get(key)) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return True  # numbers of how far training is
