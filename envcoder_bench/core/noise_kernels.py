"""The hash of counter noise as one Warp kernel, for lanes in a tensor on CUDA."""
# Warp compiles these functions. They only look like Python, so that a type checker misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false

import torch
import warp as wp
from torch import Tensor

from envcoder_bench.core.purposes import STRIDE, counter_offset, signed
from mujoco_batches.physics.warp_streams import warp_stream

# the constants of core.noise
_GOLDEN = wp.constant(wp.uint64(0x9E3779B97F4A7C15))
_MIX_A = wp.constant(wp.uint64(0xBF58476D1CE4E5B9))
_STRIDE = wp.constant(wp.int64(STRIDE))
_MIX_B = wp.constant(wp.uint64(0x94D049BB133111EB))
wp.config.log_level = wp.LOG_WARNING  # no banner, and no message for each module it loads


@wp.func
def _mix(x: wp.uint64) -> wp.uint64:
    x = (x ^ (x >> wp.uint64(30))) * _MIX_A
    x = (x ^ (x >> wp.uint64(27))) * _MIX_B
    return x ^ (x >> wp.uint64(31))


@wp.func
def _hashed(
    seeds: wp.array[wp.int64], counter: wp.int64, steps: wp.array[wp.int64], lane: wp.int64, row: int, column: int
) -> wp.uint64:
    count = counter
    if steps:
        count = counter + steps[0] * _STRIDE
    key = _mix(wp.uint64(seeds[row % seeds.shape[0]]) + _GOLDEN)
    key = _mix(key + wp.uint64(count) + _GOLDEN)
    key = _mix(key + (wp.uint64(lane) + wp.uint64(1)) * _GOLDEN)
    return _mix(key + wp.uint64(column + 1) * _GOLDEN)


@wp.kernel(enable_backward=False)
def _hash(
    seeds: wp.array[wp.int64],
    counter: wp.int64,
    steps: wp.array[wp.int64],
    lanes: wp.array[wp.int64],
    out: wp.array2d[wp.int64],
):
    row, column = wp.tid()
    out[row, column] = wp.int64(_hashed(seeds, counter, steps, lanes[row], row, column))


@wp.kernel(enable_backward=False)
def _uniform(
    seeds: wp.array[wp.int64],
    counter: wp.int64,
    steps: wp.array[wp.int64],
    lanes: wp.array[wp.int64],
    out: wp.array2d[wp.float32],
):
    row, column = wp.tid()
    bits = _hashed(seeds, counter, steps, lanes[row], row, column) >> wp.uint64(40)
    out[row, column] = wp.float32(bits) * wp.float32(2.0**-24.0)


def hash_lanes(seeds: Tensor, step: int | Tensor, purpose: int, lanes: Tensor, columns: int) -> Tensor:
    """Return ``noise``'s hash ``(n, columns)`` int64, for int64 seeds ``(n,)`` or ``(1,)`` and lanes ``(n,)``.

    The kernel runs on torch's current stream, and reads a ``step`` ``()`` int64 there, so that a graph may contain it.
    """
    return _launched(_hash, torch.int64, seeds, step, purpose, lanes, columns)


def uniform_lanes(seeds: Tensor, step: int | Tensor, purpose: int, lanes: Tensor, columns: int) -> Tensor:
    """Return ``noise.uniform``'s numbers ``(n, columns)`` float32, as ``hash_lanes`` does its hash."""
    return _launched(_uniform, torch.float32, seeds, step, purpose, lanes, columns)


def _launched(
    kernel: wp.Kernel, kind: torch.dtype, seeds: Tensor, step: int | Tensor, purpose: int, lanes: Tensor, columns: int
) -> Tensor:
    wp.init()  # a second call does nothing
    steps = wp.from_torch(step.reshape(1)) if isinstance(step, Tensor) else None
    counter = counter_offset(purpose) if isinstance(step, Tensor) else signed(step * STRIDE + counter_offset(purpose))
    numbers = torch.empty(len(lanes), columns, dtype=kind, device=lanes.device)
    if numbers.numel():
        wp.launch(
            kernel,
            dim=numbers.shape,
            inputs=[wp.from_torch(seeds.contiguous()), counter, steps, wp.from_torch(lanes.contiguous())],
            outputs=[wp.from_torch(numbers)],
            device=wp.device_from_torch(lanes.device),
            stream=warp_stream(lanes.device),
        )
    return numbers
