"""How often a campaign of an agent says *better* of candidates that are not, and of one that is, in simulations."""

import functools
import tempfile
import zlib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
from bench import records
from bench.records import Record
from certainty_designs import EPISODES, EQUAL, Design

from envcoder_bench.results import pairs
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.serve.answers import best_of
from envcoder_bench.serve.campaign import Campaign, Job, State
from envcoder_bench.tasks.base import HUMAN

CANDIDATES, TOGETHER = 12, 6  # of a campaign, and of its first two rankings, which have 3 seeds
# what is ranked then, of the candidates by their means so far: how many, with how many seeds, and how often
AGENTS = {
    "ranks any six again": (0, 3, 1),
    "ranks the best six again": (6, 10, 1),
    "ranks the best one six times more": (1, 5, 6),
}
# those that broke campaigns, and all that are blind
DESIGNS = ["equal means by different ways", "learns or not, 0.8"]
DESIGNS += ["learns or not, 0.7, bounds unknown", "learns or not, 0.7, untrained known"]
DESIGNS += [case for case, design in EQUAL.items() if design.blind]
GAINS = [  # of one candidate
    *(("normal within bounds", gain) for gain in (0.05, 0.1, 0.2)),
    *(("normal", gain) for gain in (1.0, 2.0, 3.0)),
]


def campaigns(args: Namespace) -> Iterator[Record]:
    """Simulate campaigns of 18 attempts; those of equal candidates first."""
    verdicts_alone = mock.patch.object(pairs, "seeds_needed", lambda *_: None)  # half of the time
    with tempfile.TemporaryDirectory() as folder, verdicts_alone:
        campaign = Campaign(Path(folder))
        for case in DESIGNS:
            shares = champions(campaign, case, args.runs)
            facts = {"kind": "equal_campaigns", "case": case, "blind": EQUAL[case].blind, "runs": args.runs}
            yield {**facts, "better": {agent: shares[agent] for agent in AGENTS}, **records.describe("cpu")}
        for case, gain in GAINS:
            facts = {"kind": "gains_in_campaigns", "case": case, "gain": gain, "runs": args.runs}
            yield {**facts, "told": champions(campaign, case, args.runs, gain), **records.describe("cpu")}


def champions(campaign: Campaign, case: str, runs: int, gain: float = 0.0) -> dict[str, float]:
    """Return the share of campaigns with a champion after the first two rankings, and at the end, by agent."""
    rng = np.random.default_rng(zlib.crc32(repr((case, gain)).encode()))
    ends = [_campaign(campaign, EQUAL[case], rng, gain) for _ in range(runs)]
    return {name: round(float(np.mean([end[name] for end in ends])), 4) for name in ends[0]}


def _campaign(campaign: Campaign, design: Design, rng: np.random.Generator, gain: float) -> dict[str, bool]:
    """Simulate a campaign, whose first rankings are those of all agents."""
    fitness = design.draw(rng, CANDIDATES, 6 + max(seeds * times for _, seeds, times in AGENTS.values()))[1]
    fitness[1] += gain
    names = [HUMAN, *(f"c{k}" for k in range(CANDIDATES))]
    known: dict[int, np.ndarray] = {}  # columns of each candidate's seeds

    @functools.cache
    def model(jobs: tuple[tuple[tuple[str, ...], int, int], ...]) -> FitnessModel:
        values: dict[str, dict[int, float]] = {}
        for candidates, first, seeds in jobs:
            for name in [HUMAN, *candidates]:
                row = fitness[names.index(name)]
                values.setdefault(name, {}).update((seed, row[seed]) for seed in range(first, first + seeds))
        return FitnessModel(values, None, design.bounds, EPISODES, design.failed)

    def ranked(candidates: list[str], first: int, seeds: int) -> bool:
        job = Job(f"j{len(campaign.state.jobs) + 1}", "rank", candidates, HUMAN, first, seeds, 1, status="done")
        campaign.state.jobs.append(job)
        for name in candidates:
            known[names.index(name)] = np.r_[known.get(names.index(name), np.empty(0, int)), first : first + seeds]
        best = best_of(
            campaign, job, lambda jobs: model(tuple((tuple(each.candidates), each.seed, each.seeds) for each in jobs))
        )
        return best != HUMAN

    campaign.state = State(task="Cartpole")
    began = [ranked(names[1 : 1 + TOGETHER], 0, 3), ranked(names[1 + TOGETHER :], 3, 3)]
    start, jobs = dict(known), list(campaign.state.jobs)
    ends = {"first": any(began)}
    for agent, (count, seeds, times) in AGENTS.items():
        known, campaign.state.jobs = dict(start), list(jobs)
        found = any(began)
        for k in range(times):
            order = sorted(known, key=lambda c: -fitness[c, known[c]].mean())
            again = order[:count] or list(known)[:TOGETHER]
            found = found or ranked([names[c] for c in again], 6 + seeds * k, seeds)
        ends[agent] = found
    return ends
