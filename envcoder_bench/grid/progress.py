"""The progress of a grid, and its display."""

from dataclasses import dataclass
from typing import TextIO

from envcoder_bench.report import progress
from envcoder_bench.report.progress import duration


@dataclass
class Progress:
    """What a part reports.

    Attributes:
        done, total: episodes.
        running: episodes of the present wave that have not ended.
        steps, all_steps: control steps until now, and until all waves have reached the limit.
    """

    done: int
    total: int
    running: int
    steps: int
    all_steps: int


class GridProgress(progress.Progress):
    """Shows episodes done, running, and the time left at the present speed, if all others last to the limit.

    Args:
        total: number of episodes.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        super().__init__(total, stream=stream, prefix="episodes")
        self._now = Progress(0, total, 0, 0, 0)

    def __call__(self, now: Progress) -> None:
        """Report the progress."""
        self._now = now
        self.update(now.done, now.steps)

    def _parts(self, name_width: int) -> list[str]:
        now, parts = self._now, [f"{self._now.running} running"]
        if self._weight > 0 and now.done < now.total:
            left = (now.all_steps - now.steps) * self._weight / self._steps_per_second
            parts.append(f"{duration(left)} left at most")
        return parts
