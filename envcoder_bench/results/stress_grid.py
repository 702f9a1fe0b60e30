"""The stress grid: which disturbances a policy meets, and how strong they are, as data in a file that never changes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("stress_grid_v1.json")
NOMINAL = 0  # number of the draw without disturbances; those of the file count from 1


@dataclass(frozen=True)
class Axis:
    """A kind of disturbance.

    Attributes:
        low, high: the range of the draws, in ``unit``.
        nominal: the value that changes nothing; None: the model's own.
    """

    name: str
    unit: str
    low: float
    high: float
    nominal: float | None
    meaning: str

    def text(self, low: float, high: float) -> str:
        """Return a range of its values in words, such as ``delay of 20 to 40 ms``."""
        unit = "" if self.unit in ("", "x") else f" {self.unit}"
        return f"{self.name} of {low:.3g} to {high:.3g}{unit}"


@dataclass(frozen=True)
class StressGrid:
    """Disturbances that all candidates meet.

    Attributes:
        episodes: of each draw.
        push: seconds between pushes, and seconds that each lasts.
        sensor_noise: greatest error of each quantity, in SI units, where the axis ``noise`` is 1; uniform.
        draws: ``(draws, axes)``, a Sobol sequence, each point in the middle of its 64th of every axis.
    """

    version: int
    episodes: int
    push: tuple[float, float]
    sensor_noise: Mapping[str, float]
    axes: tuple[Axis, ...]
    draws: np.ndarray

    def smaller(self, draws: int | None, episodes: int | None) -> StressGrid:
        """Return the first ``draws`` of the grid with so many episodes each; None keeps them."""
        return replace(self, draws=self.draws[:draws], episodes=episodes or self.episodes)

    def column(self, name: str) -> np.ndarray:
        """Return an axis of all draws, the nominal one first: ``(1 + draws,)``; NaN is the model's own value."""
        index = [axis.name for axis in self.axes].index(name)
        nominal = self.axes[index].nominal
        return np.concatenate([[np.nan if nominal is None else nominal], self.draws[:, index]])


@functools.cache
def stress_grid() -> StressGrid:
    """Return version 1 of the grid."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    axes = tuple(Axis(**axis) for axis in data["axes"])
    push = (data["push"]["every_s"], data["push"]["lasts_s"])
    draws = np.array(data["draws"])
    return StressGrid(data["version"], data["episodes"], push, data["sensor_noise"], axes, draws)
