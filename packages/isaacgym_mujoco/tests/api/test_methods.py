"""The methods that IsaacGymEnvs' tasks and legged_gym call: each is there, and none does nothing unless listed here."""

import ast
import inspect
import os
import textwrap
from pathlib import Path

import pytest
from isaacgym_scene import gym, load

from isaacgym_mujoco.api import gymapi

# called headless by the tasks of IsaacGymEnvs 1.5.1, with its base classes and domain randomization
TASKS_CALL = """
create_sim prepare_sim simulate fetch_results get_sim_params set_sim_params get_frame_count get_sim_dof_count
get_sim_actor_count add_ground add_triangle_mesh load_asset create_box create_sphere get_asset_dof_count
get_asset_dof_names get_asset_dof_properties get_asset_joint_count get_asset_rigid_body_count
get_asset_rigid_body_name get_asset_rigid_body_names get_asset_rigid_shape_count get_asset_rigid_shape_properties
set_asset_rigid_shape_properties get_asset_actuator_properties get_asset_actuator_count get_asset_actuator_joint_name
get_asset_tendon_count get_asset_tendon_name get_asset_tendon_properties set_asset_tendon_properties
find_asset_rigid_body_index find_asset_dof_index create_asset_force_sensor create_env create_actor begin_aggregate
end_aggregate get_env_origin get_actor_index find_actor_index find_actor_handle find_actor_rigid_body_handle
find_actor_rigid_body_index find_actor_dof_handle get_actor_joint_dict get_rigid_transform get_actor_dof_count
get_env_dof_count get_env_rigid_body_count get_actor_rigid_body_count get_actor_count get_actor_handle get_actor_name
get_actor_rigid_shape_count get_actor_dof_properties set_actor_dof_properties get_actor_rigid_body_properties
set_actor_rigid_body_properties get_actor_rigid_shape_properties set_actor_rigid_shape_properties
get_actor_tendon_properties set_actor_tendon_properties set_actor_scale set_rigid_body_color
enable_actor_dof_force_sensors create_force_sensor create_rigid_body_attractor acquire_dof_state_tensor
acquire_actor_root_state_tensor acquire_rigid_body_state_tensor acquire_net_contact_force_tensor
acquire_dof_force_tensor acquire_force_sensor_tensor acquire_jacobian_tensor acquire_mass_matrix_tensor
refresh_dof_state_tensor refresh_actor_root_state_tensor refresh_rigid_body_state_tensor
refresh_net_contact_force_tensor refresh_dof_force_tensor refresh_force_sensor_tensor refresh_jacobian_tensors
refresh_mass_matrix_tensors set_dof_state_tensor_indexed set_actor_root_state_tensor_indexed
set_actor_root_state_tensor set_dof_position_target_tensor set_dof_position_target_tensor_indexed
set_dof_actuation_force_tensor set_dof_actuation_force_tensor_indexed apply_rigid_body_force_tensors
"""
LEGGED_GYM = ["add_heightfield"]
# only with a viewer, or to look at a scene elsewhere
VIEWER_CALLS = """
create_viewer draw_viewer step_graphics poll_viewer_events query_viewer_has_closed query_viewer_action_events
subscribe_viewer_keyboard_event subscribe_viewer_mouse_event sync_frame_time write_viewer_image_to_file
viewer_camera_look_at get_viewer_camera_transform add_lines clear_lines create_usd_exporter export_usd_sim
"""
TASKS, VIEWER = TASKS_CALL.split(), VIEWER_CALLS.split()
# these have nothing to do here: docs/isaacgym_reference.md says why
NOTHING_TO_DO = {"fetch_results", "begin_aggregate", "end_aggregate", "enable_actor_dof_force_sensors"}
PICTURES = {"set_rigid_body_color"}


def does_nothing(method) -> bool:
    """Tell whether a method's body is at most a docstring and the return of a constant."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    body = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)).body
    return all(
        isinstance(n, ast.Pass)
        or (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
        or (isinstance(n, ast.Return) and (n.value is None or isinstance(n.value, ast.Constant)))
        for n in body
    )


def called(folder: Path) -> set[str]:
    """Return the methods that Python files call on ``gym`` or on something's ``gym``."""
    found = set()
    for file in folder.rglob("*.py"):
        if file.name == "gym_util.py":  # no task imports it, and its gym.initialize is of an older interface
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if name == "gym":
                    found.add(node.attr)
    return found - {"spaces", "logger", "wrappers", "Env", "Space", "Wrapper", "make", "register", "envs"}


@pytest.mark.parametrize("name", [*TASKS, *LEGGED_GYM, *VIEWER])
def test_method_is_implemented_or_raises_an_error_with_its_name(name):
    method = getattr(gymapi.Gym, name, None)
    if method is None:  # refused, by its name
        with pytest.raises(NotImplementedError, match=name):
            getattr(gym, name)()
    elif name not in VIEWER:
        assert does_nothing(method) == (name in NOTHING_TO_DO | PICTURES)


def test_methods_without_effect_are_recognized():
    assert does_nothing(gymapi.Gym.begin_aggregate) and not does_nothing(gymapi.Gym.simulate)


@pytest.mark.skipif("ISAACGYMENVS_PATH" not in os.environ, reason="set ISAACGYMENVS_PATH to a checkout")
def test_isaacgymenvs_tasks_call_only_listed_methods():
    folder = Path(os.environ["ISAACGYMENVS_PATH"]) / "isaacgymenvs"
    found = called(folder / "tasks") | called(folder / "utils")
    assert found and found - set(TASKS) - set(VIEWER) == set()
    assert set(TASKS) - found == set()


@pytest.mark.skipif("LEGGED_GYM_PATH" not in os.environ, reason="set LEGGED_GYM_PATH to a checkout")
def test_legged_gym_calls_only_listed_methods():
    found = called(Path(os.environ["LEGGED_GYM_PATH"]) / "legged_gym")
    assert found and found - set(TASKS) - set(VIEWER) - set(LEGGED_GYM) == set()


def test_signed_distance_fields_are_refused(tmp_path):
    text = """<robot name="nut"><link name="nut"><collision><geometry><mesh filename="nut.obj"/></geometry>
        <sdf resolution="256"/></collision></link></robot>"""
    with pytest.raises(NotImplementedError, match=r"load_asset: .*asset\.urdf: link nut .*signed distance field"):
        load(tmp_path, text)
