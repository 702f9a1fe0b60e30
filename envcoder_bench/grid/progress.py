"""The progress of a grid, and its display: a bar on a terminal, otherwise a line every ten seconds."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from tqdm import tqdm

from envcoder_bench.report.progress import BAR_SECONDS, BAR_WIDTH, LINE_SECONDS, duration


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


class GridProgress:
    """Shows episodes done, running, and the time left at the present speed, if all others last to the limit."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._bar = None
        self._first: tuple[float, int] | None = None
        self._next = 0.0

    def __call__(self, now: Progress) -> None:
        """Report the progress."""
        time_now = self._clock()
        if self._first is None:
            self._first = (time_now, now.steps)
            if self._stream.isatty():
                layout = f"episodes {{n_fmt}}/{{total_fmt}} |{{bar:{BAR_WIDTH}}}| {{desc}}"
                self._bar = tqdm(total=now.total, file=self._stream, bar_format=layout, dynamic_ncols=True)
        if time_now < self._next and now.done < now.total:
            return
        self._next = time_now + (LINE_SECONDS if self._bar is None else BAR_SECONDS)
        words = self._words(now, time_now)
        if self._bar is None:
            print(f"episodes {now.done}/{now.total}, {words}", file=self._stream, flush=True)
        else:
            self._bar.n = now.done
            self._bar.set_description_str(words, refresh=False)
            self._bar.refresh()

    def _words(self, now: Progress, time_now: float) -> str:
        assert self._first is not None
        begin, steps = self._first
        words = f"{now.running} running"
        if now.steps > steps and time_now > begin and now.done < now.total:
            words += (
                f", {duration((now.all_steps - now.steps) * (time_now - begin) / (now.steps - steps))} left at most"
            )
        return words

    def close(self) -> None:
        """End the display."""
        if self._bar is not None:
            self._bar.close()
