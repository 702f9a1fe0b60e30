"""Convert a URDF's links to a MuJoCo specification: masses of links without inertials, collapsed joints, bodies."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from pathlib import Path

import mujoco
import numpy as np

from mujoco_batches.assets import decompose, urdf
from mujoco_batches.assets.urdf import Inertial, Joint, Link, Shape
from mujoco_batches.scene.params import AssetOptions

MAX_HULL = 64  # vertices of a mesh's convex hull; PhysX has the same limit
MIN_MASS, MIN_INERTIA = 1e-6, 1e-9  # kg, kg m^2, of a moving link without mass
_GEOMS = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "mesh": mujoco.mjtGeom.mjGEOM_MESH,
}
WORLD = "world (link)"  # the name of a link "world", which MuJoCo reserves for the body that all others are on
_HINGE, _SLIDE = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE


def load(path: Path, asset_root: Path, options: AssetOptions) -> tuple[mujoco.MjSpec, dict[str, Joint]]:
    """Return the specification of a URDF file, whose first body is the root link, and its moving joints by name."""
    root = urdf.read(path, asset_root, options.replace_cylinder_with_capsule)
    if options.vhacd_enabled and decompose.available():
        decompose.decompose(root, options)
    weigh(root, options)
    if options.collapse_fixed_joints:
        urdf.collapse(root)
    return build(root)


def build(root: Link) -> tuple[mujoco.MjSpec, dict[str, Joint]]:
    """Return the specification of a tree of links that have inertials, and its moving joints by name."""
    spec = new_spec()
    joints: dict[str, Joint] = {}
    _add_link(spec, spec.worldbody, root, None, joints)
    return spec, joints


def new_spec() -> mujoco.MjSpec:
    """Return an empty specification with this package's compiler settings: radians, balanced inertias."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.compiler.balanceinertia = True
    spec.compiler.boundmass = MIN_MASS
    spec.compiler.boundinertia = MIN_INERTIA
    return spec


def weigh(root: Link, options: AssetOptions) -> None:
    """Set each link's mass, centre of mass and inertia: the file's, or else those of its shapes at ``density``.

    A link with a mass but without a usable inertia gets its shapes' inertia, scaled to that mass, or that of a ball
    of 0.1 m diameter if it has no shapes. A link with neither inertial nor shapes has no mass.
    """
    for link, shaped in zip(urdf.walk(root), shape_inertials(root, options.density)):
        inertial = link.inertial
        if inertial is None:
            link.inertial = shaped if shaped.mass > 0 else None
            continue
        # values of the file take precedence
        if options.override_com and shaped.mass > 0:
            inertial.com = shaped.com
        if inertial.inertia is None or (options.override_inertia and shaped.mass > 0):
            assert shaped.inertia is not None
            per_mass = shaped.inertia / shaped.mass if shaped.mass > 0 else 0.4 * 0.05**2 * np.eye(3)
            inertial.inertia = inertial.mass * per_mass


def shape_inertials(root: Link, density: float) -> list[Inertial]:
    """Return what the shapes of each link weigh, in the order of ``walk``; flat meshes become plates."""
    try:
        return _shape_inertials(root, density)
    except ValueError as error:
        if "coplanar" not in str(error):
            raise
        decompose.thicken(root)
        return _shape_inertials(root, density)


def _shape_inertials(root: Link, density: float) -> list[Inertial]:
    # MuJoCo computes the inertia of shapes: a body for each link, none connected
    spec = new_spec()
    links = list(urdf.walk(root))
    for k, link in enumerate(links):
        body = spec.worldbody.add_body(name=f"{k}")
        for shape in link.shapes:
            geom = add_shape(spec, body, shape, density if shape.density is None else shape.density)
            if shape.mass is not None:
                geom.mass = shape.mass
    model = spec.compile()
    inertials = []
    for k in range(len(links)):
        body = model.body(f"{k}")
        axes = np.empty(9)
        mujoco.mju_quat2Mat(axes, body.iquat)
        turn = axes.reshape(3, 3)
        inertials.append(Inertial(float(body.mass[0]), body.ipos.copy(), turn @ np.diag(body.inertia) @ turn.T))
    return inertials


def add_shape(spec: mujoco.MjSpec, body: mujoco.MjsBody, shape: Shape, density: float) -> mujoco.MjsGeom:
    """Add a collision shape to a body; a mesh collides as its convex hull. A negative density is the default one."""
    density = density if density >= 0 else AssetOptions().density
    geom = body.add_geom(type=_GEOMS[shape.kind], pos=shape.frame[:3, 3], quat=_quat(shape.frame), density=density)
    if shape.mesh is None:
        geom.size = shape.size
        return geom
    convex = mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
    if shape.part is not None:
        name = f"{shape.mesh}/part {len(spec.meshes)}"
        spec.add_mesh(name=name, uservert=shape.part.ravel(), inertia=convex, maxhullvert=MAX_HULL)
        geom.meshname = name
        return geom
    name = "/".join([str(shape.mesh), *(f"{s:g}" for s in shape.size)])
    if not any(mesh.name == name for mesh in spec.meshes):
        spec.add_mesh(name=name, file=str(shape.mesh), scale=shape.size, inertia=convex, maxhullvert=MAX_HULL)
    geom.meshname = name
    return geom


def _add_link(
    spec: mujoco.MjSpec, parent: mujoco.MjsBody, link: Link, joint: Joint | None, joints: dict[str, Joint]
) -> None:
    frame = np.eye(4) if joint is None else joint.frame
    name = WORLD if link.name == "world" else link.name
    body = parent.add_body(name=name, pos=frame[:3, 3], quat=_quat(frame))
    if joint is not None and joint.kind == "fixed":
        # MuJoCo has no fixed joints that could store the name
        spec.add_text(name=f"fixed joint {joint.name}", data=name)
    elif joint is not None:
        joints[joint.name] = joint
        kind = _SLIDE if joint.kind == "prismatic" else _HINGE
        added = body.add_joint(name=joint.name, type=kind, axis=joint.axis, pos=joint.anchor)
        if joint.limits is not None:
            added.limited = mujoco.mjtLimited.mjLIMITED_TRUE
            added.range = proper_range(*joint.limits)
    body.explicitinertial = True
    inertial = link.inertial or Inertial(0.0, np.zeros(3), np.zeros((3, 3)))
    inertia = inertial.inertia
    assert inertia is not None
    body.mass, body.ipos = inertial.mass, inertial.com
    if inertial.mass > 0:
        body.fullinertia = [inertia[k] for k in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    for shape in link.shapes:
        add_shape(spec, body, shape, 0.0)
    for below in link.joints:
        _add_link(spec, body, below.child, below, joints)


def proper_range(lower: float, upper: float) -> list[float]:
    """Return limits that MuJoCo accepts: it requires lower < upper."""
    return [lower, upper] if lower < upper else [lower - 1e-4, lower + 1e-4]


def _quat(frame: np.ndarray) -> np.ndarray:
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, frame[:3, :3].flatten())
    return quat
