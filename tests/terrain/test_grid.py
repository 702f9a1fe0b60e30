"""The grid of terrains: sizes of stairs and slopes, shares of types, origins, and equal grids from equal parameters."""

import numpy as np
import pytest
import torch

from envcoder_bench.terrain.grid import TYPES, GridParams, column_types, make_grid, step_height
from envcoder_bench.terrain.scan import HeightLookup
from mujoco_batches import terrain_utils as generators

SMALL = GridParams(levels=3, terrains=10, spacing=0.1)


@pytest.fixture(scope="module")
def grid():
    return make_grid(SMALL)


def tile(grid, row, column):
    heights = grid.ground.height_fields[0].heights
    return heights[row * 80 : row * 80 + 80, column * 80 : column * 80 + 80]


def test_columns_follow_the_proportions_of_types():
    counts = np.bincount(column_types(GridParams()), minlength=len(TYPES))
    assert counts.tolist() == [2, 2, 7, 5, 4, 0]
    assert set(column_types(GridParams(proportions=(0.5,), terrains=4))) == {0, 1}  # the next type gets the rest
    assert column_types(GridParams(proportions=(0, 0, 0, 0, 0), terrains=3)) == (5, 5, 5)


def test_stairs_rise_by_the_step_of_their_level(grid):
    kinds = [TYPES[k] for k in grid.types]
    for name, sign in (("stairs up", -1), ("stairs down", 1)):
        for row in range(3):
            across = tile(grid, row, kinds.index(name))[:40, 40]
            steps = np.diff(across)
            rises = np.unique(np.round(steps[np.abs(steps) > 1e-6], 4))
            assert rises == pytest.approx([sign * int(step_height(row / 3) / 0.005) * 0.005])
            assert abs(across[0]) < 1e-6 and np.all(steps * sign >= 0)


def test_slopes_have_their_angle_and_half_of_them_descend(grid):
    own = [k for k, kind in enumerate(grid.types) if TYPES[kind] == "smooth slope"]
    many = make_grid(GridParams(levels=3, terrains=4, spacing=0.1, proportions=(1.0,)))
    middles = [many.origins[2, k, 2] for k in range(4)]
    assert sorted(np.sign(middles)) == [-1, -1, 1, 1]
    across = tile(grid, 2, own[0])[:20, 40]
    assert np.abs(np.diff(across)).mean() / 0.1 == pytest.approx(0.4 * 2 / 3, abs=0.02)


def test_origins_are_on_the_ground_in_tile_centres(grid):
    lookup = HeightLookup(grid.ground)
    origins = torch.from_numpy(grid.origins).view(-1, 3)
    assert origins[:, 0].unique().tolist() == [4, 12, 20] and len(origins[:, 1].unique()) == 10
    platform = torch.tensor([[-1.0, -1.0], [1.0, 0.9], [0.0, 0.0]])
    for offset in platform:
        below = origins[:, 2] - lookup.heights(origins[:, :2] + offset)
        assert below.min() >= -1e-6 and below.max() < 0.25  # rough slopes are not flat there


def test_border_is_flat_all_around(grid):
    lookup = HeightLookup(grid.ground)
    outside = torch.tensor([[-19.0, 5.0], [24.0 + 19, 79.0], [12.0, -19.0], [3.0, 80 + 19.0], [-10.0, -10.0]])
    assert lookup.heights(outside).tolist() == [0.0] * 5
    assert (lookup.zones(outside) > 0).all()
    assert lookup.zones(torch.from_numpy(grid.origins).view(-1, 3)[:, :2]).tolist() == [0] * 30


def test_grid_depends_only_on_parameters_and_seed(grid):
    np.random.seed(5)
    again = make_grid.__wrapped__(SMALL)
    assert np.array_equal(again.ground.height_fields[0].heights, grid.ground.height_fields[0].heights)
    other = make_grid(GridParams(levels=3, terrains=10, spacing=0.1, seed=1))
    kinds = [TYPES[k] for k in grid.types]
    same = [np.array_equal(tile(grid, 1, k), tile(other, 1, k)) for k in range(10)]
    assert same == [kind not in ("rough slope", "discrete") for kind in kinds]


def test_isaac_gym_terrain_utils_are_the_same_generators():
    ours, theirs = (generators.SubTerrain("t", 60, 60, 0.005, 0.1) for _ in "12")
    np.random.seed(3)
    generators.discrete_obstacles_terrain(ours, 0.2, 0.5, 1.0, 10)
    generators.discrete_obstacles_terrain(theirs, 0.2, 0.5, 1.0, 10, rng=np.random.RandomState(3))
    assert np.array_equal(ours.height_field_raw, theirs.height_field_raw) and ours.height_field_raw.any()


@pytest.mark.parametrize(
    "numbers, message",
    [
        ({"levels": 0}, "at least one level"),
        ({"proportions": (0.5, 0.6)}, "add up to at most 1, not 1.1"),
        ({"proportions": (-0.1,)}, "of at least 0"),
        ({"length": 2.0}, "tiles of at least 4 m"),
        ({"spacing": 0.3}, "must be multiples of the spacing 0.3 m, not 8 m"),
        ({"spacing": 0.0}, "a spacing of up to 0.5 m"),
    ],
)
def test_invalid_parameters_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        GridParams(**numbers)
