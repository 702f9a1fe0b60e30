"""Communication between a run and its caller while it trains: progress reports and stop requests."""

from pathlib import Path


class StopRequest:
    """A request to stop a run after the current iteration, with a checkpoint.

    It may be called from any thread and from signal handlers. Several runs can share one request.

    Attributes:
        by: the source of the first request, a word or the number of a signal; None if there is none.
    """

    def __init__(self) -> None:
        self.by: int | str | None = None

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
        """An iteration is done; ``env_steps`` are those of the wave, ``best`` a candidate and its last fitness."""

    def devices_began(self, devices: int, waves: int, iteration: int, iterations: int) -> None:
        """Called instead of ``wave_began`` on several devices; iterations are summed over all ``waves``."""

    def devices_at_work(self, devices: int, done: int, waves: int) -> None:
        """The number of devices in use, and how many of the ``waves`` are ``done``."""

    def wave_ended(self) -> None:
        """The wave has ended or was stopped."""
