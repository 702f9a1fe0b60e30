"""A run on the user's screen: its messages and progress on stderr, the ranking on stdout; signals stop it."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

from envcoder_bench.core.errors import DiskError, Stopped, UserError
from envcoder_bench.core.shell import resume_command, shown
from envcoder_bench.report.progress import Progress
from envcoder_bench.run.hooks import Reporter, StopRequest

if TYPE_CHECKING:  # torch, which the command line's --help does without
    from envcoder_bench.run.run_result import RunResult

log = logging.getLogger(__name__)
_HANG_UP = getattr(signal, "SIGHUP", None)  # not on Windows


class Console(Reporter):
    """Shows runs that a command starts one after the other, and stops them at a signal.

    Args:
        names_folder: say where the run is when it begins.

    Attributes:
        stop: what the runs are to be given; a signal while a wave trains asks for it. Other times a signal does what
            it did before, so that Ctrl-C interrupts a file that loads for ever.
    """

    def __init__(self, names_folder: bool = True) -> None:
        self.stop = StopRequest()
        self._names_folder = names_folder
        self._progress: Progress | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def run_began(self, folder: Path) -> None:
        if self._names_folder:
            log.info("folder: %s", shown(folder))

    def wave_began(self, number: int, waves: int, iteration: int, iterations: int) -> None:
        self._progress = Progress(iterations, iteration, wave=number, waves=waves)
        self._handlers = {name: signal.signal(name, self._ask_to_stop) for name in _stop_signals()}

    def devices_began(self, devices: int, waves: int, iteration: int, iterations: int) -> None:
        self.wave_began(1, 1, iteration, iterations)

    def devices_at_work(self, devices: int, done: int, waves: int) -> None:
        assert self._progress is not None
        words = f"{devices} device{'s' * (devices != 1)}"
        self._progress.place(f"{words}, {done} of {waves} waves done, iteration")

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        assert self._progress is not None
        self._progress.update(iteration, env_steps, best)

    def wave_ended(self) -> None:
        if self._progress is not None:
            self._progress.close()
        self._progress = None
        for name, handler in self._handlers.items():
            signal.signal(name, handler)

    def _ask_to_stop(self, number: int, _frame: Any) -> None:
        if number != _HANG_UP:  # of a terminal that closes there may be two, from the system and from the shell
            signal.signal(number, self._handlers[signal.Signals(number)])  # a second Ctrl-C stops at once
        self.stop(number)


def _stop_signals() -> list[signal.Signals]:
    """What stops a training with a checkpoint: Ctrl-C, a kill, and a terminal that closes, unless under nohup."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if _HANG_UP is not None and signal.getsignal(_HANG_UP) is not signal.SIG_IGN:
        signals.append(_HANG_UP)
    return signals


@contextmanager
def resumable() -> Iterator[None]:
    """Say where a run is stopped, or its disk is full, how it goes on.

    Raises:
        UserError, KeyboardInterrupt: those of the block, with that in their messages.
    """
    try:
        yield
    except DiskError as error:
        again = f"What was saved before is whole: mend this, and go on with: {resume_command(error.folder)}"
        raise UserError(f"{error}. {again}") from error
    except Stopped as stop:
        how = "the run had not begun, and nothing was written"
        if stop.folder is not None:
            how = f"go on with: {resume_command(stop.folder)}"
        raise KeyboardInterrupt(f"stopped{f' {stop}' if str(stop) else ''}; {how}") from None


def show(result: RunResult) -> int:
    """Print what came of a run, or how it goes on.

    Returns:
        The exit code: 0 ranked, 1 every candidate failed, else 128 and the signal that stopped it.
    """
    if not result.complete:
        command = resume_command(result.folder)
        print(f"stopped {result.stopped_at}; go on with: {command}", file=sys.stderr)
    else:
        show_ranking(result)
    show_profile(result)
    if not result.trained:
        print(f"\nthe run in {shown(result.folder)} is complete: there was nothing left to do", file=sys.stderr)
    return exit_code(result)


def exit_code(result: RunResult) -> int:
    """The exit code of a command that ends with this run, as ``show`` has it."""
    if not result.complete:
        return 128 + int(result.stopped_by or signal.SIGINT)
    return 0 if result.succeeded else 1


def show_ranking(result: RunResult) -> None:
    """Print the ranking, and where the run's files are."""
    print("\n" + result.table(screen_width(), bold=sys.stdout.isatty()))
    for path in (*result.pictures, result.folder / "results.csv", result.folder / "candidates"):
        if path.exists():
            print(shown(path))


def show_profile(result: RunResult) -> None:
    """Print where the time went, if that was measured."""
    if result.breakdown is not None:
        from envcoder_bench.report.breakdown import render_breakdown

        print("\n" + render_breakdown(result.breakdown, screen_width()))


def screen_width() -> int:
    """Characters in a line of a table."""
    return max(80, min(120, shutil.get_terminal_size((100, 24)).columns))
