"""Isaac Gym's ``gymtorch``; all tensors are torch's, so wrapping returns them unchanged."""

from torch import Tensor


def wrap_tensor(tensor: Tensor | None, offsets: object = None, counts: object = None) -> Tensor | None:
    """Return the tensor itself; None if there is none, as without DOFs."""
    if offsets is not None or counts is not None:
        raise NotImplementedError("wrap_tensor: offsets and counts are not supported")
    return tensor


def unwrap_tensor(tensor: Tensor | None) -> Tensor | None:
    """Return the tensor itself; raise ValueError if it is not contiguous, as Isaac Gym does."""
    if tensor is not None and not tensor.is_contiguous():
        raise ValueError("unwrap_tensor: the tensor is not contiguous; call .contiguous() first")
    return tensor
