"""Functions of ``isaaclab.sim.spawners``: they record what the simulation is built of."""

from typing import Any

import numpy as np

from isaaclab_mujoco.assets import find, robots
from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.stage.prims import STAGE, Ground, Prim, Spawned

Numbers = tuple[float, ...] | None


def spawn_file(prim_path: str, cfg: Any, translation: Numbers = None, orientation: Numbers = None, **_: Any) -> Prim:
    """Spawn the robot or object of a USD, URDF or MJCF file."""
    name = str(getattr(cfg, "usd_path", None) or cfg.asset_path)
    if (
        prim_path.startswith("/World/envs/")
        or getattr(cfg, "articulation_props", None)
        or getattr(cfg, "rigid_props", None)
    ):
        asset = robots.from_file(find.robot_file(name), name, cfg)
        return _record(prim_path, cfg, asset, translation, orientation)
    if "default_environment" in name or "grid" in name:
        return spawn_ground_plane(prim_path, cfg, translation)
    raise NotSupported(f"{prim_path}: the scene {name} is a USD file, which isaaclab_mujoco does not read")


def spawn_shape(prim_path: str, cfg: Any, translation: Numbers = None, orientation: Numbers = None, **_: Any) -> Prim:
    """Spawn a sphere, cuboid, cylinder or capsule; one that does not collide is a picture."""
    if cfg.collision_props is None and cfg.rigid_props is None:
        return STAGE.add(prim_path)
    return _record(prim_path, cfg, robots.from_shape(cfg), translation, orientation)


def spawn_picture(prim_path: str, cfg: Any = None, *_: Any, **__: Any) -> Prim:
    """Spawn what has no physics: lights, materials, frames."""
    return STAGE.add(str(prim_path))


def spawn_ground_plane(prim_path: str, cfg: Any, translation: Numbers = None, *_: Any, **__: Any) -> Prim:
    STAGE.grounds.append(
        Ground(prim_path, getattr(cfg, "physics_material", None), height=(translation or (0.0, 0.0, 0.0))[2])
    )
    prim = STAGE.add(prim_path)
    STAGE.add(f"{prim_path}/Plane", "Plane")
    return prim


def create_prim_from_mesh(prim_path: str, mesh: Any, **options: Any) -> None:
    """Add a terrain of triangles; one that is flat is a plane."""
    offset = np.asarray(options.get("translation") or (0.0, 0.0, 0.0), dtype=float)
    heights = np.asarray(mesh.vertices)[:, 2]
    flat = bool(np.ptp(heights) < 1e-6)
    STAGE.add(prim_path)
    STAGE.add(f"{prim_path}/mesh", "Plane" if flat else "Mesh", mesh=mesh)
    if flat:
        ground = Ground(prim_path, options.get("physics_material"), height=float(heights[0] + offset[2]))
    else:
        moved = mesh if not offset.any() else mesh.copy().apply_translation(offset)
        ground = Ground(prim_path, options.get("physics_material"), moved)
    STAGE.grounds.append(ground)


def _record(prim_path: str, cfg: Any, asset: Any, translation: Numbers, orientation: Numbers) -> Prim:
    single = len(asset.body_names) == 1
    contacts = bool(getattr(cfg, "activate_contact_sensors", False))
    name = asset.body_names[0]
    if single and getattr(cfg, "articulation_props", None) is None and not asset.dof_names:
        prim = STAGE.add(prim_path, body=name, contacts=contacts)
    else:
        prim = STAGE.add(prim_path, articulation=True)
        for name in asset.body_names:
            STAGE.add(f"{prim_path}/{name}", body=name, contacts=contacts)
    position = tuple(float(x) for x in translation or (0.0, 0.0, 0.0))
    rotation = tuple(float(x) for x in orientation or (1.0, 0.0, 0.0, 0.0))
    if any(held.path == prim.path for held in STAGE.spawned):
        raise NotSupported(f"{prim_path}: something was spawned there before")
    STAGE.spawned.append(Spawned(prim.path, cfg, asset, position, rotation))
    return prim
