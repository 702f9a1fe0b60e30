"""How often a campaign of an agent says *better* of candidates that are not, and of one that is, in simulations."""

import functools
import tempfile
import zlib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench import records
from bench.records import Record
from certainty_designs import EPISODES, EQUAL, Design

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
GAINS = {"normal within bounds": (0.05, 0.1, 0.2), "rare failures": (0.05, 0.09)}  # of one candidate


def campaigns(args: Namespace) -> Iterator[Record]:
    """Simulate campaigns of 18 attempts; those of equal candidates first."""
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder))
        for case in EQUAL:
            better = {agent: _share(campaign, case, agent, args.runs, 0.0)[-1] for agent in AGENTS}
            facts = {"kind": "equal_campaigns", "case": case, "blind": EQUAL[case].blind, "runs": args.runs}
            yield {**facts, "better": better, **records.describe("cpu")}
        for case, gains in GAINS.items():
            for gain in gains:
                told = _share(campaign, case, "ranks the best six again", args.runs, gain)
                facts = {"kind": "gains_in_campaigns", "case": case, "gain": gain, "runs": args.runs}
                yield {**facts, "told_at_first": told[0], "told_again": told[-1], **records.describe("cpu")}


def _share(campaign: Campaign, case: str, agent: str, runs: int, gain: float) -> list[float]:
    """Return the share of campaigns with a champion after the first two rankings, and at the end."""
    rng = np.random.default_rng(zlib.crc32(repr((case, agent, gain)).encode()))
    ends = np.array([_champions(campaign, EQUAL[case], agent, rng, gain) for _ in range(runs)])
    return np.round(ends.mean(axis=0), 4).tolist()


def _champions(campaign: Campaign, design: Design, agent: str, rng: np.random.Generator, gain: float) -> list[bool]:
    """Simulate a campaign; return whether there is a champion after the first rankings, and at its end."""
    count, seeds, times = AGENTS[agent]
    fitness = design.draw(rng, CANDIDATES, 6 + seeds * times)[1]
    fitness[1] += gain
    names = [HUMAN, *(f"c{k}" for k in range(CANDIDATES))]
    campaign.state = State(task="Cartpole")

    @functools.cache
    def model(jobs: tuple[str, ...]) -> FitnessModel:
        values: dict[str, dict[int, float]] = {}
        for job in map(campaign.job, jobs):
            for name in [HUMAN, *job.candidates]:
                columns = range(job.seed, job.seed + job.seeds)
                values.setdefault(name, {}).update((seed, fitness[names.index(name), seed]) for seed in columns)
        return FitnessModel(values, None, design.bounds, EPISODES, design.failed)

    def ranked(candidates: list[str], first: int, seeds: int) -> bool:
        name = f"j{len(campaign.state.jobs) + 1}"
        job = Job(name, "rank", candidates, HUMAN, first, seeds, 1, status="done")
        campaign.state.jobs.append(job)
        return best_of(campaign, job, lambda jobs: model(tuple(each.name for each in jobs))) != HUMAN

    found = [ranked(names[1 : 1 + TOGETHER], 0, 3), ranked(names[1 + TOGETHER :], 3, 3)]
    ends = [any(found)]
    for k in range(times):
        done = 6 + seeds * k
        means = fitness[1:, 6:done].mean(axis=1) if k else np.r_[fitness[1:7, :3].mean(1), fitness[7:, 3:6].mean(1)]
        again = [names[1 + c] for c in np.argsort(-means)[:count]] or names[1 : 1 + TOGETHER]
        found.append(ranked(again, done, seeds))
    return [*ends, any(found)]
