"""Random numbers of candidate code: each call draws from the stream of its group, not from a shared generator.

Helpers such as ``torch_rand_float`` call ``uniform``, which uses counter noise and works in a CUDA graph; so do
``torch.rand`` and similar functions inside ``random_calls.FromStream``. Code that draws from another generator
(``random``, ``numpy.random``, ``torch.randperm``) runs inside ``seeded``, which cannot be captured in a graph.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.purposes import signed

_CALL = 0xD1B54A32D192ED03  # odd, so that the calls of one function have 2^64 different seeds


class _Ambient(threading.local):
    stream: use | None = None


class use:  # lower case, because it reads as a statement: with stream.use(seed, step, purpose)
    """Draw from (seed, step, purpose) inside the ``with`` block; both counters may be 0-d int64 tensors on the device.

    The calls within one block are counted, so that two calls give different numbers.
    """

    __slots__ = ("_outer", "calls", "purpose", "seed", "step")

    def __init__(self, seed: noise.Counter, step: noise.Counter, purpose: int) -> None:
        self.seed, self.step, self.purpose, self.calls = seed, step, purpose, 0

    def __enter__(self) -> use:
        self._outer = _ambient.stream
        _ambient.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        _ambient.stream = self._outer

    def next_seed(self) -> noise.Counter:
        """Return a seed for the next call, as the int64 with the same bits."""
        offset = signed(self.calls * _CALL)
        self.calls += 1
        return signed(self.seed + offset) if isinstance(self.seed, int) else self.seed + offset

    def next(self, rows: int, device: str | torch.device) -> tuple[noise.Counter, noise.Lanes]:
        """Return the seed and the lanes of the next call, which draws for ``rows`` environments."""
        return self.next_seed(), rows


_ambient = _Ambient()


def current() -> use | None:
    """Return the stream in use, or None."""
    return _ambient.stream


def uniform(shape: Sequence[int], device: str | torch.device = "cpu") -> Tensor:
    """Draw uniform numbers in [0, 1): float32 of ``shape``, whose first axis is the environments (lanes).

    Outside a ``use`` block, ``torch.rand`` draws them.
    """
    if _ambient.stream is None:
        return torch.rand(tuple(shape), device=device)
    return _from_stream(_ambient.stream, noise.uniform, shape, device)


def normal(shape: Sequence[int], device: str | torch.device = "cpu") -> Tensor:
    """Draw standard normal numbers, float32 of ``shape``, as ``uniform`` does."""
    if _ambient.stream is None:
        return torch.randn(tuple(shape), device=device)
    return _from_stream(_ambient.stream, noise.normal, shape, device)


def integers(low: int, high: int, shape: Sequence[int], device: str | torch.device = "cpu") -> Tensor:
    """Draw integers from ``low`` to ``high - 1``, int64 of ``shape``, as ``uniform`` does."""
    if _ambient.stream is None:
        return torch.randint(low, high, tuple(shape), device=device)
    return _from_stream(_ambient.stream, noise.integers, shape, device, low, high)


def _from_stream(
    stream: use, draw: Callable[..., Tensor], shape: Sequence[int], device: str | torch.device, *bounds: int
) -> Tensor:
    lanes, columns = (shape[0], math.prod(shape[1:])) if len(shape) else (1, 1)
    seed, lanes_drawn = stream.next(lanes, device)
    return draw(seed, stream.step, stream.purpose, lanes_drawn, columns, *bounds, device).reshape(tuple(shape))


_generators = threading.RLock()  # they belong to the process: runs in several threads take turns


@contextmanager
def seeded(seed: int | None, device: str | torch.device = "cpu") -> Iterator[None]:
    """Seed the generators of torch, ``random`` and numpy inside the block, and restore their states afterwards.

    With None the states are only restored, including those of all CUDA devices; the block seeds the generators.
    """
    with _generators:
        generators = _torch_generators(device, everywhere=seed is None)
        torch_states = [generator.get_state() for generator in generators]
        python_state, numpy_state = random.getstate(), np.random.get_state()
        try:
            if seed is not None:
                seed_all(seed, device)
            yield
        finally:
            for generator, state in zip(generators, torch_states):
                generator.set_state(state)
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def seed_all(seed: int, device: str | torch.device = "cpu") -> None:
    """Seed the generators of torch, ``random`` and numpy."""
    for generator in _torch_generators(device):
        generator.manual_seed(seed)  # not torch.manual_seed: without CUDA it formats a traceback at every call
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def _torch_generators(device: str | torch.device, everywhere: bool = False) -> list[torch.Generator]:
    """Return torch's generator of the CPU, and for CUDA that of the device, or those of all devices."""
    device = torch.device(device)
    if device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    every = torch.cuda.default_generators
    return [torch.default_generator, *(every if everywhere else [every[index]])]
