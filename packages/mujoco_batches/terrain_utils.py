"""Isaac Gym's ``terrain_utils``: generators of height fields for walking robots, and the fields' triangles.

A ``SubTerrain`` holds heights as int16 in units of ``vertical_scale``; the functions write to it and return it. Random
ones draw from ``rng``, by default numpy's global generator, which task code of Isaac Gym seeds.
"""

from typing import Any

import numpy as np

Random = Any  # np.random.RandomState, or the module np.random, which has the same functions


class SubTerrain:
    """A rectangle of ``width`` by ``length`` cells of ``horizontal_scale`` m; all heights are 0."""

    def __init__(
        self,
        terrain_name: str = "terrain",
        width: int = 256,
        length: int = 256,
        vertical_scale: float = 1.0,
        horizontal_scale: float = 1.0,
    ) -> None:
        self.terrain_name = terrain_name
        self.width, self.length = width, length
        self.vertical_scale, self.horizontal_scale = vertical_scale, horizontal_scale
        self.height_field_raw = np.zeros((width, length), dtype=np.int16)


def _edge_distance(terrain: SubTerrain) -> np.ndarray:
    """Return each cell's distance to the nearest edge, in cells: 0 at the edge."""
    x, y = np.arange(terrain.width), np.arange(terrain.length)
    return np.minimum.outer(np.minimum(x, x[::-1]), np.minimum(y, y[::-1]))


def _cells(terrain: SubTerrain, metres: float) -> int:
    return int(metres / terrain.horizontal_scale)


def _middle(terrain: SubTerrain, platform_size: float) -> tuple[slice, slice]:
    """Return the square of ``platform_size`` m in the middle."""
    half = _cells(terrain, platform_size) // 2
    x, y = terrain.width // 2, terrain.length // 2
    return slice(max(0, x - half), x + half), slice(max(0, y - half), y + half)


def sloped_terrain(terrain: SubTerrain, slope: float = 1.0) -> SubTerrain:
    """Add a plane that rises by ``slope`` along x from the first edge; negative falls."""
    rise = slope * terrain.horizontal_scale / terrain.vertical_scale
    terrain.height_field_raw += (np.arange(terrain.width) * rise).astype(np.int16)[:, None]
    return terrain


def pyramid_sloped_terrain(terrain: SubTerrain, slope: float = 1.0, platform_size: float = 1.0) -> SubTerrain:
    """Add a pyramid that rises by ``slope`` from the edges to a flat top of ``platform_size`` m; negative digs."""
    top = max(0, min(terrain.width, terrain.length) // 2 - _cells(terrain, platform_size) // 2)
    rise = slope * terrain.horizontal_scale / terrain.vertical_scale
    terrain.height_field_raw += (np.minimum(_edge_distance(terrain), top) * rise).astype(np.int16)
    return terrain


def random_uniform_terrain(
    terrain: SubTerrain,
    min_height: float,
    max_height: float,
    step: float = 1.0,
    downsampled_scale: float | None = None,
    rng: Random = np.random,
) -> SubTerrain:
    """Add random heights between two bounds, m, in multiples of ``step``, drawn every ``downsampled_scale`` m.

    Between the drawn points heights are interpolated linearly.
    """
    spacing = terrain.horizontal_scale if downsampled_scale is None else downsampled_scale
    rows = max(2, int(terrain.width * terrain.horizontal_scale / spacing))
    columns = max(2, int(terrain.length * terrain.horizontal_scale / spacing))
    low, high, unit = (round(h / terrain.vertical_scale) for h in (min_height, max_height, step))
    drawn = rng.choice(np.arange(low, high + 1, max(1, unit)), (rows, columns))
    across = np.linspace(0, columns - 1, terrain.length)
    wide = np.stack([np.interp(across, np.arange(columns), row) for row in drawn])
    along = np.linspace(0, rows - 1, terrain.width)
    full = np.stack([np.interp(along, np.arange(rows), column) for column in wide.T], axis=1)
    terrain.height_field_raw += np.rint(full).astype(np.int16)
    return terrain


def wave_terrain(terrain: SubTerrain, num_waves: float = 1, amplitude: float = 1.0) -> SubTerrain:
    """Add ``num_waves`` waves along each axis; the field goes from ``-amplitude`` to ``amplitude`` m."""
    turns = [2 * np.pi * num_waves * np.arange(count) / count for count in (terrain.width, terrain.length)]
    heights = 0.5 * amplitude * np.add.outer(np.cos(turns[0]), np.sin(turns[1]))
    terrain.height_field_raw += (heights / terrain.vertical_scale).astype(np.int16)
    return terrain


def stairs_terrain(terrain: SubTerrain, step_width: float, step_height: float) -> SubTerrain:
    """Add stairs that rise by ``step_height`` m every ``step_width`` m along x, from the first edge; negative falls."""
    width = max(1, _cells(terrain, step_width))
    steps = 1 + np.arange(terrain.width) // width
    terrain.height_field_raw += (steps * int(step_height / terrain.vertical_scale)).astype(np.int16)[:, None]
    return terrain


def pyramid_stairs_terrain(
    terrain: SubTerrain, step_width: float, step_height: float, platform_size: float = 1.0
) -> SubTerrain:
    """Set square rings of stairs that rise by ``step_height`` m every ``step_width`` m to a flat top; negative digs."""
    width = max(1, _cells(terrain, step_width))
    top = max(0, min(terrain.width, terrain.length) // 2 - _cells(terrain, platform_size) // 2)
    steps = np.minimum(_edge_distance(terrain), top) // width
    terrain.height_field_raw[...] = steps * int(step_height / terrain.vertical_scale)
    return terrain


def discrete_obstacles_terrain(
    terrain: SubTerrain,
    max_height: float,
    min_size: float,
    max_size: float,
    num_rects: int,
    platform_size: float = 1.0,
    rng: Random = np.random,
) -> SubTerrain:
    """Set ``num_rects`` boxes and holes of random place and size, m; the middle stays flat."""
    height = int(max_height / terrain.vertical_scale)
    low, high = max(1, _cells(terrain, min_size)), max(2, _cells(terrain, max_size))
    for _ in range(num_rects):
        width, length = (min(int(rng.randint(low, high + 1)), side) for side in (terrain.width, terrain.length))
        x = rng.randint(0, terrain.width - width + 1)
        y = rng.randint(0, terrain.length - length + 1)
        terrain.height_field_raw[x : x + width, y : y + length] = rng.choice(
            [-height, -height // 2, height // 2, height]
        )
    terrain.height_field_raw[_middle(terrain, platform_size)] = 0
    return terrain


def stepping_stones_terrain(
    terrain: SubTerrain,
    stone_size: float,
    stone_distance: float,
    max_height: float,
    platform_size: float = 1.0,
    depth: float = -10.0,
    rng: Random = np.random,
) -> SubTerrain:
    """Set square stones with gaps of ``stone_distance`` m over a pit; stones are up to ``max_height`` m high or low."""
    stone, gap = max(1, _cells(terrain, stone_size)), _cells(terrain, stone_distance)
    height = int(max_height / terrain.vertical_scale)
    terrain.height_field_raw[...] = int(depth / terrain.vertical_scale)
    for x in range(0, terrain.width, stone + gap):
        shift = rng.randint(0, stone + gap)  # rows of stones do not line up
        for y in range(-shift, terrain.length, stone + gap):
            area = slice(x, x + stone), slice(max(0, y), max(0, y + stone))
            terrain.height_field_raw[area] = rng.randint(-height - 1, height) + 1 if height else 0
    terrain.height_field_raw[_middle(terrain, platform_size)] = 0
    return terrain


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
