"""What a run writes down while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Collection, Mapping

from envcoder_bench.report.csv_log import CsvLog
from envcoder_bench.report.curves import ComponentLog, CurveLog, split_wide
from envcoder_bench.report.points import PointLog
from envcoder_bench.report.tensorboard import TensorboardLog

CURVES, COMPONENTS, POINTS, TENSORBOARD = "curves.csv", "components.csv", "points.csv", "tensorboard"


@dataclass(frozen=True)
class RunLogs:
    """The logs of a run: curves.csv, components.csv, points.csv and TensorBoard's."""

    curves: CurveLog
    components: ComponentLog
    points: PointLog
    tensorboard: TensorboardLog

    @classmethod
    def begin(cls, folder: Path) -> RunLogs:
        """Begin new files in a run's folder."""
        tensorboard = TensorboardLog(folder / TENSORBOARD)
        return cls(CurveLog(folder / CURVES), ComponentLog(folder / COMPONENTS), PointLog(folder / POINTS), tensorboard)

    @classmethod
    def resume(
        cls, folder: Path, iteration: int, whole: Collection[tuple[str, int]], rows: Mapping[str, int]
    ) -> RunLogs:
        """Go on after ``iteration``; ``whole`` and ``rows``, for each file, are those of ``CsvLog.resume``.

        Raises:
            ValueError: a file is not what it should be.
        """
        split_wide(folder / CURVES, folder / COMPONENTS)
        return cls(
            CurveLog.resume(folder / CURVES, iteration, whole, rows.get(CURVES)),
            ComponentLog.resume(folder / COMPONENTS, iteration, whole, rows.get(COMPONENTS)),
            PointLog.resume(folder / POINTS, iteration, whole, rows.get(POINTS)),
            TensorboardLog(folder / TENSORBOARD),
        )

    @property
    def _files(self) -> dict[str, CsvLog]:
        return {CURVES: self.curves, COMPONENTS: self.components, POINTS: self.points}

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each file has."""
        return {name: log.rows for name, log in self._files.items()}

    @property
    def lost(self) -> dict[str, int]:
        """How many rows each file has lost before it was resumed, of those that lost any."""
        return {name: log.lost for name, log in self._files.items() if log.lost}

    def close(self) -> None:
        for log in self._files.values():
            log.close()
        self.tensorboard.close()
