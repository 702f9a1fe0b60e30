"""The guard of a stage as Warp kernels: a few launches in place of some 20 operators of torch."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false

from collections.abc import Mapping, Sequence

import torch
import warp as wp
from torch import Tensor

from envcoder_bench.compat.warp_start import start_warp
from envcoder_bench.core.warp_streams import warp_stream

LANES = 256  # threads that clear the rows of one group


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
        rest: the live tensors of the same keys, from which rows of dead groups are taken; None: zeros.
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
        self._of: tuple = ()

    def __call__(self, dead: Tensor, step: Tensor) -> None:
        """Run; ``dead`` and ``step`` are the same tensors at each call."""
        if not self._launches:
            self._launches, self._of = self._prepare(dead, step), (dead, step)
        if not (dead is self._of[0] and step is self._of[1]):
            raise ValueError("the guard is bound to the tensors of its first call")
        stream = warp_stream(self._device)
        for launch in self._launches:
            launch.launch(stream)

    def _prepare(self, dead: Tensor, step: Tensor) -> list:
        """Return the launches, whose arguments are packed once; the tensors must stay where they are."""
        start_warp()
        groups, device = len(dead), wp.device_from_torch(self._device)
        flags, marked = wp.from_torch(dead), [wp.from_torch(x) for x in self._marked]
        made = []
        for x in self._rows if self._finite else ():
            inputs = [wp.from_torch(x.view(-1)), x.numel() // groups, wp.from_torch(step.view(1)), flags, *marked]
            made.append(wp.launch(_count, dim=x.numel(), inputs=inputs, device=device, record_cmd=True))
        for x, rest in zip(self._rows, self._rest or self._rows):
            inputs = [wp.from_torch(x), wp.from_torch(rest), self._rest is not None, len(x) // groups, flags, marked[1]]
            made.append(wp.launch(_clear, dim=(groups, LANES), inputs=inputs, device=device, record_cmd=True))
        return made


def fused_guard(
    buffers: Mapping[str, Tensor],
    rest: Mapping[str, Tensor] | None,
    fault_step: Tensor,
    fault_count: Tensor,
    finite: bool = True,
) -> FusedGuard | None:
    """Return the guard, or None where tensors are not float32 or cannot be seen as rows without a copy."""
    own = list(buffers.values())
    live = None if rest is None else [rest[key] for key in buffers]
    if not all(x.is_contiguous() for x in own) or any(x.dtype != torch.float32 for x in [*own, *(live or ())]):
        return None
    if live is not None and not all(_is_rows(x) for x in live):
        return None
    return FusedGuard(own, live, fault_step, fault_count, finite)


def _is_rows(x: Tensor) -> bool:
    """Return whether ``(n, ...)`` can be viewed as ``(n, columns)``."""
    try:
        x.view(len(x), -1)
    except RuntimeError:
        return False
    return True
