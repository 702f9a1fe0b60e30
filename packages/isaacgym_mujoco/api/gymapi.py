"""Isaac Gym's ``gymapi``: ``acquire_gym()``, the parameter and property objects, and the constants."""

import sys
from typing import Any

from isaacgym_mujoco.api.gym_assets import AssetMethods
from isaacgym_mujoco.api.gym_properties import PropertyMethods
from isaacgym_mujoco.api.gym_scene import SceneMethods
from isaacgym_mujoco.api.gym_states import BODY_STATE, DOF_STATE, StateMethods
from isaacgym_mujoco.api.gym_tensors import TensorMethods
from isaacgym_mujoco.api.simulation import Env  # noqa: F401
from isaacgym_mujoco.api.simulation import Simulation as Sim  # noqa: F401
from mujoco_batches.assets.asset import Asset, AssetError  # noqa: F401
from mujoco_batches.scene import params as _params
from mujoco_batches.scene.params import *  # noqa: F403
from mujoco_batches.scene.properties import (  # noqa: F401
    DOF_PROPERTIES,
    ActuatorProperties,
    IndexRange,
    Mat33,
    RigidBodyProperties,
    RigidShapeProperties,
    TendonProperties,
)
from mujoco_batches.scene.transforms import Quat, Transform, Vec3  # noqa: F401

DofProperties = DOF_PROPERTIES
DofState = DOF_STATE
RigidBodyState = BODY_STATE
KEY_NAMES = [*(f"KEY_{key}" for key in _params.KEYS), *(f"MOUSE_{side}_BUTTON" for side in ("LEFT", "RIGHT", "MIDDLE"))]
for _number, _key in enumerate(KEY_NAMES):
    setattr(sys.modules[__name__], _key, _number)


_NOTHING = (  # methods for pictures, which this package does not draw
    *("set_rigid_body_color", "reset_actor_materials", "set_light_parameters", "viewer_camera_look_at"),
    *("add_lines", "clear_lines", "draw_viewer", "step_graphics", "poll_viewer_events", "sync_frame_time"),
    *("subscribe_viewer_keyboard_event", "subscribe_viewer_mouse_event", "destroy_viewer"),
    *("write_viewer_image_to_file", "set_rigid_body_segmentation_id", "set_rigid_body_texture"),
    *("set_camera_location", "set_camera_transform", "attach_camera_to_body", "destroy_camera_sensor"),
    *("render_all_camera_sensors", "draw_env_rigid_contacts", "get_viewer_camera_handle"),
)


class ViewerMethods:
    """Methods without a viewer; ``create_viewer`` returns None, as in headless mode."""

    def create_viewer(self, sim: Any, properties: Any) -> None:
        _params.tell_ignored("create_viewer", ["the viewer"])

    def create_camera_sensor(self, env: Any, properties: Any) -> int:
        """Return no camera, as Isaac Gym does without graphics; methods that take its pictures raise an error."""
        _params.tell_ignored("create_camera_sensor", ["the camera"])
        return _params.INVALID_HANDLE

    def create_texture_from_file(self, sim: Any, filename: str) -> int:
        """Return no texture; the file is not read."""
        return _params.INVALID_HANDLE

    def create_texture_from_buffer(self, sim: Any, width: int, height: int, buffer: Any) -> int:
        """Return no texture."""
        return _params.INVALID_HANDLE

    def query_viewer_has_closed(self, viewer: Any) -> bool:
        return False

    def query_viewer_action_events(self, viewer: Any) -> list:
        return []

    def get_viewer_camera_transform(self, viewer: Any, env: Any) -> Transform:
        return Transform()


def _nothing(self: ViewerMethods, *args: Any, **kwargs: Any) -> None:
    """Do nothing."""


for _name in _NOTHING:
    setattr(ViewerMethods, _name, _nothing)


class Gym(AssetMethods, SceneMethods, PropertyMethods, TensorMethods, StateMethods, ViewerMethods):
    """All methods; a method that is not supported raises ``NotImplementedError`` with its name when it is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def missing(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"gym.{name} is not supported by isaacgym_mujoco")

        return missing


_gym = Gym()


def acquire_gym(*args: Any) -> Gym:
    """Return the only ``Gym``."""
    return _gym
