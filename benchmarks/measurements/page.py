"""From the last iteration to the prompt: results, pictures, ranking and page of a run with made-up numbers."""

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench import records
from bench.candidates import make_candidates
from bench.records import Record
from bench.session import make_spec

from envcoder_bench.report.logs import SCALARS, Point, RunLogs
from envcoder_bench.report.results import Result
from envcoder_bench.run.folder.checkpoint import Checkpoint
from envcoder_bench.run.folder.results import finish
from envcoder_bench.run.folder.run_folder import CandidateSource, RunFolder
from envcoder_bench.run.folder.tracking import finish_tracking
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.result import finished
from envcoder_bench.run.train.rungs import evaluation_iterations
from envcoder_bench.video.page import write_page

COMPONENTS = 8
LIBRARIES = ("pandas", "numpy", "matplotlib", "scipy", "torch", "mujoco")


def page(args: Namespace) -> Iterator[Record]:
    """Time what follows the last iteration, without policies and videos: no training is needed for it."""
    size = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations, "seeds": args.seeds}
    spec = make_spec(args, **size)
    cfg, sources = spec.config, [*baseline_sources(spec.task), *make_candidates(args.candidates)]
    spec = replace(spec, sources=tuple(sources))
    with TemporaryDirectory() as parent:
        folder = RunFolder.create(Path(parent) / "run", spec)
        rows = write_logs(folder, cfg, sources)
        seconds: dict[str, float] = {}
        processor = time.process_time()
        for name, part in (
            ("results", lambda: finish(folder, spec, Checkpoint(rows), 0)),
            ("tensorboard", lambda: finish_tracking(folder, cfg, sources, rows, None)),
            ("table", lambda: finished(folder, cfg, True).table()),
            ("page", lambda: write_page(folder.path, 0)),
        ):
            began = time.perf_counter()
            part()
            seconds[name] = time.perf_counter() - began
        processor = time.process_time() - processor
        size_of_logs = folder.curves.stat().st_size + folder.components.stat().st_size
    yield {
        "kind": "page", "candidates": args.candidates, "seeds": args.seeds, "iterations": args.iterations,
        "csv_mib": size_of_logs / 2**20, "part_s": seconds, "processor_s": processor,
        "after_last_iteration_s": sum(seconds.values()),
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES), **records.describe(cfg.device),
    }  # fmt: skip


def write_logs(folder: RunFolder, cfg: Any, sources: list[CandidateSource]) -> list[Result]:
    """Write the logs of a run as a session does, with random numbers; return the rows of its results."""
    rng = np.random.default_rng(0)
    last, steps = cfg.learning_iterations, cfg.num_envs_per_candidate * cfg.train.params.config.horizon_length
    evaluated = evaluation_iterations(last, cfg.evaluation.points)
    groups = [(source.name, cfg.seed + k) for source in sources for k in range(cfg.seeds)]
    logs = RunLogs.begin(folder.path)
    results = []
    for iteration in sorted(evaluation_iterations(last, cfg.log_points) | evaluated):
        for name, seed in groups:
            when = (iteration, iteration * steps)
            fitness, *others = rng.random(len(SCALARS)).tolist()
            row: dict[str, float | None] = dict(zip(SCALARS, [fitness if iteration in evaluated else None, *others]))
            parts = {f"part {k}": value for k, value in enumerate(rng.normal(size=COMPONENTS))}
            logs.curves.add(*when, name, seed, row)
            logs.components.add(*when, name, seed, parts)
            logs.scalars.add(name, seed, when[1], {**row, **{f"reward/{key}": x for key, x in parts.items()}})
            if iteration in evaluated:
                spread = {key: (x, x - 1, x + 1) for key, x in {"total reward": fitness, **parts}.items()}
                logs.points.add(Point(name, seed, *when, fitness, 900.0, spread, others[0]))
            if iteration == last:
                episodes = rng.random(cfg.evaluation.final_episodes)
                logs.episodes.add(*when, name, seed, episodes.tolist())
                mean = float(episodes.mean())
                ends = {"fitness_ci_low": mean - 0.1, "fitness_ci_high": mean + 0.1, "episodes": len(episodes)}
                results.append(Result(name, seed, fitness=mean, episode_length=900.0, env_steps=when[1], **ends))
    logs.close()
    return results
