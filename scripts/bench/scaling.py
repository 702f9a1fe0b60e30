"""The speed of training and of bare physics in the same environments, and of bare physics alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Iterator

import torch
from tqdm import tqdm

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.inputs import read_candidates
from envcoder_bench.run.plan import release
from envcoder_bench.run.prepare import prepare
from envcoder_bench.run.run_files import baseline_sources
from envcoder_bench.run.run_task import build_task
from envcoder_bench.tasks.base import UNSHAPED
from envcoder_bench.tasks.registry import task_names
from envcoder_bench.tasks.sim_task import SimTask

from . import records
from .candidates import make_candidates
from .dispatch import time_functions
from .records import Record
from .session import Session, anymal_physics_rate, make_config, memory_gib, physics_rate, process_age
from .settings import Physics, describe_physics, engine_model, with_physics

USER_FUNCTIONS = Path(__file__).resolve().parents[2] / "user_functions"


def physics(args: Namespace) -> Iterator[Record]:
    """Measure the simulation alone, of each task, for each number of environments, under the unshaped actions."""
    for task in args.tasks or task_names():
        for envs in args.envs:
            for setting in args.physics or [Physics()]:
                yield _bare(with_physics(Namespace(**{**vars(args), "task": task}), setting), envs)


def _bare(args: Namespace, envs: int) -> Record:
    cfg = make_config(args, num_envs_per_candidate=min(envs, 256))
    groups, failed = prepare(cfg, [b for b in baseline_sources(args.task) if b.name == UNSHAPED])
    if failed:
        sys.exit(f"{args.task}: {failed[UNSHAPED]}")
    env = GroupedVecTask(build_task(cfg, envs), GroupLayout(1, envs), [groups[0].shaping], [cfg.seed])
    env.reset()
    actions = 2.0 * torch.rand(8, *env.actions.shape, device=env.device) - 1.0
    commands = [env.dispatch.command(action, 0).clone() for action in actions]
    rate = physics_rate(env.task, commands, env.reset, 2 * cfg.train.params.config.horizon_length)
    about = {"task": args.task, "sim": cfg.sim, "envs": envs, "control_s": env.task.dt}
    if isinstance(env.task, SimTask):  # others bring their own simulation
        about.update(describe_physics(cfg.task, engine_model(cfg.task)))
    del env
    release(cfg.device)
    return {"kind": "physics", **about, "physics": rate, **records.describe(cfg.device)}


def scaling(args: Namespace) -> Iterator[Record]:
    """Measure training for each number of candidates in a separate process, so that memory is measured separately."""
    if len(args.candidates) == 1:
        yield from (_one if args.task == "Anymal" else _shipped)(args, args.candidates[0])
        return
    for count in args.candidates:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "records.jsonl"
            command = [sys.executable, sys.argv[0], "scaling", "--task", args.task, "--candidates", str(count)]
            command += ["--envs", str(args.envs)]
            command += ["--iterations", str(args.iterations), "--warmup", str(args.warmup), "--out", str(out)]
            command += ["--sim", args.sim, "--device", args.device, *(["--dispatch"] if args.dispatch else [])]
            if subprocess.run([*command, *args.overrides], stdout=subprocess.DEVNULL, check=False).returncode:
                print(f"{count} candidates x {args.envs} failed, see above; the others go on", file=sys.stderr)
            for record in records.read(out):
                yield {**record, "command": records.command_line()}


def _shipped(args: Namespace, count: int) -> Iterator[Record]:
    """Measure training of another task than ANYmal: its shipped candidates, with as many seeds as make ``count``."""
    candidates = read_candidates(args.task, [USER_FUNCTIONS / args.task])
    session = Session.build(args, candidates, args.envs, seeds=max(1, round(count / len(candidates))))
    seconds, _ = _train(args, session)
    env, horizon = session.env, session.cfg.train.params.config.horizon_length
    memory = memory_gib(session.cfg.device)
    commands = [env.dispatch.command(2.0 * torch.rand_like(env.actions) - 1.0, 0).clone() for _ in range(8)]
    yield {
        "kind": "task_scaling",
        "task": args.task,
        "candidates": len(session.groups),
        "envs": args.envs,
        "training": session.steps_per_iteration / seconds,
        "physics": physics_rate(env.task, commands, env.reset, 2 * horizon),
        "memory_gib": memory,
        **records.describe(session.cfg.device),
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


def _one(args: Namespace, count: int) -> Iterator[Record]:
    session = Session.build(args, make_candidates(count), args.envs)
    seconds, startup = _train(args, session)
    device, horizon = session.cfg.device, session.cfg.train.params.config.horizon_length
    about = records.describe(device)
    size = {"candidates": count, "envs": args.envs}
    memory = memory_gib(device)
    timed = {"kind": "dispatch", **size, **time_functions(session), **about} if args.dispatch else None
    yield {
        "kind": "scaling",
        **size,
        "training": session.steps_per_iteration / seconds,
        "physics": anymal_physics_rate(session.env.task, 2 * horizon),
        "memory_gib": memory,
        "startup_s": startup,
        **about,
    }
    if timed is not None:
        yield timed
