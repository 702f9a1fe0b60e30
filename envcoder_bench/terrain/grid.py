"""A grid of terrain tiles: a column for each sort of terrain, and rows of rising difficulty."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from envcoder_bench.sim.ground import Box, Ground, HeightField
from mujoco_batches import terrain_utils as generators
from mujoco_batches.terrain_utils import SubTerrain

VERTICAL = 0.005  # m; heights are multiples of it
TYPES = ("smooth slope", "rough slope", "stairs up", "stairs down", "discrete", "stepping stones")
MIDDLE = 1.0  # m: a tile's origin is as high as the ground within this distance of its middle
STEP_WIDTH, PLATFORM = 0.31, 3.0  # m


@dataclass(frozen=True)
class GridParams:
    """The numbers of a grid, with IsaacGymEnvs' names.

    Attributes:
        proportions: share of the columns of each of ``TYPES``; the last one gets the rest.
        levels, terrains: number of rows and columns.
        length, width: size of a tile along x and y, m.
        spacing: distance of the nodes, m.
        border: width of the flat ground around the grid, m.
        friction: friction of the whole ground.
        seed: seed of the random parts.
    """

    proportions: tuple[float, ...] = (0.1, 0.1, 0.35, 0.25, 0.2)
    levels: int = 10
    terrains: int = 20
    length: float = 8.0
    width: float = 8.0
    spacing: float = 0.05
    border: float = 20.0
    friction: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.levels < 1 or self.terrains < 1:
            raise ValueError(f"a grid needs at least one level and one terrain, not {self.levels} and {self.terrains}")
        if not self.proportions or len(self.proportions) > len(TYPES) or min(self.proportions) < 0:
            raise ValueError(f"terrain proportions must be up to {len(TYPES)} numbers of at least 0: {TYPES}")
        if sum(self.proportions) > 1 + 1e-6:
            raise ValueError(f"terrain proportions must add up to at most 1, not {sum(self.proportions):g}")
        if min(self.length, self.width) < PLATFORM + 1 or not 0 < self.spacing <= 0.5 or self.border < 0:
            raise ValueError(
                f"a grid needs tiles of at least {PLATFORM + 1:g} m, a spacing of up to 0.5 m and a border of at least "
                f"0 m, not {self.length:g}, {self.width:g}, {self.spacing:g} and {self.border:g}"
            )
        for side in (self.length, self.width):
            if abs(side / self.spacing - round(side / self.spacing)) > 1e-6:
                raise ValueError(f"a tile's sides must be multiples of the spacing {self.spacing:g} m, not {side:g} m")


@dataclass(frozen=True, eq=False)
class TerrainGrid:
    """A grid of tiles as a ground.

    Attributes:
        ground: its height field, whose corner is at x = y = 0, and the flat border as boxes.
        origins: ``(levels, terrains, 3)`` float32, the middle of each tile, m; z is the highest ground near it.
        types: for each column, its index in ``TYPES``.
    """

    ground: Ground
    origins: np.ndarray
    types: tuple[int, ...]


def column_types(params: GridParams) -> tuple[int, ...]:
    """Return the index in ``TYPES`` for each column, by ``proportions``."""
    ends = np.cumsum(params.proportions)
    shares = np.arange(params.terrains) / params.terrains
    # shares are sums of decimal fractions: 1e-9 absorbs their rounding
    types = [int(np.searchsorted(ends, share + 1e-9, side="right")) for share in shares]
    return tuple(min(kind, len(TYPES) - 1) for kind in types)


def step_height(difficulty: float) -> float:
    """Return the height of a step of stairs, m."""
    return 0.05 + 0.175 * difficulty


def tile(
    kind: int, difficulty: float, nx: int, ny: int, params: GridParams, sign: int, rng: generators.Random
) -> np.ndarray:
    """Return the heights ``(nx, ny)``, m, of a tile.

    Args:
        kind: index in ``TYPES``.
        difficulty: 0 to 1.
        sign: 1 for slopes that rise towards the middle, -1 for slopes that fall.
    """
    terrain = SubTerrain("terrain", nx, ny, VERTICAL, params.spacing)
    slope = sign * 0.4 * difficulty
    name = TYPES[kind]
    if name == "smooth slope":
        generators.pyramid_sloped_terrain(terrain, slope, PLATFORM)
    elif name == "rough slope":
        generators.pyramid_sloped_terrain(terrain, slope, PLATFORM)
        generators.random_uniform_terrain(terrain, -0.1, 0.1, 0.025, 0.2, rng)
    elif name == "stairs up":  # the robot begins at the bottom of a pit
        generators.pyramid_stairs_terrain(terrain, STEP_WIDTH, -step_height(difficulty), PLATFORM)
    elif name == "stairs down":
        generators.pyramid_stairs_terrain(terrain, STEP_WIDTH, step_height(difficulty), PLATFORM)
    elif name == "discrete":
        generators.discrete_obstacles_terrain(terrain, 0.025 + 0.15 * difficulty, 1.0, 2.0, 40, PLATFORM, rng)
    else:
        generators.stepping_stones_terrain(terrain, 2.0 - 1.8 * difficulty, 0.1, 0.0, PLATFORM, -2.0, rng)
    return terrain.height_field_raw.astype(np.float32) * np.float32(VERTICAL)


@lru_cache(maxsize=4)
def make_grid(params: GridParams) -> TerrainGrid:
    """Build a grid; equal parameters give the same object.

    Row i has the difficulty i / levels. Rows are along x, columns along y.
    """
    nx, ny = (round(side / params.spacing) for side in (params.length, params.width))
    heights = np.zeros((params.levels * nx + 1, params.terrains * ny + 1), dtype=np.float32)
    origins = np.zeros((params.levels, params.terrains, 3), dtype=np.float32)
    types = column_types(params)
    rng = np.random.RandomState(params.seed)
    near = round(MIDDLE / params.spacing)
    for column, kind in enumerate(types):
        columns_of_kind = [j for j, other in enumerate(types) if other == kind]
        sign = -1 if column in columns_of_kind[: len(columns_of_kind) // 2] else 1  # half of the slopes fall
        for row in range(params.levels):
            tile_heights = tile(kind, row / params.levels, nx, ny, params, sign, rng)
            heights[row * nx : (row + 1) * nx, column * ny : (column + 1) * ny] = tile_heights
            middle = tile_heights[nx // 2 - near : nx // 2 + near, ny // 2 - near : ny // 2 + near]
            origin = ((row + 0.5) * params.length, (column + 0.5) * params.width, float(middle.max()))
            origins[row, column] = origin
    field = HeightField(heights, params.spacing, (0.0, 0.0), params.friction)
    return TerrainGrid(Ground((field,), _border(field, params)), origins, types)


def _border(field: HeightField, params: GridParams) -> tuple[Box, ...]:
    """Return flat ground around the field, at height 0, 1 m thick."""
    if params.border == 0:
        return ()
    (length, width), wide = field.size, params.border
    across = width + 2 * wide
    sides = [
        ((-wide / 2, width / 2), (wide, across)),
        ((length + wide / 2, width / 2), (wide, across)),
        ((length / 2, -wide / 2), (length, wide)),
        ((length / 2, width + wide / 2), (length, wide)),
    ]
    return tuple(Box((x, y, -0.5), (along, deep, 1.0), 0.0, params.friction) for (x, y), (along, deep) in sides)
