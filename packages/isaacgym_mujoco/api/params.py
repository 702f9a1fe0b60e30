"""Isaac Gym's constants and parameter objects, and which parameters have no effect in MuJoCo."""

from __future__ import annotations

import logging
from enum import IntEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isaacgym_mujoco.api.transforms import Transform, Vec3

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

_log = logging.getLogger("isaacgym_mujoco")


class Params:
    """Named values with defaults. Other names can be set, too, because tasks set all keys of their YAMLs.

    Attributes:
        HONOURED: parameters that have an effect, or are only stored and read.
        MUJOCOS: values without effect that describe what MuJoCo does.
    """

    DEFAULTS: ClassVar[dict[str, Any]] = {}
    HONOURED: ClassVar[frozenset[str]] = frozenset()
    MUJOCOS: ClassVar[dict[str, Any]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, **values: Any) -> None:
        for name, value in {**self.DEFAULTS, **values}.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def ignored(self) -> list[str]:
        """Return the names of parameters without effect whose values differ from the default."""
        missing = object()
        return sorted(
            name
            for name, value in vars(self).items()
            if name not in self.HONOURED
            and value not in (self.DEFAULTS.get(name, missing), self.MUJOCOS.get(name, missing))
        )


class PhysXParams(Params):
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "solver_type": 1,
        "num_position_iterations": 4,
        "num_velocity_iterations": 1,
        "num_threads": 4,
        "num_subscenes": 0,
        "use_gpu": False,
        "rest_offset": 0.01,
        "contact_offset": 0.02,
        "bounce_threshold_velocity": 0.2,
        "max_depenetration_velocity": 100.0,
        "default_buffer_size_multiplier": 2.0,
        "max_gpu_contact_pairs": 1024 * 1024,
        "friction_offset_threshold": 0.04,
        "friction_correlation_distance": 0.025,
        "always_use_articulations": False,
        "contact_collection": CC_ALL_SUBSTEPS,
    }
    MUJOCOS: ClassVar[dict[str, Any]] = {"rest_offset": 0.0}
    # devices and buffer sizes do not change the results
    HONOURED = frozenset(
        (
            *("use_gpu", "num_subscenes", "num_threads", "default_buffer_size_multiplier", "max_gpu_contact_pairs"),
            "max_depenetration_velocity",
            "always_use_articulations",
        )
    )


class FlexParams(Params):
    DEFAULTS: ClassVar[dict[str, Any]] = {"solver_type": 5, "relaxation": 0.75, "warm_start": 0.4}


class SimParams(Params):
    """Time step, substeps, gravity, and parameters of the physics engines.

    The time step has single precision, as in Isaac Gym. Tasks divide times by it and round: 20 s are 1001 steps of
    4 * 0.005 s, rounded up.
    """

    HONOURED = frozenset(("dt", "substeps", "gravity", "up_axis", "physx", "flex", "use_gpu_pipeline"))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, float(np.float32(value)) if name == "dt" else value)

    def __init__(self) -> None:
        super().__init__(
            dt=1.0 / 60.0,
            substeps=2,
            up_axis=UP_AXIS_Y,
            gravity=Vec3(0.0, -9.81, 0.0),
            use_gpu_pipeline=False,
            num_client_threads=0,
            stress_visualization=False,
            enable_actor_creation_warning=True,
            physx=PhysXParams(),
            flex=FlexParams(),
        )

    def ignored(self) -> list[str]:
        return [f"physx.{name}" for name in self.physx.ignored()]


_SURFACE = {"static_friction": 1.0, "dynamic_friction": 1.0, "restitution": 0.0, "segmentation_id": 0}


class PlaneParams(Params):
    HONOURED = frozenset(("normal", "distance", "static_friction", "dynamic_friction"))
    DEFAULTS: ClassVar[dict[str, Any]] = {"distance": 0.0, **_SURFACE}

    def __init__(self) -> None:
        super().__init__(normal=Vec3(0.0, 1.0, 0.0))


class AssetOptions(Params):
    IGNORED = frozenset(
        (
            *("thickness", "vhacd_enabled", "convex_decomposition_from_submeshes", "use_physx_armature"),
            *("enable_gyroscopic_forces", "min_particle_mass", "tendon_limit_stiffness"),
        )
    )
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "fix_base_link": False,
        "collapse_fixed_joints": False,
        "disable_gravity": False,
        "density": 1000.0,
        "armature": 0.0,
        "default_dof_drive_mode": DOF_MODE_NONE,
        "angular_damping": 0.5,
        "linear_damping": 0.0,
        "max_angular_velocity": 64.0,
        "max_linear_velocity": 1000.0,
        "thickness": 0.02,
        "replace_cylinder_with_capsule": False,
        "flip_visual_attachments": False,
        "vhacd_enabled": False,
        "use_physx_armature": True,
        "enable_gyroscopic_forces": True,
        "slices_per_cylinder": 20,
        "use_mesh_materials": False,
        "mesh_normal_mode": FROM_ASSET,
        "override_inertia": False,
        "override_com": False,
        "min_particle_mass": 1e-12,
        "tendon_limit_stiffness": 1.0,
        "convex_decomposition_from_submeshes": False,
    }

    HONOURED = frozenset(DEFAULTS) - IGNORED | {"vhacd_params"}

    def __init__(self) -> None:
        super().__init__(vhacd_params=VhacdParams())

    def ignored(self) -> list[str]:
        without = find_spec("vhacdx") is None
        names = ("vhacd_enabled (install vhacdx)" if n == "vhacd_enabled" else n for n in super().ignored())
        return [n for n in names if without or not n.startswith("vhacd_enabled")]


class VhacdParams(Params):
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "alpha": 0.05,
        "beta": 0.05,
        "concavity": 0.0,
        "convex_hull_approximation": True,
        "convex_hull_downsampling": 4,
        "max_convex_hulls": 64,
        "max_num_vertices_per_ch": 64,
        "min_volume_per_ch": 0.0001,
        "mode": 0,
        "ocl_acceleration": True,
        "pca": 0,
        "plane_downsampling": 4,
        "project_hull_vertices": True,
        "resolution": 100000,
    }


class TriangleMeshParams(Params):
    HONOURED = frozenset(("nb_vertices", "nb_triangles", "static_friction", "dynamic_friction", "transform"))
    DEFAULTS: ClassVar[dict[str, Any]] = {"nb_vertices": 0, "nb_triangles": 0, **_SURFACE}

    def __init__(self) -> None:
        super().__init__(transform=Transform())


class HeightFieldParams(TriangleMeshParams):
    HONOURED = TriangleMeshParams.HONOURED | {"nbRows", "nbColumns", "row_scale", "column_scale", "vertical_scale"}
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "nbRows": 0,
        "nbColumns": 0,
        "row_scale": 1.0,
        "column_scale": 1.0,
        "vertical_scale": 1.0,
        **_SURFACE,
    }


class AttractorProperties(Params):
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "stiffness": 0.0,
        "damping": 0.0,
        "axes": AXIS_NONE,
        "rigid_handle": INVALID_HANDLE,
    }

    def __init__(self) -> None:
        super().__init__(target=Transform(), offset=Transform())


class ForceSensorProperties(Params):
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "enable_forward_dynamics_forces": True,
        "enable_constraint_solver_forces": True,
        "use_world_frame": False,
    }


class CameraProperties(Params):
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "width": 1600,
        "height": 900,
        "horizontal_fov": 90.0,
        "near_plane": 0.01,
        "far_plane": 2000000.0,
        "supersampling_horizontal": 1,
        "supersampling_vertical": 1,
        "use_collision_geometry": False,
        "enable_tensors": False,
    }


class UsdExportOptions(Params):
    pass


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
