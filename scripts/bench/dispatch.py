"""The cost of candidate functions: batched by the dispatcher, or called in a loop on slices."""

from __future__ import annotations

from argparse import Namespace
from statistics import median
from typing import Any, Callable, Iterator

import torch
from tqdm import tqdm

from envcoder_bench.shaping.binding import bind
from envcoder_bench.shaping.state import StateDict

from . import records
from .candidates import make_candidates
from .records import Record
from .session import Session, now
from .tables import KINDS

ROUNDS, CALLS = 5, 4  # the median over rounds of calls back to back


def dispatch(args: Namespace) -> Iterator[Record]:
    """Time the candidate functions after some iterations of training, with everything compiled and captured."""
    session = Session.build(args, make_candidates(args.candidates), args.envs)
    for _ in tqdm(range(2), desc="warming up", unit=" iterations", leave=False, disable=None):
        session.iterate()
    size = {"candidates": args.candidates, "envs": args.envs}
    yield {"kind": "dispatch", **size, **time_functions(session), **records.describe(session.cfg.device)}


def time_functions(session: Session) -> dict[str, Any]:
    """Return the microseconds per call of a candidate's function by kind, ``batched`` and in a ``loop``.

    A step calls every kind, for all groups: initial state and goal too, as where all episodes begin anew (on CUDA
    every step does so, masked). A group's baseline fills in for what its candidate does not define.
    """
    env, groups = session.env, len(session.groups)
    every = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    step, run = env.step_count, env.dispatch
    batched: dict[str, Callable[[], object]] = {
        "action": lambda: run.command(env.actions, step),
        "reward": lambda: run.reward(step),
        "terminal": lambda: run.terminal(step),
        "initial_state": lambda: run.initial_state(every, step),
        "goal": lambda: run.goal(every, step),
        "observation": lambda: run.observation(step),
    }
    loops = _loops(session)
    result: dict[str, dict[str, float]] = {"batched_us": {}, "loop_us": {}}
    for kind in tqdm(KINDS, desc="candidate functions", unit=" kinds", leave=False, disable=None):
        result["batched_us"][kind] = _seconds(batched[kind], CALLS, env.device) / groups * 1e6
        result["loop_us"][kind] = _seconds(loops[kind], 1, env.device) / groups * 1e6
    session.check()
    return result


def _loops(session: Session) -> dict[str, Callable[[], None]]:
    """Return, for each kind, a call of all functions one after another, eagerly, on views of the live state."""
    env, task = session.env, session.env.task
    # single numbers stay on the CPU, where .item() is free; index tensors go to the device
    constants = {key: x if x.dim() == 0 else x.to(env.device) for key, x in task.constants.items()}
    calls: dict[str, list[Callable[[], object]]] = {kind: [] for kind in KINDS}
    for group, view in zip(session.groups, env.views):
        state = StateDict({**view, **constants})
        action = view["actions"].contiguous()
        for kind in KINDS:
            function = group.shaping.functions.get("command" if kind == "action" else kind)
            if function is not None:
                calls[kind].append(bind(function, state, action if kind == "action" else None))

    def loop(kind: str) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                for call in calls[kind]:
                    call()

        return run

    return {kind: loop(kind) for kind in KINDS}


def _seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Return the seconds of a call, after a warm-up call."""
    call()
    rounds: list[float] = []
    for _ in range(ROUNDS):
        began = now(device)
        for _ in range(calls):
            call()
        rounds.append((now(device) - began) / calls)
    return median(rounds)
