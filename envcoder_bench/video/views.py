"""What a video shows of a recording: the frames, the camera and the markers."""

from typing import Any

import numpy as np

from envcoder_bench.sim import rendering
from envcoder_bench.sim.rendering import Arrow, Camera, Cube, Marker
from envcoder_bench.video.recording import Episode, Recording

ZOOM = 2.8  # distance of the camera in radii of the robot
SMOOTHING = 0.35  # s, time constant of a camera that follows
WANTED, ACTUAL = (0.05, 0.62, 0.35, 1.0), (0.15, 0.35, 0.85, 1.0)  # colours of commanded and actual velocity
# azimuth and elevation, degrees; other tasks have DIRECTION
DIRECTIONS = {"Cartpole": (180.0, -8.0), "FrankaCubeStack": (140.0, -22.0), "AllegroHand": (200.0, -38.0)}
DIRECTION = (125.0, -17.0)
STEEPEST, SHALLOWEST = -75.0, -8.0  # degrees, limits of the elevation; the camera stays above the ground


def frame_steps(recording: Recording, fps: float, seconds: float | None) -> np.ndarray:
    """Return the control steps to draw, of the longest episode: ``fps`` of them per second, in real time."""
    longest = max(episode.steps for episode in recording.episodes)
    end = longest if seconds is None else min(longest, round(seconds / recording.dt))
    count = round(end * recording.dt * fps) + 1
    return np.minimum(np.round(np.arange(count) / (fps * recording.dt)).astype(int), end)


class View:
    """The camera of a recording. It follows a robot whose base floats or slides; otherwise it is fixed."""

    def __init__(self, model: Any, recording: Recording) -> None:
        self._recording = recording
        self._model, base = model, rendering.planar_base(model)
        self._follows, self._flat = rendering.is_floating(model) or base is not None, rendering.is_flat(model)
        self._azimuth, self._elevation = _direction(model, recording.task, base)
        first = [episode.qpos[0] for episode in recording.episodes]
        low, high = rendering.bounds(model, np.stack(first[:1] if self._follows else self._samples()))
        self._centre, self._radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
        start = rendering.centre_path(model, np.stack(first[:1]))[0]
        self._offset = self._centre - start if self._follows else np.zeros(3)
        self._tracks: dict[int, np.ndarray] = {}

    def _samples(self) -> list[np.ndarray]:
        """Return poses from all parts of all episodes."""
        poses = []
        for episode in self._recording.episodes:
            poses += [episode.qpos[k] for k in range(0, episode.steps + 1, max(1, episode.steps // 8))]
        return poses

    def camera(self, episode: Episode, step: int) -> Camera:
        """Return the camera for a step of an episode."""
        if not self._follows:
            return Camera(self._centre, ZOOM * self._radius, self._azimuth, self._elevation)
        if id(episode) not in self._tracks:
            self._tracks[id(episode)] = self._track(episode)
        return Camera(
            self._tracks[id(episode)][step] + self._offset, ZOOM * self._radius, self._azimuth, self._elevation
        )

    def _track(self, episode: Episode) -> np.ndarray:
        """Return the path of the robot's centre of mass, smoothed in both directions: the camera does not lag."""
        path = rendering.centre_path(self._model, episode.qpos.astype(np.float64))
        height, count = path[0, 2], len(path)
        # mirror the path at both ends, so that the camera neither starts late nor stops early
        margin = min(count - 1, round(3 * SMOOTHING / self._recording.dt))
        before, after = 2 * path[0] - path[margin:0:-1], 2 * path[-1] - path[-2 : -2 - margin : -1]
        path = np.concatenate((before, path, after))
        keep = float(np.exp(-self._recording.dt / SMOOTHING))
        for order in (slice(None), slice(None, None, -1)):
            smooth = path[order].copy()
            for k in range(1, len(smooth)):
                smooth[k] = keep * smooth[k - 1] + (1 - keep) * smooth[k]
            path = smooth[order]
        path = path[margin : margin + count]
        if self._flat:
            path[:, 2] = 0.3 * path[:, 2] + 0.7 * height  # jumps stay visible
        return path


def _direction(model: Any, task: str, base: rendering.PlanarBase | None) -> tuple[float, float]:
    """Return azimuth and elevation: of the task, of the model's own camera, or from the side of a planar robot."""
    if task in DIRECTIONS:
        return DIRECTIONS[task]
    forward = rendering.own_camera(model)
    if forward is None and base is not None:
        forward = -base.normal
    if forward is None:
        return DIRECTION
    level = float(np.hypot(forward[0], forward[1]))
    azimuth = DIRECTION[0] if level < 0.1 else float(np.degrees(np.arctan2(forward[1], forward[0])))
    elevation = float(np.degrees(np.arctan2(forward[2], level)))
    return azimuth, min(max(elevation, STEEPEST), SHALLOWEST)


def markers(recording: Recording, episode: Episode, step: int) -> list[Marker]:
    """Return the markers of a step. The names of the goals select them.

    ``commands``: velocity of a walking robot; ``goal_rot``: orientation that a cube is turned to, and without it
    ``goal_pos``: a point, world frame.
    """
    return _commands(recording, episode, step) + (_orientation(episode, step) or _point(episode, step))


def _point(episode: Episode, step: int) -> list[Marker]:
    """Return a small cube at the goal's position."""
    goal = episode.goals.get("goal_pos")
    if goal is None or goal.shape[-1] != 3:
        return []
    return [Cube(goal[step].astype(np.float64), np.eye(3), 0.025, (*WANTED[:3], 0.6))]


def _orientation(episode: Episode, step: int) -> list[Marker]:
    """Return a cube above the object in the goal's orientation, and the axes of both in red, green and blue."""
    goal = episode.goals.get("goal_rot")
    if goal is None or goal.shape[-1] != 4 or len(episode.qpos[step]) < 7:
        return []
    pose, above = episode.qpos[step, -7:], episode.qpos[0, -7:-4] + np.array([0.0, 0.0, 0.14])  # its joint is the last
    wanted = rendering.axes_of(goal[step][[3, 0, 1, 2]])
    cube_and_axes: list[Marker] = [Cube(above.astype(np.float64), wanted, 0.0325, (0.05, 0.62, 0.35, 0.45))]
    for at, axes in ((pose[:3], rendering.axes_of(pose[3:])), (above, wanted)):
        cube_and_axes += [Arrow(at, 0.12 * axes[:, k], (*np.eye(3)[k].tolist(), 1.0), 0.004) for k in range(3)]
    return cube_and_axes


def _commands(recording: Recording, episode: Episode, step: int) -> list[Marker]:
    """Return the commanded velocity of a walking robot as an arrow above it, and its turning as a second one."""
    commands = episode.goals.get("commands")
    if commands is None or commands.shape[-1] < 3 or not len(episode.qpos[step]) >= 7:
        return []
    qpos = episode.qpos[step].astype(np.float64)
    w, x, y, z = qpos[3:7]
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    forward = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    left = np.array([-forward[1], forward[0], 0.0])
    above = qpos[:3] + np.array([0, 0, 0.45])
    wanted = commands[step, 0] * forward + commands[step, 1] * left
    arrows: list[Marker] = [Arrow(above, 0.5 * wanted, WANTED)]
    # the robot's velocity, as the mean of five steps
    before = max(step - 5, 0)
    if step > before:
        velocity = (qpos[:3] - episode.qpos[before, :3]) / ((step - before) * recording.dt)
        arrows.append(Arrow(above + np.array([0, 0, 0.08]), 0.5 * velocity * np.array([1, 1, 0]), ACTUAL))
    turn = float(commands[step, 2])
    if abs(turn) > 0.05:
        arrows.append(Arrow(qpos[:3] + 0.45 * forward + np.array([0, 0, 0.3]), 0.4 * turn * left, WANTED, 0.015))
    return arrows
