"""The stress of a run's policies: the rows of stress.csv, and what they say of each candidate.

A row is a policy in the episodes of a draw. Draw 0 is without disturbances, and statistics are over the others. The
worst decile of a policy is the tenth percentile of the draws' mean fitness; its CVaR is the mean of the draws below.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envcoder_bench.core.files import read_json, write_atomic
from envcoder_bench.core.words import number
from envcoder_bench.results.csv_log import table_text
from envcoder_bench.results.statistics import LEVEL, holm, welch
from envcoder_bench.results.stress_grid import NOMINAL, Axis, StressGrid, stress_grid

if TYPE_CHECKING:
    import pandas as pd

FILE, COMMANDS, SETTINGS = "stress.csv", "stress_commands.csv", "stress.json"
NAN = math.nan
DECILE = 0.1
PASSES, RESAMPLED = 0.9, 1000
MATTERS = 0.1  # share of the fitness that a disturbance must take
# what is measured of the motion: the unit, the sense in which a greater number is worse, and the meaning
MOTION = {
    "action_acceleration": ("1/s^2", 1, "P95 of the actions' second difference, mean over their numbers"),
    "torque_saturation": ("share", 1, "of the steps and motors at the limit of their effort"),
    "velocity_saturation": ("share", 1, "of the steps and joints at the limit of their velocity"),
    "limit_margin": ("share", -1, "P5 of the distance to the nearest end of a joint's range, of the range"),
    "foot_impact": ("weights", 1, "P95 of the force with which a foot lands"),
    "foot_slip": ("m/s", 1, "speed of feet that stand"),
    "cost_of_transport": ("-", 1, "energy of the motors over weight and way"),
}


@dataclass(frozen=True)
class Row:
    """A policy in a draw.

    Attributes:
        fitness: mean over the episodes.
        survival: share of the episodes that did not end early.
        motion: by the names of MOTION, as far as they are measured.
        new_contacts: bodies, with spaces between them, that touch something here and not in the nominal draw.
        policy: digest of the policy's file.
        physics: what differs from the run's own; empty: nothing. Such rows are of draw 0 and in no other statistic.
    """

    candidate: str
    seed: int
    draw: int
    episodes: int
    fitness: float
    survival: float
    motion: dict[str, float] = field(default_factory=dict)
    new_contacts: str = ""
    policy: str = ""
    physics: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return self.candidate, self.seed


@dataclass(frozen=True)
class CommandRow:
    """How a policy follows commands of velocity along one axis, without disturbances. Unknown numbers are NaN.

    Attributes:
        axis: x, y or yaw.
        gain: response over command, of the larger commands.
        dead_zone: the greatest command up to which the response is less than half of that, m/s or rad/s; 0 without one.
        drift: speed at the command zero, m/s or rad/s.
        overshoot: by how much the response to the largest commands exceeds its steady value, as a share.
        ended: share of the episodes that end early.
    """

    candidate: str
    seed: int
    axis: str
    gain: float
    dead_zone: float
    drift: float
    overshoot: float
    ended: float


@dataclass(frozen=True)
class Settings:
    """How the rows were measured, and why columns are absent.

    Attributes:
        milliseconds: length of an episode; 0: full ones.
        notes: lines on what this task cannot show.
        unmeasured: what candidates observe that a robot does not measure, by candidate.
        sim: the simulator, ``mujoco_cpu`` or ``mujoco_warp``.
    """

    version: int
    draws: int
    episodes: int
    milliseconds: int
    absent: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unmeasured: dict[str, list[str]] = field(default_factory=dict)
    sim: str = "mujoco_cpu"

    @property
    def grid(self) -> StressGrid:
        return stress_grid().smaller(self.draws, self.episodes)

    def same(self, other: Settings) -> bool:
        """Return whether rows of both can be compared."""
        empty: dict[str, Any] = {"absent": {}, "notes": [], "unmeasured": {}}
        return replace(self, **empty) == replace(other, **empty)


@dataclass(frozen=True)
class Breaks:
    """The disturbance that hurts a candidate most.

    Attributes:
        axis, low, high: a range of the axis at one of its ends.
        drop: by how much the fitness is lower there than elsewhere; ``p``: that it is not, corrected.
        ended: share of the episodes there that end early.
    """

    axis: Axis
    low: float
    high: float
    drop: float
    p: float
    ended: float

    def __str__(self) -> str:
        return self.axis.text(self.low, self.high)


@dataclass(frozen=True)
class Summary:
    """The stress of a candidate over its seeds; intervals of 95 % are over seeds and draws.

    Attributes:
        nominal, nominal_survival: fitness, and share of the episodes that do not end early, without disturbances.
        mean, worst_decile, cvar: fitness under disturbances, and their intervals.
        survival, worst_survival: share of the episodes that do not end early, and its worst decile over the draws.
        breaks: the disturbance that hurts most; None if none hurts beyond chance, or episodes end early without any.
        motion: means over the disturbed draws.
        new_contacts: bodies that touch something under disturbances alone.
    """

    candidate: str
    seeds: int
    nominal: float
    nominal_survival: float
    mean: tuple[float, float, float]
    worst_decile: tuple[float, float, float]
    cvar: tuple[float, float, float]
    survival: float
    worst_survival: float
    breaks: Breaks | None
    motion: dict[str, float]
    new_contacts: tuple[str, ...]

    @property
    def passes(self) -> bool:
        """Whether nine of ten episodes reach their end also in the worst decile of the draws."""
        return self.worst_survival >= PASSES

    @property
    def verdict(self) -> str:
        """What the stress says in words; ``breaks`` says more."""
        if self.nominal_survival < PASSES:
            return "ends early without disturbances"
        return "passes in simulation" if self.passes else "does not pass in simulation"


@dataclass(frozen=True)
class Stress:
    """The rows of a run and their summary; without commands of velocity in the task there are no ``commands``."""

    settings: Settings
    rows: tuple[Row, ...]
    commands: tuple[CommandRow, ...] = ()

    @cached_property
    def summaries(self) -> list[Summary]:
        """The candidates, by their worst decile, the best first."""
        rows = [row for row in self.rows if not row.physics]
        names = dict.fromkeys(row.candidate for row in rows)
        summaries = [_summary(name, [row for row in rows if row.candidate == name], self.settings) for name in names]
        return sorted(summaries, key=lambda each: -each.worst_decile[0])

    def in_physics(self, candidate: str) -> dict[str, tuple[float, float]]:
        """Return fitness and survival without disturbances by physics; the run's own are those of an empty name."""
        nominal = [row for row in self.rows if row.draw == NOMINAL and row.candidate == candidate]

        def mean(name: str, outcome: str) -> float:
            return _mean(np.array([getattr(row, outcome) for row in nominal if row.physics == name]))

        names = dict.fromkeys(row.physics for row in nominal)
        return {name: (mean(name, "fitness"), mean(name, "survival")) for name in names}

    @property
    def ranking(self) -> pd.DataFrame:
        """A row for each candidate, by its worst decile, with the attributes of ``Summary``."""
        import pandas as pd  # slow to import, and only Python asks for it

        columns = [name for name in Summary.__dataclass_fields__ if name not in ("motion", "breaks")]
        rows = [
            {
                **{name: getattr(x, name) for name in columns},
                "breaks": str(x.breaks or ""),
                "verdict": x.verdict,
                **x.motion,
                **{f"fitness_{name}": fitness for name, (fitness, _) in self.in_physics(x.candidate).items() if name},
            }
            for x in self.summaries
        ]
        return pd.DataFrame(rows)

    def quarters(self, candidate: str, axis: str) -> list[tuple[float, float, float, float]]:
        """Return low end, high end, mean fitness and survival in each quarter of an axis."""
        grid = self.settings.grid
        fitness, survival = _table([row for row in self.rows if row.candidate == candidate], len(grid.draws))
        index = [each.name for each in grid.axes].index(axis)
        quarter = _quarters(grid, index)
        ends = np.linspace(grid.axes[index].low, grid.axes[index].high, 5)
        return [
            (float(ends[q]), float(ends[q + 1]), _mean(fitness[:, quarter == q]), _mean(survival[:, quarter == q]))
            for q in range(4)
        ]

    def disagreement(self, fitness_order: Sequence[str]) -> str:
        """Return a sentence if the first by fitness is not the first by its worst decile; else an empty text."""
        by_name = {each.candidate: each for each in self.summaries}
        ranked = [name for name in fitness_order if name in by_name]
        if not ranked or ranked[0] == self.summaries[0].candidate:
            return ""
        first, best = by_name[ranked[0]], self.summaries[0]
        if first.breaks is None:
            low, high = (number(each.worst_decile[0], 3) for each in (first, best))
            where = "in the worst decile of the draws"
            return f"{first.candidate} is first by fitness, but has {low} {where}; {best.candidate} {high}"
        other = self.ended_at(best.candidate, first.breaks)
        rate = f"ends early in {first.breaks.ended:.0%} of the episodes with {first.breaks}"
        if first.breaks.ended == 0.0:
            rate = f"loses {number(first.breaks.drop, 3)} of fitness with {first.breaks}"
            return f"{first.candidate} is first by fitness, but {rate}; by the worst decile {best.candidate} is"
        return f"{first.candidate} is first by fitness, but {rate}; {best.candidate} in {other:.0%}"

    def ended_at(self, candidate: str, breaks: Breaks) -> float:
        """Return the share of a candidate's episodes that end early in a range of an axis."""
        quarters = self.quarters(candidate, breaks.axis.name)
        inside = [1.0 - survival for low, high, _, survival in quarters if breaks.low <= low and high <= breaks.high]
        return float(np.mean(inside))


def _table(rows: Iterable[Row], draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return fitness and survival, ``(seeds, draws)`` each, without the nominal draw."""
    seeds = sorted({row.seed for row in rows})
    table = np.full((2, len(seeds), draws), NAN)
    for row in rows:
        if row.draw != NOMINAL:
            table[:, seeds.index(row.seed), row.draw - 1] = row.fitness, row.survival
    return table[0], table[1]


def _mean(x: np.ndarray) -> float:
    return float(np.nanmean(x)) if np.isfinite(x).any() else NAN


def _statistics(fitness: np.ndarray) -> np.ndarray:
    """Return mean, worst decile and CVaR of ``(..., draws)``: means over all axes but the first of the result."""
    ordered = np.sort(fitness, axis=-1)
    count = fitness.shape[-1]
    least = max(1, math.ceil(DECILE * count))
    decile = np.quantile(ordered, DECILE, axis=-1)
    return np.stack([ordered.mean(axis=-1), decile, ordered[..., :least].mean(axis=-1)])


def _interval(fitness: np.ndarray) -> list[tuple[float, float, float]]:
    """Return mean, worst decile and CVaR of ``(seeds, draws)`` with bootstrap intervals over both."""
    point = _statistics(fitness).mean(axis=1)
    rng = np.random.default_rng(0)
    seeds, draws = fitness.shape
    chosen = rng.integers(seeds, size=(RESAMPLED, seeds))
    drawn = rng.integers(draws, size=(RESAMPLED, draws))
    again = _statistics(fitness[chosen[:, :, None], drawn[:, None, :]]).mean(axis=2)
    low, high = np.quantile(again, [0.025, 0.975], axis=1)
    return [(float(p), float(a), float(b)) for p, a, b in zip(point, low, high)]


def _quarters(grid: StressGrid, index: int) -> np.ndarray:
    """Return which quarter of an axis each draw is in, 0 to 3."""
    axis = grid.axes[index]
    share = (grid.draws[:, index] - axis.low) / (axis.high - axis.low)
    return np.minimum((4.0 * share).astype(int), 3)


def _breaks(fitness: np.ndarray, survival: np.ndarray, grid: StressGrid) -> Breaks | None:
    """Return the end of an axis at which most fitness is lost, of those where it is lower than elsewhere beyond chance.

    An end is one, two or three quarters of the axis that do not have the nominal value. Draws in it are compared with
    the others by Welch's test, Holm's correction is over all ends, and a loss below MATTERS does not count.
    """
    means = fitness.mean(axis=0)
    ends: list[Breaks] = []
    for index, axis in enumerate(grid.axes):
        quarter = _quarters(grid, index)
        edges = np.linspace(axis.low, axis.high, 5)
        for first, last in ((0, 1), (0, 2), (0, 3), (3, 4), (2, 4), (1, 4)):
            low, high = float(edges[first]), float(edges[last])
            nominal = axis.nominal
            if nominal is not None and (low < nominal < high or nominal == (high if last == 4 else low)):
                continue
            chosen = (quarter >= first) & (quarter < last)
            if min(chosen.sum(), (~chosen).sum()) < 2:
                continue
            drop = float(means[~chosen].mean() - means[chosen].mean())
            ended = 1.0 - float(survival[:, chosen].mean())
            ends.append(Breaks(axis, low, high, drop, _p_value(means[chosen], means[~chosen]), ended))
    corrected = holm([end.p for end in ends])
    least = MATTERS * abs(float(means.mean()))
    worse = [replace(end, p=p) for end, p in zip(ends, corrected) if p < LEVEL and end.drop > least]
    return max(worse, key=lambda end: end.drop, default=None)


def _p_value(first: np.ndarray, second: np.ndarray) -> float:
    """Return the p-value of Welch's test that means are equal; constants that differ are not equal."""
    p = welch(first, second)["p"]
    return float(math.isclose(first.mean(), second.mean(), rel_tol=1e-9, abs_tol=1e-9)) if p is None else p


def _summary(name: str, rows: Sequence[Row], settings: Settings) -> Summary:
    grid = settings.grid
    fitness, survival = _table(rows, len(grid.draws))
    disturbed, nominal = ([row for row in rows if (row.draw != NOMINAL) == wanted] for wanted in (True, False))
    stands = _mean(np.array([row.survival for row in nominal]))
    motion = {
        column: _mean(np.array([row.motion.get(column, NAN) for row in disturbed]))
        for column in MOTION
        if any(column in row.motion for row in disturbed)
    }
    mean, decile, cvar = _interval(fitness)
    bodies = dict.fromkeys(body for row in disturbed for body in row.new_contacts.split())
    return Summary(
        name,
        len(fitness),
        _mean(np.array([row.fitness for row in nominal])),
        stands,
        mean,
        decile,
        cvar,
        _mean(survival),
        float(np.quantile(survival, DECILE, axis=1).mean()),
        _breaks(fitness, survival, grid) if stands >= PASSES else None,
        motion,
        tuple(sorted(bodies)),
    )


# files


def write_stress(folder: Path, stress: Stress) -> None:
    """Write stress.csv and stress.json, each atomically; the rows last."""
    settings, grid = stress.settings, stress.settings.grid
    axes = {axis.name: grid.column(axis.name) for axis in grid.axes}
    motion = [name for name in MOTION if any(name in row.motion for row in stress.rows)]
    header = [
        "candidate",
        "seed",
        "draw",
        "physics",
        *axes,
        "episodes",
        "fitness",
        "survival",
        *motion,
        "new_contacts",
        "policy",
    ]
    write_atomic(folder / SETTINGS, json.dumps(asdict(settings), indent=1) + "\n")
    rows = (
        [
            *(row.candidate, row.seed, row.draw, row.physics),
            *(float(column[row.draw]) for column in axes.values()),
            *(row.episodes, row.fitness, row.survival),
            *(row.motion.get(name, NAN) for name in motion),
            *(row.new_contacts, row.policy),
        ]
        for row in sorted(stress.rows, key=lambda row: (*row.key, row.draw, row.physics))
    )
    if stress.commands:
        names = [each.name for each in fields(CommandRow)]
        followed = (astuple(row) for row in sorted(stress.commands, key=lambda row: (row.candidate, row.seed)))
        write_atomic(folder / COMMANDS, table_text(names, followed))
    write_atomic(folder / FILE, table_text(header, rows))


def read_stress(folder: Path) -> Stress | None:
    """Read what ``write_stress`` wrote; None without it. Raises ValueError if a file is damaged."""
    if not (folder / FILE).is_file() or not (folder / SETTINGS).is_file():
        return None
    try:
        settings = Settings(**read_json(folder / SETTINGS))
        text = (folder / FILE).read_text(encoding="utf-8")
        rows = tuple(_row(cells) for cells in csv.DictReader(io.StringIO(text, newline="")))
        commands: tuple[CommandRow, ...] = ()
        if (folder / COMMANDS).is_file():
            text = (folder / COMMANDS).read_text(encoding="utf-8")
            commands = tuple(_command_row(cells) for cells in csv.DictReader(io.StringIO(text, newline="")))
    except (TypeError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / FILE} is damaged ({error}): remove it, and measure again") from error
    return Stress(settings, rows, commands)


def _command_row(cells: dict[str, str]) -> CommandRow:
    numbers = {name: float(text or NAN) for name, text in cells.items() if name not in ("candidate", "seed", "axis")}
    return CommandRow(cells["candidate"], int(cells["seed"]), cells["axis"], **numbers)


def _row(cells: dict[str, Any]) -> Row:
    motion = {name: float(cells[name] or NAN) for name in MOTION if name in cells}
    return Row(
        cells["candidate"],
        int(cells["seed"]),
        int(cells["draw"]),
        int(cells["episodes"]),
        float(cells["fitness"]),
        float(cells["survival"]),
        motion,
        cells["new_contacts"],
        cells["policy"],
        cells.get("physics") or "",
    )
