"""Tracing of the functions of a run, with a cache."""

import logging
from collections.abc import Sequence

from envcoder_bench.compile import kernels
from envcoder_bench.compile.cache import FunctionCache
from envcoder_bench.compile.trace import Memo, Untraced, trace
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.tasks.base import Task
from envcoder_bench.tasks.contract import TaskSnapshot

log = logging.getLogger(__name__)


class Tracer:
    """Traces shapings, with results cached from other shapings and earlier processes; warns of untraced functions.

    Attributes:
        on: whether functions are compiled.
        cache: of results about the functions of the run's files, for the task of ``begin``.
        untraced: functions of the last shaping that cannot be traced.
    """

    def __init__(self, cfg: RunConfig, sources: Sequence[CandidateSource]) -> None:
        self.on = cfg.compile_shapers and kernels.available()
        self._texts = {source.file: source.source for source in sources}
        self._seed, self._memo = cfg.seed, Memo()
        self.untraced: list[Untraced] = []
        self._told: set[str] = set()

    def begin(self, task: Task | TaskSnapshot) -> None:
        """Use this task's state for tracing from now on."""
        self._memo.samples.clear()
        self.cache = self._memo.cache = FunctionCache(self._texts, task.state, task.constants, self._seed)

    def __call__(self, shaping: Shaping, task: Task | TaskSnapshot) -> Shaping:
        """Return the shaping with its programs."""
        if self.on:
            shaping, self.untraced = trace(shaping, task.state, task.constants, task, self._memo)
        return shaping

    def tell(self) -> None:
        """Warn of functions of the last shaping that have no program, once each: those of baselines are in many."""
        for refusal in map(str, self.untraced):
            if refusal not in self._told:
                log.warning("%s: it is not compiled, and runs more slowly", refusal)
            self._told.add(refusal)
