"""MuJoCo's web viewer (MuJoCo 4): the physics stays here, and browsers on this machine draw it."""

# MuJoCo's bindings carry no types, and its decorator reads annotations as classes, not as text
# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
from mujoco.studio import launch_web, messages, plugin, viewer_protocol
from mujoco.studio import web_viewer as studio_viewer
from mujoco.studio.dear_imgui import dear_imgui as imgui
from mujoco.studio.web import web_server

from envcoder_bench.sim import rendering

HOST = "127.0.0.1"
TITLE = "EnvCoderBench"
ZOOM = 2.6  # distance of the camera in radii of the robot


class Overlay(plugin.ViewerPlugin):
    """Shows the title of the episode, and lets the camera follow a robot that moves."""

    def __init__(self, playback: Any) -> None:
        self._playback = playback

    @messages.handler
    def on_post_model(self, event: messages.PostModelEvent) -> None:
        """Place the camera of a new model."""
        place_camera(self.viewer.camera, self._playback)

    @messages.handler
    def on_build_gui(self, event: messages.BuildGuiEvent) -> None:
        """Draw the window with the title."""
        imgui.Begin(TITLE)
        imgui.Text(self._playback.title)
        imgui.End()


def place_camera(camera: Any, playback: Any) -> None:
    """Let a camera follow a robot that moves, or show the whole model."""
    low, high = rendering.bounds(playback.model, np.array([playback.data.qpos]))
    mujoco.mjv_defaultFreeCamera(playback.model, camera)
    camera.lookat[:] = (low + high) / 2
    camera.distance = ZOOM * float(np.linalg.norm(high - low)) / 2
    if rendering.is_floating(playback.model):
        camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
        camera.trackbodyid = int(playback.model.jnt_bodyid[0])


@contextmanager
def web_viewer(playback: Any) -> Iterator[tuple[Callable[[], bool], Callable[[], Any]]]:
    """Serve the viewer; yields functions that return whether it is open, and that show the present pose."""
    bind = web_server.bind_public_socket
    # MuJoCo 4.0 binds to all interfaces without authentication, and has no setting for it
    web_server.bind_public_socket = lambda _host, port=0: bind(HOST, port)
    studio_viewer._print_url_banner = _print_address
    config = viewer_protocol.ViewerConfig(title=TITLE, gfx="web")
    with launch_web.launch(config, plugins=[Overlay(playback)]) as handle:
        handle.set_model(playback.model, data=playback.data)
        yield handle.is_running, handle.sync


def _print_address(_host: str, port: int) -> None:
    print(f"open http://localhost:{port}/ in a browser; Ctrl-C ends", flush=True)
