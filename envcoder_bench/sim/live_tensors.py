"""Saving and restoring a set of live tensors in place."""

from __future__ import annotations

from torch import Tensor


def save(live: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the CPU, in memory of their own."""
    return {key: tensor.detach().cpu().clone() for key, tensor in live.items()}


def restore(live: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    """Copy what ``save`` returned back into the live tensors.

    Raises:
        ValueError: the keys, shapes or dtypes differ: it was saved from another model, number of environments or
            simulator. Nothing is then restored.
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
