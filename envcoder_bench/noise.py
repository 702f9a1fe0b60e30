"""Random numbers from a counter: the same (seed, step, purpose, lane, column) always gives the same number.

There is no generator state to share, save or disturb. The k-th environment of every group with the same seed meets the
same noise whatever runs beside it, and a resumed run goes on bitwise. Integer hashing is exact, so CPU and CUDA draw
the same uniform numbers. The mixer is SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

import math
from typing import Union

import torch
from torch import Tensor

Counter = Union[int, Tensor]  # a Tensor (0-d int64, on the device) where the value changes inside a captured graph

# what the noise is for: two purposes never share numbers
ACTION, INITIAL_STATE, GOAL, REWARD, OBSERVATION, TERMINAL, CONTROL, EVALUATION = range(8)

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 64-bit constants written as the int64 with the same bits
_MIX_A = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_B = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift logically: torch's >> on int64 copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX_A
    x = (x ^ _shift_right(x, 27)) * _MIX_B
    return x ^ _shift_right(x, 31)


def _hash(seed: Counter, step: Counter, purpose: int, lanes: int, columns: int, device: torch.device) -> Tensor:
    """Hash to ``(lanes, columns)`` int64; the number at (lane, column) does not depend on how many there are."""
    zero = torch.zeros((), dtype=torch.int64, device=device)
    key = _mix(zero + seed + _GOLDEN)
    key = _mix(key + step * 16 + purpose + _GOLDEN)
    lane = torch.arange(lanes, dtype=torch.int64, device=device).unsqueeze(1)
    column = torch.arange(columns, dtype=torch.int64, device=device)
    return _mix(_mix(key + (lane + 1) * _GOLDEN) + (column + 1) * _GOLDEN)


def uniform(
    seed: Counter, step: Counter, purpose: int, lanes: int, columns: int, device: Union[str, torch.device] = "cpu"
) -> Tensor:
    """Draw uniform numbers in [0, 1): ``(lanes, columns)`` float32."""
    bits = _shift_right(_hash(seed, step, purpose, lanes, columns, torch.device(device)), 40)
    return bits.to(torch.float32) * 2.0**-24


def normal(
    seed: Counter, step: Counter, purpose: int, lanes: int, columns: int, device: Union[str, torch.device] = "cpu"
) -> Tensor:
    """Draw standard normal numbers, ``(lanes, columns)`` float32, by the Box-Muller transform."""
    bits = _hash(seed, step, purpose, lanes, columns, torch.device(device))
    radius = (_shift_right(bits, 40).to(torch.float32) + 1.0) * 2.0**-24  # in (0, 1]: its logarithm is finite
    angle = (bits & 0xFFFFFF).to(torch.float32) * (2.0 * math.pi * 2.0**-24)
    return torch.sqrt(-2.0 * torch.log(radius)) * torch.cos(angle)


def stream_seed(seed: int, step: int, purpose: int) -> int:
    """A seed for a library generator (``torch.manual_seed``) that stands for (seed, step, purpose)."""
    return int(_hash(seed, step, purpose, 1, 1, torch.device("cpu")).item()) & ((1 << 63) - 1)
