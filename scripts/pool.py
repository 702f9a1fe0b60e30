"""Generate candidates without a language model: chains of random mutations and recombinations.

    python scripts/pool.py Anymal 83 POOL [--seed 0]

The chains begin with the baselines and the files in ``user_functions/TASK``, with the human baseline most often. The
same arguments give the same files ``POOL/g000.py``, ``POOL/g001.py``, ...
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random
from typing import Sequence

from envcoder_bench.core.errors import exit_on_user_error, user_input
from envcoder_bench.search.genome import Genome, UnsupportedCode
from envcoder_bench.search.vary import mutate, recombine
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN
from envcoder_bench.tasks.registry import baseline_path

EXAMPLES = Path(__file__).resolve().parent.parent / "user_functions"
LONGEST = 8  # changes of a candidate
RECOMBINED = 0.3  # share of changes that take a piece of another start


def starts(task: str) -> list[Genome]:
    """Return what the chains begin with, the human baseline twice."""
    baselines = [baseline_path(task, name) for name in (HUMAN, *BASELINE_FILES)]
    found = []
    for path in [*baselines, *sorted((EXAMPLES / task).glob("*.py"))]:
        try:
            found.append(Genome(path.read_text(encoding="utf-8"), SHAPER_TYPES))
        except UnsupportedCode as error:
            print(f"{path.name} is left out: {error}")
    return found


def chain(genomes: Sequence[Genome], rng: Random) -> Genome:
    """Change a random start up to LONGEST times."""
    genome = rng.choice(genomes)
    for _ in range(rng.randint(1, LONGEST)):
        try:
            if rng.random() < RECOMBINED:
                change = recombine(genome, rng.choice(genomes), "another", rng)
            else:
                change = mutate(genome, rng)
        except UnsupportedCode:
            continue
        genome = genome if change is None else change[0]
    return genome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("count", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with user_input():
        genomes, rng = starts(args.task), Random(f"{args.task} {args.seed}")
    args.folder.mkdir(parents=True, exist_ok=True)
    known = {genome.fingerprint() for genome in genomes}
    made = 0
    while made < args.count:
        genome = chain(genomes, rng)
        if genome.shapers() and genome.fingerprint() not in known:
            known.add(genome.fingerprint())
            text = genome.with_docstring(f"g{made:03d}: mutations.")
            (args.folder / f"g{made:03d}.py").write_text(text, encoding="utf-8")
            made += 1


if __name__ == "__main__":
    with exit_on_user_error("pool"):
        main()
