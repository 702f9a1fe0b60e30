"""How often a ranking's statements are right, in simulated runs whose truth is known."""

from argparse import Namespace
from collections.abc import Iterator

from bench import records
from bench.records import Record
from simulated_runs import CASES, equal_candidates, first_places, power


def certainty(args: Namespace) -> Iterator[Record]:
    """Simulate runs of all kinds."""
    counts = (3, 5, 10)  # seeds
    every = [lambda c=case, s=seeds: equal_candidates(c, 20, s, args.runs) for case in CASES for seeds in counts]
    every += [
        lambda w=spread, s=seeds: first_places(10, s, args.runs, w) for spread in (0.3, 1.0, 2.0) for seeds in counts
    ]
    every += [lambda n=candidates: power(n, 5, args.runs) for candidates in (1, 10)]
    yield from ({"kind": "certainty", **one(), **records.describe("cpu")} for one in every)
