"""Learning curves on disk: curves.csv, and components.csv for the components of rewards."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.csv_log import KEYS, CsvLog, line, one_line
from envcoder_bench.report.results import number

if TYPE_CHECKING:
    import pandas as pd

SCALARS = ("fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss")
_WIDE = "reward/"  # prefix of the component columns of curves.csv in format 1


class CurveLog(CsvLog):
    """Appends to curves.csv: a row per logged iteration, candidate and seed."""

    columns = SCALARS

    def add(
        self, iteration: int, env_steps: int, candidate: str, seed: int, scalars: Mapping[str, float | None]
    ) -> None:
        """Add a row, which is on disk after the next ``flush``.

        Args:
            iteration: the iteration.
            env_steps: control steps of this candidate and seed so far.
            candidate, seed: the group.
            scalars: values named as in SCALARS; missing values, None and NaN give empty cells.

        Raises:
            KeyError: if a scalar is not one of SCALARS.
        """
        unknown = [name for name in scalars if name not in SCALARS]
        if unknown:
            raise KeyError(f"curves.csv has no column {unknown[0]!r}; use one of {', '.join(SCALARS)}")
        self.write(iteration, env_steps, candidate, seed, [number(scalars.get(name)) for name in SCALARS])


class ComponentLog(CsvLog):
    """Appends to components.csv: a row per logged iteration, candidate, seed and component of its reward.

    Every candidate has its own components. With a row for each the file grows linearly with the number of candidates;
    with a column for each it would grow quadratically.
    """

    columns = ("component", "mean")

    def add(self, iteration: int, env_steps: int, candidate: str, seed: int, means: Mapping[str, float]) -> None:
        """Add a row for each component with its mean per environment and step."""
        for name, mean in means.items():
            self.write(iteration, env_steps, candidate, seed, [one_line(name), number(mean)])


def read_curves(path: str | Path) -> pd.DataFrame:
    """Read curves.csv or components.csv; names are strings (``001`` stays so), empty cells and infinity are NaN."""
    import pandas as pd  # slow to import, and --check does not need it

    read = pd.read_csv(path, dtype={"candidate": str, "component": str}, keep_default_na=False, na_values=[""])
    return read.replace([math.inf, -math.inf], math.nan)  # a fitness that is infinite is none, and cannot be drawn


def over_seeds(curves: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the mean, least and greatest value of the seeds by candidate and env_steps.

    Seeds of an extended run can have been evaluated after other numbers of env-steps. Between two evaluations of a seed
    its value is interpolated, so that each row is of all seeds that were being trained then.
    """
    import pandas as pd  # slow to import, and --check does not need it

    known: Any = curves[curves[metric].notna()]
    wide = known.pivot_table(index=["candidate", "env_steps"], columns="seed", values=metric)
    for name in wide[wide.isna().any(axis=1)].index.unique("candidate"):
        own = wide.loc[name].interpolate(method="index", limit_area="inside")
        wide.loc[name] = own.to_numpy()
    # not agg(axis=1): pandas 3.0.0 calls it for each row, and 2.0.0 returns objects
    return pd.DataFrame({"mean": wide.mean(axis=1), "min": wide.min(axis=1), "max": wide.max(axis=1)})


def split_wide(curves: Path, components: Path) -> None:
    """Convert curves.csv of format 1, which had a column for each component, to the present two files.

    Does nothing if curves.csv has another format.
    """
    if not curves.is_file():
        return
    text = curves.read_text(encoding="utf-8", errors="replace")
    rows = csv.reader(text[: text.rfind("\n") + 1].split("\n"))  # the last line may be half of one
    header = next(rows, [])
    end = len(KEYS) + len(SCALARS)
    names = header[end:]
    if not names or tuple(header[:end]) != (*KEYS, *SCALARS) or not all(x.startswith(_WIDE) for x in names):
        return
    narrow, long = [line(header[:end])], [line([*KEYS, *ComponentLog.columns])]
    for row in rows:
        if len(row) == len(header):
            narrow.append(line(row[:end]))
            found = zip(names, row[end:])
            long += [line([*row[: len(KEYS)], name[len(_WIDE) :], mean]) for name, mean in found if mean]
    write_atomic(components, "".join(long))
    write_atomic(curves, "".join(narrow))  # last, so that an interrupted conversion can be repeated
