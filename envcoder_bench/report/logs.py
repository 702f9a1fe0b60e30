"""What a run writes down while it trains."""

from __future__ import annotations

from dataclasses import dataclass

from envcoder_bench.report.curves import CurveLog
from envcoder_bench.report.points import PointLog
from envcoder_bench.report.tensorboard import TensorboardLog


@dataclass(frozen=True)
class RunLogs:
    """The logs of a run: curves.csv, points.csv and TensorBoard's."""

    curves: CurveLog
    points: PointLog
    tensorboard: TensorboardLog

    def close(self) -> None:
        self.curves.close()
        self.points.close()
        self.tensorboard.close()
