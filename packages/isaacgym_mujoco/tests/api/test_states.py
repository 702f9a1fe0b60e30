"""States and sensors of single actors, and forces at points."""

import math

import numpy as np
import pytest
import torch
from isaacgym_scene import ARM, ENGINES, LOPSIDED, Scene, box, gym, load, pose

from isaacgym_mujoco.api import gymapi

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.parametrize("engine", ENGINES, indirect=True)]


@pytest.mark.parametrize("local", [False, True])
def test_force_at_a_point_equals_the_force_and_its_torque_about_the_centre(tmp_path, local):
    def scene():
        scene = Scene((load(tmp_path, LOPSIDED), pose()), gravity=0.0)
        roots = scene.root.clone()
        roots[:, 3:7] = scene.tensor([0, 0, math.sin(math.pi / 4), math.cos(math.pi / 4)])  # its x is the world's y
        scene.set_roots(roots)
        scene.step()
        return scene

    at_point, at_centre = scene(), scene()
    force, centre = at_point.tensor([1.0, 2.0, 3.0]).repeat(2, 1), at_point.tensor([0, 0.2, 0])
    point = at_point.tensor([0.3, 0.4, 0.5]).repeat(2, 1)
    if local:
        as_local = lambda x: torch.stack([x[:, 1], -x[:, 0], x[:, 2]], dim=1).contiguous()  # noqa: E731
        gym.apply_rigid_body_force_at_pos_tensors(at_point.sim, as_local(force), as_local(point), gymapi.LOCAL_SPACE)
    else:
        gym.apply_rigid_body_force_at_pos_tensors(at_point.sim, force, point, gymapi.ENV_SPACE)
    torque = torch.linalg.cross(point - centre, force)
    gym.apply_rigid_body_force_tensors(at_centre.sim, force, torque, gymapi.ENV_SPACE)
    for scene in (at_point, at_centre):
        scene.step()
    assert at_centre.root[:, 7:].abs().min() > 0
    torch.testing.assert_close(at_point.root, at_centre.root, rtol=1e-4, atol=1e-5)


def test_dof_states_of_one_actor_can_be_set(tmp_path):
    scene = Scene((load(tmp_path, ARM, fix_base_link=True), pose()), gravity=0.0)
    states = gym.get_actor_dof_states(scene.envs[1], 0, gymapi.STATE_ALL)
    states["pos"], states["vel"] = [0.3, -0.2], [5.0, 5.0]
    gym.set_actor_dof_states(scene.envs[1], 0, states, gymapi.STATE_POS)
    scene.refresh()
    assert scene.dof.cpu().numpy() == pytest.approx(np.array([[0, 0], [0, 0], [0.3, 0], [-0.2, 0]]))
    assert gym.get_actor_dof_handle(scene.envs[1], 0, 1) == 1 and gym.get_actor_dof_handle(scene.envs[1], 0, 2) == -1
    scene.step()
    frame = gym.get_dof_frame(scene.envs[1], 1)
    assert list(frame.origin) == pytest.approx([0.4 * math.cos(0.3), 0.4 * math.sin(0.3), 0], abs=1e-5)
    assert list(frame.axis) == pytest.approx([-math.sin(0.3), math.cos(0.3), 0], abs=1e-5)
    with pytest.raises(NotImplementedError, match="actor0 has DOFs"):
        gym.set_sim_rigid_body_states(
            scene.sim, gym.get_sim_rigid_body_states(scene.sim, gymapi.STATE_ALL), gymapi.STATE_ALL
        )


def test_states_and_commands_that_are_set_while_environments_are_created_are_those_of_the_first_step(tmp_path):
    """As in Isaac Gym's examples; aerial_gym_simulator reads the bodies' poses there."""
    start = np.array([[0.3, 0.0], [-0.2, 1.0]], dtype=np.float32).view(gymapi.DofState)[:, 0]

    def before(env):
        if env.index == 1:
            gym.set_actor_dof_states(env, 1, start, gymapi.STATE_ALL)
            assert gym.get_actor_dof_states(env, 1, gymapi.STATE_ALL)["pos"] == pytest.approx([0.3, -0.2])
            gym.set_actor_dof_position_targets(env, 1, np.array([0.3, 0.5]))
        targets = gym.get_actor_dof_position_targets(env, 1)
        assert targets == pytest.approx([0.3, 0.5] if env.index == 1 else [0.0, 0.0])
        with pytest.raises(ValueError, match="set_actor_dof_velocity_targets: 3 values for 2 DOFs"):
            gym.set_actor_dof_velocity_targets(env, 1, np.zeros(3))
        lower = gym.get_actor_rigid_body_states(env, 1, gymapi.STATE_ALL)[2]
        assert lower["pose"]["p"].tolist() == pytest.approx((1.4, 0, 0)) and lower["pose"]["r"]["w"] == 1
        assert not env.sim.compiled

    drive = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 100.0, "damping": 10.0}
    actors = (box(), pose(0, 0, 2)), (load(tmp_path, ARM, fix_base_link=True), pose(1))
    scene = Scene(*actors, before=before, props=drive, gravity=0.0)
    scene.refresh()
    assert scene.dof.cpu().numpy() == pytest.approx(np.array([[0, 0], [0, 0], [0.3, 0], [-0.2, 1]]))
    scene.step(300)
    assert scene.dof[:, 0].cpu().numpy() == pytest.approx([0, 0, 0.3, 0.5], abs=1e-3)
    gym.get_actor_dof_position_targets(scene.envs[1], 1)[:] = 9.0  # a copy
    assert gym.get_actor_dof_position_targets(scene.envs[1], 1) == pytest.approx([0.3, 0.5])
    rows = gym.get_actor_dof_properties(scene.envs[0], 1)
    rows["driveMode"] = gymapi.DOF_MODE_EFFORT
    gym.set_actor_dof_properties(scene.envs[0], 1, rows)
    gym.apply_actor_dof_efforts(scene.envs[0], 1, [0.0, 2.0])
    scene.step()
    assert scene.dof[1, 1] > 0.01 and abs(scene.dof[3, 1]) < 1e-3


def test_states_of_all_bodies_are_restored_and_sensors_read():
    asset = box(density=100.0)
    gym.create_asset_force_sensor(asset, 0, gymapi.Transform())
    scene = Scene((asset, pose(0, 0, 2)), (asset, pose(1, 0, 2)))
    first = np.copy(gym.get_sim_rigid_body_states(scene.sim, gymapi.STATE_ALL))
    assert first["pose"]["p"]["x"].tolist() == [0, 1, 0, 1] and first["pose"]["r"]["w"].tolist() == [1] * 4
    scene.step(5)
    one = gym.get_actor_rigid_body_states(scene.envs[1], 1, gymapi.STATE_ALL)
    assert one["vel"]["linear"]["z"] == pytest.approx([-0.4905], rel=1e-4) and one["pose"]["p"]["x"] == [1]
    sensor = gym.get_actor_force_sensor(scene.envs[1], 1, 0)
    assert gym.get_actor_force_sensor_count(scene.envs[1], 1) == 1 and gym.get_sim_force_sensor_count(scene.sim) == 4
    assert sensor.get_forces().force.z == pytest.approx(-9.81 * 0.8, rel=1e-4)
    gym.set_sim_rigid_body_states(scene.sim, first, gymapi.STATE_ALL)
    scene.refresh()
    assert torch.allclose(scene.root[:, 2], scene.tensor([2.0])) and scene.root[:, 7:].abs().max() == 0
    first["pose"]["r"]["z"] = first["pose"]["r"]["w"] = math.sqrt(0.5)
    first["vel"]["linear"]["y"] = 3.0
    gym.set_sim_rigid_body_states(scene.sim, first, gymapi.STATE_POS)
    scene.refresh()
    assert torch.allclose(scene.root[:, 5:7], scene.tensor([0.5]).sqrt()) and scene.root[:, 7:].abs().max() == 0
