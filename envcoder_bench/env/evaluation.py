"""Evaluation of policies in deterministic episodes of the task's own unshaped environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from envcoder_bench.env.grouped_vec_task import GroupedVecTask

MOST_BINS = 50  # bins of the course of an episode


class Recorder(Protocol):
    """What sees each step of a round of episodes, such as ``trajectories.Recorder``."""

    def step(self, t: int, active: Tensor, ended: Tensor) -> None:
        """See the ``t``-th step: ``active`` before it, and which episodes it ended, both ``(num_envs,)``."""
        ...


@dataclass(frozen=True)
class Episodes:
    """One row per group, one column per episode: ``(num_groups, episodes)``.

    Attributes:
        fitness: the mean of the steps' fitness over a full episode, or the sum, as the task says; the step on which an
            episode ends early, and the steps after it, count 0. If playing stopped before the end, it is the mean over
            the steps that were played.
        length: number of control steps until the episode ended.
        course: sums of the steps' fitness, and of the steps played, until each of ``bin_ends``, ``(num_groups,
            episodes, 2, bins)``; None unless episodes were played in full.
        ended: which of ``Task.ends`` ended each episode early, ``(num_groups, episodes, conditions)`` bool; None if
            the task has none.
    """

    fitness: Tensor
    length: Tensor
    course: Tensor | None = None
    ended: Tensor | None = None

    def first(self, count: int) -> Episodes:
        """Return the first ``count`` episodes of every group."""
        return self._each(lambda x: x[:, :count])

    def cpu(self) -> Episodes:
        return self._each(Tensor.cpu)

    def state(self) -> dict[str, Tensor]:
        """Return the part that a checkpoint keeps: all but the course, which is logged at once."""
        ended = {} if self.ended is None else {"ended": self.ended}
        return {"fitness": self.fitness, "length": self.length, **ended}

    def _each(self, change: Callable[[Tensor], Tensor]) -> Episodes:
        course, ended = (None if x is None else change(x) for x in (self.course, self.ended))
        return Episodes(change(self.fitness), change(self.length), course, ended)

    def step_means(self, full_episode: int) -> Tensor:
        """Return means over the episodes and the steps of each bin, ``(num_groups, 2, bins)``.

        They are the fitness of a step, and the share of the episodes that have not ended early.
        """
        assert self.course is not None
        sums = self.course.double().mean(dim=1)
        steps = torch.tensor([0, *bin_ends(full_episode)], dtype=sums.dtype)
        return torch.diff(sums, prepend=torch.zeros_like(sums[..., :1])) / torch.diff(steps).to(sums.device)


def bin_ends(full_episode: int) -> list[int]:
    """Return the last control step of each bin of an episode, from 1: MOST_BINS bins of nearly equal length."""
    bins = min(MOST_BINS, full_episode)
    return [full_episode * k // bins for k in range(1, bins + 1)]


def run_episodes(
    env: GroupedVecTask,
    policy: Callable[[Tensor], Tensor],
    rounds: int,
    first_step: int,
    check_at: int = 0,
    steps: int | None = None,
    recorder: Recorder | None = None,
) -> Episodes:
    """Play ``rounds`` episodes in every environment of ``env``.

    Args:
        env: built from the unshaped baseline's initial state, goal and terminal, and each candidate's observation and
            action functions.
        policy: observations ``(num_envs, max(obs_dims))`` to actions ``(num_envs, max(action_dims))``.
        rounds: episodes per environment.
        first_step: first step counter of the random numbers; the same counter gives the same episodes.
        check_at: the step of the first round at which compiled functions are compared with the originals.
        steps: control steps to play of each episode (None: full episodes).
        recorder: it records the first round.
    """
    checks, steps = [check_at, *[-1] * (rounds - 1)], steps or env.full_episode
    recorders = [recorder, *[None] * (rounds - 1)]
    played = [
        _one_round(env, policy, first_step + k * env.full_episode, at, steps, recorder=recorders[k])[0]
        for k, at in enumerate(checks)
    ]
    fitness, length = (torch.cat([getattr(p, name) for p in played], dim=1) for name in ("fitness", "length"))
    more = ([getattr(p, name) for p in played if getattr(p, name) is not None] for name in ("course", "ended"))
    return Episodes(fitness, length, *(torch.cat(parts, dim=1) if parts else None for parts in more))


def run_point(
    env: GroupedVecTask, policy: Callable[[Tensor], Tensor], first_step: int, check_at: int, steps: int
) -> tuple[Episodes, Episodes]:
    """Play a full episode in every environment; return it, and the result of ``run_episodes`` for ``steps`` of it.

    Arguments as of ``run_episodes``; the fitness must be a mean.
    """
    return _one_round(env, policy, first_step, check_at, env.full_episode, steps)


def has_mean_fitness(env: GroupedVecTask) -> bool:
    """Return whether an episode's fitness is the mean of its steps' fitness, as for every --fitness file."""
    return env.task.fitness_reduction != "sum" or env.dispatch.has_fitness


def _one_round(
    env: GroupedVecTask,
    policy: Callable[[Tensor], Tensor],
    first_step: int,
    check_at: int,
    steps: int,
    point: int = 0,
    recorder: Recorder | None = None,
) -> tuple[Episodes, Episodes]:
    """Return the episodes after ``steps``, and after ``point`` steps; twice the former if ``point`` was not reached."""
    at_point: Episodes | None = None
    obs = env.begin_all(first_step)
    active = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    fitness, length = (torch.zeros(env.num_envs, device=env.device) for _ in range(2))
    ends, sums = bin_ends(env.full_episode), []
    ended_by: dict[str, Tensor] = {}
    for t in range(steps):
        if t == check_at:
            env.dispatch.recheck()
        # a group's functions are called until its last episode ends, independently of its neighbours
        env.advance(policy(obs), active)
        ended = env.dispatch.terminal(env.step_count, active) | env.task.unstable
        if recorder is not None:
            recorder.step(t, active, ended)
        for name, holds in env.task.ends().items():
            now = holds & ended & active
            ended_by[name] = ended_by[name] | now if name in ended_by else now
        # the step on which an episode ends early counts 0, as do the steps after it
        active = active & ~ended
        fitness += torch.where(active, step_fitness(env, active), 0.0)
        length += active
        env.step_count += 1
        if t == ends[len(sums)] - 1:
            sums.append(torch.stack((fitness, length), dim=1))
        if t == point - 1:
            at_point = _episodes(env, fitness, length.clone(), active, point)
        may_sync = env.device.type == "cpu" or t % 50 == 49  # a sync with a CUDA device is expensive, so do it rarely
        if t == steps - 1 or (may_sync and not bool(active.any())):
            break
        # as in training, states after the end are not observed; where the task cuts an episode short, the next episode
        # counts as its continuation
        env.begin_episodes(env.cut_short(ended))
        obs = env.observe(active)
    played = _episodes(env, fitness, length, active, steps)
    if steps == env.full_episode:
        sums += [torch.stack((fitness, length), dim=1)] * (len(ends) - len(sums))  # all episodes ended before
        played = replace(played, course=env.layout.split(torch.stack(sums, dim=2)))
    if ended_by:
        played = replace(played, ended=env.layout.split(torch.stack([*ended_by.values()], dim=1)))
    return played, at_point or played


def _episodes(env: GroupedVecTask, fitness: Tensor, length: Tensor, active: Tensor, steps: int) -> Episodes:
    """Return the episodes after ``steps``, from the sums of their fitness."""
    return Episodes(env.layout.split(of_episodes(env, fitness, active, steps)), env.layout.split(length))


def of_episodes(env: GroupedVecTask, fitness: Tensor, active: Tensor, steps: int) -> Tensor:
    """Return the fitness of episodes after ``steps``, from its sums over steps and which are still ``active``."""
    if not has_mean_fitness(env):
        return fitness
    # an episode that ended early is complete; others are taken to go on like this
    return fitness / torch.where(active, steps, env.full_episode)


def step_fitness(env: GroupedVecTask, active: Tensor) -> Tensor:
    """Return the fitness of every environment that is ``active``, ``(num_envs,)``, of the state at the step's end."""
    env.task.finish_step()
    if env.dispatch.has_fitness:
        return env.dispatch.fitness(env.step_count, active)
    return env.task_fitness()
