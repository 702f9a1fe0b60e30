"""The common part of AnymalTerrain and SpotTerrain: velocity commands on a grid of terrains, with a curriculum.

Source of names and formulas: IsaacGymEnvs, tasks/anymal_terrain.py (NVIDIA, BSD-3-Clause).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.sim.base import Simulator
from envcoder_bench.sim.ground import Ground
from envcoder_bench.tasks import legged
from envcoder_bench.tasks.base import EnvGroups, Field
from envcoder_bench.tasks.legged import LeggedTask
from envcoder_bench.tasks.sim_task import read
from envcoder_bench.terrain.grid import GridParams, TerrainGrid, make_grid
from envcoder_bench.terrain.scan import HeightLookup, height_scan, scan_points

TOUCH = 1.0  # N: a foot with a larger vertical force stands
TERRAIN, HEADING = "env.terrain", "env.control.heading"
PLANE, FIELDS = "plane", ("trimesh", "heightfield")
# steps of the additive sequences that spread environments evenly over columns and rows: of the golden ratio and
# the square root of 2, which no small numbers divide
_ALONG_COLUMNS, _ALONG_ROWS = 0.6180339887498949, 0.4142135623730951


class TerrainLocomotion(LeggedTask):
    """A legged robot with commands of velocity and heading.

    An environment has a column of the grid, its terrain type, for good, and a row, its level, which the curriculum
    changes where an episode ends: one up where the robot came farther than half a tile, one down where it came less far
    than a quarter of what the command asks for. After the last level, the next one is drawn at random. In evaluations
    without a curriculum: environments are spread evenly over types and levels. Level and type depend on the group's
    seed and on the lane, not on other groups.

    The first episodes of a training begin late, at random, so that later ones do not all end in the same step.

    Attributes:
        scan_x, scan_y: places of the height scan in the base's frame, m.
    """

    first_progress: Tensor
    scan_x: tuple[float, ...]
    scan_y: tuple[float, ...]
    kept_keys = (
        *("terrain_levels", "terrain_types", "env_origins", "initial_root_states", "measured_heights"),
        *("last_actions", "last_dof_vel", "feet_air_time"),
    )
    config_keys = (
        *legged.CONFIG_KEYS,
        *(HEADING, legged.STANCE),
        *(f"{TERRAIN}.{key}" for key in ("terrainType", "dynamicFriction", "curriculum", "maxInitMapLevel")),
        *(f"{TERRAIN}.{key}" for key in ("mapLength", "mapWidth", "numLevels", "numTerrains", "terrainProportions")),
        *(f"{TERRAIN}.{key}" for key in ("horizontalScale", "borderSize", "seed")),
    )
    ignored_keys = (
        *("env.numObservations", "env.numActions", "env.enableDebugVis"),
        *(f"{TERRAIN}.{key}" for key in ("staticFriction", "restitution", "slopeTreshold")),
        # shaping: human.py has what it uses of them
        *(f"env.learn.{key}RewardScale" for key in ("linearVelocityXY", "linearVelocityZ", "angularVelocityXY")),
        *(f"env.learn.{key}RewardScale" for key in ("angularVelocityZ", "orientation", "torque", "jointAcc")),
        *(f"env.learn.{key}RewardScale" for key in ("baseHeight", "feetAirTime", "kneeCollision", "feetStumble")),
        *(f"env.learn.{key}RewardScale" for key in ("actionRate", "hip")),
        *("env.learn.allowKneeContacts", "env.learn.terminalReward"),
        *("env.learn.addNoise", "env.learn.noiseLevel", "env.learn.randomizeFriction", "env.learn.frictionRange"),
        *(f"env.learn.{key}Noise" for key in ("dofPosition", "dofVelocity", "linearVelocity", "angularVelocity")),
        *("env.learn.gravityNoise", "env.learn.heightMeasurementNoise"),
        *("env.learn.pushRobots", "env.learn.pushInterval_s"),
    )
    fitness_meaning = legged.fitness_meaning(", in episodes spread evenly over all terrain types and levels")

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        self.heading_gain, self.most_yaw = (float(x) for x in read(cfg, HEADING))
        # the grid: its ground, and the middle of each tile
        self.grid = grid_of(cfg)
        self.curriculum = bool(read(cfg, f"{TERRAIN}.curriculum")) and self.grid is not None
        self.lookup = None if self.grid is None else HeightLookup(self.grid.ground, self.device)
        self._points = scan_points(list(self.scan_x), list(self.scan_y), self.device)
        self._feet = self.constants["feet_indices"].to(self.device)
        self._start = self.state["initial_root_states"].clone()
        rows, columns = (1, 1) if self.grid is None else self.grid.origins.shape[:2]
        origins = torch.zeros(1, 1, 3) if self.grid is None else torch.from_numpy(self.grid.origins)
        self._origins, self._rows, self._columns = origins.to(self.device), rows, columns
        # the curriculum: where it begins, and how far is far enough
        most = int(read(cfg, f"{TERRAIN}.maxInitMapLevel")) if self.curriculum else rows - 1
        self._first_levels = min(most + 1, rows)
        self._half_tile = math.inf if self.grid is None else 0.5 * float(read(cfg, f"{TERRAIN}.mapLength"))
        # what a step needs of the one before, and a checkpoint keeps
        self._acted = torch.zeros_like(self.state["last_actions"])
        self._begun = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._evaluates = False
        self.first_progress = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._groups = EnvGroups.alone(self.num_envs, self._acted)
        self._place()
        self._scan()

    @classmethod
    def ground(cls, cfg: Mapping[str, Any]) -> Ground | None:
        grid = grid_of(cfg)
        return None if grid is None else grid.ground

    # groups and levels

    def attach(self, groups: EnvGroups) -> None:
        self._groups = groups
        self._place()

    def restart(self) -> None:
        self._evaluates = EVALUATION_STEP <= self.step_count < 2 * EVALUATION_STEP
        self._begun.zero_()
        self._place()

    def _place(self) -> None:
        """Give every environment its column and its first row."""
        lanes = self._groups.lanes.to(torch.float64)
        columns = ((0.5 + lanes * _ALONG_COLUMNS) % 1.0 * self._columns).to(torch.int64)
        if self._evaluates:
            rows = ((0.5 + lanes * _ALONG_ROWS) % 1.0 * self._rows).to(torch.int64)
        else:
            rows = self._drawn(0, self._first_levels)
        self.state["terrain_types"].copy_(columns)
        self.state["terrain_levels"].copy_(rows)
        self._move(torch.ones_like(self._begun))

    def _drawn(self, step: int, below: int, purpose: int = Purpose.TERRAIN_LEVEL) -> Tensor:
        """Draw an integer from 0 for every environment, by seed, step and lane."""
        groups = self._groups
        drawn = noise.integers(groups.seeds.unsqueeze(1), step, purpose, groups.lanes, 1, 0, below, self.device)
        return drawn[:, 0]

    def _move(self, mask: Tensor) -> None:
        """Update the origins where ``mask`` is True, from levels and types."""
        state, rows = self.state, mask.unsqueeze(1)
        origins = self._origins[state["terrain_levels"].to(torch.int64), state["terrain_types"].to(torch.int64)]
        state["env_origins"].copy_(torch.where(rows, origins, state["env_origins"]))
        start = self._start.clone()
        start[:, :3] += state["env_origins"]
        state["initial_root_states"].copy_(torch.where(rows, start, state["initial_root_states"]))

    def prepare_reset(self, mask: Tensor) -> None:
        if self.curriculum and not self._evaluates:
            state = self.state
            # how far the robot came, and what the command asked for
            offset = state["root_states"][:, :2] - state["env_origins"][:, :2]
            walked = torch.sqrt(offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1])
            asked = state["commands"][:, :2]
            speed = torch.sqrt(asked[:, 0] * asked[:, 0] + asked[:, 1] * asked[:, 1])
            # unstable physics may throw a robot far: it never rises by that
            up = (walked > self._half_tile) & ~self.unstable
            down = (walked < speed * (0.25 * self.max_episode_length * self.dt)) | self.unstable
            levels = state["terrain_levels"] + up.float() - (down & ~up).float()
            anywhere = self._drawn(self.step_count, self._rows).to(levels.dtype)
            levels = torch.where(levels >= self._rows, anywhere, levels.clamp(min=0.0))
            state["terrain_levels"].copy_(torch.where(mask & self._begun, levels, state["terrain_levels"]))
            self._move(mask)
        # the first episodes of a training end at different steps
        first = self._drawn(self.step_count, self.max_episode_length - 1, Purpose.FIRST_PROGRESS)
        self.first_progress.copy_(first * ~(self._begun | self._evaluates))
        self._begun |= mask

    # a control step

    def step(self, command: Tensor) -> None:
        state = self.state
        stood = self._standing()
        state["last_dof_vel"].copy_(state["dof_vel"])
        state["last_actions"].copy_(self._acted)
        width = min(self._acted.shape[1], self._groups.actions.shape[1])
        self._acted[:, :width] = self._groups.actions[:, :width]
        super().step(command)
        state["feet_air_time"].copy_(torch.where(stood, 0.0, state["feet_air_time"] + self.dt))
        self._steer()
        self._scan()

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        super().reset(mask, initial, goal)
        if initial:
            for x in (self.state["last_actions"], self.state["last_dof_vel"], self.state["feet_air_time"], self._acted):
                x.masked_fill_(mask.unsqueeze(1), 0.0)
            self._scan()
        self._steer()

    def _standing(self) -> Tensor:
        return self.state["contact_forces"][:, self._feet, 2] > TOUCH

    # Only products, sums, quotients and roots, one operation at a time, so that rounding does not depend on the number
    # of environments.

    def _scan(self) -> None:
        """Read the heights under the scan's points."""
        if self.lookup is not None:
            self.state["measured_heights"].copy_(height_scan(self.lookup, self.state["root_states"], self._points))

    def _steer(self) -> None:
        """Set the commanded yaw rate, which turns the base to the commanded heading."""
        x, y, z, w = self.state["root_states"][:, 3:7].unbind(1)
        yaw = arctan2(2.0 * (x * y + w * z), w * w + x * x - y * y - z * z)
        commands = self.state["commands"]
        error = commands[:, 3] - yaw
        error = torch.where(error > math.pi, error - 2.0 * math.pi, error)
        error = torch.where(error < -math.pi, error + 2.0 * math.pi, error)
        commands[:, 2] = (self.heading_gain * error).clamp(-self.most_yaw, self.most_yaw)

    # checkpoints

    def get_state(self) -> dict[str, Tensor]:
        kept = {"own.acted": self._acted.to("cpu", copy=True), "own.begun": self._begun.to("cpu", copy=True)}
        return {**super().get_state(), **kept}

    def set_state(self, state: dict[str, Tensor]) -> None:
        super().set_state(state)
        self._acted.copy_(state["own.acted"])
        self._begun.copy_(state["own.begun"])


def fields(joints: str, bodies: tuple[str, ...], knees: str, feet: str, points: str, count: int) -> dict[str, Field]:
    """Return the fields of a task.

    Args:
        joints, bodies, knees, feet: as for ``legged.fields``.
        points: description of the height scan's ``count`` points.
    """
    legs = ", ".join(name.rsplit("_", 1)[0] for name in bodies if name.endswith(f"_{feet}"))
    return legged.fields(
        joints,
        bodies,
        knees,
        feet,
        commands=Field(
            (4,),
            "m/s, m/s, rad/s, rad",
            "goal: velocity forward and to the left, base frame; yaw rate, which the task sets from the heading;"
            " heading in the world frame",
            (0.0, 0.0, 0.0, 0.0),
        ),
        yaw_range=legged.command_range("rad", "commanded heading", "yaw"),
        start="base at rest in the middle of the terrain's tile",
        more={
            "measured_heights": Field(
                (count,),
                "m",
                f"height of the ground, world frame, under points that turn with the base's yaw: {points}",
                0.0,
            ),
            "terrain_levels": Field((), "-", "row of the terrain, 0 is the easiest", 0.0),
            "terrain_types": Field((), "-", "column of the terrain", 0.0),
            "env_origins": Field((3,), "m", "middle of the terrain's tile; world frame", 0.0),
            "last_actions": Field(
                (12,), "-", "action before the last one, its first 12 numbers; 0 where an episode begins", 0.0
            ),
            "last_dof_vel": Field((12,), "rad/s", "joint velocities before the last control step; 0 at the start", 0.0),
            "feet_air_time": Field(
                (4,), "s", f"time that each foot has been in the air, with the step in which it lands; {legs}", 0.0
            ),
        },
        more_scales={"height_meas_scale": legged.observation_scale("1/m", "heights", "heightMeasurementScale")},
    )


def arctan2(y: Tensor, x: Tensor) -> Tensor:
    """Return the angle of (x, y), rad, within 2e-5, by Abramowitz and Stegun 4.4.49: the same bits at any size."""
    # the smaller divided by the larger: a polynomial of an angle of at most 45 degrees
    large, small = torch.maximum(x.abs(), y.abs()).clamp(min=1e-9), torch.minimum(x.abs(), y.abs())
    z = small / large
    s = z * z
    angle = z * (0.9998660 + s * (-0.3302995 + s * (0.1801410 + s * (-0.0851330 + s * 0.0208351))))
    angle = torch.where(y.abs() > x.abs(), 0.5 * math.pi - angle, angle)
    angle = torch.where(x < 0.0, math.pi - angle, angle)
    return torch.where(y < 0.0, -angle, angle)


def grid_of(cfg: Mapping[str, Any]) -> TerrainGrid | None:
    """Return the grid of a task's config; None on a plane.

    Raises:
        ValueError: an unknown terrain type, or a number out of range.
    """
    kind = str(read(cfg, f"{TERRAIN}.terrainType"))
    if kind == PLANE:
        return None
    if kind not in FIELDS:
        raise ValueError(f"task.{TERRAIN}.terrainType must be {PLANE}, {' or '.join(FIELDS)}, not {kind}")
    try:
        params = GridParams(
            proportions=tuple(float(x) for x in read(cfg, f"{TERRAIN}.terrainProportions")),
            levels=int(read(cfg, f"{TERRAIN}.numLevels")),
            terrains=int(read(cfg, f"{TERRAIN}.numTerrains")),
            length=float(read(cfg, f"{TERRAIN}.mapLength")),
            width=float(read(cfg, f"{TERRAIN}.mapWidth")),
            spacing=float(read(cfg, f"{TERRAIN}.horizontalScale", 0.05)),
            border=float(read(cfg, f"{TERRAIN}.borderSize", 20.0)),
            friction=float(read(cfg, f"{TERRAIN}.dynamicFriction")),
            seed=int(read(cfg, f"{TERRAIN}.seed", 0)),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"task.{TERRAIN}: {error}") from error
    return make_grid(params)
