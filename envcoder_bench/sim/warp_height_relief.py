"""Data of height fields that let the search for contacts skip cells: the highest node ahead, and ridges."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco_warp as mjw
import numpy as np
import warp as wp

SPAN = 8  # cells along each axis whose highest node is known in advance
FLAT = 1.0e-5  # change of slope below which two cells count as one plane: MuJoCo keeps heights as float32, 0 to 1
RIDGES_X, RIDGES_Y, RIDGES_DIAGONAL = 1, 2, 4


def add_relief(model: mjw.Model) -> None:
    """Add ``hfield_ceiling`` and ``hfield_ridges`` to a model: one number for each node, in the order of the heights.

    The ceiling is the highest node of the next SPAN cells along both axes. Ridges are bits: which of the node's edges,
    along x, along y and to the diagonal neighbour, are higher than the surface beside them.
    """
    heights, starts = model.hfield_data.numpy(), model.hfield_adr.numpy()
    rows, columns = model.hfield_nrow.numpy(), model.hfield_ncol.numpy()
    ceiling, ridges = np.zeros_like(heights), np.zeros(len(heights), dtype=np.int32)
    for first, nrow, ncol in zip(starts, rows, columns):
        own = slice(first, first + nrow * ncol)
        z = heights[own].reshape(nrow, ncol)
        ceiling[own] = _highest(_highest(z).T).T.ravel()
        ridges[own] = _ridges(z.astype(np.float64)).ravel()
    model.hfield_ceiling = wp.array(ceiling, dtype=float, device=model.hfield_data.device)
    model.hfield_ridges = wp.array(ridges, dtype=int, device=model.hfield_data.device)


def _highest(z: np.ndarray) -> np.ndarray:
    """Return the greatest of each number and the next SPAN in its column."""
    padded = np.pad(z, ((0, SPAN), (0, 0)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, SPAN + 1, axis=0).max(axis=-1)


def _ridges(z: np.ndarray) -> np.ndarray:
    """Return the bits of ``add_relief`` for heights ``(rows, columns)``; edges at the border count as ridges."""
    bits = np.full(z.shape, RIDGES_X | RIDGES_Y | RIDGES_DIAGONAL, dtype=np.int32)
    # the slope along y above an edge along x, and below it; likewise with x and y exchanged
    x_bend = (z[2:, 1:] - z[1:-1, 1:]) - (z[1:-1, :-1] - z[:-2, :-1])
    y_bend = (z[1:, 2:] - z[1:, 1:-1]) - (z[:-1, 1:-1] - z[:-1, :-2])
    diagonal_bend = z[1:, :-1] + z[:-1, 1:] - z[:-1, :-1] - z[1:, 1:]
    bits[1:-1, :-1] &= ~np.where(x_bend < -FLAT, 0, RIDGES_X)
    bits[:-1, 1:-1] &= ~np.where(y_bend < -FLAT, 0, RIDGES_Y)
    bits[:-1, :-1] &= ~np.where(diagonal_bend < -FLAT, 0, RIDGES_DIAGONAL)
    return bits
