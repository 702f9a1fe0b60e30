"""The height scan by lookup: as rays of the engine hit the ground, on fields, zones, boxes and beyond them."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
import math

import mujoco
import numpy as np
import pytest
import torch

from envcoder_bench.sim import Box, Ground, HeightField
from envcoder_bench.sim.mujoco_model import load_robot
from envcoder_bench.terrain.scan import HeightLookup, height_scan, scan_points

BALL = """<mujoco><worldbody><geom type="plane" size="0 0 1"/><body name="b" pos="0 0 100"><freejoint/>
<geom type="sphere" size="0.1"/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def ground():
    rng = np.random.default_rng(1)
    fields = (
        HeightField(rng.uniform(-0.2, 0.3, (41, 31)), 0.1, (-2.0, -1.5)),
        HeightField(rng.uniform(1.0, 1.2, (21, 61)), 0.05, (2.0, -1.5), friction=0.3),
    )
    return Ground(fields, (Box((0.0, 0.0, 0.5), (1.0, 0.4, 1.0), yaw=0.7), Box((2.5, 1.0, 0.2), (0.5, 0.5, 0.6))))


@pytest.fixture(scope="module")
def rays(ground, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "ball.xml"
    path.write_text(BALL)
    model = load_robot(path, 0.02, 4, ground=ground).mj_model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)

    def cast(points):
        down, hit = np.array([0.0, 0.0, -1.0]), np.zeros(1, dtype=np.int32)
        found = []
        for x, y in points.double().tolist():
            distance = mujoco.mj_ray(model, data, np.array([x, y, 50.0]), down, None, 1, -1, hit)
            found.append((50.0 - distance, int(hit[0])))
        return found

    return cast


def test_lookup_matches_ray_casts(ground, rays):
    torch.manual_seed(0)
    points = torch.rand(4000, 2) * torch.tensor([4.98, 2.98]) + torch.tensor([-1.99, -1.49])
    lookup = HeightLookup(ground)
    hits = rays(points)
    heights, zones = lookup.heights(points), lookup.zones(points)
    off = (heights.double() - torch.tensor([z for z, _ in hits])).abs()
    assert off.quantile(0.99) < 1e-5
    # at the vertical faces of boxes and fields float32 may find the other side
    assert (off > 1e-4).float().mean() < 2e-3
    assert (zones == torch.tensor([k for _, k in hits])).float().mean() > 0.998
    assert set(zones.tolist()) == {0, 1, 2}  # the second box is lower than its field
    assert lookup.friction.tolist() == pytest.approx([1.0, 0.3, 1.0, 1.0])


def test_height_outside_all_fields_is_that_of_the_nearest_edge(ground):
    lookup = HeightLookup(ground)
    outside = torch.tensor([[-9.0, 0.0], [0.7, 40.0], [9.0, 9.0]])
    edge = torch.tensor([[-2.0, 0.0], [0.7, 1.5], [3.0, 1.5]])
    assert torch.equal(lookup.heights(outside), lookup.heights(edge))
    assert lookup.zones(outside).tolist() == [0, 0, 1]


def test_boxes_without_fields_have_no_ground_between_them():
    lookup = HeightLookup(Ground(boxes=(Box((0, 0, 0.5), (2, 2, 1)),)))
    assert lookup.heights(torch.tensor([[0.5, 0.5], [3.0, 0.0]])).tolist() == [1.0, -math.inf]


@pytest.mark.parametrize("yaw", [0.0, 1.0, -2.5])
def test_scan_rotates_with_yaw_but_not_with_pitch(ground, yaw):
    lookup, points = HeightLookup(ground), scan_points([-0.5, 0.0, 0.5], [-0.2, 0.2])
    assert points.tolist()[:2] == [[-0.5, pytest.approx(-0.2)], [-0.5, pytest.approx(0.2)]]
    c, s = math.cos(yaw), math.sin(yaw)
    at = torch.stack([0.3 + c * points[:, 0] - s * points[:, 1], -0.1 + s * points[:, 0] + c * points[:, 1]], dim=1)
    pitch = 0.4  # after the yaw, about the base's own y axis
    quat = [-math.sin(yaw / 2) * math.sin(pitch / 2), math.cos(yaw / 2) * math.sin(pitch / 2)]
    quat += [math.sin(yaw / 2) * math.cos(pitch / 2), math.cos(yaw / 2) * math.cos(pitch / 2)]
    root = torch.tensor([[0.3, -0.1, 0.6, *quat, *[0.0] * 6]])
    torch.testing.assert_close(height_scan(lookup, root, points)[0], lookup.heights(at), atol=1e-4, rtol=0)


def test_scan_is_bitwise_independent_of_other_environments(ground):
    """The result for one robot is bitwise independent of the number of others."""
    torch.manual_seed(3)
    root = torch.randn(64, 13)
    points, lookup = scan_points([0.1 * k for k in range(-8, 9)], [0.1 * k for k in range(-5, 6)]), HeightLookup(ground)
    together = height_scan(lookup, root, points)
    assert together.shape == (64, 187)
    for k in (0, 17, 63):
        assert torch.equal(height_scan(lookup, root[k : k + 1], points)[0], together[k])
