"""How often a ranking's statements are right, in simulated runs whose truth is known."""

from argparse import Namespace
from collections.abc import Callable, Iterator

from bench import records
from bench.records import Record
from simulated_runs import CASES, equal_candidates, first_places, power


def certainty(args: Namespace) -> Iterator[Record]:
    """Simulate runs of all kinds."""
    every: list[Callable[[], Record]] = []
    for case in CASES:
        for seeds in (3, 5, 10):
            every.append(lambda c=case, s=seeds: equal_candidates(c, 20, s, args.runs))
    for spread in (0.3, 1.0, 2.0):
        for seeds in (3, 5, 10):
            every.append(lambda s=seeds, w=spread: first_places(10, s, args.runs, w))
    every += [lambda n=candidates: power(n, 5, args.runs) for candidates in (1, 10)]
    for one in every:
        yield {"kind": "certainty", **one(), **records.describe("cpu")}
