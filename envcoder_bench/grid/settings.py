"""The settings of a grid: cfg/eval_policies.yaml with overrides."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from envcoder_bench.core.errors import user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Count, Expected, Keys, Names, Number, as_tuple, key
from envcoder_bench.core.yaml_files import overridden, read_yaml

# what a policy may observe: vectors of width 3, a number for each joint, and the height scan
Vector = Literal["lin_vel", "ang_vel", "gravity", "gravity_turned", "commands"]
OfJoints = Literal["joint_pos", "joint_angles", "joint_vel", "actions"]
VECTORS, JOINTS, SCAN = get_args(Vector), get_args(OfJoints), "scan"

Finite = Annotated[Number, Field(allow_inf_nan=False), Expected("a finite number")]
AtLeast0 = Annotated[Number, Field(ge=0, allow_inf_nan=False)]
Above0 = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
Pair = Annotated[tuple[Finite, Finite], BeforeValidator(as_tuple)]
Boulders = Annotated[tuple[Finite, Finite, int], BeforeValidator(as_tuple)]
List = BeforeValidator(as_tuple)


class Start(Keys):
    x: Finite = key(0.0, "[m]; y is the middle of the arena")
    spread_xy: AtLeast0 = key(0.1, "uniform, +- [m]; identical starts measure nothing. Ours")
    spread_yaw: AtLeast0 = key(0.1, "uniform, +- [rad]. Ours")
    spread_joints: AtLeast0 = key(0.05, "uniform, +- [rad]. Ours")
    clearance: AtLeast0 = key(0.02, "of the feet above the ground [m]. Ours")


class Commands(Keys):
    vx: Finite = key(1.0, "[m/s]")
    vy: Finite = key(0.0, "[m/s]")
    yaw_gain: AtLeast0 = key(2.0, "wz = clip(yaw_gain * heading error, +-max_wz) [1/s]")
    max_wz: AtLeast0 = key(2.0, "[rad/s]")
    waypoint_spacing: Above0 = key(10.0, "waypoints are at (10 k, middle) [m]")
    waypoint_reached: AtLeast0 = key(0.5, "the next waypoint when x >= its x - this [m]")


class Ends(Keys):
    fall_height: AtLeast0 = key(0.15, "a fall is a base lower than this above the ground [m]")
    flip_angle: Above0 = key(2.618, "a flip is a tilt of the base over this [rad]")
    finish_margin: AtLeast0 = key(0.5, "an episode ends at the arena's length less this [m]")
    completion_margin: AtLeast0 = key(1.0, "it is complete from the arena's length less this [m]")


class Stability(Keys):
    height: AtLeast0 = key(10.0, "weight of the variance of the height")
    turning: AtLeast0 = key(0.5, "weight of the mean angular velocity")


class FrictionArena(Keys):
    use: Literal["static", "dynamic"] = key("dynamic", "static or dynamic")
    zones: Annotated[tuple[Pair, ...], List, Expected("a list of pairs, static and dynamic friction")] = key(
        ((0.90, 0.80), (0.60, 0.50), (0.35, 0.25), (0.15, 0.08), (0.05, 0.02)), "static and dynamic friction of each"
    )


class BoulderArena(Keys):
    zones: Annotated[
        tuple[Boulders, ...], List, Expected("a list of triples: smallest and largest edge in m, whole number")
    ] = key((
            (0.03, 0.05, 4500), (0.10, 0.15, 2400), (0.25, 0.35, 1200), (0.50, 0.70, 600), (0.80, 1.20, 300),
        ), "of each zone")  # fmt: skip
    cell: Above0 = key(0.10, "of the height field, at most; 0.4 of the smallest edge if that is less [m]. Ours")
    least_cell: Above0 = key(0.05, "a finer one takes longer: its cells under a shape are tested one by one [m]. Ours")


class StairsArena(Keys):
    zones: Annotated[tuple[Finite, ...], List, Expected("a list of numbers, the risers in m")] = key(
        (0.03, 0.08, 0.13, 0.18, 0.23), "of each zone"
    )
    tread: Above0 = key(0.30, "[m]")
    steps: Count = key(33, "of a zone")


class ArenaFigures(Keys):
    width: Above0 = key(30.0, "along y [m]")
    gap: AtLeast0 = key(10.0, "between arenas side by side [m]. Ours")
    apron: Above0 = key(3.0, "flat ground before x = 0 and after the last zone [m]. Ours")
    zone: Above0 = key(10.0, "length of a zone of the built-in arenas [m]")
    friction: FrictionArena = key(
        FrictionArena(), "which coefficient of a pair static, dynamic is used: MuJoCo's contacts have one"
    )
    ground_friction: AtLeast0 = key(0.80, "of the other arenas. Ours")
    grass: Annotated[tuple[Finite, ...], List, Expected("a list of numbers, the drag of each zone")] = key(
        (0.5, 2.0, 5.0, 10.0, 20.0), "drag: vx *= 1 / (1 + 0.1 drag) in each control step"
    )
    boulder: BoulderArena = key(BoulderArena(), "smallest and largest edge [m], number")
    stairs: StairsArena = key(StairsArena(), "riser [m] of each zone")


class ScanPoints(Keys):
    x: Annotated[tuple[Finite, ...], List, Field(min_length=1), Expected("a list of numbers")] = Field(
        description="along the base's heading [m]"
    )
    y: Annotated[tuple[Finite, ...], List, Field(min_length=1), Expected("a list of numbers")] = Field(
        description="to its left [m]"
    )


class LayoutSettings(Keys):
    """What a policy observes."""

    parts: Annotated[
        tuple[Literal[Vector, OfJoints, "scan"], ...],
        List,
        Field(min_length=1),
        Expected(f"a list of some of {', '.join((*VECTORS, *JOINTS, SCAN))}"),
    ] = Field(description="in the order of the columns")
    scales: Annotated[
        dict[str, Finite | Annotated[tuple[Finite, Finite, Finite], List]],
        Expected("factors of its parts by name: a number, or for vectors three"),
    ] = key({}, "by part; 1 where absent")
    joints: Annotated[Literal["by_leg", "by_kind"] | Names, Expected("by_leg, by_kind or a list of names")] = key(
        "by_leg", "by_leg, by_kind (Isaac Lab's order), or a list of names"
    )
    scan: ScanPoints | None = key(None, "points of its own")
    action_scale: Above0 | None = key(
        None, "joint target = stance + action_scale * action [rad]; null: the run's or the robot's"
    )

    @field_validator("scales")
    @classmethod
    def _of_parts(cls, scales: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        for part, scale in scales.items():
            if part not in info.data.get("parts", ()) or (isinstance(scale, tuple) and part not in VECTORS):
                raise PydanticCustomError("scales", "what the key expects")
        return scales


class ScanSettings(Keys):
    length: Above0 = key(1.6, "along the base's heading [m]")
    width: Above0 = key(1.0, "[m]")
    spacing: Above0 = key(0.1, "[m]")
    offset: Finite = key(0.5, "clip(base z - ground z - offset, +-clip) [m]")
    clip: Above0 = key(1.0, "[m]")
    order: Literal["xy", "yx"] = key("xy", "xy: y varies fastest; yx: x varies fastest")


class RobotSettings(Keys):
    """A robot of the package, or one whose policies bring gains, action scales, stance and layout."""

    stiffness: AtLeast0 | None = key(None, "[N m/rad]")
    damping: AtLeast0 | None = key(None, "[N m s/rad]")
    action_scale: Finite | None = key(
        None, "joint target = stance + action_scale * action [rad]; runs and layouts may have their own"
    )
    model: str | None = key(None, "MJCF or URDF; null: this package's, and for g1 mjlab's")
    sdk_joints: Annotated[Literal["model"] | Names | None, Expected("model, a list of names or null")] = key(
        None, "the order of joints in deploy.yaml: model, or names; null: such a file is refused"
    )
    fall_height: AtLeast0 | None = key(None, "in place of ends.fall_height [m]")
    fall_angle: Above0 | None = key(None, "a tilt of the base over this is a fall, too [rad]")


class VideoSettings(Keys):
    seconds: Above0 = key(15.0, "of each video")
    fps: Count = key(15, "frames per second")


class GridSettings(Keys):
    """The keys of cfg/eval_policies.yaml."""

    file: ClassVar[str] = "cfg/eval_policies.yaml"

    episodes: Count = key(100, "of each policy on each terrain")
    seconds: Above0 = key(600.0, "limit of an episode [s]")
    seed: Annotated[int, Field(ge=0)] = key(0, "of boulders and starts")
    control_hz: Count = key(50, "policies act so often")
    physics_hz: Count = key(500, "a multiple of control_hz")
    delay_ms: AtLeast0 = key(0.0, "actions come so much later, rounded to whole control steps [ms]. Ours")
    solver_iterations: Count | None = key(40, "most iterations of the physics solver; null: the robots' own")
    start: Start = key(Start(), "where robots start")
    commands: Commands = key(Commands(), "what policies are told")
    ends: Ends = key(Ends(), "when episodes end")
    stability: Stability = key(Stability(), "mean |roll| + mean |pitch| + height * var(height) + turning * mean |w|")
    arenas: ArenaFigures = key(ArenaFigures(), "the built-in arenas")
    layouts: dict[str, LayoutSettings] = Field(description="what a policy observes; docs/eval_policies.md")
    task_layouts: dict[str, str] = Field(description="of policies of this package's runs, by task")
    scan: ScanSettings = key(ScanSettings(), "of layouts without one of their own")
    robots: dict[str, RobotSettings] = Field(description="the robots")
    max_robots: Count = key(4096, "of one simulation; more go in waves")
    check_every: Count = key(50, "control steps between looks for ended episodes, each a wait for the device")
    compact_below: Annotated[Number, Field(ge=0, lt=1)] = key(
        0.5, "a smaller simulation goes on when fewer than this share of the robots are left; 0: never"
    )
    checkpoint_minutes: AtLeast0 = key(2.0, "a killed run loses at most this much")
    video: VideoSettings = key(VideoSettings(), "videos of episodes")

    @property
    def steps(self) -> int:
        """The control steps of an episode at most."""
        return round(self.seconds * self.control_hz)

    @property
    def dt(self) -> float:
        """The time of a control step [s]."""
        return 1.0 / self.control_hz

    @field_validator("control_hz")
    @classmethod
    def _a_step(cls, control_hz: int, info: ValidationInfo) -> int:
        seconds = info.data.get("seconds", 1.0)
        if seconds * control_hz < 1:
            raise ValueError(f"seconds must be at least a control step of {1 / control_hz} s, got {seconds}")
        return control_hz

    @field_validator("physics_hz")
    @classmethod
    def _multiple(cls, physics_hz: int, info: ValidationInfo) -> int:
        control_hz = info.data.get("control_hz", 1)
        if physics_hz % control_hz:
            raise ValueError(f"physics_hz must be a multiple of control_hz = {control_hz}, got {physics_hz}")
        return physics_hz


def compose_settings(words: Sequence[str] = ()) -> GridSettings:
    """Apply ``key=value`` overrides to cfg/eval_policies.yaml.

    Raises UserError if an override is malformed, names an unknown key, or has an invalid value.
    """
    settings = read_yaml(project_folder("cfg") / "eval_policies.yaml")
    for word in words:
        with user_input():
            settings = overridden(settings, word)
    return GridSettings.checked(settings)
