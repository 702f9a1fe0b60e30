"""Copies of the state as the inputs of functions that are called, so that nothing they write reaches the state.

Python code can write into a tensor in ways that torch does not notice: ``x.data``, ``x.numpy()``, DLPack, a storage
that it kept. So a function that is called receives copies of its group's rows. They are refreshed before a call and
compared with the state after it, bit by bit; the group of a copy that differs has changed its input. The copies of each
group are in memory of their own, so that one group's functions cannot reach another's.

Compiled functions read the state itself, as a kernel writes nothing but its results.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from envcoder_bench.compile.program import ACTION
from envcoder_bench.shaping.state import StateDict

ALIGNMENT = 64  # bytes


class Block:
    """Contiguous tensors in one piece of memory: ``tensors``, of given shapes, and all of it as int64 ``words``."""

    def __init__(self, like: Sequence[Tensor], device: torch.device) -> None:
        sizes = [x.numel() * x.element_size() for x in like]
        starts = [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
        self.words = torch.zeros(starts[-1] // 8, dtype=torch.int64, device=device)
        memory = self.words.view(torch.uint8)
        self.tensors = [
            memory[start : start + size].view(x.dtype).view(x.shape) for x, start, size in zip(like, starts, sizes)
        ]
        self._bytes = self.words.untyped_storage().nbytes()

    @property
    def is_resized(self) -> bool:
        """Whether someone resized the memory, after which the tensors must not be read."""
        return self.words.untyped_storage().nbytes() != self._bytes


class Inputs:
    """The inputs of one function. Its tensor objects belong to it; replacing them does not affect other functions.

    Attributes:
        state, action: the state and the policy's action.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = {name: x.detach() for name, x in tensors.items()}
        self._addresses = [x.data_ptr() for x in self._tensors.values()]
        self.action = self._tensors[ACTION]
        self.state = StateDict({name: x for name, x in self._tensors.items() if name != ACTION})

    def moved(self) -> str | None:
        """Return the name of a tensor whose memory was replaced, as by ``x.data = y`` and ``x.set_(y)``, or None."""
        addresses = [x.data_ptr() for x in self._tensors.values()]
        if addresses == self._addresses:
            return None
        return next(name for name, a, b in zip(self._tensors, addresses, self._addresses) if a != b)


class Job(NamedTuple):
    """A tensor on a CUDA device of one group: the ``key``-th of its names, the live rows, and their copy."""

    group: int
    key: int
    live: Tensor
    copy: Tensor


class GroupCopies:
    """The copies of one group.

    Tensors on the CPU are refreshed and compared here; with CUDA, these are the constants that are single numbers.
    ``DeviceCopies`` takes the ``jobs`` of all groups on a CUDA device.

    Args:
        live: the group's views of the state, and of the action.
        constants: the task's constants, where functions read them.
    """

    def __init__(self, group: int, live: Mapping[str, Tensor], action: Tensor, constants: Mapping[str, Tensor]) -> None:
        sources = {**live, ACTION: action, **constants}
        self.names = list(sources)
        # tensors on the CPU are copied and compared here, those on a device by kernels
        host = {name: x for name, x in sources.items() if is_on_host(x)}
        device = {name: x for name, x in sources.items() if name not in host}
        self._host_names = list(host)
        self._given, self._expected = (Block(list(host.values()), torch.device("cpu")) for _ in range(2))
        for copy, x in zip(self._expected.tensors, host.values()):
            copy.copy_(x)
        # constants are copied once, other tensors before each call
        changing = [k for k, name in enumerate(host) if name not in constants]
        self._live = [host[self._host_names[k]] for k in changing]
        self._refreshed = [self._expected.tensors[k] for k in changing]
        # one job for each tensor on the device
        on_device = Block(list(device.values()), action.device)
        self._on_device = on_device
        self.jobs = [
            Job(group, self.names.index(name), x, copy) for (name, x), copy in zip(device.items(), on_device.tensors)
        ]
        copies = dict(zip([*host, *device], [*self._given.tensors, *on_device.tensors]))
        self._copies = {name: copies[name] for name in self.names}
        self.refresh()

    def inputs(self) -> Inputs:
        """Return the inputs of one more function."""
        return Inputs(self._copies)

    def refresh(self) -> None:
        """Copy the live values on the CPU."""
        if self._live:
            torch._foreach_copy_(self._refreshed, self._live)  # pyright: ignore[reportPrivateImportUsage]
        self._given.words.copy_(self._expected.words)

    def changed(self) -> str | None:
        """Return the name of a copy on the CPU that differs from the values of the last ``refresh``, or None."""
        if self._given.is_resized or self._on_device.is_resized:
            return self.names[0]
        if torch.equal(self._given.words, self._expected.words):
            return None
        pairs = zip(self._host_names, self._given.tensors, self._expected.tensors)
        return next((name for name, a, b in pairs if not torch.equal(_bits(a), _bits(b))), self.names[0])


class Changes(NamedTuple):
    """The first change of its inputs by each group in a stage: ``(num_groups,)``, -1 without a change.

    Attributes:
        step: int64, the step.
        key: int32, the index of the name in ``GroupCopies.names``.
    """

    step: Tensor
    key: Tensor


def no_changes(num_groups: int, device: torch.device) -> Changes:
    """Return the flags of a stage before its first run."""
    return Changes(*(torch.full((num_groups,), -1, dtype=kind, device=device) for kind in (torch.int64, torch.int32)))


class Guard:
    """Refreshes copies before calls, and compares them after the calls. This class is for a state without a device."""

    def refresh(self) -> None:
        """Copy the live values."""

    def compare(self) -> None:
        """Mark the groups whose copies differ."""


class DeviceCopies:
    """The copies of all groups on a CUDA device. This class is for a state on the CPU, which needs no such copies."""

    def guard(self, groups: Iterable[int], changes: Changes) -> Guard:
        """Return the guard of some groups, which sets ``changes``."""
        return Guard()


def is_on_host(x: Tensor) -> bool:
    """Return whether ``GroupCopies`` itself compares a tensor."""
    return x.device.type == "cpu"


def _bits(x: Tensor) -> Tensor:
    """Return the bytes of a tensor; NaN equals the same NaN."""
    return x.contiguous().reshape(-1).view(torch.uint8)
