"""The ``state_dict`` of candidate functions, and the detection of changes to it."""

from __future__ import annotations

from typing import Dict, Iterable, NoReturn

import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches


class StateDict(Dict[str, Tensor]):
    """A read-only dict of one group's tensors, whose KeyError names near matches.

    It is a subclass of dict, so that TorchScript accepts it as ``Dict[str, Tensor]``.
    """

    def __missing__(self, key: str) -> NoReturn:
        known = near_matches(str(key), self) or f"; its keys are {', '.join(self)}"
        raise KeyError(f"state_dict has no key {key!r}{known}")

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "state_dict is read-only: return new tensors instead of changing it, or work on a copy, dict(state_dict)"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def copy(self) -> dict[str, Tensor]:
        """Return a plain dict of the same tensors, which may be changed."""
        return dict(self)


def own_constants(constants: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Clone the task's constants for one group.

    Single numbers stay on the CPU, where ``.item()`` and arithmetic with device tensors cost no sync. Index tensors go
    to the device: indexing a CUDA tensor with a CPU tensor copies it at every call, which syncs and cannot be captured.
    """
    return {key: x.clone() if x.dim() == 0 else x.to(device, copy=True) for key, x in constants.items()}


class Watch:
    """Detects in-place changes of tensors by torch's version counters, which views share with their base.

    Writes that bypass torch (``.numpy()``, ``.data``) are not detected. The simulator writes in this way; such writes
    of candidates are found by ``check``, which compares values.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors: list[Tensor] = list({id(base): base for base in map(base_of, tensors)}.values())
        self.mark()

    def mark(self) -> None:
        """Store the present versions of the tensors."""
        self._versions = [x._version for x in self._tensors]

    def changed(self) -> Tensor | None:
        """Return the base of a tensor that has changed since the last mark, or None; then mark all tensors."""
        versions = [x._version for x in self._tensors]
        if versions == self._versions:
            return None
        before, self._versions = self._versions, versions
        return next(x for x, old, new in zip(self._tensors, before, versions) if old != new)


class ContiguousCopy:
    """A contiguous copy of a live tensor, refreshed when the tensor has changed."""

    def __init__(self, live: Tensor) -> None:
        self.tensor = live.contiguous()
        self._live, self._version = live, live._version

    def refresh(self) -> None:
        if self._live._version != self._version:
            self.tensor.copy_(self._live)
            self._version = self._live._version


def base_of(x: Tensor) -> Tensor:
    """Return the tensor that ``x`` is a view of, or ``x``."""
    return x if x._base is None else x._base
