"""Isaac Lab's code that waits for the device in each physics step, although the host can know the answer.

Also here: accelerations that are computed only to be set to zero. Results are the same. A sensor whose period is at
most a physics step is computed in each; in Isaac Lab's own code the rounding of its clock skips some after 32 s of an
episode.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isaaclab_mujoco.import_hook import after_import

ALL, NONE = "all", "none"  # environments whose data of a sensor are outdated; None: some, which the device knows


def install() -> None:
    after_import("isaaclab.sensors.sensor_base", lambda module: _sensors(module.SensorBase))
    after_import("isaaclab.utils.wrench_composer", lambda module: _wrenches(module.WrenchComposer))
    after_import("isaaclab.utils.buffers.circular_buffer", lambda module: _lengths(module.CircularBuffer))

    for name, kind in (("articulation.articulation", "Articulation"), ("rigid_object.rigid_object", "RigidObject")):
        after_import(f"isaaclab.assets.{name}", lambda module, kind=kind: _velocities(getattr(module, kind)))


def note_outdated(sensor: Any, which: str | None) -> None:
    """Note in which environments the data of a sensor are outdated, after its flags were set."""
    sensor._outdated = which


def _sensors(cls: Any) -> None:
    update, reset, compute = cls.update, cls.reset, cls._update_outdated_buffers

    def updated(self: Any, dt: float, force_recompute: bool = False) -> None:
        note_outdated(self, ALL if self.cfg.update_period <= dt + 1e-6 else None)
        update(self, dt, force_recompute)

    def resetting(self: Any, env_ids: Any = None) -> None:
        reset(self, env_ids)
        note_outdated(self, None)

    def computed(self: Any) -> None:
        outdated = getattr(self, "_outdated", None)
        if outdated == ALL:
            self._update_buffers_impl(torch.arange(len(self._is_outdated), device=self._device))
            self._timestamp_last_update.copy_(self._timestamp)
            self._is_outdated.zero_()
        elif outdated is None:
            compute(self)
        note_outdated(self, NONE)

    cls.update, cls.reset, cls._update_outdated_buffers = updated, resetting, computed


def _velocities(cls: Any) -> None:
    """Let a write of velocities leave accelerations alone that no one has read; ``Physics`` sets them to zero."""
    write = cls.write_root_com_velocity_to_sim

    @functools.wraps(write)
    def writing(self: Any, root_velocity: Any, env_ids: Any = None) -> None:
        data = self._data
        buffer, engine = data._body_com_acc_w, self._root_physx_view.physics.engine
        held = buffer.data, buffer.timestamp
        unread = engine.keeps_velocities and buffer.timestamp < data._sim_timestamp
        if unread:
            buffer.data, buffer.timestamp = torch.zeros(engine.num_envs, 1, 1), data._sim_timestamp
        write(self, root_velocity, env_ids)
        if unread:
            buffer.data, buffer.timestamp = held

    cls.write_root_com_velocity_to_sim = writing


def _lengths(cls: Any) -> None:
    init: Callable[..., None] = cls.__init__

    def made(self: Any, max_len: int, *args: Any, **kwargs: Any) -> None:
        init(self, max_len, *args, **kwargs)
        self._length = int(max_len)

    cls.__init__, cls.max_length = made, property(lambda self: self._length)


def _wrenches(cls: Any) -> None:
    reset = cls.reset

    def resetting(self: Any, env_ids: Any = None) -> None:
        mask = getattr(env_ids, "mask", None)  # all environments, of which some are meant
        if mask is not None:
            for x in (self.composed_force_as_torch, self.composed_torque_as_torch):
                x.masked_fill_(mask.view(-1, 1, 1), 0.0)
        elif env_ids is not None or self._active:  # else there is nothing but zeros
            reset(self, env_ids)
        self._link_poses_updated = False

    cls.reset = resetting
