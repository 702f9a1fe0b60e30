"""The profile of a run: iterations that are timed."""

import logging
from collections.abc import Generator
from pathlib import Path

import torch

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import CudaClock, HostClock, Profiler, Timeline
from envcoder_bench.report.breakdown import Breakdown, to_json
from envcoder_bench.run.spec import RunConfig

log = logging.getLogger(__name__)

WARM_UP, MEASURED = 2, 5  # iterations; of a run with fewer, at least one is measured


class RunProfile:
    """Profiles a run without changing its results.

    The measured iterations are among the first ones of this process.

    Args:
        folder: ``profile/`` of the run, created when something is written.
    """

    def __init__(self, folder: Path, cfg: RunConfig) -> None:
        self._folder, self._device = folder, torch.device(cfg.device)
        self._horizon = int(cfg.train.params.config.horizon_length)
        self._watching: Generator[None, None, None] | None = None
        self._iteration = 0
        self._measured: Breakdown | None = None

    def begin(self, iteration: int, total: int, layout: GroupLayout) -> None:
        """Begin the profile when groups begin to train; ``iteration`` of ``total`` are done."""
        self._iteration = iteration
        if self._watching is None and iteration < total:  # only the first of several waves is profiled
            self._watching = self._watch(min(WARM_UP, total - iteration - 1), layout)
            next(self._watching)

    def iteration_done(self, iteration: int) -> None:
        """Note the end of an iteration, including its evaluation and logs."""
        self._iteration = iteration
        if self._watching is not None:
            next(self._watching, None)

    def _watch(self, warm_up: int, layout: GroupLayout) -> Generator[None, None, None]:
        """Measure; the training advances one iteration at every ``yield``."""
        for _ in range(warm_up):
            yield
        first, cuda = self._iteration + 1, self._device.type == "cuda"
        timeline = Timeline([CudaClock(self._device), HostClock()] if cuda else [HostClock()])
        with Profiler(timeline, self._device):
            try:
                for _ in range(MEASURED):
                    yield
            finally:  # the run may have been stopped before all were measured
                if self._iteration >= first:
                    seconds, *host = timeline.times()
                    self._measured = Breakdown(
                        str(self._device), layout.num_groups, layout.envs_per_group, self._horizon, first,
                        self._iteration, seconds, host[0] if host else {}, timeline.counts, warm_up > 0,
                    )  # fmt: skip

    def stop(self) -> None:
        """End the profile."""
        if self._watching is not None:
            self._watching.close()  # exits the generator's with blocks

    def finish(self) -> Breakdown | None:
        """Write breakdown.json and return its content, or None if nothing was measured."""
        if self._measured is None:
            log.warning("no profile: no iteration was trained after the warm-up")
            return None
        self._folder.mkdir(exist_ok=True)
        write_atomic(self._folder / "breakdown.json", to_json(self._measured))
        return self._measured
