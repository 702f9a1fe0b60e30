"""The protocol of an episode: commands towards waypoints, ends, and metrics. All tensors are ``(n, ...)`` robots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.grid.settings import GridSettings

RUNNING, FALL, FLIP, FINISH, LIMIT, UNSTABLE = range(6)
ENDS = ("running", "fall", "flip", "finish", "limit", "unstable")
_SUMS = ("roll", "pitch", "turning", "height", "height_squared", "velocity")


class Episodes:
    """Commands, ends and metrics of running episodes.

    Positions are local: x and y from the arena's corner; ``height`` is the base's above the ground under it.

    Args:
        length, middle: ``(n,)`` length of each robot's arena, and y of the arena's middle line, m.
        zones: number of zones of the widest arena.
        fall_height, fall_angle: of the robot, m and rad; None for the settings' height, and for no angle.

    Attributes:
        end: ``(n,)`` int64, RUNNING, or why the episode ended; an ended episode does not change any more.
        state: all tensors by name, which a checkpoint holds.
    """

    def __init__(
        self,
        settings: GridSettings,
        length: Tensor,
        middle: Tensor,
        zones: int,
        fall_height: float | None = None,
        fall_angle: float | None = None,
    ) -> None:
        self.settings, self.zones = settings, zones
        self._fall_height = settings.ends.fall_height if fall_height is None else fall_height
        self._fall_upright = -2.0 if fall_angle is None else math.cos(fall_angle)  # -2: no cosine is less
        self._length, self._middle = length, middle
        n, device = len(length), length.device
        self._numbers = torch.arange(zones, device=device)
        wide = torch.zeros(n, dtype=torch.float64, device=device)
        whole = torch.zeros(n, dtype=torch.int64, device=device)
        self.state: dict[str, Tensor] = {
            "end": whole.clone(),
            "steps": whole.clone(),
            "waypoint": whole + 1,
            "progress": torch.zeros(n, device=device),
            "complete_step": whole - 1,
            "energy": wide.clone(),
            "last_x": torch.zeros(n, device=device),
            "last_y": torch.zeros(n, device=device),
            "zone_steps": whole.new_zeros(n, zones),
            **{name: wide.new_zeros(n, zones) for name in _SUMS},
        }

    @property
    def end(self) -> Tensor:
        """Why each episode ended, ``(n,)``."""
        return self.state["end"]

    def commands(self, x: Tensor, y: Tensor, yaw: Tensor) -> Tensor:
        """Return the commands ``(n, 3)``: m/s, m/s, rad/s. Robots that have reached their waypoint get the next one."""
        figures, waypoint = self.settings.commands, self.state["waypoint"]
        last = torch.ceil(self._length / figures.waypoint_spacing).to(torch.int64)
        reached = x >= waypoint * figures.waypoint_spacing - figures.waypoint_reached
        waypoint.copy_(torch.minimum(waypoint + reached, last))
        ahead = waypoint * figures.waypoint_spacing - x
        error = wrapped(by_rows(torch.atan2, self._middle - y, ahead) - yaw)
        wz = (figures.yaw_gain * error).clamp(-figures.max_wz, figures.max_wz)
        return torch.stack([torch.full_like(x, figures.vx), torch.full_like(x, figures.vy), wz], dim=1)

    def update(
        self,
        x: Tensor,
        y: Tensor,
        height: Tensor,
        quat: Tensor,
        velocity: Tensor,
        turning: Tensor,
        power: Tensor,
        zone: Tensor,
        unstable: Tensor,
    ) -> None:
        """Count a control step of the running episodes, and end those that it ends.

        Args:
            x, y, height: ``(n,)`` of the base, m.
            quat: ``(n, 4)`` xyzw.
            velocity: ``(n,)`` along the arena, m/s.
            turning: ``(n,)`` magnitude of the angular velocity, rad/s.
            power: ``(n,)`` sum of |torque * joint velocity|, W.
            zone: ``(n,)`` int64, from 0.
            unstable: ``(n,)`` bool, whether the simulator had to reset the robot; its state is then not counted.
        """
        settings, state = self.settings, self.state
        ends = settings.ends
        running = state["end"] == RUNNING
        counts = running & ~unstable
        # sums by zone; ``result`` divides them
        roll, pitch, _ = roll_pitch_yaw(quat)
        state["steps"] += running
        where = (zone.clamp(max=self.zones - 1).unsqueeze(1) == self._numbers) & counts.unsqueeze(1)
        state["zone_steps"] += where
        values = (roll.abs(), pitch.abs(), turning, height, height.double() * height.double(), velocity)
        for name, value in zip(_SUMS, values):
            state[name] += torch.where(where, value.double().unsqueeze(1), 0.0)
        state["energy"] += torch.where(counts, power.double() * settings.dt, 0.0)
        # progress, and the step at which the arena was complete
        state["progress"].copy_(torch.where(counts, torch.maximum(state["progress"], x), state["progress"]))
        state["last_x"].copy_(torch.where(counts, x, state["last_x"]))
        state["last_y"].copy_(torch.where(counts, y, state["last_y"]))
        complete = counts & (state["progress"] >= self._length - ends.completion_margin) & (state["complete_step"] < 0)
        state["complete_step"].copy_(torch.where(complete, state["steps"], state["complete_step"]))
        state["end"].copy_(torch.where(running, self._reason(x, height, quat, unstable), state["end"]))

    def _reason(self, x: Tensor, height: Tensor, quat: Tensor, unstable: Tensor) -> Tensor:
        """Return why each episode ends at this step; of several reasons the last one below."""
        settings, state, ends = self.settings, self.state, self.settings.ends
        upright = 1.0 - 2.0 * (quat[:, 0] * quat[:, 0] + quat[:, 1] * quat[:, 1])  # cosine of the tilt
        end = torch.zeros_like(state["end"])
        end = torch.where(state["steps"] >= settings.steps, LIMIT, end)
        end = torch.where(x >= self._length - ends.finish_margin, FINISH, end)
        end = torch.where((height < self._fall_height) | (upright < self._fall_upright), FALL, end)
        end = torch.where(upright < math.cos(ends.flip_angle), FLIP, end)
        return torch.where(unstable, UNSTABLE, end)


def zone_of(x: float, starts: list[float]) -> int:
    """Return the zone at x, from 1. Zones begin at ``starts``, whose last number is the arena's end."""
    inside = sum(x >= start for start in starts[:-1])
    return max(1, inside)


def result(settings: GridSettings, starts: list[float], robot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of an ended episode.

    Args:
        starts: x of the zones' beginnings and of the arena's end, m.
        robot: the row of ``Episodes.state`` as numbers and lists.
    """
    weights, steps, per_zone = settings.stability, robot["steps"], robot["zone_steps"]
    # means over the steps of the whole episode
    counted = max(sum(per_zone), 1)
    mean = {name: sum(robot[name]) / counted for name in _SUMS}
    variance = max(mean["height_squared"] - mean["height"] ** 2, 0.0)
    end, progress = ENDS[robot["end"]], robot["progress"]
    complete = robot["complete_step"] >= 0
    # the last position is reported only for falls and flips
    down = end in ("fall", "flip")

    def stability(roll: float, pitch: float, spread: float, turning: float) -> float:
        return roll + pitch + weights.height * spread + weights.turning * turning

    # stability of each zone; None for a zone that the robot did not reach
    zones = []
    for k in range(len(starts) - 1):
        n = per_zone[k]
        if not n:
            zones.append(None)
            continue
        zone_mean = {name: robot[name][k] / n for name in _SUMS}
        spread = max(zone_mean["height_squared"] - zone_mean["height"] ** 2, 0.0)
        zones.append(stability(zone_mean["roll"], zone_mean["pitch"], spread, zone_mean["turning"]))
    return {
        "completion": complete,
        "progress": progress,
        "zone_reached": zone_of(progress, starts),
        "time_to_complete": robot["complete_step"] * settings.dt if complete else None,
        "stability_score": stability(mean["roll"], mean["pitch"], variance, mean["turning"]),
        "mean_roll": mean["roll"],
        "mean_pitch": mean["pitch"],
        "height_variance": variance,
        "mean_ang_vel": mean["turning"],
        "fall_detected": end == "fall",
        "flip_detected": end == "flip",
        "fall_location": [robot["last_x"], robot["last_y"]] if down else None,
        "fall_zone": zone_of(robot["last_x"], starts) if down else None,
        "mean_velocity": mean["velocity"],
        "total_energy": robot["energy"],
        "episode_length": steps,
        "end": end,
        "zone_stability": zones,
    }


# arithmetic in which, on the CPU, a row's bits depend only on that row


_VECTOR = 64  # a multiple of the rows in a vector register


def by_rows(function: Callable[..., Tensor], *columns: Tensor) -> Tensor:
    """Apply an elementwise function to ``(n,)`` columns.

    On a CPU torch computes the last rows, which do not fill a vector register, with another implementation of
    transcendental functions. With rows of zeros that fill the register, all rows have the same implementation.
    """
    rest = -columns[0].shape[0] % _VECTOR
    if columns[0].device.type != "cpu" or rest == 0:
        return function(*(column.contiguous() for column in columns))
    padded = [torch.nn.functional.pad(column, (0, rest)) for column in columns]
    return function(*padded)[: columns[0].shape[0]].clone()


def rotate_inverse(quat: Tensor, vec: Tensor) -> Tensor:
    """Rotate world-frame vectors ``(n, 3)`` to the frame of quaternions ``(n, 4)`` xyzw."""
    x, y, z, w = quat.unbind(1)
    a, b, c = vec.unbind(1)
    # t = 2 v x q, then v + w t + t x q
    ta, tb, tc = 2.0 * (b * z - c * y), 2.0 * (c * x - a * z), 2.0 * (a * y - b * x)
    return torch.stack(
        [a + w * ta + (tb * z - tc * y), b + w * tb + (tc * x - ta * z), c + w * tc + (ta * y - tb * x)], dim=1
    )


def roll_pitch_yaw(quat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the angles ``(n,)``, rad, of quaternions ``(n, 4)`` xyzw."""
    x, y, z, w = quat.unbind(1)
    roll = by_rows(torch.atan2, 2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = by_rows(torch.asin, (2.0 * (w * y - z * x)).clamp(-1.0, 1.0))
    yaw = by_rows(torch.atan2, 2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return roll, pitch, yaw


def wrapped(angle: Tensor) -> Tensor:
    """Return angles, rad, in [-pi, pi)."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi
