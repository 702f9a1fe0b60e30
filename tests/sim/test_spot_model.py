"""Spot's model: figures of its sources, and a stand at its nominal height under its gains."""

import mujoco
import numpy as np
import pytest
import torch
from backends import TASKS

from envcoder_bench.sim import make_simulator

SPOT = TASKS / "spot_terrain" / "spot.xml"
STANCE = [[0.1, 0.9, -1.5], [-0.1, 0.9, -1.5], [0.1, 1.1, -1.5], [-0.1, 1.1, -1.5]]  # rad
LEGS = ("fl", "fr", "hl", "hr")


@pytest.fixture(scope="module")
def spot() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(SPOT))


def test_masses_match_the_net_weight_and_the_legs(spot) -> None:
    assert spot.body_mass.sum() == pytest.approx(32.5)
    for leg in LEGS:
        masses = [spot.body(f"{leg}_{link}").mass[0] for link in ("hip", "uleg", "lleg")]
        assert masses == pytest.approx([1.68, 2.34, 0.35])
    a, b, c = 0.85, 0.24, 0.18
    box = 15.02 / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
    np.testing.assert_allclose(spot.body("body").inertia, box, rtol=1e-3)


def test_left_and_right_are_mirrored(spot) -> None:
    data = mujoco.MjData(spot)
    mujoco.mj_forward(spot, data)
    mirror = [1, -1, 1]
    for front in "fh":
        for geom in ("thigh", "shank", "foot"):
            left, right = (data.geom(f"{front}{side}_{geom}").xpos for side in "lr")
            np.testing.assert_allclose(left * mirror, right, atol=1e-12)
        for link in ("hip", "uleg", "lleg"):
            left, right = (data.body(f"{front}{side}_{link}").xipos for side in "lr")
            np.testing.assert_allclose(left * mirror, right, atol=2e-4)  # the source's hips differ by as much


def test_straight_feet_are_two_centimetres_above_the_ground(spot) -> None:
    data = mujoco.MjData(spot)
    mujoco.mj_forward(spot, data)
    assert [data.geom(f"{leg}_foot").xpos[2] - 0.036 for leg in LEGS] == pytest.approx([0.0225] * 4, abs=1e-6)


def _rest(stiffness: float, damping: float, target, root, dof_pos, steps: int):
    sim = make_simulator("mujoco_cpu", SPOT, 1, 0.02, 10, "cpu", stiffness=stiffness, damping=damping)
    sim.write(torch.ones(1, dtype=torch.bool), root, dof_pos, torch.zeros(1, 12))
    for _ in range(steps):
        sim.step(target)
    return sim


def test_spot_stands_at_nominal_height_with_gains_60_and_1_5() -> None:
    stance = torch.tensor(STANCE).view(1, 12)
    above = torch.tensor([[0.0, 0, 0.54, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]])
    stiff = _rest(3000.0, 60.0, stance, above, stance, 150)
    assert stiff.root_states[0, 2] == pytest.approx(0.51, abs=0.01)
    assert stiff.contact_forces[0, :, 2].sum() == pytest.approx(32.5 * 9.81, rel=0.02)

    target = stance + stiff.dof_force / 60.0  # the load's position error, as a policy would add it
    soft = _rest(60.0, 1.5, target, stiff.root_states, stiff.dof_pos, 250)
    assert soft.root_states[0, 2] == pytest.approx(0.51, abs=0.01)
    assert soft.root_states[0, 3:5].abs().max() < 0.02
    lower = soft.body_names.index("fl_lleg")
    assert soft.contact_forces[0, lower::3, 2].min() > 40.0  # all four feet carry
