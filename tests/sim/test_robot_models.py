"""The robots' models, compared with public figures and hand-computed numbers."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mujoco
import numpy as np
import pytest
from backends import ANT, ANYMAL, CARTPOLE, HUMANOID, STANCE

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


def test_anymal_masses_match_the_urdf(anymal: mujoco.MjModel) -> None:
    assert anymal.body("base").mass[0] == pytest.approx(sum(BASE_LINKS.values()), abs=1e-5)
    for leg in LEGS:
        for link, mass in LEG_LINKS.items():
            assert anymal.body(f"{leg}_{link}").mass[0] == pytest.approx(mass, abs=1e-6)
    assert anymal.body_mass.sum() == pytest.approx(52.13485, abs=1e-5)


def test_anymal_joint_axes_limits_and_efforts_match_the_urdf(anymal: mujoco.MjModel, straight: mujoco.MjData) -> None:
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


def test_anymal_stance_is_symmetric_and_level(anymal: mujoco.MjModel) -> None:
    data = mujoco.MjData(anymal)
    data.qpos[7:] = STANCE
    mujoco.mj_kinematics(anymal, data)
    feet = {leg: data.geom(f"{leg}_foot").xpos - data.qpos[:3] for leg in LEGS}
    for leg, mirror in (("LH", [-1, 1, 1]), ("RF", [1, -1, 1]), ("RH", [-1, -1, 1])):
        np.testing.assert_allclose(feet[leg], feet["LF"] * mirror, atol=1e-9)
    lowest = min(data.geom_xpos[g][2] - anymal.geom_size[g][0] for g in range(1, anymal.ngeom))
    assert lowest == pytest.approx(data.geom("LF_foot").xpos[2] - 0.03), "the feet are what the robot stands on"


def test_anymal_touches_the_ground_but_not_itself(anymal: mujoco.MjModel) -> None:
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


def test_anymal_inertias_match_the_urdf_across_fixed_joints(anymal: mujoco.MjModel, straight: mujoco.MjData) -> None:
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


def test_cartpole_masses_and_inertia_match_the_urdf() -> None:
    model = mujoco.MjModel.from_xml_path(str(CARTPOLE))
    assert [model.body(i).name for i in range(model.nbody)] == ["world", "slider", "cart", "pole"]
    assert model.body("cart").mass[0] == model.body("pole").mass[0] == 1.0
    assert model.body("pole").ipos.tolist() == [0.0, 0.0, 0.47]
    box = np.array([0.06**2 + 1.0, 0.04**2 + 1.0, 0.04**2 + 0.06**2]) / 12
    np.testing.assert_allclose(np.sort(model.body("pole").inertia), np.sort(box), rtol=1e-9)
    assert model.joint("slider_to_cart").range.tolist() == [-4.0, 4.0]
    assert not model.jnt_limited[model.joint("cart_to_pole").id]
    assert model.nu == 1 and model.actuator("slider_to_cart").forcerange.tolist() == [-400.0, 400.0]


def ball(radius: float) -> float:
    return 4 / 3 * np.pi * radius**3


def capsule(radius: float, *axis: float) -> float:
    """Volume of a capsule with an axis as long as this vector."""
    return np.pi * radius**2 * float(np.linalg.norm(axis)) + ball(radius)


def test_ant_masses_match_its_shapes_at_5_kg_per_cubic_metre() -> None:
    model = mujoco.MjModel.from_xml_path(str(ANT))
    leg, foot = capsule(0.08, 0.2, 0.2), capsule(0.08, 0.4, 0.4)
    assert model.body("torso").mass[0] == pytest.approx(5 * (ball(0.25) + 4 * leg))
    for k in range(4):
        assert model.body_mass[2 + 2 * k : 4 + 2 * k].tolist() == pytest.approx([5 * leg, 5 * foot])
    assert model.dof_armature[6:].tolist() == [0.01] * 8 and model.dof_damping[6:].tolist() == [0.1] * 8
    assert model.actuator_forcerange.tolist() == [[-15.0, 15.0]] * 8


def test_ant_feet_positions_and_ankle_direction_match_the_model() -> None:
    model = mujoco.MjModel.from_xml_path(str(ANT))
    data = mujoco.MjData(model)
    data.qpos[2], data.qpos[8] = 0.0, np.radians(90.0)
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(data.body("front_left_foot").xpos, [0.4, 0.4, 0.0], atol=1e-9)
    np.testing.assert_allclose(data.geom("front_left_foot").xpos, [0.4, 0.4, -(0.08**0.5)], atol=1e-9)
    np.testing.assert_allclose(data.geom("right_back_foot").xpos, [0.6, -0.6, 0.0], atol=1e-9)


def test_humanoid_masses_match_its_shapes_at_the_density_of_water() -> None:
    model = mujoco.MjModel.from_xml_path(str(HUMANOID))
    foot = capsule(0.027, 0.21, -0.02) + capsule(0.027, 0.21, 0.02)
    arm = capsule(0.04, 0.16, -0.16, -0.16), capsule(0.031, 0.16, 0.16, 0.16), ball(0.04)
    leg = capsule(0.06, 0, 0.01, -0.34), capsule(0.049, 0, 0, -0.3), foot
    trunk = capsule(0.07, 0.14) + capsule(0.06, 0.12), ball(0.09), capsule(0.06, 0.12), capsule(0.09, 0.14)
    want = 1000 * np.array([0.0, *trunk, *leg, *leg, *arm, *arm])
    np.testing.assert_allclose(model.body_mass, want, rtol=1e-9)


def test_humanoid_joints_match_the_source_file() -> None:
    """Range, degrees, spring, damping, armature and torque of each joint, copied from nv_humanoid.xml by hand."""
    leg = {
        "hip_x": (-45, 15, 10, 5, 0.01, 45), "hip_z": (-60, 35, 10, 5, 0.01, 45), "hip_y": (-120, 45, 20, 5, 0.01, 135),
        "knee": (-160, 2, 5, 0.1, 0.007, 90), "ankle_y": (-50, 50, 2, 1, 0.006, 22.5),
        "ankle_x": (-50, 50, 2, 1, 0.006, 22.5),
    }  # fmt: skip
    arm = {
        "shoulder1": (-90, 70, 10, 5, 0.01, 67.5), "shoulder2": (-90, 70, 10, 5, 0.01, 67.5),
        "elbow": (-90, 50, 2, 1, 0.006, 45),
    }  # fmt: skip
    trunk = {
        "abdomen_z": (-45, 45, 20, 5, 0.02, 67.5), "abdomen_y": (-75, 30, 20, 5, 0.01, 67.5),
        "abdomen_x": (-35, 35, 10, 5, 0.01, 67.5),
    }  # fmt: skip
    sides = {f"{side}_{name}": row for part in (leg, arm) for side in ("right", "left") for name, row in part.items()}
    model = mujoco.MjModel.from_xml_path(str(HUMANOID))
    assert [model.joint(j).name for j in range(1, model.njnt)] == [*trunk, *sides]
    for k, (name, row) in enumerate({**trunk, **sides}.items()):
        joint = model.joint(name)
        springs = [joint.stiffness[0], joint.damping[0], joint.armature[0], model.actuator_forcerange[k, 1]]
        assert [*np.degrees(joint.range), *springs] == pytest.approx(list(row)), name


def test_ant_and_humanoid_joint_axes_match_the_source_files() -> None:
    """Copied from nv_ant.xml and nv_humanoid.xml by hand; MuJoCo makes them unit vectors."""
    x, y, z = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    right_leg, left_leg = (x, z, y, (0, -1, 0), y, (2, 0, 1)), ((-1, 0, 0), (0, 0, -1), y, (0, -1, 0), y, (2, 0, 1))
    right_arm = ((2, 1, 1), (0, -1, 1), (0, -1, 1))
    left_arm = ((-2, 1, -1), (0, -1, -1), (0, -1, -1))
    ankles = ((-1, 1, 0), (1, 1, 0), (-1, 1, 0), (1, 1, 0))
    ant = [axis for ankle in ankles for axis in (z, ankle)]
    for path, axes in ((ANT, ant), (HUMANOID, (z, y, x, *right_leg, *left_leg, *right_arm, *left_arm))):
        unit = [np.array(axis) / np.linalg.norm(axis) for axis in axes]
        np.testing.assert_allclose(mujoco.MjModel.from_xml_path(str(path)).jnt_axis[1:], unit, atol=1e-9)


@pytest.mark.slow
def test_humanoid_legs_collide_only_with_each_other() -> None:
    model = mujoco.MjModel.from_xml_path(str(HUMANOID))
    data = mujoco.MjData(model)
    rng, touched = np.random.default_rng(0), set()
    for _ in range(2000):
        data.qpos[2] = 10.0
        data.qpos[7:] = rng.uniform(*model.jnt_range[1:].T)
        mujoco.mj_forward(model, data)
        touched |= {tuple(model.body(model.geom_bodyid[g]).name for g in contact.geom) for contact in data.contact}
    assert {tuple(name.split("_")[0] for name in pair) for pair in touched} == {("right", "left")}
    assert ("right_foot", "left_foot") in touched and not any("arm" in name for pair in touched for name in pair)
