"""Read the robot of a USD file into links and joints, as Isaac Sim's PhysX does.

The meaning of prims is that of OpenUSD's UsdPhysics. What it leaves open is as in NVIDIA's omni.physx, which is
public: masses, densities and inertias that a file does not give, shapes below a prim that collides, children in the
order of the joints' prims, and positions of joints, which are those of ``body1`` relative to ``body0``.
"""

# MuJoCo's bindings carry no types, and OpenUSD is optional
# pyright: reportAttributeAccessIssue=false, reportMissingImports=false

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from math import inf, radians
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from mujoco_batches.assets import urdf, urdf_spec, usd_prims
from mujoco_batches.assets.urdf import AssetError, Inertial, Joint, Link, Shape
from mujoco_batches.assets.usd_prims import (
    approximation,
    body_of,
    collider_of,
    collides,
    filtered,
    is_body,
    number,
    physx,
    positive,
    rotation,
    value,
    without_scale,
)
from mujoco_batches.scene.params import AssetOptions
from mujoco_batches.scene.properties import DEFAULT_VELOCITY, MAX_FLOAT

ENDINGS = (".usd", ".usda", ".usdc", ".usdz")
INSTALL = "pip install usd-core"
_log = logging.getLogger("mujoco_batches")

_KINDS = {"PhysicsRevoluteJoint": "revolute", "PhysicsPrismaticJoint": "prismatic", "PhysicsFixedJoint": "fixed"}
_JOINTS = (*_KINDS, "PhysicsJoint", "PhysicsSphericalJoint", "PhysicsDistanceJoint", "PhysxPhysicsGearJoint")
_GEOMETRY = ("Cube", "Sphere", "Capsule", "Cylinder", "Mesh", "Cone", "Plane", "Capsule_1", "Cylinder_1")
_AXES = {"X": 0, "Y": 1, "Z": 2}
_DENSITY = 1000.0  # kg/m^3
_NO_MASS, _NO_SHAPE_RADIUS = 1.0, 0.1  # kg; m, of the ball whose inertia a body without shapes has
_LFS = b"version https://git-lfs"


@dataclass
class Robot:
    """What a file holds: the root link of its tree, and what a URDF does not say.

    Attributes:
        fixed: whether the root is joined to the world, or is not a rigid body.
        self_collisions: whether links of the robot collide with each other; None: not in the file.
        apart: pairs of links' names that do not collide.
    """

    root: Link
    fixed: bool
    self_collisions: bool | None = None
    apart: list[tuple[str, str]] = field(default_factory=list)


def obstacle(path: Path) -> str:
    """Return why a file cannot be read on this machine, and what to do; empty if there is no reason."""
    # a module that another package made in the place of OpenUSD's does not count
    if PathFinder.find_spec("pxr") is None:
        return f"reading USD needs the package usd-core: {INSTALL}"
    with path.open("rb") as file:
        pointer = file.read(len(_LFS)) == _LFS
    return "the file is a pointer of Git LFS: fetch its content with git lfs pull" if pointer else ""


def load(path: Path, options: AssetOptions) -> tuple[mujoco.MjSpec, dict[str, Joint]]:
    """Return the specification of a USD file's robot, whose first body is the root link, and its moving joints."""
    return build(read(path), options, None)


def build(robot: Robot, options: AssetOptions, self_collisions: bool | None) -> tuple[mujoco.MjSpec, dict[str, Joint]]:
    """Return the specification of a robot; ``self_collisions`` takes the place of the file's, unless it is None."""
    if options.collapse_fixed_joints:
        urdf.collapse(robot.root)
    spec, joints = urdf_spec.build(robot.root)
    names = [body.name for body in spec.bodies[1:]]
    collide = robot.self_collisions if self_collisions is None else self_collisions
    every = [(a, b) for k, a in enumerate(names) for b in names[:k]]
    pairs = every if collide is False else [pair for pair in robot.apart if set(pair) <= set(names)]
    for a, b in dict.fromkeys(pairs):
        spec.add_exclude(bodyname1=a, bodyname2=b)
    return spec, joints


def read(path: Path, mass: float = 0.0, density: float = 0.0) -> Robot:
    """Read the robot below the default prim of a USD file; lengths are in m, masses in kg, angles in rad.

    ``mass`` and ``density`` take the place of those that the file gives its bodies, unless they are 0.

    Raises:
        AssetError: ``usd-core`` is missing, the file or one that it refers to cannot be opened, or the robot has
            something that is not supported; the message names the prim.
    """
    if why := obstacle(path):
        raise AssetError(f"{path}: {why}")
    try:
        return _Reader(path, mass, density).robot()
    except AssetError:
        raise
    except ValueError as error:
        raise AssetError(f"{path}: {' '.join(str(error).split())}") from error


class _Reader:
    """Prims of one file, sorted into bodies, joints and shapes. Matrices are ``(4, 4)``, for columns."""

    def __init__(self, path: Path, mass: float, density: float) -> None:
        from pxr import Tf, Usd, UsdGeom, UsdPhysics, UsdUtils

        self.path, self.mass, self.density = path, mass, density
        collector = UsdUtils.CoalescingDiagnosticDelegate()  # else OpenUSD prints a line for each part that is missing
        try:
            self.stage = Usd.Stage.Open(str(path))
        except Tf.ErrorException as error:
            raise AssetError(f"{path}: OpenUSD cannot read it: {' '.join(str(error).split())}") from error
        finally:
            collector.TakeUncoalescedDiagnostics()
            del collector
        self.top = self._top()
        self._check_references()
        self.meters = UsdGeom.GetStageMetersPerUnit(self.stage)
        self.kilograms = UsdPhysics.GetStageKilogramsPerUnit(self.stage)
        self._cache = UsdGeom.XformCache()
        prims = list(Usd.PrimRange(self.top, Usd.TraverseInstanceProxies(Usd.PrimDefaultPredicate)))
        self.bodies = [prim for prim in prims if is_body(prim)]
        self.joints = [prim for prim in prims if prim.GetTypeName() in _JOINTS]
        self.shapes = [prim for prim in prims if prim.GetTypeName() in _GEOMETRY and collides(prim)]
        self.articulated = [prim for prim in prims if "PhysicsArticulationRootAPI" in prim.GetAppliedSchemas()]
        if told := usd_prims.ignored(prims, self.bodies, self.joints, self.shapes):
            _log.warning("%s: these have no effect: %s", path, told)

    def robot(self) -> Robot:
        if not self.bodies:
            return self._prop()
        static = [str(prim.GetPath()) for prim in self.shapes if body_of(prim) is None]
        if static:
            _log.warning("%s: shapes of no rigid body are left out: %s", self.path, ", ".join(static))
        edges, anchored = self._edges()
        root = self._root(anchored, edges)
        fixed = root in anchored or bool(value(root, "physics:kinematicEnabled", False))
        links = {prim.GetPath(): Link(prim.GetName(), None, self._shapes_of(prim)) for prim in self._tree(root, edges)}
        paths: dict[str, Any] = {}
        for path, link in links.items():
            if link.name in paths:
                raise AssetError(f"{self.path}: {paths[link.name]} and {path} have the same name: rename one")
            paths[link.name] = path
        left = [prim.GetName() for prim in self.bodies if prim.GetPath() not in links]
        if left:
            _log.warning("%s: no joint leads to %s: left out", self.path, ", ".join(left))
        self._weigh(links, links[root.GetPath()])
        own = [value(p, "physxArticulation:enabledSelfCollisions", None) for p in self.articulated]
        return Robot(links[root.GetPath()], fixed, next((x for x in own if x is not None), None), self._apart(links))

    def _top(self) -> Any:
        """Return the default prim, or the only one."""
        prim, prims = self.stage.GetDefaultPrim(), list(self.stage.GetPseudoRoot().GetChildren())
        if prim:
            return prim
        if len(prims) != 1:
            names = ", ".join(p.GetName() for p in prims) or "none"
            raise AssetError(f"{self.path}: no default prim says which of its prims is the robot: {names}")
        return prims[0]

    def _check_references(self) -> None:
        """Raise AssetError if files below the robot are missing; those of what is only seen do not matter."""
        from pxr import Pcp

        missing, lacking, sublayers = {}, {}, {}  # files that are missing, that lack a prim, and that are sublayers
        for error in self.stage.GetCompositionErrors():
            prim = re.search(r"<(/[^>]*)>$", str(error.rootSite))
            place = prim.group(1) if prim else ""
            file, *others = re.findall(r"@([^@]+)@", str(error)) or [str(error)]
            if isinstance(error, Pcp.ErrorInvalidSublayerPath):
                sublayers[file] = others[0]
            elif f"{place}/".startswith(f"{self.top.GetPath()}/") and "visual" not in place.lower():
                (lacking if isinstance(error, Pcp.ErrorUnresolvedPrimPath) else missing)[file] = place
        if missing or lacking:  # where a sublayer is missing, the prims that it would have are
            lacking = {file: place for file, place in lacking.items() if file not in sublayers.values()}
            names = "; ".join(f"{file} of {place}" for file, place in (missing | lacking | sublayers).items())
            raise AssetError(f"{self.path}: it refers to what is not there or cannot be read: {names}")

    # frames

    def _world(self, prim: Any) -> np.ndarray:
        """Return the pose of a prim with its scale, m."""
        world = np.array(self._cache.GetLocalToWorldTransform(prim)).T
        world[:3] *= self.meters
        return world

    def _rigid(self, prim: Any) -> np.ndarray:
        """Return the pose of a prim without its scale."""
        return without_scale(self._world(prim), f"{self.path}: {prim.GetPath()}")

    def _joint_frame(self, joint: Any, side: int) -> tuple[Any, np.ndarray]:
        """Return the body on one side of a joint, None for the world, and the joint's frame in it."""
        position = value(joint, f"physics:localPos{side}", (0.0, 0.0, 0.0))
        turn = value(joint, f"physics:localRot{side}", None)
        targets = joint.GetRelationship(f"physics:body{side}").GetTargets()
        target = self.stage.GetPrimAtPath(targets[0]) if targets else self.stage.GetPseudoRoot()
        if not target:
            raise AssetError(f"{self.path}: joint {joint.GetPath()}: body{side} {targets[0]} does not exist")
        world = self._world(target)
        frame = np.eye(4)
        frame[:3, 3] = (world @ np.append(np.array(position, dtype=float), 1.0))[:3]
        frame[:3, :3] = without_scale(world, str(target.GetPath()))[:3, :3] @ rotation(turn)
        body = target
        while body and not is_body(body):
            body = body.GetParent()
        return (body, np.linalg.inv(self._rigid(body)) @ frame) if body else (None, frame)

    # the tree

    def _edges(self) -> tuple[dict[Any, list[tuple[Any, Any, bool]]], list[Any]]:
        """Return joints by the paths of their bodies, (joint, other body, whether that is body1), and fixed bodies."""
        edges: dict[Any, list[tuple[Any, Any, bool]]] = {prim.GetPath(): [] for prim in self.bodies}
        anchored = []
        for joint in self.joints:
            if not value(joint, "physics:jointEnabled", True):
                continue
            where, kind = f"{self.path}: joint {joint.GetPath()}", joint.GetTypeName()
            (first, _), (second, _) = (self._joint_frame(joint, side) for side in (0, 1))
            if first is None and second is None:
                raise AssetError(f"{where}: neither body0 nor body1 is a rigid body; give it one, or remove it")
            if first is None or second is None:
                if kind != "PhysicsFixedJoint":
                    raise AssetError(f"{where}: to the world only fixed joints are supported, not {kind}")
                anchored.append(second if first is None else first)
                continue
            if kind not in _KINDS:
                raise AssetError(f"{where}: {kind} is not supported; use {', '.join(_KINDS)}")
            if value(joint, "physics:excludeFromArticulation", False):
                raise AssetError(f"{where}: it is excluded from the articulation; closed loops are not supported")
            edges[first.GetPath()].append((joint, second, True))
            edges[second.GetPath()].append((joint, first, False))
        return edges, list(dict.fromkeys(anchored))

    def _root(self, anchored: list[Any], edges: dict[Any, list[tuple[Any, Any, bool]]]) -> Any:
        """Return the body that is fixed, or the articulation's root, or the one that is body1 of no joint."""
        jointed = [prim for prim in self.bodies if edges[prim.GetPath()]] or self.bodies
        children = {other.GetPath() for rows in edges.values() for _, other, is_child in rows if is_child}
        fixed, marked = ([prim for prim in prims if prim in jointed] for prims in (anchored, self.articulated))
        free = [prim for prim in jointed if prim.GetPath() not in children]
        for candidates in (fixed, marked, free):
            names = ", ".join(str(prim.GetPath()) for prim in candidates)
            if len(candidates) > 1:
                raise AssetError(f"{self.path}: one body must be the root; found {names}")
            other = [str(prim.GetPath()) for prim in marked if prim not in candidates]
            if candidates and other:
                raise AssetError(
                    f"{self.path}: {names} is joined to the world, and {', '.join(other)} has "
                    "PhysicsArticulationRootAPI: remove it there, or the joint to the world"
                )
            if candidates:
                return candidates[0]
        raise AssetError(f"{self.path}: each body is body1 of a joint; mark the root by PhysicsArticulationRootAPI")

    def _tree(self, root: Any, edges: dict[Any, list[tuple[Any, Any, bool]]]) -> Iterator[Any]:
        """Yield the bodies that joints lead to; ``self.parents`` gets parent, joint and whether it is body0 of each."""
        self.parents: dict[Any, tuple[Any, Any, bool]] = {}
        used, queue = set(), [root]
        for body in queue:
            yield body
            for joint, other, is_child in edges[body.GetPath()]:
                if joint.GetPath() in used:
                    continue
                used.add(joint.GetPath())
                if other.GetPath() in self.parents or other == root:
                    raise AssetError(f"{self.path}: joint {joint.GetPath()} closes a loop, which is not supported")
                self.parents[other.GetPath()] = (body, joint, is_child)
                queue.append(other)

    def _joint(self, prim: Any, child: Link, forward: bool) -> Joint:
        """Return a joint; ``forward`` says whether the child is body1."""
        kind = _KINDS[prim.GetTypeName()]
        frames = [self._joint_frame(prim, side)[1] for side in (0, 1)]
        parent, own = frames if forward else frames[::-1]
        axis = own[:3, _AXES[str(value(prim, "physics:axis", "X"))]]
        angular = kind == "revolute"
        drive = f"drive:{'angular' if angular else 'linear'}:physics"
        # degrees of the file, and units of length and mass
        unit = radians(1) if angular else self.meters
        torque = self.kilograms * (self.meters**2 if angular else self.meters)
        lower, upper = (number(prim, f"physics:{name}Limit", end) for name, end in (("lower", -inf), ("upper", inf)))
        limits = None if (lower, upper) == (-inf, inf) or lower > upper else (lower * unit, upper * unit)
        if str(value(prim, f"{drive}:type", "force")) == "acceleration":
            _log.warning("%s: joint %s: its acceleration drive is taken as a force drive", self.path, prim.GetName())
        if any("Mimic" in api for api in prim.GetPrimTypeInfo().GetAppliedAPISchemas()):
            _log.warning("%s: joint %s: that it follows another joint has no effect", self.path, prim.GetName())
        speed = physx(prim, "maxJointVelocity", inf) * unit
        return Joint(
            name=prim.GetName(),
            kind="continuous" if angular and limits is None else kind,
            child=child,
            frame=parent @ np.linalg.inv(own),
            axis=axis if forward else -axis,
            limits=None if limits is None else (max(limits[0], -MAX_FLOAT), min(limits[1], MAX_FLOAT)),
            effort=min(number(prim, f"{drive}:maxForce", inf) * torque, MAX_FLOAT),
            velocity=DEFAULT_VELOCITY if speed == inf else speed,
            damping=number(prim, f"{drive}:damping", 0.0) * torque / unit,
            friction=physx(prim, "jointFriction", 0.0),
            keep=False,
            anchor=own[:3, 3].copy(),
            stiffness=number(prim, f"{drive}:stiffness", 0.0) * torque / unit,
            armature=physx(prim, "armature", 0.0) * self.kilograms * (self.meters**2 if angular else 1.0),
        )

    # masses

    def _weigh(self, links: dict[Any, Link], root: Link) -> None:
        """Connect the links, and set their masses: the file's, and what it leaves out by their shapes."""
        seen: Counter[str] = Counter()
        for path, (parent, prim, forward) in self.parents.items():
            joint = self._joint(prim, links[path], forward)
            name, joint.name = joint.name, f"{joint.name}#{seen[joint.name]}" if seen[joint.name] else joint.name
            seen[name] += 1
            links[parent.GetPath()].joints.append(joint)
        shaped = dict(zip(map(id, urdf.walk(root)), urdf_spec.shape_inertials(root, _DENSITY)))
        for path, link in links.items():
            link.inertial = self._inertial(self.stage.GetPrimAtPath(path), shaped[id(link)] if link.shapes else None)

    def _inertial(self, prim: Any, shaped: Inertial | None) -> Inertial:
        """Return a body's mass, centre and inertia; ``shaped`` is that of its shapes, if it has any."""
        mass = self.mass or number(prim, "physics:mass", 0.0) * self.kilograms
        center = np.array(value(prim, "physics:centerOfMass", (-inf,) * 3), dtype=float)
        diagonal = np.array(value(prim, "physics:diagonalInertia", (0.0,) * 3), dtype=float)
        axes = value(prim, "physics:principalAxes", None)
        com = np.zeros(3) if shaped is None else shaped.com
        if np.isfinite(center).all():
            scale = np.linalg.norm(self._world(prim)[:3, :3], axis=0)  # metersPerUnit included
            com = center * scale
        if mass <= 0:
            mass = _NO_MASS if shaped is None else shaped.mass
        if (diagonal > 0).any():
            turn = rotation(axes)
            moments = np.maximum(np.abs(diagonal) * self.kilograms * self.meters**2, urdf_spec.MIN_INERTIA)
            return Inertial(mass, com, turn @ np.diag(moments) @ turn.T)
        if shaped is None:
            return Inertial(mass, com, 0.4 * mass * _NO_SHAPE_RADIUS**2 * np.eye(3))
        assert shaped.inertia is not None
        arm = com - shaped.com
        moved = shaped.inertia * mass / shaped.mass + mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        return Inertial(mass, com, moved)

    # shapes

    def _shapes_of(self, body: Any) -> list[Shape]:
        frame = np.linalg.inv(self._rigid(body))
        density = self.density / self.kilograms * self.meters**3 or number(body, "physics:density", 0.0)
        return [self._shape(prim, frame, density) for prim in self.shapes if body_of(prim) == body]

    def _shape(self, prim: Any, frame: np.ndarray, body_density: float) -> Shape:
        """Return a collision shape; ``frame`` is the inverse pose of its body."""
        placed, where = frame @ self._world(prim), f"{self.path}: {prim.GetPath()}"
        collider = collider_of(prim)
        mass = number(collider, "physics:mass", 0.0) * self.kilograms
        density = number(collider, "physics:density", 0.0) or body_density or self._material_density(prim)
        weight = (mass or None, density * self.kilograms / self.meters**3 or None)
        kind = prim.GetTypeName()
        if kind == "Mesh":
            return self._mesh(prim, placed, weight)
        scale = np.linalg.norm(placed[:3, :3], axis=0)
        if not (scale > 0).all():
            raise AssetError(f"{where}: its scale is 0 along an axis, or not a number")
        pose = np.eye(4)
        pose[:3, 3], pose[:3, :3] = placed[:3, 3], placed[:3, :3] / scale
        if abs(pose[:3, :3].T @ pose[:3, :3] - np.eye(3)).max() > 1e-3:
            raise AssetError(f"{where}: its scale is not along its own axes, which only meshes may have")
        pose[:3, 0] *= np.sign(np.linalg.det(pose[:3, :3]))  # a mirrored shape is equal to itself
        if kind == "Cube":
            return Shape("box", list(0.5 * positive(prim, "size", 2.0) * scale), pose, None, None, *weight)
        if kind == "Sphere":
            return Shape("sphere", [positive(prim, "radius", 1.0) * max(scale), 0.0, 0.0], pose, None, None, *weight)
        form = kind.removesuffix("_1")  # OpenUSD's newer prims, with a radius at each end
        if form not in ("Capsule", "Cylinder"):
            raise AssetError(f"{where}: {kind} does not collide here; use Cube, Sphere, Capsule, Cylinder or Mesh")
        default_radius, default_height = (0.5, 1.0) if form == "Capsule" else (1.0, 2.0)
        names = ("radius", "radius") if form == kind else ("radiusTop", "radiusBottom")
        radius, bottom = (positive(prim, name, default_radius) for name in names)
        if radius != bottom:
            raise AssetError(f"{where}: radiusTop {radius:g} and radiusBottom {bottom:g} differ; use a Mesh")
        axis = _AXES[str(value(prim, "axis", "Z"))]
        half = 0.5 * positive(prim, "height", default_height) * scale[axis]
        radius *= max(np.delete(scale, axis))
        pose[:3, :3] = pose[:3, :3] @ np.roll(np.eye(3), axis + 1, axis=1).T  # z becomes the shape's own axis
        return Shape(form.lower(), [radius, half, 0.0], pose, None, None, *weight)

    def _mesh(self, prim: Any, placed: np.ndarray, weight: tuple[float | None, float | None]) -> Shape:
        """Return the hull of a mesh, or the box or sphere about it, as its approximation says."""
        points = np.array(value(prim, "points", ()), dtype=float).reshape(-1, 3)
        where = f"{self.path}: {prim.GetPath()}"
        if len(points) < 3:
            raise AssetError(f"{where}: a collision mesh needs three points at least; it has {len(points)}")
        if not np.isfinite(points).all():
            raise AssetError(f"{where}: a coordinate of its points is not finite")
        form = approximation(prim)
        if form == "sdf":
            raise AssetError(f"{where}: it collides by a signed distance field, which is not supported")
        label = Path(f"{self.path}{prim.GetPath()}")
        if form not in ("boundingCube", "boundingSphere"):
            return Shape("mesh", [1.0] * 3, np.eye(4), label, points @ placed[:3, :3].T + placed[:3, 3], *weight)
        low, high = points.min(axis=0), points.max(axis=0)
        scale, pose = np.linalg.norm(placed[:3, :3], axis=0), without_scale(placed, where)
        pose[:3, 3] = (placed @ np.append(0.5 * (low + high), 1.0))[:3]
        half = np.maximum(0.5 * (high - low) * scale, 1e-6)
        if form == "boundingCube":
            return Shape("box", list(half), pose, None, None, *weight)
        return Shape("sphere", [float(np.linalg.norm(half)), 0.0, 0.0], pose, None, None, *weight)

    def _material_density(self, prim: Any) -> float:
        """Return the density of a shape's physics material, 0 if there is none."""
        from pxr import UsdShade

        binding = UsdShade.MaterialBindingAPI(prim)
        for purpose in ("physics", UsdShade.Tokens.allPurpose):
            material = binding.ComputeBoundMaterial(purpose)[0]
            if material and "PhysicsMaterialAPI" in material.GetPrim().GetAppliedSchemas():
                return number(material.GetPrim(), "physics:density", 0.0)
        return 0.0

    # the rest

    def _prop(self) -> Robot:
        """Return what does not move: a file with shapes that collide and without rigid bodies."""
        if self.joints or not self.shapes:
            raise AssetError(f"{self.path}: below {self.top.GetPath()} is no prim with PhysicsRigidBodyAPI")
        self.parents = {}
        frame = np.linalg.inv(self._rigid(self.top))
        link = Link(self.top.GetName(), None, [self._shape(prim, frame, 0.0) for prim in self.shapes])
        link.inertial = urdf_spec.shape_inertials(link, _DENSITY)[0]
        return Robot(link, fixed=True)

    def _apart(self, links: dict[Any, Link]) -> list[tuple[str, str]]:
        """Return the pairs of links that a filter of pairs keeps from colliding."""
        pairs = []
        for prim in [*self.bodies, *self.shapes]:
            for target in filtered(prim):
                bodies = (body_of(prim), body_of(self.stage.GetPrimAtPath(target)))
                first, second = (links.get(body.GetPath()) if body else None for body in bodies)
                if first is not None and second is not None and first is not second:
                    pairs.append(tuple(sorted((first.name, second.name))))
        return pairs
