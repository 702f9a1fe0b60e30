"""Robots and objects from files and shapes, as assets of ``mujoco_batches``; PhysX's orders of links and joints."""

import xml.etree.ElementTree as ET
from math import pi, radians
from pathlib import Path
from typing import Any

import numpy as np

from isaaclab_mujoco.errors import GIVE, NotSupported, UserError
from isaaclab_mujoco.import_hook import installed
from mujoco_batches.assets import urdf_spec, usd
from mujoco_batches.assets.asset import Asset, load
from mujoco_batches.assets.urdf import AssetError, Shape
from mujoco_batches.scene.params import DOF_MODE_POS, AssetOptions


def from_file(path: Path, name: str, cfg: Any) -> Asset:
    """Load the file that answers ``name``, with the properties of a spawner's config.

    Raises:
        UserError: it cannot be read.
        NotSupported: the config changes a USD file in a way that is not supported.
    """
    options = _options(cfg)
    fixed = getattr(getattr(cfg, "articulation_props", None), "fix_root_link", None)
    fixed = fixed if fixed is not None else getattr(cfg, "fix_base", None)
    try:
        if path.suffix in usd.ENDINGS:
            robot = _read(path, name, cfg)
            options.fix_base_link = bool(fixed) if fixed is not None else robot.fixed
            collide = getattr(getattr(cfg, "articulation_props", None), "enabled_self_collisions", None)
            spec, joints = usd.build(robot, options, collide)
            return Asset(str(path), spec, options, joints)
        options.fix_base_link = bool(fixed) if fixed is not None else _is_fixed(path)
        # what a USD had is not known; Isaac Lab's and Isaac Sim's tools that make them keep fixed joints unless asked
        options.collapse_fixed_joints = bool(getattr(cfg, "merge_fixed_joints", False))
        return load(str(path.parent), path.name, options)
    except (AssetError, ET.ParseError) as error:
        raise UserError(str(error) if str(error).startswith(name) else f"{name}: {error}") from error


def from_shape(cfg: Any) -> Asset:
    """Return a sphere, cuboid, cylinder or capsule as an asset; without ``rigid_props`` it does not move.

    Raises:
        NotSupported: another shape, or an axis other than z.
    """
    kind = type(cfg).__name__.removesuffix("Cfg")
    if getattr(cfg, "axis", "Z") != "Z":
        raise NotSupported(f"{kind}Cfg: only the axis Z is supported, not {cfg.axis}")
    options = _options(cfg)
    options.fix_base_link = cfg.rigid_props is None or bool(cfg.rigid_props.kinematic_enabled)
    match kind:
        case "Sphere":
            shape, size, volume = "sphere", [cfg.radius], 4 / 3 * pi * cfg.radius**3
        case "Cuboid":
            shape, size, volume = "box", [x / 2 for x in cfg.size], float(np.prod(cfg.size))
        case "Cylinder":
            shape, size = "cylinder", [cfg.radius, cfg.height / 2]
            volume = pi * cfg.radius**2 * cfg.height
        case "Capsule":
            shape, size = "capsule", [cfg.radius, cfg.height / 2]
            volume = pi * cfg.radius**2 * (cfg.height + 4 / 3 * cfg.radius)
        case _:
            raise NotSupported(f"{kind}Cfg: this shape is not in isaaclab_mujoco")
    mass = cfg.mass_props.mass if cfg.mass_props is not None else None
    density = cfg.mass_props.density if cfg.mass_props is not None else None
    options.density = mass / volume if mass else (density or options.density)
    spec = urdf_spec.new_spec()
    body = spec.worldbody.add_body(name=kind.lower())
    urdf_spec.add_shape(spec, body, Shape(shape, size, np.eye(4)), options.density)
    return Asset(kind, spec, options, {})


def breadth_first(asset: Asset) -> tuple[list[int], list[int]]:
    """Return PhysX's order of an asset's bodies and of its DOFs, which MuJoCo has depth first."""
    model, order = asset.model, [1]
    for body in order:
        order += [b for b in range(2, model.nbody) if model.body_parentid[b] == body]
    joints = [int(model.joint(name).bodyid[0]) for name in asset.dof_names]
    dofs = [k for body in order for k, owner in enumerate(joints) if owner == body]
    return [body - 1 for body in order], dofs


def _read(path: Path, name: str, cfg: Any) -> usd.Robot:
    """Read a USD file with the config's mass or density."""
    if any(x != 1.0 for x in getattr(cfg, "scale", None) or ()):
        give = f"give a file of that size: {GIVE.format(name.rpartition('/')[2])}"
        raise NotSupported(f"{name}: scale={cfg.scale} is not supported: {give}")
    if getattr(cfg, "variants", None):
        raise NotSupported(f"{name}: variants={cfg.variants} is not supported: give a file that selects them")
    own = getattr(cfg, "mass_props", None)
    mass, density = (getattr(own, key, None) or 0.0 for key in ("mass", "density"))
    with installed("pxr"):
        robot = usd.read(path, mass, density)
    if (mass or density) and robot.root.joints:
        raise NotSupported(
            f"{name}: mass_props is supported for one rigid body; {path} has more: write their masses there"
        )
    return robot


def _options(cfg: Any) -> AssetOptions:
    """Return the options of a config's ``rigid_props``; its angular velocity is in degrees."""
    options, rigid = AssetOptions(), getattr(cfg, "rigid_props", None)
    options.angular_damping, options.default_dof_drive_mode = 0.0, DOF_MODE_POS
    for name in ("linear_damping", "angular_damping", "max_linear_velocity", "disable_gravity"):
        value = getattr(rigid, name, None)
        if value is not None:
            setattr(options, name, value)
    spin = getattr(rigid, "max_angular_velocity", None)
    if spin is not None:
        options.max_angular_velocity = radians(spin)
    return options


# types of the joints of a free root: one, or as files for scripts that read joints by their places write it
_FREE = (["free"], ["ball", "slide", "slide", "slide"], ["hinge", "hinge", "hinge", "slide", "slide", "slide"])


def _is_fixed(path: Path) -> bool:
    """Return whether a file's root does not move: it has no joint in an MJCF, or is called "world" in a URDF.

    Raises:
        UserError: the root of an MJCF has joints that do not leave it free.
    """
    tree = ET.parse(path).getroot()
    if path.suffix == ".urdf":
        children = {child.get("link") for child in tree.iterfind("joint/child")}
        return any(link.get("name") == "world" and "world" not in children for link in tree.iterfind("link"))
    root = tree.find("worldbody/body")
    if root is None:
        return False
    if root.find("freejoint") is not None:
        return False
    joints = [(joint.get("type", "hinge"), joint) for joint in root.findall("joint")]
    if not joints:
        return True
    if sorted(kind for kind, _ in joints) in _FREE and all(_span(joints, kind) for kind in ("slide", "hinge")):
        return False
    kind, obstacle = next((joint for joint in joints if joint[0] != "free"), joints[0])
    name = obstacle.get("name") or f"of type {kind}"
    raise UserError(
        f"{path}: the root body {root.get('name')} has the joint {name}, which an articulation's root does not have: "
        "put the body into one without a joint"
    )


def _span(joints: list[tuple[str, ET.Element]], kind: str) -> bool:
    """Return whether the axes of the joints of one kind, if there are any, have all three directions."""
    axes = [np.fromstring(joint.get("axis", "0 0 1"), sep=" ") for own, joint in joints if own == kind]
    return not axes or (all(axis.shape == (3,) for axis in axes) and np.linalg.matrix_rank(np.array(axes)) == 3)
