"""A score for the programs of an evolutionary coder: calls of several threads are gathered into one run."""

import atexit
import contextlib
import itertools
import json
import logging
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import stamped_folder
from envcoder_bench.core.words import counted, number
from envcoder_bench.results.logs import StepFitnessLog, read_curves
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.run import evaluate as run
from envcoder_bench.run.fitness import fitness_bounds
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import override_words, resolve
from envcoder_bench.run.result import RunResult
from envcoder_bench.serve.answers import facts_of, shares_of
from envcoder_bench.shaping.scan import MAX_CHARACTERS
from envcoder_bench.tasks.base import HUMAN

log = logging.getLogger(__name__)


class Score(NamedTuple):
    """The fitness of a program, its mean over the seeds, and what a model should read of it."""

    score: float
    feedback: str


class Evaluator:
    """Evaluates the text of a candidate file, in any thread: ``score, feedback = evaluator.evaluate(source)``.

    A run begins when no further call has come for a while, and trains all programs that wait. All runs have the same
    seeds, so that scores can be compared, and on a CPU those of one run are those of many. A text is evaluated once.

    Args:
        task: as of ``envcoder_bench.evaluate``.
        gather: seconds to wait for further calls.
        most: number of programs in a run.
        folder: a new folder for the runs; default ``runs/<task>_<time>``.
        overrides, settings: as of ``envcoder_bench.evaluate``; candidates are ``untrusted`` unless that is False.

    Raises:
        UserError: bad input.
    """

    def __init__(
        self,
        task: str | os.PathLike[str],
        *,
        gather: float = 1.0,
        most: int = 64,
        folder: str | Path | None = None,
        overrides: Sequence[str] | Mapping[str, Any] = (),
        **settings: Any,
    ) -> None:
        self._task, self._gather, self._most = os.fspath(task), gather, most
        self._words = override_words(self._task, overrides, None, {"untrusted": True, "seeds": 1, **settings})
        spec = resolve(self._task, self._words)
        least = fitness_bounds(spec.task, spec.config)[0]
        self._failed = least if math.isfinite(least) else -math.inf  # the score of a program that cannot train
        self._folder = Path(folder) if folder is not None else stamped_folder("runs", spec.task.name)
        self._human: Ranked | None = None
        self._scores: dict[str, Future[Score]] = {}
        self._waiting: list[str] = []
        self._changed = threading.Condition()
        self._numbers, self.runs = itertools.count(1), 0
        threading.Thread(target=self._work, name="evaluator", daemon=True).start()

    def evaluate(self, source: str) -> Score:
        """Return the score of a candidate's text; a program that fails has the least fitness, and why as feedback."""
        with self._changed:
            if source not in self._scores:
                self._scores[source] = Future()
                self._waiting.append(source)
                self._changed.notify()
            score = self._scores[source]
        return score.result()

    def listen(self) -> str:
        """Answer other processes, too; return the address, a socket that this user alone can open.

        A ``multiprocessing.connection.Client`` sends the text of a program, and receives score and feedback as JSON.
        """
        folder = tempfile.mkdtemp(prefix="evaluator_")  # short: the path of a socket has 107 characters at most
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        listener = Listener(f"{folder}/socket", "AF_UNIX", backlog=self._most)
        threading.Thread(target=self._accept, args=(listener,), name="evaluator listens", daemon=True).start()
        return f"{folder}/socket"

    def _accept(self, listener: Listener) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError):  # a client that left
                threading.Thread(target=self._answer, args=(listener.accept(),), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            try:
                answer = self.evaluate(connection.recv_bytes(4 * MAX_CHARACTERS).decode("utf-8", "replace"))
            except UserError as error:
                answer = Score(self._failed, str(error))
            connection.send_bytes(json.dumps(answer).encode())

    def _work(self) -> None:
        while True:
            sources = self._batch()
            try:
                self._evaluate(sources)
            except BaseException as error:  # those who wait must not wait for ever
                with self._changed:
                    for source in sources:
                        if not self._scores[source].done():
                            self._scores.pop(source).set_exception(error)
                if not isinstance(error, Exception):
                    raise

    def _batch(self) -> list[str]:
        """Wait for programs, and for others that come soon after."""
        with self._changed:
            while not self._waiting:
                self._changed.wait()
            while len(self._waiting) < self._most and self._changed.wait(self._gather):
                pass
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        return batch

    def _evaluate(self, sources: Sequence[str]) -> None:
        named = {f"p{next(self._numbers)}": source for source in sources}
        words = [*self._words, *(["baselines=false"] if self._human is not None else [])]
        self.runs += 1
        try:
            result = run.evaluate(self._task, named, overrides=words, output_dir=self._folder / str(self.runs))
        except UserError as error:
            if len(sources) > 1:  # which of them it is
                for source in sources:
                    self._evaluate([source])
            else:
                self._scores[sources[0]].set_result(Score(self._failed, str(error)))
            return
        rows = {row.candidate: row for row in result.ranked}
        self._human = rows.get(HUMAN, self._human)
        for name, source in named.items():
            self._scores[source].set_result(self._score(result, rows[name]))

    def _score(self, result: RunResult, row: Ranked) -> Score:
        if row.rank is None:
            return Score(self._failed, row.error or f"it has no fitness: {row.status}")
        course = RunFolder(result.folder).step_fitness
        points = result.evaluations()
        facts = facts_of(row, points, read_curves(course, StepFitnessLog.columns) if course.is_file() else None)
        human = "" if self._human is None else f"; human has {number(self._human.fitness)} with the same seeds"
        lines = [f"fitness {number(row.fitness)} over {counted(len(row.seeds), 'seed')}{human}"]
        lines += [str(facts[key]) for key in ("ended", "hacked") if facts.get(key)]
        shares = [f"{name} {100 * share:.0f} %" for name, share in shares_of(points, row.candidate).items()]
        lines += [f"shares of the reward's terms: {', '.join(shares)}"] if shares else []
        return Score(row.fitness, "\n".join([*lines, *([row.error] if row.error else [])]))
