"""How fast the human baseline learns: its fitness over the time of training alone."""

from __future__ import annotations

from argparse import Namespace
from typing import Iterator

from tqdm import tqdm

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.prepare import baseline_sources, build_task, prepare
from envcoder_bench.run.session import make_trainer
from envcoder_bench.trainers.base import train_iteration

from . import records
from .records import Record
from .session import make_config, now

POINTS, EPISODES = 6, 256


def human(args: Namespace) -> Iterator[Record]:
    """Train for ``--seconds``, and evaluate six times between; the evaluations are not counted."""
    cfg = make_config(args, num_envs_per_candidate=args.envs, learning_iterations=100_000, seed=args.seed)
    groups, _ = prepare(cfg, [b for b in baseline_sources("Anymal") if b.name == "human"])
    shaped, evaluation = (
        GroupedVecTask(build_task(cfg, n), GroupLayout(1, n), [shaping], [args.seed])
        for n, shaping in ((args.envs, groups[0].shaping), (EPISODES, groups[0].evaluation))
    )
    trainer, obs = make_trainer(cfg, shaped), shaped.reset()
    about = records.describe(cfg.device)
    spent, iteration, point = 0.0, 0, 1
    with tqdm(total=args.seconds, desc="training", unit="s", leave=False, disable=None) as bar:
        while point <= POINTS:
            began = now(cfg.device)
            obs, _ = train_iteration(trainer, shaped, obs)
            spent += now(cfg.device) - began
            iteration += 1
            bar.update(min(spent, args.seconds) - bar.n)
            if spent >= point * args.seconds / POINTS:
                policy = trainer.policy(evaluation.layout)
                fitness = run_episodes(evaluation, policy, 1, EVALUATION_STEP).fitness.mean()
                steps = iteration * args.envs * cfg.train.params.config.horizon_length
                size = {"kind": "human", "envs": args.envs, "seed": args.seed, "point": point}
                yield {
                    **size, "seconds": spent, "iteration": iteration, "env_steps": steps, "fitness": float(fitness),
                    **about,
                }  # fmt: skip
                point += 1
