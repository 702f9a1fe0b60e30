"""The ``state_dict`` of candidate functions, and its constants."""

from typing import NoReturn

import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches


class StateDict(dict[str, Tensor]):
    """A read-only dict of one group's tensors, whose KeyError names near matches.

    It is a subclass of dict, so that TorchScript accepts it as ``Dict[str, Tensor]``.
    """

    def __missing__(self, key: str) -> NoReturn:
        hint = near_matches(str(key), self) or f"; its keys are {', '.join(self)}"
        raise KeyError(f"state_dict has no key {key!r}{hint}")

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
