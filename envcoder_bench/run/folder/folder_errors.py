"""Errors that end a run, with its folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from envcoder_bench.core.errors import MachineError, NoWorker, Stopped
from envcoder_bench.core.files import disk_trouble
from envcoder_bench.run.folder.run_folder import RunFolder


@contextlib.contextmanager
def stoppable(folder: Path | None) -> Iterator[None]:
    """Convert Ctrl-C to Stopped, with the current step and the folder."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped(str(stop), folder) from None


@contextlib.contextmanager
def at_work(folder: RunFolder) -> Iterator[None]:
    """Add the run folder to the errors of Ctrl-C, of the disk and of workers."""
    try:
        with stoppable(folder.path):
            yield
    except NoWorker as error:
        raise MachineError(str(error), folder.path) from error
    except OSError as error:
        trouble = disk_trouble(error, folder.path)
        if not trouble:
            raise
        raise MachineError(trouble, folder.path) from error
