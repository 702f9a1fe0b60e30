"""The queue of a campaign's jobs: each is an ``eval-shapers`` process, one at a time, which outlives the server."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envcoder_bench.core.folders import python_path
from envcoder_bench.serve.campaign import DONE, FAILED, QUEUED, RUNNING, Campaign, Job
from envcoder_bench.serve.texts import error_text

log = logging.getLogger(__name__)
DOCUMENT, EVENTS = "document.json", "events.jsonl"
TRIES = 3  # a job whose process is killed is started so often
POLL_SECONDS, SAVE_SECONDS = 0.2, 5.0


def command_line(campaign: Campaign, job: Job) -> list[str]:
    """Return the command of a job: that of a new run, or the one that resumes it."""
    run, state = campaign.run(job), campaign.state
    words = [sys.executable, "-m", "envcoder_bench.eval_shapers", "--json"]
    if (run / "config.yaml").is_file():
        return [*words, "--resume", str(run), "--video", "0"]
    words += ["--task", state.task, "--untrusted", "--output_dir", str(run), "--video", "0"]
    words += ["--seed", str(job.seed), "--seeds", str(job.seeds), "--learning_iterations", str(job.iterations)]
    words += ["--candidates", *map(str, campaign.files(job))]
    words += ["--terms"] if job.kind == "terms" else []
    return [*words, *(f"--sweep={each}" for each in job.sweep), *state.overrides]


def progress(campaign: Campaign, job: Job) -> dict[str, Any]:
    """Return the last progress event of a job; empty before the first."""
    try:
        lines = (campaign.home(job) / EVENTS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    for line in reversed(lines[-100:]):
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if event.get("event") == "progress":
                return event
    return {}


class Runner:
    """Runs the jobs in a thread.

    Args:
        finish: called with a job whose run is complete, before it is done; it may raise UserError.
    """

    def __init__(self, campaign: Campaign, finish: Callable[[Job], None]) -> None:
        self._campaign, self._finish = campaign, finish
        self._wake, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin, with the job that ran when an earlier server ended."""
        self._thread.start()

    def wake(self) -> None:
        """Look for new jobs."""
        self._wake.set()

    def stop(self) -> None:
        """Stop the job that runs; the next server resumes it."""
        self._stopping = True
        self._wake.set()
        self._thread.join(30.0)

    def _work(self) -> None:
        while not self._stopping:
            waiting = [job for job in self._campaign.state.jobs if job.status in (RUNNING, QUEUED)]
            if not waiting:
                self._wake.wait()
                self._wake.clear()
                continue
            try:
                self._run(waiting[0])
            except Exception as error:  # the queue must go on
                log.exception("%s", waiting[0].name)
                self._end(waiting[0], FAILED, error_text(error))

    def _run(self, job: Job) -> None:
        for _ in range(TRIES):
            code = self._wait(job)
            if self._stopping:
                return
            if code is None or code >= 0:  # otherwise a signal killed it
                break
        if not (self._campaign.run(job) / "summary.json").is_file():
            self._end(job, FAILED, self._failure(job))
            return
        self._finish(job)
        self._end(job, DONE)

    def _wait(self, job: Job) -> int | None:
        """Wait for the process of a job; return its exit code, None if an earlier server started it."""
        process = None if self._is_alive(job) else self._start(job)
        saved = last = time.monotonic()
        while (process.poll() is None) if process is not None else self._is_alive(job):
            if self._stopping:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGTERM)
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            job.seconds, last = job.seconds + now - last, now
            if now - saved > SAVE_SECONDS:
                with self._campaign.change():
                    saved = now
        return None if process is None else process.returncode

    def _start(self, job: Job) -> subprocess.Popen:
        home = self._begin(job)
        with open(home / DOCUMENT, "wb") as out, open(home / EVENTS, "ab") as events:
            process = subprocess.Popen(
                command_line(self._campaign, job),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=events,
                env={**os.environ, "PYTHONPATH": python_path()},
                start_new_session=True,  # the terminal's Ctrl-C is for the server
            )
        with self._campaign.change():
            job.pid = process.pid
        return process

    def _begin(self, job: Job) -> Path:
        """Make the folder of a job; it is compared with the champion of now."""
        with self._campaign.change() as state:
            if job.status == QUEUED:
                job.champion, job.status = state.champion, RUNNING
                job.candidates = [state.champion] if job.kind == "final" else job.candidates
        home = self._campaign.home(job)
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _is_alive(self, job: Job) -> bool:
        """Return whether the process that an earlier server started still works on the job."""
        if job.status != RUNNING:
            return False
        with contextlib.suppress(OSError):
            return str(self._campaign.run(job)).encode() in Path(f"/proc/{job.pid}/cmdline").read_bytes()
        return False

    def _failure(self, job: Job) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            document = json.loads((self._campaign.home(job) / DOCUMENT).read_bytes())
            if document.get("kind") == "error":
                return {key: document[key] for key in ("message", "file", "line", "advice") if document.get(key)}
        return {"message": f"the run ended without a result; see {self._campaign.home(job) / EVENTS}"}

    def _end(self, job: Job, status: Any, error: dict[str, Any] | None = None) -> None:
        with self._campaign.change():
            job.status, job.error, job.pid = status, error or {}, 0
