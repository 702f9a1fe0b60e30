"""The simulation against what can be computed by hand."""

import math

import mujoco
import numpy as np
import pytest
import torch
from isaacgym_scene import (
    ARM,
    ENGINES,
    FREE_ARM,
    LOPSIDED,
    PENDULUM,
    SLIDER,
    Scene,
    ball,
    box,
    gym,
    joint,
    link,
    load,
    pose,
    robot,
    slider,
)

from isaacgym_mujoco.api import gymapi
from mujoco_batches.torch_utils import quat_apply, quat_conjugate, quat_mul

G = 9.81
# MuJoCo Warp on the CPU takes seconds for each scene: test_engine_warp.py holds it against the CPU's engine
pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.parametrize("engine", ENGINES[::2], indirect=True)]


def test_free_fall_matches_the_closed_form_and_disable_gravity():
    scene = Scene((ball(), pose(0, 0, 5)), (ball(disable_gravity=True), pose(2, 0, 5)), dt=0.02, substeps=2)
    scene.step(10)
    steps, h = 20, 0.01  # the velocity is updated first: v_k = -g h k, x_n = -g h^2 n (n + 1) / 2
    assert scene.root[0, 9].item() == pytest.approx(-G * h * steps, rel=1e-5)
    assert scene.root[0, 2].item() == pytest.approx(5 - G * h * h * steps * (steps + 1) / 2, rel=1e-5)
    assert scene.root[1].tolist() == pytest.approx([2, 0, 5, 0, 0, 0, 1] + [0] * 6, abs=1e-6)
    assert torch.equal(scene.root[:2], scene.root[2:])


def drive(mode, **values):
    return {"driveMode": mode, "damping": 30.0, "stiffness": 1000.0, **values}


def test_position_drive_is_an_implicit_spring_and_damper(tmp_path):
    asset = load(tmp_path, SLIDER, fix_base_link=True)
    scene = Scene((asset, pose()), dt=0.01, props=drive(gymapi.DOF_MODE_POS, effort=1e6))
    x, v, m, k, d, h = 0.1, 0.0, 2.0, 1000.0, 30.0, 0.01
    scene.set_dofs(x)
    for step in range(20):
        scene.step(target=0.3) if step == 0 else scene.step()  # targets stay
        v = (v + h / m * k * (0.3 - x)) / (1 + h * d / m + h * h * k / m)  # force at the end of the step
        x += h * v
        assert scene.dof[0].tolist() == pytest.approx([x, v], rel=1e-4)


def test_drives_respect_the_effort_limit(tmp_path):
    asset = load(tmp_path, SLIDER, fix_base_link=True)
    scene = Scene((asset, pose()), dt=0.01, props=drive(gymapi.DOF_MODE_POS))
    force = gym.acquire_dof_force_tensor(scene.sim)
    scene.step(target=10.0)
    gym.refresh_dof_force_tensor(scene.sim)
    assert force[0].item() == pytest.approx(50)
    assert scene.dof[0, 1].item() == pytest.approx(50 / 2 * 0.01, rel=1e-4)


def test_efforts_act_for_one_step(tmp_path):
    asset = load(tmp_path, SLIDER, fix_base_link=True)
    for mode in (gymapi.DOF_MODE_EFFORT, gymapi.DOF_MODE_NONE):
        scene = Scene((asset, pose()), dt=0.01, props={"driveMode": mode, "stiffness": 0.0, "damping": 0.0})
        for steps, effort in ((1, 8.0), (5, None)):
            scene.step(steps, effort=effort)
            assert scene.dof[0, 1].item() == pytest.approx(8 / 2 * 0.01, rel=1e-5)


def test_velocities_of_free_bodies_are_limited_and_damped(tmp_path):
    fast = ball(max_angular_velocity=2.0, max_linear_velocity=3.0)
    damped = load(tmp_path, LOPSIDED, angular_damping=5.0, linear_damping=2.5)
    scene = Scene((fast, pose()), (damped, pose(3)), gravity=0.0, dt=0.001)
    states = scene.root.clone()
    states[:, 7], states[:, 12] = 4.0, 8.0
    scene.set_roots(states)
    scene.step()
    assert scene.root[0, [7, 12]].tolist() == pytest.approx([3.0, 2.0])
    scene.step(99)  # of the centre of mass, which goes straight
    assert scene.root[1, 7:10].tolist() == pytest.approx([4 * (1 - 2.5 * 0.001) ** 100, 0, 0], abs=0.01)
    assert scene.root[1, 10:].tolist() == pytest.approx([0, 0, 8 * (1 - 5.0 * 0.001) ** 100], abs=0.01)


def test_damping_of_links_adds_to_applied_forces_in_every_substep(tmp_path):
    asset = load(tmp_path, SLIDER, fix_base_link=True, linear_damping=5.0, angular_damping=40.0)
    props = drive(gymapi.DOF_MODE_EFFORT, damping=0.0, stiffness=0.0)
    scene = Scene((asset, pose()), gravity=0.0, dt=0.02, substeps=2, props=props)
    scene.set_dofs(0.0, 3.0)
    push = torch.zeros(len(scene.envs), 2, 3, device=scene.device)
    push[:, 1, 0] = 8.0
    velocity = 3.0
    for _ in range(3):
        gym.apply_rigid_body_force_tensors(scene.sim, push, None, gymapi.ENV_SPACE)
        scene.step()
        for _ in range(2):
            velocity = (1 - 5.0 * 0.01) * velocity + 0.01 * 8.0 / 2.0
        assert scene.dof[0, 1].item() == pytest.approx(velocity, rel=1e-5)


def test_default_damping_of_links_is_left_out(tmp_path):
    """Isaac Gym's default of ``angular_damping`` is 0.5 1/s, on most tasks."""
    speeds = []
    for linear in (0.0, 0.1):
        asset = load(tmp_path, PENDULUM, fix_base_link=True, angular_damping=0.5, linear_damping=linear)
        scene = Scene((asset, pose()), gravity=0.0, dt=0.01)
        scene.set_dofs(0.0, 2.0)
        scene.step()
        speeds.append(scene.dof[0, 1].item())
    inertia = 2 * 0.5**2 + 0.001  # about the hinge
    assert speeds == pytest.approx([2.0, 2.0 * (1 - 0.01 * (0.1 * 2 * 0.5**2 + 0.5 * 0.001) / inertia)], rel=1e-6)


def test_angle_of_a_continuous_joint_has_no_bound(tmp_path):
    scene = Scene((load(tmp_path, PENDULUM, fix_base_link=True), pose()), gravity=0.0, dt=0.01)
    scene.set_dofs(20_000.0, 50.0)
    scene.step(10)
    assert scene.dof[0].tolist() == pytest.approx([20_005.0, 50.0], rel=1e-5)
    assert scene.sim.engine.blow_ups == 0


def test_limits_of_a_joint_can_be_added_and_removed(tmp_path):
    bound = {"hasLimits": True, "lower": -0.1, "upper": 0.2}
    scene = Scene((load(tmp_path, PENDULUM, fix_base_link=True), pose()), gravity=0.0, props=bound, dt=0.005)
    scene.set_dofs(0.0, 3.0)
    for _ in range(100):
        scene.step()
        assert -0.2 < scene.dof[0, 0].item() < 0.3
    rows = gym.get_actor_dof_properties(scene.envs[1], 0)
    rows["hasLimits"] = False
    gym.set_actor_dof_properties(scene.envs[1], 0, rows)
    scene.set_dofs(0.0, 3.0)
    scene.step(100)
    assert abs(scene.dof[0, 0].item()) < 0.3
    assert scene.dof[1, 0].item() == pytest.approx(1.5, rel=1e-3)
    free = Scene((load(tmp_path, PENDULUM, fix_base_link=True), pose()))
    rows = gym.get_actor_dof_properties(free.envs[0], 0)
    rows["hasLimits"] = True
    free.step()
    with pytest.raises(NotImplementedError, match="'hinge' gets limits with hasLimits; this works before prepare_sim"):
        gym.set_actor_dof_properties(free.envs[0], 0, rows)


@pytest.mark.parametrize(("own", "start"), [((0.5, 0.7), 0.5), ((-0.7, -0.5), -0.5), ((-1.0, 1.0), 0.0), (None, 0.0)])
def test_joints_start_at_zero_within_the_limits_of_their_actor(tmp_path, own, start):
    asset = load(tmp_path, slider(lower=0.3), fix_base_link=True)
    limits = {"hasLimits": False} if own is None else {"lower": own[0], "upper": own[1]}
    scene = Scene((asset, pose()), gravity=0.0, props=limits)
    assert scene.dof[:, 0].tolist() == pytest.approx([start, start])
    gym.set_actor_scale(scene.envs[0], 0, 2.0)
    if own is None:  # nothing to scale
        assert gym.get_actor_dof_properties(scene.envs[0], 0)["upper"][0] == asset.dof_properties["upper"][0]


def test_body_velocity_is_that_of_its_centre_of_mass(tmp_path):
    scene = Scene((load(tmp_path, LOPSIDED), pose()), gravity=0.0, dt=0.001)
    states = scene.root.clone()
    states[:, 3:7] = scene.tensor([0, 0, math.sin(math.pi / 4), math.cos(math.pi / 4)])  # the centre is at y = 0.2
    states[:, 7:10], states[:, 12] = scene.tensor([1.0, 2.0, 3.0]), 5.0
    scene.set_roots(states)
    gym.refresh_actor_root_state_tensor(scene.sim)
    assert scene.root[0].tolist() == pytest.approx(states[0].tolist(), abs=1e-6)
    scene.step(100)
    assert scene.root[0, 7:13].tolist() == pytest.approx([1, 2, 3, 0, 0, 5], abs=2e-3)  # about z, a principal axis
    assert scene.bodies[0].tolist() == pytest.approx(scene.root[0].tolist(), abs=1e-5)
    angle = math.pi / 2 + 0.5
    centre = scene.root[0, :2] + 0.2 * scene.tensor([math.cos(angle), math.sin(angle)])
    assert centre.tolist() == pytest.approx([0.1, 0.4], abs=1e-3)  # it went straight: from (0, 0.2) by 0.1 s


def test_indexed_setters_write_given_actors_and_leave_body_states_stale(tmp_path):
    asset = load(tmp_path, ARM, fix_base_link=True)
    scene = Scene((asset, pose()), (ball(), pose(0, 0, 3)), gravity=0.0)
    before = scene.bodies.clone()
    roots, dofs = scene.root.clone(), scene.dof.clone()
    roots[:, 2] += 1.0
    dofs[:, 0] = 0.5
    ids = torch.tensor([3, 0], dtype=torch.int32).to(scene.device)  # the second environment's ball, the first one's arm
    gym.set_actor_root_state_tensor_indexed(scene.sim, roots, ids, 1)
    gym.set_dof_state_tensor_indexed(scene.sim, dofs, ids, 2)
    scene.refresh()
    assert scene.root[:, 2].tolist() == pytest.approx([0, 3, 0, 4])
    assert scene.dof[:, 0].tolist() == pytest.approx([0.5, 0.5, 0, 0])
    assert torch.equal(scene.bodies, before)
    scene.step()
    assert scene.bodies[2, :2].tolist() == pytest.approx([0.4 * math.cos(0.5), 0.4 * math.sin(0.5)], abs=1e-5)
    assert scene.bodies[7, 2].item() == pytest.approx(4)


def test_body_states_are_independent_of_when_they_are_read(tmp_path):
    asset = load(tmp_path, ARM, fix_base_link=True)
    early, late = (Scene((asset, pose()), (ball(), pose(0, 0, 3))) for _ in "12")
    states = []
    for scene, reads_first in ((early, True), (late, False)):
        engine, out = scene.sim.engine, torch.zeros_like(scene.bodies)
        for _ in range(3):
            engine.step()
        if reads_first:
            engine.read("bodies", out)
        mask = torch.ones(engine.num_envs, engine.num_actors, dtype=torch.bool, device=scene.device)
        engine.write_roots(mask, scene.root + 1.0)
        engine.write_dofs(mask, scene.dof + 0.5)
        if not reads_first:
            engine.read("bodies", out)
        engine.step()
        state = {name: x for name, x in engine.get_state().items() if name in ("state", "qpos", "qvel")}
        assert state
        states.append({"bodies": out, **state})
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items())


def test_reading_body_states_leaves_contacts_in_place(engine):
    """Body states are computed without contacts; they must be MuJoCo's own, and the next step must have contacts."""
    scene = Scene((box(density=1000), pose(0, 0, 0.1)), ground=True, dt=0.01, substeps=2)
    for _ in range(60):
        scene.step()
        assert torch.allclose(scene.bodies, scene.root, rtol=0.0, atol=1e-6)
    assert scene.root[0, 2].item() == pytest.approx(0.1, abs=2e-3) and scene.root[0, 9].abs() < 1e-3
    if engine == "cpu":
        model, own = scene.sim.engine._layout.model, scene.sim.engine
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = own._qpos[0], own._qvel[0]
        mujoco.mj_forward(model, data)
        assert data.ncon and np.array_equal(own._xpos[0], data.xpos)
        assert np.array_equal(own._cvel[0], data.cvel)


def test_forces_act_for_one_step_at_the_centre_of_mass_in_either_frame(tmp_path):
    scene = Scene((load(tmp_path, LOPSIDED), pose()), gravity=0.0, dt=0.01)
    states = scene.root.clone()
    states[:, 3:7] = scene.tensor([0, 0, math.sin(math.pi / 4), math.cos(math.pi / 4)])
    scene.set_roots(states)
    scene.step()
    force = torch.zeros(2, 1, 3, device=scene.device)
    force[..., 0] = 6.0
    gym.apply_rigid_body_force_tensors(scene.sim, force, None, gymapi.ENV_SPACE)
    scene.step(3)
    assert scene.root[0, 7:13].tolist() == pytest.approx([6 / 1.5 * 0.01, 0, 0, 0, 0, 0], abs=1e-6)
    gym.apply_rigid_body_force_tensors(scene.sim, force, None, gymapi.LOCAL_SPACE)
    scene.step()
    assert scene.root[0, 7:9].tolist() == pytest.approx([0.04, 0.04], abs=1e-6)
    gym.apply_rigid_body_force_tensors(scene.sim, None, force, gymapi.LOCAL_SPACE)
    scene.step()
    assert scene.root[0, 10:13].tolist() == pytest.approx([0, 6 / 0.01 * 0.01, 0], abs=1e-3)


def test_force_sensor_reads_the_net_force():
    asset = box(density=100.0)
    turned = gymapi.Transform(gymapi.Vec3(0, 0, 0.1), gymapi.Quat.from_axis_angle(gymapi.Vec3(1, 0, 0), math.pi / 2))
    gym.create_asset_force_sensor(asset, 0, gymapi.Transform())
    gym.create_asset_force_sensor(asset, 0, turned)
    scene = Scene((asset, pose(0, 0, 0.4)), ground=True, dt=0.01)
    sensors = gym.acquire_force_sensor_tensor(scene.sim)
    push = scene.tensor([2.0, 0.0, 0.0]).repeat(2, 1)
    gym.apply_rigid_body_force_tensors(scene.sim, push, None, gymapi.ENV_SPACE)
    scene.step()
    gym.refresh_force_sensor_tensor(scene.sim)
    weight = 100 * 0.2**3 * G
    assert sensors[0].tolist() == pytest.approx([2, 0, -weight, 0, 0, 0], abs=1e-4)
    # its y axis is the world's z, its z the world's -y; the torque about (0, 0, 0.1) is (0, 0, -0.1) x force
    assert sensors[1].tolist() == pytest.approx([2, -weight, 0, 0, 0, 0.2], abs=1e-4)
    scene.step(300)
    gym.refresh_force_sensor_tensor(scene.sim)
    assert sensors.abs().max() < 1e-2  # at rest


README = {"enable_forward_dynamics_forces": False, "use_world_frame": True}  # what legged_gym's README recommends


def sensor(asset, body=0, at=None, **values):
    """Add a force sensor; ``values`` are its properties."""
    properties = gymapi.ForceSensorProperties()
    for name, value in values.items():
        setattr(properties, name, value)
    gym.create_asset_force_sensor(asset, body, at or gymapi.Transform(), properties)


def sensed(scene, steps=1):
    """Return the readings of the first environment's sensors after some steps."""
    sensors = gym.acquire_force_sensor_tensor(scene.sim)
    scene.step(steps)
    gym.refresh_force_sensor_tensor(scene.sim)
    return sensors[: len(sensors) // 2].cpu()


def test_force_sensors_tell_contacts_from_gravity_in_a_stack():
    lower, upper, turned = (box(density=density) for density in (100.0, 200.0, 300.0))
    for asset in (lower, upper):
        sensor(asset)
        sensor(asset, **README)
        sensor(asset, enable_constraint_solver_forces=False)
        sensor(asset, enable_forward_dynamics_forces=False, enable_constraint_solver_forces=False)
    scene = Scene((lower, pose(0, 0, 0.1)), (upper, pose(0, 0, 0.3)), (turned, pose(3, 0, 0.1)), ground=True, dt=0.01)
    forces = sensed(scene, 300)[:, :3].view(2, 4, 3)
    for body, weight in zip(forces, (100 * 0.2**3 * G, 200 * 0.2**3 * G)):
        # the ground carries both boxes, the lower one carries the upper: what is left on each body is its weight
        assert body[:, 2].tolist() == pytest.approx([0, weight, -weight, 0], abs=0.02)
        assert body[:, :2].abs().max() < 0.02


def test_force_sensors_report_contacts_about_their_place_in_the_frame_that_is_asked_for():
    asset = box(density=100.0)
    at = gymapi.Transform(gymapi.Vec3(0.3, 0, 0.1), gymapi.Quat.from_axis_angle(gymapi.Vec3(1, 0, 0), math.pi / 2))
    sensor(asset, 0, at, **README)
    sensor(asset, 0, at, enable_forward_dynamics_forces=False)
    world, local = sensed(Scene((asset, pose(0, 0, 0.1)), ground=True, dt=0.01), 200)
    weight = 100 * 0.2**3 * G
    # the ground pushes below the centre, 0.3 m before the sensor: (-0.3, 0, z) x (0, 0, weight)
    assert world.tolist() == pytest.approx([0, 0, weight, 0, 0.3 * weight, 0], abs=0.02)
    # its y axis is the world's z, its z the world's -y
    assert local.tolist() == pytest.approx([0, weight, 0, 0, 0, -0.3 * weight], abs=0.02)


def test_force_sensors_of_a_pendulum_have_no_contacts(tmp_path):
    asset = load(tmp_path, PENDULUM, fix_base_link=True)
    for properties in ({}, {"enable_constraint_solver_forces": False}, README):
        sensor(asset, 1, **properties)
    scene = Scene((asset, pose(0, 0, 2)), dt=0.001)
    scene.set_dofs(math.pi / 2)
    net, forward, contacts = sensed(scene)
    # released horizontally: a point of 2 kg at 0.5 m, and 0.001 kg m^2 of its own; about the hinge all is net force
    angular = 2 * G * 0.5 / (2 * 0.5**2 + 0.001)
    assert net[:3].norm().item() == pytest.approx(2 * 0.5 * angular, rel=1e-3)
    assert torch.equal(net, forward) and not bool(contacts.any())


FOOT = robot(
    link("base", 3, [0.1] * 3, shape='box size="0.1 0.1 0.1"'),
    link("foot", 0.5, [0.001] * 3, shape='box size="0.2 0.2 0.1"'),
    joint("leg", "prismatic", "base", "foot", (0, 0, 1), (0, 0, -0.4), lower=-0.1, upper=0.1, effort=500, velocity=100),
)


def test_force_sensor_of_a_foot_carries_the_robot(tmp_path):
    asset = load(tmp_path, FOOT)
    sensor(asset, 1, **README)
    sensor(asset, 1)
    scene = Scene((asset, pose(0, 0, 0.5)), ground=True, dt=0.005, props=drive(gymapi.DOF_MODE_POS, stiffness=5e3))
    contacts = gym.acquire_net_contact_force_tensor(scene.sim)
    readme, net = sensed(scene, 600)
    gym.refresh_net_contact_force_tensor(scene.sim)
    assert readme[2].item() == pytest.approx(3.5 * G, rel=1e-3) and net.abs().max() < 0.02
    assert readme[:3].tolist() == pytest.approx(contacts[1].tolist(), abs=1e-3)


def test_jacobian_of_a_free_base_matches_finite_differences(tmp_path):
    scene = Scene((load(tmp_path, FREE_ARM), pose()), (box(density=50.0), pose(3)), gravity=0.0, dt=1e-5)
    jacobian = gym.acquire_jacobian_tensor(scene.sim, "actor0")
    alone = gym.acquire_jacobian_tensor(scene.sim, "actor1")
    assert jacobian.shape == (2, 3, 6, 8) and alone.shape == (2, 1, 6, 6)
    roots, dofs = scene.root.clone(), scene.tensor([0.7, -0.4, 0.2, 1.1])
    turn = np.array([0.3, -0.2, 0.5, 0.78])
    roots[0::2, 3:7] = scene.tensor([*(turn / np.linalg.norm(turn))])
    scene.set_roots(roots)
    scene.set_dofs(dofs)
    stale = jacobian.clone()
    gym.refresh_jacobian_tensors(scene.sim)
    assert torch.equal(stale, jacobian)  # a setter alone does not change it
    scene.step()
    gym.refresh_jacobian_tensors(scene.sim)
    assert torch.allclose(alone, torch.eye(6, device=alone.device).expand(2, 1, 6, 6))
    offsets = {"base": [0.1, 0, 0.05], "upper": [0.2, 0.05, 0], "lower": [0.1, 0, 0.1]}
    com = scene.tensor([*offsets.values()]).view(3, 3)

    def centres() -> tuple[torch.Tensor, torch.Tensor]:
        bodies = scene.bodies.view(2, 4, 13)[:, :3]
        arms = quat_apply(bodies[..., 3:7].reshape(-1, 4), com.repeat(2, 1)).view(2, 3, 3)
        return (bodies[..., :3] + arms).double(), bodies[..., 3:7].clone()

    step = 0.02
    for column in range(8):
        moved = []
        for sign in (1, -1):
            new_roots, new_dofs = roots.clone(), dofs.clone()
            if column < 3:
                new_roots[0::2, column] += sign * step
            elif column < 6:
                spin = np.eye(3)[column - 3] * math.sin(sign * step / 2)
                quat = quat_mul(scene.tensor([*spin, math.cos(step / 2)]).repeat(2, 1), roots[0::2, 3:7])
                new_roots[0::2, 3:7] = quat
                arm, new_arm = (quat_apply(q, com[:1].repeat(2, 1)) for q in (roots[0::2, 3:7], quat))
                new_roots[0::2, :3] += arm - new_arm  # about the base's centre of mass
            else:
                new_dofs[column - 6 :: 2] += sign * step
            scene.set_roots(new_roots)
            scene.set_dofs(new_dofs)
            scene.step()
            moved.append(centres())
        expected = (moved[0][0] - moved[1][0]) / (2 * step)
        assert torch.allclose(jacobian[:, :, :3, column].double(), expected, atol=2e-4), column
        turned = quat_mul(moved[0][1].reshape(-1, 4), quat_conjugate(moved[1][1].reshape(-1, 4))).view(2, 3, 4)
        expected = turned[..., :3] * turned[..., 3:].sign() / step
        assert torch.allclose(jacobian[:, :, 3:, column], expected, atol=2e-4), column


@pytest.mark.parametrize("alike", [True, False])
def test_mass_matrices_are_without_the_present_armature_before_and_after_steps(tmp_path, alike):
    scene = Scene((load(tmp_path, slider(mass=2), fix_base_link=True), pose()), props={"armature": 5.0})
    matrix = gym.acquire_mass_matrix_tensor(scene.sim, "actor0").flatten()
    assert matrix.tolist() == pytest.approx([2.0, 2.0])
    for armature in (3.0, 4.0):
        for env in scene.envs[: None if alike else 1]:
            rows = gym.get_actor_dof_properties(env, 0)
            rows["armature"] = armature
            gym.set_actor_dof_properties(env, 0, rows)
        gym.refresh_mass_matrix_tensors(scene.sim)
        assert matrix.tolist() == pytest.approx([2.0, 2.0])
        scene.step()


def test_attractors_have_targets_of_their_own_environment():
    def attract(env):
        own = gymapi.AttractorProperties()
        own.stiffness, own.axes, own.rigid_handle = 5e7, gymapi.AXIS_TRANSLATION, 0
        own.target.p = gymapi.Vec3(0.2 + env.index, 0, 1.1)  # not where the ball begins
        own.offset.p = gymapi.Vec3(0, 0, 0.1)
        gym.create_rigid_body_attractor(env, own)

    scene = Scene((ball(density=100.0), pose(0, 0, 1)), before=attract, dt=0.01)
    bodies = gym.get_actor_rigid_body_properties(scene.envs[1], 0)
    bodies[0].mass *= 2.0
    gym.set_actor_rigid_body_properties(scene.envs[1], 0, bodies)  # the targets stay
    scene.step(300)
    points = scene.root[:, :3] + quat_apply(scene.root[:, 3:7], scene.tensor([0, 0, 0.1]).repeat(2, 1))
    assert points.flatten().tolist() == pytest.approx([0.2, 0, 1.1, 1.2, 0, 1.1], abs=5e-3)
    loose = gymapi.AttractorProperties()
    loose.axes, loose.rigid_handle = gymapi.AXIS_TRANSLATION, 0
    with pytest.raises(NotImplementedError, match="a stiffness of 0"):
        Scene((ball(), pose()), before=lambda env: gym.create_rigid_body_attractor(env, loose))


def test_non_finite_state_resets_only_its_environment(tmp_path):
    scene = Scene((ball(), pose(0, 0, 5)), num_envs=3)
    states = scene.root.clone()
    states[1, 7] = math.nan
    scene.set_roots(states, [1])
    scene.step()
    assert scene.sim.engine.blow_ups == 1 and torch.isfinite(scene.root).all() and torch.isfinite(scene.bodies).all()
    assert scene.root[1, :3].tolist() == [0, 0, 5] and torch.equal(scene.root[0], scene.root[2])


def test_the_solver_forgets_what_was_before_a_state_that_is_set(tmp_path, engine):
    scene = Scene((load(tmp_path, ARM, fix_base_link=True), pose()), (ball(), pose(0, 0, 3)), num_envs=3)
    if engine != "cpu":
        return  # its solver is MuJoCo Warp's
    warm_start, ids = scene.sim.engine._warmstart, torch.tensor([2], dtype=torch.int32)
    for write, state in (
        (gym.set_dof_state_tensor_indexed, scene.dof),
        (gym.set_actor_root_state_tensor_indexed, scene.root),
    ):
        warm_start[...] = 1.0
        write(scene.sim, state, ids, 1)
        assert warm_start.any(axis=1).tolist() == [True, False, True]


def test_environments_are_bitwise_independent(tmp_path):
    asset = load(tmp_path, ARM)
    few, many = Scene((asset, pose(0, 0, 1)), ground=True), Scene((asset, pose(0, 0, 1)), ground=True, num_envs=5)
    for scene in (few, many):
        scene.step(50, effort=0.1)
    assert torch.equal(few.bodies[:3], many.bodies[12:])


def test_environment_sensors_come_after_those_of_the_assets():
    asset = box()
    gym.create_asset_force_sensor(asset, 0, gymapi.Transform())
    turned = gymapi.Transform(gymapi.Vec3(), gymapi.Quat.from_axis_angle(gymapi.Vec3(1, 0, 0), np.pi))

    def add_sensor(env):
        assert gym.create_force_sensor(env, 0, turned) == 1
        with pytest.raises(IndexError, match="no body 1"):
            gym.create_force_sensor(env, 1, turned)

    scene = Scene((asset, pose(0, 0, 5)), before=add_sensor)
    sensors = gym.acquire_force_sensor_tensor(scene.sim)
    scene.step()
    gym.refresh_force_sensor_tensor(scene.sim)
    weight = gym.get_actor_rigid_body_properties(scene.envs[0], 0)[0].mass * G
    assert sensors[:, 2].tolist() == pytest.approx([-weight, weight] * 2, rel=1e-4)
