"""Recordings of episodes, and the model to draw them: policies of a run play its evaluations' first episode again.

All policies play at once in one simulation. Each has one environment, and all have the same seed. Random numbers depend
on the seed, the environment's index in its group and the step. Therefore all policies meet the same initial state and
goals. On a CPU an episode of an evaluation is reproduced up to rounding.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.env.evaluation import step_fitness
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.sim.ground import Ground, crop
from envcoder_bench.sim.rendering import brightened, packed_model, scenery
from envcoder_bench.video.recording import Episode, Recording

Policy = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Player:
    """A policy to record: the candidate's name, the seed of its training, and observations to actions."""

    name: str
    seed: int
    policy: Policy


def record(
    spec: RunSpec,
    players: Sequence[Player],
    seed: int | None = None,
    steps: int | None = None,
    where: tuple[str, str] = ("mujoco_cpu", "cpu"),
) -> Recording:
    """Play one episode with each policy, side by side.

    Args:
        spec: the run.
        players: the policies, in the order of the recording.
        seed: seed of the episodes; None for the run's seed.
        steps: number of control steps at most; None for a full episode.
        where: the simulator and the device; the run may have used others.

    A candidate that cannot be loaded again is left out; ``failed`` of the recording has the reason.

    Raises:
        UserError: no candidate can be loaded, or the task does not have poses to record.
    """
    cfg, names = spec.config, {player.name for player in players}
    if (cfg.device == "cpu") != (where[1] == "cpu") and not cfg.untrusted:
        spec = spec.changed(compile_shapers=False)  # the run did not compile kernels for this device
    spec = replace(
        spec.changed(sim=where[0], device=where[1]), sources=tuple(x for x in spec.sources if x.name in names)
    )
    with settings_kept():
        torch.set_num_threads(1)
        with _quiet():
            groups, failed = prepare(spec)
        groups_by_name = {group.name: group for group in reversed(groups)}
        players = [player for player in players if player.name in groups_by_name]
        if not players:
            raise UserError("; ".join(f"{name} cannot be played: {error}" for name, error in failed.items()))
        shapings = [_add_reward(groups_by_name[player.name]) for player in players]
        env = build_env(spec, shapings, [cfg.seed if seed is None else seed] * len(shapings), 1)
        recording = _play(env, players, steps)
        recording.failed = {name: str(error) for name, error in failed.items()}
        return recording


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings about candidates, which the run has already given."""
    package = logging.getLogger("envcoder_bench")
    level = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(level)


def _add_reward(group: Group) -> Shaping:
    """Return the shaping of an evaluation with the candidate's own reward."""
    stages = {**group.evaluation.stages, "reward": group.shaping.stages["reward"]}
    programs = {stage: program for stage, program in group.evaluation.programs.items() if stage != "reward"}
    if "reward" in group.shaping.programs:
        programs["reward"] = group.shaping.programs["reward"]
    return replace(group.evaluation, stages=stages, programs=programs, components=tuple(group.shaping.components))


def _play(env: GroupedVecTask, players: Sequence[Player], steps: int | None) -> Recording:
    source = env.task.pose_source()
    if source is None:
        raise UserError(f"the task {env.task.name} has no poses to record in this simulator")
    groups = range(len(players))
    total = env.full_episode if steps is None else min(steps, env.full_episode)
    summed = env.task.fitness_reduction == "sum" and not env.dispatch.has_fitness
    obs = env.begin_all(EVALUATION_STEP)
    active = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    # for each policy: the pose at the start and after each step; and each step's fitness, reward and components
    frames: list[list[Any]] = [[] for _ in groups]
    values: list[list[tuple[float, float, dict[str, float]]]] = [[] for _ in groups]
    ended = ["" for _ in groups]

    def add_frame(k: int) -> None:
        mocap = None if source.mocap is None else tuple(x[k].astype(np.float32) for x in source.mocap)
        goals = {key: env.state[key][k].cpu().numpy().copy() for key in env.task.goal_keys if key in env.state}
        frames[k].append((source.qpos[k].astype(np.float32), mocap, goals))

    for k in groups:
        add_frame(k)
    for _ in range(total):
        env.advance(_actions(env, players, obs, active), active)
        over = env.dispatch.terminal(env.step_count, active) | env.task.unstable
        alive = active & ~over
        # the candidate's reward for the step, and the fitness
        reward = env.dispatch.reward(env.step_count)
        components = env.dispatch.components.means()
        fitness = step_fitness(env, alive)
        for k in groups:
            if not active[k]:
                continue
            add_frame(k)
            fitness_value = float(fitness[k]) if alive[k] else 0.0
            values[k].append((fitness_value, float(reward[k]), dict(components[k])))
            if k in env.failures:
                ended[k], alive[k] = str(env.failures[k]), False
            elif over[k]:
                ended[k] = "unstable physics" if env.task.unstable[k] else "terminated"
        # an environment whose episode is over stays as it is
        active = alive
        env.step_count += 1
        if not bool(active.any()):
            break
        env.begin_episodes(env.cut_short(over))
        obs = env.observe(active)
    episodes = [_episode(*parts) for parts in zip(players, frames, values, ended)]
    same = all(np.array_equal(e.qpos[0], episodes[0].qpos[0]) for e in episodes)
    return Recording(env.task.name, env.task.dt, env.full_episode, summed, same, episodes, model=source.model)


def _actions(env: GroupedVecTask, players: Sequence[Player], obs: Tensor, active: Tensor) -> Tensor:
    """Let each policy act on the observation of its environment."""
    actions = torch.zeros_like(env.actions)
    for k, player in enumerate(players):
        if active[k]:
            policy_obs = obs[k : k + 1, : env.obs_dims[k]].cpu()  # policies are on the CPU
            actions[k, : env.action_dims[k]] = player.policy(policy_obs)[0].to(env.device)
    return actions


def _episode(player: Player, frames: list[Any], values: list[Any], ended: str) -> Episode:
    qpos, mocap, goals = zip(*frames)
    names = list(dict.fromkeys(name for _, _, components in values for name in components))
    return Episode(
        player.name,
        player.seed,
        np.stack(qpos),
        np.array([fitness for fitness, _, _ in values], np.float32),
        np.array([reward for _, reward, _ in values], np.float32),
        {name: np.array([by_key.get(name, np.nan) for _, _, by_key in values], np.float32) for name in names},
        {key: np.stack([by_key[key] for by_key in goals]) for key in goals[0]},
        None if mocap[0] is None else np.stack([x[0] for x in mocap]),
        None if mocap[0] is None else np.stack([x[1] for x in mocap]),
        ended,
    )


AROUND = 6.0  # m of ground around the paths of the robots
MOST_NODES = 60_000  # most nodes of a height field: with more, a frame takes seconds without a GPU


def model_bytes(spec: RunSpec, recording: Recording) -> bytes:
    """Return the model of a run's task in MuJoCo's binary format.

    Args:
        recording: the episodes to draw. The model contains only the ground around their robots. For a task without a
            model file, it is the recording's model.
    """
    if spec.task.model_path is None:
        return packed_model(brightened(recording.model))
    ground = spec.task.ground(spec.config.task)
    return packed_model(scenery(spec.task.model_path, _ground_around(ground, recording)))


def _ground_around(ground: Ground | None, recording: Recording) -> Ground | None:
    if ground is None or not recording.episodes:
        return None
    places = np.concatenate([episode.qpos[:, :2] for episode in recording.episodes])
    return crop(ground, places.min(axis=0) - AROUND, places.max(axis=0) + AROUND, MOST_NODES)
