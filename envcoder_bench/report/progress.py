"""The display of progress: a bar on a terminal or in a notebook, otherwise some ten lines in all."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from tqdm.auto import tqdm

from envcoder_bench.core.plain_text import one_line, own_codes
from envcoder_bench.core.words import duration, format_fitness, shorten, si

BAR_SECONDS = 0.2  # interval between updates of the bar
LINE_SECONDS = 10.0  # least interval between lines without a terminal
LINES = 10  # about so many of all waves
SMOOTHING_SECONDS = 20.0  # time constant of the average speed
BAR_WIDTH = 8
NAME_WIDTH = (8, 32)  # least and greatest width of the best candidate's name


class Progress:
    """Shows iteration, speed, remaining time, and the best candidate with its last fitness."""

    def __init__(
        self,
        total: int,
        initial: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        wave: int = 1,
        waves: int = 1,
        prefix: str = "iteration",
    ) -> None:
        """Begin at iteration ``initial`` of ``total``.

        Args:
            total, initial: iterations of a wave, and of those the finished ones.
            wave, waves: number of this wave, from 1, and of all waves. The remaining time is that of all waves at the
                speed of this one.
        """
        self._total = total
        self._after = (waves - wave) * total  # iterations of later waves
        self._prefix = f"wave {wave} of {waves}, {prefix}" if waves > 1 else prefix
        self._stream = own_codes(sys.stderr if stream is None else stream)
        self._clock = clock
        self._best: tuple[str, float] | None = None
        self._iteration, self._env_steps = initial, 0
        self._seen: tuple[float, int, int] | None = None  # time, iteration and env_steps when last averaged
        self._shown = -1  # the iteration that was last shown
        self._iterations_per_second = self._steps_per_second = 0.0
        self._weight = 0.0  # total weight of the averages; below 1 at first, as in Adam's bias correction
        self._bar = None
        self._interval = LINE_SECONDS
        if self._stream.isatty() or in_notebook():
            self._interval = BAR_SECONDS
            layout = _layout(self._prefix)
            self._bar = tqdm(total=total, initial=initial, file=self._stream, bar_format=layout, dynamic_ncols=True)
        self._began = clock()
        self._next = self._next_line = self._began + self._interval

    def update(self, iteration: int, env_steps: int, best: tuple[str, float] | None = None) -> None:
        """Report a finished iteration. Takes about a microsecond unless the display is updated.

        Args:
            env_steps: control steps of all environments since the run began.
            best: best candidate and its fitness; None to keep the previous one.
        """
        self._iteration, self._env_steps = iteration, env_steps
        if best is not None:
            self._best = best
        now = self._clock()
        if self._seen is None:  # the first iteration, which also compiles, does not count for the speed
            self._seen = (now, iteration, env_steps)
        if now < self._next and iteration < self._total:
            return
        self._next = now + self._interval
        self._average(now)
        if self._bar is not None or now >= self._next_line or iteration >= self._total:
            self._show(now)

    @property
    def prefix(self) -> str:
        """The text in front of the iteration."""
        return self._prefix

    def set_prefix(self, text: str) -> None:
        """Set the text in front of the iteration."""
        self._prefix = text
        if self._bar is not None:
            self._bar.bar_format = _layout(text)

    def close(self) -> None:
        """Show the last state and end the display."""
        if self._seen is not None and self._iteration < self._total and self._iteration != self._shown:
            self._average(self._clock())
            self._show(self._clock())
        if self._bar is not None:
            self._bar.close()

    def _show(self, now: float) -> None:
        self._shown = self._iteration
        self._next_line = now + (now - self._began + self._seconds_left) / LINES
        event = getattr(self._stream, "event", None)
        if event is not None:  # the lines of --json
            event("progress", text=self._prefix, done=self._iteration, total=self._total, **self._numbers())
            return
        progress = f"{self._prefix} {self._iteration}/{self._total}"
        if self._bar is None:
            print(", ".join([progress, *self._parts(NAME_WIDTH[1])]), file=self._stream, flush=True)
        else:
            used = len(f"{progress} || ") + BAR_WIDTH + len(", ".join(self._parts(0)))
            room = shutil.get_terminal_size().columns - 1 - used
            self._bar.n = self._iteration
            name_width = max(NAME_WIDTH[0], min(room, NAME_WIDTH[1]))
            self._bar.set_description_str(", ".join(self._parts(name_width)), refresh=False)
            self._bar.refresh()

    def _average(self, now: float) -> None:
        """Update the average speeds with those since the display was last updated."""
        assert self._seen is not None
        then, iteration, env_steps = self._seen
        passed = now - then
        if passed <= 0 or self._env_steps <= env_steps:
            return
        share = passed / (passed + SMOOTHING_SECONDS)
        self._weight += share * (1 - self._weight)
        self._iterations_per_second += share * ((self._iteration - iteration) / passed - self._iterations_per_second)
        self._steps_per_second += share * ((self._env_steps - env_steps) / passed - self._steps_per_second)
        self._seen = (now, self._iteration, self._env_steps)

    @property
    def _seconds_left(self) -> float:
        """Seconds until all waves are done, at the average speed; 0 while it is unknown."""
        left = self._total - self._iteration + self._after
        return left * self._weight / self._iterations_per_second if self._iterations_per_second > 0 else 0.0

    def _numbers(self) -> dict[str, Any]:
        """Return speed, seconds left, and the best candidate with its fitness, as far as they are known."""
        numbers: dict[str, Any] = {}
        if self._iterations_per_second > 0:
            numbers = {
                "env_steps_per_second": round(self._steps_per_second / self._weight),
                "seconds_left": round(self._seconds_left),
            }
        return numbers if self._best is None else {**numbers, "best": self._best[0], "fitness": self._best[1]}

    def _parts(self, name_width: int) -> list[str]:
        parts = []
        if self._iterations_per_second > 0:
            parts.append(f"{si(self._steps_per_second / self._weight)} env-steps/s")
            parts.append(f"{duration(self._seconds_left)} left")
        if self._best is not None:
            name, fitness = self._best
            parts.append(f"best {format_fitness(fitness)} {shorten(one_line(name), name_width)}")
        return parts


def in_notebook() -> bool:
    """Return whether this is a notebook, where tqdm's bar is a widget."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())


def _layout(prefix: str) -> str:
    bar = "{bar}" if in_notebook() else f"{{bar:{BAR_WIDTH}}}"  # a widget has no width
    return f"{prefix} {{n_fmt}}/{{total_fmt}} |{bar}| {{desc}}"
