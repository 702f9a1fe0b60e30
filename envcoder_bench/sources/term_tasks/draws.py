"""Random numbers of a framework's code: functions of (seed, lane, step, term, call, column), one row per environment.

All environments draw in each call, so that the draws of one do not depend on which others reset, and the same lane of
groups of one seed draws the same numbers.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from envcoder_bench.compat.torch_draws import DrawsFromRows
from envcoder_bench.core import noise, stream
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.purposes import Purpose

_SPREAD = 0x5851F42D4C957F2D  # so that neighbouring seeds differ in all bits
_CALL = 0x2545F4914F6CDD1D


class TermStream(stream.use):
    """The draws of one term in one step.

    Args:
        name: the term, such as ``events/push_robot``.
        seeds, lanes: ``(rows,)`` int64 of the environments that draw.
        step: the counter of steps, on a device a 0-d tensor.
    """

    __slots__ = ("_lanes", "_offsets", "_seed", "name")

    def __init__(self, name: str, seeds: Tensor, lanes: Tensor, step: int | Tensor) -> None:
        super().__init__(0, step, Purpose.TERM_DRAW)
        self._lanes, self._offsets = lanes, seeds.unsqueeze(1) * _SPREAD
        self.rename(name)

    def rename(self, name: str) -> None:
        """Go on with the draws of another term."""
        self.name, self._seed, self.calls = name, _key(name), 0

    def next(self, rows: int, device: str | torch.device) -> tuple[noise.Counter, noise.Lanes]:
        if rows != len(self._lanes):
            raise UserError(
                f"{self.name} draws random numbers for {rows} rows, and there are {len(self._lanes)} environments: draw"
                " one row for each of env_ids"
            )
        self.calls += 1  # properties, such as materials, are drawn on the CPU
        seeds, lanes = self._offsets.to(device), self._lanes.to(device)
        return seeds + _signed(self._seed + self.calls * _CALL), lanes


def rename_stream(name: str) -> None:
    """Go on with the draws of another term, where a ``TermStream`` is in use."""
    current = stream.current()
    if isinstance(current, TermStream):
        current.rename(name)


@dataclass
class Draws:
    """Where the random numbers of some environments come from.

    Attributes:
        seeds, lanes: ``(n,)`` int64, the seed of each environment's group, and its index in the group.
        step: the counter of steps; a negative one before the first.
    """

    seeds: Tensor
    lanes: Tensor
    step: int | Tensor = -1


drawing = DrawsFromRows  # torch's random functions inside the block draw from the term's stream


def _signed(x: int) -> int:
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


@functools.lru_cache(maxsize=1 << 14)
def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
