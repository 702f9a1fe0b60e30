"""Learning curves on disk: curves.csv, a row per logged iteration, candidate and seed."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Collection, Mapping, Sequence

import pandas as pd

from envcoder_bench.report.files import write_atomic
from envcoder_bench.report.results import number

KEYS = ("iteration", "env_steps", "candidate", "seed")
SCALARS = ("fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss")
REWARD = "reward/"


class CurveLog:
    """Appends to curves.csv, so that a killed run keeps every flushed row.

    Rows of an iteration must be flushed before the checkpoint of that iteration is written: then ``resume`` brings the
    file to exactly what an uninterrupted run has.
    """

    def __init__(self, path: str | Path, components: Sequence[str]) -> None:
        """Begin a new file (an old one is replaced) with a column for each of the candidates' reward components."""
        columns = list(dict.fromkeys([*KEYS, *SCALARS, *(_column(REWARD + name) for name in components)]))
        write_atomic(path, _line(columns))
        self._open(Path(path), columns)

    @classmethod
    def resume(cls, path: str | Path, iteration: int, whole: Collection[tuple[str, int]] = ()) -> CurveLog:
        """Go on after ``iteration``: drop later rows and a last line that a killed writer left half written.

        Of the candidates and seeds in ``whole``, which trained to their end before the others began, all rows stay.
        """
        path = Path(path)
        header, *lines = _lines(path)
        kept = [x for x in lines if x.endswith(b"\n") and (_iteration(x) <= iteration or _trained(x) in whole)]
        write_atomic(path, b"".join([header, *kept]))
        log = cls.__new__(cls)
        log._open(path, next(csv.reader([header.decode("utf-8")])))
        return log

    def _open(self, path: Path, columns: list[str]) -> None:
        self._path = path
        self._columns = columns
        self._known = set(columns)
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  stays open until close()

    def add(
        self, iteration: int, env_steps: int, candidate: str, seed: int, scalars: Mapping[str, float | None]
    ) -> None:
        """Add a row, on disk after the next ``flush``.

        ``scalars`` are named as in SCALARS and ``reward/<component>``; what is absent, None or NaN stays empty.
        ``env_steps`` are those of this candidate and seed.
        """
        values = {_column(name): value for name, value in scalars.items()}
        new = [name for name in values if name not in self._known]
        if new:
            self._widen(new)
        row = [str(iteration), str(env_steps), _column(candidate), str(seed)]
        self._file.write(_line(row + [number(values.get(name)) for name in self._columns[len(KEYS) :]]))

    def _widen(self, names: list[str]) -> None:
        """Add columns: a reward component may first appear in the middle of the training."""
        unknown = [name for name in names if not name.startswith(REWARD)]
        if unknown:
            raise KeyError(f"curves.csv has no column {unknown[0]!r}; use one of {SCALARS} or {REWARD}<component>")
        self._file.close()
        rows = self._path.read_text(encoding="utf-8").partition("\n")[2]
        columns = self._columns + names
        empty = "," * len(names) + "\n"
        write_atomic(self._path, _line(columns) + rows.replace("\n", empty))
        self._open(self._path, columns)

    def flush(self) -> None:
        """Hand all rows so far to the operating system: they survive the death of this process."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def sort_curves(path: str | Path) -> None:
    """Bring rows of groups that trained one after the other into the order that those of one training have."""
    header, *lines = _lines(path)
    write_atomic(path, b"".join([header, *sorted(lines, key=_iteration)]))  # a stable sort: groups keep their order


def _lines(path: str | Path) -> list[bytes]:
    """Header and rows: names hold no line ends (see _column), and the header is written atomically, so it is whole."""
    return Path(path).read_bytes().splitlines(keepends=True)


def _iteration(line: bytes) -> int:
    return int(line.split(b",", 1)[0])


def _trained(line: bytes) -> tuple[str, int]:
    """Candidate and seed of a row."""
    row = next(csv.reader([line.decode("utf-8")]))
    return row[KEYS.index("candidate")], int(row[KEYS.index("seed")])


def read_curves(path: str | Path) -> pd.DataFrame:
    """Read curves.csv; candidates are strings (``001`` stays ``001``), empty cells NaN."""
    return pd.read_csv(path, dtype={"candidate": str}, keep_default_na=False, na_values=[""])


def _column(name: str) -> str:
    return " ".join(name.split())


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
