"""Intervals as small pictures in the cells of a table."""

import math
from collections.abc import Sequence
from typing import Any

from envcoder_bench.core.words import number

Interval = tuple[float, float, float]  # mean and ends; these are NaN if they are not known


class Axis:
    """The common scale of the intervals of a table, in pixels.

    Attributes:
        mark: position of the value that all are compared with; None without one.
    """

    width, height = 200, 18

    def __init__(self, intervals: Sequence[Interval], mark: float | None = None) -> None:
        means = [mean for mean, *_ in intervals] + ([] if mark is None else [mark])
        ends = [x for _, *interval in intervals for x in interval if not math.isnan(x)]
        low, high = (min(means), max(means)) if means else (0.0, 1.0)
        # a wide interval of a bad candidate does not squeeze the rest
        reach = 0.75 * max(high - low, 1e-9 + 0.05 * abs(high))
        self._least = max(min([low, *ends]), low - reach)
        self._most = min(max([high, *ends]), high + reach)
        self.mark = None if mark is None else self._pixel(mark)

    def _pixel(self, x: float) -> float:
        share = (x - self._least) / ((self._most - self._least) or 1.0)
        return round(4 + (self.width - 8) * min(max(share, 0.0), 1.0), 1)

    def picture(self, interval: Interval) -> dict[str, Any]:
        """Return the pixels of an interval, and its title; of a mean without ends, those of a point."""
        mean, low, high = interval
        if math.isnan(low):
            low = high = mean
        title = f"{number(mean, 5)}, {number(low, 5)} to {number(high, 5)}"
        return {"low": self._pixel(low), "high": self._pixel(high), "mean": self._pixel(mean), "title": title}
