"""The messages that a worker sends to the head: results, progress and log messages."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from envcoder_bench.core.run_log import LOGGERS, is_muted
from envcoder_bench.run.hooks import Reporter
from envcoder_bench.run.workers.messages import JobCheckpoint, Progress, UserMessage

POLL_SECONDS = 0.5  # longest wait of ``Outbox.take``


class Outbox:
    """Messages to the head. Of several checkpoints or progress reports only the last is kept."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: list[Any] = []
        self._progress: Progress | None = None

    def put(self, message: Any) -> None:
        """Add a message; a checkpoint replaces the previous one, if that was not taken yet, and includes its rows."""
        with self._changed:
            if isinstance(message, JobCheckpoint):
                for previous in [waiting for waiting in self._messages if isinstance(waiting, JobCheckpoint)]:
                    previous.rows.extend(message.rows)
                    message.rows = previous.rows
                    self._messages.remove(previous)
            self._messages.append(message)
            self._changed.notify_all()

    def set_progress(self, progress: Progress) -> None:
        """Add a progress report to the next messages, without waking up ``take``."""
        with self._changed:
            self._progress = progress

    def take(self) -> list[Any]:
        """Wait at most ``POLL_SECONDS`` for messages and remove them."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._messages), POLL_SECONDS)
            progress = [] if self._progress is None else [self._progress]
            messages = self._messages + progress
            self._messages, self._progress = [], None
            return messages


class ProgressReporter(Reporter):
    """Sends the progress of a job to the head."""

    def __init__(self, job: str, outbox: Outbox) -> None:
        self._job, self._outbox = job, outbox

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        self._outbox.set_progress(Progress(self._job, iteration, env_steps, best))


class _ForwardingHandler(logging.Handler):
    def __init__(self, outbox: Outbox) -> None:
        super().__init__(logging.INFO)
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        if not is_muted():
            self._outbox.put(UserMessage(record.levelno, record.getMessage()))


@contextlib.contextmanager
def forward_logs(outbox: Outbox) -> Iterator[None]:
    """Send the package's log messages and Python's warnings inside the block to the head."""
    handler = _ForwardingHandler(outbox)
    logging.getLogger(LOGGERS[0]).setLevel(logging.INFO)
    logging.captureWarnings(True)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)
