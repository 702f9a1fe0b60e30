"""Whether the tasks of score-model can score: a frozen bank with two seeds, and the best of it with fresh ones."""

import random
import re
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import torch
from bench import records
from measurements.search_rules import recorded
from torch import Tensor

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.settings import plain
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.core.yaml_files import read_yaml
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.folder.policies import load_policy, open_run
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.result import RunResult
from envcoder_bench.score.protocol import SETS, SMOKE, STANDARD, TRACKS, ScoredTask
from envcoder_bench.score.protocol import TASKS as SCORED
from envcoder_bench.score.scoring import DEVIATIONS
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.terms import reward_terms, scaled
from envcoder_bench.shaping.kinds import FITNESS, REWARD
from envcoder_bench.shaping.source import Source, shaping_source
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.stress.episodes import acting
from envcoder_bench.tasks.base import BASELINES, HUMAN
from envcoder_bench.tasks.contract import task_contract

from .analysis import calibration
from .quarters import WEIGHTS
from .ranks import mutated
from .training import Study, digest, evaluations, folder_name

TASKS = tuple(dict.fromkeys(SCORED[name].address for name in (*SETS[SMOKE], *SETS[STANDARD])))
TRACK = TRACKS["reward"]
Fitness = dict[str, list[float | None]]  # by candidate and seed
GOAL_WEIGHTS = (-1.0, 0.0, 1.0, 3.0)  # of each goal's fitness, per second
ALIVE = (0.0, 1.0, 3.0)  # per second: without it, a policy whose goals cost more than they pay ends its episodes
ROLES = BANK, FRESH = "bank", "fresh"  # the bank, and the best of it with fresh seeds
FIRST_SEEDS = {BANK: 0, FRESH: 5000}
STARTS = {"CartpoleSwingup": Path(__file__).parent.parent / "starts" / "cartpole_swingup.jsonl"}
_GOALS = '''

def compute_reward(state_dict):
    """The human baseline's terms with other weights, the goals', and being alive."""
    total, terms = human_reward(state_dict)
    dt, root_states, gravity_vec = (state_dict[key] for key in ("dt", "root_states", "gravity_vec"))
    goals = {{
{terms}
        "alive": {alive} * dt * torch.ones_like(total),
    }}
    return total + sum(goals.values()), {{**terms, **goals}}
'''


def bank(study: Study) -> None:
    """Train the bank of each task with two seeds, then the best of each scored task with seeds that the bank lacks."""
    args = study.args
    for address in args.tasks or TASKS:
        scored = [task for task in SCORED.values() if task.address == address]
        texts = candidates(address, args.candidates)
        fitness = _train(study, scored, texts, BANK, args.seeds)
        if fitness is None:
            continue
        best = dict.fromkeys(name for by_name in fitness.values() for name in _best(by_name, args.best))
        fresh = _train(study, scored, {name: texts[name] for name in best}, FRESH, args.fresh_seeds)
        if fresh is not None and args.references is not None:
            _write_references(study, [task.name for task in scored], texts)


def _write_references(study: Study, tasks: Sequence[str], texts: Mapping[str, str]) -> None:
    """Write the best of the bank of each task where it is above human by DEVIATIONS of seeds."""
    for task in tasks:
        first, fresh = (
            [r for r in study.known if r.get("task") == task and r.get("role") == role][-1] for role in ROLES
        )
        found = calibration(first, fresh)
        print(f"{task}: {found.best} is above human by {found.above_human:.1f} deviations of seeds", flush=True)
        if found.above_human >= DEVIATIONS:
            origin = f"{found.best} of benchmarks/studies/bank.py, record {fresh['id']}"
            about = f"A reference of {task}, the highest of its bank: {origin}."
            text = Source(texts[found.best]).with_docstring(about)
            study.args.references.mkdir(parents=True, exist_ok=True)
            (study.args.references / f"{task}_{BANK}.py").write_text(text, encoding="utf-8")


def candidates(address: str, count: int) -> dict[str, str]:
    """Return the frozen bank of a task by name: the same for each call.

    Where the human reward has named terms these have drawn weights, and where the score has goals for the task, their
    fitness is a further term of drawn weight. Otherwise they are random mutations of the baselines and of recorded
    answers of a model. No training chooses among them.
    """
    human = Source(next(b.source for b in baseline_sources(find_spec(address)) if b.name == HUMAN))
    human = shaping_source(human.text, TRACK)
    terms = list(reward_terms(human))
    goals = [task.goal for task in SCORED.values() if task.address == address and task.goal is not None]
    if not terms:
        spec = find_spec(address)
        state = task_contract(spec, plain(read_yaml(spec.config))).state
        start = {f"model_{k}": text for k, text in recorded(STARTS[address]).items()} if address in STARTS else {}
        return mutated(address, count, EvolveProposer(TRACK, selection=False, state=state), start)
    return {f"bank_{k:03d}": _weighted(human, terms, goals, random.Random(f"{address} {k}")) for k in range(count)}


def _weighted(human: Source, terms: Sequence[str], goals: Sequence[Path], rng: random.Random) -> str:
    """Return the human shaping with drawn weights of its reward's terms, and of the goals'."""
    factors = {name: rng.choice(WEIGHTS) for name in terms}
    source = scaled(human, {name: factor for name, factor in factors.items() if factor != 1.0})
    if not goals:
        return source.text
    source = Source(re.sub(rf"\b{REWARD}\b", "human_reward", source.text))
    entries = []
    for goal in goals:
        name = goal.stem.split("_")[-1]
        source = source.joined(Source(goal.read_text(encoding="utf-8").replace(FITNESS, name)), [name])
        # a weight of 0 as well: candidates that differ in numbers alone are compiled once
        entries.append(f'        "{name}": {rng.choice(GOAL_WEIGHTS)} * dt * {name}(root_states, gravity_vec),')
    return source.text + _GOALS.format(terms="\n".join(entries), alive=rng.choice(ALIVE))


def _train(
    study: Study, scored: Sequence[ScoredTask], texts: Mapping[str, str], role: str, seeds: int
) -> dict[str, Fitness] | None:
    """Train candidates unless it is recorded; return their fitness by scored task and name, None if it was stopped."""
    args, address, first = study.args, scored[0].address, FIRST_SEEDS[role]
    envs, iterations = (int(word.split("=")[1]) for word in scored[0].overrides)
    about = {
        "kind": "bank", "role": role, "candidates": len(texts), "envs": envs, "iterations": iterations,
        "episodes": args.episodes, "seeds": seeds, "first_seed": first, "overrides": list(args.overrides),
        "sources": digest(sorted(texts.items())),
    }  # fmt: skip
    same = [r for r in study.known if r["kind"] == "bank" and all(r[key] == value for key, value in about.items())]
    recorded_fitness = {r["task"]: r["fitness"] for r in same}
    if all(task.name in recorded_fitness for task in scored) or study.stop.by is not None:
        return {task.name: recorded_fitness[task.name] for task in scored} if recorded_fitness else None
    settings = {
        "num_envs_per_candidate": envs, "learning_iterations": iterations, "shaper_types": list(TRACK),
        "evaluation.points": 1, "evaluation.num_envs": args.episodes, "evaluation.final_episodes": args.episodes,
    }  # fmt: skip
    folder = args.work / folder_name({**about, "task": address})
    print(f"{folder.name} ...", flush=True)
    result = study.run(address, texts, folder, seeds=seeds, seed=first, save_state=False, **settings)
    if not result.complete:
        return None
    last = evaluations(result, about)[-1]
    goals = {task.name: task.goal for task in scored if task.goal is not None}
    fitness = {scored[0].name: last["fitness"]}
    if goals:
        fitness = goals_of(result, goals, args.episodes, range(first, first + seeds))
    for name, by_candidate in fitness.items():
        record = {**last, "task": name, "fitness": by_candidate}
        records.append(study.out, record)
        study.known.append(record)
    return fitness


def _best(fitness: Fitness, count: int) -> list[str]:
    """Return the candidates with the highest means over all seeds."""
    means = {k: mean(x for x in v if x is not None) for k, v in fitness.items() if k not in BASELINES and None not in v}
    return sorted(means, key=lambda name: -means[name])[:count]


class GoalFitness:
    """The mean fitness of each episode by several fitness functions at once; a ``recorder`` of ``run_episodes``."""

    def __init__(self, env: GroupedVecTask, goals: Mapping[str, Path]) -> None:
        self._env = env
        self._functions = {name: runpy.run_path(str(path))[FITNESS] for name, path in goals.items()}
        self._sums = {name: torch.zeros(env.num_envs, device=env.device) for name in goals}

    def step(self, t: int, active: Tensor, ended: Tensor) -> None:
        state, alive = self._env.task.state, active & ~ended
        for name, function in self._functions.items():
            value = function(state["root_states"], state["gravity_vec"])
            self._sums[name] += torch.where(alive, value, torch.zeros_like(value))

    def means(self) -> dict[str, Tensor]:
        """Return the fitness of each group by goal, ``(num_groups,)``."""
        shape = (self._env.layout.num_groups, -1)
        return {k: (x / self._env.full_episode).view(shape).double().mean(dim=1) for k, x in self._sums.items()}


def goals_of(result: RunResult, goals: Mapping[str, Path], episodes: int, seeds: Sequence[int]) -> dict[str, Fitness]:
    """Return the fitness of a run's final policies by each goal, by goal, candidate and seed, in the same episodes."""
    run = open_run(result.folder)
    with settings_kept(), torch.no_grad():
        groups, _ = prepare(run.spec)
        rows = {row.key for row in run.rows if row.measured}
        groups = [group for group in groups if group.key in rows]
        env = build_env(run.spec, [group.evaluation for group in groups], [group.seed for group in groups], episodes)
        recorder = GoalFitness(env, goals)
        modules = [load_policy(run, group.name, group.seed).module for group in groups]
        run_episodes(env, acting(env, modules), 1, EVALUATION_STEP, recorder=recorder)
    names = dict.fromkeys(group.name for group in groups)
    fitness: dict[str, Fitness] = {}
    for goal, means in recorder.means().items():
        by_key = {group.key: round(value, 5) for group, value in zip(groups, means.tolist())}
        fitness[goal] = {name: [by_key.get((name, seed)) for seed in seeds] for name in names}
    return fitness
