"""The speed of a run on several devices, beside one."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Iterator

from envcoder_bench import evaluate
from envcoder_bench.run.hooks import Reporter

from . import records
from .candidates import write_candidates
from .records import Record

SHARE = 0.5  # of all iterations: the speed is that of the fastest stretch of so many


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
    """Train the same candidates on each of ``--devices``, such as ``0`` and ``0,1,2,3``."""
    with TemporaryDirectory() as folder:
        given = Path(folder) / "candidates"
        write_candidates(given, args.candidates)
        for number, names in enumerate(args.devices):
            watch, began = _Progress(), time.monotonic()
            result = evaluate(
                "Anymal", [given], overrides=args.overrides, output_dir=Path(folder) / f"run{number}", reporter=watch,
                devices=names, learning_iterations=args.iterations, num_envs_per_candidate=args.envs, baselines=False,
                seeds=1,
            )  # fmt: skip
            whole, rate = time.monotonic() - began, watch.rate()
            if not rate:
                raise SystemExit(f"--iterations {args.iterations} are too few to measure a speed: take more")
            first = names.split(",")[0]
            yield {
                "kind": "devices", "devices": names, "count": _count(names), "candidates": args.candidates,
                "envs": args.envs, "iterations": args.iterations, "training": rate, "seconds": whole,
                "first_iteration_s": watch.seen[0][0] - began,
                "failed": sum(status != "ok" for status in result.results["status"]),
                **records.describe("cpu" if first.startswith("cpu") else f"cuda:{first.rpartition(':')[2]}"),
            }  # fmt: skip


def _count(names: str) -> int:
    """Return the number of devices in ``0,1`` or ``cpu:2``."""
    return int(names[4:]) if names.startswith("cpu:") else len(names.split(","))
