"""A session on the screen of the command that runs it: progress, messages, and signals that ask to stop."""

from __future__ import annotations

import logging
import signal
from typing import Any

from envcoder_bench.report.progress import Progress
from envcoder_bench.run.hooks import Reporter, StopRequest

_HANG_UP = getattr(signal, "SIGHUP", None)  # not on Windows
_LOG = logging.getLogger("envcoder_bench.run.session")


class Shown(Reporter):
    """Shows how far a wave is; between ``wave_began`` and ``wave_ended`` a signal asks it to stop.

    Attributes:
        stop: of the signals; ``by`` is the number of the one that came.
    """

    def __init__(self) -> None:
        self.stop: Any = StopRequest()

    def wave_began(self, number: int, waves: int, iteration: int, iterations: int) -> None:
        self._progress = Progress(iterations, iteration, wave=number, waves=waves)
        self._messages = _Messages(self._progress)
        _LOG.addHandler(self._messages)
        _LOG.propagate = False
        self._handlers = {name: signal.signal(name, self._ask) for name in _stop_signals()}

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        self._progress.update(iteration, env_steps, best)

    def wave_ended(self) -> None:
        self._progress.close()
        _LOG.removeHandler(self._messages)
        _LOG.propagate = True
        for name, handler in self._handlers.items():
            signal.signal(name, handler)

    def _ask(self, number: int, _frame: Any) -> None:
        if number != _HANG_UP:  # of a terminal that closes there may be two, from the system and from the shell
            signal.signal(number, self._handlers[signal.Signals(number)])  # a second Ctrl-C stops at once
        self.stop(number)


class _Messages(logging.Handler):
    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.write(record.getMessage())


def _stop_signals() -> list[signal.Signals]:
    """What stops a training with a checkpoint: Ctrl-C, a kill, and a terminal that closes, unless under nohup."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if _HANG_UP is not None and signal.getsignal(_HANG_UP) is not signal.SIG_IGN:
        signals.append(_HANG_UP)
    return signals
