"""CSV files that grow while a run trains: curves.csv, components.csv and points.csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import IO, Collection, Mapping, Sequence, TypeVar

from envcoder_bench.core.files import naming, write_atomic

Log = TypeVar("Log", bound="CsvLog")

KEYS = ("iteration", "env_steps", "candidate", "seed")  # the first columns of every such file


class CsvLog:
    """Appends to a file, so that a killed run keeps every flushed row. A subclass sets ``columns``.

    Rows of an iteration must be flushed before the checkpoint of that iteration is written: then ``resume`` brings the
    file to exactly what an uninterrupted run has.

    Attributes:
        columns: names of the columns after KEYS.
        rows: how many rows the file has.
        lost: how many rows ``resume`` expected and did not find.
    """

    columns: tuple[str, ...]

    def __init__(self, path: str | Path) -> None:
        """Begin a new file; an old one is replaced."""
        write_atomic(path, self._header())
        self._open(path, 0)

    @classmethod
    def resume(
        cls: type[Log],
        path: str | Path,
        iteration: int | Mapping[tuple[str, int], int],
        whole: Collection[tuple[str, int]] = (),
        rows: int | None = None,
    ) -> Log:
        """Go on after ``iteration``: drop later rows, and lines that are cut off or damaged.

        A file that is missing or empty begins anew.

        Args:
            iteration: of all candidates and seeds, or of each; of one that is not named every row is dropped.
            whole: candidates and seeds that trained to their end before the others began: all of their rows stay.
            rows: how many there were when ``iteration`` was saved, to count those that are lost; None: not known.

        Raises:
            ValueError: the first line is not that of this file.
        """
        own = cls._header().encode()
        header, *found = _lines(path) if Path(path).is_file() else [b""]
        if header != own and not (own.startswith(header) and not found):
            shown = header.decode("utf-8", "replace").strip()[:80]
            raise ValueError(f"{path} is damaged: its first line must be {own.decode().strip()}, not {shown!r}")
        kept = []
        for row in found:
            place = cls._place(row)
            if place is None:
                continue
            last = iteration.get(place[1:], 0) if isinstance(iteration, Mapping) else iteration
            if place[0] <= last or place[1:] in whole:
                kept.append(row)
        write_atomic(path, b"".join([own, *kept]))
        log = cls.__new__(cls)
        log._open(path, len(kept))
        log.lost = 0 if rows is None else max(0, rows - len(kept))
        return log

    @classmethod
    def collect(cls: type[Log]) -> Log:
        """Keep rows in memory, until ``take`` hands them over to be appended to a file elsewhere."""
        log = cls.__new__(cls)
        log.rows, log.lost, log._path = 0, 0, cls.__name__
        log._file = io.StringIO(newline="")
        return log

    def take(self) -> tuple[str, int]:
        """The rows since the last time, as text and counted; of a log that ``collect`` made."""
        assert isinstance(self._file, io.StringIO)
        text, rows = self._file.getvalue(), self.rows
        self.rows, self._file = 0, io.StringIO(newline="")
        return text, rows

    def append(self, text: str, rows: int) -> None:
        """Add rows that ``take`` gave, on disk after the next ``flush``."""
        with naming(self._path):
            self._file.write(text)
        self.rows += rows

    @classmethod
    def _header(cls) -> str:
        return line([*KEYS, *cls.columns])

    @classmethod
    def _place(cls, row: bytes) -> tuple[int, str, int] | None:
        """Iteration, candidate and seed of a row; None where it is not whole."""
        try:
            cells = next(csv.reader([row.decode("utf-8")]))
            whole = row.endswith(b"\n") and len(cells) == len(KEYS) + len(cls.columns)
            return (int(cells[0]), cells[2], int(cells[3])) if whole else None
        except (ValueError, IndexError, StopIteration, csv.Error):  # a UnicodeDecodeError is a ValueError
            return None

    def _open(self, path: str | Path, rows: int) -> None:
        self.rows, self.lost, self._path = rows, 0, path
        self._file: IO[str] = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  until close()

    def write(self, iteration: int, env_steps: int, candidate: str, seed: int, cells: Sequence[str]) -> None:
        """Add a row, on disk after the next ``flush``; ``cells`` are those after KEYS."""
        with naming(self._path):
            self._file.write(line([str(iteration), str(env_steps), one_line(candidate), str(seed), *cells]))
        self.rows += 1

    def flush(self) -> None:
        """Hand all rows so far to the operating system: they survive the death of this process."""
        with naming(self._path):
            self._file.flush()

    def close(self) -> None:
        with naming(self._path):
            self._file.close()


def sort_rows(path: str | Path, candidates: Sequence[str] = ()) -> None:
    """Bring rows of groups that trained apart into the order of one training: iteration, candidate, seed.

    Rows of other than the ``candidates``, which are in their order, come last and keep theirs.
    """
    header, *rows = _lines(path)
    order = {one_line(name): k for k, name in enumerate(candidates)}

    def place(row: bytes) -> tuple[int, int, int]:
        cells = next(csv.reader([row.decode("utf-8")]))
        known = cells[2] in order
        return int(cells[0]), order.get(cells[2], len(order)), int(cells[3]) if known else 0

    write_atomic(path, b"".join([header, *sorted(rows, key=place)]))  # a stable sort: components keep their order


def line(cells: Sequence[str]) -> str:
    """A row as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def one_line(name: str) -> str:
    """A name without line ends, which would break rows."""
    return " ".join(name.split())


def _lines(path: str | Path) -> list[bytes]:
    """Header and rows with their line ends, at least one; names hold no line ends."""
    return Path(path).read_bytes().splitlines(keepends=True) or [b""]
