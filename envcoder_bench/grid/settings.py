"""The settings of a grid: cfg/eval_policies.yaml with overrides."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from envcoder_bench.core.errors import user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Count, Expected, Keys, Names, Number, as_tuple
from envcoder_bench.core.yaml_files import overridden, read_yaml

# what a policy may observe: vectors of width 3, a number for each joint, and the height scan
VECTORS = ("lin_vel", "ang_vel", "gravity", "gravity_turned", "commands")
JOINTS = ("joint_pos", "joint_angles", "joint_vel", "actions")
SCAN = "scan"
PARTS = (*VECTORS, *JOINTS, SCAN)

Finite = Annotated[Number, Field(allow_inf_nan=False), Expected("a finite number")]
AtLeast0 = Annotated[Number, Field(ge=0, allow_inf_nan=False)]
Above0 = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
Pair = Annotated[tuple[Finite, Finite], BeforeValidator(as_tuple)]
Boulders = Annotated[tuple[Finite, Finite, int], BeforeValidator(as_tuple)]
List = BeforeValidator(as_tuple)


class Start(Keys):
    x: Finite = Field(default=0.0, description="[m]; y is the middle of the arena")
    spread_xy: AtLeast0 = Field(default=0.1, description="uniform, +- [m]; identical starts measure nothing. Ours")
    spread_yaw: AtLeast0 = Field(default=0.1, description="uniform, +- [rad]. Ours")
    spread_joints: AtLeast0 = Field(default=0.05, description="uniform, +- [rad]. Ours")
    clearance: AtLeast0 = Field(default=0.02, description="of the feet above the ground [m]. Ours")


class Commands(Keys):
    vx: Finite = Field(default=1.0, description="[m/s]")
    vy: Finite = Field(default=0.0, description="[m/s]")
    yaw_gain: AtLeast0 = Field(default=2.0, description="wz = clip(yaw_gain * heading error, +-max_wz) [1/s]")
    max_wz: AtLeast0 = Field(default=2.0, description="[rad/s]")
    waypoint_spacing: Above0 = Field(default=10.0, description="waypoints are at (10 k, middle) [m]")
    waypoint_reached: AtLeast0 = Field(default=0.5, description="the next waypoint when x >= its x - this [m]")


class Ends(Keys):
    fall_height: AtLeast0 = Field(default=0.15, description="a fall is a base lower than this above the ground [m]")
    flip_angle: Above0 = Field(default=2.618, description="a flip is a tilt of the base over this [rad]")
    finish_margin: AtLeast0 = Field(default=0.5, description="an episode ends at the arena's length less this [m]")
    completion_margin: AtLeast0 = Field(default=1.0, description="it is complete from the arena's length less this [m]")


class Stability(Keys):
    height: AtLeast0 = Field(default=10.0, description="weight of the variance of the height")
    turning: AtLeast0 = Field(default=0.5, description="weight of the mean angular velocity")


class FrictionArena(Keys):
    use: Literal["static", "dynamic"] = Field(default="dynamic", description="static or dynamic")
    zones: Annotated[tuple[Pair, ...], List, Expected("a list of pairs, static and dynamic friction")] = Field(
        default=((0.90, 0.80), (0.60, 0.50), (0.35, 0.25), (0.15, 0.08), (0.05, 0.02)),
        description="static and dynamic friction of each",
    )


class BoulderArena(Keys):
    zones: Annotated[
        tuple[Boulders, ...], List, Expected("a list of triples: smallest and largest edge in m, whole number")
    ] = Field(
        default=(
            (0.03, 0.05, 4500), (0.10, 0.15, 2400), (0.25, 0.35, 1200), (0.50, 0.70, 600), (0.80, 1.20, 300),
        ),
        description="of each zone",
    )  # fmt: skip
    cell: Above0 = Field(
        default=0.10, description="of the height field, at most; 0.4 of the smallest edge if that is less [m]. Ours"
    )
    least_cell: Above0 = Field(
        default=0.05, description="a finer one takes longer: its cells under a shape are tested one by one [m]. Ours"
    )


class StairsArena(Keys):
    zones: Annotated[tuple[Finite, ...], List, Expected("a list of numbers, the risers in m")] = Field(
        default=(0.03, 0.08, 0.13, 0.18, 0.23), description="of each zone"
    )
    tread: Above0 = Field(default=0.30, description="[m]")
    steps: Count = Field(default=33, description="of a zone")


class ArenaFigures(Keys):
    width: Above0 = Field(default=30.0, description="along y [m]")
    gap: AtLeast0 = Field(default=10.0, description="between arenas side by side [m]. Ours")
    apron: Above0 = Field(default=3.0, description="flat ground before x = 0 and after the last zone [m]. Ours")
    zone: Above0 = Field(default=10.0, description="length of a zone of the built-in arenas [m]")
    friction: FrictionArena = Field(
        default=FrictionArena(),
        description="which coefficient of a pair static, dynamic is used: MuJoCo's contacts have one",
    )
    ground_friction: AtLeast0 = Field(default=0.80, description="of the other arenas. Ours")
    grass: Annotated[tuple[Finite, ...], List, Expected("a list of numbers, the drag of each zone")] = Field(
        default=(0.5, 2.0, 5.0, 10.0, 20.0), description="drag: vx *= 1 / (1 + 0.1 drag) in each control step"
    )
    boulder: BoulderArena = Field(default=BoulderArena(), description="smallest and largest edge [m], number")
    stairs: StairsArena = Field(default=StairsArena(), description="riser [m] of each zone")


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
        tuple[Literal[PARTS], ...], List, Field(min_length=1), Expected(f"a list of some of {', '.join(PARTS)}")
    ] = Field(description="in the order of the columns")
    scales: Annotated[
        dict[str, Finite | Annotated[tuple[Finite, Finite, Finite], List]],
        Expected("factors of its parts by name: a number, or for vectors three"),
    ] = Field(default={}, description="by part; 1 where absent")
    joints: Annotated[Literal["by_leg", "by_kind"] | Names, Expected("by_leg, by_kind or a list of names")] = Field(
        default="by_leg", description="by_leg, by_kind (Isaac Lab's order), or a list of names"
    )
    scan: ScanPoints | None = Field(default=None, description="points of its own")
    action_scale: Above0 | None = Field(
        default=None, description="joint target = stance + action_scale * action [rad]; null: the run's or the robot's"
    )

    @field_validator("scales")
    @classmethod
    def _of_parts(cls, scales: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        for part, scale in scales.items():
            if part not in info.data.get("parts", ()) or (isinstance(scale, tuple) and part not in VECTORS):
                raise PydanticCustomError("scales", "what the key expects")
        return scales


class ScanSettings(Keys):
    length: Above0 = Field(default=1.6, description="along the base's heading [m]")
    width: Above0 = Field(default=1.0, description="[m]")
    spacing: Above0 = Field(default=0.1, description="[m]")
    offset: Finite = Field(default=0.5, description="clip(base z - ground z - offset, +-clip) [m]")
    clip: Above0 = Field(default=1.0, description="[m]")
    order: Literal["xy", "yx"] = Field(default="xy", description="xy: y varies fastest; yx: x varies fastest")


class Drives(Keys):
    stiffness: AtLeast0 = Field(description="[N m/rad]")
    damping: AtLeast0 = Field(description="[N m s/rad]")
    action_scale: Finite = Field(
        description="joint target = stance + action_scale * action [rad]; runs and layouts may have their own"
    )


class VideoSettings(Keys):
    seconds: Above0 = Field(default=15.0, description="of each video")
    fps: Count = Field(default=15, description="frames per second")


class GridSettings(Keys):
    """The keys of cfg/eval_policies.yaml."""

    file: ClassVar[str] = "cfg/eval_policies.yaml"

    episodes: Count = Field(default=100, description="of each policy on each terrain")
    seconds: Above0 = Field(default=600.0, description="limit of an episode [s]")
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="of boulders and starts")
    control_hz: Count = Field(default=50, description="policies act so often")
    physics_hz: Count = Field(default=500, description="a multiple of control_hz")
    solver_iterations: Count | None = Field(
        default=40, description="most iterations of the physics solver; null: the robots' own"
    )
    start: Start = Field(default=Start(), description="where robots start")
    commands: Commands = Field(default=Commands(), description="what policies are told")
    ends: Ends = Field(default=Ends(), description="when episodes end")
    stability: Stability = Field(
        default=Stability(), description="mean |roll| + mean |pitch| + height * var(height) + turning * mean |w|"
    )
    arenas: ArenaFigures = Field(default=ArenaFigures(), description="the built-in arenas")
    layouts: dict[str, LayoutSettings] = Field(description="what a policy observes; docs/eval_policies.md")
    task_layouts: dict[str, str] = Field(description="of policies of this package's runs, by task")
    scan: ScanSettings = Field(default=ScanSettings(), description="of layouts without one of their own")
    robots: dict[str, Drives] = Field(description="the drives of each robot")
    max_robots: Count = Field(default=4096, description="of one simulation; more go in waves")
    check_every: Count = Field(
        default=50, description="control steps between looks for ended episodes, each a wait for the device"
    )
    compact_below: Annotated[Number, Field(ge=0, lt=1)] = Field(
        default=0.5,
        description="a smaller simulation goes on when fewer than this share of the robots are left; 0: never",
    )
    checkpoint_minutes: AtLeast0 = Field(default=2.0, description="a killed run loses at most this much")
    video: VideoSettings = Field(default=VideoSettings(), description="videos of episodes")

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

    Raises:
        UserError: an override is malformed, names an unknown key, or has an invalid value.
    """
    settings = read_yaml(project_folder("cfg") / "eval_policies.yaml")
    for word in words:
        with user_input():
            settings = overridden(settings, word)
    return GridSettings.checked(settings)
