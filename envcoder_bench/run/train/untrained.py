"""The row ``untrained``: what the initial policy scores with the human baseline's observation and action functions.

It says what a fitness is worth: a candidate that is not above it has learnt nothing. It is measured once for each seed,
before the first iteration of the wave with the human baseline's group, by the final evaluation's episodes. It has a
trainer and an environment of its own, so that no group of the wave can notice it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.run_log import muted, note
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.report.results import FAILED, Result
from envcoder_bench.report.words import alone
from envcoder_bench.run.folder.checkpoint import GroupKey
from envcoder_bench.run.folder.results import scores
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.no_fitness import no_fitness
from envcoder_bench.run.train.session import make_trainer
from envcoder_bench.tasks.base import HUMAN, UNTRAINED


def due_in(wave: Iterable[GroupKey], done: Iterable[GroupKey]) -> list[GroupKey]:
    """Return the groups of a wave by which the untrained policy is to be evaluated.

    Args:
        done: candidate and seed of the rows that the run has.
    """
    seeds = {seed for name, seed in done if name == UNTRAINED}
    return [(name, seed) for name, seed in wave if name == HUMAN and seed not in seeds]


def evaluate_untrained(spec: RunSpec, groups: Sequence[Group], logs: RunLogs) -> list[Result]:
    """Evaluate the initial policies of groups of the human baseline, and log their episodes at iteration 0.

    Returns:
        A row for each group, in their order.
    """
    cfg, seeds = spec.config, [group.seed for group in groups]
    called = [replace(group.evaluation, programs={}) for group in groups]  # for one evaluation compiling takes longer
    with muted():  # in training these functions are compiled: that a CUDA graph cannot have a call of one is no news
        env = build_env(spec, called, seeds, cfg.evaluation.num_envs)
        trainer = make_trainer(cfg, env, GroupLayout(len(groups), cfg.num_envs_per_candidate))
        rounds = -(-cfg.evaluation.final_episodes // cfg.evaluation.num_envs)
        played = run_episodes(env, trainer.policy(env.layout), rounds, EVALUATION_STEP).cpu()
        episodes = played.first(cfg.evaluation.final_episodes)
        env.dispatch.poll()
    overflows, failures = env.take_contact_overflows().tolist(), env.failures
    rows = []
    for g, seed in enumerate(seeds):
        fault = failures.get(g) or no_fitness(env, episodes, g)
        if fault is not None:
            rows.append(Result(UNTRAINED, seed, FAILED, error=str(fault)))
            continue
        row = Result(UNTRAINED, seed, contact_overflows=overflows[g], **scores(spec, episodes, g))
        rows.append(row)
        logs.episodes.add(0, 0, UNTRAINED, seed, episodes.fitness[g].tolist())
        note(f"{UNTRAINED}, seed {seed}: fitness {alone(row.fitness)}")
    logs.episodes.flush()
    return rows
