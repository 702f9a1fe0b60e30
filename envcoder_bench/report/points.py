"""How training went, from evaluation to evaluation: points.csv, a row per point, candidate, seed and component."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, NamedTuple

from envcoder_bench.report.csv_log import KEYS, CsvLog, one_line
from envcoder_bench.report.results import number


class ComponentStats(NamedTuple):
    """Per environment and step of the training since the point before."""

    mean: float
    min: float
    max: float


@dataclass(frozen=True)
class Point:
    """One evaluation of one candidate and seed. Numbers that are not known are NaN.

    Attributes:
        iteration, env_steps: when; ``env_steps`` are those of this candidate and seed.
        fitness, episode_length: means over the episodes of the unshaped evaluation; control steps.
        components: mean, min and max of ``total reward`` and of each reward component in training since the point
            before; as ComponentStats where they were read from points.csv.
        shaped_return: mean return of the candidate's own reward over the training episodes that ended last.
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
        """Add the rows of a point, on disk after the next ``flush``."""
        same = [number(getattr(point, name)) for name in _NUMBERS]
        for name, stats in point.components.items() or [("", (math.nan,) * 3)]:
            cells = [*same, one_line(name), *map(number, stats)]
            self.write(point.iteration, point.env_steps, point.candidate, point.seed, cells)


def read_points(path: str | Path) -> list[Point]:
    """Read points.csv: iteration by iteration, in each the candidates and seeds in their order.

    Raises:
        ValueError: the file has other columns.
    """
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != (*KEYS, *_COLUMNS):
            raise ValueError(f"{path}: not a points.csv; its columns must be {', '.join((*KEYS, *_COLUMNS))}")
        rows = list(reader)
    components: dict[tuple[str, ...], dict[str, ComponentStats]] = {}
    for row in rows:
        own = components.setdefault(tuple(row[name] for name in (*KEYS, *_NUMBERS)), {})
        if row["component"]:
            own[row["component"]] = ComponentStats(*(_value(row[name]) for name in ComponentStats._fields))
    points: list[Point] = []
    for (iteration, env_steps, candidate, seed, *numbers), own in components.items():
        fitness, episode_length, shaped_return = map(_value, numbers)
        when = (int(seed), int(iteration), int(env_steps))
        points.append(Point(candidate, *when, fitness, episode_length, own, shaped_return))
    return points


def _value(cell: str) -> float:
    return float(cell) if cell else math.nan
