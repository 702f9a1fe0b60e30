"""Scenes on the open isaacgym against what NVIDIA's PhysX computes for them.

``physx_scenes.json`` was written with NVIDIA's package ovphysx 0.7.0 (``scripts/physx_scenes.py`` of commit 817df61).
PhysX divides each step among the iterations of its solver. So the first velocities, limits, and states at rest are
compared closely, and what happens in between as closely as another integrator allows.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from isaacgym_scene import ENGINES, Scene, gym, joint, link, load, pose, robot, words

from isaacgym_mujoco.api import gymapi

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.parametrize("engine", ENGINES[::2], indirect=True)]
SCENES = json.loads((Path(__file__).parent / "physx_scenes.json").read_text())["scenes"]


def link_of(name, part, **more):
    return link(name, part["mass"], part["inertia"], part["com"], **more)


def dampings(part):
    return {key: part.get(key, 0.0) for key in ("linear_damping", "angular_damping")}


def arm(scene, folder, base, **options):
    """Return the asset of a scene's links after ``base``, all of which have the damping of the first."""
    parts, parent = [base], "base"
    for number, one in enumerate(scene["links"]):
        name = f"link{number}"
        parts += [link_of(name, one), joint(f"joint{number}", "continuous", parent, name, (0, 1, 0), at=one["at"])]
        parent = name
    return load(folder, robot(*parts), **dampings(scene["links"][0]), **options)


def simulate_arm(scene, folder):
    """Return the joints' states after every step, ``(steps, 2, dofs)``; Jacobian and mass matrix after the first."""
    asset = arm(scene, folder, link("base"), fix_base_link=True)
    drives = scene["drives"]
    props = {
        key: [drive[key] for drive in drives] for key in ("stiffness", "damping", "armature", "effort", "velocity")
    }
    props["driveMode"] = gymapi.DOF_MODE_EFFORT if "actuation" in scene else gymapi.DOF_MODE_POS
    own = Scene((asset, pose(0, 0, 2)), dt=scene["dt"], props=props)
    jacobian = gym.acquire_jacobian_tensor(own.sim, "actor0")
    mass_matrix = gym.acquire_mass_matrix_tensor(own.sim, "actor0")
    count = len(own.envs)
    speed = own.tensor(scene["start_velocity"] * count) if "start_velocity" in scene else 0.0
    own.set_dofs(own.tensor(scene["start"] * count), speed)
    targets = own.tensor([drive["target"] for drive in drives] * len(own.envs))
    gym.set_dof_position_target_tensor(own.sim, targets)
    states, matrices = [], []
    for step in range(scene["steps"]):
        own.step(effort=scene.get("actuation"))
        states.append(own.dof[: len(drives)].T.cpu().numpy().copy())
        if step == 0:
            gym.refresh_jacobian_tensors(own.sim)
            gym.refresh_mass_matrix_tensors(own.sim)
            matrices = [x[0].cpu().numpy().copy() for x in (jacobian, mass_matrix)]
    return np.array(states), matrices


def simulate_box(scene, folder):
    """Return the box's root states after every step, ``(steps, 13)``."""
    box, friction = scene["box"], scene.get("friction")
    shape = f'box size="{words([box["size"]] * 3)}"'
    asset = load(folder, robot(link_of("box", box, shape=shape)), **dampings(box))
    if friction is not None:
        rows = gym.get_asset_rigid_shape_properties(asset)
        rows[0].friction = friction["box"]
        gym.set_asset_rigid_shape_properties(asset, rows)
    place = pose(0, 0, scene["height"])
    own = Scene(
        (asset, place), dt=scene["dt"], ground=friction is not None, friction=(friction or {}).get("ground", 1.0)
    )
    states = own.root.clone()
    states[:, 7:] = own.tensor(scene["velocity"])
    own.set_roots(states)
    found = []
    for _ in range(scene["steps"]):
        own.step()
        found.append(own.root[0].cpu().numpy().copy())
    return np.array(found)


ARMS = [name for name, scene in SCENES.items() if "links" in scene and not scene.get("free")]
SETTLED = [name for name in ARMS if SCENES[name]["drives"][0]["stiffness"]]


def physx(name, key="states"):
    return np.array(SCENES[name]["physx"][key])


@pytest.mark.parametrize("name", [*ARMS[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in ARMS[2:])])
def test_arm_moves_as_in_physx(tmp_path, name):
    states, (jacobian, mass_matrix) = simulate_arm(SCENES[name], tmp_path)
    expected = physx(name)
    count = 30  # the double pendulum without armature amplifies differences
    apart = {"stiff drive": 0.09, "damped drive": 0.05, "damped arm": 0.035}.get(name, 0.025)
    assert states[:count, 0] == pytest.approx(expected[:count, 0], abs=apart)
    if "drive" not in name:  # gravity, limits of efforts and velocities
        assert states[0, 1] == pytest.approx(expected[0, 1], rel=1e-4, abs=1e-6)
    assert jacobian.reshape(-1, jacobian.shape[-1]) == pytest.approx(physx(name, "jacobian"), abs=0.01)
    assert mass_matrix == pytest.approx(physx(name, "mass_matrix"), abs=3e-4)  # without armature


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTLED)
def test_drive_settles_as_in_physx(tmp_path, name):
    states, _ = simulate_arm(SCENES[name], tmp_path)
    assert states[-1, 0] == pytest.approx(physx(name)[-1, 0], abs=2e-5)
    assert np.abs(states[-1, 1]).max() < 1e-3


@pytest.mark.parametrize("name", ["firm drive", "firm drive of little effort", "strong drive"])
def test_drive_at_its_force_limit_moves_a_light_joint_as_in_physx(tmp_path, name):
    states, _ = simulate_arm(SCENES[name], tmp_path)
    assert states[:, 0] == pytest.approx(physx(name)[:, 0], abs=0.008)
    assert states[:, 1] == pytest.approx(physx(name)[:, 1], abs=0.06)


def test_joint_is_no_faster_than_its_limit_while_a_drive_pulls(tmp_path):
    scene = SCENES["velocity limit"]
    limit = scene["drives"][0]["velocity"]
    states, _ = simulate_arm(scene, tmp_path)
    moved = np.diff(states[:, 0, 0], prepend=0.0)
    assert moved.max() == pytest.approx(limit * scene["dt"], rel=1e-3)
    fast = physx("velocity limit")[:, 1, 0] > 0.999 * limit
    assert fast.sum() > 30 and states[fast, 0] == pytest.approx(physx("velocity limit")[fast, 0], abs=2e-3)


def test_spinning_body_falls_as_in_physx(tmp_path):
    states, expected = simulate_box(SCENES["spinning fall"], tmp_path), physx("spinning fall")
    assert states[:, 7:] == pytest.approx(expected[:, 7:], abs=3e-3)  # velocities are those of the centre of mass
    assert states[:, [0, 1, 3, 4, 5, 6]] == pytest.approx(expected[:, [0, 1, 3, 4, 5, 6]], abs=2e-3)
    steps = np.arange(1, len(states) + 1)
    later = 9.81 * SCENES["spinning fall"]["dt"] ** 2 * steps / 2  # the least height difference of two integrators
    assert (np.abs(states[:, 2] - expected[:, 2]) <= later + 1e-3).all()


def test_damping_of_free_bodies_is_that_of_physx(tmp_path):
    states, expected = simulate_box(SCENES["damped fall"], tmp_path), physx("damped fall")
    assert states[:, [7, 9, 12]] == pytest.approx(expected[:, [7, 9, 12]], rel=1e-4)  # also while it falls
    assert states[:, 0] == pytest.approx(expected[:, 0], abs=1e-4)


def test_damping_of_links_is_that_of_physx(tmp_path):
    states, _ = simulate_arm(SCENES["damped arm"], tmp_path)
    assert states[:6, 1] == pytest.approx(physx("damped arm")[:6, 1], abs=2e-3)
    assert states[:, 0] == pytest.approx(physx("damped arm")[:, 0], abs=0.06)
    states, _ = simulate_arm(SCENES["arm that damping holds"], tmp_path)
    assert states[:, 0] == pytest.approx(physx("arm that damping holds")[:, 0], abs=1e-5)
    assert states[:, 1] == pytest.approx(physx("arm that damping holds")[:, 1], abs=1e-5)


def test_damping_of_a_free_arm_is_that_of_physx(tmp_path):
    scene = SCENES["damped free arm"]
    own = Scene((arm(scene, tmp_path, link("base", 1.0, [0.1] * 3)), pose(0, 0, 2)), dt=scene["dt"])
    own.set_dofs(own.tensor(scene["start"] * len(own.envs)), own.tensor(scene["start_velocity"] * len(own.envs)))
    states = own.root.clone()
    states[:, 7:] = own.tensor(scene["velocity"])
    own.set_roots(states)
    roots, expected = [], physx("damped free arm", "roots")
    for _ in range(scene["steps"]):
        own.step()
        roots.append(own.root[0].cpu().numpy().copy())
    assert roots[0][7:] == pytest.approx(expected[0, 7:], abs=1e-3)
    assert np.array(roots)[:, 7:] == pytest.approx(expected[:, 7:], abs=0.02)
    assert np.array(roots)[:, :7] == pytest.approx(expected[:, :7], abs=0.02)  # PhysX falls 2 cm less in 60 steps


def test_friction_of_two_materials_is_their_mean_as_in_physx(tmp_path):
    states, expected = simulate_box(SCENES["slide"], tmp_path), physx("slide")
    mean = 0.5 * sum(SCENES["slide"]["friction"].values())
    for distance in (states[-1, 0], expected[-1, 0]):
        assert distance == pytest.approx(2.0**2 / (2 * mean * 9.81), rel=0.025)
    assert np.abs(states[-1, 7:]).max() < 1e-3


def test_dropped_box_comes_to_rest_as_in_physx(tmp_path):
    states, expected = simulate_box(SCENES["drop"], tmp_path), physx("drop")
    assert states[-1, :3] == pytest.approx(expected[-1, :3], abs=2e-4)
    landed = [int(np.argmax(own[:, 2] < 0.1 + 1e-3)) for own in (states, expected)]
    assert abs(landed[0] - landed[1]) <= 1
    assert states[landed[0] + 30 :, 2] == pytest.approx(expected[-1, 2], abs=1e-3)  # it does not bounce
