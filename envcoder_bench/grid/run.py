"""The library for grids: run or resume the episodes, in this process or in one process for each device.

The process of a device is ``python -m envcoder_bench.grid.run FOLDER K COUNT SIM DEVICE``.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from envcoder_bench.core.bounded import parse_json
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import locked, write_atomic
from envcoder_bench.core.words import duration
from envcoder_bench.grid.inputs import Inputs, read_inputs, write_inputs
from envcoder_bench.grid.part import EPISODES, STATE, Part, Progress
from envcoder_bench.report import progress

PARTS = "parts"  # the folder with the episodes of each device
DEVICES = "devices.json"
_POLL_SECONDS = 0.2
_LOCK_SECONDS = 120.0  # until a worker notices that its command was killed
log = logging.getLogger(__name__)


class GridProgress(progress.Progress):
    """Shows episodes done and running, and the time left if all the others last to the limit."""

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


@dataclass(frozen=True)
class GridResult:
    """A grid that has been run.

    Attributes:
        complete: whether all episodes have ended; otherwise it can be resumed.
        rows: the lines of episodes.jsonl so far, in the order of the grid.
        seconds: duration of the episodes in this process.
    """

    folder: Path
    complete: bool
    rows: list[dict[str, Any]]
    seconds: float


def begin_grid(inputs: Inputs, folder: Path) -> None:
    """Make the folder of a new grid."""
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(inputs, folder)


def run_grid(
    inputs: Inputs,
    folder: Path,
    workers: Sequence[tuple[str, str]],
    report: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> GridResult:
    """Run the episodes that are left.

    Args:
        inputs: as ``begin_grid`` wrote them.
        workers: simulator and device of each worker; a single worker runs in this process.
        stop: called often; True stops with a checkpoint.
    """
    begin, specs = time.perf_counter(), inputs.specs
    with locked(folder, "grid"):
        workers = _match_workers(folder, workers)
        complete = len(read_episodes(folder / EPISODES)) == len(specs) and not (folder / STATE).exists()
        if not complete and len(workers) == 1:
            complete = Part(inputs, specs, folder, *workers[0]).run(report, stop)
        elif not complete:
            complete = _run_workers(inputs, folder, workers, report, stop)
        rows = read_episodes(folder / EPISODES)
    order = {inputs.named(spec)["episode_id"]: k for k, spec in enumerate(specs)}
    rows.sort(key=lambda row: order[row["episode_id"]])
    return GridResult(folder, complete, rows, time.perf_counter() - begin)


def read_episodes(path: Path) -> list[dict[str, Any]]:
    """Return the lines of episodes.jsonl; a line that a kill cut off is left out."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(parse_json(line))
        except ValueError:
            break
    return rows


def _match_workers(folder: Path, workers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return as many workers as the grid began with, because each resumes its own episodes."""
    path = folder / DEVICES
    if not path.is_file():
        write_atomic(path, json.dumps(len(workers)))
        return list(workers)
    count = json.loads(path.read_text(encoding="utf-8"))
    if count != len(workers):
        log.info("the grid began with %d workers and goes on with as many", count)
    return [workers[k % len(workers)] for k in range(count)]


def _run_workers(
    inputs: Inputs,
    folder: Path,
    workers: Sequence[tuple[str, str]],
    report: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> bool:
    """Run a process for each worker and join their episodes; return whether all have ended."""
    # a process for each worker, in a session of its own: Ctrl-C reaches only this one
    total, running = len(inputs.specs), []
    for k, (sim, device) in enumerate(workers):
        part = folder / PARTS / str(k)
        part.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "envcoder_bench.grid.run", str(folder), str(k), str(len(workers))]
        running.append(subprocess.Popen([*command, sim, device], start_new_session=True))
    files = [folder / PARTS / str(k) / EPISODES for k in range(len(workers))]
    # wait; at a stop each worker saves its episodes
    asked = False
    try:
        while any(process.poll() is None for process in running):
            time.sleep(_POLL_SECONDS)
            done = sum(len(read_episodes(file)) for file in files)
            report(Progress(done, total, total - done, done, total))
            if stop() and not asked:
                asked = True
                for process in running:
                    process.terminate()
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    # join the episodes of all workers, unless one of them failed
    codes = [process.returncode for process in running]
    if not asked and any(codes):
        failed = next(k for k, code in enumerate(codes) if code)
        raise UserError(
            f"worker {failed} on {workers[failed][1]} failed with exit code {codes[failed]}; resume to go on"
        )
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    write_atomic(folder / EPISODES, text)
    return sum(len(read_episodes(file)) for file in files) == total


def worker(words: Sequence[str]) -> int:
    """Run the episodes of one device; return 0, also after a stop."""
    folder, number, count, sim, device = Path(words[0]), int(words[1]), int(words[2]), words[3], words[4]
    stopped: list[int] = []
    parent = os.getppid()  # it changes when the command is killed; a resumed command starts its own workers
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    inputs = read_inputs(folder)
    specs, part = inputs.specs[number::count], folder / PARTS / str(number)  # episodes of all pairs
    if specs and (len(read_episodes(part / EPISODES)) < len(specs) or (part / STATE).exists()):
        with locked(part, "grid", _LOCK_SECONDS):
            Part(inputs, specs, part, sim, device).run(lambda _: None, lambda: bool(stopped) or os.getppid() != parent)
    return 0


if __name__ == "__main__":
    sys.exit(worker(sys.argv[1:]))
