"""Read a URDF file into links and joints, in Isaac Gym's order."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mujoco_batches.assets import collada
from mujoco_batches.scene.properties import DEFAULT_VELOCITY, MAX_FLOAT

DOF_TYPES = ("revolute", "continuous", "prismatic")
MESHES = (".obj", ".stl", ".msh")
COLLADA = ".dae"


class AssetError(ValueError):
    """An asset's file cannot be read or compiled; the message names the file and the element."""


@dataclass
class Shape:
    """A collision shape of a link: ``kind`` box (half sizes), sphere, cylinder, capsule or mesh (scale).

    ``part`` holds the scaled vertices ``(n, 3)`` of a convex part of the mesh, or of a mesh in another format; else
    None. ``mass`` and ``density`` take the place of the asset's density, unless they are None.
    """

    kind: str
    size: list[float]
    frame: np.ndarray
    mesh: Path | None = None
    part: np.ndarray | None = None
    mass: float | None = None
    density: float | None = None


@dataclass
class Inertial:
    """Mass, kg; centre of mass, m; inertia about it, kg m^2, along the link's axes, or None."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray | None


@dataclass
class Link:
    name: str
    inertial: Inertial | None
    shapes: list[Shape]
    joints: list[Joint] = field(default_factory=list)  # joints to the children, sorted by name


@dataclass
class Joint:
    """A joint to a child link. ``anchor`` is where its axis passes, in the child's frame; m, kg, s, rad."""

    name: str
    kind: str
    child: Link
    frame: np.ndarray
    axis: np.ndarray
    limits: tuple[float, float] | None
    effort: float
    velocity: float
    damping: float
    friction: float
    keep: bool  # do not collapse
    anchor: np.ndarray = field(default_factory=lambda: np.zeros(3))
    stiffness: float = 0.0
    armature: float = 0.0


def read(path: Path, asset_root: Path, capsules: bool) -> Link:
    """Return the root link of the URDF file ``path``, from which all others are reached.

    Children are sorted by the names of their joints. ``capsules`` turns cylinders into capsules. Meshes are looked
    for beside the file, then under ``asset_root`` and the folders above the file (for ``package://``).

    Raises:
        AssetError: the file is not a URDF of one tree, or names a mesh that is missing.
        NotImplementedError: a collision shape is a signed distance field.
    """
    try:
        robot = ET.parse(path).getroot()
    except ET.ParseError as error:
        raise AssetError(f"{path}: not XML: {error}") from error
    if robot.tag != "robot":
        raise AssetError(f"{path}: the root element of a URDF is <robot>, not <{robot.tag}>")
    folders = [path.parent, asset_root, *path.resolve().parents]
    links = {link.get("name", ""): _link(link, path, folders, capsules) for link in robot.findall("link")}
    # a joint connects two links
    children = set()
    for element in sorted(robot.findall("joint"), key=lambda e: e.get("name", "")):
        joint = _joint(element, links, path)
        children.add(joint.child.name)
        links[_attribute(element, "parent", "link", path)].joints.append(joint)
    roots = [link for name, link in links.items() if name not in children]
    if len(roots) != 1:
        names = ", ".join(link.name for link in roots) or "none"
        raise AssetError(f"{path}: exactly one link must be the root, the child of no joint; found {names}")
    return roots[0]


def walk(link: Link) -> Iterator[Link]:
    """Yield a link and its descendants, depth first."""
    yield link
    for joint in link.joints:
        yield from walk(joint.child)


def collapse(link: Link) -> None:
    """Merge links behind fixed joints into their parents, recursively."""
    joints = []
    for joint in link.joints:
        collapse(joint.child)
        if joint.kind != "fixed" or joint.keep:
            joints.append(joint)
            continue
        link.inertial = merged(link.inertial, joint.child.inertial, joint.frame)
        for shape in joint.child.shapes:
            shape.frame = joint.frame @ shape.frame
            link.shapes.append(shape)
        for grandchild in joint.child.joints:
            grandchild.frame = joint.frame @ grandchild.frame
            joints.append(grandchild)
    link.joints = sorted(joints, key=lambda j: j.name)


def merged(a: Inertial | None, b: Inertial | None, frame: np.ndarray) -> Inertial | None:
    """Return the inertial of two bodies together, in the frame of ``a``; ``frame`` is the pose of ``b`` in it."""
    if b is None:
        return a
    assert b.inertia is not None
    turn = frame[:3, :3]
    b = Inertial(b.mass, turn @ b.com + frame[:3, 3], turn @ b.inertia @ turn.T)
    if a is None or a.mass == 0:
        return b
    mass = a.mass + b.mass
    com = (a.mass * a.com + b.mass * b.com) / mass
    total = np.zeros((3, 3))
    for part in (a, b):
        assert part.inertia is not None
        arm = part.com - com
        total += part.inertia + part.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return Inertial(mass, com, total)


def _link(element: ET.Element, path: Path, folders: list[Path], capsules: bool) -> Link:
    shapes = []
    for collision in element.findall("collision"):
        geometry = collision.find("geometry")
        if geometry is None or not len(geometry):
            continue  # Isaac Gym skips it, too
        if collision.find("sdf") is not None:
            raise NotImplementedError(
                f"load_asset: {path}: link {element.get('name')} collides by a signed distance field (<sdf>), which is "
                "not supported; contacts of its convex hull would be meaningless for parts such as nuts, gears and pegs"
            )
        shapes.append(_shape(geometry[0], _frame(collision.find("origin")), path, folders, capsules))
    return Link(element.get("name", ""), _inertial(element.find("inertial")), shapes)


def _shape(element: ET.Element, frame: np.ndarray, path: Path, folders: list[Path], capsules: bool) -> Shape:
    numbers = {name: _numbers(value) for name, value in element.attrib.items() if name != "filename"}
    kind = element.tag
    if kind == "box":
        return Shape("box", [0.5 * side for side in numbers["size"]], frame)
    if kind == "sphere":
        return Shape("sphere", [numbers["radius"][0], 0.0, 0.0], frame)
    if kind in ("cylinder", "capsule"):
        size = [numbers["radius"][0], 0.5 * numbers["length"][0], 0.0]
        return Shape("capsule" if capsules else kind, size, frame)
    if kind != "mesh":
        raise AssetError(f"{path}: <{kind}> is not a shape of a URDF; use box, sphere, cylinder, capsule or mesh")
    mesh, scale = find_mesh(element.get("filename", ""), path, folders), numbers.get("scale", [1.0, 1.0, 1.0])
    if mesh.suffix.lower() != COLLADA:
        return Shape("mesh", scale, frame, mesh)
    try:
        return Shape("mesh", scale, frame, mesh, collada.read(mesh)[0] * scale)
    except ValueError as error:
        raise AssetError(f"{mesh}: {error}") from error


def find_mesh(name: str, path: Path, folders: list[Path]) -> Path:
    """Return the file of a mesh in the asset ``path``; raise AssetError if it is missing or of another kind."""
    relative = name.replace("package://", "").replace("file://", "")
    for folder in folders:
        if (folder / relative).is_file():
            if not relative.lower().endswith((*MESHES, COLLADA)):
                kinds = ", ".join((*MESHES, COLLADA))
                raise AssetError(f"{path}: the collision mesh {relative} is not one of {kinds}; convert it")
            return (folder / relative).resolve()
    raise AssetError(f"{path}: the mesh {name} is missing (looked in {folders[0]}, in the asset root and above)")


def _joint(element: ET.Element, links: dict[str, Link], path: Path) -> Joint:
    name, kind = element.get("name", ""), element.get("type", "")
    if kind not in (*DOF_TYPES, "fixed"):
        raise AssetError(f"{path}: joint {name}: type {kind!r}; use {', '.join(DOF_TYPES)} or fixed")
    for role in ("parent", "child"):
        if _attribute(element, role, "link", path) not in links:
            raise AssetError(f"{path}: joint {name}: unknown link {_attribute(element, role, 'link', path)}")
    child = links[_attribute(element, "child", "link", path)]
    axis, limit, dynamics = element.find("axis"), element.find("limit"), element.find("dynamics")
    direction = np.array([1.0, 0.0, 0.0] if axis is None else _numbers(axis.get("xyz", "1 0 0")))
    limits = None
    # ANYmal's files have limits only of effort and velocity
    if kind != "continuous" and limit is not None and {"lower", "upper"} & set(limit.keys()):
        limits = (_number(limit, "lower", 0.0), _number(limit, "upper", 0.0))
    return Joint(
        name=name,
        kind=kind,
        child=child,
        frame=_frame(element.find("origin")),
        axis=direction / max(float(np.linalg.norm(direction)), 1e-12),
        limits=limits,
        effort=_number(limit, "effort", MAX_FLOAT),
        velocity=_number(limit, "velocity", DEFAULT_VELOCITY),
        damping=_number(dynamics, "damping", 0.0),
        friction=_number(dynamics, "friction", 0.0),
        keep=element.get("dont_collapse", "false").lower() in ("true", "1"),
    )


def _inertial(element: ET.Element | None) -> Inertial | None:
    """Read the inertial of a link; an inertia that is not positive definite is ignored."""
    mass = None if element is None else element.find("mass")
    if element is None or mass is None or _number(mass, "value", 0.0) <= 0:
        return None
    frame, moments = _frame(element.find("origin")), element.find("inertia")
    inertia = None
    if moments is not None:
        xx, yy, zz, xy, xz, yz = (_number(moments, f"i{p}", 0.0) for p in ("xx", "yy", "zz", "xy", "xz", "yz"))
        inertia = frame[:3, :3] @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ frame[:3, :3].T
        inertia = inertia if np.linalg.eigvalsh(inertia)[0] > 0 else None
    return Inertial(_number(mass, "value", 0.0), frame[:3, 3].copy(), inertia)


def _frame(origin: ET.Element | None) -> np.ndarray:
    """Read an ``<origin>`` as a ``(4, 4)`` matrix: roll, pitch, yaw about fixed axes, then the translation."""
    frame = np.eye(4)
    if origin is not None:
        roll, pitch, yaw = _numbers(origin.get("rpy", "0 0 0"))
        (cr, cp, cy), (sr, sp, sy) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
        x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
        y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
        z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
        frame[:3, :3] = z @ y @ x
        frame[:3, 3] = _numbers(origin.get("xyz", "0 0 0"))
    return frame


def _attribute(element: ET.Element, child: str, name: str, path: Path) -> str:
    node = element.find(child)
    if node is None or node.get(name) is None:
        raise AssetError(f"{path}: joint {element.get('name')} has no <{child} {name}=...>")
    return node.get(name, "")


def _number(element: ET.Element | None, name: str, default: float) -> float:
    return default if element is None or element.get(name) is None else float(element.get(name, ""))


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.replace(",", " ").split()]
