"""Height fields against heights computed by hand."""

import numpy as np
import pytest

from mujoco_batches import terrain_utils as terrains


def flat(width=40, length=40):
    return terrains.SubTerrain("t", width, length, vertical_scale=0.005, horizontal_scale=0.1)


@pytest.mark.parametrize("slope", [0.2, -0.2])
def test_pyramid_rises_to_its_platform(slope):
    heights = terrains.pyramid_sloped_terrain(flat(), slope, platform_size=1.0).height_field_raw * 0.005
    assert heights[0].max() == heights[:, -1].max() == 0
    assert heights[10, 20] == pytest.approx(slope * 1.0)
    assert heights[20, 20] == heights[16, 22] == pytest.approx(slope * 1.5)  # 15 cells up, then flat


def test_pyramid_stairs_are_flat_between_steps():
    heights = terrains.pyramid_stairs_terrain(flat(), 0.31, 0.15, platform_size=1.0).height_field_raw
    assert heights[:, 20][:9].tolist() == [0, 0, 0, 30, 30, 30, 60, 60, 60]
    assert heights[20, 20] == 150


def test_random_heights_are_multiples_of_the_step():
    np.random.seed(0)
    heights = terrains.random_uniform_terrain(flat(), -0.1, 0.1, step=0.05).height_field_raw
    assert set(np.unique(heights)) == {-20, -10, 0, 10, 20}
    smooth = terrains.random_uniform_terrain(flat(), -0.1, 0.1, 0.05, downsampled_scale=0.5).height_field_raw
    assert np.abs(np.diff(smooth, axis=0)).max() <= 10 and np.abs(smooth).max() <= 20


def test_obstacles_and_stones_leave_the_platform_flat():
    np.random.seed(0)
    boxes = terrains.discrete_obstacles_terrain(flat(), 0.2, 0.3, 0.8, 30, platform_size=1.0).height_field_raw
    assert set(np.unique(boxes)) == {-40, -20, 0, 20, 40} and not boxes[15:25, 15:25].any()
    stones = terrains.stepping_stones_terrain(flat(), 0.5, 0.2, 0.0, platform_size=1.0).height_field_raw
    assert set(np.unique(stones)) == {-2000, 0} and not stones[15:25, 15:25].any()
    assert 0.3 < (stones == 0).mean() < 0.8


def test_triangles_cover_the_field_and_face_up():
    raw = np.arange(12, dtype=np.int16).reshape(3, 4)
    vertices, triangles = terrains.convert_heightfield_to_trimesh(raw, 0.1, 0.005)
    assert vertices.shape == (12, 3) and triangles.shape == (12, 3)
    assert vertices[6].tolist() == pytest.approx([0.1, 0.2, 0.03])
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    assert (normals[:, 2] > 0).all() and normals[:, 2].sum() / 2 == pytest.approx(0.2 * 0.3)


def test_steep_steps_become_vertical_walls():
    raw = np.zeros((4, 4), dtype=np.int16)
    raw[2:] = 100
    vertices, _ = terrains.convert_heightfield_to_trimesh(raw, 0.1, 0.005, slope_threshold=0.75)
    points = vertices.reshape(4, 4, 3)
    assert points[:, 1, 0].tolist() == pytest.approx([0, 0.2, 0.2, 0.3])  # the foot of the wall is under its top
    assert points[:, 1, 2].tolist() == pytest.approx([0, 0, 0.5, 0.5])


@pytest.mark.parametrize("slope", [0.25, -0.25])
def test_slope_rises_only_along_x(slope):
    heights = terrains.sloped_terrain(flat(30, 20), slope).height_field_raw * 0.005
    assert heights[:, 0].tolist() == pytest.approx((slope * 0.1 * np.arange(30)).tolist(), abs=0.0051)
    assert not np.diff(heights, axis=1).any()


def test_straight_stairs_have_one_height_per_step():
    heights = terrains.stairs_terrain(flat(12, 4), 0.31, 0.1).height_field_raw
    assert heights[:, 2].tolist() == [20] * 3 + [40] * 3 + [60] * 3 + [80] * 3


def test_waves_stay_within_their_amplitude_and_repeat():
    heights = terrains.wave_terrain(flat(40, 40), num_waves=2, amplitude=1.0).height_field_raw * 0.005
    assert np.abs(heights).max() == pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(heights[:20], heights[20:], atol=0.0051)


def test_generators_add_to_the_terrain_and_return_it():
    terrain = terrains.pyramid_sloped_terrain(flat(), 0.2)
    before = terrain.height_field_raw.copy()
    np.random.seed(0)
    assert terrains.random_uniform_terrain(terrain, -0.05, 0.05, step=0.005, downsampled_scale=0.2) is terrain
    assert np.abs(terrain.height_field_raw - before).max() <= 10 and (terrain.height_field_raw != before).any()
    assert terrain.height_field_raw.dtype == np.int16
