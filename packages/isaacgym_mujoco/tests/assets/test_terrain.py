"""Uneven ground: what becomes of height fields and meshes, and whether things rest, slide and stop on it."""

import numpy as np
import pytest
import torch
from isaacgym_scene import Scene, boxes_obj, gym, load, options, pose

from isaacgym_mujoco.api import gymapi, terrain_utils
from mujoco_batches.assets import terrain

BODY = """<robot name="r"><link name="a"><collision><origin rpy="{rpy}"/><geometry>{shape}</geometry></collision>
<inertial><mass value="10"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
</robot>"""
# each with the height of its centre above the ground it rests on
SHAPES = {
    "sphere": ('<sphere radius="0.03"/>', "0 0 0", 0.03),
    "capsule": ('<capsule radius="0.05" length="0.2"/>', "0 1.5707963267948966 0", 0.05),
    "cylinder": ('<cylinder radius="0.05" length="0.2"/>', "0 0 0", 0.1),
    "box": ('<box size="0.5 0.3 0.2"/>', "0 0 0", 0.1),
    "mesh": ('<mesh filename="cube.obj" scale="0.2 0.1 0.1"/>', "0 0 0", 0.1),
}


def field(raw, friction=1.0):
    """Add a height field of 0.1 m and 5 mm, whose first node lies at (-2, -2)."""
    params = gymapi.HeightFieldParams()
    params.nbColumns, params.nbRows = raw.shape
    params.row_scale = params.column_scale = 0.1
    params.vertical_scale = 0.005
    params.transform.p.x = params.transform.p.y = -2.0
    params.static_friction = params.dynamic_friction = friction
    return params


def mesh(vertices, triangles, friction=1.0):
    params = gymapi.TriangleMeshParams()
    params.nb_vertices, params.nb_triangles = len(vertices), len(triangles)
    params.transform.p.x = params.transform.p.y = -2.0
    params.static_friction = params.dynamic_friction = friction
    return vertices.flatten(order="C"), triangles.flatten(order="C"), params


def on_field(raw):
    return lambda sim: gym.add_heightfield(sim, raw, field(raw))


def plateau():
    raw = np.zeros((60, 50), dtype=np.int16)
    raw[30:] = 40  # 0.2 m from x = 1 on
    return raw


@pytest.mark.parametrize("shape", SHAPES)
def test_body_rests_at_the_height_of_the_field(tmp_path, shape):
    geometry, rpy, above = SHAPES[shape]
    (tmp_path / "cube.obj").write_text(boxes_obj(((-1, -1, -1), (1, 1, 1))))
    places = [(-1, 0, above + 0.02), (2, 0.33, 0.2 + above + 0.02), (-0.5, -0.97, above + 0.02)]
    body, place = load(tmp_path, BODY.format(shape=geometry, rpy=rpy)), lambda env: pose(*places[env])
    scene = Scene((body, place), num_envs=3, ground=on_field(plateau()), dt=0.005)
    scene.step(300)
    assert (scene.root[:, 2] - above).tolist() == pytest.approx([0, 0.2, 0], abs=1e-3)
    assert scene.contacts[:, 2].tolist() == pytest.approx([98.1] * 3, rel=0.02)
    assert (scene.root[:, :2] - torch.tensor(places)[:, :2]).abs().max() < 5e-3


def test_mesh_of_a_height_field_gives_the_height_field():
    np.random.seed(0)
    raw = np.random.randint(-100, 100, (30, 20)).astype(np.int16)
    vertices, triangles = terrain_utils.convert_heightfield_to_trimesh(raw, 0.1, 0.005, slope_threshold=0.75)
    assert (vertices[:, 0].reshape(30, 20) != 0.1 * np.arange(30, dtype=np.float32)[:, None]).any()  # there are walls
    of_mesh = terrain.from_triangles(*mesh(vertices, triangles))
    of_field = terrain.from_heightfield(raw, field(raw))
    np.testing.assert_allclose(of_mesh.heights, of_field.heights, atol=1e-6)
    assert of_mesh.spacing == pytest.approx(of_field.spacing)
    assert list(of_mesh.pose.p) == pytest.approx(list(of_field.pose.p), abs=1e-6)


def test_large_mesh_of_small_cells_gives_its_height_field():
    """At 200 m the rounding of single precision exceeds the tolerance of a cell."""
    raw = np.zeros((4001, 4), dtype=np.int16)
    raw[2000:2010] = raw[3990:3995] = 100  # walls, whose vertices are moved by a cell
    vertices, triangles = terrain_utils.convert_heightfield_to_trimesh(raw, 0.05, 0.005, slope_threshold=0.75)
    found = terrain.from_triangles(*mesh(vertices, triangles))
    assert found.heights.shape == raw.shape and found.spacing == pytest.approx((0.05, 0.05))
    np.testing.assert_allclose(found.heights, raw * 0.005, atol=1e-6)


def test_diagonal_of_the_triangles_does_not_matter():
    raw = np.arange(30 * 20).reshape(30, 20).astype(np.int16)
    vertices, _ = terrain_utils.convert_heightfield_to_trimesh(raw, 0.1, 0.005)
    corner = (np.arange(29)[:, None] * 20 + np.arange(19)).ravel()
    pairs = [np.stack([corner, corner + 20, corner + 1], 1), np.stack([corner + 1, corner + 20, corner + 21], 1)]
    found = terrain.from_triangles(*mesh(vertices, np.concatenate(pairs)))
    np.testing.assert_allclose(found.heights, raw * 0.005, atol=1e-6)


def test_triangles_of_all_sizes_give_their_common_plane():
    """A tilted plane in triangles smaller than a cell and larger than many cells."""
    x, y = np.meshgrid([0.0, 0.013, 0.4, 0.41, 3.0], [0.0, 0.02, 1.5, 2.0], indexing="ij")
    vertices = np.stack([x, y, 0.3 * x - 0.1 * y], -1).reshape(-1, 3)
    corner = (np.arange(4)[:, None] * 4 + np.arange(3)).ravel()
    faces = [np.stack([corner, corner + 4, corner + 5], 1), np.stack([corner, corner + 5, corner + 1], 1)]
    heights, spacing, low = terrain.rasterize(vertices, np.random.default_rng(0).permutation(np.concatenate(faces)))
    grid = [low[k] + np.arange(heights.shape[k]) * spacing[k] for k in (0, 1)]
    np.testing.assert_allclose(heights, 0.3 * grid[0][:, None] - 0.1 * grid[1], atol=1e-5)


def test_mesh_gives_its_upper_surface():
    top = np.array([[0, 0, 0.0], [4, 0, 0], [4, 4, 1], [0, 4, 1]])
    below = top - [0, 0, 3]
    triangles = np.array([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7]], dtype=np.uint32)
    found = terrain.from_triangles(*mesh(np.concatenate([below, top]), triangles))
    x, y = (np.arange(n) * found.spacing[0] for n in found.heights.shape)
    np.testing.assert_allclose(found.heights, np.broadcast_to(0.25 * y, (len(x), len(y))), atol=1e-5)
    assert x[-1] == pytest.approx(4) and list(found.pose.p) == [-2, -2, 0]


@pytest.mark.parametrize(("slope", "slides"), [(0.4, False), (0.6, True)])
def test_box_slides_if_the_slope_exceeds_friction(tmp_path, slope, slides):
    raw = terrain_utils.sloped_terrain(terrain_utils.SubTerrain("s", 60, 40, 0.005, 0.1), slope).height_field_raw
    vertices, triangles = terrain_utils.convert_heightfield_to_trimesh(raw, 0.1, 0.005)
    asset = load(tmp_path, BODY.format(shape='<box size="0.4 0.4 0.1"/>', rpy=f"0 {-np.arctan(slope)} 0"))
    shapes = gym.get_asset_rigid_shape_properties(asset)
    shapes[0].friction = torch.tensor([[0.5]])
    gym.set_asset_rigid_shape_properties(asset, shapes)
    ground = lambda sim: gym.add_triangle_mesh(sim, *mesh(vertices, triangles, friction=0.5))  # noqa: E731
    scene = Scene((asset, pose(1.5, 0, 3.5 * slope + 0.08)), num_envs=1, ground=ground, dt=0.005)
    scene.step(200)
    moved = 1.5 - float(scene.root[0, 0])
    assert (moved > 0.15) if slides else abs(moved) < 0.05


def test_ball_does_not_pass_a_wall():
    ball = gym.create_sphere(None, 0.05, options(density=1000.0))
    place = lambda env: pose(0.5, np.linspace(-0.5, 0.5, 7)[env], 0.06)  # noqa: E731
    scene = Scene((ball, place), num_envs=7, ground=on_field(plateau()), dt=0.005)
    scene.root[:, 7] = 4.0
    gym.set_actor_root_state_tensor(scene.sim, scene.root)
    scene.step(100)
    assert (scene.root[:, 0] < 1.0).all() and (scene.root[:, 2] > 0.03).all()


def test_invalid_arrays_are_refused_with_their_sizes():
    sim, raw = gym.create_sim(0, -1, gymapi.SIM_PHYSX, gymapi.SimParams()), plateau()
    params = field(raw)
    params.nbRows += 1
    with pytest.raises(ValueError, match=r"\(60, 50\).*nbRows=51"):
        gym.add_heightfield(sim, raw, params)
    vertices, triangles, params = mesh(*terrain_utils.convert_heightfield_to_trimesh(raw, 0.1, 0.005))
    with pytest.raises(ValueError, match="indices from 0 to 2999"):
        gym.add_triangle_mesh(sim, vertices, triangles + 7, params)
    params.nb_vertices = 5
    with pytest.raises(ValueError, match="nb_vertices is 5, but the array holds 3000"):
        gym.add_triangle_mesh(sim, vertices, triangles, params)
