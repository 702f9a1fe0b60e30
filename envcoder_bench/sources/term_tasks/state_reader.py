"""Keys of ``state_dict`` that are read from the objects of a framework."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import Tensor

from envcoder_bench.tasks.base import Field

Read = Callable[[], Tensor]


class StateReader:
    """Copies what functions read of a scene into tensors that stay in place.

    Args:
        sources: the tensors to read, each with its unit and meaning.

    Attributes:
        tensors: ``(num_envs, ...)`` float32 by key.
        used: the keys that any function reads; None for all.
    """

    def __init__(self, sources: dict[str, tuple[Read, str, str]]) -> None:
        self._sources = sources
        self.tensors = {key: read().detach().float().clone() for key, (read, _, _) in sources.items()}
        self.used: Collection[str] | None = None

    def refresh(self, everything: bool = False) -> None:
        """Read the present values."""
        for key, (read, _, _) in self._sources.items():
            if everything or self.used is None or key in self.used:
                self.tensors[key].copy_(read())

    def fields(self) -> dict[str, Field]:
        """Return the declarations of the keys."""
        return {
            key: Field(tuple(self.tensors[key].shape[1:]), unit, meaning)
            for key, (_, unit, meaning) in self._sources.items()
        }
