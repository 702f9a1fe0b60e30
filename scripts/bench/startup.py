"""A run from the program's start: to its first iteration, or to its end."""

import contextlib
import io
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tqdm import tqdm

from envcoder_bench import evaluate
from envcoder_bench.cli.console import conclude
from envcoder_bench.core.profiling import COMPARISON, EVALUATION, RESULTS, HostClock, Profiler, Timeline
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.video.page import page_videos

from . import records
from .candidates import write_candidates
from .records import Record
from .session import make_spec, memory_gib, process_age


def startup(args: Namespace) -> Iterator[Record]:
    """Time this program from its start to the end of the first iteration of a run."""
    yield _record(args, iterations=1000, to_the_end=False)


def run(args: Namespace) -> Iterator[Record]:
    """Time a whole run: to the end of eval-shapers, with evaluations, page and videos."""
    yield _record(args, args.iterations, to_the_end=True)


class _Phases(Timeline):
    """The host's time in what a run does besides training; it waits for the device in each of these."""

    NAMES = COMPARISON, EVALUATION, RESULTS

    def enter(self, name: str, whole: bool = False) -> None:
        super().enter(name if name in self.NAMES else self._stack[-1][0])

    def seconds(self) -> dict[str, float]:
        times = self.times()[0]
        return {name: times.get(name, 0.0) for name in self.NAMES}


class _Watch(Reporter):
    """Records the times of events, in seconds since the program's start, and peak memory."""

    def __init__(self, device: str, iterations: int, stop: StopRequest | None, phases: _Phases) -> None:
        self.seen: dict[str, float] = {"memory_gib": 0.0}
        self.before: dict[str, float] = {}  # seconds of each phase until the end of the first iteration
        self._phases = phases
        self._device, self._stop, self._looked = device, stop, 0.0
        self._bar = tqdm(total=iterations, desc="training", unit=" iterations", leave=False, disable=None)

    def run_began(self, folder: Path) -> None:
        self.seen["checked_s"] = process_age()

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        self.seen["last_iteration_s"] = process_age()
        if "first_iteration_s" not in self.seen:
            self.seen["first_iteration_s"], self.before = self.seen["last_iteration_s"], self._phases.seconds()
        if time.monotonic() > self._looked + 1.0:
            self._looked = time.monotonic()
            self.seen["memory_gib"] = max(self.seen["memory_gib"], memory_gib(self._device))
        self._bar.update(iteration - self._bar.n)
        if self._stop is not None:
            self._stop()

    def wave_ended(self) -> None:
        self._bar.close()


def _record(args: Namespace, iterations: int, to_the_end: bool) -> Record:
    cfg = make_spec(args).config
    size = {"candidates": args.candidates, "envs": args.envs}
    stop = StopRequest()
    phases = _Phases([HostClock()])
    watch = _Watch(cfg.device, iterations, None if to_the_end else stop, phases)
    settings = {"learning_iterations": iterations, "num_envs_per_candidate": args.envs, "seeds": 1}
    with TemporaryDirectory() as folder, Profiler(phases, torch.device("cpu")):
        candidates, out = Path(folder) / "candidates", Path(folder) / "run"
        write_candidates(candidates, args.candidates)
        result = evaluate(
            "Anymal", [candidates], overrides=args.overrides, output_dir=out, reporter=watch, stop=stop,
            sim=cfg.sim, device=cfg.device, baselines=False, **settings,
        )  # fmt: skip
        record = {"kind": "run" if to_the_end else "startup", **size, **watch.seen, "seconds": process_age()}
        if to_the_end:
            with contextlib.redirect_stdout(io.StringIO()):
                conclude(result, None)
            record["seconds"] = process_age()
            record["after_last_iteration_s"] = record["seconds"] - record["last_iteration_s"]
            record["videos"] = len(page_videos(result.folder))
            failed = sum(status != "ok" for status in result.results["status"])
            steps = args.candidates * args.envs * cfg.train.params.config.horizon_length * iterations
            phase_s = {name: seconds - watch.before[name] for name, seconds in phases.seconds().items()}
            record.update(iterations=iterations, env_steps=steps, failed=failed, phase_s=phase_s)
    return {**record, **records.describe(cfg.device)}
