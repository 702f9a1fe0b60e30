"""Isaac Gym's constants and parameter objects, and which parameters have no effect in MuJoCo."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from enum import IntEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_type_hints

import numpy as np

from mujoco_batches.scene.transforms import Transform, Vec3, pose_array

SIM_FLEX, SIM_PHYSX = 0, 1
UP_AXIS_Y, UP_AXIS_Z = 0, 1
DOF_MODE_NONE, DOF_MODE_POS, DOF_MODE_VEL, DOF_MODE_EFFORT = 0, 1, 2, 3
DOMAIN_ACTOR, DOMAIN_ENV, DOMAIN_SIM = 0, 1, 2
ENV_SPACE, LOCAL_SPACE, GLOBAL_SPACE = 0, 1, 2
STATE_NONE, STATE_POS, STATE_VEL, STATE_ALL = 0, 1, 2, 3
MESH_NONE, MESH_COLLISION, MESH_VISUAL, MESH_VISUAL_AND_COLLISION = 0, 1, 2, 3
FROM_ASSET, COMPUTE_PER_VERTEX, COMPUTE_PER_FACE = 0, 1, 2
CC_NEVER, CC_LAST_SUBSTEP, CC_ALL_SUBSTEPS = 0, 1, 2
AXIS_NONE, AXIS_X, AXIS_Y, AXIS_Z, AXIS_TRANSLATION = 0, 1, 2, 4, 7
AXIS_TWIST, AXIS_SWING_1, AXIS_SWING_2, AXIS_ROTATION, AXIS_ALL = 8, 16, 32, 56, 63
JOINT_INVALID, JOINT_FIXED, JOINT_REVOLUTE, JOINT_PRISMATIC = -1, 0, 1, 2
JOINT_BALL, JOINT_PLANAR, JOINT_FLOATING = 3, 4, 5
RIGID_BODY_NONE, RIGID_BODY_DISABLE_GRAVITY, RIGID_BODY_DISABLE_SIMULATION = 0, 1, 2
DEFAULT_VIEWER_WIDTH, DEFAULT_VIEWER_HEIGHT = 1600, 900
DOF_INVALID, DOF_ROTATION, DOF_TRANSLATION = -1, 0, 1
IMAGE_COLOR, IMAGE_DEPTH, IMAGE_SEGMENTATION, IMAGE_OPTICAL_FLOW = 0, 1, 2, 3
INVALID_HANDLE = -1
FOLLOW_TRANSFORM, FOLLOW_POSITION = 0, 1
# the enumerations whose members are also constants above
SimType = IntEnum("SimType", {"SIM_FLEX": SIM_FLEX, "SIM_PHYSX": SIM_PHYSX})
UpAxis = IntEnum("UpAxis", {"UP_AXIS_Y": UP_AXIS_Y, "UP_AXIS_Z": UP_AXIS_Z})
DofDriveMode = IntEnum("DofDriveMode", [f"DOF_MODE_{kind}" for kind in ("NONE", "POS", "VEL", "EFFORT")], start=0)
DofType = IntEnum("DofType", ["DOF_INVALID", "DOF_ROTATION", "DOF_TRANSLATION"], start=DOF_INVALID)
IndexDomain = IntEnum("IndexDomain", ["DOMAIN_ACTOR", "DOMAIN_ENV", "DOMAIN_SIM"], start=DOMAIN_ACTOR)
CoordinateSpace = IntEnum("CoordinateSpace", ["ENV_SPACE", "LOCAL_SPACE", "GLOBAL_SPACE"], start=ENV_SPACE)
_NAMED_KEYS = (
    "ESCAPE SPACE ENTER TAB BACKSPACE UP DOWN LEFT RIGHT INSERT DEL HOME END PAGE_UP PAGE_DOWN LEFT_BRACKET"
    " RIGHT_BRACKET LEFT_SHIFT RIGHT_SHIFT LEFT_CONTROL RIGHT_CONTROL LEFT_ALT RIGHT_ALT COMMA PERIOD SLASH SEMICOLON"
    " APOSTROPHE MINUS EQUAL BACKSLASH GRAVE_ACCENT CAPS_LOCK NUM_LOCK SCROLL_LOCK PRINT_SCREEN PAUSE MENU LEFT_SUPER"
    " RIGHT_SUPER NUMPAD_ADD NUMPAD_SUBTRACT NUMPAD_MULTIPLY NUMPAD_DIVIDE NUMPAD_DEL NUMPAD_ENTER NUMPAD_EQUAL"
)
KEYS = [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *_NAMED_KEYS.split()]
KEYS += [*(f"F{number}" for number in range(1, 13)), *(f"NUMPAD_{number}" for number in range(10))]

_log = logging.getLogger("mujoco_batches")


class Params:
    """Named values with defaults. Other names can be set, too, because tasks set all keys of their YAMLs.

    A script's subclass that is a dataclass has the fields of its base.

    Attributes:
        FIELDS: the fields of the class.
        DEFAULTS: the default of each parameter that is not an object.
        HONOURED: parameters that have an effect, or are only stored and read.
        MUJOCOS: values without effect that describe what MuJoCo does.
    """

    FIELDS: ClassVar[dict[str, dataclasses.Field[Any]]] = {}
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    HONOURED: ClassVar[frozenset[str]] = frozenset()
    MUJOCOS: ClassVar[dict[str, Any]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init_subclass__(cls) -> None:
        """Give a script's subclass what ``dataclass`` needs to define the fields of its base."""
        super().__init_subclass__()
        if hasattr(cls, "__dataclass_fields__"):
            return
        class_types = inspect.get_annotations(cls)
        cls.__annotations__ = {**{name: field.type for name, field in cls.FIELDS.items()}, **class_types}
        for name, field in cls.FIELDS.items():
            if field.default_factory is not dataclasses.MISSING and not hasattr(cls, name):
                setattr(cls, name, dataclasses.field(default_factory=field.default_factory))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def ignored(self) -> list[str]:
        """Return the names of parameters without effect whose values differ from the default."""
        missing = object()  # a script's subclass may need arguments, or set other values
        usual = {name: (value, self.MUJOCOS.get(name, missing)) for name, value in self.DEFAULTS.items()}
        return sorted(
            name
            for name, value in vars(self).items()
            if name not in self.HONOURED and value not in usual.get(name, (missing,))
        )


_params = dataclasses.dataclass(eq=False, repr=False)


@_params
class PhysXParams(Params):
    solver_type: int = 1
    num_position_iterations: int = 4
    num_velocity_iterations: int = 1
    num_threads: int = 4
    num_subscenes: int = 0
    use_gpu: bool = False
    rest_offset: float = 0.01
    contact_offset: float = 0.02
    bounce_threshold_velocity: float = 0.2
    max_depenetration_velocity: float = 100.0
    default_buffer_size_multiplier: float = 2.0
    max_gpu_contact_pairs: int = 1024 * 1024
    friction_offset_threshold: float = 0.04
    friction_correlation_distance: float = 0.025
    always_use_articulations: bool = False
    contact_collection: int = CC_ALL_SUBSTEPS

    MUJOCOS = {"rest_offset": 0.0}  # noqa: RUF012
    # devices and buffer sizes do not change the results
    HONOURED = frozenset(
        (
            *("use_gpu", "num_subscenes", "num_threads", "default_buffer_size_multiplier", "max_gpu_contact_pairs"),
            *("max_depenetration_velocity", "always_use_articulations"),
        )
    )


@_params
class FlexParams(Params):
    solver_type: int = 5
    relaxation: float = 0.75
    warm_start: float = 0.4


@_params
class SimParams(Params):
    """Time step, substeps, gravity, and parameters of the physics engines.

    The time step has single precision, as in Isaac Gym. Tasks divide times by it and round: 20 s are 1001 steps of
    4 * 0.005 s, rounded up.
    """

    dt: float = 1.0 / 60.0
    substeps: int = 2
    up_axis: int = UP_AXIS_Y
    gravity: Vec3 = dataclasses.field(default_factory=lambda: Vec3(0.0, -9.81, 0.0))
    use_gpu_pipeline: bool = False
    num_client_threads: int = 0
    stress_visualization: bool = False
    enable_actor_creation_warning: bool = True
    physx: PhysXParams = dataclasses.field(default_factory=PhysXParams)
    flex: FlexParams = dataclasses.field(default_factory=FlexParams)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, float(np.float32(value)) if name == "dt" else value)

    def ignored(self) -> list[str]:
        return [f"physx.{name}" for name in self.physx.ignored()]


@_params
class _Surface(Params):
    static_friction: float = 1.0
    dynamic_friction: float = 1.0
    restitution: float = 0.0
    segmentation_id: int = 0


@_params
class PlaneParams(_Surface):
    normal: Vec3 = dataclasses.field(default_factory=lambda: Vec3(0.0, 1.0, 0.0))
    distance: float = 0.0

    HONOURED = frozenset(("normal", "distance", "static_friction", "dynamic_friction"))


@_params
class VhacdParams(Params):
    alpha: float = 0.05
    beta: float = 0.05
    concavity: float = 0.0
    convex_hull_approximation: bool = True
    convex_hull_downsampling: int = 4
    max_convex_hulls: int = 64
    max_num_vertices_per_ch: int = 64
    min_volume_per_ch: float = 0.0001
    mode: int = 0
    ocl_acceleration: bool = True
    pca: int = 0
    plane_downsampling: int = 4
    project_hull_vertices: bool = True
    resolution: int = 100000


@_params
class AssetOptions(Params):
    fix_base_link: bool = False
    collapse_fixed_joints: bool = False
    disable_gravity: bool = False
    density: float = 1000.0
    armature: float = 0.0
    default_dof_drive_mode: int = DOF_MODE_NONE
    angular_damping: float = 0.5
    linear_damping: float = 0.0
    max_angular_velocity: float = 64.0
    max_linear_velocity: float = 1000.0
    thickness: float = 0.02
    replace_cylinder_with_capsule: bool = False
    flip_visual_attachments: bool = False
    vhacd_enabled: bool = False
    use_physx_armature: bool = True
    enable_gyroscopic_forces: bool = True
    slices_per_cylinder: int = 20
    use_mesh_materials: bool = False
    mesh_normal_mode: int = FROM_ASSET
    override_inertia: bool = False
    override_com: bool = False
    min_particle_mass: float = 1e-12
    tendon_limit_stiffness: float = 1.0
    convex_decomposition_from_submeshes: bool = False
    vhacd_params: VhacdParams = dataclasses.field(default_factory=VhacdParams)

    def ignored(self) -> list[str]:
        without = find_spec("vhacdx") is None
        names = ("vhacd_enabled (install vhacdx)" if n == "vhacd_enabled" else n for n in super().ignored())
        return [n for n in names if without or not n.startswith("vhacd_enabled")]


AssetOptions.HONOURED = frozenset(vars(AssetOptions())) - {
    *("thickness", "vhacd_enabled", "convex_decomposition_from_submeshes", "use_physx_armature"),
    *("enable_gyroscopic_forces", "min_particle_mass", "tendon_limit_stiffness"),
}


@_params
class TriangleMeshParams(_Surface):
    nb_vertices: int = 0
    nb_triangles: int = 0
    transform: Transform = dataclasses.field(default_factory=Transform)

    HONOURED = frozenset(("nb_vertices", "nb_triangles", "static_friction", "dynamic_friction", "transform"))


@_params
class HeightFieldParams(_Surface):
    nbRows: int = 0
    nbColumns: int = 0
    row_scale: float = 1.0
    column_scale: float = 1.0
    vertical_scale: float = 1.0
    transform: Transform = dataclasses.field(default_factory=Transform)

    HONOURED = TriangleMeshParams.HONOURED | {"nbRows", "nbColumns", "row_scale", "column_scale", "vertical_scale"}


@_params
class AttractorProperties(Params):
    stiffness: float = 0.0
    damping: float = 0.0
    axes: int = AXIS_NONE
    rigid_handle: int = INVALID_HANDLE
    target: Transform = dataclasses.field(default_factory=Transform)
    offset: Transform = dataclasses.field(default_factory=Transform)


@_params
class ForceSensorProperties(Params):
    enable_forward_dynamics_forces: bool = True
    enable_constraint_solver_forces: bool = True
    use_world_frame: bool = False


class ForceSensorPlace(NamedTuple):
    """Where a force sensor is, and what it reports."""

    body: int
    pose: Transform
    properties: ForceSensorProperties

    @property
    def weights(self) -> tuple[float, float]:
        """How much of the net force on the body, and of that of its contacts, it reports.

        The contacts are what the solver of constraints adds; the rest of the net force is of forward dynamics.
        """
        forward = float(self.properties.enable_forward_dynamics_forces)
        return forward, float(self.properties.enable_constraint_solver_forces) - forward

    def numbers(self) -> tuple[Any, ...]:
        """Return what must be equal for sensors that are alike."""
        return (self.body, *pose_array(self.pose), *vars(self.properties).values())


@_params
class CameraProperties(Params):
    width: int = DEFAULT_VIEWER_WIDTH
    height: int = DEFAULT_VIEWER_HEIGHT
    horizontal_fov: float = 90.0
    near_plane: float = 0.01
    far_plane: float = 2000000.0
    supersampling_horizontal: int = 1
    supersampling_vertical: int = 1
    use_collision_geometry: bool = False
    enable_tensors: bool = False


@_params
class UsdExportOptions(Params):
    pass


_classes = [SimParams, PhysXParams, FlexParams, *_Surface.__subclasses__(), _Surface, VhacdParams, AssetOptions]
_classes += [AttractorProperties, ForceSensorProperties, CameraProperties, UsdExportOptions]
for _class in _classes:
    _class.FIELDS = {field.name: field for field in dataclasses.fields(_class)}
    _class.DEFAULTS = {name: field.default for name, field in _class.FIELDS.items()}
    for _name, _field in _class.FIELDS.items():
        _field.type = get_type_hints(_class)[_name]
for _class in _classes:  # Hydra would replace a dataclass by a config that checks types
    del _class.__dataclass_fields__


class ContactCollection(int):
    """When to collect contacts; net contact forces are always those of the last substep."""


class Version(str):
    """The version of the interface."""


_logged: set[str] = set()


def tell_ignored(owner: str, names: list[str]) -> None:
    """Log parameters that have no effect, each name once per process."""
    new = [name for name in names if f"{owner}.{name}" not in _logged]
    _logged.update(f"{owner}.{name}" for name in new)
    if new:
        _log.warning("%s: without effect on MuJoCo: %s", owner, ", ".join(new))
