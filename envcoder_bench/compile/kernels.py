"""Kernels that run many traced functions, compiled by Warp for the CPU or CUDA and kept in its cache on disk.

A kernel holds up to sixteen different programs and runs each of them for the environments of all groups that have it.
Constants are data, so that a file whose numbers change is not compiled again, and candidates that differ only in
numbers share their code. A kernel chooses its programs by the group, so that kernels of all candidates also run the
survivors of a race.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envcoder_bench.compile.building import KILLED
from envcoder_bench.compile.c_code import C_TYPES, CCode, c_name, define_functions
from envcoder_bench.compile.program import KINDS
from envcoder_bench.core.folders import has_package

# table T: n, pointers to the slots, the constants, the active groups and the step; then pointer and row stride of every
# tensor. A slot is one group's program: its case, group, first constant and seed.
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

PROGRAMS_PER_KERNEL = 16  # fewer need more launches; with more, more are recompiled when one changes
MAX_LINES = 3_000  # lines of a kernel: compilation time grows faster; a longer program gets its own kernel
MOST_KERNELS = 4  # use at most so many compiled kernels for each new one: more launches cost more than a compilation


class GroupProgram(NamedTuple):
    """One group's program, and the seed of its random numbers."""

    group: int
    seed: int
    code: CCode


class KernelPrograms(NamedTuple):
    """The programs of a kernel, and the groups that run them.

    Attributes:
        codes: the programs; some of them may not be needed.
        jobs: for each program, the groups that have it.
    """

    codes: list[CCode]
    jobs: list[list[GroupProgram]]


Jobs = dict[Hashable, list[GroupProgram]]  # the groups of each program, by its key


class StageBuffers(NamedTuple):
    """The tensors that the kernels of a stage read and write; their memory is fixed.

    Attributes:
        state: ``(num_envs, ...)`` tensors by name.
        outputs: ``(num_envs, ...)`` tensors by name.
        counts: ``(num_groups, 1 + most components, 3, n)``, statistics of the reward and its components.
        active: ``(num_groups,)`` uint8, nonzero for the groups to run.
        step: 0-d int64, the step of the random numbers.
    """

    state: dict[str, Tensor]
    outputs: dict[str, Tensor]
    counts: Tensor
    active: Tensor
    step: Tensor


def available() -> bool:
    """Return whether Warp, which compiles the kernels, is installed."""
    return has_package("warp")


class BuildFailure(NamedTuple):
    """A group whose program cannot be compiled, and why; the message completes "it ..."."""

    group: int
    reason: str


Launches = list[Callable[[], None]]
# programs of the kernels that this process has loaded, in order, by device and tensors, then by the programs' keys
_loaded: dict[Hashable, dict[Hashable, list[CCode]]] = {}


def launches(
    stages: Sequence[tuple[Sequence[GroupProgram], StageBuffers]], n: int
) -> tuple[list[Launches], list[list[BuildFailure]]]:
    """Compile every stage's programs into functions that each launch one kernel, for groups of n environments.

    The functions of one stage may be called in any order or concurrently, and captured in a CUDA graph.

    Returns:
        For each stage, its launches, and the groups that are left out because their program cannot be compiled.

    Raises:
        RuntimeError: no program can be compiled.
    """
    from envcoder_bench.compile import native  # late, because it imports Warp

    device = stages[0][1].step.device
    # divide programs among kernels, and compile the kernels of all stages together
    compiled = [_loaded.setdefault((str(device), _layout(buffers)), {}) for _, buffers in stages]
    kernels = [(i, plan) for i, (jobs, _) in enumerate(stages) for plan in divide(jobs, list(compiled[i].values()))]
    codes = [_code(plan, stages[i][1]) for i, plan in kernels]
    faults = native.build(codes, device)
    if all(faults) and not any(fault.startswith(KILLED) for fault in faults):
        raise RuntimeError(faults[0])  # no working compiler
    # retry each program of a failed kernel in a kernel of its own
    kept: list[tuple[int, KernelPrograms]] = []
    retried: list[tuple[int, KernelPrograms]] = []
    for (i, plan), fault in zip(kernels, faults):
        singles = divide_fully(plan) if fault else []
        retried += [(i, single) for single in singles]
        if not singles:
            kept.append((i, plan))
    kernels = kept + retried
    codes = [_code(plan, stages[i][1]) for i, plan in kernels]
    faults = native.build(codes, device)
    # the groups of a program that fails by itself are left out
    refused: list[list[BuildFailure]] = [[] for _ in stages]
    for (i, plan), fault in zip(kernels, faults):
        refused[i] += [BuildFailure(job.group, fault) for jobs in plan.jobs for job in jobs if fault]
    # load the rest, and note their programs for later divisions
    good = [k for k, fault in enumerate(faults) if not fault]
    launched: list[Launches] = [[] for _ in stages]
    for k, kernel in zip(good, native.load([codes[k] for k in good], device) if good else []):
        i, plan = kernels[k]
        compiled[i][tuple(program_key(code) for code in plan.codes)] = plan.codes
        launched[i].append(_launch(native, kernel, plan, stages[i][1], n))
    return launched, refused


def _rows(buffers: StageBuffers) -> dict[str, Tensor]:
    """Return all tensors by their names in the code, in an order that is the same in every run."""
    state = {f"S_{c_name(name)}": buffers.state[name] for name in sorted(buffers.state)}
    return {**state, **{f"O_{name}": x for name, x in buffers.outputs.items()}, "O_counts": buffers.counts}


def _layout(buffers: StageBuffers) -> Hashable:
    """Return the names and types of the tensors, which a kernel's code depends on; shapes and strides are data."""
    return tuple((name, x.dtype) for name, x in _rows(buffers).items())


def _code(kernel: KernelPrograms, buffers: StageBuffers) -> str:
    cases = [f"case {i}: {{\n{_body(code, buffers)}\n}} break;" for i, code in enumerate(kernel.codes)]
    body = "\n".join(cases)
    return define_functions(body) + _HEADER + body + "\n}\n"


def _body(code: CCode, buffers: StageBuffers) -> str:
    read = {f"S_{c_name(name)}" for name, _ in code.state}
    lines = []
    for i, (name, x) in enumerate(_rows(buffers).items()):
        pointer, stride = f"T[{_FIXED + 2 * i}]", f"T[{_FIXED + 2 * i + 1}]"
        kind = C_TYPES[KINDS[x.dtype]]
        if name in read:
            lines.append(f"const {kind}* {name} = (const {kind}*){pointer} + row * {stride};")
        elif name == "O_counts":
            lines.append(f"{kind}* {name} = ({kind}*){pointer} + group * {stride} + lane;")
        elif name.startswith("O_"):
            lines.append(f"{kind}* {name} = ({kind}*){pointer} + row * {stride};")
    return "\n".join([*lines, code.statements])


def _launch(native: Any, kernel: Any, programs: KernelPrograms, buffers: StageBuffers, n: int) -> Callable[[], None]:
    constants: list[float] = []
    slots: list[list[int]] = []
    for case, jobs in enumerate(programs.jobs):
        for job in jobs:
            slots.append([case, job.group, len(constants), job.seed])
            constants += job.code.constants
    device = buffers.step.device
    slot_table = torch.tensor(slots, dtype=torch.int64, device=device)
    constant_table = torch.tensor(constants or [0.0], dtype=torch.float64, device=device)
    fixed = [x.data_ptr() for x in (slot_table, constant_table, buffers.active, buffers.step)]
    rows = list(_rows(buffers).values())
    numbers = [n, *fixed, *(number for x in rows for number in (x.data_ptr(), x.stride(0)))]
    table = torch.tensor(numbers, dtype=torch.int64, device=device)
    prepared = native.prepare_launch(kernel, len(slots) * n, table)
    return partial(_run, native, prepared, device, (table, slot_table, constant_table, buffers))


def _run(native: Any, prepared: Any, device: torch.device, keep: object) -> None:
    """Launch; ``keep`` holds references to the tensors that the kernel's pointers point to."""
    native.launch(prepared, device)


# division of programs among new kernels, and kernels that this process has already compiled


def program_key(code: CCode) -> tuple[Hashable, ...]:
    """Return a key that identifies a program: all but its constants, which are data."""
    return code.statements, code.state


def divide(jobs: Sequence[GroupProgram], compiled: Sequence[Sequence[CCode]]) -> list[KernelPrograms]:
    """Divide the different programs among kernels.

    Args:
        compiled: the programs of kernels that are compiled already. These kernels are used if they reduce the number of
            new kernels, as for the survivors of a race, and are not too many (``MOST_KERNELS``).
    """
    wanted: Jobs = {}
    for job in jobs:
        wanted.setdefault(program_key(job.code), []).append(job)
    new = _new_kernels(wanted)
    used, rest = _reuse_kernels(wanted, compiled)
    if used and len(rest) < len(new) and len(used) + len(rest) <= MOST_KERNELS * len(new):
        return used + rest
    return new


def divide_fully(kernel: KernelPrograms) -> list[KernelPrograms]:
    """Return a kernel for each program of a kernel with several; nothing for a kernel with a single program."""
    if len(kernel.codes) == 1:
        return []
    return [KernelPrograms([code], [groups]) for code, groups in zip(kernel.codes, kernel.jobs) if groups]


def _new_kernels(wanted: Jobs) -> list[KernelPrograms]:
    kernels: list[KernelPrograms] = []
    lines = MAX_LINES
    for groups in wanted.values():
        size = groups[0].code.statements.count("\n")
        if lines + size > MAX_LINES or len(kernels[-1].codes) == PROGRAMS_PER_KERNEL:
            kernels.append(KernelPrograms([], []))
            lines = 0
        kernels[-1].codes.append(groups[0].code)
        kernels[-1].jobs.append(groups)
        lines += size
    return kernels


def _reuse_kernels(
    wanted: Jobs, compiled: Sequence[Sequence[CCode]]
) -> tuple[list[KernelPrograms], list[KernelPrograms]]:
    """Return the compiled kernels to use, those with the most wanted programs first, and new ones for the rest."""
    missing, used = dict(wanted), []
    count = {i: sum(program_key(code) in wanted for code in codes) for i, codes in enumerate(compiled)}
    for i in sorted((i for i in count if count[i]), key=lambda i: -count[i]):
        groups = [missing.pop(program_key(code), []) for code in compiled[i]]
        if any(groups):
            used.append(KernelPrograms(list(compiled[i]), groups))
    return used, _new_kernels(missing)
