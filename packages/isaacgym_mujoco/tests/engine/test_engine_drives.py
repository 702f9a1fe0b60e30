"""Drives of both engines: velocity limits, efforts, and damping of strong drives."""

import pytest
from isaacgym_scene import (
    FINGER,
    FINGER_ON_HINGE,
    Scene,
    gym,
    joint,
    link,
    load,
    on_all,
    on_warp,
    options,
    pose,
    robot,
    slider,
)

from isaacgym_mujoco.api import gymapi

STRONG = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 5000.0, "damping": 100.0, "effort": 200.0, "velocity": 0.2}


def finger_and(folder, body, x):
    """A strong finger, and a body before it at ``x``."""
    finger = load(folder, FINGER, fix_base_link=True)
    return Scene((finger, pose()), (body, pose(x)), gravity=0.0, dt=0.0166, substeps=2, props=STRONG)


def cube():
    return gym.create_box(None, 0.05, 0.05, 0.05, options(density=1000.0))


@on_all
def test_strong_drive_pushes_no_faster_than_its_velocity_limit(tmp_path, engine):
    scene, speeds, moved = finger_and(tmp_path, cube(), 0.05), [], []
    for _ in range(20):
        scene.step(target=0.1)
        speeds.append(scene.root[1, 7].item())
        moved.append(scene.dof[0, 0].item())
    assert 0.2 < max(speeds) < 0.5  # it springs off the finger; with all the force of the drive, at 11 m/s
    assert moved[4] == pytest.approx(5 * 0.0166 * 0.2, rel=0.01)  # it moves with its limit
    assert moved[-1] > 0.06


@on_all
@pytest.mark.parametrize("before", [0.0, -0.1], ids=["at rest", "moving away"])
def test_strong_drive_that_begins_or_reverses_throws_nothing(tmp_path, engine, before):
    scene, speeds = finger_and(tmp_path, cube(), 0.0345), []
    scene.root[1, 7] = -0.25  # follows the finger, into which it is 0.5 mm
    gym.set_actor_root_state_tensor(scene.sim, scene.root)
    scene.step(2, target=before)
    for _ in range(10):
        scene.step(target=0.1)
        speeds.append(scene.root[1, 7].item())
    assert scene.dof[0, 0].item() > 0.02 and 0.15 < max(speeds) < 0.5


@on_all
def test_strong_drive_has_its_force_where_something_holds_it(tmp_path, engine):
    scene = finger_and(tmp_path, gym.create_box(None, 0.05, 0.4, 0.4, options(fix_base_link=True)), 0.045)
    scene.step(40, target=0.05)
    error = 0.05 - scene.dof[0, 0].item()
    assert error > 0.03 and abs(scene.dof[0, 1].item()) < 1e-3
    assert -scene.contacts[1, 0].item() == pytest.approx(5000.0 * error, rel=0.02)


@on_all
@pytest.mark.parametrize(("effort", "damping"), [(12.0, 80.0), (2.0, 10.0), (12.0, 1.0), (1000.0, 80.0)])
def test_velocity_drive_comes_to_its_target_within_its_effort(tmp_path, engine, effort, damping):
    """With 12 N m and 80 N m s/rad a clamped drive threw the wheel between -43 and 43 rad/s."""
    axle = joint("axle", "continuous", "base", "wheel", (0, 1, 0), effort=effort, velocity=100)
    wheel = load(tmp_path, robot(link("base"), link("wheel", 0.5, [0.0007] * 3), axle), fix_base_link=True)
    drive = {"driveMode": gymapi.DOF_MODE_VEL, "stiffness": 0.0, "damping": damping}
    scene = Scene((wheel, pose()), num_envs=1, dt=1 / 60, substeps=2, props=drive)
    gym.set_dof_velocity_target_tensor(scene.sim, scene.dofs_full(5.0))
    scene.step(10)
    assert scene.dof[0, 1].item() == pytest.approx(5.0, rel=0.01)


@on_all
def test_position_drive_follows_its_velocity_target(tmp_path, engine):
    """A joint that moves as its targets do needs no force, however strong its drive is."""
    drive = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 100.0, "damping": 20.0}
    scene = Scene(
        (load(tmp_path, slider(mass=0.02, effort=10), fix_base_link=True), pose()), num_envs=1, dt=1 / 60, props=drive
    )
    scene.set_dofs(0.0, 2.0)
    for step in range(1, 21):
        gym.set_dof_position_target_tensor(scene.sim, scene.dofs_full(2.0 * step / 60))
        gym.set_dof_velocity_target_tensor(scene.sim, scene.dofs_full(2.0))
        scene.step()
        assert scene.dof[0].tolist() == pytest.approx([2.0 * step / 60, 2.0], rel=1e-3)


@on_all
@pytest.mark.parametrize("change", ["scale", "mass"])
def test_drive_is_damped_by_the_inertia_of_its_own_environment(tmp_path, engine, change):
    """With a thousandth of the inertia, an undamped drive throws its joint from one velocity limit to the other."""
    drive = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 400.0, "damping": 80.0}
    scene = Scene((load(tmp_path, FINGER_ON_HINGE, fix_base_link=True), pose()), gravity=0.0, dt=1 / 60, props=drive)
    if change == "scale":
        gym.set_actor_scale(scene.envs[1], 0, 0.25)
    else:
        bodies = gym.get_actor_rigid_body_properties(scene.envs[1], 0)
        bodies[1].mass *= 1e-3
        gym.set_actor_rigid_body_properties(scene.envs[1], 0, bodies, recomputeInertia=True)
    target, before = scene.dofs_full(1.0), 0.0
    gym.set_dof_position_target_tensor(scene.sim, target)
    for _ in range(60):
        scene.step()
        assert before - 1e-3 <= scene.dof[1, 0].item() <= 1.001  # it approaches and never turns
        before = scene.dof[1, 0].item()
    assert before > 0.9


CHAIN = """
<mujoco><worldbody><body name="base"><geom type="box" size="0.1 0.1 0.1"/>
  <body name="a"><joint name="heavy" axis="0 1 0" armature="100"/>
    <inertial pos="0 0 0" mass="0.01" diaginertia="1e-4 1e-4 1e-4"/>
    <body name="b"><joint name="light" axis="0 1 0"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.02 0.02 0.02"/></body></body>
</body></worldbody></mujoco>
"""


@on_all
def test_drive_is_damped_when_a_task_removes_the_armature_of_another_joint(tmp_path, engine):
    def drive(env):
        rows = gym.get_actor_dof_properties(env, 0)
        rows["armature"], rows["driveMode"][1], rows["damping"][1] = 0.0, gymapi.DOF_MODE_VEL, 1.0
        rows["effort"][1], rows["velocity"][1] = 12.0, 100.0
        gym.set_actor_dof_properties(env, 0, rows)

    asset = load(tmp_path, CHAIN, fix_base_link=True)
    scene = Scene((asset, pose()), gravity=0.0, dt=1 / 60, before=drive)
    gym.set_dof_velocity_target_tensor(scene.sim, scene.dofs_full(30.0))
    for _ in range(5):  # without damping it is thrown from -100 to 100 rad/s
        scene.step()
        assert scene.dof[1, 1].item() == pytest.approx(30.0, abs=0.5)


@on_warp
def test_step_is_captured_again_when_a_drive_begins_to_need_damping(tmp_path, engine):
    weak = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 5.0, "damping": 1.0, "effort": 0.01}
    scene = Scene((load(tmp_path, FINGER, fix_base_link=True), pose()), num_envs=2, props=weak)

    def change(env, **values):
        properties = gym.get_actor_dof_properties(env, 0)
        for name, value in values.items():
            properties[name] = value
        gym.set_actor_dof_properties(env, 0, properties)

    change(scene.envs[1], damping=1.1)  # each world has rows from here on
    scene.step(2)
    own = scene.sim.engine._properties
    assert not own.steadied and not own.flush()
    for env in scene.envs:
        change(env, stiffness=5000.0, damping=100.0, effort=200.0)
    assert own.flush() and own.steadied
