"""Isaac Gym's ``gymtorch``; all tensors are torch's, so wrapping returns them unchanged."""

from torch import Tensor


def wrap_tensor(tensor: Tensor, offsets: object = None, counts: object = None) -> Tensor | None:
    """Return the tensor itself; None for a tensor without axes, which scenes without DOFs have."""
    if offsets is not None or counts is not None:
        raise NotImplementedError("wrap_tensor: offsets and counts are not supported")
    return tensor if tensor.ndim else None


def unwrap_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor itself; raise ValueError if it is not contiguous, as Isaac Gym does."""
    if not tensor.is_contiguous():
        raise ValueError("unwrap_tensor: the tensor is not contiguous; call .contiguous() first")
    return tensor
