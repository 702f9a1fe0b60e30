"""Training from end to end against the bare physics of the same environments, in one run; and bare physics alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Iterator, List

from tqdm import tqdm

from envcoder_bench.preparation import build_task

from . import records
from .candidates import make_candidates
from .dispatch import time_functions
from .records import Record
from .session import Session, make_config, memory_gib, physics_rate, process_age


def physics(args: Namespace) -> Iterator[Record]:
    """Measure the simulation alone, for each number of environments."""
    for envs in args.envs:
        cfg = make_config(args)
        task = build_task(cfg, envs)
        rate = physics_rate(task, 2 * cfg.train.params.config.horizon_length)
        yield {"kind": "physics", "envs": envs, "physics": rate, **records.describe(cfg.device)}
        del task


def scaling(args: Namespace) -> Iterator[Record]:
    """Measure training for each number of candidates, each in a process of its own, so that memory is its own."""
    if len(args.candidates) == 1:
        yield from _one(args, args.candidates[0])
        return
    for count in args.candidates:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "records.jsonl"
            command = [sys.executable, sys.argv[0], "scaling", "--candidates", str(count), "--envs", str(args.envs)]
            command += ["--iterations", str(args.iterations), "--warmup", str(args.warmup), "--out", str(out)]
            command += ["--sim", args.sim, "--device", args.device, *(["--dispatch"] if args.dispatch else [])]
            if subprocess.run([*command, *args.overrides], stdout=subprocess.DEVNULL, check=False).returncode:
                print(f"{count} candidates x {args.envs} failed, see above; the others go on", file=sys.stderr)
            for record in records.read(out):
                yield {**record, "command": records.command_line()}


def _one(args: Namespace, count: int) -> Iterator[Record]:
    session = Session.build(args, make_candidates(count), args.envs)
    seconds: List[float] = []
    startup = 0.0
    for _ in tqdm(
        range(args.warmup + args.iterations),
        desc=f"{count} x {args.envs}",
        unit=" iterations",
        leave=False,
        disable=None,
    ):
        seconds.append(session.iterate())
        startup = startup or process_age()
    session.check()
    device, horizon = session.cfg.device, session.cfg.train.params.config.horizon_length
    about = records.describe(device)
    size = {"candidates": count, "envs": args.envs}
    memory = memory_gib(device)
    timed = {"kind": "dispatch", **size, **time_functions(session), **about} if args.dispatch else None
    yield {
        "kind": "scaling",
        **size,
        "training": session.steps_per_iteration / median(seconds[args.warmup :]),
        "physics": physics_rate(session.env.task, 2 * horizon),
        "memory_gib": memory,
        "startup_s": startup,
        **about,
    }
    if timed is not None:
        yield timed
