"""The two robots' files against their public figures and against arithmetic by hand."""

from __future__ import annotations

import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("MuJoCo needs Python 3.11", allow_module_level=True)

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mujoco
import numpy as np
from backends import ANYMAL, CARTPOLE, STANCE

LEGS = ("LF", "LH", "RF", "RH")
# kg, from the URDF; a link belongs to the moving body that carries it
BASE_LINKS = {
    "base_inertia": 6.222,
    "shells": 0.534 + 1.15,
    "remote and handle": 0.3262 + 0.314,
    "faces": 2 * 0.73,
    "depth cameras": 4 * 0.16043,
    "wide angle cameras": 2 * 0.287,
    "battery": 5.53425,
    "hatches": 0.065 + 0.142,
    "imu": 0.01,
    "lidar and cage": 0.695 + 0.545,
    "hip drives": 4 * 2.04,
}
LEG_LINKS = {"HIP": 0.001 + 0.74 + 2.04, "THIGH": 0.001 + 1.03 + 2.04, "SHANK": 0.001 + 0.33742 + 0.25}


@pytest.fixture(scope="module")
def anymal() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(ANYMAL))


@pytest.fixture(scope="module")
def straight(anymal: mujoco.MjModel) -> mujoco.MjData:
    """Every joint at zero, the base at the origin."""
    data = mujoco.MjData(anymal)
    data.qpos[2] = 0.0
    mujoco.mj_forward(anymal, data)
    return data


def test_names_and_order(anymal: mujoco.MjModel) -> None:
    bodies = ["world", "base"] + [f"{leg}_{link}" for leg in LEGS for link in ("HIP", "THIGH", "SHANK")]
    joints = ["root"] + [f"{leg}_{joint}" for leg in LEGS for joint in ("HAA", "HFE", "KFE")]
    assert [anymal.body(i).name for i in range(anymal.nbody)] == bodies
    assert [anymal.joint(i).name for i in range(anymal.njnt)] == joints
    assert [anymal.actuator(i).name for i in range(anymal.nu)] == joints[1:]


def test_masses_are_the_urdfs(anymal: mujoco.MjModel) -> None:
    assert anymal.body("base").mass[0] == pytest.approx(sum(BASE_LINKS.values()), abs=1e-5)
    for leg in LEGS:
        for link, mass in LEG_LINKS.items():
            assert anymal.body(f"{leg}_{link}").mass[0] == pytest.approx(mass, abs=1e-6)
    assert anymal.body_mass.sum() == pytest.approx(52.13485, abs=1e-5)


def test_joint_axes_limits_and_efforts(anymal: mujoco.MjModel, straight: mujoco.MjData) -> None:
    for leg in LEGS:
        for joint, axis in (("HAA", [1, 0, 0]), ("HFE", [0, 1, 0]), ("KFE", [0, 1, 0])):
            drive = anymal.joint(f"{leg}_{joint}")
            np.testing.assert_allclose(straight.xaxis[drive.id], axis, atol=1e-12)
            assert anymal.actuator(f"{leg}_{joint}").forcerange.tolist() == [-80.0, 80.0]
        inwards, outwards = (-0.72, 0.49) if leg[0] == "L" else (-0.49, 0.72)
        assert anymal.joint(f"{leg}_HAA").range.tolist() == [inwards, outwards]
    foot = straight.geom("LF_foot").xpos
    expected = [0.2999 + 0.0599 + 0.08795, 0.104 + 0.08381 + 0.1003 + 0.01305, -0.285 - 0.33797 + 0.0225]
    np.testing.assert_allclose(foot, expected, atol=1e-9)


def test_stance_is_symmetric_and_level(anymal: mujoco.MjModel) -> None:
    data = mujoco.MjData(anymal)
    data.qpos[7:] = STANCE
    mujoco.mj_kinematics(anymal, data)
    feet = {leg: data.geom(f"{leg}_foot").xpos - data.qpos[:3] for leg in LEGS}
    for leg, mirror in (("LH", [-1, 1, 1]), ("RF", [1, -1, 1]), ("RH", [-1, -1, 1])):
        np.testing.assert_allclose(feet[leg], feet["LF"] * mirror, atol=1e-9)
    lowest = min(data.geom_xpos[g][2] - anymal.geom_size[g][0] for g in range(1, anymal.ngeom))
    assert lowest == pytest.approx(data.geom("LF_foot").xpos[2] - 0.03), "the feet are what the robot stands on"


def test_robot_touches_the_ground_and_never_itself(anymal: mujoco.MjModel) -> None:
    data = mujoco.MjData(anymal)
    rng = np.random.default_rng(0)
    touched = set()
    for _ in range(200):
        data.qpos[2] = 0.3
        data.qpos[3:7] = rng.normal(size=4)
        data.qpos[7:] = rng.uniform(-2.0, 2.0, 12)
        mujoco.mj_forward(anymal, data)
        assert all(anymal.geom_bodyid[contact.geom1] == 0 for contact in data.contact)
        touched |= {anymal.body(anymal.geom_bodyid[contact.geom2]).name for contact in data.contact}
        assert data.ncon <= anymal.numeric("max_contacts").data[0], "even half under the ground"
    assert len(touched) == 13, "every body can touch the ground"


def urdf_path() -> Path:
    for site in map(Path, sys.path):
        found = site / "cmeel.prefix/share/example-robot-data/robots/anymal_c_simple_description/urdf/anymal.urdf"
        if found.is_file():
            return found
    pytest.skip("needs the URDF: pip install example-robot-data==6.0.0")


def rotation(rpy: str) -> np.ndarray:
    (cx, cy, cz), (sx, sy, sz) = np.cos(vector(rpy)), np.sin(vector(rpy))
    roll, pitch = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]]), np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    return np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]]) @ pitch @ roll


def vector(text: str) -> np.ndarray:
    return np.array([float(x) for x in text.split()])


def test_inertias_are_the_urdfs_merged_along_its_fixed_joints(anymal: mujoco.MjModel, straight: mujoco.MjData) -> None:
    """Merge the URDF's links by the parallel axis theorem and compare in the base's frame, joints at zero."""
    urdf = ElementTree.parse(urdf_path()).getroot()
    joints = {joint.find("child").get("link"): joint for joint in urdf.findall("joint")}

    def frame(link: str) -> tuple:
        """Position and rotation of a link, and the moving body that carries it."""
        if link == "base":
            return np.zeros(3), np.eye(3), "base"
        joint = joints[link]
        position, turn, body = frame(joint.find("parent").get("link"))
        origin = joint.find("origin")
        position, turn = position + turn @ vector(origin.get("xyz")), turn @ rotation(origin.get("rpy"))
        return position, turn, body if joint.get("type") == "fixed" else link

    parts = {}
    for link in urdf.findall("link"):
        inertial = link.find("inertial")
        if inertial is None or float(inertial.find("mass").get("value")) == 0.0:
            continue
        position, turn, body = frame(link.get("name"))
        origin = inertial.find("origin")
        turn_in = rotation(origin.get("rpy", "0 0 0"))
        i = {key: float(value) for key, value in inertial.find("inertia").attrib.items()}
        tensor = np.array(
            [[i["ixx"], i["ixy"], i["ixz"]], [i["ixy"], i["iyy"], i["iyz"]], [i["ixz"], i["iyz"], i["izz"]]]
        )
        centre = position + turn @ vector(origin.get("xyz"))
        world = turn @ turn_in @ tensor @ turn_in.T @ turn.T
        parts.setdefault(body, []).append((float(inertial.find("mass").get("value")), centre, world))

    assert len(parts) == 13
    for body, links in parts.items():
        mass = sum(m for m, _, _ in links)
        centre = sum(m * c for m, c, _ in links) / mass
        inertia = np.zeros((3, 3))
        for m, c, i in links:
            arm = c - centre
            inertia += i + m * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        ours = straight.body(body)
        axes = ours.ximat.reshape(3, 3)
        assert anymal.body(body).mass[0] == pytest.approx(mass, abs=1e-6)
        np.testing.assert_allclose(ours.xipos, centre, atol=1e-7)
        merged = axes @ np.diag(anymal.body(body).inertia) @ axes.T
        np.testing.assert_allclose(merged, inertia, atol=5e-6 * inertia.max())  # six digits in the file


def test_cartpole_has_the_urdfs_masses_and_the_boxes_inertia() -> None:
    model = mujoco.MjModel.from_xml_path(str(CARTPOLE))
    assert [model.body(i).name for i in range(model.nbody)] == ["world", "slider", "cart", "pole"]
    assert model.body("cart").mass[0] == model.body("pole").mass[0] == 1.0
    assert model.body("pole").ipos.tolist() == [0.0, 0.0, 0.47]
    box = np.array([0.06**2 + 1.0, 0.04**2 + 1.0, 0.04**2 + 0.06**2]) / 12
    np.testing.assert_allclose(np.sort(model.body("pole").inertia), np.sort(box), rtol=1e-9)
    assert model.joint("slider_to_cart").range.tolist() == [-4.0, 4.0]
    assert not model.jnt_limited[model.joint("cart_to_pole").id]
    assert model.nu == 1 and model.actuator("slider_to_cart").forcerange.tolist() == [-400.0, 400.0]
