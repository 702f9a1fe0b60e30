"""The rows of results.csv that a wave gives: those of its groups, and those of the untrained policy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.run_log import muted, note
from envcoder_bench.core.words import format_fitness
from envcoder_bench.env.evaluation import Episodes, bin_ends, run_episodes
from envcoder_bench.env.trajectories import Recorder, Trajectories
from envcoder_bench.results.logs import RunLogs
from envcoder_bench.results.metrics import counted_names
from envcoder_bench.results.rows import FAILED, OK, RUNNING, Result
from envcoder_bench.results.statistics import success_interval
from envcoder_bench.run.fitness import fitness_bounds
from envcoder_bench.run.folder.checkpoint import GroupKey, packed
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.monitors import no_fitness
from envcoder_bench.run.train.session import Session, make_trainer
from envcoder_bench.tasks.base import HUMAN, UNTRAINED, Task

PHYSICS = ("unstable_resets", "training_episodes", "contact_overflows")  # counted for each group


def trained(session: Session) -> list[Result]:
    """Return a row per group from the last evaluation, with status ``running`` until training is complete."""
    stats = session.env.stats
    returns = stats.last_return.tolist()
    counts = {name: getattr(stats, name).tolist() for name in PHYSICS}
    failures = session.failures()
    status = OK if session.complete else RUNNING
    results = []
    for g, group in enumerate(session.groups):
        fields: dict[str, Any] = dict(status=status, env_steps=session.env_steps(g))
        fields.update((name, by_group[g]) for name, by_group in counts.items())
        if g in failures or session.episodes is None:
            fields.update(status=FAILED, fault=failures.get(g))
        else:
            fields.update(shaped_return=returns[g])
            fault = no_fitness(session.evaluation, session.episodes, g)
            if fault is None:
                fields.update(scores(session.spec, session.episodes, g, session.evaluation.task))
                if session.half_step is not None:
                    fields.update(half_step_fitness=session.half_step[g])
            else:  # a later evaluation may be without a fault
                fields.update(status=FAILED if session.complete else RUNNING, fault=fault)
        results.append(Result(group.name, group.seed, **fields))
    return results


def scores(spec: RunSpec, episodes: Episodes, group: int, task: Task) -> dict[str, Any]:
    """Return the fields of Result that a group's evaluation episodes of a task give."""
    fitness = episodes.fitness[group].double().tolist()
    ended = [] if episodes.ended is None else episodes.ended[group].sum(dim=0).tolist()
    mean, low, high = success_interval(fitness, fitness_bounds(spec.task, spec.config))
    return {
        "fitness": mean,
        "fitness_ci_low": low,
        "fitness_ci_high": high,
        "episodes": len(fitness),
        "episode_length": float(episodes.length[group].double().mean()),
        "ended": counted_names(dict(zip(task.ends(), ended))),
    }


def policies(session: Session) -> Iterator[tuple[GroupKey, bytes]]:
    """Yield the content of the policy file of each group that has a fitness."""
    for g, row in enumerate(trained(session)):
        if row.measured:
            yield row.key, packed(session.trainer.export(g))


# The row ``untrained``: what the initial policy scores with the human baseline's observation and action functions. It
# says what a fitness is worth: a candidate that is not above it has learned nothing. It is measured once for each seed,
# before the first iteration of the wave with the human baseline's group, by the final evaluation's episodes. It has a
# trainer and an environment of its own, so that no group of the wave can notice it.


def due_in(wave: Iterable[GroupKey], done: Iterable[GroupKey]) -> list[GroupKey]:
    """Return the groups of a wave by which the untrained policy is to be evaluated.

    Args:
        done: candidate and seed of the rows that the run has.
    """
    seeds = {seed for name, seed in done if name == UNTRAINED}
    return [(name, seed) for name, seed in wave if name == HUMAN and seed not in seeds]


def evaluate_untrained(
    spec: RunSpec, groups: Sequence[Group], logs: RunLogs
) -> tuple[list[Result], dict[str, Trajectories]]:
    """Evaluate the initial policies of groups of the human baseline, and log their episodes at iteration 0.

    Returns:
        A row for each group, in their order, and the trajectories of the first seed, if it is among them.
    """
    cfg, seeds = spec.config, [group.seed for group in groups]
    called = [replace(group.evaluation, programs={}) for group in groups]  # compiling takes longer than one evaluation
    with muted():  # these calls cannot be in CUDA graphs, but in training the functions are compiled
        env = build_env(spec, called, seeds, cfg.evaluation.num_envs)
        trainer = make_trainer(cfg, env, GroupLayout(len(groups), cfg.num_envs_per_candidate))
        rounds = -(-cfg.evaluation.final_episodes // cfg.evaluation.num_envs)
        recorder = Recorder(env, {g: UNTRAINED for g, seed in enumerate(seeds) if seed == cfg.seed})
        played = run_episodes(env, trainer.policy(env.layout), rounds, EVALUATION_STEP, recorder=recorder).cpu()
        episodes = played.first(cfg.evaluation.final_episodes)
        env.dispatch.poll()
    overflows, failures = env.take_contact_overflows().tolist(), env.failures
    rows, step_means = [], episodes.step_means(env.full_episode).tolist()
    for g, seed in enumerate(seeds):
        fault = failures.get(g) or no_fitness(env, episodes, g)
        if fault is not None:
            rows.append(Result(UNTRAINED, seed, FAILED, fault=fault))
            continue
        row = Result(UNTRAINED, seed, contact_overflows=overflows[g], **scores(spec, episodes, g, env.task))
        rows.append(row)
        logs.episodes.add(0, 0, UNTRAINED, seed, episodes.fitness[g].tolist())
        logs.step_fitness.add(0, 0, UNTRAINED, seed, bin_ends(env.full_episode), step_means[g], env.task.dt)
        note(f"{UNTRAINED}, seed {seed}: fitness {format_fitness(row.fitness)}")
    logs.episodes.flush()
    logs.step_fitness.flush()
    return rows, recorder.result(played.fitness)
