"""Isaac Gym's ``terrain_utils``: the generators of ``envcoder_bench.terrain``, and their triangles."""

import numpy as np

from envcoder_bench.terrain.generators import (
    SubTerrain,
    discrete_obstacles_terrain,
    pyramid_sloped_terrain,
    pyramid_stairs_terrain,
    random_uniform_terrain,
    sloped_terrain,
    stairs_terrain,
    stepping_stones_terrain,
    wave_terrain,
)

__all__ = [
    "SubTerrain",
    "convert_heightfield_to_trimesh",
    "discrete_obstacles_terrain",
    "pyramid_sloped_terrain",
    "pyramid_stairs_terrain",
    "random_uniform_terrain",
    "sloped_terrain",
    "stairs_terrain",
    "stepping_stones_terrain",
    "wave_terrain",
]


def convert_heightfield_to_trimesh(
    height_field_raw: np.ndarray, horizontal_scale: float, vertical_scale: float, slope_threshold: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices ``(rows * columns, 3)`` float32 and triangles ``(2 (rows - 1) (columns - 1), 3)`` uint32.

    Where a height changes by more than ``slope_threshold`` between two cells, the lower vertex moves under the higher
    one, so that the step is a vertical wall.
    """
    rows, columns = height_field_raw.shape
    heights = height_field_raw.astype(np.float32) * vertical_scale
    x, y = (grid.astype(np.float32) for grid in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    if slope_threshold is not None:
        limit = slope_threshold * horizontal_scale
        for axis, moved in ((0, x), (1, y)):
            rise = np.diff(heights, axis=axis)
            shift = np.zeros((rows, columns), dtype=np.float32)
            lower, upper = (np.delete(np.arange(heights.shape[axis]), end) for end in (-1, 0))
            first = (lower, slice(None)) if axis == 0 else (slice(None), lower)
            second = (upper, slice(None)) if axis == 0 else (slice(None), upper)
            shift[first] += rise > limit  # the next cell is higher: go under it
            shift[second] -= rise < -limit
            moved += shift
    vertices = np.stack([x * horizontal_scale, y * horizontal_scale, heights], axis=-1).reshape(-1, 3)
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    upper = np.stack([corner, corner + columns + 1, corner + 1], axis=1)
    lower = np.stack([corner, corner + columns, corner + columns + 1], axis=1)
    triangles = np.stack([upper, lower], axis=1).reshape(-1, 3)
    return vertices.astype(np.float32), triangles.astype(np.uint32)
