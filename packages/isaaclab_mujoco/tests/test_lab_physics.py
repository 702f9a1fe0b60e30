"""States, commands and forces of Isaac Lab's assets against MuJoCo's own step and numbers by hand."""

import mujoco
import numpy as np
import pytest
import torch
from lab_robots import CARTPOLE, LEGS, MASS, STANDING

GRAVITY = 9.81


@pytest.fixture
def cfgs():
    import lab_configs

    return lab_configs


def settle(env, steps=120):
    """Advance without changing the targets of the actions."""
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, env.action_manager.total_action_dim))


def advance(env, steps, **commands):
    """Advance the physics with commands of the robot's joints, without managers."""
    robot = env.scene["robot"]
    for _ in range(steps):
        for name, value in commands.items():
            getattr(robot, f"set_joint_{name}_target")(value)
        env.scene.write_data_to_sim()
        env.sim.step(render=False)
        env.scene.update(env.physics_dt)


def test_a_cart_pole_steps_as_in_mujoco(make, cfgs):
    env = make(cfgs.CartpoleEnvCfg())
    env.reset()
    robot, actions = env.scene["robot"], torch.linspace(-1, 1, 4)[:, None]
    start = [robot.data.joint_pos.clone(), robot.data.joint_vel.clone()]
    for _ in range(20):
        env.step(actions)
    actuator = '<actuator><general joint="slider" biastype="affine" biasprm="0 0 -10"/></actuator></mujoco>'
    model = mujoco.MjModel.from_xml_string(CARTPOLE.replace("</mujoco>", actuator))
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)  # of cart and rail, as the config says
    model.opt.timestep, model.opt.integrator = np.float32(1 / 120), mujoco.mjtIntegrator.mjINT_DISCRETE
    for i in range(4):
        data = mujoco.MjData(model)
        data.qpos, data.qvel = start[0][i].numpy(), start[1][i].numpy()
        data.qfrc_applied[0] = 20.0 * float(actions[i])
        mujoco.mj_step(model, data, 40)
        assert robot.data.joint_pos[i].numpy() == pytest.approx(data.qpos, abs=2e-5)
        assert robot.data.joint_vel[i].numpy() == pytest.approx(data.qvel, abs=2e-4)
        assert abs(data.qpos[0]) > 0.01 or abs(float(actions[i])) < 0.4


def test_names_are_breadth_first(make, cfgs):
    robot = make(cfgs.LeggedEnvCfg()).scene["robot"]
    assert robot.joint_names == [f"{leg}_hip" for leg in LEGS] + [f"{leg}_knee" for leg in LEGS]
    assert robot.body_names == ["base", *(f"{leg}_{part}" for part in ("thigh", "calf", "foot") for leg in LEGS)]


def test_what_is_written_is_read_by_names(make, cfgs):
    """Poses of bodies follow a write at once; data has quaternions wxyz, views xyzw; joints keep their names."""
    env = make(cfgs.LeggedEnvCfg())
    env.reset()
    robot = env.scene["robot"]
    root, joints = torch.zeros(2, 7), torch.zeros(2, 8)
    root[:, :3] = torch.tensor([[0.1, 0.2, 1.0], [3.0, 0.0, 2.0]])
    root[:, 3:] = torch.tensor([np.cos(0.4), 0.0, 0.0, np.sin(0.4)])  # a turn about z by 0.8, wxyz
    joints[:, robot.joint_names.index("RL_knee")] = 0.5
    robot.write_root_pose_to_sim(root)
    robot.write_joint_state_to_sim(joints, torch.zeros_like(joints))
    assert robot.root_physx_view.get_root_transforms()[0, 3:].tolist() == pytest.approx(
        [0, 0, np.sin(0.4), np.cos(0.4)]
    )
    calf, foot = (robot.body_names.index(f"RL_{part}") for part in ("calf", "foot"))
    place = robot.data.body_pos_w[:, [calf, foot]]
    # by hand: the hip is at (-0.2, 0.1, 0), the knee 0.2 m below it, the foot 0.2 m from there at the angle of the knee
    turn = torch.tensor([[np.cos(0.8), -np.sin(0.8), 0.0], [np.sin(0.8), np.cos(0.8), 0.0], [0.0, 0.0, 1.0]])
    knee = torch.tensor([-0.2, 0.1, -0.2])
    end = knee + 0.2 * torch.tensor([-np.sin(0.5), 0.0, -np.cos(0.5)])
    for env_id in range(2):
        expected = root[env_id, :3] + torch.stack([knee, end]).float() @ turn.T.float()
        assert torch.allclose(place[env_id], expected, atol=1e-5)
    assert torch.allclose(robot.data.root_quat_w, root[:, 3:], atol=1e-6)


def test_an_effort_beside_a_drive_adds_to_it(make, cfgs):
    """At rest the spring's force is the effort: q = target + effort / stiffness."""
    cfg = cfgs.CartpoleEnvCfg()
    cfg.scene.robot.actuators["cart"].stiffness, cfg.scene.robot.actuators["cart"].damping = 100.0, 20.0
    cfg.scene.robot.actuators["pole"].damping = 50.0
    env = make(cfg)
    env.reset()
    target, effort = torch.zeros(4, 2), torch.zeros(4, 2)
    target[:, 0], effort[:, 0] = 0.1, torch.tensor([0.0, 5.0, -5.0, 20.0])
    env.scene["robot"].write_joint_state_to_sim(torch.tensor([[0.0, np.pi]] * 4).float(), torch.zeros(4, 2))
    advance(env, 800, position=target, effort=effort)
    assert env.scene["robot"].data.joint_pos[:, 0].tolist() == pytest.approx([0.1, 0.15, 0.05, 0.3], abs=2e-3)


def test_joint_friction_holds_what_is_smaller(make, cfgs):
    cfg = cfgs.CartpoleEnvCfg()
    cfg.scene.robot.actuators["cart"].damping, cfg.scene.robot.actuators["cart"].friction = 0.0, 3.0
    env = make(cfg)
    env.reset()
    robot, effort = env.scene["robot"], torch.zeros(4, 2)
    robot.write_joint_state_to_sim(torch.tensor([[0.0, np.pi]] * 4).float(), torch.zeros(4, 2))
    effort[:, 0] = torch.tensor([1.0, 2.5, 6.0, -6.0])
    advance(env, 60, effort=effort)
    moved = robot.data.joint_pos[:, 0].tolist()
    # 0.5 s with (6 - 3) N on 1.5 kg, of which the pole lags behind
    assert abs(moved[0]) < 1e-2 and abs(moved[1]) < 1e-2 and moved[2] > 0.1 and moved[3] < -0.1


def test_joint_wrenches_are_what_the_parent_exerts(make, cfgs):
    """The hanging pole is held by its weight, along its own axis, and the cart by both weights."""
    env = make(cfgs.CartpoleEnvCfg())
    env.reset()
    robot, view = env.scene["robot"], env.scene["robot"].root_physx_view
    view.get_link_incoming_joint_force()  # from now on they are computed
    robot.write_joint_state_to_sim(torch.tensor([[0.0, np.pi]] * 4).float(), torch.zeros(4, 2))
    advance(env, 10)
    names, wrench = robot.body_names, view.get_link_incoming_joint_force()[0]
    assert wrench[names.index("pole"), :3].tolist() == pytest.approx([0.0, 0.0, -0.5 * GRAVITY], abs=1e-2)
    assert wrench[names.index("cart"), :3].tolist() == pytest.approx([0.0, 0.0, 1.5 * GRAVITY], abs=1e-2)


def test_forces_on_bodies_act_at_their_positions(make, cfgs):
    """In free fall a force at the centre of mass gives no turn, and one beside it the turn of its lever."""
    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.terrain, cfg.sim.gravity = None, (0.0, 0.0, 0.0)
    cfg.scene.contact_forces, cfg.rewards.contacts = None, None
    env = make(cfg)
    env.reset()
    force, view = torch.zeros(2, 13, 3), env.scene["robot"].root_physx_view
    force[:, 0, 2] = 10.0
    view.apply_forces_and_torques_at_position(force, torch.zeros_like(force), None, torch.arange(2), is_global=False)
    env.sim.step()
    spin, speed = view.get_root_velocities()[0, 3:], view.get_root_velocities()[0, 2]
    assert spin.abs().max() < 1e-4 and speed > 0.9 * 10.0 / MASS * env.physics_dt
    point = torch.zeros(2, 13, 3)
    point[:, 0, 1] = 0.1
    view.apply_forces_and_torques_at_position(force, torch.zeros_like(force), point, torch.arange(2), is_global=False)
    env.sim.step()
    assert view.get_root_velocities()[0, 3] > 1e-2


def test_masses_are_written_by_environment(make, cfgs):
    env = make(cfgs.LeggedEnvCfg())
    view = env.scene["robot"].root_physx_view
    masses = view.get_masses()
    assert masses.sum(dim=1).tolist() == pytest.approx([MASS, MASS])
    masses[1, 0] += 3.0
    view.set_masses(masses, torch.tensor([1]))
    env.reset()
    settle(env)
    weights = env.scene["contact_forces"].data.net_forces_w[..., 2].sum(dim=1)
    assert weights.tolist() == pytest.approx([GRAVITY * MASS, GRAVITY * (MASS + 3.0)], rel=2e-2)
    assert env.scene["robot"].data.root_pos_w[0, 2] == pytest.approx(STANDING, abs=0.03)


def test_environments_do_not_depend_on_each_other(make, cfgs):
    """Six environments, and two of them alone, are bitwise equal in observations, rewards and states."""
    actions = torch.randn(40, 6, 8, generator=torch.Generator().manual_seed(3))

    def run(rows):
        cfg = cfgs.LeggedEnvCfg()
        cfg.scene.num_envs = len(rows)
        env = make(cfg)
        env.reset()
        env.scene["robot"].write_root_pose_to_sim(torch.tensor([[0.0, 0.0, STANDING, 1.0, 0.0, 0.0, 0.0]] * len(rows)))
        seen = []
        for action in actions:
            obs, reward, *_ = env.step(action[rows])
            robot, sensor = env.scene["robot"].data, env.scene["contact_forces"].data
            parts = [obs["policy"], reward[:, None], robot.root_state_w, robot.body_pos_w.flatten(1)]
            seen.append(torch.cat([*parts, sensor.net_forces_w_history.flatten(1)], dim=1).clone())
        env.close()
        return torch.stack(seen)

    whole, alone = run(list(range(6))), run([1, 4])
    assert torch.equal(whole[:, [1, 4]], alone) and not torch.equal(whole[:, 1], whole[:, 4])


def test_functions_of_isaac_sim_are_isaac_labs_own_formulas():
    import isaaclab.utils.math as lab
    from isaacsim.core.utils.torch.rotations import compute_heading_and_up, compute_rot, quat_conjugate

    q, offset = lab.random_orientation(5, "cpu"), lab.random_orientation(5, "cpu")
    velocity, rate, targets, position, forward, up = torch.randn(6, 5, 3)
    local, local_rate, *angles, _ = compute_rot(q, velocity, rate, targets, position)
    torch.testing.assert_close(local, lab.quat_apply_inverse(q, velocity))
    torch.testing.assert_close(local_rate, lab.quat_apply_inverse(q, rate))
    torch.testing.assert_close(
        lab.wrap_to_pi(torch.stack(angles)), lab.wrap_to_pi(torch.stack(lab.euler_xyz_from_quat(q)))
    )
    torso, height, _, up_vec, heading = compute_heading_and_up(q, offset, targets, forward, up, 2)
    torch.testing.assert_close(torso, lab.quat_mul(q, offset))
    torch.testing.assert_close(up_vec, lab.quat_apply(torso, up))
    torch.testing.assert_close(heading, lab.quat_apply(torso, forward))
    assert torch.equal(height, up_vec[:, 2]) and torch.equal(quat_conjugate(q), lab.quat_conjugate(q))


@pytest.mark.parametrize("reader", ["late", "early"])
def test_accelerations_and_wrenches_are_those_of_the_last_step(make, cfgs, reader):
    """They are the same whether or not poses and earlier steps were read; accelerations are changes of velocities."""
    env = make(cfgs.LeggedEnvCfg())
    env.reset()
    robot, view = env.scene["robot"], env.scene["robot"].root_physx_view
    robot.write_root_pose_to_sim(torch.tensor([[0.0, 0.0, 0.5 * STANDING, 1.0, 0.0, 0.0, 0.0]] * 2))
    for step in range(4):
        before = view.get_link_velocities()  # of the written pose
        advance(env, 1, position=torch.full((2, 8), 0.3 * step))
        if reader == "early" or step == 3:
            wrenches = view.get_link_incoming_joint_force()
            changes = (view.get_link_velocities() - before) / env.physics_dt
            assert torch.allclose(view.get_link_accelerations(), changes, rtol=1e-4, atol=1e-2)
            assert torch.equal(view.get_link_incoming_joint_force(), wrenches) and wrenches.abs().max() > 1.0
    # of the last step also after writes and a refresh; 0 where the velocity was written
    last = view.get_link_accelerations()
    robot.write_root_velocity_to_sim(torch.ones(1, 6), env_ids=torch.tensor([1]))
    env.sim.forward()
    assert torch.equal(robot.data.body_acc_w[0], last[0]) and not robot.data.body_acc_w[1].any()
    assert torch.equal(view.get_link_incoming_joint_force(), wrenches)


def test_accelerations_after_a_written_velocity_survive_a_checkpoint(make, cfgs):
    env = make(cfgs.LeggedEnvCfg())
    env.reset()
    robot, physics = env.scene["robot"], env.sim.running
    advance(env, 3)
    robot.write_root_velocity_to_sim(torch.ones(1, 6), env_ids=torch.tensor([1]))
    state, expected = physics.get_state(), physics.read_accelerations()
    advance(env, 2)
    physics.set_state(state)
    assert torch.equal(physics.read_accelerations(), expected) and expected[0].any() and not expected[1].any()


def test_what_is_read_late_survives_a_checkpoint(make, cfgs):
    env = make(cfgs.LeggedEnvCfg())
    env.reset()
    physics, view = env.sim.running, env.scene["robot"].root_physx_view
    advance(env, 3)
    state = physics.get_state()
    expected = view.get_link_accelerations(), view.get_link_incoming_joint_force()
    advance(env, 3)
    assert not torch.equal(view.get_link_accelerations(), expected[0])
    physics.set_state(state)
    assert torch.equal(view.get_link_accelerations(), expected[0])
    assert torch.equal(view.get_link_incoming_joint_force(), expected[1])


def test_what_a_step_left_out_is_what_an_earlier_reader_gets(make, cfgs):
    """Forces of contacts, drives and joints, when they are read for the first time, also after a write."""
    found, cfg = [], cfgs.LeggedEnvCfg()
    cfg.scene.contact_forces = cfg.rewards.contacts = None  # which would read in each step
    for early in (True, False):
        env = make(cfg)
        env.reset()
        robot, engine = env.scene["robot"], env.sim.running.engine
        robot.write_root_pose_to_sim(torch.tensor([[0.0, 0.0, STANDING, 1.0, 0.0, 0.0, 0.0]] * 2))
        for step in range(30):
            advance(env, 1, position=torch.full((2, 8), 0.01 * step))
            if early:
                engine.tensor("contact_forces")
        assert engine._left_out is not early
        robot.write_root_velocity_to_sim(torch.ones(1, 6), env_ids=torch.tensor([1]))
        read = [engine.tensor(name) for name in ("bodies", "contact_forces", "dof_forces")]
        found.append([*read, robot.root_physx_view.get_link_incoming_joint_force()])
        advance(env, 5)
        found[-1].append(engine.tensor("roots"))
        env.close()
    assert all(torch.equal(a, b) and a.abs().max() > 0.1 for a, b in zip(*found))


def test_steps_go_on_leaving_out_forces_after_rare_changes_of_properties(make, cfgs):
    env = make(cfgs.CartpoleEnvCfg())
    env.reset()
    engine, left_out = env.sim.running.engine, []
    for steps in (30, 30, 3, 30):  # the last comes after changes that are not rare
        advance(env, steps)
        left_out.append(engine._left_out)
        engine.set_gravity(np.array([0.0, 0.0, -GRAVITY]))
        engine.set_gravity(np.array([0.0, 0.0, -GRAVITY]))
    assert left_out == [True, True, True, False]


def test_environments_that_share_properties_step_as_with_their_own(make, cfgs):
    found = []
    for factor in (1.0, 1.5):  # of the mass of the last environment's pole
        env = make(cfgs.CartpoleEnvCfg())
        env.reset()
        robot, engine, everyone = env.scene["robot"], env.sim.running.engine, torch.arange(4)
        advance(env, 5, effort=torch.full((4, 2), 0.5))
        masses = robot.root_physx_view.get_masses()
        masses[3, -1] *= factor
        robot.root_physx_view.set_masses(masses, everyone)
        robot.root_physx_view.set_dof_armatures(torch.full((4, 2), 0.02), everyone)
        advance(env, 30, effort=torch.full((4, 2), 0.5))
        found.append(engine.tensor("dofs").view(4, -1))
        env.close()
    assert torch.equal(found[0][:3], found[1][:3]) and not torch.equal(found[0][3], found[1][3])
