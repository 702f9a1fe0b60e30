"""The application: ``AppLauncher``, the timeline and its subscriptions, ``carb``'s settings."""

import argparse
import enum
import logging
from collections.abc import Callable
from typing import Any

import torch

from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.fakes import Fake

_log = logging.getLogger("isaaclab_mujoco")
TimelineEventType = enum.IntEnum("TimelineEventType", {"PLAY": 0, "STOP": 1, "PAUSE": 2})
updates_left: list[int] = []  # of the runner's --updates; empty: no limit


class App:
    """``SimulationApp``: it runs until the runner's ``--updates`` are over, or the user interrupts."""

    def is_running(self) -> bool:
        if updates_left:
            updates_left[0] -= 1
            return updates_left[0] >= 0
        return True

    def is_exiting(self) -> bool:
        return not self.is_running()

    def update(self) -> None:
        pass

    def close(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Fake()


class AppLauncher:
    """``isaaclab.app.AppLauncher``; flags of rendering are accepted, cameras refused."""

    def __init__(self, launcher_args: argparse.Namespace | dict[str, Any] | None = None, **kwargs: Any) -> None:
        given = vars(launcher_args) if isinstance(launcher_args, argparse.Namespace) else dict(launcher_args or {})
        given.update(kwargs)
        if given.get("enable_cameras") or given.get("video"):
            raise NotSupported("--enable_cameras, --video: cameras are not in isaaclab_mujoco; run without them")
        if given.get("xr"):
            raise NotSupported("--xr: XR is not in isaaclab_mujoco; run without it")
        self.app, self.device_id, self.local_rank, self.global_rank = App(), 0, 0, 0

    @staticmethod
    def add_app_launcher_args(parser: argparse.ArgumentParser) -> None:
        """Add the flags that scripts expect."""
        group = parser.add_argument_group("app_launcher arguments")
        for flag in ("headless", "enable_cameras", "xr", "verbose", "info"):
            group.add_argument(f"--{flag}", action="store_true", default=False)
        group.add_argument("--livestream", type=int, default=-1, choices=(-1, 0, 1, 2))
        group.add_argument("--device", type=str, default="cuda:0" if torch.cuda.is_available() else "cpu")
        for flag in ("experience", "kit_args", "rendering_mode"):
            group.add_argument(f"--{flag}", type=str, default="")
        group.add_argument("--anim_recording_enabled", action="store_true", default=False)
        for flag in ("start", "stop"):
            group.add_argument(f"--anim_recording_{flag}_time", type=float, default=0.0)


def usable(device: Any) -> str:
    """Return the device on which to simulate: the CPU where torch has no CUDA; log it once then."""
    if torch.device(str(device)).type == "cpu" or torch.cuda.is_available():
        return str(device)
    if "device" not in _logged:
        _logged.add("device")
        _log.warning("isaaclab_mujoco: %s was asked for, and torch has no CUDA here: the CPU simulates", device)
    return "cpu"


_logged: set[str] = set()


class Subscription:
    """A callback for an event of the timeline."""

    def __init__(self, callback: Callable[[Any], None] | None) -> None:
        if callback is not None:
            subscribed.append(self)
        self._callback = callback

    def __call__(self) -> None:
        if self._callback is not None:
            self._callback(None)

    def unsubscribe(self) -> None:
        if self in subscribed:
            subscribed.remove(self)


subscribed: list[Subscription] = []  # to the start, in their order


class EventStream(Fake):
    dotted = "omni.timeline.EventStream"

    def create_subscription_to_pop_by_type(
        self, event_type: int, fn: Callable[[Any], None], order: int = 0, **_: Any
    ) -> Subscription:
        return Subscription(fn if int(event_type) == int(TimelineEventType.PLAY) else None)


class Timeline(Fake):
    dotted = "omni.timeline.Timeline"

    def get_timeline_event_stream(self) -> EventStream:
        return EventStream()

    def is_playing(self) -> bool:
        return True

    def is_stopped(self) -> bool:
        return False


class Settings(Fake):
    """``carb``'s settings, which start with the server of assets alone, as messages name robots on it."""

    dotted = "carb.settings.Settings"
    values: dict[str, Any] = {"/persistent/isaac/asset_root/cloud": "omniverse:/"}  # noqa: RUF012

    def get(self, path: str) -> Any:
        return self.values.get(path)

    def set(self, path: str, value: Any) -> None:
        self.values[path] = value

    get_as_bool = get_as_int = get_as_string = get
    set_bool = set_int = set_string = set_float = set_default = set

    def set_string_array(self, path: str, value: Any) -> None:
        self.values[path] = value
