"""Searches by evolve with variants of reward terms and without, in pairs: does what the variants measure help?

A pair has the same random choices and first round, and the same number of candidates, variants included. All searches
proceed together: what they propose for a round trains in one run, equal texts once. A candidate that fails is not
repaired. The same command reads the runs that are complete, and resumes.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import records
from bench.records import Record
from bench.session import make_spec

from envcoder_bench import evaluate, resume
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.result import RunResult
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.folder import Round
from envcoder_bench.search.rounds import record_round
from envcoder_bench.search.terms import term_variants
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.tasks.base import BASELINES, HUMAN
from envcoder_bench.tasks.contract import task_contract

from .learning import find_sources

RUNS = Path(__file__).resolve().parents[2] / "runs" / "searches"
ARMS = ("with", "without")
SHORT = ["evaluation.points=5", "evaluation.point_steps=100", "evaluation.num_envs=64", "evaluation.final_episodes=64"]


@dataclass
class Search:
    """A search in progress, with so many variants of terms in a round from the second on."""

    proposer: EvolveProposer
    archive: Archive
    variants: int

    def round(self, number: int, count: int) -> Round:
        """Return the candidates of a round, as ``auto-shape`` proposes them."""
        variants = term_variants(self.archive, number, count, self.variants, [REWARD])
        return Round(number, self.proposer.propose(self.archive, number, count - len(variants)) + variants)

    def best(self) -> list[Attempt]:
        """Return the best so far, if a candidate has a fitness."""
        return list(filter(None, [self.archive.best()]))


def searches(args: Namespace) -> Iterator[Record]:
    """Run all searches; a record of the best so far after each round, and one of their held-out seeds."""
    spec, (start,) = make_spec(args), find_sources(args.task, [args.start])
    state = task_contract(spec.task, spec.config.task).state
    baselines = {source.name: Attempt(source.name, 0, source.source) for source in baseline_sources(spec.task)}
    every = [
        Search(
            EvolveProposer([REWARD], {start.name: start.source}, seed=pair, baselines=[], state=state),
            Archive([], baselines, spec.config.baseline),
            args.term_variants if arm == "with" else 0,
        )
        for arm in ARMS
        for pair in range(args.searches)
    ]
    keys = ("task", "searches", "rounds", "candidates", "term_variants", "envs", "iterations", "held_out", "overrides")
    about = {"kind": "searches", "start": start.name, **{key: getattr(args, key) for key in keys}}
    for number in range(1, args.rounds + 1):
        rounds = [search.round(number, args.candidates) for search in every]
        attempts = [[*round.ready, *search.best()] for search, round in zip(every, rounds)]
        result, names = _train(args, spec.config, about, attempts, seed=number - 1, seeds=1)
        points = result.evaluations()
        for search, round, mine in zip(every, rounds, names):
            search.archive = record_round(search.archive, round, _of(result.rows, mine), _of(points, mine))
        attempts = [search.archive.attempts for search in every]
        facts = {
            **_by_arm([[x for best in search.best() for x in best.by_seed.values()] for search in every]),
            "best": _by_arm([[f"{best.name}: {best.origin}" for best in search.best()] for search in every]),
            "variants": _by_arm([sum(bool(x.term) for x in of_search) for of_search in attempts]),
            "failed": _by_arm([sum(x.fitness is None for x in of_search) for of_search in attempts]),
        }
        seconds = result.summary["wall_time"]
        yield {**about, "stage": f"round {number}", **facts, "seconds": seconds, **records.describe(spec.config.device)}
    # the best of each search, the start, and the baselines, with seeds that no round had
    attempts = [*(search.best() for search in every), [start]]
    result, names = _train(args, spec.config, about, attempts, seed=args.rounds, seeds=args.held_out)
    names.append({HUMAN: HUMAN})
    *scores, of_start, of_human = [[x.fitness for x in _of(result.rows, mine, ()) if x.measured] for mine in names]
    facts = {**_by_arm(scores), "of_start": of_start, "of_human": of_human, "seconds": result.summary["wall_time"]}
    yield {**about, "stage": "held-out seeds", **facts, **records.describe(spec.config.device)}


def _train(
    args: Namespace, cfg: Any, about: Record, attempts: Any, **seeds: int
) -> tuple[RunResult, list[dict[str, str]]]:
    """Train the candidates of all searches in one run; return, for each search, its names by those of the run."""
    unique_texts = dict.fromkeys(attempt.source for mine in attempts for attempt in mine)
    batch = {text: f"c{k:03d}" for k, text in enumerate(unique_texts)}
    sizes = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations, "save_state": False}
    sizes.update(sim=cfg.sim, device=cfg.device, shaper_types=[REWARD], **seeds)
    folder = RUNS / args.task / records.identify({**about, **sizes, "texts": list(batch)})["id"]
    texts, words = {name: text for text, name in batch.items()}, [*SHORT, *args.overrides]
    is_there = (folder / "config.yaml").is_file()
    result = resume(folder) if is_there else evaluate(args.task, texts, overrides=words, output_dir=folder, **sizes)
    print(f"{folder}: {len(batch)} candidates, {result.summary['wall_time']:.0f} s", flush=True)
    return result, [{batch[attempt.source]: attempt.name for attempt in mine} for mine in attempts]


def _of(rows: Sequence[Any], names: Mapping[str, str], others: Sequence[str] = BASELINES) -> list[Any]:
    """Return the rows of a search's own candidates, with its own names, and those of the baselines."""
    mine = {**{name: name for name in others}, **names}
    return [replace(row, candidate=mine[row.candidate]) for row in rows if row.candidate in mine]


def _by_arm(values: list[Any]) -> dict[str, list[Any]]:
    return {"with": values[: len(values) // 2], "without": values[len(values) // 2 :]}


def means(row: Record, arm: str) -> list[float | None]:
    """Return the fitness of each search of a record, the mean over its seeds; None of one without."""
    return [fmean(seeds) if seeds else None for seeds in row[arm]]


def differences(row: Record) -> list[float | None]:
    """Return what variants add in each pair of a record; None where one of the two has no fitness."""
    pairs = zip(*(means(row, arm) for arm in ARMS))
    return [None if a is None or b is None else a - b for a, b in pairs]
