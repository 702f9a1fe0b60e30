"""MuJoCo's contacts with height fields on the CPU: as deep as its own, without edges between cells of one slope."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from backends import ANYMAL
from test_height_field_contacts import SHAPES, model_of, pits, rough, slope, stairs, touching_poses, warp_contacts

from envcoder_bench.compat import mujoco_height_fields
from envcoder_bench.sim import Ground, HeightField, make_simulator
from envcoder_bench.sim.contacts import narrowphase as warp_height_fields
from envcoder_bench.sim.mujoco_ground import put_ground

pytestmark = pytest.mark.slow  # Warp compiles the contacts, and for one test its kernels
SLED = """<mujoco><option timestep="0.005"/><worldbody>
<geom type="plane" size="0 0 1" euler="0 {angle} 0" friction="{friction} 0.005 0.0001" priority="1"/>
<body pos="0 0 {height}" euler="0 {angle} 0"><freejoint/>
<geom size="0.03" mass="1" pos="0.2 0.1 0"/><geom size="0.03" mass="1" pos="0.2 -0.1 0"/>
<geom size="0.03" mass="1" pos="-0.2 0 0"/></body></worldbody></mujoco>"""


@pytest.fixture(autouse=True, scope="module")
def exact():
    assert mujoco_height_fields._try_to_install() == ""
    yield
    mujoco_height_fields._put(mujoco_height_fields._mujocos())
    mujoco_height_fields._try_to_install.cache_clear()


def contacts(model, pose):
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_kinematics(model, data)
    mujoco.mj_collision(model, data)
    return np.array([(c.dist, *c.frame[:3], *c.pos) for c in data.contact]).reshape(-1, 7)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("make, spacing", [(stairs, 0.05), (stairs, 0.1), (rough, 0.1), (pits, 0.05), (slope, 0.5)])
def test_contact_depths_match_mujoco(kind, make, spacing):
    model = model_of(kind, make(spacing), spacing)
    poses, depths = touching_poses(model, 250)
    for pose, depth in zip(poses, depths):
        found = contacts(model, pose)
        assert -found[:, 0].min() == pytest.approx(depth, abs=5e-5)
        assert len(found) <= 4 and (found[:, 3] > -1e-9).all()
        np.testing.assert_allclose(np.linalg.norm(found[:, 1:4], axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize("kind", SHAPES)
def test_both_engines_find_the_same_contacts(kind):
    wp.init()
    warp_height_fields.install()
    model = model_of(kind, rough(0.1), 0.1)
    poses, _ = touching_poses(model, 250)
    with wp.ScopedDevice("cpu"):
        world, dist, normals = warp_contacts(model, poses)
    for number, pose in enumerate(poses):
        found, own = contacts(model, pose), world == number
        assert len(found) == own.sum()
        for k in found:
            assert min(np.abs(np.column_stack([dist, normals])[own] - k[:4]).max(axis=1)) < 2e-5


def test_coplanar_cells_have_no_edge_contacts():
    """One contact with the normal of the slope, in the middle of the overlap. MuJoCo has 2.7 on average."""
    model = model_of("sphere", slope(0.05), 0.05)
    poses, depths = touching_poses(model, 200)
    up = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)
    for pose, depth in zip(poses, depths):
        found = contacts(model, pose)
        assert len(found) == 1
        np.testing.assert_allclose(found[0], [-depth, *up, *(pose[:3] - (0.03 - 0.5 * depth) * up)], atol=1e-6)
    with mujoco_height_fields.mujocos_own():
        assert np.mean([len(contacts(model, pose)) for pose in poses]) > 2
    assert len(contacts(model, poses[0])) == 1


@pytest.mark.parametrize("depth", [0.008, 0.015, 0.025])  # of the radius of 0.03: after a hard landing
def test_deep_ball_in_coplanar_cells_has_one_contact(depth):
    model = model_of("sphere", slope(0.05), 0.05)
    up = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)
    for x, y in np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2)):
        center = np.array([x, y, 0.3 * (x + 1.0)]) + (0.03 - depth) * up
        found = contacts(model, [*center, 1.0, 0.0, 0.0, 0.0])
        np.testing.assert_allclose(found[:, :4], [[-depth, *up]], atol=1e-6)


def test_robot_is_bitwise_independent_of_other_robots():
    heights = np.random.default_rng(0).uniform(-0.05, 0.05, (61, 61))
    ground = Ground((HeightField(heights, 0.1, (-3.0, -3.0)),))
    runs = []
    for count in (1, 5):
        sim = make_simulator("mujoco_cpu", ANYMAL, count, 0.02, 4, "cpu", ground=ground)
        command = torch.linspace(-0.5, 0.5, sim.num_dofs).repeat(count, 1)
        command[1:] += 0.1 * torch.arange(1, count)[:, None]
        for _ in range(75):
            sim.step(command)
        runs.append(sim.get_state()["rows"][0])
        assert sim.contact_forces[0].norm() > 0
    assert torch.equal(*runs)


@pytest.mark.parametrize("cell", [0.0, 0.05, 0.1])  # 0: a plane
def test_sled_acceleration_matches_friction(cell):
    """g (sin - friction cos); MuJoCo's own contacts give 0.75 instead of 0.94 m/s^2 on cells of 5 cm."""
    friction, rise = 0.2, 0.3
    angle = np.arctan(rise)
    height = 0.03 / np.cos(angle) - 0.0005
    spec = mujoco.MjSpec.from_string(SLED.format(angle=np.degrees(angle), friction=friction, height=height))
    if cell:
        x = cell * np.arange(round(10 / cell) + 1) - 5.0
        heights = np.repeat(-rise * x[:, None], round(2 / cell) + 1, axis=1)
        put_ground(spec, Ground((HeightField(heights, cell, (-5.0, -1.0), friction),)))
    model = spec.compile()
    data = mujoco.MjData(model)
    speeds = []
    for _ in range(400):
        mujoco.mj_step(model, data)
        speeds.append(np.hypot(data.qvel[0], data.qvel[2]))
    expected = 9.81 * (np.sin(angle) - friction * np.cos(angle))
    assert (speeds[-1] - speeds[99]) / (300 * 0.005) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("value", [1e3, -1e12, 1e300, np.inf, np.nan])
@pytest.mark.parametrize("kind", SHAPES)
def test_distant_and_nan_positions_have_no_contacts(kind, value):
    model = model_of(kind, rough(0.1), 0.1)
    for axis in (0, 1, 2):
        pose = np.array([0.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0.0])
        pose[axis] = value
        if not (axis == 2 and value < 0):
            assert len(contacts(model, pose)) == 0


def test_ball_below_the_surface_is_pushed_out_through_it():
    model = model_of("sphere", slope(0.1), 0.1)
    up = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)
    on_surface = np.array([0.013, 0.027, 0.3 * (0.013 + 1.0)])
    for depth in (0.01, 0.2):  # of the centre
        found = contacts(model, [*(on_surface - depth * up), 1.0, 0.0, 0.0, 0.0])
        np.testing.assert_allclose(found[:, :4], [[-depth - 0.03, *up]], atol=1e-6)


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

    monkeypatch.setattr(mujoco_height_fields, "_compiled", broken)
    mujoco_height_fields._put(mujoco_height_fields._mujocos())
    mujoco_height_fields._try_to_install.cache_clear()
    mujoco_height_fields._tell.cache_clear()
    model = model_of("sphere", slope(0.05), 0.05)
    poses, _ = touching_poses(model, 20)
    try:
        mujoco_height_fields.install()
        mujoco_height_fields.install()
        assert caplog.text.count("OSError: no compiler") == 1
        assert np.mean([len(contacts(model, pose)) for pose in poses]) > 2
    finally:
        monkeypatch.undo()
        mujoco_height_fields._try_to_install.cache_clear()
        mujoco_height_fields.install()
    assert len(contacts(model, poses[0])) == 1


def test_simulator_made_inside_mujocos_own_keeps_exact_contacts_afterwards():
    model = model_of("sphere", slope(0.05), 0.05)
    poses, _ = touching_poses(model, 20)
    mujoco_height_fields._put(mujoco_height_fields._mujocos())
    mujoco_height_fields._try_to_install.cache_clear()
    with mujoco_height_fields.mujocos_own():
        mujoco_height_fields.install()
        assert np.mean([len(contacts(model, pose)) for pose in poses]) > 2
    assert len(contacts(model, poses[0])) == 1
