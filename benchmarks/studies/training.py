"""A training of several candidates and seeds as records: one for each evaluation, written as they come."""

import hashlib
import json
import math
import re
import shutil
import signal
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import records
from bench.records import Record

from envcoder_bench.core.errors import UserError
from envcoder_bench.results.logs import read_points
from envcoder_bench.run.evaluate import evaluate, resume
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.inputs import override_words
from envcoder_bench.run.result import RunResult

OWN = ("seed", "seeds", "race.enabled")  # keys of cfg/config.yaml that cannot be overridden
LATER = ("settings", "sources")  # facts that older records do not have
PARTIAL = ".partial"  # suffix of the file with the evaluations of a training that was stopped


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
        self.stop = StopRequest((signal.SIGINT, signal.SIGTERM))  # entered for all trainings
        self.known = records.read(self.out)

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
        recorded = any(r.get("complete") and _same(r, about) for r in self.known)
        if recorded or self.stop.by is not None:
            return None
        folder = self.args.work / folder_name(about)
        print(f"{folder.name} ...", flush=True)
        result = self.run(about["task"], candidates, folder, seeds=seeds, seed=first_seed, **settings)
        partial = self.out.with_name(self.out.name + PARTIAL)
        partial.unlink(missing_ok=True)
        for record in evaluations(result, about):
            records.append(self.out if result.complete else partial, record)
            self.known.append(record)
        return result

    def run(self, task: str, candidates: Mapping[str, str], folder: Path, **settings: Any) -> RunResult:
        """Train in a new folder, resume a training that was stopped, or read the result of a complete one."""
        if folder.is_dir() and not (folder / "config.yaml").is_file():
            shutil.rmtree(folder)  # its creation was interrupted
        if folder.is_dir():
            return resume(folder, stop=self.stop)
        folder.parent.mkdir(parents=True, exist_ok=True)
        device = {key: getattr(self.args, key) for key in ("sim", "device", "devices") if getattr(self.args, key)}
        words = override_words(task, self.args.overrides, None, {**device, **settings})
        return evaluate(task, dict(candidates), overrides=words, output_dir=folder, stop=self.stop)


def evaluations(result: RunResult, about: Record) -> list[Record]:
    """Return a record for each evaluation of a run; a fitness that is missing is None."""
    folder = RunFolder(result.folder)
    if not folder.points.is_file():
        return []
    rows: dict[int, dict[str, dict[int, float]]] = {}
    steps: dict[int, int] = {}
    for point in read_points(folder.points):
        rows.setdefault(point.iteration, {}).setdefault(point.candidate, {})[point.seed] = point.fitness
        steps[point.iteration] = point.env_steps
    seeds = range(about["first_seed"], about["first_seed"] + about["seeds"])
    names = list(dict.fromkeys(name for by_name in rows.values() for name in by_name))
    cfg, _ = folder.read()
    failed = {name: error.splitlines()[0] for name, error in result.failed.items()}
    facts = {"complete": result.complete, "failed": failed, "wall_time": result.summary.get("wall_time")}
    facts.update(records.describe(cfg.device))
    return [
        {
            **about, "iteration": iteration, "env_steps": steps[iteration], "last": iteration == max(rows),
            "fitness": {
                name: [_number(rows[iteration].get(name, {}).get(seed)) for seed in seeds] for name in names
            }, **facts,
        }
        for iteration in sorted(rows)
    ]  # fmt: skip


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
