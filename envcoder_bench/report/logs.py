"""The log files that a run writes during training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envcoder_bench.report.csv_log import CsvLog
from envcoder_bench.report.curves import ComponentLog, CurveLog, split_wide
from envcoder_bench.report.episodes import EpisodeLog
from envcoder_bench.report.points import PointLog
from envcoder_bench.report.scalars import ScalarLog, SeveralLogs
from envcoder_bench.report.tensorboard import TensorboardLog

CURVES, COMPONENTS, POINTS, EPISODES = "curves.csv", "components.csv", "points.csv", "episodes.csv"
TENSORBOARD = "tensorboard"


@dataclass
class Rows:
    """Rows that were logged in another process.

    Attributes:
        texts: by file, its rows as text.
        counts: by file, the number of rows.
        scalars: arguments of calls of ``ScalarLog.add``.
    """

    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    scalars: list[tuple[Any, ...]] = field(default_factory=list)

    def extend(self, later: Rows) -> None:
        """Add rows that were logged later."""
        for name, text in later.texts.items():
            self.texts[name] = self.texts.get(name, "") + text
            self.counts[name] = self.counts.get(name, 0) + later.counts[name]
        self.scalars += later.scalars


class CollectedScalars:
    """Scalars in memory."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        self.calls.append((candidate, seed, env_steps, scalars))

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class RunLogs:
    """The logs of a run: curves.csv, components.csv, points.csv and episodes.csv, and trackers."""

    curves: CurveLog
    components: ComponentLog
    points: PointLog
    scalars: ScalarLog
    episodes: EpisodeLog

    @classmethod
    def begin(cls, folder: Path, trackers: Sequence[ScalarLog] = ()) -> RunLogs:
        """Create new files in a run's folder.

        Args:
            trackers: receive the scalars of training besides TensorBoard.
        """
        return cls(
            CurveLog(folder / CURVES),
            ComponentLog(folder / COMPONENTS),
            PointLog(folder / POINTS),
            SeveralLogs([TensorboardLog(folder / TENSORBOARD), *trackers]),
            EpisodeLog(folder / EPISODES),
        )

    @classmethod
    def resume(
        cls,
        folder: Path,
        iteration: int | Mapping[tuple[str, int], int],
        whole: Collection[tuple[str, int]],
        rows: Mapping[str, int],
        trackers: Sequence[ScalarLog] = (),
    ) -> RunLogs:
        """Continue after ``iteration``; arguments as of ``CsvLog.resume`` and ``begin``, ``rows`` by file.

        Raises:
            ValueError: if a file is damaged.
        """
        split_wide(folder / CURVES, folder / COMPONENTS)
        return cls(
            CurveLog.resume(folder / CURVES, iteration, whole, rows.get(CURVES)),
            ComponentLog.resume(folder / COMPONENTS, iteration, whole, rows.get(COMPONENTS)),
            PointLog.resume(folder / POINTS, iteration, whole, rows.get(POINTS)),
            SeveralLogs([TensorboardLog(folder / TENSORBOARD), *trackers]),
            EpisodeLog.resume(folder / EPISODES, iteration, whole, rows.get(EPISODES)),
        )

    @classmethod
    def collect(cls) -> RunLogs:
        """Create logs in memory, whose rows ``take`` returns."""
        own = CurveLog.collect(), ComponentLog.collect(), PointLog.collect()
        return cls(*own, CollectedScalars(), EpisodeLog.collect())

    def take(self) -> Rows:
        """Return the rows since the last call. Of logs in files only their number: ``append`` has nothing to add."""
        taken = {name: log.take() for name, log in self._files.items()}
        rows = Rows(counts={name: count for name, (_, count) in taken.items()})
        if isinstance(self.scalars, CollectedScalars):
            rows.texts = {name: text for name, (text, _) in taken.items()}
            rows.scalars, self.scalars.calls = self.scalars.calls, []
        return rows

    def append(self, rows: Rows) -> None:
        """Add rows of another process; they are on disk when this returns."""
        for name, text in rows.texts.items():
            log = self._files[name]
            log.append(text, rows.counts[name])
            log.flush()
        for scalars in rows.scalars:
            self.scalars.add(*scalars)
        self.scalars.flush()

    @property
    def _files(self) -> dict[str, CsvLog]:
        return {CURVES: self.curves, COMPONENTS: self.components, POINTS: self.points, EPISODES: self.episodes}

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows by file."""
        return {name: log.rows for name, log in self._files.items()}

    @property
    def lost(self) -> dict[str, int]:
        """Number of rows missing after ``resume``, by file that has lost any."""
        return {name: log.lost for name, log in self._files.items() if log.lost}

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        for log in self._files.values():
            log.flush()

    def close(self) -> None:
        for log in self._files.values():
            log.close()
        self.scalars.close()
