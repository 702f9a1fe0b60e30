"""The progress of training at each evaluation: points.csv, a row per point, candidate, seed and component."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from envcoder_bench.report.csv_log import KEYS, CsvLog, one_line
from envcoder_bench.report.results import number


class ComponentStats(NamedTuple):
    """Statistics per environment and step of training since the previous point."""

    mean: float
    min: float
    max: float


@dataclass(frozen=True)
class Point:
    """One evaluation of one candidate and seed. Unknown numbers are NaN.

    Attributes:
        candidate, seed: the group.
        iteration: number of finished iterations.
        env_steps: control steps of this candidate and seed so far.
        fitness: mean over the episodes of the unshaped evaluation.
        episode_length: mean length of these episodes, control steps.
        components: mean, min and max of ``total reward`` and of each reward component in training since the previous
            point; ComponentStats if read from points.csv.
        shaped_return: mean return of the candidate's own reward over the last training episodes.
    """

    candidate: str
    seed: int
    iteration: int
    env_steps: int
    fitness: float
    episode_length: float
    components: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    shaped_return: float = math.nan


_NUMBERS = ("fitness", "episode_length", "shaped_return")
_COLUMNS = (*_NUMBERS, "component", *ComponentStats._fields)


class PointLog(CsvLog):
    """Appends to points.csv."""

    columns = _COLUMNS

    def add(self, point: Point) -> None:
        """Add the rows of a point, which are on disk after the next ``flush``."""
        same = [number(getattr(point, name)) for name in _NUMBERS]
        for name, stats in point.components.items() or [("", (math.nan,) * 3)]:
            cells = [*same, one_line(name), *map(number, stats)]
            self.write(point.iteration, point.env_steps, point.candidate, point.seed, cells)


def read_points(path: str | Path) -> list[Point]:
    """Read points.csv; the points are in the order of the file.

    Raises:
        ValueError: if the file has other columns.
    """
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != (*KEYS, *_COLUMNS):
            raise ValueError(f"{path}: not a points.csv; its columns must be {', '.join((*KEYS, *_COLUMNS))}")
        rows = list(reader)
    components: dict[tuple[str, ...], dict[str, ComponentStats]] = {}
    for row in rows:
        stats = components.setdefault(tuple(row[name] for name in (*KEYS, *_NUMBERS)), {})
        if row["component"]:
            stats[row["component"]] = ComponentStats(*(_value(row[name]) for name in ComponentStats._fields))
    points: list[Point] = []
    for (iteration, env_steps, candidate, seed, *numbers), stats in components.items():
        fitness, episode_length, shaped_return = map(_value, numbers)
        point = Point(
            candidate, int(seed), int(iteration), int(env_steps), fitness, episode_length, stats, shaped_return
        )
        points.append(point)
    return points


def _value(cell: str) -> float:
    return float(cell) if cell else math.nan
