"""How often a ranking's statements are right, in simulated runs whose truth is known."""

from argparse import Namespace
from collections.abc import Iterator

from bench import records
from bench.records import Record
from simulated_runs import CASES, beside_failing, equal_candidates, first_places, power


def certainty(args: Namespace) -> Iterator[Record]:
    """Simulate runs of all kinds."""
    counts = (3, 5, 10)  # seeds
    every = [lambda c=case, s=seeds: equal_candidates(c, 20, s, args.runs) for case in CASES for seeds in counts]
    every += [
        lambda w=spread, s=seeds: first_places(10, s, args.runs, w) for spread in (0.3, 1.0, 2.0) for seeds in counts
    ]
    every += [lambda n=candidates: power(n, 5, args.runs) for candidates in (1, 10)]
    for alive, failing in ((1, 1), (1, 2), (2, 2), (4, 12)):
        every += [lambda a=alive, f=failing, s=seeds: beside_failing(a, f, s, args.runs) for seeds in counts]
    yield from ({"kind": "certainty", **measure(), **records.describe("cpu")} for measure in every)
