"""Fitness of every evaluation episode: episodes.csv, a row per evaluation, candidate and seed."""

import csv
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.report.csv_log import KEYS, CsvLog
from envcoder_bench.report.results import number

Evaluation = dict[tuple[str, int], tuple[float, ...]]  # the episodes' fitness by candidate and seed


class EpisodeLog(CsvLog):
    """Appends to episodes.csv."""

    columns = ("fitness",)

    def add(self, iteration: int, env_steps: int, candidate: str, seed: int, fitness: Sequence[float]) -> None:
        """Add an evaluation; the k-th numbers of all rows of an iteration and a seed are of the same start state."""
        self.write(iteration, env_steps, candidate, seed, [" ".join(map(number, fitness))])


def read_episodes(path: str | Path) -> dict[int, Evaluation]:
    """Read episodes.csv: the evaluations by iteration.

    Raises:
        ValueError: the file has other columns, or a row that is not whole.
    """
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    wanted = [*KEYS, *EpisodeLog.columns]
    if header != wanted:
        raise ValueError(f"{path}: not an episodes.csv; its columns must be {', '.join(wanted)}")
    found: dict[int, Evaluation] = {}
    for line, row in enumerate(rows, 2):
        try:
            iteration, _, candidate, seed, fitness = row
            found.setdefault(int(iteration), {})[candidate, int(seed)] = tuple(map(float, fitness.split()))
        except ValueError as error:
            raise ValueError(f"{path}: line {line}: {error}") from error
    return dict(sorted(found.items()))
