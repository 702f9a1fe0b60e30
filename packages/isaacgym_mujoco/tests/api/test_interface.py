"""What task code does around the physics: names and indices, property objects, tensors, refusals."""

import logging

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from isaacgym_scene import ARM, SLIDER, TREE, Scene, gym, load, options, pose

from isaacgym_mujoco.api import gymapi, gymtorch, gymutil, torch_utils
from mujoco_batches.scene import params as params_module


def test_camera_handle_is_invalid_and_images_are_refused():
    camera = gym.create_camera_sensor(None, gymapi.CameraProperties())
    assert camera == gymapi.INVALID_HANDLE
    gym.attach_camera_to_body(camera, None, 0, gymapi.Transform(), gymapi.FOLLOW_TRANSFORM)
    gym.render_all_camera_sensors(None)
    with pytest.raises(NotImplementedError, match=r"gym\.get_camera_image_gpu_tensor"):
        gym.get_camera_image_gpu_tensor(None, None, camera, gymapi.IMAGE_DEPTH)


def test_textures_are_accepted_and_have_no_effect():
    for handle in (
        gym.create_texture_from_file(None, "no/such/stone.jpg"),
        gym.create_texture_from_buffer(None, 1, 1, np.zeros(4, np.uint8)),
    ):
        gym.set_rigid_body_texture(None, 0, 0, gymapi.MESH_VISUAL, handle)
        assert handle == gymapi.INVALID_HANDLE


def test_keys_have_distinct_values():
    names = ("KEY_V", "KEY_LEFT_BRACKET", "KEY_RIGHT_BRACKET", "KEY_NUMPAD_5", "KEY_F1", "MOUSE_LEFT_BUTTON")
    assert len({getattr(gymapi, name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["apply_random_samples", "check_buckets", "get_property_setter_map"])
def test_old_randomization_functions_are_importable_and_refused(name):
    with pytest.raises(NotImplementedError, match=rf"gymutil\.{name} .* run the script without"):
        getattr(gymutil, name)(None)


def test_random_signs_have_equal_probability():
    drawn = torch_utils.torch_rand_sign((2000, 1), "cpu")
    assert drawn.shape == (2000, 1) and set(drawn.flatten().tolist()) == {-1.0, 1.0} and abs(drawn.mean()) < 0.1


def test_uniform_rows_can_be_counted_by_a_tensor():
    """As TorchScript converts it in Isaac Gym."""
    count = torch.tensor([True, False, True, True]).sum()
    drawn = torch_utils.torch_rand_float(0.0, 1.0, (count, 2), "cpu")
    torch.default_generator.manual_seed(0)  # as before the test
    assert torch.equal(drawn, torch_utils.torch_rand_float(0.0, 1.0, (3, 2), "cpu")) and drawn.shape == (3, 2)


def test_actors_are_created_with_the_keywords_of_isaac_gym():
    sim = gym.create_sim(0, -1, gymapi.SIM_PHYSX, gymapi.SimParams())
    env = gym.create_env(sim, gymapi.Vec3(), gymapi.Vec3(), 1)
    ball = gym.create_sphere(sim, 0.1, None)
    assert gym.create_actor(env, ball, pose(), "first", group=0, filter=1, segmentationId=2) == 0
    assert gym.create_actor(env, ball, pose(), name="second", group=0, filter=1, segmentationId=3) == 1
    assert gym.find_actor_handle(env, "second") == 1


def test_parameters_are_passed_by_isaac_gym_s_names_and_through_hydra_as_they_are(tmp_path):
    """mppi-isaac gives names; umi-on-legs gives the parameters to Hydra, which replaces dataclasses by configs."""
    params = instantiate({"_target_": "builtins.dict"}, params=gymapi.SimParams())["params"]
    assert type(params) is gymapi.SimParams
    sim = gym.create_sim(compute_device=0, graphics_device=-1, type=gymapi.SIM_PHYSX, params=params)
    (tmp_path / "arm.urdf").write_text(ARM)
    arm = gym.load_asset(sim, rootpath=str(tmp_path), filename="arm.urdf")
    env = gym.create_env(sim, gymapi.Vec3(), gymapi.Vec3(), 1)
    gym.create_actor(env, arm, pose())
    bodies = gym.get_actor_rigid_body_properties(env, 0)
    assert gym.set_actor_rigid_body_properties(env, actorHandle=0, props=bodies, recomputeInertia=False)


def test_elapsed_time_is_non_negative_and_increases():
    sim = gym.create_sim(0, -1, gymapi.SIM_PHYSX, gymapi.SimParams())
    first = gym.get_elapsed_time(sim)
    assert 0.0 <= first <= gym.get_elapsed_time(sim)


def test_tensors_that_require_gradients_are_refreshed(tmp_path):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()), num_envs=2)
    gym.prepare_sim(scene.sim)
    forces, dofs = gym.acquire_net_contact_force_tensor(scene.sim), gym.acquire_dof_state_tensor(scene.sim)
    for x, refresh in ((forces, gym.refresh_net_contact_force_tensor), (dofs, gym.refresh_dof_state_tensor)):
        x.copy_(torch.ones(x.shape, requires_grad=True))
        refresh(scene.sim)
        assert x.requires_grad and float(x.detach().abs().max()) == 0.0


def test_constants_are_also_enumeration_members():
    assert gymapi.CoordinateSpace.LOCAL_SPACE == gymapi.LOCAL_SPACE and gymapi.UpAxis(1) == gymapi.UP_AXIS_Z
    assert gymapi.IndexDomain.DOMAIN_SIM == gymapi.DOMAIN_SIM and gymapi.SimType.SIM_PHYSX == gymapi.SIM_PHYSX == 1
    assert gymapi.DofDriveMode.DOF_MODE_EFFORT == gymapi.DOF_MODE_EFFORT
    scene = Scene((gym.create_sphere(None, 0.1, options(density=1000.0)), pose(0, 0, 5)), gravity=0.0)
    mass = gym.get_actor_rigid_body_properties(scene.envs[0], 0)[0].mass
    force = torch.tensor([[[0.0, mass, 0.0]]]).repeat(2, 1, 1)
    gym.apply_rigid_body_force_tensors(scene.sim, forceTensor=force, space=gymapi.CoordinateSpace.GLOBAL_SPACE)
    scene.step()
    assert float(scene.root[0, 8]) == pytest.approx(0.01, rel=1e-3)


def test_indices_match_their_domain(tmp_path):
    arm, ball = load(tmp_path, ARM, fix_base_link=True), gym.create_sphere(None, 0.1, options())
    scene = Scene((ball, pose(0, 0, 5)), (arm, pose()), num_envs=3)
    env = scene.envs[2]
    assert [gym.get_actor_index(env, 1, d) for d in (gymapi.DOMAIN_ENV, gymapi.DOMAIN_SIM)] == [1, 5]
    assert gym.find_actor_handle(env, "actor1") == 1 and gym.find_actor_handle(env, "nobody") == -1
    assert gym.find_actor_rigid_body_handle(env, 1, "lower") == 3
    assert gym.find_actor_rigid_body_index(env, 1, "lower", gymapi.DOMAIN_SIM) == 11
    found = [gym.get_actor_rigid_body_index(env, 1, 2, d) for d in (gymapi.DOMAIN_ACTOR, gymapi.DOMAIN_ENV)]
    assert found == [2, 3] and gym.get_actor_rigid_body_index(env, 1, 2, gymapi.DOMAIN_SIM) == 11
    assert gym.get_actor_rigid_body_index(env, 1, 3, gymapi.DOMAIN_ENV) == gymapi.INVALID_HANDLE
    assert gym.get_actor_root_rigid_body_handle(env, 1) == 1 and gym.get_actor_rigid_body_handle(env, 0, 0) == 0
    for ranges in (gym.get_asset_rigid_body_shape_indices(arm), gym.get_actor_rigid_body_shape_indices(env, 1)):
        shapes = [b for b, body in enumerate(ranges) for _ in range(body.start, body.start + body.count)]
        assert shapes == (arm.model.geom_bodyid - 1).tolist() and isinstance(ranges[0], gymapi.IndexRange)
    assert gym.find_actor_dof_handle(env, 1, "j2") == 1
    assert gym.find_actor_dof_index(env, 1, "j2", gymapi.DOMAIN_SIM) == 5
    assert gym.find_actor_dof_index(env, 1, name="j2", domain=gymapi.DOMAIN_ACTOR) == 1
    for method, body in ((gym.get_actor_rigid_body_index, 2), (gym.find_actor_rigid_body_index, "lower")):
        with pytest.raises(TypeError, match="domain"):
            method(env, 1, body)
    assert gym.find_actor_joint_handle(env, 1, "j2") == 1
    assert {e: e.index for e in scene.envs}[env] == 2
    assert gym.get_actor_joint_dict(env, 1) == {"j1": 0, "j2": 1}
    assert gym.get_sim_dof_count(scene.sim) == 6 and gym.get_sim_actor_count(scene.sim) == 6
    assert [len(t) for t in (scene.root, scene.dof, scene.bodies, scene.contacts)] == [6, 6, 12, 12]


def test_dof_properties_accept_scalars_arrays_and_tensors(tmp_path):
    rows = gym.get_asset_dof_properties(load(tmp_path, TREE))
    rows["driveMode"][0] = gymapi.DOF_MODE_POS
    rows["stiffness"][:] = 4.0
    rows["damping"].fill(2.0)
    rows["velocity"] = 9.0
    rows["effort"][1] = torch.tensor(3.0)
    rows[1]["lower"] = -5.0
    assert rows["driveMode"].tolist() == [1, 0] and rows["effort"].tolist() == [9, 3]
    assert rows["lower"].tolist() == pytest.approx([0.1, -5]) and rows["stiffness"].tolist() == [4, 4]


def test_scene_without_dofs_has_no_tensors_of_them():
    """As in Isaac Gym: IsaacGymMultiAgent asks what was acquired, aerial_gym_simulator what is wrapped."""
    scene = Scene((gym.create_sphere(None, 0.1, options()), pose(0, 0, 5)))
    for acquired in (scene.dof, gym.acquire_dof_force_tensor(scene.sim)):
        assert acquired.ndim == 0 and gymtorch.wrap_tensor(acquired) is None
    scene.step()
    assert len(scene.root) == 2


def test_dof_types_are_those_of_the_joints(tmp_path):
    for text, kind, name in ((ARM, gymapi.DOF_ROTATION, "Rotation"), (SLIDER, gymapi.DOF_TRANSLATION, "Translation")):
        asset = load(tmp_path, text)
        kinds = [gym.get_asset_dof_type(asset, k) for k in range(gym.get_asset_dof_count(asset))]
        assert kinds and set(kinds) == {gymapi.DofType(kind)} and gym.get_dof_type_string(kinds[0]) == name


def test_columns_of_dof_properties_are_tensors_without_a_copy(tmp_path):
    """Isaac Gym's rows are 10 fields of 4 bytes; torch refuses strides that are not a multiple of an element."""
    rows = gym.get_asset_dof_properties(load(tmp_path, TREE))
    assert rows.dtype.itemsize == 40 and rows.dtype.fields["lower"][1] == 4
    lower = torch.from_numpy(rows["lower"])
    assert lower.tolist() == pytest.approx(rows["lower"].tolist()) and lower.stride() == (10,)
    rows["lower"][1] = -3.0
    assert lower[1] == -3.0


def test_time_step_has_single_precision():
    """As legged_gym prints it on Isaac Gym. Its episodes of 20 s have 1001 steps there, not 1000."""
    params = gymapi.SimParams()
    assert params.dt == 0.01666666753590107 and isinstance(params.dt, float)
    params.dt = 0.005
    assert params.dt == 0.004999999888241291 and np.ceil(20 / (4 * params.dt)) == 1001
    sim = gym.create_sim(0, -1, gymapi.SIM_PHYSX, params)
    assert gym.get_sim_params(sim).dt == params.dt


def test_rigid_transform_is_available_before_and_after_prepare_sim(tmp_path):
    def read(env):
        lower = gym.find_actor_rigid_body_handle(env, 0, "lower")
        assert list(gym.get_rigid_transform(env, lower).p) == pytest.approx([1, 0.4, 0])

    turned = gymapi.Transform(gymapi.Vec3(1, 0, 0), gymapi.Quat.from_axis_angle(gymapi.Vec3(0, 0, 1), np.pi / 2))
    scene = Scene((load(tmp_path, ARM, fix_base_link=True), turned), before=read)
    read(scene.envs[1])


def test_tensors_exist_before_prepare_sim_and_keep_their_address(tmp_path):
    scene = Scene((load(tmp_path, ARM, fix_base_link=True), pose()))
    assert gym.acquire_dof_state_tensor(scene.sim) is scene.dof
    assert gymtorch.wrap_tensor(scene.dof) is scene.dof
    place = scene.dof.data_ptr()
    scene.step(3, effort=1.0)
    assert scene.dof.data_ptr() == place and scene.dof.abs().sum() > 0 and gym.get_frame_count(scene.sim) == 3


def test_invalid_calls_are_refused(tmp_path, monkeypatch):
    arm, ball = load(tmp_path, ARM), gym.create_sphere(None, 0.1, options())
    scene = Scene((arm, pose()))
    with pytest.raises(TypeError, match="int32"):
        gym.set_dof_state_tensor_indexed(scene.sim, scene.dof, torch.tensor([0]), 1)
    with pytest.raises(IndexError, match="0 to 1"):
        gym.set_dof_state_tensor_indexed(scene.sim, scene.dof, torch.tensor([2], dtype=torch.int32), 1)
    with pytest.raises(ValueError, match="contiguous"):
        gymtorch.unwrap_tensor(torch.zeros(2, 3).T)
    with pytest.raises(RuntimeError, match="create_actor after"):
        gym.create_actor(scene.envs[0], ball, pose(), "late", 0, 0)
    with pytest.raises(ValueError, match="actor0"):
        gym.acquire_mass_matrix_tensor(scene.sim, "nobody")
    with pytest.raises(NotImplementedError, match="SIM_FLEX"):
        gym.create_sim(0, 0, gymapi.SIM_FLEX, gymapi.SimParams())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    params = gymapi.SimParams()
    params.use_gpu_pipeline = True
    with pytest.raises(RuntimeError, match="pipeline=cpu"):
        gym.create_sim(0, -1, gymapi.SIM_PHYSX, params)


def test_environments_with_different_assets_are_refused_by_name():
    shapes = gym.create_sphere(None, 0.1, None), gym.create_box(None, 0.1, 0.1, 0.1, None)
    with pytest.raises(NotImplementedError, match="actor 'actor0' of environment 1"):
        Scene((lambda env: shapes[env], pose()))


def test_unsupported_parameters_are_logged_once(caplog):
    params = gymapi.SimParams()
    params.physx.bounce_threshold_velocity, params.physx.unheard_of = 9.0, 1
    with caplog.at_level(logging.WARNING, logger="mujoco_batches"):
        for _ in range(2):
            gym.create_sim(0, -1, gymapi.SIM_PHYSX, params)
    assert [r.message for r in caplog.records if "unheard_of" in r.message] == [
        "SimParams: without effect on MuJoCo: physx.bounce_threshold_velocity, physx.unheard_of"
    ]


def test_unsupported_contact_properties_are_logged_once_for_all_actors(tmp_path, caplog, monkeypatch):
    """Tasks set them on the asset, and domain randomization sets them repeatedly on every actor."""
    monkeypatch.setattr(params_module, "_logged", set())
    names = ("restitution", "rolling_friction", "torsion_friction")
    with caplog.at_level(logging.WARNING, logger="mujoco_batches"):
        ball = gym.create_sphere(None, 0.1, options())
        shapes = gym.get_asset_rigid_shape_properties(ball)
        shapes[0].restitution = 0.5
        gym.set_asset_rigid_shape_properties(ball, shapes)
        scene = Scene((ball, pose(0, 0, 1)), ground=True)
        for env in scene.envs * 2:
            shapes = gym.get_actor_rigid_shape_properties(env, 0)
            for name in names:
                setattr(shapes[0], name, 0.3)
            gym.set_actor_rigid_shape_properties(env, 0, shapes)
    messages = [r.message for r in caplog.records]
    for name in names:
        assert sum(name in message for message in messages) == 1, messages


def test_gymutil_and_torch_utils_helpers_match_isaac_gym(monkeypatch):
    assert gymutil.parse_device_str("cuda:1") == ("cuda", 1)
    params = gymapi.SimParams()
    gymutil.parse_sim_config({"dt": 0.01, "gravity": [0, 0, -3], "up_axis": "z", "physx": {"num_threads": 4}}, params)
    assert (params.dt, params.gravity.z, params.up_axis, params.physx.num_threads) == (np.float32(0.01), -3, 1, 4)
    monkeypatch.setattr("sys.argv", ["train.py", "--headless", "--task=a1", "--num_envs", "8"])
    own = [{"name": "--task", "type": str, "default": "x"}, {"name": "--num_envs", "type": int}]
    args = gymutil.parse_arguments(custom_parameters=[*own, {"name": "--headless", "action": "store_true"}])
    assert (args.task, args.num_envs, args.headless, args.physics_engine) == ("a1", 8, True, gymapi.SIM_PHYSX)
    for name in ("np", "torch", "to_torch", "get_axis_params", "quat_rotate_inverse", "torch_rand_float", "normalize"):
        assert hasattr(torch_utils, name)
