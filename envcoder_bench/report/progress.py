"""What a person sees while it trains: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Callable, TextIO

from tqdm import tqdm

from envcoder_bench.report.table import fixed, shorten

BAR_SECONDS = 0.2  # between two drawings of the bar
LINE_SECONDS = 10.0  # between two lines where there is no terminal
SMOOTHING_SECONDS = 20.0  # the speed shown is an average over about so long
BAR_WIDTH = 8
NAME_WIDTH = (8, 32)  # the best candidate's name is cut to what the line leaves it, within these


class Progress:
    """The training's progress: iteration, speed, time left, the best candidate and its last measured fitness."""

    def __init__(
        self,
        total: int,
        initial: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        wave: int = 1,
        waves: int = 1,
    ) -> None:
        """Begin at iteration ``initial`` of ``total``, on ``stream`` (stderr unless given).

        With several ``waves`` this is the ``wave``-th, and the time left is that of all, at the speed of this one.
        """
        self._total = total
        self._after = (waves - wave) * total  # iterations of the waves to come
        self._place = f"wave {wave} of {waves}, iteration" if waves > 1 else "iteration"
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._best: tuple[str, float] | None = None
        self._iteration, self._env_steps = initial, 0
        self._seen: tuple[float, int, int] | None = None  # time, iteration and env_steps when last averaged
        self._shown = -1  # the iteration that was last shown
        self._iterations_per_second = self._steps_per_second = 0.0
        self._weight = 0.0  # of the averages; below 1 at first, as in Adam's bias correction
        self._bar = None
        self._interval = LINE_SECONDS
        if self._stream.isatty():
            self._interval = BAR_SECONDS
            layout = _layout(self._place)
            self._bar = tqdm(total=total, initial=initial, file=self._stream, bar_format=layout, dynamic_ncols=True)
        self._next = clock() + self._interval

    def update(self, iteration: int, env_steps: int, best: tuple[str, float] | None = None) -> None:
        """Tell that ``iteration`` is done, with ``env_steps`` of all environments together since the run began.

        ``best`` is (candidate, fitness), kept until another one is given. Costs about a microsecond unless it draws.
        """
        self._iteration, self._env_steps = iteration, env_steps
        if best is not None:
            self._best = best
        now = self._clock()
        if self._seen is None:  # the speed counts from the first iteration's end: the first one also compiles
            self._seen = (now, iteration, env_steps)
        if now >= self._next or iteration >= self._total:
            self._show(now)

    @property
    def words(self) -> str:
        """What stands in front of the iteration."""
        return self._place

    def place(self, text: str) -> None:
        """Say this in front of the iteration."""
        self._place = text
        if self._bar is not None:
            self._bar.bar_format = _layout(text)

    def write(self, message: str) -> None:
        """Print a message on lines of its own, above the bar."""
        if self._bar is None:
            print(message, file=self._stream, flush=True)
        else:
            self._bar.write(message, file=self._stream)

    def close(self) -> None:
        """Show the last state and leave it there."""
        if self._seen is not None and self._iteration < self._total and self._iteration != self._shown:
            self._show(self._clock())
        if self._bar is not None:
            self._bar.close()

    def _show(self, now: float) -> None:
        self._average(now)
        self._shown = self._iteration
        self._next = now + self._interval
        place = f"{self._place} {self._iteration}/{self._total}"
        if self._bar is None:
            print(", ".join([place, *self._parts(NAME_WIDTH[1])]), file=self._stream, flush=True)
        else:
            used = len(f"{place} || ") + BAR_WIDTH + len(", ".join(self._parts(0)))
            room = shutil.get_terminal_size().columns - 1 - used
            self._bar.n = self._iteration
            name_width = max(NAME_WIDTH[0], min(room, NAME_WIDTH[1]))
            self._bar.set_description_str(", ".join(self._parts(name_width)), refresh=False)
            self._bar.refresh()

    def _average(self, now: float) -> None:
        """Move the average speeds towards those since the last showing, by the share of time that passed."""
        assert self._seen is not None
        then, iteration, env_steps = self._seen
        passed = now - then
        if passed <= 0 or self._iteration <= iteration:
            return
        share = passed / (passed + SMOOTHING_SECONDS)
        self._weight += share * (1 - self._weight)
        self._iterations_per_second += share * ((self._iteration - iteration) / passed - self._iterations_per_second)
        self._steps_per_second += share * ((self._env_steps - env_steps) / passed - self._steps_per_second)
        self._seen = (now, self._iteration, self._env_steps)

    def _parts(self, name_width: int) -> list[str]:
        parts = []
        if self._weight > 0:
            left = (self._total - self._iteration + self._after) * self._weight / self._iterations_per_second
            parts.append(f"{si(self._steps_per_second / self._weight)} env-steps/s")
            parts.append(f"{duration(left)} left")
        if self._best is not None:
            name, fitness = self._best
            parts.append(f"best {fixed(fitness, 3)} {shorten(name, name_width)}")
        return parts


def _layout(place: str) -> str:
    return f"{place} {{n_fmt}}/{{total_fmt}} |{{bar:{BAR_WIDTH}}}| {{desc}}"


def si(value: float) -> str:
    """Print a number with three digits and k, M or G: ``1.23M``."""
    for unit in ("", "k", "M"):
        if abs(value) < 999.5:
            return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}{unit}" if unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.2f}G"


def duration(seconds: float) -> str:
    """Print a time as ``m:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
