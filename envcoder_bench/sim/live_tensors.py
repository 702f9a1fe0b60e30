"""Saving of a set of live tensors, and restoring in place."""

from torch import Tensor


def save(live: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors on the CPU."""
    return {key: tensor.detach().cpu().clone() for key, tensor in live.items()}


def restore(live: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    """Copy the result of ``save`` to the live tensors.

    Raises:
        ValueError: keys, shapes or dtypes differ, because it was saved with another model, number of environments or
            simulator. Nothing is restored then.
    """
    if saved.keys() != live.keys():
        raise ValueError(f"this state was saved by another kind of simulator: it has {sorted(saved)}")
    for key, tensor in live.items():
        if saved[key].shape != tensor.shape or saved[key].dtype != tensor.dtype:
            raise ValueError(
                f"this state was saved from another simulation: {key} is {tuple(saved[key].shape)} {saved[key].dtype}, "
                f"expected {tuple(tensor.shape)} {tensor.dtype}"
            )
    for key, tensor in live.items():
        tensor.copy_(saved[key])
