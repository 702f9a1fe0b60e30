"""CSV files: tables as text, and files that are appended to during training, such as curves.csv."""

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from envcoder_bench.core.files import naming, no_links, write_atomic
from envcoder_bench.core.plain_text import one_line

Log = TypeVar("Log", bound="CsvLog")

KEYS = ("iteration", "env_steps", "candidate", "seed")  # the first columns of these files

_QUOTED = re.compile('["\r\n]')  # a cell with one of these needs quotes


class CsvLog:
    """Appends rows to a file, so that a killed run keeps all flushed rows. Subclasses set ``columns``.

    Rows of an iteration must be flushed before that iteration's checkpoint is written. Then ``resume`` restores exactly
    the file of an uninterrupted run.

    Attributes:
        columns: names of the columns after KEYS.
        rows: number of rows, including those that the next ``flush`` writes.
        lost: number of rows that ``resume`` expected but did not find.
    """

    columns: tuple[str, ...]

    def __init__(self, path: str | Path) -> None:
        """Create the file, replacing an old one."""
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
        """Continue after ``iteration``: drop later rows and truncated or damaged lines.

        A missing or empty file is created anew.

        Args:
            iteration: the last iteration to keep, of all or by (candidate, seed); 0 for those that it does not name.
            whole: (candidate, seed) pairs that trained to their end in earlier waves; all of their rows are kept.
            rows: number of rows when ``iteration`` was saved, to count lost ones; None if unknown.

        Raises:
            ValueError: if the first line is not the header of this file, which is not changed.
        """
        expected = cls._header().encode()
        header, *rows_before = _lines(path) if Path(path).is_file() else [b""]
        if header != expected and not (expected.startswith(header) and not rows_before):
            first_line = header.decode("utf-8", "replace").strip()[:80]
            right = expected.decode().strip()
            raise ValueError(f"{path} is damaged: its first line must be {right}, not {first_line!r}")
        kept = []
        for row in rows_before:
            key = cls._key(row)
            if key is None:
                continue
            last = iteration.get(key[1:], 0) if isinstance(iteration, Mapping) else iteration
            if 0 < key[0] <= last or key[1:] in whole:  # only whole groups were evaluated at iteration 0
                kept.append(row)
        write_atomic(path, b"".join([expected, *kept]))
        log = cls.__new__(cls)
        log._open(path, len(kept))
        log.lost = 0 if rows is None else max(0, rows - len(kept))
        return log

    @classmethod
    def collect(cls: type[Log]) -> Log:
        """Create a log in memory, whose rows ``take`` returns, to be appended to a file in another process."""
        log = cls.__new__(cls)
        log.rows, log.lost, log._path, log._pending, log._file, log._taken = 0, 0, cls.__name__, [], None, 0
        return log

    def take(self) -> tuple[str, int]:
        """Return the rows since the last call: their text, of a log in memory, which drops them; and their number."""
        text, rows = "", self.rows - self._taken
        if self._file is None:
            text, self._pending = "".join(self._pending), []
        self._taken = self.rows
        return text, rows

    def append(self, text: str, rows: int) -> None:
        """Add rows that ``take`` returned; they are on disk after the next ``flush``."""
        self._pending.append(text)
        self.rows += rows

    @classmethod
    def _header(cls) -> str:
        return line([*KEYS, *cls.columns])

    @classmethod
    def _key(cls, row: bytes) -> tuple[int, str, int] | None:
        """Return iteration, candidate and seed of a row; None if it is incomplete."""
        try:
            cells = _cells(row)
            complete = row.endswith(b"\n") and len(cells) == len(KEYS) + len(cls.columns)
            return (int(cells[0]), cells[2], int(cells[3])) if complete else None
        except (ValueError, IndexError, StopIteration, csv.Error):  # a UnicodeDecodeError is a ValueError
            return None

    def _open(self, path: str | Path, rows: int) -> None:
        self.rows, self.lost, self._path, self._taken = rows, 0, path, rows
        self._pending: list[str] = []  # rows that are not on disk
        self._file: IO[str] | None = open(  # noqa: SIM115  until close()
            path, "a", encoding="utf-8", newline="", opener=no_links
        )

    def write(self, iteration: int, env_steps: int, candidate: str, seed: int, cells: Sequence[str]) -> None:
        """Add a row with ``cells`` after KEYS; it is on disk after the next ``flush``."""
        self._pending.append(line([str(iteration), str(env_steps), one_line(candidate), str(seed), *cells]))
        self.rows += 1

    def flush(self) -> None:
        """Pass all rows to the operating system, so that they survive the death of this process."""
        if self._file is None:
            return
        text, self._pending = "".join(self._pending), []  # first: after an error they must not be written twice
        with naming(self._path):
            self._file.write(text)
            self._file.flush()

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            with naming(self._path), self._file:
                self.flush()


def sort_rows(path: str | Path, candidates: Sequence[str] = ()) -> None:
    """Sort rows by iteration, candidate and seed, as if all groups had trained together.

    ``candidates`` gives the order of the candidates; rows of others come last within their iteration, unchanged.
    """
    header, *rows = _lines(path)
    order = {one_line(name): k for k, name in enumerate(candidates)}

    def key(row: bytes) -> tuple[int, int, int]:
        cells = _cells(row)
        is_listed = cells[2] in order
        return int(cells[0]), order.get(cells[2], len(order)), int(cells[3]) if is_listed else 0

    write_atomic(path, b"".join([header, *sorted(rows, key=key)]))  # a stable sort keeps the components' order


def _cells(row: bytes) -> list[str]:
    text = row.decode("utf-8")
    return next(csv.reader([text])) if '"' in text else text.rstrip("\r\n").split(",")  # a run has 100,000s of rows


def number(value: float | None, digits: int = 9) -> str:
    """Format a number for a CSV file; nine digits preserve a float32. Empty for None and NaN."""
    return "" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def table_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], digits: int = 9) -> str:
    """Return a table with its header as CSV; None and NaN are empty."""

    def cell(value: Any) -> str:
        if value is None or isinstance(value, float):
            return number(value, digits)
        return str(value).lower() if isinstance(value, bool) else str(value)

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *(map(cell, row) for row in rows)])
    return text.getvalue()


def read_rows(path: str | Path, columns: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table. Raises ValueError if it has other columns."""
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    if tuple(header) != tuple(columns):
        raise ValueError(f"{path}: not a table of a run; its columns must be {', '.join(columns)}")
    return rows


def line(cells: Sequence[str]) -> str:
    """Return a row as CSV."""
    plain = ",".join(cells)
    if cells[0] and plain.count(",") == len(cells) - 1 and not _QUOTED.search(plain):
        return f"{plain}\n"  # no cell needs quotes; a run writes hundreds of thousands of rows
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _lines(path: str | Path) -> list[bytes]:
    """Return header and rows with their line ends; at least one line."""
    return Path(path).read_bytes().splitlines(keepends=True) or [b""]
