"""Checks and traces of candidates, with the results of other candidates and of earlier processes."""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from envcoder_bench.compile import kernels
from envcoder_bench.compile.cache import FunctionCache
from envcoder_bench.compile.trace import Memo, Untraced, trace
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.shaping.checking import TrialState, check
from envcoder_bench.shaping.contract import CandidateFunction, Shaping
from envcoder_bench.shaping.kinds import KINDS
from envcoder_bench.tasks.base import Task
from envcoder_bench.tasks.contract import TaskSnapshot

_shown_warnings: set[tuple[object, ...]] = set()  # warnings that are not shown again
FOUND = ("widths", "action_dim", "effort", "components")


class CachedCheck:
    """Checks shapings on one state of a task, and caches what is found for later processes.

    The result depends on the code, the task, the numbers of the state and the kind of device. If all of them are equal,
    it is loaded, and the functions are not called. Functions that may keep something between calls, or that warn, are
    always called.

    Args:
        task: with the state on which functions are called.
    """

    def __init__(self, task: TaskSnapshot, cache: FunctionCache) -> None:
        self._task, self._cache = task, cache
        self._trial = TrialState(task.state, task.constants, task)
        self._digest = self._trial.digest()

    def __call__(self, shaping: Shaping) -> Shaping:
        """Return the shaping with what ``check`` fills in. Raises CandidateError, as ``check`` does."""
        task, functions, device = self._task, list(shaping.functions.values()), self._task.device.type
        checked = self._load(functions, device)
        if checked is not None:
            return replace(shaping, **{**checked, "components": tuple(checked["components"])})
        on_cpu = None if device == "cpu" else self._load(functions, "cpu")  # the processes of ahead.py leave it
        cpu_action_dim = None if on_cpu is None else on_cpu["action_dim"]
        with _noticed_warnings() as warned:
            shaping = check(shaping, task.state, task.constants, task, self._trial, cpu_action_dim)
        functions = list(shaping.functions.values())
        if _is_pure(functions) and not warned:
            plain = {key: getattr(shaping, key) for key in FOUND}
            self._cache.save_plain(plain, functions, *self._parts(functions, device))
        return shaping

    def _load(self, functions: Sequence[CandidateFunction], device: str) -> dict[str, Any] | None:
        checked = self._cache.load_plain(functions, *self._parts(functions, device)) if _is_pure(functions) else None
        return checked if isinstance(checked, dict) and set(checked) == set(FOUND) else None

    def _parts(self, functions: Sequence[CandidateFunction], device: str) -> tuple[object, ...]:
        """Return what the result depends on beside the code and the constants."""
        task = self._task
        returned = [KINDS[function.type].parts(task) for function in functions]
        return "checked", device, self._digest, task.num_dofs, task.default_action_dim, task.refusals, returned


def _is_pure(functions: Sequence[CandidateFunction]) -> bool:
    """Return whether each call is known to depend on nothing but the file's text and the inputs.

    A program from the jail does not: it may lack components of the text, and its check is part of the jail.
    """
    return all(function.stateful_line is function.generator_line is function.program is None for function in functions)


@contextlib.contextmanager
def _noticed_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect all warnings inside the block, also those that are not shown again, and give them afterwards."""
    noticed: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield noticed
    finally:
        noticed += caught
        always = bool(warnings.filters) and warnings.filters[0][0] == "always"  # --check shows it for each candidate
        for warning in noticed:
            key = (str(warning.message), warning.category, warning.filename, warning.lineno)
            if always or key not in _shown_warnings:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            _shown_warnings.add(key)


# traces


log = logging.getLogger(__name__)


class Tracer:
    """Traces shapings, with results cached from other shapings and earlier processes; warns of untraced functions.

    Attributes:
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
