"""CSV files that grow while a run trains: curves.csv and points.csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Collection, Sequence, TypeVar

from envcoder_bench.report.files import write_atomic

Log = TypeVar("Log", bound="CsvLog")

KEYS = ("iteration", "env_steps", "candidate", "seed")  # the first columns of every such file


class CsvLog:
    """Appends to a file, so that a killed run keeps every flushed row.

    Rows of an iteration must be flushed before the checkpoint of that iteration is written: then ``resume`` brings the
    file to exactly what an uninterrupted run has.
    """

    def __init__(self, path: str | Path, columns: Sequence[str]) -> None:
        """Begin a new file (an old one is replaced) with KEYS and these columns."""
        write_atomic(path, line([*KEYS, *columns]))
        self._open(Path(path), [*KEYS, *columns])

    @classmethod
    def resume(cls: type[Log], path: str | Path, iteration: int, whole: Collection[tuple[str, int]] = ()) -> Log:
        """Go on after ``iteration``: drop later rows and a last line that a killed writer left half written.

        Of the candidates and seeds in ``whole``, which trained to their end before the others began, all rows stay.
        """
        path = Path(path)
        header, *rows = _lines(path)
        kept = [x for x in rows if x.endswith(b"\n") and (_iteration(x) <= iteration or _trained(x) in whole)]
        write_atomic(path, b"".join([header, *kept]))
        log = cls.__new__(cls)
        log._open(path, next(csv.reader([header.decode("utf-8")])))
        return log

    def _open(self, path: Path, columns: list[str]) -> None:
        self._path = path
        self._columns = columns
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  stays open until close()

    def write(self, iteration: int, env_steps: int, candidate: str, seed: int, cells: Sequence[str]) -> None:
        """Add a row, on disk after the next ``flush``; ``cells`` are those behind KEYS."""
        self._file.write(line([str(iteration), str(env_steps), one_line(candidate), str(seed), *cells]))

    def flush(self) -> None:
        """Hand all rows so far to the operating system: they survive the death of this process."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def sort_rows(path: str | Path) -> None:
    """Bring rows of groups that trained one after the other into the order that those of one training have."""
    header, *rows = _lines(path)
    write_atomic(path, b"".join([header, *sorted(rows, key=_iteration)]))  # a stable sort: groups keep their order


def line(cells: Sequence[str]) -> str:
    """A row as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def one_line(name: str) -> str:
    """A name without line ends, which would break rows."""
    return " ".join(name.split())


def _lines(path: str | Path) -> list[bytes]:
    """Header and rows: names hold no line ends, and the header is written atomically, so it is whole."""
    return Path(path).read_bytes().splitlines(keepends=True)


def _iteration(row: bytes) -> int:
    return int(row.split(b",", 1)[0])


def _trained(row: bytes) -> tuple[str, int]:
    """Candidate and seed of a row."""
    cells = next(csv.reader([row.decode("utf-8")]))
    return cells[KEYS.index("candidate")], int(cells[KEYS.index("seed")])
