"""How often a ranking's statements are right, in simulated runs whose truth is known."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from bench import records
from bench.records import Record
from certainty_designs import (
    DIFFERENT,
    EQUAL,
    LATER,
    RATE,
    Facts,
    different_family,
    equal_family,
    extended_family,
    model,
)

# candidates x seeds of the designs
EQUAL_SIZES = [*((n, seeds) for n in (1, 2, 3, 12) for seeds in (2, 3, 5, 8, 12)), (60, 3), (250, 3)]
SCREENED = 0.2  # share of the runs that are made of every size; all if more than SUSPECT of these say something false
SUSPECT = 0.045
# and the share of --runs: large ones take long
DIFFERENT_SIZES = {(3, 3): 0.3, (12, 2): 0.3, (12, 3): 0.3, (12, 5): 0.3, (60, 5): 0.15, (250, 3): 0.08}
EXTENDED = (
    "normal",
    "learns or not, 0.7",
    "rare failures",
    "equal means by different ways",
    "mutants",
    "costs",
    *LATER,
)
RECORDED = (  # trainings of Anymal and Ant in study.jsonl: the record, seeds
    ("ranks-c93dc8b7", 3), ("ranks-99211b24", 3), ("devices-470867bd", 3), ("devices-470867bd", 5),
    ("ranks-3d255ae7", 3), ("ranks-c710f4b8", 3),
)  # fmt: skip


def designs(args: Namespace) -> Iterator[Record]:
    """Simulate runs of the designs that others wrote, and take runs of recorded trainings."""
    chosen = [name for name in {**EQUAL, **DIFFERENT} if args.only in name]
    made_of = (_equal(args.runs, chosen), _different(args.runs, chosen), _extended(args.runs, chosen))
    for made in (*made_of, _power(args.runs) if args.only in "recorded" else ()):
        yield from ({**facts, **records.describe("cpu")} for facts in made)


def _equal(runs: int, chosen: Sequence[str]) -> Iterator[Facts]:
    for name in filter(EQUAL.__contains__, chosen):
        yield {"kind": "equal_designs", **_together([_screened(name, *size, runs) for size in EQUAL_SIZES])}


def _screened(name: str, candidates: int, seeds: int, runs: int) -> Facts:
    """Simulate a share of the runs, and all of them if too many of these have a false statement."""
    facts = equal_family(name, candidates, seeds, max(1, round(SCREENED * runs)))
    if max(facts["marked"], facts["better"]) <= SUSPECT:
        return facts
    return equal_family(name, candidates, seeds, runs)


def _different(runs: int, chosen: Sequence[str]) -> Iterator[Facts]:
    for name in filter(DIFFERENT.__contains__, chosen):
        cells = [different_family(name, *size, max(1, round(share * runs))) for size, share in DIFFERENT_SIZES.items()]
        yield {"kind": "different_designs", **_together(cells)}


def _together(cells: list[Facts]) -> Facts:
    """Return facts of one design, whose sizes are in ``cells``."""
    shared = ("case", "blind")
    rows = [{k: round(x, 5) if isinstance(x, float) else x for k, x in own.items() if k not in shared} for own in cells]
    return {**{name: cells[0][name] for name in shared}, "cells": rows}


def _extended(runs: int, chosen: Sequence[str]) -> Iterator[Facts]:
    for name in filter(EXTENDED.__contains__, chosen):
        cells = (extended_family(name, n, max(1, round(0.5 * runs))) for n in (1, 3))
        yield from ({"kind": "extended_designs", **facts} for facts in cells)


def _power(runs: int) -> Iterator[Facts]:
    """Take 13 recorded candidates, one of them as human; return the share of the others that is marked."""
    from scipy import stats

    from envcoder_bench.results.statistics import LEVEL, UNBOUNDED, corrected, holm

    by_id = {record["id"]: record for record in records.read(Path(__file__).parents[1] / "study.jsonl")}
    for name, seeds in RECORDED:
        rng, marked, paired = np.random.default_rng(1), [], []
        trained = [own[:seeds] for own in by_id[name]["fitness"].values() if None not in own]
        table = np.array([own for own in trained if len(own) == seeds])
        for _ in range(runs):
            fitness = table[rng.choice(len(table), 13, replace=False)]
            # without bounds a seed that learns nothing has the fitness of an untrained Ant, 0
            run = model(fitness, UNBOUNDED, 0.0) if by_id[name]["task"] == "Ant" else model(fitness, RATE)
            human, *others = run.names
            marked += [p < LEVEL for p in corrected(run.p_values(human, others))]
            tests = stats.ttest_1samp(fitness[1:] - fitness[0], 0.0, axis=1)
            paired += [p < LEVEL for p in holm(np.nan_to_num(tests.pvalue, nan=1.0))]
        yield {
            "kind": "recorded_power", "task": by_id[name]["task"], "record": name, "candidates": 12, "seeds": seeds,
            "runs": runs,
            "marked": round(float(np.mean(marked)), 4), "paired": round(float(np.mean(paired)), 4),
        }  # fmt: skip
