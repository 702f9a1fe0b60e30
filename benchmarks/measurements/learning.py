"""How a task's baselines learn: fitness over env-steps and time, all seeds side by side; and what policies are worth in
the other simulator.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Iterator

from torch import Tensor
from tqdm import tqdm

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import Episodes, run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.checkpoint import save_state
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.plan import release
from envcoder_bench.run.prepare import Group, prepare
from envcoder_bench.run.run_task import build_task
from envcoder_bench.sim import SIMULATORS, pick_simulator

from . import records
from .finer import score
from .records import Record
from .session import Session, find_sources, make_config
from .settings import finer_than, with_physics
from .terrain import levels_of


def learning(args: Namespace) -> Iterator[Record]:
    """Train baselines and files for ``--seconds``; evaluations and compilation are not counted.

    With ``--run FOLDER`` the best policies are written there at the end. ``--physics`` and ``--finer`` score all
    policies with other settings of the physics than those of the training.
    """
    sources = find_sources(args.task, args.candidates)
    session = Session.build(args, sources, args.envs, seeds=args.seeds)
    evaluation = _evaluation(session.cfg, session.groups, args.episodes)
    about, began = records.describe(session.cfg.device), time.strftime("%Y-%m-%d %H:%M:%S")
    names = " and ".join(source.name for source in sources)
    what = ", ".join([f"{args.task}: {names}, {args.seeds} seeds x {args.envs:,}", *args.overrides])
    size = {"task": args.task, "envs": args.envs, "seeds": args.seeds, "policies": len(session.groups)}
    size.update(episodes=args.episodes, overrides=list(args.overrides), what=what)
    warm_up(session)
    seconds, iteration, number = 0.0, 0, 0
    with tqdm(total=args.seconds, desc="training", unit="s", leave=False, disable=None) as bar:
        while seconds < args.seconds:
            due = next(t for t in _due(args.seconds, args.points) if t > seconds)
            while seconds < due:
                seconds += session.iterate()
                iteration += 1
                bar.n = min(round(seconds, 1), args.seconds)
                bar.refresh()
            episodes = run_episodes(evaluation, session.trainer.policy(evaluation.layout), 1, EVALUATION_STEP)
            _end_failed(session, evaluation)
            number += 1
            when = {"run": began, "point": number, "seconds": seconds, "iteration": iteration}
            when["env_steps"] = iteration * args.envs * session.trainer.horizon
            levels = levels_of(session.env.task, session.env.layout)
            for name in dict.fromkeys(group.name for group in session.groups):
                scores: Record = {key: _by_seed(session, name, getattr(episodes, key)) for key in ("fitness", "length")}
                own = [g for g, group in enumerate(session.groups) if group.name == name]
                scores["noise"] = [_noise(session, g) for g in own]
                if levels is not None:
                    scores["levels"] = {kind: [means[g] for g in own] for kind, means in levels.items()}
                yield {"kind": "learning", "candidate": name, **size, **when, **scores, **about}
    _export(args, session, episodes)
    if args.transfer:
        yield from _transfer(args, session, episodes, about)
    settings = [*(args.physics or ()), *(finer_than(session.cfg.task) if args.finer else ())]
    for physics in settings:
        cfg = make_config(with_physics(args, physics), num_envs_per_candidate=args.episodes, seeds=args.seeds)
        for record in score(cfg, session.groups, args.episodes, lambda env: session.trainer.policy(env.layout)):
            yield {**record, "trained_with": list(args.overrides)}


def warm_up(session: Session) -> None:
    """Run one iteration, which compiles and captures, and undo it."""
    trainer, env, obs = session.trainer.state(), session.env.get_state(), session.obs.clone()
    session.iterate()
    session.trainer.load_state(trainer)
    session.env.set_state(env)
    session.obs = obs


def _end_failed(session: Session, evaluation: GroupedVecTask) -> None:
    """Stop policies that failed in training or evaluation in both."""
    for one, other in ((session.env, evaluation), (evaluation, session.env)):
        one.dispatch.poll()
        for g, error in one.failures.items():
            if other.alive[g]:
                print(f"{session.groups[g].name} (seed {session.groups[g].seed}) failed: {error}", file=sys.stderr)
                other.dispatch.fail(g, error)


def _due(seconds: float, points: int) -> list[float]:
    """Return the times of evaluations, which are denser at the beginning, where curves are steep."""
    return [seconds * ((k + 1) / points) ** 1.5 for k in range(points - 1)] + [seconds]


def _by_seed(session: Session, name: str, values: Tensor) -> list[float | None]:
    """Return a candidate's mean over episodes for each of its seeds; None for failed ones."""
    alive, means = session.env.alive, values.double().mean(dim=1).tolist()
    return [means[g] if alive[g] else None for g, group in enumerate(session.groups) if group.name == name]


def _noise(session: Session, group: int) -> list[float] | None:
    """Return the standard deviation of each of a policy's actions; None if it depends on the observation."""
    log_sigma = session.trainer.export(group)["model"].get("a2c_network.sigma")
    return None if log_sigma is None else [round(x, 4) for x in log_sigma.exp().tolist()]


def _evaluation(cfg: Any, groups: list[Group], episodes: int) -> GroupedVecTask:
    layout = GroupLayout(len(groups), episodes)
    task = build_task(cfg, layout.num_envs)
    return GroupedVecTask(task, layout, [group.evaluation for group in groups], [group.seed for group in groups])


def _export(args: Namespace, session: Session, episodes: Episodes) -> None:
    """Write every candidate's best policy as a plain rl_games checkpoint."""
    if args.run is None:
        return
    args.run.mkdir(parents=True, exist_ok=True)
    fitness = episodes.fitness.mean(dim=1).tolist()
    for name in dict.fromkeys(group.name for group in session.groups):
        own = [g for g, group in enumerate(session.groups) if group.name == name and session.env.alive[g]]
        if own:
            best = max(own, key=lambda g: fitness[g])
            path: Path = args.run / f"{args.task}_{name}.pth"
            save_state(path, session.trainer.export(best))


# the other simulator


def _transfer(args: Namespace, session: Session, episodes: Episodes, about: Record) -> Iterator[Record]:
    """Evaluate the same policies from the same initial states in the other simulator."""
    cfg = session.cfg
    other = make_config(args, num_envs_per_candidate=args.episodes, seeds=args.seeds)
    other.sim = next(sim for sim in SIMULATORS if sim != cfg.sim)
    other.sim, other.device = pick_simulator(other.sim, "cpu" if other.sim == "mujoco_cpu" else args.device)
    groups, failed = prepare(other, find_sources(args.task, args.candidates), read_fitness(other))
    if failed:
        sys.exit("\n".join(f"{name} failed in {other.sim}: {error}" for name, error in failed.items()))
    env = _evaluation(other, groups, args.episodes)
    release(other.device)
    play = session.trainer.policy(env.layout)

    def policy(obs: Tensor) -> Tensor:
        return play(obs.to(cfg.device)).to(other.device)

    played = run_episodes(env, policy, 1, EVALUATION_STEP)
    for name in dict.fromkeys(group.name for group in groups):
        yield {
            "kind": "transfer", "task": args.task, "candidate": name, "seeds": args.seeds, "episodes": args.episodes,
            "overrides": list(args.overrides), "trained_in": cfg.sim, "fitness": {
                cfg.sim: _by_seed(session, name, episodes.fitness), other.sim: _by_seed(session, name, played.fitness)
            }, **about,
        }  # fmt: skip
