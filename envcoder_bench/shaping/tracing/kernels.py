"""Many traced functions as a few kernels, compiled by Warp for the CPU or CUDA and kept in its cache on disk.

One kernel holds up to sixteen different programs and runs each of them for the environments of all groups that have
it. Constants are data, so a file whose numbers change is not compiled again, and candidates that differ in numbers
alone share their code.
"""
from __future__ import annotations

import importlib
import importlib.util
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench.shaping.tracing.program import KINDS
from envcoder_bench.shaping.tracing.source import C_TYPES, Source

PROGRAMS_PER_KERNEL = 16  # fewer are more launches, more are compiled again when one of them changes

# table T: n, pointers to the slots, the constants, the active groups and the step; then pointer and row stride of every
# tensor. A slot is one group's program: which case, group, first constant, seed.
_FIXED = 5
_HEADER = """
const long long* T = (const long long*)table.data;
const int n = (int)T[0];
const long long* slot = (const long long*)T[1] + 4 * (tid / n);
const long long lane = tid % n, group = slot[1], seed = slot[3], row = group * n + lane;
const double* c = (const double*)T[2] + slot[2];
const long long step = *(const long long*)T[4];
if (((const unsigned char*)T[3])[group]) switch (slot[0]) {
"""


class Job(NamedTuple):
    """One group's program, and the seed of its random numbers."""

    group: int
    seed: int
    source: Source


class Memory(NamedTuple):
    """What the kernels of a stage read and write; the tensors stay where they are.

    Attributes:
        state: ``(num_envs, ...)`` tensors by name.
        outputs: ``(num_envs, ...)`` tensors by name.
        counts: ``(num_groups, 1 + most components, 3, n)``, of the reward and its components.
        active: ``(num_groups,)`` uint8, groups to run.
        step: 0-d int64.
    """

    state: Dict[str, Tensor]
    outputs: Dict[str, Tensor]
    counts: Tensor
    active: Tensor
    step: Tensor


def available() -> bool:
    """Whether Warp is installed, which compiles the kernels."""
    return importlib.util.find_spec("warp") is not None


def launches(stages: Sequence[Tuple[Sequence[Job], Memory]], n: int) -> List[List[Callable[[], None]]]:
    """Compile every stage's programs, groups of n environments, into functions that each launch one kernel.

    Those of one stage may be called in any order, side by side, and captured in a CUDA graph.
    """
    native: Any = importlib.import_module("envcoder_bench.shaping.tracing.native")
    plans = []
    for jobs, memory in stages:
        by_code: Dict[Tuple[Any, ...], List[Job]] = {}
        for job in jobs:
            by_code.setdefault((job.source.code, job.source.state), []).append(job)
        programs = list(by_code.values())
        chunks = [programs[i : i + PROGRAMS_PER_KERNEL] for i in range(0, len(programs), PROGRAMS_PER_KERNEL)]
        plans.append([(native.make_kernel(_code(chunk, memory)), chunk) for chunk in chunks])
    native.load([kernel for plan in plans for kernel, _ in plan], stages[0][1].step.device)
    return [
        [_launch(native, kernel, chunk, memory, n) for kernel, chunk in plan]
        for plan, (_, memory) in zip(plans, stages)
    ]


def _rows(memory: Memory) -> Dict[str, Tensor]:
    """Every tensor that a program may name, by its name in the code, in an order that does not depend on the run."""
    state = {f"S_{name}": memory.state[name] for name in sorted(memory.state)}
    return {**state, **{f"O_{name}": x for name, x in memory.outputs.items()}, "O_counts": memory.counts}


def _code(chunk: List[List[Job]], memory: Memory) -> str:
    cases = [f"case {i}: {{\n{_body(jobs[0].source, memory)}\n}} break;" for i, jobs in enumerate(chunk)]
    return _HEADER + "\n".join(cases) + "\n}\n"


def _body(source: Source, memory: Memory) -> str:
    read = {f"S_{name}" for name, _ in source.state}
    lines = []
    for i, (name, x) in enumerate(_rows(memory).items()):
        pointer, stride = f"T[{_FIXED + 2 * i}]", f"T[{_FIXED + 2 * i + 1}]"
        kind = C_TYPES[KINDS[x.dtype]]
        if name in read:
            lines.append(f"const {kind}* {name} = (const {kind}*){pointer} + row * {stride};")
        elif name == "O_counts":
            lines.append(f"{kind}* {name} = ({kind}*){pointer} + group * {stride} + lane;")
        elif name.startswith("O_"):
            lines.append(f"{kind}* {name} = ({kind}*){pointer} + row * {stride};")
    return "\n".join([*lines, source.code])


def _launch(native: Any, kernel: Any, chunk: List[List[Job]], memory: Memory, n: int) -> Callable[[], None]:
    constants: List[float] = []
    slots: List[List[int]] = []
    for case, jobs in enumerate(chunk):
        for job in jobs:
            slots.append([case, job.group, len(constants), job.seed])
            constants += job.source.constants
    device = memory.step.device
    slot_table = torch.tensor(slots, dtype=torch.int64, device=device)
    constant_table = torch.tensor(constants or [0.0], dtype=torch.float64, device=device)
    fixed = [x.data_ptr() for x in (slot_table, constant_table, memory.active, memory.step)]
    rows = list(_rows(memory).values())
    numbers = [n, *fixed, *(number for x in rows for number in (x.data_ptr(), x.stride(0)))]
    table = torch.tensor(numbers, dtype=torch.int64, device=device)
    prepared = native.prepare_launch(kernel, len(slots) * n, table)
    return partial(_run, native, prepared, device, (table, slot_table, constant_table, memory))


def _run(native: Any, prepared: Any, device: torch.device, keep: object) -> None:
    """Launch; ``keep`` is what the kernel's pointers point to."""
    native.launch(prepared, device)
