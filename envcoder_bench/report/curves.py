"""Learning curves on disk: curves.csv, a row per logged iteration, candidate and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Sequence

import pandas as pd

from envcoder_bench.report.csv_log import KEYS, CsvLog, line, one_line
from envcoder_bench.report.files import write_atomic
from envcoder_bench.report.results import number

SCALARS = ("fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss")
REWARD = "reward/"


class CurveLog(CsvLog):
    """Appends to curves.csv."""

    def __init__(self, path: str | Path, components: Sequence[str]) -> None:
        """Begin a new file (an old one is replaced) with a column for each of the candidates' reward components."""
        super().__init__(path, list(dict.fromkeys([*SCALARS, *(one_line(REWARD + name) for name in components)])))

    def add(
        self, iteration: int, env_steps: int, candidate: str, seed: int, scalars: Mapping[str, float | None]
    ) -> None:
        """Add a row, on disk after the next ``flush``.

        ``scalars`` are named as in SCALARS and ``reward/<component>``; what is absent, None or NaN stays empty.
        ``env_steps`` are those of this candidate and seed.
        """
        values = {one_line(name): value for name, value in scalars.items()}
        new = [name for name in values if name not in self._columns]
        if new:
            self._widen(new)
        self.write(
            iteration, env_steps, candidate, seed, [number(values.get(name)) for name in self._columns[len(KEYS) :]]
        )

    def _widen(self, names: list[str]) -> None:
        """Add columns: a reward component may first appear in the middle of the training."""
        unknown = [name for name in names if not name.startswith(REWARD)]
        if unknown:
            raise KeyError(f"curves.csv has no column {unknown[0]!r}; use one of {SCALARS} or {REWARD}<component>")
        self.close()
        rows = self._path.read_text(encoding="utf-8").partition("\n")[2]
        columns = self._columns + names
        empty = "," * len(names) + "\n"
        write_atomic(self._path, line(columns) + rows.replace("\n", empty))
        self._open(self._path, columns)


def read_curves(path: str | Path) -> pd.DataFrame:
    """Read curves.csv; candidates are strings (``001`` stays ``001``), empty cells NaN."""
    return pd.read_csv(path, dtype={"candidate": str}, keep_default_na=False, na_values=[""])
