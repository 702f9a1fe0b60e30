"""The files of a run: its candidates, baselines and fitness, how they are loaded, and assembled to shapings."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from envcoder_bench.core.folders import PACKAGE
from envcoder_bench.run.spec import CandidateSource
from envcoder_bench.shaping.contract import (
    Candidate,
    CandidateError,
    CandidateFunction,
    Definition,
    Fault,
    Patch,
    Shaping,
    assemble,
    sections_of,
)
from envcoder_bench.shaping.faults import by_user
from envcoder_bench.shaping.kinds import CANDIDATE, FITNESS, KINDS, REWARD
from envcoder_bench.shaping.loading import Complete, load_candidate
from envcoder_bench.shaping.source import inlined
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.spec import TaskSpec


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, and how they are loaded.

    Attributes:
        baselines: the baselines by name; a resumed run has its own copies.
        baseline: the name of the baseline that fills in.
        fitness: the file whose ``compute_fitness`` evaluations measure; None for the task's own fitness.
        shaper_types: the functions taken from candidates; None for all that they define.
        slow: names files that take long.
        jailed: results of the jail for untrusted files, by name.
        loaded: files by name and seed that need not be loaded again. Groups never share a stateful module.
        keeping: functions that stored something when they were checked, as (file, type).
        called: files with functions that are called, not traced. They are loaded for each group, because a call may
            store something that the check did not reach.
        complete: the task's, see ``load_candidate``.
    """

    baselines: Mapping[str, CandidateSource]
    baseline: str
    fitness: CandidateSource | None
    shaper_types: Sequence[str] | None
    slow: SlowFiles
    jailed: Mapping[str, Candidate | Fault] = field(default_factory=dict)
    loaded: dict[tuple[str, int], Candidate] = field(default_factory=dict)
    keeping: set[tuple[str, str]] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    complete: Complete | None = None

    def note_keepers(self, functions: Iterable[CandidateFunction]) -> None:
        """Load the files of checked functions again from now on if these store something."""
        stateful = [function for function in functions if function.stateful_line is not None]
        keeping = {(function.file, function.type) for function in stateful} - self.keeping
        self.keeping.update(keeping)
        self._load_again({file for file, _ in keeping})

    def note_called(self, functions: Iterable[CandidateFunction]) -> None:
        """Load the files of functions that are called again from now on."""
        files = {function.file for function in functions} - self.called
        self.called.update(files)
        self._load_again(files)

    def _load_again(self, files: set[str]) -> None:
        for key, candidate in list(self.loaded.items()):
            if candidate.file in files:
                del self.loaded[key]


def baseline_sources(task: TaskSpec, config: Mapping[str, Any] | None = None) -> list[CandidateSource]:
    """Return the task's baselines as candidates; those of the package with the functions that they share.

    Args:
        config: the task's config of the run; None for that of its YAML.

    Raises ValueError if the task's code fails with this config.
    """
    paths = {name: task.baseline_path(name, config) for name in BASELINE_FILES}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    if PACKAGE in task.folder.parents:
        texts = {name: inlined(text) for name, text in texts.items()}
    return [CandidateSource(name, str(paths[name]), text) for name, text in texts.items()]


def load(source: CandidateSource, files: RunFiles, seed: int) -> Candidate:
    """Load a file as a new module, or return a loaded one that groups can share. Raises CandidateError."""
    judged = files.jailed.get(source.name)
    if isinstance(judged, Fault):
        raise CandidateError.of(judged)
    if judged is not None:
        return judged
    key = (source.name, seed)
    if key not in files.loaded:
        with files.slow.step("loading", source.file):
            keeping = {type_ for file, type_ in files.keeping if file == source.file}
            if source is files.fitness:
                candidate = load_fitness(source, seed, keeping, files.complete)
            else:
                candidate = load_candidate(
                    source.name, source.source, source.file, seed, keeping=keeping, complete=files.complete
                )
        # a module with a memory belongs to one group
        keeps = any(function.stateful_line is not None for function in candidate.functions.values())
        if keeps or source.file in files.called:
            return candidate
        files.loaded[key] = candidate
    return files.loaded[key]


def load_fitness(
    source: CandidateSource, seed: int, keeping: Container[str] = (), complete: Complete | None = None
) -> Candidate:
    """Load a fitness file as a new module, as candidates are loaded, with the dicts that change its evaluations.

    Raises CandidateError.
    """
    file = source.file
    candidate = load_candidate(source.name, source.source, file, seed, (FITNESS,), keeping=keeping, complete=complete)
    patches = [patch for patch in candidate.definitions.values() if isinstance(patch, Patch)]
    for patch in patches:
        if KINDS[patch.type].judged_with == CANDIDATE or patch.type == REWARD:
            message = f"changes {', '.join(patch.sections)}, which a fitness file cannot"
            remedy = "remove it: evaluations take its commands, curriculum, events and terminations"
            raise CandidateError(message, file, patch.line, remedy=remedy)
    if patches and FITNESS not in candidate.functions:
        remedy = "def compute_fitness(score): return score  # the task's own, with what the dicts change"
        raise CandidateError(f"does not define {FITNESS}", file, patches[0].line, remedy=remedy)
    return candidate


def load_and_assemble(source: CandidateSource, files: RunFiles, seed: int) -> Shaping:
    """Assemble a file's functions with the run's baseline; baselines are not filled in. Raises CandidateError."""
    if source.name in BASELINE_FILES:
        baseline = load(source, files, seed)
        return assemble(baseline, baseline)
    candidate = load(source, files, seed)
    return assemble(candidate, load(files.baselines[files.baseline], files, seed), files.shaper_types)


def fitness_of(files: RunFiles, seed: int) -> dict[str, Definition]:
    """Return what replaces the task's own fitness in evaluations, if anything, by stage; with the file's dicts."""
    if files.fitness is None:
        return {}
    candidate = load(files.fitness, files, seed)
    function, sections = candidate.functions[FITNESS], sections_of(candidate.definitions)
    patch = Patch(FITNESS, function.file, function.line, sections, function)
    return {KINDS[FITNESS].stage: patch if sections else function}


# files that take long


log = logging.getLogger(__name__)

SECONDS = 10.0  # until a file is named


class SlowFiles:
    """Watches the thread that creates it, from another thread, while it processes candidate files.

    A warning names a file that takes longer than ``seconds``, with the line that is running. The error of Ctrl-C names
    the current file.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._thread = seconds, threading.get_ident()
        self._at: list[tuple[str, str, float]] = []  # (action, file, start time), the innermost last
        self._ended = threading.Event()

    def __enter__(self) -> SlowFiles:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    @contextmanager
    def step(self, doing: str, file: str) -> Iterator[None]:
        """Mark the block as an action on a file, such as ``loading``."""
        self._at.append((doing, file, time.monotonic()))
        try:
            yield
        except KeyboardInterrupt as stop:
            if str(stop) or not by_user(stop, file):  # an inner step has added the place; or the file raised it
                raise
            line = _line_in(stop.__traceback__, file)
            raise KeyboardInterrupt(f"while {doing} {_place(file, line)}") from None
        finally:
            self._at.pop()

    def _watch(self) -> None:
        warned: tuple[str, str, float] | None = None
        while not self._ended.wait(min(1.0, self._seconds / 4)):
            at = self._at[-1] if self._at else None
            if at is None or at == warned or time.monotonic() - at[2] < self._seconds:
                continue
            warned = at
            line = _line_of(sys._current_frames().get(self._thread), at[1])
            remedy = "Ctrl-C stops, and --untrusted has a time limit"
            where = _place(at[1], line)
            log.warning("%s: still %s this file after %.0f s; %s", where, at[0], self._seconds, remedy)


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def _line_of(frame: FrameType | None, file: str) -> int | None:
    """Return the line of ``file`` that is running or has called other code."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno


def _line_in(trace: TracebackType | None, file: str) -> int | None:
    """Return the innermost line of ``file`` in a traceback."""
    lines = [line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == file]
    return lines[-1] if lines else None
