"""What a simulator refreshes in place: the poses for pictures, and the tensors that it saves and restores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class PoseSource:
    """Live poses of a batch of simulations of one model.

    Attributes:
        model: the model, an MjModel.
        source: ``(num_envs, nq)`` poses, which the simulator refreshes in place, or a function that returns them.
        mocap: live ``(num_envs, nmocap, 3)`` positions and ``(num_envs, nmocap, 4)`` quaternions; None without them.
    """

    model: Any
    source: np.ndarray | Callable[[], np.ndarray]
    mocap: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def qpos(self) -> np.ndarray:
        """The present poses."""
        return self.source() if callable(self.source) else self.source


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
