"""The guards of a stage as Warp kernels: of the copies that functions read, and of the results that they return.

A few launches replace some 20 operators of torch. This module is imported for CUDA only.
"""
# Warp compiles these functions. They only look like Python, so that a type checker misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportReturnType=false, reportGeneralTypeIssues=false, reportAssignmentType=false

from collections.abc import Iterable, Mapping, Sequence

import torch
import warp as wp
from torch import Tensor

from envcoder_bench.env.input_copies import Changes, DeviceCopies, Guard, Job
from mujoco_batches.compat.warp_start import start_warp
from mujoco_batches.physics.warp_streams import warp_stream

LANES = 256  # number of threads that clear a group's rows; least number of threads of a job
# copies of inputs: each tensor of a group is a job

# columns of the table of jobs: rows, units, size, stride, from, to, group, key
_ROWS, _GROUP = 0, 6

# A row is ``units`` numbers of 4 bytes, or of 1 where sizes or addresses are not multiples of 4.
_COPY = """
    const long long* job = &table.data[8 * index];
    const long long units = job[1], size = job[2], count = job[0] * units;
    for (long long i = lane; i < count; i += lanes) {
        const char* from = (const char*)job[4] + (i / units) * job[3] + (i % units) * size;
        char* to = (char*)job[5] + i * size;
        if (size == 4) *(unsigned int*)to = *(const unsigned int*)from;
        else *to = *from;
    }
"""
_DIFFERS = """
    const long long* job = &table.data[8 * index];
    const long long units = job[1], size = job[2], count = job[0] * units;
    for (long long i = lane; i < count; i += lanes) {
        const char* from = (const char*)job[4] + (i / units) * job[3] + (i % units) * size;
        const char* to = (const char*)job[5] + i * size;
        if (size == 4 ? *(const unsigned int*)to != *(const unsigned int*)from : *to != *from) return true;
    }
    return false;
"""


@wp.func_native(_COPY)
def _copy(index: int, lane: int, lanes: int, table: wp.array[wp.int64]): ...


@wp.func_native(_DIFFERS)
def _differs(index: int, lane: int, lanes: int, table: wp.array[wp.int64]) -> bool: ...


@wp.kernel(enable_backward=False)
def _refresh(table: wp.array[wp.int64], lanes: int, dead: wp.array[wp.bool]):
    index, lane = wp.tid()
    if not dead[int(table[8 * index + 6])]:  # a function of a dead group may have resized its memory
        _copy(index, lane, lanes, table)


@wp.kernel(enable_backward=False)
def _compare(
    table: wp.array[wp.int64],
    lanes: int,
    dead: wp.array[wp.bool],
    step: wp.array[wp.int64],
    changed_at: wp.array[wp.int64],
    changed_key: wp.array[wp.int32],
):
    index, lane = wp.tid()
    group = int(table[8 * index + 6])
    if dead[group]:
        return
    if _differs(index, lane, lanes, table):
        changed_at[group] = step[0]
        wp.atomic_max(changed_key, group, int(table[8 * index + 7]))


class WarpDeviceGuard(Guard):
    """Refreshes and compares the copies of some groups with one launch each, without a device sync.

    Args:
        rows: rows of the table of jobs.
        staged: pairs of a live tensor and a contiguous copy of it, which is refreshed and read instead.
        dead, step: as of ``device_copies``.
        changes: flags that ``compare`` sets. Like the jobs' tensors, all these must stay where they are.
    """

    def __init__(
        self, rows: Tensor, staged: Sequence[tuple[Tensor, Tensor]], dead: Tensor, step: Tensor, changes: Changes
    ) -> None:
        self._staged, self._dead, self._changes = staged, dead, changes
        self._launches: list = []
        if not len(rows):
            return
        start_warp()
        # the packed launches hold only addresses, so the tensors are kept here
        self._table, self._step = rows.to(dead.device).view(-1), step.view(1)
        lanes = max(LANES, int(rows[:, _ROWS].max()))
        marked = [wp.from_torch(x) for x in (self._step, *changes)]
        inputs = [wp.from_torch(self._table), lanes, wp.from_torch(dead)]
        at = {"dim": (len(rows), lanes), "device": wp.device_from_torch(dead.device), "record_cmd": True}
        self._launches.append(wp.launch(_refresh, inputs=inputs, **at))
        self._launches.append(wp.launch(_compare, inputs=[*inputs, *marked], **at))

    def refresh(self) -> None:
        if self._launches:
            for live, whole in self._staged:
                whole.copy_(live)
            self._launches[0].launch(warp_stream(self._dead.device))

    def compare(self) -> None:
        if self._launches:
            self._launches[1].launch(warp_stream(self._dead.device))
            torch.logical_or(self._dead, self._changes.key >= 0, out=self._dead)


class WarpDeviceCopies(DeviceCopies):
    """The copies of all groups on a device.

    Args:
        jobs: the tensors of all groups.
        dead, step: as of ``device_copies``.
    """

    def __init__(self, jobs: Sequence[Job], dead: Tensor, step: Tensor) -> None:
        self._jobs, self._dead, self._step = jobs, dead, step
        # rows with gaps, which no shipped task has, are copied to contiguous tensors first
        self._staged = {k: job.live.contiguous() for k, job in enumerate(jobs) if not _has_whole_rows(job.live)}
        rows = [_described(job, self._staged.get(k, job.live)) for k, job in enumerate(jobs)]
        self._rows = torch.tensor(rows, dtype=torch.int64)

    def guard(self, groups: Iterable[int], changes: Changes) -> WarpDeviceGuard:
        chosen = set(groups)
        rows = self._rows[torch.isin(self._rows[:, _GROUP], torch.tensor(sorted(chosen), dtype=torch.int64))]
        staged = [(self._jobs[k].live, whole) for k, whole in self._staged.items() if self._jobs[k].group in chosen]
        return WarpDeviceGuard(rows, staged, self._dead, self._step, changes)


def _has_whole_rows(x: Tensor) -> bool:
    """Return whether each row ``x[i]`` is contiguous."""
    return x.dim() == 0 or x.is_contiguous() or x[0].is_contiguous()


def _described(job: Job, live: Tensor) -> list[int]:
    """Return a row of the table of jobs."""
    number = live.element_size()
    rows = live.shape[0] if live.dim() else 1
    row, stride = live.numel() // rows * number, (live.stride(0) if live.dim() else 0) * number
    addresses = live.data_ptr(), job.copy.data_ptr()
    size = 4 if all(x % 4 == 0 for x in (row, stride, *addresses)) else 1
    return [rows, row // size, size, stride, *addresses, job.group, job.key]


# results of a stage


@wp.kernel(enable_backward=False)
def _count(
    values: wp.array[wp.float32],
    group_size: int,
    step: wp.array[wp.int64],
    dead: wp.array[wp.bool],
    fault_step: wp.array[wp.int64],
    fault_count: wp.array[wp.int64],
):
    i = wp.tid()
    if wp.isfinite(values[i]):
        return
    group = i // group_size
    if not dead[group]:  # so that a count stays that of the first fault
        fault_step[group] = step[0]
        wp.atomic_add(fault_count, group, wp.int64(1))


@wp.kernel(enable_backward=False)
def _clear(
    values: wp.array2d[wp.float32],
    rest: wp.array2d[wp.float32],
    has_rest: bool,
    envs: int,
    dead: wp.array[wp.bool],
    fault_count: wp.array[wp.int64],
):
    group, lane = wp.tid()
    if not dead[group] and fault_count[group] == wp.int64(0):
        return
    dead[group] = True
    width = values.shape[1]
    for k in range(lane, envs * width, LANES):
        row = group * envs + k // width
        if has_rest:
            values[row, k % width] = rest[row, k % width]
        else:
            values[row, k % width] = 0.0


class FusedGuard:
    """``Stage.guard`` for float32 tensors.

    Args:
        buffers: the stage's buffers ``(num_envs, ...)``, contiguous.
        rest: the live tensors of the same keys, which give the rows of dead groups; None: zeros.
        fault_step, fault_count: ``(num_groups,)`` int64, updated at each call.
        finite: whether numbers that are not finite are faults.
    """

    def __init__(
        self,
        buffers: Sequence[Tensor],
        rest: Sequence[Tensor] | None,
        fault_step: Tensor,
        fault_count: Tensor,
        finite: bool = True,
    ) -> None:
        self._device, self._marked = fault_step.device, (fault_step, fault_count)
        self._rows = [x.view(len(x), -1) for x in buffers if x.numel()]
        self._rest = None if rest is None else [x.view(len(x), -1) for x in rest if x.numel()]
        self._finite = finite
        self._launches: list = []
        self._bound_to: tuple = ()

    def __call__(self, dead: Tensor, step: Tensor) -> None:
        """Run; ``dead`` and ``step`` are the same tensors at each call."""
        if not self._launches:
            self._launches, self._bound_to = self._prepare(dead, step), (dead, step)
        if not (dead is self._bound_to[0] and step is self._bound_to[1]):
            raise ValueError("the guard is bound to the tensors of its first call")
        stream = warp_stream(self._device)
        for launch in self._launches:
            launch.launch(stream)

    def _prepare(self, dead: Tensor, step: Tensor) -> list:
        """Return the launches, whose arguments are packed once; the tensors must stay where they are."""
        start_warp()
        groups, device = len(dead), wp.device_from_torch(self._device)
        flags, marked = wp.from_torch(dead), [wp.from_torch(x) for x in self._marked]
        launches = []
        for x in self._rows if self._finite else ():
            inputs = [wp.from_torch(x.view(-1)), x.numel() // groups, wp.from_torch(step.view(1)), flags, *marked]
            launches.append(wp.launch(_count, dim=x.numel(), inputs=inputs, device=device, record_cmd=True))
        for x, rest in zip(self._rows, self._rest or self._rows):
            inputs = [wp.from_torch(x), wp.from_torch(rest), self._rest is not None, len(x) // groups, flags, marked[1]]
            launches.append(wp.launch(_clear, dim=(groups, LANES), inputs=inputs, device=device, record_cmd=True))
        return launches


def fused_guard(
    buffers: Mapping[str, Tensor],
    rest: Mapping[str, Tensor] | None,
    fault_step: Tensor,
    fault_count: Tensor,
    finite: bool = True,
) -> FusedGuard | None:
    """Return the guard, or None where tensors are not float32 or cannot be seen as rows without a copy."""
    rows = list(buffers.values())
    live = None if rest is None else [rest[key] for key in buffers]
    if not all(x.is_contiguous() for x in rows) or any(x.dtype != torch.float32 for x in [*rows, *(live or ())]):
        return None
    if live is not None and not all(_is_rows(x) for x in live):
        return None
    return FusedGuard(rows, live, fault_step, fault_count, finite)


def _is_rows(x: Tensor) -> bool:
    """Return whether ``(n, ...)`` can be viewed as ``(n, columns)``."""
    try:
        x.view(len(x), -1)
    except RuntimeError:
        return False
    return True
