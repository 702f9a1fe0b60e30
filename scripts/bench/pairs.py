"""Two tasks trained in turns in one process, so that other work on the machine slows both alike."""

from __future__ import annotations

import time
from argparse import Namespace
from statistics import median
from typing import Iterator

from . import records
from .records import Record
from .session import Session, find_sources


def pairs(args: Namespace) -> Iterator[Record]:
    """Train both tasks, an iteration of each in turn; time them by the processor time of all threads."""
    sessions = []
    for task in args.tasks:
        own = Namespace(**{**vars(args), "task": task})
        sessions.append(Session.build(own, find_sources(task, ["human"]), args.envs, seeds=args.seeds))
    seconds: list[list[float]] = [[] for _ in sessions]
    for k in range(args.warmup + args.iterations):
        for session, own in zip(sessions, seconds):
            began = time.process_time()
            session.iterate()
            if k >= args.warmup:
                own.append((time.process_time() - began) / session.steps_per_iteration)
    for session in sessions:
        session.check()
    rates = [1.0 / median(own) for own in seconds]
    yield {
        "kind": "pairs",
        "task": args.tasks[0],
        "against": args.tasks[1],
        "envs": args.envs,
        "seeds": args.seeds,
        "rates": rates,
        "ratio": rates[0] / rates[1],
        **records.describe(sessions[0].cfg.device),
    }
