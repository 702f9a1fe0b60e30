"""Random numbers from a counter: the same (seed, step, purpose, lane, column) always gives the same number.

Nothing has to be shared or saved. The k-th environment of every group with the same seed gets the same noise,
whatever the other groups are, and a resumed run continues bitwise. Integer hashing is exact, so CPU and CUDA draw the
same uniform numbers. The mixer is SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
"""

import functools
import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.purposes import STRIDE, counter_offset

Counter = int | Tensor  # a Tensor (0-d int64, on the device) where the value changes inside a captured graph
# the number of lanes, counted from 0, or int64 lanes ``(n,)``, for which seeds may be ``(n, 1)``
Lanes = int | Tensor

SPREAD = 0x5851F42D4C957F2D  # a factor for seeds, so that seeds of neighbours differ in all bits
EVALUATION_STEP = 1 << 40  # first step counter of evaluations, beyond those of any training

_GOLDEN, _MIX_A, _MIX_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SIGNED = {x: x - (1 << 64) for x in (_GOLDEN, _MIX_A, _MIX_B)}  # torch's int64 with the same bits
_UNSIGNED = {x: np.uint64(x) for x in (1, _GOLDEN, _MIX_A, _MIX_B)}
_SHIFTS = {bits: np.uint64(bits) for bits in (27, 30, 31)}


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _SIGNED[_MIX_A]
    x = (x ^ _shift_right(x, 27)) * _SIGNED[_MIX_B]
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift logically: torch's >> on int64 copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix_numpy(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> _SHIFTS[30])) * _UNSIGNED[_MIX_A]
    x = (x ^ (x >> _SHIFTS[27])) * _UNSIGNED[_MIX_B]
    return x ^ (x >> _SHIFTS[31])


def _hash(seed: Counter, step: Counter, purpose: int, lanes: Lanes, columns: int, device: torch.device) -> Tensor:
    """Hash to ``(lanes, columns)`` int64; the number at (lane, column) does not depend on the sizes."""
    if isinstance(step, int) and device.type == "cpu" and (isinstance(lanes, Tensor) or isinstance(seed, int)):
        return _hash_numpy(seed, step * STRIDE + counter_offset(purpose), lanes, columns)
    if device.type != "cpu" and isinstance(lanes, Tensor) and isinstance(seed, Tensor) and _kernels() is not None:
        return _kernels().hash_lanes(seed.reshape(-1), step, purpose, lanes, columns)
    return _hash_torch(seed, step, purpose, lanes, columns, device)


@functools.cache
def _kernels() -> Any:
    """Return the module whose kernel replaces about 30 operators of torch; None without Warp."""
    try:
        from envcoder_bench.core import noise_kernels
    except ImportError:
        return None
    return noise_kernels


def _hash_torch(seed: Counter, step: Counter, purpose: int, lanes: Lanes, columns: int, device: torch.device) -> Tensor:
    """Hash by torch's operators, which CUDA graphs can capture and the recorder can trace."""
    golden = _SIGNED[_GOLDEN]
    key = _mix(torch.zeros((), dtype=torch.int64, device=device) + seed + golden)
    key = _mix(key + step * STRIDE + counter_offset(purpose) + golden)
    lane = torch.arange(lanes, dtype=torch.int64, device=device) if isinstance(lanes, int) else lanes
    lane = lane.unsqueeze(1) + 1
    column = torch.arange(1, columns + 1, dtype=torch.int64, device=device)
    return _mix(_mix(key + lane * golden) + column * golden)


def _hash_numpy(seed: Counter, counter: int, lanes: Lanes, columns: int) -> Tensor:
    """Compute the same numbers with numpy, which takes a third of torch's time for small arrays on the CPU."""
    golden = _UNSIGNED[_GOLDEN]
    seeds = _numpy(seed) if isinstance(seed, Tensor) else np.array([seed % (1 << 64)], dtype=np.uint64)
    counters = np.array([counter % (1 << 64)], dtype=np.uint64)  # 1-d arrays may overflow
    key = _mix_numpy(_mix_numpy(seeds + golden) + counters + golden)
    first = _numpy(lanes) + _UNSIGNED[1] if isinstance(lanes, Tensor) else np.arange(1, lanes + 1, dtype=np.uint64)
    lane = first[:, None]
    column = np.arange(1, columns + 1, dtype=np.uint64)
    return torch.from_numpy(_mix_numpy(_mix_numpy(key + lane * golden) + column * golden).view(np.int64))


def _numpy(x: Tensor) -> np.ndarray:
    return x.numpy().view(np.uint64)


def uniform(
    seed: Counter, step: Counter, purpose: int, lanes: Lanes, columns: int, device: str | torch.device = "cpu"
) -> Tensor:
    """Draw uniform numbers in [0, 1): ``(lanes, columns)`` float32."""
    device = torch.device(device)
    if device.type != "cpu" and isinstance(lanes, Tensor) and isinstance(seed, Tensor) and _kernels() is not None:
        return _kernels().uniform_lanes(seed.reshape(-1), step, purpose, lanes, columns)
    bits = _shift_right(_hash(seed, step, purpose, lanes, columns, device), 40)
    return bits.to(torch.float32) * 2.0**-24


def normal(
    seed: Counter, step: Counter, purpose: int, lanes: Lanes, columns: int, device: str | torch.device = "cpu"
) -> Tensor:
    """Draw standard normal numbers, ``(lanes, columns)`` float32, by the Box-Muller transform."""
    bits = _hash(seed, step, purpose, lanes, columns, torch.device(device))
    radius = (_shift_right(bits, 40).to(torch.float32) + 1.0) * 2.0**-24  # within (0, 1]: its logarithm is finite
    angle = (bits & 0xFFFFFF).to(torch.float32) * (2.0 * math.pi * 2.0**-24)
    return torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(angle)


def integers(
    seed: Counter,
    step: Counter,
    purpose: int,
    lanes: Lanes,
    columns: int,
    low: int,
    high: int,
    device: str | torch.device = "cpu",
) -> Tensor:
    """Draw integers from ``low`` to ``high - 1``: ``(lanes, columns)`` int64.

    Raises:
        ValueError: the range is empty.
    """
    if not low < high:
        raise ValueError(f"integers from low={low} to below high={high}: low must be less than high")
    bits = _shift_right(_hash(seed, step, purpose, lanes, columns, torch.device(device)), 1)  # 63 bits: not negative
    return bits % (high - low) + low


@functools.lru_cache(maxsize=1 << 16)
def text_key(text: str) -> int:
    """Return a digest of a text as an int64, which gives each text random numbers of its own."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def stream_seed(seed: int, step: int, purpose: int) -> int:
    """Return a seed for a library generator (``torch.manual_seed``), derived from (seed, step, purpose)."""
    return int(_hash(seed, step, purpose, 1, 1, torch.device("cpu")).item()) & ((1 << 63) - 1)


def turned(quat: Tensor, angles: Tensor) -> Tensor:
    """Turn quaternions xyzw by small angles about the body's axes, by elementwise operations alone."""
    x, y, z, w = quat.unbind(1)
    a, b, c = (0.5 * angles).unbind(1)
    product = torch.stack(
        [x + w * a + y * c - z * b, y + w * b + z * a - x * c, z + w * c + x * b - y * a, w - x * a - y * b - z * c],
        dim=1,
    )
    p, q, r, s = product.unbind(1)
    return product / torch.sqrt(p * p + q * q + r * r + s * s).unsqueeze(1)
