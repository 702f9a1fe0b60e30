"""eval_shapers.py as a user meets it: from the command to the first iteration, and a run to its end."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from argparse import Namespace
from pathlib import Path
from typing import Iterator

import psutil  # rl_games' own dependency
from tqdm import tqdm

from envcoder_bench.report.results import read_results

from . import records
from .candidates import write_candidates
from .records import Record
from .session import make_config, memory_gib

PROGRAM = Path(__file__).resolve().parents[2] / "envcoder_bench" / "eval_shapers.py"
ITERATION = re.compile(rb"iteration (\d+)/")
CHECKED = "config.yaml"  # a run writes it when all candidates are loaded and checked


def startup(args: Namespace) -> Iterator[Record]:
    """Time the command until its first iteration is done, and end it there."""
    yield _record(args, iterations=1000, to_the_end=False)


def run(args: Namespace) -> Iterator[Record]:
    """Time a whole run, evaluations included."""
    yield _record(args, args.iterations, to_the_end=True)


def _record(args: Namespace, iterations: int, to_the_end: bool) -> Record:
    cfg = make_config(args)
    size = {"candidates": args.candidates, "envs": args.envs}
    steps = args.candidates * args.envs * cfg.train.params.config.horizon_length * iterations
    with tempfile.TemporaryDirectory() as folder:
        write_candidates(Path(folder) / "candidates", args.candidates)
        out = Path(folder) / "run"
        command = [sys.executable, str(PROGRAM), "--task", "Anymal", "--no_baselines", "--output_dir", str(out)]
        command += ["--candidates", str(Path(folder) / "candidates"), "--num_envs_per_candidate", str(args.envs)]
        command += ["--learning_iterations", str(iterations), "--sim", cfg.sim, "--device", cfg.device]
        watched = watch([*command, *args.overrides], out, iterations, to_the_end, cfg.device)
        record = {"kind": "run" if to_the_end else "startup", **size, **watched}
        if to_the_end:
            failed = sum(result.failed for result in read_results(out / "results.csv"))
            record.update(iterations=iterations, env_steps=steps, failed=failed)
    return {**record, **records.describe(cfg.device)}


def watch(command: list[str], out: Path, iterations: int, to_the_end: bool, device: str) -> dict[str, float]:
    """Start a run on a terminal of its own and watch it.

    Returns the seconds until the candidates were checked, ``checked_s``, until the first iteration was done,
    ``first_iteration_s``, and of all, ``seconds``; and the most memory that it took, ``memory_gib``, looked at every
    second: of the GPU, else main memory. Ends the program with the run's own last words if it fails.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 120))  # a bar without columns would not be drawn
    before = 0.0 if device == "cpu" else memory_gib(device)  # of the GPU, what this process takes included
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen: dict[str, float] = {"memory_gib": 0.0}
    look_at = 0.0
    said = b""
    with tqdm(total=iterations, desc="eval_shapers.py", unit=" iterations", leave=False, disable=None) as bar:
        try:
            while True:
                text = _read(master)
                passed = time.monotonic() - began
                said = (said + (text or b""))[-4000:]
                if "checked_s" not in seen and (out / CHECKED).exists():
                    seen["checked_s"] = passed
                if passed >= look_at:
                    look_at = passed + 1.0
                    taken = resident_gib(child.pid) if device == "cpu" else memory_gib(device) - before
                    seen["memory_gib"] = max(seen["memory_gib"], taken)
                found = ITERATION.findall(said)
                done = int(found[-1]) if found else 0
                bar.update(done - bar.n)
                if done and "first_iteration_s" not in seen:
                    seen["first_iteration_s"] = passed
                if text is None or (done and not to_the_end):
                    break
        finally:
            if not to_the_end or sys.exc_info()[0] is not None:
                child.kill()
            code = child.wait()
            os.close(master)
    if "first_iteration_s" not in seen or (to_the_end and code):
        raise SystemExit(f"the run failed:\n{said.decode(errors='replace')}")
    return {**seen, "seconds": time.monotonic() - began}


def _read(master: int) -> bytes | None:
    """What the run has written; None once it has ended."""
    if not select.select([master], [], [], 0.02)[0]:
        return b""
    try:
        return os.read(master, 65536) or None
    except OSError:  # the other end is closed
        return None


def resident_gib(pid: int) -> float:
    """Main memory of a process; 0 once it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss / 2**30
    except psutil.Error:
        return 0.0
