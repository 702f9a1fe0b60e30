"""The speed of training, and of bare physics in the same environments."""

import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from tqdm import tqdm

from envcoder_bench.run.inputs import read_candidates

from . import records
from .candidates import make_candidates
from .records import Record
from .session import Session, anymal_physics_rate, memory_gib, physics_rate, process_age

USER_FUNCTIONS = Path(__file__).resolve().parents[2] / "user_functions"


def scaling(args: Namespace) -> Iterator[Record]:
    """Measure training for each number of candidates in a separate process, so that memory is measured separately."""
    if len(args.candidates) == 1:
        yield _measured(args, args.candidates[0])
        return
    for count in args.candidates:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "records.jsonl"
            command = [sys.executable, sys.argv[0], "scaling", "--task", args.task, "--candidates", str(count)]
            command += ["--envs", str(args.envs)]
            command += ["--iterations", str(args.iterations), "--warmup", str(args.warmup), "--out", str(out)]
            command += ["--sim", args.sim, "--device", args.device]
            if subprocess.run([*command, *args.overrides], stdout=subprocess.DEVNULL, check=False).returncode:
                print(f"{count} candidates x {args.envs} failed, see above; the others go on", file=sys.stderr)
            for record in records.read(out):
                yield {**record, "command": records.command_line()}


def _measured(args: Namespace, count: int) -> Record:
    """Measure training: of ANYmal's candidates, or of a task's shipped ones, with as many seeds as make ``count``."""
    anymal = args.task == "Anymal"
    candidates = make_candidates(count) if anymal else read_candidates(args.task, [USER_FUNCTIONS / args.task])
    session = Session.build(args, candidates, args.envs, seeds=max(1, round(count / len(candidates))))
    seconds, startup = _train(args, session)
    env, device, horizon = session.env, session.cfg.device, session.cfg.train.params.config.horizon_length
    memory = memory_gib(device)
    if anymal:
        physics = anymal_physics_rate(env.task, 2 * horizon)
    else:
        commands = [env.dispatch.command(2.0 * torch.rand_like(env.actions) - 1.0, 0).clone() for _ in range(8)]
        physics = physics_rate(env.task, commands, env.reset, 2 * horizon)
    return {
        **({"kind": "scaling"} if anymal else {"kind": "task_scaling", "task": args.task}),
        "candidates": len(session.groups),
        "envs": args.envs,
        "training": session.steps_per_iteration / seconds,
        "physics": physics,
        "memory_gib": memory,
        **({"startup_s": startup} if anymal else {}),
        **records.describe(device),
    }


def _train(args: Namespace, session: Session) -> tuple[float, float]:
    """Return the median seconds of an iteration, and the program's age after the first one."""
    seconds: list[float] = []
    startup = 0.0
    bar = f"{len(session.groups)} x {args.envs}"
    for _ in tqdm(range(args.warmup + args.iterations), bar, unit=" iterations", leave=False, disable=None):
        seconds.append(session.iterate())
        startup = startup or process_age()
    session.check()
    return median(seconds[args.warmup :]), startup
