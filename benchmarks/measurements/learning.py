"""How a task's baselines learn: fitness over env-steps and time, all seeds side by side."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import records
from bench.records import Record
from bench.session import Session
from torch import Tensor
from tqdm import tqdm

from envcoder_bench.core.errors import user_input
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.loading import load_source
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import SPARSE


def learning(args: Namespace) -> Iterator[Record]:
    """Train baselines and files for ``--seconds``; evaluations and compilation are not counted."""
    sources = find_sources(args.task, args.candidates)
    session = Session.build(args, sources, args.envs, seeds=args.seeds)
    evaluation = make_evaluation(session.spec, session.groups, args.episodes)
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
            for name in dict.fromkeys(group.name for group in session.groups):
                scores = {key: _by_seed(session, name, getattr(episodes, key)) for key in ("fitness", "length")}
                yield {"kind": "learning", "candidate": name, **size, **when, **scores, **about}


def find_sources(task: str, names: Sequence[str]) -> list[CandidateSource]:
    """Return baselines and files; exit if a name is neither. Raises UserError for an unknown task."""
    with user_input():
        spec = find_spec(task)
        baselines = {source.name: source for source in baseline_sources(spec)}
        sparse = spec.folder / f"{SPARSE}.py"
    if sparse.is_file():
        baselines[SPARSE] = CandidateSource(SPARSE, str(sparse), load_source(sparse))
    missing = [x for x in names if x not in baselines and not Path(x).is_file()]
    if missing:
        sys.exit(f"--candidates {missing[0]}: not a file, and the baselines are {', '.join(baselines)}")
    return [baselines.get(x) or CandidateSource(Path(x).stem, x, load_source(Path(x))) for x in names]


def warm_up(session: Session) -> None:
    """Run one iteration, which compiles and captures, and undo it."""
    trainer, env, obs = session.trainer.get_state(), session.env.get_state(), session.obs.clone()
    session.iterate()
    session.trainer.set_state(trainer)
    session.env.set_state(env)
    session.obs = obs


def _end_failed(session: Session, evaluation: GroupedVecTask) -> None:
    """Stop policies that failed in training or evaluation in both."""
    for env, other in ((session.env, evaluation), (evaluation, session.env)):
        env.dispatch.poll()
        for g, error in env.failures.items():
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


def make_evaluation(spec: RunSpec, groups: list[Group], episodes: int) -> GroupedVecTask:
    return build_env(spec, [group.evaluation for group in groups], [group.seed for group in groups], episodes)
