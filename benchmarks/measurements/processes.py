"""The speed of one process per candidate: several processes at once, each training one candidate with this tool."""

import multiprocessing
import queue
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from bench import records
from bench.candidates import make_candidates
from bench.records import Record
from bench.session import Session
from tqdm import tqdm

START_SECONDS = 300  # limit for loading and compiling


def processes(args: Namespace) -> Iterator[Record]:
    """Measure each number of processes; measurements with a failed process have no record."""
    for count in args.processes:
        yield _measure(args, count)


def _measure(args: Namespace, count: int) -> Record:
    """Warm up all processes, train for the same seconds at once, and sum their env-steps/s."""
    context = multiprocessing.get_context("spawn")  # forks cannot use CUDA
    barrier, messages = context.Barrier(count), context.Queue()
    workers = [context.Process(target=_train, args=(args, k, barrier, messages)) for k in range(count)]
    for worker in workers:
        worker.start()
    rates: list[float] = []
    about: Record = {}
    deadline = time.monotonic() + START_SECONDS + args.seconds + 60
    try:
        with tqdm(total=2 * count, desc=f"{count} processes: warm, done", leave=False, disable=None) as bar:
            while len(rates) < count:
                try:
                    what, value = messages.get(timeout=1)
                except queue.Empty:
                    dead = any(worker.exitcode not in (None, 0) for worker in workers)
                    if dead or time.monotonic() > deadline:
                        raise SystemExit(f"a process of {count} failed") from None
                    continue
                if what == "rate":
                    rates.append(value)
                about = value if what == "about" else about
                bar.update()
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return {"kind": "processes", "processes": count, "envs": args.envs, "each": rates, "total": sum(rates), **about}


def _train(args: Namespace, index: int, barrier: Any, messages: Any) -> None:
    """Train the ``index``-th candidate alone, in this process."""
    session = Session.build(args, [make_candidates(index + 1)[index]], args.envs)
    for _ in range(args.warmup):
        session.iterate()
    messages.put(("about", records.describe(session.cfg.device)))
    barrier.wait(START_SECONDS)
    seconds, iterations = 0.0, 0
    while seconds < args.seconds:
        seconds += session.iterate()
        iterations += 1
    session.check()
    messages.put(("rate", iterations * session.steps_per_iteration / seconds))
