"""A run on several devices, beside one: speed, start, memory of the head, and how equal the results are."""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from bench import records
from bench.candidates import write_candidates
from bench.records import Record
from bench.session import memory_gib

from envcoder_bench import evaluate
from envcoder_bench.results.statistics import spearman
from envcoder_bench.run.hooks import Reporter
from envcoder_bench.run.result import RunResult

SHARE = 0.5  # the speed is that of the fastest stretch with this share of all iterations


class _Progress(Reporter):
    """Records time, iterations and env-steps of all waves after each iteration."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int, int]] = []

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        self.seen.append((time.monotonic(), iteration, env_steps))

    def rate(self) -> float:
        """Return env-steps/s of the fastest stretch of SHARE of the iterations.

        In it all devices train: before, some may still compile, and at the end some are done.
        """
        length = SHARE * self.seen[-1][1]
        best, begin = 0.0, 0
        for now, iteration, env_steps in self.seen:
            while begin + 1 < len(self.seen) and iteration - self.seen[begin + 1][1] >= length:
                begin += 1
            since, first, before = self.seen[begin]
            if iteration - first >= length:
                best = max(best, (env_steps - before) / (now - since))
        return best


def devices(args: Namespace) -> Iterator[Record]:
    """Train the same candidates on each of ``--devices``, such as ``0`` and ``0,1,2,3``; compare with the first."""
    first: RunResult | None = None
    with TemporaryDirectory() as folder:
        candidate_folder = Path(folder) / "candidates"
        write_candidates(candidate_folder, args.candidates)
        for number, names in enumerate(args.devices):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak of resident memory, see proc(5)
            watch, began = _Progress(), time.monotonic()
            result = evaluate(
                "Anymal", [candidate_folder], overrides=args.overrides, output_dir=Path(folder) / f"run{number}",
                reporter=watch, devices=names, learning_iterations=args.iterations, num_envs_per_candidate=args.envs,
                baselines=False, seeds=1,
            )  # fmt: skip
            whole, rate = time.monotonic() - began, watch.rate()
            if not rate:
                raise SystemExit(f"--iterations {args.iterations} are too few to measure a speed: take more")
            device = names.split(",")[0]
            yield {
                "kind": "devices", "devices": names, "count": _count(names), "candidates": args.candidates,
                "envs": args.envs, "iterations": args.iterations, "training": rate, "seconds": whole,
                "first_iteration_s": watch.seen[0][0] - began, "head_gib": memory_gib("cpu"),
                "failed": sum(status != "ok" for status in result.results["status"]),
                **({} if first is None else _compare(first, result)),
                **records.describe("cpu" if device.startswith("cpu") else f"cuda:{device.rpartition(':')[2]}"),
            }  # fmt: skip
            first = first or result


def _count(names: str) -> int:
    """Return the number of devices in ``0,1`` or ``cpu:2``."""
    return int(names[4:]) if names.startswith("cpu:") else len(names.split(","))


def _compare(first: RunResult, second: RunResult) -> dict[str, Any]:
    """Return how equal two runs are: bitwise equal policies, and differences of the fitness of each candidate."""
    fitness = [{row.candidate: row.fitness for row in run.rows if row.measured} for run in (first, second)]
    differences = np.array([fitness[1][name] - value for name, value in fitness[0].items() if name in fitness[1]])
    equal = sum(_same_policy(path, second.policies[key]) for key, path in first.policies.items())
    return {
        "equal_policies": equal, "equal_fitness": int((differences == 0).sum()),
        "fitness_difference": float(differences.mean()), "fitness_difference_sd": float(differences.std(ddof=1)),
        "fitness_sd": float(np.std(list(fitness[0].values()), ddof=1)), "fitness_correlation": spearman(*fitness),
    }  # fmt: skip


def _same_policy(first: Path, second: Path) -> bool:
    a, b = (torch.load(path, map_location="cpu", weights_only=False)["model"] for path in (first, second))
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
