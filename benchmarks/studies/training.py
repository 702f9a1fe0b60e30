"""A training of several candidates and seeds as records: one for each evaluation, written as they come."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import signal
import threading
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from bench import records
from bench.records import Record

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.points import read_points
from envcoder_bench.run.evaluate import evaluate, resume
from envcoder_bench.run.folder import RunFolder
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.run_result import RunResult

OWN = ("seed", "seeds", "race.enabled")  # keys of cfg/config.yaml that cannot be overridden
LATER = ("settings", "sources")  # facts that older records do not have
PARTIAL = ".partial"  # suffix of the file with the evaluations of a training that goes on


class Study:
    """The records of a study, and the work folder of its runs.

    Args:
        args: ``out``, ``work``, ``limit`` (seconds for everything), ``sim``, ``device``, ``devices``, ``overrides``.

    Raises:
        UserError: an override of a key that a study sets.
    """

    def __init__(self, args: Namespace) -> None:
        self.args = args
        for word in args.overrides:
            if word.split("=")[0] in OWN:
                raise UserError(f"{word}: a study sets {word.split('=')[0]} itself; remove this override")
        self.out: Path = args.out
        self.stop = StopRequest()
        self.known = records.read(self.out)

    def recorded(self, about: Record) -> bool:
        """Return whether a complete training with the same facts is among the records."""
        return any(r.get("complete") and _same(r, about) for r in self.known)

    def overrides(self, **settings: Any) -> list[str]:
        """Return the overrides of a run: these settings, the device's, and last the command line's."""
        own: dict[str, Any] = {"sim": self.args.sim, "device": self.args.device, "devices": self.args.devices}
        words = {**{key: value for key, value in own.items() if value is not None}, **settings}
        return [*(f"{key}={_word(value)}" for key, value in words.items()), *self.args.overrides]

    def train(
        self, about: Record, candidates: Mapping[str, str], seeds: int, first_seed: int = 0, **settings: Any
    ) -> RunResult | None:
        """Train unless it is recorded; resume a training that was stopped. Returns None if there is nothing to do.

        Args:
            about: facts that identify the training, with ``kind`` and ``task``.
            candidates: texts by name; the baselines come with them unless ``baselines=False`` is a setting.
            settings: keys of cfg/config.yaml.
        """
        about = {**about, "seeds": seeds, "first_seed": first_seed, "overrides": list(self.args.overrides)}
        # a training with other candidates or evaluations is another one
        about.update(settings=json.loads(json.dumps(settings)), sources=digest(sorted(candidates.items())))
        if self.recorded(about) or self.stop.by is not None:
            return None
        folder = self.args.work / folder_name(about)
        print(f"{folder.name} ...", flush=True)
        follower = _Follower(self.out, about)
        result = self.run(about["task"], candidates, folder, follower, seeds=seeds, seed=first_seed, **settings)
        for record in follower.finish(result):
            self.add(record)
        return result

    def run(
        self,
        task: str,
        candidates: Mapping[str, str],
        folder: Path,
        reporter: Reporter | None = None,
        **settings: Any,
    ) -> RunResult:
        """Train candidates in a new folder, resume a training that was stopped, or read the result of a complete one.

        Args:
            candidates: texts by name.
            settings: keys of cfg/config.yaml.
        """
        if folder.is_dir() and not (folder / "config.yaml").is_file():
            shutil.rmtree(folder)  # its creation was interrupted
        if folder.is_dir():
            return resume(folder, reporter=reporter, stop=self.stop)
        folder.parent.mkdir(parents=True, exist_ok=True)
        words = self.overrides(**settings)
        return evaluate(task, dict(candidates), overrides=words, output_dir=folder, reporter=reporter, stop=self.stop)

    def add(self, record: Record) -> None:
        records.append(self.out, record)
        self.known.append(record)


class _Follower(Reporter):
    """Writes the evaluations of a run to the partial file whenever there are new ones."""

    def __init__(self, out: Path, about: Record) -> None:
        self._about, self._size = about, -1
        self._partial = out.with_name(out.name + PARTIAL)
        self._folder: RunFolder | None = None

    def run_began(self, folder: Path) -> None:
        self._folder = RunFolder(folder)

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        points = self._folder.points if self._folder is not None else None
        if points is None or not points.is_file() or points.stat().st_size == self._size:
            return
        self._size = points.stat().st_size
        text = "".join(json.dumps(record) + "\n" for record in self._records(points, False))
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._partial, text)

    def _records(self, points: Path, complete: bool) -> list[Record]:
        """Return a record for each evaluation; a fitness that is missing is None."""
        rows: dict[int, dict[str, dict[int, float]]] = {}
        steps: dict[int, int] = {}
        for point in read_points(points):
            rows.setdefault(point.iteration, {}).setdefault(point.candidate, {})[point.seed] = point.fitness
            steps[point.iteration] = point.env_steps
        about = self._about
        seeds = range(about["first_seed"], about["first_seed"] + about["seeds"])
        names = list(dict.fromkeys(name for own in rows.values() for name in own))
        found = []
        for iteration in sorted(rows):
            fitness = {name: [_number(rows[iteration].get(name, {}).get(seed)) for seed in seeds] for name in names}
            last = iteration == max(rows)
            found.append(
                {
                    **about, "iteration": iteration, "env_steps": steps[iteration], "fitness": fitness, "last": last,
                    "complete": complete,
                }
            )  # fmt: skip
        return found

    def finish(self, result: RunResult) -> list[Record]:
        """Return the records of a complete run; those of one that was stopped stay in the partial file."""
        folder = RunFolder(result.folder)
        if not folder.points.is_file():
            return []
        if not result.complete:
            self._folder, self._size = folder, -1
            self.iteration_done(0, 0, None)
            return []
        cfg, _ = folder.read()
        failed = {name: error.splitlines()[0] for name, error in result.failed.items()}
        described = records.describe(cfg.device)
        self._partial.unlink(missing_ok=True)
        facts = {"failed": failed, "wall_time": result.summary["wall_time"], **described}
        return [{**record, **facts} for record in self._records(folder.points, True)]


@contextmanager
def stopping(study: Study) -> Iterator[None]:
    """Stop the study's training at SIGINT, SIGTERM and after ``limit`` seconds, with a checkpoint."""
    old = {number: signal.signal(number, lambda n, _: study.stop(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    timer = None
    if study.args.limit:
        timer = threading.Timer(study.args.limit, study.stop, ("limit",))
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        for number, handler in old.items():
            signal.signal(number, handler)


def folder_name(about: Record) -> str:
    """Return a name that is different for different facts."""
    words = [about[key] for key in ("kind", "task", "role", "method") if key in about]
    return re.sub(r"\W+", "_", "_".join([*words, f"{about['envs']}", digest(about)]))


def _same(record: Record, about: Record) -> bool:
    return all(record.get(key, value if key in LATER else None) == value for key, value in about.items())


def digest(content: Any) -> str:
    """Return a short text that is different for different content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 5)


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)
