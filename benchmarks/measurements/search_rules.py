"""How a search chooses: its rule and the earlier one, in simulated searches, with recorded candidates, and by evolve.

The earlier rule trained the best so far again in each round, ranked by the paired difference to human with one further
seed of the median candidate, and had no validation. A rule's cost is its number of trainings, all of one length.
"""

import json
import math
import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from bench import records
from bench.records import Record
from bench.session import make_spec

from envcoder_bench.core.errors import UserError
from envcoder_bench.results.pairs import BETTER
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import Result
from envcoder_bench.run.fitness import fitness_bounds
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.folder import Round
from envcoder_bench.search.providers.code import extract_code
from envcoder_bench.search.rounds import record_again, record_round
from envcoder_bench.search.screen import verdict
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.shaping.source import reduced, without_script
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN
from envcoder_bench.tasks.contract import task_contract

from .searches import _of, _train

FINAL = 15  # trainings of the final evaluation: the best and both baselines, five seeds each


class EarlierArchive(Archive):
    """An archive with the order of earlier versions."""

    def order(self) -> list[str]:
        """Return names by the mean difference to human's level of each seed, one more seed of the median included."""
        whole = [a for a in self.attempts if a.by_seed]
        if not whole:
            return []
        fewest = min((len(a.by_seed) for a in whole), default=0)
        anchors = [self.baselines[name].by_seed for name in BASELINE_FILES]
        level = levels([*anchors, *(a.by_seed for a in whole if len(a.by_seed) > fewest)])
        gaps = {a.name: [x - level[seed] for seed, x in a.by_seed.items() if seed in level] for a in whole}
        middle = statistics.median(fmean(x) for x in gaps.values())
        scores = {name: (math.fsum(x) + middle) / (len(x) + 1) for name, x in gaps.items()}
        scores.update({name: 0.0 if name == HUMAN else -math.inf for name in BASELINE_FILES})
        return sorted(scores, key=lambda name: scores[name], reverse=True)


def levels(anchors: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return human's fitness by seed: the median of what those say that several rounds trained, human first."""
    first, estimates = anchors[0], dict[int, list[float]]()
    for anchor in anchors:
        above = [x - first[seed] for seed, x in anchor.items() if seed in first]
        for seed, x in anchor.items() if above else ():
            estimates.setdefault(seed, []).append(x - fmean(above))
    level = {seed: statistics.median(values) for seed, values in estimates.items()}
    drift = fmean([level[seed] - x for seed, x in first.items()])
    return {seed: x - drift for seed, x in level.items()}


@dataclass(frozen=True)
class Rule:
    """How a search chooses: what trains again in each round, and what is compared after the last one."""

    name: str
    archive: type[Archive]
    retrained: int
    validated: int = 0
    validation_seeds: int = 0


EARLIER = Rule("earlier", EarlierArchive, 1)
PRESENT = Rule("present", Archive, 3, 5, 5)


@dataclass
class Chosen:
    """The archive of a finished search, what it chose, and its number of trainings."""

    archive: Archive
    name: str
    trainings: int


def choose(
    rule: Rule,
    rounds: Sequence[Sequence[str]],
    result: Callable[[str, int], float],
    seeds: Iterator[int],
    each: int = 1,
) -> Chosen:
    """Search among candidates whose results are known by name and seed; every round has ``each`` new seeds."""
    baselines = {name: Attempt(name, 0, "") for name in BASELINE_FILES}
    archive, trainings = rule.archive([], baselines), FINAL

    def train(attempt: Attempt, new: Sequence[int]) -> Attempt:
        return attempt.measured_again({seed: result(attempt.name, seed) for seed in new})

    for number, names in enumerate(rounds, 1):
        again, new = {a.name for a in archive.leaders(rule.retrained)}, [next(seeds) for _ in range(each)]
        attempts = [train(a, new) if a.name in again else a for a in archive.attempts]
        attempts += [train(Attempt(name, number, ""), new) for name in names]
        everyone = {name: train(baseline, new) for name, baseline in archive.baselines.items()}
        archive = replace(archive, attempts=attempts, baselines=everyone)
        trainings += each * (len(names) + len(again) + len(everyone))
    again, new = {a.name for a in archive.leaders(rule.validated)}, [next(seeds) for _ in range(rule.validation_seeds)]
    if len(again) > 1:
        archive = replace(archive, attempts=[train(a, new) if a.name in again else a for a in archive.attempts])
        trainings += len(again) * len(new)
    best = archive.best()
    assert best is not None
    return Chosen(archive, best.name, trainings)


# simulated searches


def truths(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the true fitness of candidates minus human's, in deviations of seeds."""
    if kind == "equal":
        return np.zeros(count)
    if kind == "few better":  # of a hundred eight by half a deviation, two by one
        return rng.choice([1.0, 0.5, 0.0], size=count, p=[0.02, 0.08, 0.9])
    return rng.normal(-0.5, 1.0, count)


# what is compared: rule, candidates of a round, seeds of a round; 5 x 1 and 7 x 3 cost what the earlier rule does
DESIGNS = ((EARLIER, 10, 1), (PRESENT, 10, 1), (PRESENT, 5, 1), (EARLIER, 10, 3), (PRESENT, 10, 3), (PRESENT, 7, 3))


def search_rules(args: Namespace) -> Iterator[Record]:
    """Simulate searches of five rounds with known truth; a record for each kind and design."""
    for kind in ("equal", "few better", "normal"):
        for rule, candidates, seeds in DESIGNS:
            yield {
                "kind": "search_rules",
                **simulate(kind, rule, candidates, seeds, args.runs),
                **records.describe("cpu"),
            }


def simulate(kind: str, rule: Rule, candidates: int, seeds: int, runs: int) -> Record:
    """Return how often the chosen is the best, its regret, its fitness, and how often one is falsely called better."""
    rows = np.array([_simulated(kind, rule, candidates, seeds, np.random.default_rng(run)) for run in range(runs)])
    top, regret, fitness, false, final, trainings = rows.mean(axis=0)
    error = float(np.std(rows[:, 1], ddof=1) / math.sqrt(runs))
    return {
        "case": kind, "rule": rule.name, "candidates": candidates, "seeds": seeds, "runs": runs, "trainings": trainings,
        "is_best": round(top, 3), "regret": round(regret, 3), "regret_error": round(error, 3),
        "chosen": round(fitness, 3), "false_better": round(false, 3) if rule is PRESENT else None,
        "false_in_the_end": round(final, 3),
    }  # fmt: skip


def _simulated(kind: str, rule: Rule, candidates: int, seeds: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Return of one search: is the best chosen, regret, fitness, falsely better so far and in the end, trainings."""
    rounds = [[f"r{number}_{k:02d}" for k in range(candidates)] for number in range(1, 6)]
    names = [name for names in rounds for name in names]
    truth = dict(zip(names, truths(kind, len(names), rng).tolist())) | {HUMAN: 0.0, "unshaped": -1.0}
    effects = rng.normal(0.0, 0.3, 100)
    chosen = choose(rule, rounds, lambda name, seed: truth[name] + effects[seed] + rng.normal(), count(), seeds)
    best, value, merits = max(truth[name] for name in names), truth[chosen.name], chosen.archive.merits()
    said = [merits.pair(a.name, HUMAN).verdict == BETTER for a in chosen.archive.leaders(5) if truth[a.name] <= 0.0]
    # the final evaluation: the chosen and both baselines, with five new seeds
    new = rng.normal(0.0, 0.3, FINAL // 3)
    rows = [
        Result(name, seed, fitness=truth[name] + new[seed] + rng.normal())
        for name in (chosen.name, *BASELINE_FILES)
        for seed in range(len(new))
    ]
    final = verdict(rank(rows), chosen.name).startswith(f"{chosen.name} is better") and value <= 0.0
    return float(value == best), best - value, value, float(any(said)), float(final), float(chosen.trainings)


# recorded candidates


def recorded(transcript: Path) -> dict[str, str]:
    """Return the rewards of the candidates in a transcript by name, of a repaired one the last."""
    sources = {}
    for line in transcript.read_text(encoding="utf-8").splitlines()[1:]:
        record = json.loads(line)
        code = extract_code(record["reply"]["text"])
        text = reduced(without_script(code), [REWARD])[0] if code else ""
        if text:
            sources[record["label"].split()[0]] = text
    return sources


def recorded_searches(args: Namespace) -> Iterator[Record]:
    """Train recorded candidates with many seeds once, and search among them with seeds that are drawn of those."""
    spec = make_spec(args)
    attempts = [Attempt(name, int(name[1]), text) for name, text in recorded(Path(args.recorded)).items()]
    numbers = sorted({a.round for a in attempts})
    used = len(numbers) + PRESENT.validation_seeds
    if args.seeds <= used + 1:
        raise UserError(f"--seeds {args.seeds}: a search uses {used}, and at least two are held out")
    about = {"kind": "recorded_searches", "task": args.task, "envs": args.envs, "iterations": args.iterations}
    table: dict[tuple[str, int], float] = {}
    seconds = 0.0
    for first in range(0, args.seeds, args.batch):  # a run for each batch of seeds: what is complete is not run again
        seeds = min(args.batch, args.seeds - first)
        result, (names,) = _train(args, spec.config, about, [attempts], seed=first, seeds=seeds)
        table |= {(row.candidate, row.seed): row.fitness for row in _of(result.rows, names) if row.measured}
        seconds += result.summary["wall_time"]
    rounds = [[a.name for a in attempts if a.round == number] for number in numbers]
    everyone = [name for names in rounds for name in names]
    # the first search has the seeds of the recorded one, 0, 1, 2 ...; those that it does not use are held out
    held_out = [Result(x, s, fitness=table[x, s]) for x in [*everyone, HUMAN] for s in range(used, args.seeds)]
    may_be_best = [row.candidate for row in rank(held_out, fitness_bounds(spec.task, spec.config)) if row.contender]
    for rule in (EARLIER, PRESENT):
        regrets, values, chosen, trainings = [], [], [], 0
        for run in range(args.runs):
            order = [*range(args.seeds)] if run == 0 else np.random.default_rng(run).permutation(args.seeds).tolist()
            found = choose(rule, rounds, lambda name, seed: table[name, seed], iter(order))
            new = {name: fmean([table[name, seed] for seed in order[used:]]) for name in [*everyone, HUMAN]}
            regrets.append(max(new[name] for name in everyone) - new[found.name])
            values.append(new[found.name] - new[HUMAN])
            chosen.append(found.name)
            trainings = found.trainings
        yield {
            **about, "rule": rule.name, "seeds": args.seeds, "runs": args.runs, "trainings": trainings,
            "regret": round(fmean(regrets), 4), "above_human": round(fmean(values), 4), "first_chosen": chosen[0],
            "may_be_best": may_be_best,
            "means": {x: round(fmean([table[x, s] for s in range(args.seeds)]), 4) for x in [*everyone, HUMAN]},
            "seconds": round(seconds, 1), **records.describe(spec.config.device),
        }  # fmt: skip


# searches by evolve


@dataclass
class Evolving:
    """A search by evolve in progress."""

    rule: Rule
    candidates: int
    proposer: EvolveProposer
    archive: Archive
    trainings: int = field(default=FINAL)


def evolving_searches(args: Namespace) -> Iterator[Record]:
    """Search with evolve under both rules, in pairs with the same random choices; a record whenever pairs are complete.

    Some pairs proceed together, in one run a round; the next ones have other seeds. A record has all pairs so far.
    """
    spec = make_spec(args)
    keys = ("task", "rounds", "candidates", "fewer", "envs", "iterations", "held_out", "overrides")
    about = {"kind": "evolving_searches", **{key: getattr(args, key) for key in keys}}
    above: dict[str, list[float | None]] = {EARLIER.name: [], PRESENT.name: []}
    of_human: list[float] = []
    for first in range(0, args.searches, args.together):
        pairs = range(first, min(first + args.together, args.searches))
        every, human, scores = _evolve(args, spec, about, pairs)
        for each, values in zip(every, scores):
            above[each.rule.name].append(fmean(values) - human if values else None)
        of_human.append(human)
        trainings = {each.rule.name: each.trainings for each in every}
        so_far = {rule: [*values] for rule, values in above.items()}
        measured = {"searches": pairs.stop, **so_far, "trainings": trainings, "of_human": fmean(of_human)}
        yield {**about, **measured, **records.describe(spec.config.device)}


def _evolve(
    args: Namespace, spec: RunSpec, about: Record, pairs: range
) -> tuple[list[Evolving], float, list[list[float]]]:
    """Search in pairs that proceed together; return the searches, and of held-out seeds human's fitness and theirs."""
    state = task_contract(spec.task, spec.config.task).state
    baselines = {source.name: Attempt(source.name, 0, source.source) for source in baseline_sources(spec.task)}
    every = [
        Evolving(rule, candidates, EvolveProposer([REWARD], seed=pair, state=state), rule.archive([], baselines))
        for rule, candidates in ((EARLIER, args.candidates), (PRESENT, args.fewer))
        for pair in pairs
    ]
    seed = pairs.start // args.together * (args.rounds + PRESENT.validation_seeds + args.held_out)
    for number in range(1, args.rounds + 1):
        rounds = [Round(number, each.proposer.propose(each.archive, number, each.candidates)) for each in every]
        again = [each.archive.leaders(each.rule.retrained) for each in every]
        attempts: list[list[Any]] = [[*round.ready, *leaders] for round, leaders in zip(rounds, again)]
        result, names = _train(args, spec.config, about, attempts, seed=seed + number - 1, seeds=1)
        for each, round, mine in zip(every, rounds, names):
            each.archive = record_round(each.archive, round, _of(result.rows, mine), _of(result.evaluations(), mine))
            each.trainings += len(mine) + len(BASELINE_FILES)
    # validation
    again = [each.archive.leaders(each.rule.validated) for each in every]
    seed, seeds = seed + args.rounds, PRESENT.validation_seeds
    result, names = _train(args, spec.config, about, again, seed=seed, seeds=seeds)
    for each, mine in zip(every, names):
        each.archive = record_again(each.archive, _of(result.rows, mine, ()))
        each.trainings += seeds * len(mine)
    # seeds that nothing was chosen by
    best = [list(filter(None, [each.archive.best()])) for each in every]
    result, names = _train(args, spec.config, about, best, seed=seed + seeds, seeds=args.held_out)
    human = fmean([row.fitness for row in result.rows if row.candidate == HUMAN and row.measured])
    return every, human, [[row.fitness for row in _of(result.rows, mine, ()) if row.measured] for mine in names]
