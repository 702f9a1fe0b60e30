"""Isaac Gym's ``gymtorch``: its tensors are torch's here, so wrapping returns them as they are."""

from __future__ import annotations

from torch import Tensor


def wrap_tensor(tensor: Tensor, offsets: object = None, counts: object = None) -> Tensor:
    """Return the tensor itself."""
    if offsets is not None or counts is not None:
        raise NotImplementedError("wrap_tensor: offsets and counts are not supported")
    return tensor


def unwrap_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor itself; raises where it is not contiguous, as the original does."""
    if not tensor.is_contiguous():
        raise ValueError("unwrap_tensor: the tensor is not contiguous; call .contiguous() first")
    return tensor
