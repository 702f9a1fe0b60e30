"""The page of a command at work, ``status.html``: it loads itself again every few seconds, and ends with a link."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.words import decimal_places, fixed
from envcoder_bench.report.page import shell
from envcoder_bench.results.ranking import entrants
from envcoder_bench.results.rows import read_results
from envcoder_bench.tasks.base import BASELINES

STATUS = "status.html"
SECONDS = 5  # between two versions of the page, and until a browser loads it again
MOST_ROWS = 100
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """What the page says.

    Attributes:
        state: one line, such as ``in training``.
        done, total: of what ``unit`` names; without a total the page has no bar.
        facts: speed, time left, and the like.
        link: a page in the same folder, which is opened; empty for none.
        ended: whether no other version follows.
    """

    state: str
    done: int = 0
    total: int = 0
    facts: Sequence[str] = ()
    link: str = ""
    ended: bool = False
    unit: str = "iteration"


class StatusPage:
    """Writes the page every few seconds; a fault of the disk ends it, not the run.

    Args:
        folder: where the page is written.
        clock: monotonic time in seconds.

    Attributes:
        run: the folder whose results the page shows; a search has several runs.
        begun: whether a version was written.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = self.run = folder
        self.begun = False
        self._clock, self._next, self._works = clock, clock(), True

    def update(self, status: Callable[[], Status]) -> None:
        """Write a version of the page, unless the last one is too young."""
        if self._works and self._clock() >= self._next:
            self.write(status())
            self._next = self._clock() + SECONDS

    def write(self, status: Status) -> None:
        """Write a version of the page."""
        self.begun = True
        try:
            write_atomic(self.folder / STATUS, render_status(self.folder.name, status, latest(self.run)))
        except OSError as error:
            self._works = False
            log.info("%s is not written: %s", STATUS, error)


def latest(run: Path) -> list[tuple[str, float]]:
    """Return the mean fitness of each candidate over its seeds at the last evaluation, best first."""
    values: dict[str, list[float]] = {}
    try:
        for row in read_results(run / "results.csv"):
            if row.measured:
                values.setdefault(row.candidate, []).append(row.fitness)
    except (OSError, ValueError):  # there was no evaluation yet
        return []
    means = {name: sum(fitness) / len(fitness) for name, fitness in values.items()}
    return sorted(means.items(), key=lambda pair: -pair[1])


def render_status(name: str, status: Status, rows: Sequence[tuple[str, float]]) -> str:
    """Return the page as HTML."""
    decimals = decimal_places([fitness for _, fitness in rows])
    refresh = f"0; url={status.link}" if status.link else "" if status.ended else str(SECONDS)
    cells = [(name + " (baseline)" * (name in BASELINES), fixed(fitness, decimals)) for name, fitness in rows]
    return shell.render(
        "report/page/status.html",
        f"{name}: {status.state}",
        [entrants(name for name, _ in rows)] if rows else [],
        [*status.facts, time.strftime("%Y-%m-%d %H:%M:%S")],
        status=status,
        refresh=refresh,
        table=(("candidate", "fitness"), cells[:MOST_ROWS], ("name", "number")),
        more=len(cells) - MOST_ROWS,
    )
