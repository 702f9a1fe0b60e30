"""Contacts of spheres and capsules with height fields: those of the surface itself, on MuJoCo and on MuJoCo Warp."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
import functools

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import torch
import warp as wp
from backends import ANYMAL

from envcoder_bench.sim import Ground, HeightField, make_simulator
from envcoder_bench.sim.mujoco_model import put_ground
from mujoco_batches.compat import mujoco_height_fields, mujoco_warp_contacts, warn_once
from mujoco_batches.physics import warp_device
from mujoco_batches.physics.contacts import narrowphase, surface

pytestmark = pytest.mark.slow  # Warp compiles kernels
XML = """<mujoco><worldbody><geom type="plane" size="0 0 1"/><body name="b"><freejoint/>
<geom type="{kind}" size="{size}" mass="1"/></body></worldbody></mujoco>"""
SHAPES = {"sphere": "0.03", "capsule": "0.04 0.1"}
UP = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)  # of ``slope``


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


@functools.cache
def touching(kind, make, spacing, count=40):
    """A model, and random poses lowered until the shape is 0.2 to 4 mm deep in MuJoCo's own contacts; the depths."""
    model = model_of(kind, make(spacing), spacing)
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
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
    return model, np.array(poses), np.array(depths)


def on_cpu(model, poses):
    """Rows of distance, normal and position of each pose's contacts, by MuJoCo."""
    rows, data = [], mujoco.MjData(model)
    for pose in poses:
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        rows.append(np.array([(c.dist, *c.frame[:3], *c.pos) for c in data.contact]).reshape(-1, 7))
    return rows


def on_warp(model, poses):
    """The same by MuJoCo Warp, on Warp's CPU device."""
    with wp.ScopedDevice("cpu"):
        device_model = warp_device.put_model(model)
        data = mjw.make_data(model, nworld=len(poses), nconmax=8, njmax=64)
        data.qpos = wp.array(np.asarray(poses), dtype=float)
        mjw.kinematics(device_model, data)
        mjw.com_pos(device_model, data)
        mjw.collision(device_model, data)
    count, contact = int(data.nacon.numpy()[0]), data.contact
    values = (contact.dist.numpy()[:, None], contact.frame.numpy()[:, 0], contact.pos.numpy())
    rows, world = np.concatenate(values, axis=1)[:count], contact.worldid.numpy()[:count]
    return [rows[world == k] for k in range(len(poses))]


both = pytest.mark.parametrize("contacts", [on_cpu, on_warp])


@pytest.fixture(autouse=True, scope="module")
def exact():
    assert mujoco_height_fields._try_to_install() == ""
    yield
    mujoco_height_fields._put(mujoco_height_fields._mujocos())
    mujoco_height_fields._try_to_install.cache_clear()


@both
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("make, spacing", [(stairs, 0.05), (stairs, 0.1), (rough, 0.1), (pits, 0.05), (slope, 0.5)])
def test_contact_depths_match_mujocos_own(contacts, kind, make, spacing):
    """MuJoCo Warp's own contacts are too deep by up to the height of the relief in 0.5 to 3.5 % of such poses."""
    model, poses, depths = touching(kind, make, spacing)
    rows = contacts(model, poses)
    np.testing.assert_allclose([-x[:, 0].min() for x in rows], depths, atol=5e-5)
    assert max(map(len, rows)) <= 4
    normals = np.concatenate(rows)[:, 1:4]
    assert (normals[:, 2] > -1e-6).all() and np.allclose(np.linalg.norm(normals, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("kind", SHAPES)
def test_both_engines_find_the_same_contacts_with_any_number_of_threads(kind, monkeypatch):
    """On CUDA 32 threads search together; Warp's CPU device can run them, too."""
    model, poses, _ = touching(kind, rough, 0.1)
    alone = on_warp(model, poses)
    for warps, mujocos in zip(alone, on_cpu(model, poses)):
        assert len(warps) == len(mujocos)
        for row in mujocos:
            assert np.abs(warps[:, :4] - row[:4]).max(axis=1).min() < 2e-5
    monkeypatch.setattr(wp.config, "enable_cpu_blocks", True)
    for one, other in zip(alone, on_warp(model, poses)):
        np.testing.assert_array_equal(one, other)


@both
def test_coplanar_cells_have_no_edge_contacts(contacts):
    """One contact with the normal of the slope, in the middle of the overlap. MuJoCo has 2.7 on average."""
    model, poses, depths = touching("sphere", slope, 0.05)
    rows = contacts(model, poses)
    assert all(len(x) == 1 for x in rows)
    middle = poses[:, :3] - (0.03 - 0.5 * depths)[:, None] * UP
    expected = np.column_stack([-depths, np.tile(UP, (len(poses), 1)), middle])
    np.testing.assert_allclose(np.concatenate(rows), expected, atol=1e-6 if contacts is on_cpu else 1e-5)
    if contacts is on_cpu:
        with mujoco_height_fields.mujocos_own():
            assert np.mean([len(x) for x in on_cpu(model, poses)]) > 2
        assert len(on_cpu(model, poses[:1])[0]) == 1


@pytest.mark.parametrize(  # of a radius of 0.03: landed hard, where MuJoCo Warp's edges count; with the centre below
    ("contacts", "depth"), [(on_cpu, 0.008), (on_cpu, 0.025), (on_cpu, 0.04), (on_warp, 0.04), (on_warp, 0.23)]
)
def test_deep_ball_is_pushed_out_through_the_slope(contacts, depth):
    model = model_of("sphere", slope(0.1), 0.1)
    xy = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2))
    centers = np.column_stack([xy, 0.3 * (xy[:, 0] + 1.0)]) + (0.03 - depth) * UP
    rows = contacts(model, np.column_stack([centers, np.tile([1.0, 0.0, 0.0, 0.0], (50, 1))]))
    assert all(len(x) == 1 for x in rows)
    np.testing.assert_allclose(np.concatenate(rows)[:, :4], np.tile([-depth, *UP], (50, 1)), atol=1e-5)


@both
def test_foot_in_a_corner_touches_both_faces(contacts):
    heights = np.zeros((9, 9))
    heights[5:] = 0.5  # a wall from x = 0 to 0.1 m
    wall = np.array([-0.5, 0.0, 0.1]) / np.hypot(0.5, 0.1)
    center = np.array([-0.0001, 0.01, 0.0299])
    center[0] = -(0.0299 - wall[2] * center[2]) / -wall[0]  # 0.1 mm deep in both
    (rows,) = contacts(model_of("sphere", heights, 0.1), [[*center, 1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(rows[:, 0], -1e-4, atol=2e-6)
    assert sorted(np.round(rows[:, 3], 3).tolist()) == pytest.approx([round(wall[2], 3), 1.0], abs=1e-6)


@pytest.mark.parametrize("value", [1e3, -1e12, 1e300, np.inf, np.nan])
@pytest.mark.parametrize("kind", SHAPES)
def test_distant_and_nan_positions_have_no_contacts(kind, value):
    model = model_of(kind, rough(0.1), 0.1)
    poses = np.tile([0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0.0], (3, 1))
    poses[range(3), range(3)] = value
    assert not any(len(x) for x in on_cpu(model, poses[:2] if value < 0 else poses))  # far below is in the ground


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
    assert surface._ridges(heights)[1, 1] == bits


def test_robot_is_bitwise_independent_of_other_robots():
    heights = np.random.default_rng(0).uniform(-0.05, 0.05, (61, 61))
    ground = Ground((HeightField(heights, 0.1, (-3.0, -3.0)),))
    runs = []
    for count in (1, 5):
        sim = make_simulator("mujoco_cpu", ANYMAL, count, 0.02, 4, "cpu", ground=ground)
        command = torch.linspace(-0.5, 0.5, sim.num_dofs).repeat(count, 1)
        command[1:] += 0.1 * torch.arange(1, count)[:, None]
        for _ in range(50):
            sim.step(command)
        runs.append(sim.get_state()["rows"][0])
        assert sim.contact_forces[0].norm() > 0
    assert torch.equal(*runs)


# what happens where the libraries are not as expected


def test_other_signature_is_refused(tmp_path):
    header = tmp_path / "include" / "mujoco" / "mjdata.h"
    assert not mujoco_height_fields._fits(str(tmp_path / "__init__.py"))  # no header
    header.parent.mkdir(parents=True)
    header.write_text("typedef int (*mjfCollision)(const mjModel* m, const mjData* d, mjContact* con, int g1, int g2);")
    assert not mujoco_height_fields._fits(str(tmp_path / "__init__.py"))
    assert mujoco_height_fields._fits(mujoco.__file__)


def test_missing_compiler_falls_back_to_mujocos_contacts_with_a_warning(monkeypatch, caplog):
    def broken():
        raise OSError("no compiler")

    model, poses, _ = touching("sphere", slope, 0.05)
    monkeypatch.setattr(mujoco_height_fields, "_compiled", broken)
    mujoco_height_fields._put(mujoco_height_fields._mujocos())
    mujoco_height_fields._try_to_install.cache_clear()
    warn_once.cache_clear()
    try:
        mujoco_height_fields.install()
        mujoco_height_fields.install()
        assert caplog.text.count("OSError: no compiler") == 1
        assert np.mean([len(x) for x in on_cpu(model, poses[:20])]) > 2
    finally:
        monkeypatch.undo()
        mujoco_height_fields._try_to_install.cache_clear()
        mujoco_height_fields.install()
    assert len(on_cpu(model, poses[:1])[0]) == 1


def test_simulator_made_inside_mujocos_own_keeps_exact_contacts_afterwards():
    model, poses, _ = touching("sphere", slope, 0.05)
    mujoco_height_fields._put(mujoco_height_fields._mujocos())
    mujoco_height_fields._try_to_install.cache_clear()
    with mujoco_height_fields.mujocos_own():
        mujoco_height_fields.install()
        assert np.mean([len(x) for x in on_cpu(model, poses[:20])]) > 2
    assert len(on_cpu(model, poses[:1])[0]) == 1


def test_other_mujoco_warp_keeps_its_own_contacts_with_a_warning(monkeypatch, caplog):
    model = model_of("sphere", slope(0.5), 0.5)
    monkeypatch.setattr(mujoco_warp_contacts, "_WRITE", ("another",))
    warn_once.cache_clear()
    mujoco_warp_contacts.is_as_expected.cache_clear()
    try:
        with wp.ScopedDevice("cpu"):
            device_model = warp_device.put_model(model)
        assert "write_contact has the parameters" in caplog.text and "use mujoco-warp 4.0" in caplog.text
    finally:
        monkeypatch.undo()
        mujoco_warp_contacts.is_as_expected.cache_clear()
    pairs = ["pairs"]  # which MuJoCo Warp compares itself, in a model without the surface's data
    assert narrowphase._search(device_model, None, None, pairs) is pairs
