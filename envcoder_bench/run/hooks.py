"""Communication between a run and its caller while it trains: progress reports and stop requests."""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HANG_UP = getattr(signal, "SIGHUP", None)  # not on Windows


class StopRequest:
    """A request to stop a run after the current iteration, with a checkpoint.

    It may be called from any thread and from signal handlers. Several runs can share one request.

    It is a context manager, which the main thread enters while a wave trains: inside, ``signals`` request the stop, and
    a second one has its usual effect. So Ctrl-C interrupts a candidate file with an endless loop at once.

    Attributes:
        by: the source of the first request, a word or the number of a signal; None if there is none.
    """

    def __init__(self, signals: Sequence[signal.Signals] = (signal.SIGINT,)) -> None:
        self.by: int | str | None = None
        self._signals = signals
        self._handlers: dict[signal.Signals, Any] = {}  # those outside the block
        self._depth = 0  # nested blocks in the main thread

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth == 1:
            usual = {number: signal.getsignal(number) for number in self._signals}
            self._handlers = {number: handler for number, handler in usual.items() if handler is not None}
            for number in self._handlers:
                signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth == 0:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame: Any) -> None:
        if number != HANG_UP:  # a closing terminal may send two, from the system and from the shell
            signal.signal(number, self._handlers[signal.Signals(number)])
        self(number)

    def __str__(self) -> str:
        """The source of the request in words: ``SIGINT``."""
        return signal.Signals(self.by).name if isinstance(self.by, int) else str(self.by)

    def __call__(self, by: int | str = "request") -> None:
        """Request the stop; ``by`` becomes the result's ``stopped_by``."""
        if self.by is None:
            self.by = by


class Reporter:
    """Receives the progress of a run, in its thread. The methods do nothing; override those of interest."""

    def run_began(self, folder: Path) -> None:
        """The candidates are checked and the folder exists."""

    def rung_began(self, number: int, rungs: int, alive: int, candidates: int) -> None:
        """A race goes on to the ``number``-th of ``rungs``, the last one included, with so many of the candidates."""

    def wave_began(self, number: int, waves: int, iteration: int, iterations: int) -> None:
        """The ``number``-th of ``waves`` begins to train, at ``iteration`` of ``iterations``."""

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        """An iteration is done; ``env_steps`` are those of the wave, ``best`` a candidate and its last mean fitness."""

    def devices_began(self, devices: int, waves: int, iteration: int, iterations: int) -> None:
        """Called instead of ``wave_began`` on several devices; iterations are summed over all ``waves``."""

    def devices_at_work(self, devices: int, done: int, waves: int) -> None:
        """The number of devices in use, and how many of the ``waves`` are ``done``."""

    def wave_ended(self) -> None:
        """The wave has ended or was stopped."""
