"""Refresh and comparison of the copies of all groups' inputs as two Warp kernels; see ``input_copies``."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportReturnType=false, reportGeneralTypeIssues=false, reportAssignmentType=false

from collections.abc import Iterable, Sequence

import torch
import warp as wp
from torch import Tensor

from envcoder_bench.compat.warp_start import start_warp
from envcoder_bench.core.warp_streams import warp_stream
from envcoder_bench.env.input_copies import Changes, DeviceCopies, Job

LANES = 256  # least number of threads of a job
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
    if not dead[int(table[8 * index + 6])]:  # whose memory a function may have resized
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


class FusedDeviceGuard:
    """A ``DeviceGuard`` of one launch each for all tensors.

    Args:
        rows: of the table of jobs.
        staged: tensors that go through a copy, with it.
        dead, step, changes: as of ``DeviceGuard``; like the jobs' tensors, they must stay where they are.
    """

    def __init__(
        self, rows: Tensor, staged: Sequence[tuple[Tensor, Tensor]], dead: Tensor, step: Tensor, changes: Changes
    ) -> None:
        self._staged, self._dead, self._changes = staged, dead, changes
        self._launches: list = []
        if not len(rows):
            return
        start_warp()
        # kept here, because the packed launches hold addresses alone
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


class FusedDeviceCopies(DeviceCopies):
    """``DeviceCopies`` whose guards are kernels."""

    def __init__(self, jobs: Sequence[Job], dead: Tensor, step: Tensor) -> None:
        super().__init__(jobs, dead, step)
        # rows with gaps inside, which no task of ours has, go through a copy without
        self._staged = {k: job.live.contiguous() for k, job in enumerate(jobs) if not _has_whole_rows(job.live)}
        rows = [_described(job, self._staged.get(k, job.live)) for k, job in enumerate(jobs)]
        self._rows = torch.tensor(rows, dtype=torch.int64)

    def guard(self, groups: Iterable[int], changes: Changes) -> FusedDeviceGuard:
        chosen = set(groups)
        rows = self._rows[torch.isin(self._rows[:, _GROUP], torch.tensor(sorted(chosen), dtype=torch.int64))]
        staged = [(self._jobs[k].live, whole) for k, whole in self._staged.items() if self._jobs[k].group in chosen]
        return FusedDeviceGuard(rows, staged, self._dead, self._step, changes)


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
