"""Contacts of spheres and capsules with height fields on MuJoCo Warp: as deep as MuJoCo's in double precision."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp

from envcoder_bench.compat import mujoco_height_fields
from envcoder_bench.sim import Ground, HeightField
from envcoder_bench.sim.contacts import narrowphase as warp_height_fields
from envcoder_bench.sim.contacts import surface as warp_height_relief
from envcoder_bench.sim.mujoco_ground import put_ground

pytestmark = pytest.mark.slow  # Warp compiles kernels
XML = """<mujoco><worldbody><geom type="plane" size="0 0 1"/><body name="b"><freejoint/>
<geom type="{kind}" size="{size}" mass="1"/></body></worldbody></mujoco>"""
SHAPES = {"sphere": "0.03", "capsule": "0.04 0.1"}


def stairs(spacing):
    steps = 0.15 * np.floor(np.arange(int(2 / spacing) + 1) * spacing / 0.3 + 1e-6)
    return np.repeat(steps[:, None], int(1.5 / spacing) + 1, axis=1)


def rough(spacing):
    return np.random.default_rng(0).uniform(-0.05, 0.05, (int(2 / spacing) + 1, int(1.5 / spacing) + 1))


def pits(spacing):
    rng, heights = np.random.default_rng(0), np.zeros((int(2 / spacing) + 1, int(1.5 / spacing) + 1))
    for _ in range(20):
        i, j = (rng.integers(0, n - 4) for n in heights.shape)
        heights[i : i + 4, j : j + 4] = rng.choice([-1.0, -0.2, 0.2])
    return heights


def slope(spacing):
    return np.repeat(0.3 * np.arange(int(2 / spacing) + 1)[:, None] * spacing, int(1.5 / spacing) + 1, axis=1)


def model_of(kind, heights, spacing):
    spec = mujoco.MjSpec.from_string(XML.format(kind=kind, size=SHAPES[kind]))
    nx, ny = heights.shape
    put_ground(spec, Ground((HeightField(heights, spacing, (-spacing * (nx - 1) / 2, -spacing * (ny - 1) / 2)),)))
    return spec.compile()


def touching_poses(model, count, seed=0):
    """Random poses lowered until the shape is 0.2 to 4 mm deep in MuJoCo's own contacts; with the depths."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    half = model.hfield_size[0, :2] - 0.2

    def depth():
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        return max((-contact.dist for contact in data.contact), default=-1.0)

    poses, depths = [], []
    with mujoco_height_fields.mujocos_own():
        while len(poses) < count:
            data.qpos[:2] = rng.uniform(-half, half)
            data.qpos[3:7] = rng.normal(size=4)
            low, high, target = -2.0, 3.0, rng.uniform(0.0002, 0.004)
            for _ in range(25):
                data.qpos[2] = 0.5 * (low + high)
                low, high = (data.qpos[2], high) if depth() > target else (low, data.qpos[2])
            data.qpos[2] = low
            poses.append(data.qpos.copy())
            depths.append(depth())
    return np.array(poses), np.array(depths)


def warp_contacts(model, poses):
    worlds = len(poses)
    on_device, data = mjw.put_model(model), mjw.make_data(model, nworld=worlds, nconmax=8, njmax=64)
    data.qpos = wp.array(poses, dtype=float)
    mjw.kinematics(on_device, data)
    mjw.com_pos(on_device, data)
    mjw.collision(on_device, data)
    count = int(data.nacon.numpy()[0])
    world = data.contact.worldid.numpy()[:count]
    order = np.argsort(world, kind="stable")
    normals = data.contact.frame.numpy()[:count, 0]
    return world[order], data.contact.dist.numpy()[:count][order], normals[order]


@pytest.fixture(autouse=True, scope="module")
def on_the_cpu():
    wp.init()
    warp_height_fields.install()
    with wp.ScopedDevice("cpu"):
        yield


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("make, spacing", [(stairs, 0.05), (stairs, 0.1), (rough, 0.1), (pits, 0.05), (slope, 0.5)])
def test_contact_depths_match_mujoco(kind, make, spacing):
    """MuJoCo Warp's own contacts are too deep by up to the height of the relief in 0.5 to 3.5 % of such poses."""
    model = model_of(kind, make(spacing), spacing)
    poses, depths = touching_poses(model, 250)
    world, dist, normals = warp_contacts(model, poses)
    deepest = np.full(len(poses), np.inf)
    np.minimum.at(deepest, world, dist)
    np.testing.assert_allclose(-deepest, depths, atol=5e-5)
    assert (normals[:, 2] > -1e-6).all() and np.allclose(np.linalg.norm(normals, axis=1), 1, atol=1e-5)
    assert np.bincount(world).max() <= 4


@pytest.mark.parametrize("kind", SHAPES)
def test_contacts_are_independent_of_the_threads_of_a_block(kind, monkeypatch):
    """On CUDA 32 threads search together; this test runs them on Warp's CPU device."""
    model = model_of(kind, rough(0.1), 0.1)
    poses, _ = touching_poses(model, 100)
    alone = warp_contacts(model, poses)
    monkeypatch.setattr(wp.config, "enable_cpu_blocks", True)
    together = warp_contacts(model, poses)
    for one, other in zip(alone, together):
        np.testing.assert_array_equal(one, other)


def test_coplanar_cells_have_no_edge_contacts():
    """One contact with the normal of the slope; MuJoCo adds nearby edges with inclined normals."""
    model = model_of("sphere", slope(0.05), 0.05)
    poses, _ = touching_poses(model, 200)
    world, _, normals = warp_contacts(model, poses)
    assert len(world) == len(poses)
    up = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)
    np.testing.assert_allclose(normals @ up, 1.0, atol=1e-5)


def test_foot_in_a_corner_touches_both_faces():
    heights = np.zeros((9, 9))
    heights[5:] = 0.5  # a wall from x = 0 to 0.1 m
    model = model_of("sphere", heights, 0.1)
    wall = np.array([-0.5, 0.0, 0.1]) / np.hypot(0.5, 0.1)
    center = np.array([-0.0001, 0.01, 0.0299])
    center[0] = -(0.0299 - wall[2] * center[2]) / -wall[0]  # 0.1 mm deep in both
    _, dist, normals = warp_contacts(model, np.array([[*center, 1.0, 0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(dist, -1e-4, atol=2e-6)
    assert sorted(np.round(normals[:, 2], 3).tolist()) == pytest.approx([round(wall[2], 3), 1.0])


def test_ball_below_the_surface_is_pushed_out_through_it():
    model = model_of("sphere", slope(0.1), 0.1)
    up = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)
    on_surface = np.array([0.013, 0.027, 0.3 * (0.013 + 1.0)])
    for depth in (0.01, 0.2):  # of the centre
        _, dist, normals = warp_contacts(model, np.array([[*(on_surface - depth * up), 1.0, 0.0, 0.0, 0.0]]))
        assert dist.tolist() == pytest.approx([-depth - 0.03], abs=1e-5)
        np.testing.assert_allclose(normals[0], up, atol=1e-5)


def test_ceiling_is_the_highest_node_within_reach():
    heights = rough(0.1)
    model = mjw.put_model(model_of("sphere", heights, 0.1))
    warp_height_relief.add_relief(model)
    shape = (int(model.hfield_nrow.numpy()[0]), int(model.hfield_ncol.numpy()[0]))
    nodes, ceiling = (a.numpy().reshape(shape) for a in (model.hfield_data, model.hfield_ceiling))
    reach = warp_height_relief.SPAN + 1
    assert all(ceiling[i, j] == nodes[i : i + reach, j : j + reach].max() for i, j in np.ndindex(shape))


@pytest.mark.parametrize(
    ("z", "bits"),  # of the middle node's edges: along x (columns), along y (rows), to the next node on both
    [
        (lambda x, y: 0.3 * x + 0.2 * y, 0),
        (lambda x, y: -abs(y), 1),
        (lambda x, y: -abs(x), 2),
        (lambda x, y: -abs(x - y), 4),
        (lambda x, y: abs(x) + abs(y) + abs(x - y), 0),
    ],
)
def test_ridges_are_higher_than_both_sides(z, bits):
    heights = np.array([[z(x, y) for x in (-1.0, 0.0, 1.0)] for y in (-1.0, 0.0, 1.0)])
    assert warp_height_relief._ridges(heights)[1, 1] == bits
