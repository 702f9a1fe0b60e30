"""Methods of ``gym`` for viewers, colours, textures and placing cameras, which do nothing: there are no pictures."""

from typing import Any

from isaacgym_mujoco.api.params import INVALID_HANDLE, tell_ignored
from isaacgym_mujoco.api.transforms import Transform

NOTHING = (
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
        tell_ignored("create_viewer", ["the viewer"])

    def create_camera_sensor(self, env: Any, properties: Any) -> int:
        """Return no camera, as Isaac Gym does without graphics; methods that take its pictures raise an error."""
        tell_ignored("create_camera_sensor", ["the camera"])
        return INVALID_HANDLE

    def create_texture_from_file(self, sim: Any, filename: str) -> int:
        """Return no texture; the file is not read."""
        return INVALID_HANDLE

    def create_texture_from_buffer(self, sim: Any, width: int, height: int, buffer: Any) -> int:
        """Return no texture."""
        return INVALID_HANDLE

    def query_viewer_has_closed(self, viewer: Any) -> bool:
        return False

    def query_viewer_action_events(self, viewer: Any) -> list:
        return []

    def get_viewer_camera_transform(self, viewer: Any, env: Any) -> Transform:
        return Transform()


def _nothing(self: ViewerMethods, *args: Any, **kwargs: Any) -> None:
    """Do nothing."""


for _name in NOTHING:
    setattr(ViewerMethods, _name, _nothing)
