"""MuJoCo Warp's engine, which runs on CUDA, against MuJoCo's, with everything that Isaac Lab reads of a simulation."""

import pytest
import torch

from isaaclab_mujoco.tensors import physics


def observed(make, monkeypatch, engine):
    """Push a robot beside two boxes; return what assets, sensors and views read, by name."""
    import lab_configs as cfgs
    from isaaclab.sensors import ContactSensorCfg, ImuCfg

    monkeypatch.setenv(physics.ENGINE_VARIABLE, engine)
    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.box, cfg.scene.upper = cfgs.box(1.0), cfgs.box(0.4, mass=1.0)
    cfg.scene.upper.prim_path, cfg.scene.upper.init_state.pos = "{ENV_REGEX_NS}/Upper", (1.0, 0.0, 0.3)
    filters = ["{ENV_REGEX_NS}/Upper", "/World/ground"]
    cfg.scene.touch = ContactSensorCfg(prim_path="{ENV_REGEX_NS}/Box", filter_prim_paths_expr=filters)
    cfg.scene.imu = ImuCfg(prim_path="{ENV_REGEX_NS}/Robot/base")
    env = make(cfg)
    env.reset()
    robot, view = env.scene["robot"], env.scene["robot"].root_physx_view
    masses = view.get_masses()
    masses[1, 0] += 1.0
    view.set_masses(masses, torch.tensor([1]))
    view.get_link_incoming_joint_force()  # from now on they are computed
    # at rest, then pushed: friction holds, and an effort acts beside the drives
    for step in range(80):
        forces = torch.zeros(2, 13, 3)
        forces[:, 0, 0] = 6.0 * (step > 50)
        robot.set_joint_effort_target(torch.full((2, 8), 0.5 * (step > 50)))
        env.scene.write_data_to_sim()
        view.apply_forces_and_torques_at_position(forces, None, None, None, is_global=True)
        env.scene["box"].root_physx_view.apply_forces_and_torques_at_position(forces[:, 0], is_global=True)
        env.sim.step(render=False)
        env.scene.update(env.physics_dt)
    friction, points, counts, _ = env.scene["touch"].contact_physx_view.get_friction_data(env.physics_dt)
    assert type(env.sim.physics.engine).__name__ == ("WarpEngine" if engine else "CpuEngine")
    values = {
        "joints": robot.data.joint_pos,
        "speeds": robot.data.joint_vel,
        "bodies": robot.data.body_pos_w,
        "velocities": robot.data.body_com_vel_w,
        "net": env.scene["contact_forces"].data.net_forces_w,
        "matrix": env.scene["touch"].data.force_matrix_w,
        "friction": friction.view(2, -1, 3).sum(dim=1),
        "height": points[:, 2].sort().values,
        "counts": counts.float(),
        "wrenches": view.get_link_incoming_joint_force(),
        "accelerations": env.scene["imu"].data.lin_acc_b,
        "jacobians": view.get_jacobians(),
    }
    values = {name: x.clone() for name, x in values.items()}
    env.close()
    return values


def test_both_engines_read_the_same(make, monkeypatch):
    expected, mine = (observed(make, monkeypatch, engine) for engine in ("", "warp"))
    sizes = {"net": 30.0, "matrix": 30.0, "friction": 5.0, "wrenches": 30.0, "accelerations": 10.0}
    for name, x in expected.items():
        assert x.shape == mine[name].shape and x.abs().max() > 1e-3, name
        assert torch.allclose(mine[name], x, atol=1e-2 * sizes.get(name, 1.0)), (name, (mine[name] - x).abs().max())


def test_a_device_that_is_not_there_is_the_cpu():
    from isaaclab_mujoco.stage.app import usable

    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    assert usable("cuda:0") == "cpu"
