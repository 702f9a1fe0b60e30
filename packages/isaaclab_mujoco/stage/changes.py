"""What of Omniverse and of Isaac Lab is replaced, by the names of the modules."""

import builtins
import contextlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch

from isaaclab_mujoco import fakes
from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.import_hook import Finder, after_import, on_import
from isaaclab_mujoco.stage import app, context, spawners, torch_functions, waits
from isaaclab_mujoco.stage.cloner import GridCloner
from isaaclab_mujoco.stage.prims import NO_PRIM, STAGE, Prim
from isaaclab_mujoco.tensors.articulations import ArticulationView
from isaaclab_mujoco.tensors.bodies import RigidBodyView
from isaaclab_mujoco.tensors.contacts import RigidContactView
from isaaclab_mujoco.tensors.physics import SimulationView
from mujoco_batches.compat.torch_fuser import disable_cuda_fuser

ISAAC_SIM = ("5.1.0", "", "5", "1", "0", "", "", "")  # the version that Isaac Lab's branches on
# names that are refused where they are called: (module, name, what it is)
REFUSED = (
    ("isaaclab.sensors.camera.camera", "Camera", "cameras"),
    ("isaaclab.sensors.camera.tiled_camera", "TiledCamera", "cameras"),
    ("isaaclab.sensors.ray_caster.ray_caster_camera", "RayCasterCamera", "cameras"),
    ("isaaclab.assets.deformable_object.deformable_object", "DeformableObject", "deformable objects"),
    ("isaaclab.assets.surface_gripper.surface_gripper", "SurfaceGripper", "suction grippers"),
    ("isaaclab.controllers.rmp_flow", "RmpFlowController", "RmpFlow"),
)


def nothing(*_: Any, **__: Any) -> None:
    """Stand in for a function that only changes pictures."""


def install() -> bool:
    """Install the hooks; return False if they were installed before."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return False
    disable_cuda_fuser()  # each function of Isaac Lab that is scripted would be compiled for each of its shapes
    builtins.ISAAC_LAUNCHED_FROM_TERMINAL = False  # type: ignore[attr-defined]
    builtins.ISAACLAB_CALLBACK_EXCEPTION = None  # type: ignore[attr-defined]
    _omniverse()
    _stage_functions()
    _spawners()
    _isaaclab()
    waits.install()
    for module, name, what in REFUSED:
        after_import(module, _refuse(name, what))
    return True


def _omniverse() -> None:
    """Names of Omniverse that have an effect."""
    on_import("omni.timeline", TimelineEventType=app.TimelineEventType, get_timeline_interface=app.Timeline)
    on_import("omni.usd", get_world_transform_matrix=lambda prim: np.eye(4), get_context=_UsdContext)
    api = {
        "ArticulationView": ArticulationView,
        "RigidBodyView": RigidBodyView,
        "RigidContactView": RigidContactView,
        "SimulationView": SimulationView,
    }
    on_import("omni.physics.tensors.impl.api", **api)
    on_import(
        "omni.physics.tensors", create_simulation_view=lambda *_: context.SimulationManager.get_physics_sim_view()
    )
    on_import("carb.settings", get_settings=app.Settings)
    after_import("carb", lambda module: vars(module).update(settings=_CarbSettings))
    on_import("carb", Float3=lambda *xyz: tuple(xyz[0]) if len(xyz) == 1 else xyz)
    on_import("isaacsim", SimulationApp=lambda *_, **__: app.App())
    on_import("isaacsim.core.simulation_manager", SimulationManager=context.SimulationManager)
    on_import("isaacsim.core.cloner", GridCloner=GridCloner, Cloner=GridCloner)
    on_import("isaacsim.core.version", get_version=lambda: ISAAC_SIM)
    on_import("isaacsim.core.utils.torch", set_seed=_set_seed, maths=torch_functions, rotations=torch_functions)
    functions = {name: getattr(torch_functions, name) for name in torch_functions.__all__}
    on_import("isaacsim.core.utils.torch.rotations", **functions)
    on_import("pxr.UsdGeom", Mesh=_Mesh)
    after_import(
        "pxr", lambda module: vars(module).update(UsdGeom=__import__("importlib").import_module("pxr.UsdGeom"))
    )


class _CarbSettings:
    get_settings = app.Settings


class _UsdContext(fakes.Fake):
    dotted = "omni.usd.UsdContext"

    def get_stage(self) -> Any:
        return STAGE


class _Mesh:
    """``pxr.UsdGeom.Mesh`` of a terrain."""

    def __init__(self, prim: Prim) -> None:
        self._prim, self._mesh = prim, prim.data["mesh"]

    def GetPath(self) -> Prim:
        return self._prim

    def GetPointsAttr(self) -> Any:
        return _Attribute(np.asarray(self._mesh.vertices))

    def GetFaceVertexIndicesAttr(self) -> Any:
        return _Attribute(np.asarray(self._mesh.faces).ravel())


class _Attribute:
    def __init__(self, value: Any) -> None:
        self._value = value

    def Get(self) -> Any:
        return self._value


def _set_seed(seed: int, torch_deterministic: bool = False) -> int:
    import random

    if seed < 0:
        seed = int(np.random.randint(0, 10000))
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return seed


def _first(prims: list[Prim]) -> Prim | None:
    return prims[0] if prims else None


def _ancestor(path: Any, predicate: Any = lambda prim: True, *_: Any, **__: Any) -> Prim | None:
    """Return the prim of a path or the nearest above it for which the predicate holds."""
    parts = str(path).strip("/").split("/")
    for count in range(len(parts), 0, -1):
        prim = STAGE.GetPrimAtPath("/" + "/".join(parts[:count]))
        if prim and predicate(prim):
            return prim
    return None


def _pose(prim: Prim, relative: Prim | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if relative is not None and relative.path == prim.path:
        return (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    for held in STAGE.spawned:
        if held.path == prim.path:
            return held.position, held.orientation
    return (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)


# functions of isaaclab.sim.utils, by the module that has them since 2.3; before it is one module
QUERIES = {
    "find_matching_prims": lambda path, *_, **__: STAGE.find(str(path)),
    "find_first_matching_prim": lambda path, *_, **__: _first(STAGE.find(str(path))),
    "find_matching_prim_paths": lambda path, *_, **__: [prim.path for prim in STAGE.find(str(path))],
    "get_all_matching_child_prims": lambda path, predicate=None, *_, **__: STAGE.below(path, predicate),
    "get_first_matching_child_prim": lambda path, predicate=None, *_, **__: _first(STAGE.below(path, predicate)),
    "get_first_matching_ancestor_prim": _ancestor,
    "find_global_fixed_joint_prim": nothing,
}
UTILS: dict[str, dict[str, Any]] = {
    "stage": {
        **dict.fromkeys(("attach_stage_to_usd_context", "update_stage", "clear_stage", "close_stage"), nothing),
        **dict.fromkeys(
            ("get_current_stage", "create_new_stage", "create_new_stage_in_memory"), lambda *_, **__: STAGE
        ),
        "get_current_stage_id": lambda: 0,
        "is_current_stage_in_memory": lambda: False,
        "is_stage_loading": lambda: False,
        "use_stage": lambda stage: contextlib.nullcontext(stage),
    },
    "queries": QUERIES,
    "prims": {
        "create_prim": lambda path, kind="Xform", *_, **__: STAGE.add(path, kind),
        "clone": lambda function: function,
        "apply_nested": lambda function: function,
        "is_prim_path_valid": lambda path, *_, **__: bool(STAGE.GetPrimAtPath(path)),
        "get_prim_at_path": lambda path, *_, **__: STAGE.GetPrimAtPath(path),
        **dict.fromkeys(
            (
                "bind_visual_material",
                "bind_physics_material",
                "delete_prim",
                "make_uninstanceable",
                "set_prim_visibility",
            ),
            nothing,
        ),
    },
    "transforms": {"resolve_prim_pose": _pose, "resolve_prim_scale": lambda *_: (1.0, 1.0, 1.0)},
}
UTILS["legacy"] = {name: UTILS["prims"][name] for name in ("is_prim_path_valid", "get_prim_at_path")}
UTILS["legacy"]["define_prim"] = UTILS["prims"]["create_prim"]


def _stage_functions() -> None:
    for module, functions in UTILS.items():
        on_import(f"isaaclab.sim.utils.{module}", **functions)
        on_import("isaaclab.sim.utils", **functions)
    on_import("isaacsim.core.utils.stage", **UTILS["stage"])
    on_import("isaacsim.core.utils.prims", **UTILS["prims"] | UTILS["legacy"])


def _spawners() -> None:
    def names(module: str, function: Any, *functions: str) -> None:
        on_import(f"isaaclab.sim.spawners.{module}", **dict.fromkeys(functions, function))

    files = ("spawn_from_usd", "spawn_from_urdf", "spawn_from_mjcf")
    names("from_files.from_files", spawners.spawn_file, *files)
    names("from_files.from_files", spawners.spawn_ground_plane, "spawn_ground_plane")
    shapes = [f"spawn_{kind}" for kind in ("sphere", "cuboid", "cylinder", "capsule", "cone")]
    names("shapes.shapes", spawners.spawn_shape, *shapes)
    names("lights.lights", spawners.spawn_picture, "spawn_light")
    names("materials.visual_materials", spawners.spawn_picture, "spawn_preview_surface", "spawn_from_mdl_file")
    names("materials.physics_materials", spawners.spawn_picture, "spawn_rigid_body_material")
    names("materials.physics_materials", fakes.refusing("deformable bodies"), "spawn_deformable_body_material")
    names("sensors.sensors", fakes.refusing("cameras"), "spawn_camera")
    several = ("spawn_multi_asset", "spawn_multi_usd_file")
    names("wrappers.wrappers", fakes.refusing("different assets in different environments"), *several)
    meshes = [f"spawn_mesh_{kind}" for kind in ("sphere", "cuboid", "cylinder", "capsule", "cone")]
    names("meshes.meshes", fakes.refusing("meshes of isaaclab.sim.MeshCfg"), *meshes)


def _isaaclab() -> None:
    """Classes and functions of Isaac Lab itself."""
    on_import("isaaclab.app.app_launcher", AppLauncher=app.AppLauncher)
    on_import("isaaclab.sim.simulation_context", SimulationContext=context.SimulationContext)
    on_import("isaaclab.terrains.utils", create_prim_from_mesh=spawners.create_prim_from_mesh)
    markers = fakes.make("isaaclab.markers.VisualizationMarkers")
    on_import("isaaclab.markers.visualization_markers", VisualizationMarkers=markers)
    after_import("isaaclab.sensors.contact_sensor.contact_sensor", _record_sensors)
    after_import("isaaclab.assets.asset_base", _no_handles)
    for name in ("direct_rl", "direct_marl", "manager_based"):
        after_import(f"isaaclab.envs.{name}_env", _no_del)
    after_import("isaaclab.sim.simulation_cfg", _configs_on_usable)
    after_import("isaaclab_tasks.utils.parse_cfg", _registry_on_usable)
    after_import("isaaclab.envs.mdp.events", _refuse("randomize_rigid_body_scale", "scales by environment"))


def _no_handles(module: Any) -> None:
    """Give assets that were not finished, for instance without a file, the handles that their ``__del__`` reads."""
    for name in ("prim_deletion_callback_id", "initialize_handle", "invalidate_initialize_handle", "debug_vis_handle"):
        setattr(module.AssetBase, f"_{name}", None)


def _no_del(module: Any) -> None:
    """Remove the ``__del__`` of environments, which fails for unfinished ones, and clears the scene of later ones."""
    for made in list(vars(module).values()):
        if isinstance(made, type) and made.__module__ == module.__name__ and "__del__" in vars(made):
            del made.__del__


def _record_sensors(module: Any) -> None:
    """Let the stage know the contact sensors before the simulation is built, because it reports what they ask for."""
    init = module.ContactSensor.__init__

    def recording(self: Any, cfg: Any) -> None:
        STAGE.sensors.append(cfg)
        init(self, cfg)

    module.ContactSensor.__init__ = recording


def _configs_on_usable(module: Any) -> None:
    """Let configs of simulations name a device that there is, because environments make tensors on it."""
    init = module.SimulationCfg.__init__

    def usable(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.device = app.usable(self.device)

    module.SimulationCfg.__init__ = usable


def _registry_on_usable(module: Any) -> None:
    """Let configs of agents and environments name a device that there is: scripts build networks on it."""
    load = module.load_cfg_from_registry

    def load_usable(*args: Any, **kwargs: Any) -> Any:
        cfg = load(*args, **kwargs)
        for owner in (cfg, getattr(cfg, "sim", None)):
            if owner is not None and isinstance(getattr(owner, "device", None), str):
                owner.device = app.usable(owner.device)
        return cfg

    module.load_cfg_from_registry = load_usable


def _refuse(name: str, what: str) -> Any:
    """Return a change of a module after which a class or function of it raises; the class can be derived from."""

    def change(module: ModuleType) -> None:
        present = getattr(module, name, None)
        if isinstance(present, type):

            def refuse(self: Any, cfg: Any = None, *_: Any, **__: Any) -> None:
                self.__dict__.setdefault("_is_initialized", False)
                type(self).__del__ = nothing  # Isaac Lab's looks for what was never made
                path = f" at {cfg.prim_path}" if hasattr(cfg, "prim_path") else ""
                raise NotSupported(f"{name}{path}: {what} are not in isaaclab_mujoco; remove it from the config")

            present.__init__ = refuse  # type: ignore[misc]
        elif present is not None:
            setattr(module, name, fakes.refusing(f"{name}: {what}"))

    return change


__all__ = ["NO_PRIM", "install"]
