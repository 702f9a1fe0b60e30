"""Processes that fill the caches of a first run: they check and trace its candidates, and compile their kernels.

Meanwhile the run's own process compiles the simulator's kernels, and checks the candidates on the GPU. It finds the
programs and kernels in the caches, and waits for the kernels that are still being compiled. Results do not change: a
cache gives what the run would have made itself.

The processes have states of the simulator on the CPU: programs do not depend on the numbers of a state, and the run
checks its candidates on a state from there, too.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from envcoder_bench.compile.cache import code_digest
from envcoder_bench.compile.helper_process import end_with_parent, start_helper
from envcoder_bench.core.files import digest
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.tasks.spec import Can
from mujoco_batches.process import usable_cpus

CPUS_EACH, MOST = 3, 5  # usable cores per process, and most processes
FEWEST_EACH = 8  # candidates per process: it takes seconds to start


class Order(NamedTuple):
    """What the processes do.

    Attributes:
        target: of the kernels, as ``warp_kernel.target`` gives it.
        done: a file that is made at the end.
    """

    cfg: RunConfig
    sources: list[CandidateSource]
    fitness: CandidateSource | None
    target: str
    done: Path


def start(spec: RunSpec) -> contextlib.ExitStack:
    """Start the processes, unless others have done the same work before; closing the result ends them."""
    cfg, sources, fitness = spec.config, spec.sources, spec.fitness
    stack = contextlib.ExitStack()
    parts = min(MOST, usable_cpus() // CPUS_EACH, -(-len(sources) // FEWEST_EACH))
    if parts > 0 and is_useful(spec):
        from envcoder_bench.compile import warp_kernel

        done = _mark(warp_kernel.kernel_folder(), cfg, sources, fitness)
        order = Order(cfg, list(sources), fitness, warp_kernel.target(cfg.device), done)
        for part in range(0 if done.exists() else parts):
            stack.callback(_end, launch(order, part, parts))
    return stack


def is_useful(spec: RunSpec) -> bool:
    """Return whether a run compiles kernels of all its candidates together, beside those of a simulator on a GPU.

    A task that cannot be built ahead has a simulation of its own, which each process would have to build on the CPU.
    """
    cfg = spec.config
    apart = cfg.untrusted or cfg.isolate or cfg.deterministic  # other code, one by one, in another order
    apart = apart or Can.COMPILE_AHEAD not in spec.task.can
    return cfg.sim == "mujoco_warp" and cfg.device != "cpu" and cfg.compile_shapers and not apart


def launch(order: Order, part: int, parts: int) -> subprocess.Popen:
    """Start a process: the first one prepares all candidates and compiles, the others share the work before it."""
    with tempfile.TemporaryFile() as file:  # a pipe would make this process wait until the other one reads it
        pickle.dump((order, part, parts, os.getpid()), file)
        file.seek(0)
        return start_helper(main, file)  # without output: the run itself finds the same faults, and says so


def _mark(folder: Path, cfg: RunConfig, sources: Sequence[CandidateSource], fitness: CandidateSource | None) -> Path:
    """Return the file that says that this work is done; it is in the folder of the kernels, to be emptied with them."""
    texts = [(source.name, source.source) for source in (*sources, *([] if fitness is None else [fitness]))]
    key = repr((code_digest(), to_yaml(cfg.plain()), texts))
    return folder / "ahead" / digest(key)[:32]


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def main() -> None:
    """Do a part of the work; the parent ends this process earlier if its run ends."""
    end_with_parent()
    if hasattr(os, "nice"):
        os.nice(5)  # the parent's own work first
    order, part, parts, parent = pickle.load(sys.stdin.buffer)
    if os.getppid() != parent:
        return  # it was killed while this process started
    fill_caches(order, part, parts)
    if part == 0:
        order.done.parent.mkdir(parents=True, exist_ok=True)
        order.done.touch()


def fill_caches(order: Order, part: int, parts: int) -> None:
    """Check and trace the candidates, and compile the kernels of their training and evaluation.

    Other parts than the first one only check and trace their share of the candidates. They take them in the same order,
    so that the first one, beginning with all of them at the same time, soon finds the others' programs in the cache.

    This process can launch no kernels afterwards.
    """
    import torch

    from envcoder_bench.compile import native
    from envcoder_bench.run.prepare.environments import build_env
    from envcoder_bench.run.prepare.groups import prepare

    torch.set_num_threads(1)
    native.FOR_TARGET = order.target
    # checked on the CPU: a GPU's kernels are compiled, not run, here
    cfg = order.cfg.model_copy(update={"sim": "mujoco_cpu", "device": "cpu"})
    sources = order.sources if part == 0 else share(order.sources, part - 1, parts - 1)
    spec = RunSpec.of(cfg, sources, order.fitness)
    groups, _ = prepare(spec)
    if part > 0:
        return
    seeds = [group.seed for group in groups]
    for shapings in ([group.shaping for group in groups], [group.evaluation for group in groups]):
        build_env(spec, shapings, seeds, 1)


def share(sources: Sequence[CandidateSource], part: int, parts: int) -> list[CandidateSource]:
    """Return every so many-th source, another one in each row: every fourth candidate may be the slow one."""
    return [source for k, source in enumerate(sources) if (k + k // parts) % parts == part]
