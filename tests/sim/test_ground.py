"""Ground: height fields and boxes in place of a file's plane, with their own friction, in both engines."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
import math

import mujoco
import numpy as np
import pytest
import torch
from backends import ANYMAL, both

from envcoder_bench.sim import Box, Ground, HeightField, make_simulator
from envcoder_bench.sim.ground import crop
from envcoder_bench.sim.mujoco_model import load_robot

BALL = """<mujoco><default><geom friction="0.9 0.005 0.0001" contype="0" conaffinity="1"/></default><worldbody>
<geom name="ground" type="plane" size="0 0 1" contype="1" conaffinity="0"/>
<body name="sled" pos="0 0 0.2"><freejoint/>{geoms}</body></worldbody></mujoco>"""
SPHERE = '<geom type="sphere" size="0.03" mass="5"/>'
SLED = "".join(f'<geom type="sphere" size="0.03" mass="1" pos="{x} {y} 0"/>' for x in (-0.1, 0.1) for y in (-0.1, 0.1))


def steps(height, nx=41, ny=21):
    """A field of 5 cm that rises by ``height`` every 0.5 m along x."""
    return np.repeat((height * (np.arange(nx) // 10)).astype(np.float32)[:, None], ny, axis=1)


def put(tmp_path, geoms=SPHERE):
    path = tmp_path / "ball.xml"
    path.write_text(BALL.format(geoms=geoms))
    return path


def drop(backend, path, ground, places, control_steps=30):
    """Put one body above each place and return where it is, and its speed, after the steps of 20 ms."""
    sim = make_simulator(backend.name, path, len(places), 0.02, 4, backend.device, ground=ground)
    root = sim.root_states.clone()
    root[:, :3] = backend.tensor(places)
    sim.write(torch.ones(len(places), dtype=torch.bool, device=sim.device), root_states=root)
    for _ in range(control_steps):
        sim.step(torch.zeros(len(places), sim.num_dofs, device=sim.device))
    assert sim.contact_overflows.sum() == 0
    return sim


@both
def test_ball_rests_on_the_field_or_box_below_it(backend, tmp_path):
    ground = Ground(
        (HeightField(steps(0.15), 0.05, (-1.0, -0.5)), HeightField(np.full((3, 3), 0.3), 1.0, (1.0, -1.0))),
        (Box((0.25, 0.3, 0.2), (0.2, 0.2, 0.4), yaw=0.5),),
    )
    places = [(-0.75, 0.0, 0.05), (0.75, -0.1, 0.5), (2.0, 0.2, 0.35), (0.25, 0.3, 0.45)]
    sim = drop(backend, put(tmp_path), ground, places)
    assert (sim.root_states[:, 2] - 0.03).tolist() == pytest.approx([0, 0.45, 0.3, 0.4], abs=1.5e-3)
    assert sim.contact_forces[:, 0, 2].tolist() == pytest.approx([5 * 9.81] * 4, rel=0.02)


@both
def test_ground_friction_takes_precedence(backend, tmp_path):
    """On slopes of 0.3, of which one is slippery; the sled's own friction is 0.9."""
    slope = np.repeat(0.03 * np.arange(-100, 101, dtype=np.float32)[:, None], 21, axis=1)
    ground = Ground(tuple(HeightField(slope, 0.1, (-10.0, y), mu) for y, mu in ((-1.0, 0.2), (4.0, 0.4))))
    places = [(x, y + dy, z) for dy in (0.0, 5.0) for x, y, z in ((0.03, 0.1, 0.05), (3.0, -0.3, 0.94))]
    sim = drop(backend, put(tmp_path, SLED), ground, places, 20)
    before = sim.root_states[:, 7].clone()
    for _ in range(15):
        sim.step(torch.zeros(4, 0, device=sim.device))
    angle = math.atan(0.3)  # the edges of cells brake a little, too
    downhill = 9.81 * (math.sin(angle) - 0.2 * math.cos(angle)) * math.cos(angle)
    acceleration = (before - sim.root_states[:, 7]) / 0.3
    assert acceleration.tolist() == pytest.approx([downhill] * 2 + [0.0] * 2, abs=0.06)


def test_adjacent_zones_keep_their_friction(tmp_path):
    model = load_robot(put(tmp_path), 0.02, 4, ground=_zones((0.05, 0.9))).mj_model
    names = [model.geom(k).name for k in range(model.ngeom)]
    assert names[:2] == ["height field 0", "height field 1"] and "ground" not in names
    assert model.geom_friction[:2, 0].tolist() == [0.05, 0.9]
    assert (model.geom_priority[:2] > model.geom_priority[2:].max()).all()


def _zones(frictions):
    fields = [HeightField(np.zeros((2, 2)), 10.0, (10.0 * k, -5.0), mu) for k, mu in enumerate(frictions)]
    return Ground(tuple(fields))


def test_buffers_depend_on_nearby_zones_not_on_the_size_of_the_ground():
    plane = load_robot(ANYMAL, 0.02, 2)
    few, many = (load_robot(ANYMAL, 0.02, 2, ground=_zones([1.0] * count)) for count in (4, 40))
    assert plane.max_contacts < few.max_contacts == many.max_contacts
    assert plane.max_pairs < few.max_pairs == many.max_pairs
    assert load_robot(ANYMAL, 0.02, 2, ground=_zones([1.0])).max_pairs == plane.max_pairs


def test_heights_are_accurate_after_compilation(tmp_path):
    heights = np.random.default_rng(0).uniform(-3, 7, (50, 30)).astype(np.float32)
    model = load_robot(put(tmp_path), 0.02, 4, ground=Ground((HeightField(heights, 0.1, (2.0, -1.0)),))).mj_model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    down, hit = np.array([0.0, 0.0, -1.0]), np.zeros(1, dtype=np.int32)
    for i, j in [(1, 1), (20, 3), (48, 28)]:
        start = np.array([2.0 + 0.1 * i + 1e-5, -1.0 + 0.1 * j + 1e-5, 20.0])
        reached = 20.0 - mujoco.mj_ray(model, data, start, down, None, 1, -1, hit)
        assert reached == pytest.approx(heights[i, j], abs=2e-3)  # the slope times 10 um


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: HeightField(np.zeros(5), 0.1), "needs finite heights"),
        (lambda: HeightField(np.full((3, 3), np.nan), 0.1), "needs finite heights"),
        (lambda: HeightField(np.zeros((3, 3)), 0.0), "spacing must be a positive number, not 0.0"),
        (lambda: HeightField(np.zeros((3, 3)), 0.1, friction=-1), "friction must be"),
        (lambda: Box((0, 0, 0), (1, 1, -1)), "a box's edge must be a positive number"),
        (lambda: Box((0, 0), (1, 1, 1)), "a box's center must be 3 finite numbers"),
        (lambda: Ground(), "at least one height field or box"),
    ],
)
def test_invalid_ground_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("x, yaw, kept", [(3.2, 0.0, True), (3.2, 1.0, True), (2.0, 0.0, False)])
def test_boxes_that_reach_into_a_rectangle_are_kept_by_a_crop(x, yaw, kept):
    box = Box((5.0, 0.0, 0.1), (4.0, 2.0, 0.2), yaw)
    part = crop(Ground(boxes=(box,)), (0.0, -1.0), (x, 1.0), 100)
    assert (part is not None and part.boxes == (box,)) is kept
