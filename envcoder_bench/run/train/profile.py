"""The profile of a run: iterations that are timed or traced."""

import logging
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import ChromeTrace, CudaClock, HostClock, Profiler, Timeline
from envcoder_bench.report.breakdown import Breakdown, to_json
from envcoder_bench.run.spec import RunConfig

log = logging.getLogger(__name__)

TRACE_SECONDS = 3.0  # longest trace, so that a browser can open the file


class Phases(NamedTuple):
    """Numbers of iterations to skip, to measure and to trace, in this order."""

    warm_up: int
    measured: int
    traced: int


def count_phases(iterations: int) -> Phases:
    """Return two iterations to warm up, five to measure, two to trace; if there are fewer, at least one to measure."""
    traced = 2 if iterations >= 9 else min(1, iterations - 1)
    warm_up = max(0, min(2, iterations - traced - 1))
    return Phases(warm_up, min(5, iterations - traced - warm_up), traced)


class RunProfile:
    """Profiles a run without changing its results.

    The measured iterations are among the first ones of this process. Traced iterations follow, because tracing slows
    the run down.

    Args:
        folder: ``profile/`` of the run, created when something is written.
    """

    def __init__(self, folder: Path, cfg: RunConfig) -> None:
        self._folder, self._device = folder, torch.device(cfg.device)
        self._horizon = int(cfg.train.params.config.horizon_length)
        self._watching: Generator[None, None, None] | None = None
        self._iteration = 0
        self._measured: Breakdown | None = None
        self._trace: ChromeTrace | None = None

    def begin(self, iteration: int, total: int, layout: GroupLayout) -> None:
        """Begin the profile when groups begin to train; ``iteration`` of ``total`` are done."""
        self._iteration = iteration
        if self._watching is None and iteration < total:  # only the first of several waves is profiled
            self._watching = self._watch(count_phases(total - iteration), layout)
            next(self._watching)

    def iteration_done(self, iteration: int) -> None:
        """Note the end of an iteration, including its evaluation and logs."""
        self._iteration = iteration
        if self._watching is not None:
            next(self._watching, None)

    def _watch(self, phases: Phases, layout: GroupLayout) -> Generator[None, None, None]:
        """Measure and trace; the training advances one iteration at every ``yield``."""
        for _ in range(phases.warm_up):
            yield
        first, cuda = self._iteration + 1, self._device.type == "cuda"
        timeline = Timeline([CudaClock(self._device), HostClock()] if cuda else [HostClock()])
        with Profiler(timeline, self._device):
            try:
                for _ in range(phases.measured):
                    yield
            finally:  # the run may have been stopped before all were measured
                if self._iteration >= first:
                    seconds, *host = timeline.times()
                    self._measured = Breakdown(
                        str(self._device), layout.num_groups, layout.envs_per_group, self._horizon, first,
                        self._iteration, seconds, host[0] if host else {}, timeline.counts, phases.warm_up > 0,
                    )  # fmt: skip
        if phases.traced:
            self._folder.mkdir(exist_ok=True)
            with ChromeTrace(self._folder / "trace.json", self._device, TRACE_SECONDS) as self._trace:
                for _ in range(phases.traced):
                    yield
                    self._trace.end_iteration()

    def stop(self) -> None:
        """End the profile."""
        if self._watching is not None:
            self._watching.close()  # exits the generator's with blocks

    def finish(self) -> Breakdown | None:
        """Write breakdown.json and return its content, or None if nothing was measured."""
        if self._measured is None:
            log.warning("no profile: no iteration was trained after the warm-up")
            return None
        breakdown = replace(
            self._measured,
            trace=str(self._folder / "trace.json") if self._trace is not None else "",
            trace_note=self._trace_note(self._measured.last),
        )
        self._folder.mkdir(exist_ok=True)
        write_atomic(self._folder / "breakdown.json", to_json(breakdown))
        return breakdown

    def _trace_note(self, measured: int) -> str:
        if self._trace is None:
            return "it needs another iteration after the measured ones"
        first, last = measured + 1, measured + self._trace.iterations
        beginning = f"the first {TRACE_SECONDS:.0f} s of iteration {last + 1}"
        if last < first:
            return beginning
        iterations = f"iteration {first}" if first == last else f"iterations {first} to {last}"
        return f"{iterations} and {beginning}" if self._trace.cut else iterations
