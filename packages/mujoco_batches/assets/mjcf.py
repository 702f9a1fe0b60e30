"""Read the robot of an MJCF file, without its scene, as Isaac Gym's importer does."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import logging
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import mujoco
import numpy as np

from mujoco_batches.assets.urdf import MESHES, AssetError
from mujoco_batches.assets.urdf_spec import MAX_HULL, MIN_INERTIA, MIN_MASS
from mujoco_batches.scene.params import AssetOptions

_log = logging.getLogger("mujoco_batches")

# sections that do not describe the robot
_DROPPED = (
    "size",
    "option",
    "visual",
    "statistic",
    "keyframe",
    "sensor",
    "custom",
    "extension",
    "worldbody",
    "equality",
)
_COMPILER = ("angle", "autolimits", "eulerseq", "inertiafromgeom", "inertiagrouprange", "settotalmass", "meshdir")
_ORIENTATION = ("quat", "axisangle", "xyaxes", "zaxis", "euler")
_PICTURE = ("material", "rgba", "hfield")


def load(path: Path, asset_root: Path, options: AssetOptions) -> mujoco.MjSpec:
    """Return the specification of the robot in an MJCF file; its first body is the robot's root.

    Geoms of the world, lights, cameras, solver options and sensors are removed, and joints of the root body:
    ``AssetOptions.fix_base_link`` makes a root fixed or free. The root's position is ignored; its rotation turns what
    it contains, while the root's own frame is that of the actor, as IsaacGymEnvs' ShadowHand requires. Geoms that
    collide with nothing are visual; they are removed and have no mass, unless a ``<pair>`` names them.

    Raises:
        AssetError: the file is not an MJCF with one root body, or MuJoCo rejects it.
    """
    root = _included(path)
    if root.tag != "mujoco":
        raise AssetError(f"{path}: the root element of an MJCF is <mujoco>, not <{root.tag}>")
    body = _root_body(root, path)
    _clean(root, path, asset_root, options)
    # the robot alone: neither its world nor what refers to other parts
    for section in [e for e in root if e.tag in _DROPPED]:
        root.remove(section)
    world = ET.SubElement(root, "worldbody")
    world.append(body)
    for joint in [e for e in body if e.tag in ("joint", "freejoint")]:
        body.remove(joint)
    _name_joints(world)
    _drop_dangling(root)
    try:
        _rotate_content(body, root)
        spec = mujoco.MjSpec.from_string(ET.tostring(root, encoding="unicode"))
    except ValueError as error:
        raise AssetError(f"{path}: {error}") from error
    # names that a script can ask for, hulls and masses that MuJoCo accepts
    for number, part in enumerate(spec.bodies[1:]):
        part.name = part.name or f"body_{number}"
    for mesh in spec.meshes:
        mesh.maxhullvert, mesh.inertia = MAX_HULL, mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
    _drop_visual_geoms(spec, path)
    spec.compiler.balanceinertia = True
    spec.compiler.boundmass, spec.compiler.boundinertia = MIN_MASS, MIN_INERTIA
    return spec


def _included(path: Path) -> ET.Element:
    """Parse a file, and insert the sections of included files."""
    try:
        root = ET.parse(path).getroot()
    except FileNotFoundError as error:
        raise AssetError(f"{path}: the file does not exist") from error
    except ET.ParseError as error:
        raise AssetError(f"{path}: not XML: {error}") from error
    _include_below(root, path.parent)
    return root


def _include_below(element: ET.Element, folder: Path) -> None:
    children = []
    for child in list(element):
        if child.tag == "include":
            children += list(_included(folder / child.get("file", "")))
        else:
            _include_below(child, folder)
            children.append(child)
    element[:] = children


def _root_body(root: ET.Element, path: Path) -> ET.Element:
    bodies = [body for world in root.findall("worldbody") for body in world.findall("body")]
    if len(bodies) != 1:
        names = ", ".join(body.get("name", "unnamed") for body in bodies) or "none"
        raise AssetError(f"{path}: an asset has one body at the top of <worldbody>; found {names}")
    return bodies[0]


def _clean(root: ET.Element, path: Path, asset_root: Path, options: AssetOptions) -> None:
    """Remove visual elements and what current MuJoCo rejects; resolve mesh files; set the asset's density."""
    compilers = root.findall("compiler")
    settings = {k: v for c in compilers for k, v in c.attrib.items() if k in _COMPILER}
    if any(c.get("coordinate", "local") != "local" for c in compilers):
        raise AssetError(f"{path}: coordinate='global' is not supported; save the file with local coordinates")
    # one <compiler>, and meshes found as Isaac Gym finds them
    folder = path.parent / settings.pop("meshdir", "")
    for compiler in compilers:
        root.remove(compiler)
    root.insert(0, ET.Element("compiler", settings))
    gone = _resolve_meshes(root, path, [folder, path.parent, asset_root])
    for element in root.iter():
        for name in (*_PICTURE, "user"):
            element.attrib.pop(name, None)
        if element.tag == "joint" and element.get("range") is not None:
            lower, upper = (float(x) for x in element.get("range", "").split())
            if lower == upper:  # MuJoCo requires lower < upper
                element.set("range", f"{lower - 1e-3} {upper + 1e-3}")
        # pictures do not collide, and a mesh that is missing cannot
        element[:] = [
            child
            for child in element
            if child.tag not in ("light", "camera", "material", "texture")
            and not (child.tag == "geom" and child.get("mesh") in gone)
        ]
    # the asset's density is the default of all geoms
    default = root.find("default")
    if default is None:
        default = ET.SubElement(root, "default")
    geom = default.find("geom")
    if geom is None:
        geom = ET.SubElement(default, "geom")
    if geom.get("density") is None:
        geom.set("density", str(options.density))


def _resolve_meshes(root: ET.Element, path: Path, folders: list[Path]) -> set[str]:
    """Leave only meshes that collide in the assets, with full paths of their files; return the names of the others."""
    kept, gone = [], set()
    for mesh in [mesh for asset in root.findall("asset") for mesh in asset.findall("mesh")]:
        file = mesh.get("file")
        name = mesh.get("name") or Path(file or "").stem
        if file is not None and not file.lower().endswith(MESHES):
            gone.add(name)  # .glb, .dae: visual meshes
            continue
        kept.append(mesh)
        if file is not None:
            mesh_file = next((folder / file for folder in folders if (folder / file).is_file()), None)
            if mesh_file is None:
                raise AssetError(f"{path}: the mesh {file} is missing (looked in {folders[0]})")
            mesh.set("name", name)
            mesh.set("file", str(mesh_file.resolve()))
    for asset in root.findall("asset"):
        root.remove(asset)
    ET.SubElement(root, "asset").extend(kept)
    return gone


def _rotate_content(body: ET.Element, root: ET.Element) -> None:
    """Move the root body's orientation to a frame around its content. Frames cannot contain ``<inertial>``."""
    rotation = {name: body.attrib.pop(name) for name in _ORIENTATION if name in body.attrib}
    if not rotation:
        return
    inertial = body.find("inertial")
    content = [e for e in body if e is not inertial]
    for element in content:
        body.remove(element)
    ET.SubElement(body, "frame", rotation).extend(content)
    if inertial is None:
        return
    # MuJoCo itself turns the inertial: of a body that is nothing else
    lone = ET.Element("mujoco")
    lone.extend(root.findall("compiler"))
    ET.SubElement(ET.SubElement(lone, "worldbody"), "body", rotation).append(inertial)
    model = mujoco.MjSpec.from_string(ET.tostring(lone, encoding="unicode")).compile()
    position, turn = np.zeros(3), np.zeros(4)
    mujoco.mju_rotVecQuat(position, model.body_ipos[1], model.body_quat[1])
    mujoco.mju_mulQuat(turn, model.body_quat[1], model.body_iquat[1])
    numbers = {"pos": position, "quat": turn, "diaginertia": model.body_inertia[1]}
    inertial.attrib = {name: " ".join(repr(float(x)) for x in values) for name, values in numbers.items()}
    inertial.set("mass", repr(float(model.body_mass[1])))


def _name_joints(world: ET.Element) -> None:
    """Make the joints' names unique; Isaac Gym allows duplicates."""
    seen: Counter[str] = Counter()
    for number, joint in enumerate(world.iter("joint")):
        name = joint.get("name") or f"joint_{number}"
        joint.set("name", name if not seen[name] else f"{name}#{seen[name]}")
        seen[name] += 1


def _drop_dangling(root: ET.Element) -> None:
    """Remove actuators, pairs and tendons that refer to elements outside the robot."""
    names = {kind: {e.get("name") for e in root.iter(kind)} for kind in ("joint", "geom", "body", "site")}
    for section in ("actuator", "contact", "tendon"):
        for group in root.findall(section):
            for element in list(group):
                wanted = [("joint", element.get("joint")), ("geom", element.get("geom1"))]
                wanted += [("geom", element.get("geom2")), ("body", element.get("body1"))]
                wanted += [("body", element.get("body2"))]
                if any(name is not None and name not in names[kind] for kind, name in wanted):
                    group.remove(element)


def _drop_visual_geoms(spec: mujoco.MjSpec, path: Path) -> None:
    """Remove the geoms that collide with nothing, and warn of moving bodies that have no mass without them."""
    paired = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}
    bodies = {}
    for geom in list(spec.geoms):
        if geom.contype == 0 and geom.conaffinity == 0 and geom.name not in paired:
            if geom.mass != 0:  # NaN: by its density
                bodies[geom.parent.name] = geom.parent
            spec.delete(geom)
    names = [name for name, x in bodies.items() if x.joints and not x.geoms and not x.explicitinertial]
    if names:
        _log.warning(
            "%s: no mass is left of %s, whose geoms collide with nothing: give each an <inertial>",
            *(path, ", ".join(names)),
        )
