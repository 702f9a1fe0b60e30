"""Display of runs: messages and progress on stderr, the ranking on stdout; and signals that stop runs."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from envcoder_bench.cli.json_output import FLAG, is_json, put
from envcoder_bench.core.errors import MachineError, Stopped, UserError
from envcoder_bench.core.folders import python_path
from envcoder_bench.core.plain_text import own_codes
from envcoder_bench.core.shell import display_path, page_command, resume_command
from envcoder_bench.core.yaml_files import read_yaml
from envcoder_bench.report.progress import Progress
from envcoder_bench.run.hooks import HANG_UP, Reporter, StopRequest
from envcoder_bench.video import default_videos

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from envcoder_bench.run.result import RunResult

log = logging.getLogger(__name__)
NEXT_PROCESS = "the next candidate's process"


class Console(Reporter):
    """Shows the progress of a command's runs, and stops them at a signal.

    Args:
        names_folder: whether to print the run's folder when it begins.
        one_process_a_wave: stop an isolated run after every wave, so that ``finish`` continues in another process.

    Attributes:
        stop: the StopRequest for the runs.
    """

    def __init__(self, names_folder: bool = True, one_process_a_wave: bool = False) -> None:
        self.stop = StopRequest(_stop_signals())
        self._one_process_a_wave, self._isolated = one_process_a_wave, False
        self._names_folder = names_folder
        self._progress: Progress | None = None
        self._rung = ""  # a race's

    def run_began(self, folder: Path) -> None:
        self._rung = ""  # a search runs several, and its last one does not race
        if self._names_folder:
            log.info("folder: %s", display_path(folder))
        if self._one_process_a_wave:
            self._isolated = read_yaml(folder / "config.yaml").get("isolate") == "process"

    def rung_began(self, number: int, rungs: int, alive: int, candidates: int) -> None:
        self._rung = f"rung {number} of {rungs}, {alive} of {candidates} alive, "

    def wave_began(self, number: int, waves: int, iteration: int, iterations: int) -> None:
        self._progress = Progress(iterations, iteration, wave=number, waves=waves)
        if self._rung:
            self._progress.set_prefix(self._rung + self._progress.prefix)

    def devices_began(self, devices: int, waves: int, iteration: int, iterations: int) -> None:
        self.wave_began(1, 1, iteration, iterations)

    def devices_at_work(self, devices: int, done: int, waves: int) -> None:
        assert self._progress is not None
        counted = f"{devices} device{'s' * (devices != 1)}"
        self._progress.set_prefix(f"{self._rung}{counted}, {done} of {waves} waves done, iteration")

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        assert self._progress is not None
        self._progress.update(iteration, env_steps, best)

    def wave_ended(self) -> None:
        if self._progress is not None:
            self._progress.close()
        self._progress = None
        if self._isolated:
            self.stop(NEXT_PROCESS)


def _stop_signals() -> list[signal.Signals]:
    """Return the signals that stop training with a checkpoint: those of Ctrl-C, kill, and, without nohup, hang-up."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if HANG_UP is not None and signal.getsignal(HANG_UP) is not signal.SIG_IGN:
        signals.append(HANG_UP)
    return signals


@contextmanager
def resumable() -> Iterator[None]:
    """Add the command that resumes the run to the errors of a stop or of a full disk.

    Raises:
        UserError, KeyboardInterrupt: those of the block, with extended messages.
    """
    try:
        yield
    except MachineError as error:
        again = f"What was saved before is intact: fix this, and resume with: {resume_command(error.folder)}"
        raise UserError(f"{error}. {again}") from error
    except Stopped as stop:
        hint = "the run had not begun, and nothing was written"
        if stop.folder is not None:
            hint = f"resume with: {resume_command(stop.folder)}"
        raise KeyboardInterrupt(f"stopped{f' {stop}' if str(stop) else ''}; {hint}") from None


def finish(result: RunResult) -> int:
    """Print the result of a run, or the command that resumes it.

    An isolated run continues with its next wave in a new process that replaces this one.

    Returns:
        The exit code: 0 ranked, 1 every candidate failed, else 128 plus the number of the signal that stopped it.
    """
    # memory of a simulation goes back only when its process ends
    if not result.complete and result.stopped_by == NEXT_PROCESS:
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ["PYTHONPATH"] = python_path()
        words = ["--resume", str(result.folder), *([FLAG] * is_json())]
        os.execv(sys.executable, [sys.executable, "-m", "envcoder_bench.eval_shapers", *words])
    if not result.complete:
        if any(row.measured and row.env_steps for row in result.rows):
            print(f"the page of the results so far: {page_command(result.folder)}", file=sys.stderr)
        print(f"stopped {result.stopped_at}; resume with: {resume_command(result.folder)}", file=sys.stderr)
    elif not is_json():
        show_ranking(result)
    show_profile(result)
    if not result.trained:
        print(f"\nthe run in {display_path(result.folder)} is complete: nothing was left to do", file=sys.stderr)
    return exit_code(result)


def exit_code(result: RunResult) -> int:
    """Return the exit code of a command that ends with this run, see ``finish``."""
    if not result.complete:
        return 128 + int(result.stopped_by or signal.SIGINT)
    return 0 if result.succeeded else 1


def show_ranking(result: RunResult) -> None:
    """Print the ranking and the run's folder."""
    print("\n" + result.table(screen_width(), bold=sys.stdout.isatty()), file=own_codes(sys.stdout))
    for path in (*result.pictures, result.folder / "results.csv", result.folder / "candidates"):
        if path.exists():
            print(display_path(path))


def show_profile(result: RunResult) -> None:
    """Print the profile, if there is one."""
    if result.breakdown is not None:
        from envcoder_bench.report.breakdown import render_breakdown

        print("\n" + render_breakdown(result.breakdown, screen_width()))


def screen_width() -> int:
    """Return the number of characters in a line of a table."""
    return max(80, min(120, shutil.get_terminal_size((100, 24)).columns))


# after a run of eval-shapers


def conclude(result: RunResult, videos: int | None, under_stress: bool = False) -> int:
    """Print the end of a run, write the page of a complete one, and print its path; return the exit code.

    Args:
        videos: the value of ``--video``.
        under_stress: whether policies are played under stress afterwards; the command for later is printed if the run
            is not complete, because a resumed run does not do it.
    """
    from envcoder_bench.report.page.shell import PAGE

    if under_stress and not result.complete:
        print(
            f"stress, when the run is complete: envcoder-bench stress {shlex.quote(str(result.folder))}",
            file=sys.stderr,
        )
    try:
        finish(result)
        if result.complete and (result.trained or videos is not None or not (result.folder / PAGE).is_file()):
            _write_page(result)
        put_ranking(result)
    except KeyboardInterrupt:
        if not result.complete:
            raise KeyboardInterrupt(f"stopped; resume with: {resume_command(result.folder)}") from None
        print(f"stopped; the run is complete; {page_command(result.folder)} writes its page", file=sys.stderr)
    return exit_code(result)


def put_ranking(result: RunResult) -> None:
    """With ``--json``, set the ranking as the document of the command."""
    from envcoder_bench.report.page.shell import PAGE
    from envcoder_bench.serve.documents import ranking

    put(lambda: ranking(result, result.folder / PAGE))


def _write_page(result: RunResult) -> None:
    """Write the page of a run and print its path; results do not depend on it."""
    from envcoder_bench.report.page.shell import PAGE
    from envcoder_bench.run.folder.tracking import log_report
    from envcoder_bench.video.page import page_videos, write_page

    try:
        page = write_page(result.folder, default_videos())
        print(display_path(page))
        log_report(result.folder, page, page_videos(result.folder))
    except Exception as error:
        log.warning("%s could not be written: %s", PAGE, error)
