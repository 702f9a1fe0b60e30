"""The Allegro Hand's model, compared with public figures and hand-computed numbers."""

import math

import mujoco
import numpy as np
import pytest
from backends import TASKS

HAND = TASKS / "allegro_hand" / "allegro_hand.xml"
FINGERS = ("index", "middle", "ring", "thumb")
# kg, from the URDF: links 0 to 3; the last has the fingertip sensor's 0.021 kg
FINGER, THUMB = (0.0119, 0.065, 0.0355, 0.0096 + 0.021), (0.0176, 0.0119, 0.038, 0.0388 + 0.021)
BEND = (-0.279244444444, 1.727825)  # rad
TILT = 0.03 * math.pi  # rad: the hand lies 0.47 half turns from upright, 0.03 short of flat
FORWARD, UP = np.array([0, -math.cos(TILT), -math.sin(TILT)]), np.array([0, -math.sin(TILT), math.cos(TILT)])


@pytest.fixture(scope="module")
def hand() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(HAND))


@pytest.fixture
def flat(hand: mujoco.MjModel) -> mujoco.MjData:
    """Every joint at zero."""
    data = mujoco.MjData(hand)
    mujoco.mj_forward(hand, data)
    return data


def test_masses_match_the_sources(hand: mujoco.MjModel) -> None:
    for finger in FINGERS:
        for link, mass in enumerate(THUMB if finger == "thumb" else FINGER):
            body = hand.body(f"{finger}_link_{link}")
            assert body.mass[0] == pytest.approx(mass, abs=1e-9)
            assert hand.body_gravcomp[body.id] == 1.0
    assert hand.body("allegro_mount").mass[0] == pytest.approx(0.05 + 0.4154)
    cube = hand.body("object")
    assert cube.mass[0] == pytest.approx(400 * 0.065**3)
    np.testing.assert_allclose(cube.inertia, cube.mass[0] * 0.065**2 / 6)


def test_ranges_and_drives_match_the_sources(hand: mujoco.MjModel) -> None:
    first = (-0.558488888889, 0.558488888889)
    thumb = ((0.279244444444, 1.57075), (-0.331602777778, 1.15188333333), BEND, (-0.279244444444, 1.76273055556))
    ranges = 3 * [first, BEND, BEND, BEND] + [*thumb]
    np.testing.assert_allclose(hand.jnt_range[:16], ranges, atol=1e-9)
    assert bool((hand.actuator_forcerange == [-0.5, 0.5]).all())
    assert bool((hand.actuator_gainprm[:, 0] == 3.0).all())
    # 0.1 N m s/rad in all, of which the joint's part stands for the speed limit
    damping = hand.dof_damping[:16, 0] if hand.dof_damping.ndim == 2 else hand.dof_damping[:16]
    np.testing.assert_allclose(-hand.actuator_biasprm[:, 2] + damping, 0.1)
    np.testing.assert_allclose(0.5 / damping, 6.283, rtol=0.01)
    np.testing.assert_allclose(hand.dof_armature[:16], 0.001)


def test_fingertips_of_the_flat_hand_match_the_link_lengths(flat: mujoco.MjData) -> None:
    # the palm's origin, from the wrist: forward, up and to the right; the mount turns it by 45 degrees
    forward, up, right = 0.08086, (0.008219 + 0.02063) * math.sqrt(0.5), (0.008219 - 0.02063) * math.sqrt(0.5)
    wrist = np.array([0.0, 0.0, 0.5])
    middle = forward + 0.0537375 + 0.054 + 0.0384 + 0.055, up - 0.0113 + 0.0083, right + 0.0087771
    want = wrist + middle[0] * FORWARD + middle[1] * UP + [middle[2], 0.0, 0.0]
    np.testing.assert_allclose(flat.site("middle_tip").xpos, want, atol=1e-6)
    spread, length = 0.0872638888889, 0.054 + 0.0384 + 0.055
    for finger, side, y in (("index", -1, -0.03632), ("ring", 1, 0.0538749)):
        ahead = forward + 0.0514302 + length * math.cos(spread)
        want = wrist + ahead * FORWARD + middle[1] * UP + [right + y + side * length * math.sin(spread), 0.0, 0.0]
        np.testing.assert_allclose(flat.site(f"{finger}_tip").xpos, want, atol=1e-6)


def test_finger_joints_bend_towards_the_palm_and_the_first_joint_rotates(hand: mujoco.MjModel) -> None:
    data = mujoco.MjData(hand)

    def moved(joint: str, site: str, bent: float = 0.0) -> np.ndarray:
        mujoco.mj_resetData(hand, data)
        data.qpos[[1, 5, 9]] = bent
        mujoco.mj_forward(hand, data)
        before = data.site(site).xpos.copy()
        data.joint(joint).qpos = 0.1
        mujoco.mj_forward(hand, data)
        return data.site(site).xpos - before

    for finger in ("index", "middle", "ring"):
        lengths = []
        for joint in (1, 2, 3):
            step = moved(f"{finger}_joint_{joint}", f"{finger}_tip")
            assert step @ UP > 0.9 * np.linalg.norm(step)
            lengths.append(np.linalg.norm(step))
        assert lengths == sorted(lengths, reverse=True)
        assert np.linalg.norm(moved(f"{finger}_joint_0", f"{finger}_tip")) < 0.001
        aside = moved(f"{finger}_joint_0", f"{finger}_tip", bent=math.pi / 2)  # the finger points up
        assert abs(aside[0]) == pytest.approx(0.1 * (0.054 + 0.0384 + 0.055), rel=0.01)
    opposed = moved("thumb_joint_0", "thumb_tip")
    assert opposed @ UP > 0.9 * np.linalg.norm(opposed)


def test_full_torque_reaches_the_speed_limit(hand: mujoco.MjModel) -> None:
    hand.opt.timestep = 1 / 120
    data = mujoco.MjData(hand)
    data.body("object").xpos[:] = 0.0
    data.joint("object").qpos[:3] = [0.0, 0.5, 0.1]
    data.joint("middle_joint_1").qpos = BEND[0]
    data.qfrc_applied[5] = 0.5
    data.ctrl[:] = data.qpos[:16]
    hand.actuator_gainprm[5, 0] = hand.actuator_biasprm[5, 1] = hand.actuator_biasprm[5, 2] = 0.0
    speeds = []
    for _ in range(30):
        mujoco.mj_step(hand, data)
        speeds.append(float(data.joint("middle_joint_1").qvel[0]))
    assert max(speeds) == pytest.approx(0.5 / 0.08, rel=0.03)


def test_colliding_geom_pairs_are_as_required(hand: mujoco.MjModel) -> None:
    touching = set()
    for a in range(hand.ngeom):
        for b in range(a):
            one = hand.geom_contype[a] & hand.geom_conaffinity[b] or hand.geom_contype[b] & hand.geom_conaffinity[a]
            if one and hand.geom_bodyid[a] != hand.geom_bodyid[b]:
                touching.add(frozenset((hand.geom(a).name, hand.geom(b).name)))
    cube = {frozenset(("object", name)) for name in ("ground", "palm")}
    parts = {f"{finger}_{part}" for finger in FINGERS for part in ("proximal", "medial", "distal", "tip")}
    cube |= {frozenset(("object", part)) for part in parts - {"thumb_proximal"}}
    ends = {
        frozenset((f"{one}_{a}", f"{other}_{b}"))
        for one in FINGERS for other in FINGERS if one != other
        for a in ("distal", "tip") for b in ("distal", "tip")
    }  # fmt: skip
    assert touching == cube | ends
