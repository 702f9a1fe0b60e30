"""How a run and whoever started it hear of each other while it trains."""

from __future__ import annotations

from pathlib import Path


class StopRequest:
    """Asks a run to stop after the iteration that it is in, with a checkpoint.

    Any thread may ask, and so may a signal handler. One request can be given to several runs.

    Attributes:
        by: who asked first, a word or the number of a signal; None: nobody.
    """

    def __init__(self) -> None:
        self.by: int | str | None = None

    def __call__(self, by: int | str = "request") -> None:
        """Ask; ``by`` is what the result's ``stopped_by`` says."""
        if self.by is None:
            self.by = by


class Reporter:
    """Hears how far a run is, in the thread that runs. These methods do nothing: override those of interest."""

    def run_began(self, folder: Path) -> None:
        """The candidates are checked and the folder is made; of a resumed run it was there."""

    def wave_began(self, number: int, waves: int, iteration: int, iterations: int) -> None:
        """The ``number``-th of ``waves`` trains, on from ``iteration`` of ``iterations``."""

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        """An iteration is over; ``env_steps`` are the wave's, ``best`` a candidate and its last measured fitness."""

    def devices_began(self, devices: int, waves: int, iteration: int, iterations: int) -> None:
        """In place of ``wave_began``: several devices train ``waves`` at a time; iterations are those of all waves."""

    def devices_at_work(self, devices: int, done: int, waves: int) -> None:
        """So many devices are at work, and so many of the ``waves`` are ``done``."""

    def wave_ended(self) -> None:
        """The wave is over, whether it came to its end or not."""
