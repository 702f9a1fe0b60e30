"""What engines ask of MuJoCo's models: height fields, and sizes of buffers for pairs, contacts and constraint rows."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

DEPTH = 1.0  # m, of the solid ground below the lowest point of a height field
MOST_FIELDS_AT_ONCE = 4  # that one geom can touch: where the corners of four meet
_PLANE, _SPHERE, _CAPSULE, _BOX = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "SPHERE", "CAPSULE", "BOX")
)
_NET_FORCE = 3  # MJCF's reduce="netforce": one force per sensor, in the world frame
_ON_HEIGHT_FIELDS = 2  # times the contacts on a plane, because a sphere there has one and here up to four


def add_height_field(
    spec: mujoco.MjSpec, name: str, heights: np.ndarray, spacing: tuple[float, float], corner: np.ndarray
) -> Any:
    """Add an hfield, parallel to the world's axes, to the world's body; return its geom.

    MuJoCo's rows are along y, its heights between 0 and 1 above the geom, which is at the centre of the field.

    Args:
        heights: ``(nx, ny)``, m; spacing: along x and y, m; corner: position of node ``[0, 0]`` at height 0.
    """
    lowest, highest = float(heights.min()), float(heights.max())
    relief = max(highest - lowest, 1e-3)
    nx, ny = heights.shape
    half = 0.5 * (nx - 1) * spacing[0], 0.5 * (ny - 1) * spacing[1]
    added = spec.add_hfield(name=name, nrow=ny, ncol=nx, size=[*half, relief, DEPTH])
    added.userdata = ((heights - lowest) / relief).T.ravel()
    geom = spec.worldbody.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=name)
    geom.pos = np.asarray(corner) + np.array([*half, lowest])
    return geom


class BufferSizes(NamedTuple):
    """``max_pairs``, ``max_convex``, ``max_contacts`` and ``max_constraints`` of ``RobotModel``."""

    pairs: int
    convex: int
    contacts: int
    constraints: int


def buffer_sizes(model: mujoco.MjModel) -> BufferSizes:
    """Return the sizes that one robot needs, by its file's ``max_contacts`` where it has one."""
    pairs = touching_pairs(model)
    all_at_once = sum(pairs.values())
    declared = [int(model.numeric(k).data[0]) for k in range(model.nnumeric) if model.numeric(k).name == "max_contacts"]
    if model.nhfield:
        declared = [_ON_HEIGHT_FIELDS * count for count in declared]
    contacts = min([all_at_once, *declared])
    at_once = _pairs_at_once(model, pairs)
    # one pair with a height field is several searches
    convex = max(at_once, contacts) if model.nhfield else _convex_pairs(model, pairs)
    return BufferSizes(at_once, convex, contacts, max_constraints(model, pairs, contacts))


def touching_pairs(model: mujoco.MjModel) -> dict[tuple[int, int], int]:
    """Return the pairs of geoms that can touch by MuJoCo's collision filters, and the most contact points of each."""
    contype, conaffinity, body = model.geom_contype, model.geom_conaffinity, model.geom_bodyid
    weld = model.body_weldid
    excluded = set(model.exclude_signature.tolist())
    pairs = {tuple(sorted(p)) for p in zip(model.pair_geom1.tolist(), model.pair_geom2.tolist())}
    moving = np.flatnonzero(weld[body]).tolist()
    for g1 in range(model.ngeom):
        fixed = weld[body[g1]] == 0  # a ground may have thousands of geoms, which do not touch each other
        others = moving[bisect_right(moving, g1) :] if fixed else range(g1 + 1, model.ngeom)
        for g2 in others:
            b1, b2 = sorted((int(body[g1]), int(body[g2])))
            w1, w2 = int(weld[b1]), int(weld[b2])
            parent = {int(weld[model.body_parentid[w1]]), int(weld[model.body_parentid[w2]])}
            related = w1 == w2 or (w1 != 0 and w2 != 0 and bool(parent & {w1, w2}))
            meet = (contype[g1] & conaffinity[g2]) or (contype[g2] & conaffinity[g1])
            if meet and not related and ((b1 << 16) + b2) not in excluded:
                pairs.add((g1, g2))
    return {(g1, g2): mujoco.mj_maxContact(model, g1, g2, -1) for g1, g2 in pairs}


def _pairs_at_once(model: mujoco.MjModel, pairs: dict[tuple[int, int], int]) -> int:
    """Return the number of ``pairs``, with ``MOST_FIELDS_AT_ONCE`` at most of a geom and the world's geoms."""
    of_geom: Counter[int] = Counter()
    count = 0
    for g1, g2 in pairs:
        fixed = [g for g in (g1, g2) if model.body_weldid[model.geom_bodyid[g]] == 0]
        if len(fixed) == 1:
            of_geom[g1 + g2 - fixed[0]] += 1
        else:
            count += 1
    return count + sum(min(number, MOST_FIELDS_AT_ONCE) for number in of_geom.values())


def _convex_pairs(model: mujoco.MjModel, pairs: dict[tuple[int, int], int]) -> int:
    """Return the most pairs of the same two shapes, without the shapes for which MuJoCo Warp has a formula."""
    shapes = Counter(tuple(sorted((int(model.geom_type[g1]), int(model.geom_type[g2])))) for g1, g2 in pairs)
    by_formula = {(a, b) for a in (_SPHERE, _CAPSULE) for b in (_SPHERE, _CAPSULE, _BOX)}
    return max((n for (a, b), n in shapes.items() if a != _PLANE and (a, b) not in by_formula), default=0)


def max_constraints(model: mujoco.MjModel, pairs: dict[tuple[int, int], int], max_contacts: int) -> int:
    """Return the most rows of the constraint solver that one robot can need."""
    condims = [int(max(model.geom_condim[g1], model.geom_condim[g2])) for g1, g2 in pairs] + model.pair_dim.tolist()
    condim = max(condims, default=0)
    pyramidal = model.opt.cone == int(mujoco.mjtCone.mjCONE_PYRAMIDAL)
    rows = 2 * (condim - 1) if pyramidal and condim > 1 else condim
    limits = int(np.count_nonzero(model.jnt_limited) + np.count_nonzero(model.tendon_limited))
    friction = int(np.count_nonzero(model.dof_frictionloss) + np.count_nonzero(model.tendon_frictionloss))
    equality = 6 * model.neq  # a weld, the largest
    return rows * max_contacts + limits + friction + equality


def add_contact_sensor(spec: mujoco.MjSpec, body: str, quantities: Sequence[str]) -> None:
    """Add a sensor of a body's net contact force in the world frame.

    Args:
        quantities: of ``FORCE``, ``TORQUE`` and the point ``POS`` to which both belong, as in MuJoCo's mjtConDataField.
    """
    fields = sum(1 << int(getattr(mujoco.mjtConDataField, f"mjCONDATA_{name}")) for name in quantities)
    kind, of_body = mujoco.mjtSensor.mjSENS_CONTACT, mujoco.mjtObj.mjOBJ_BODY
    spec.add_sensor(type=kind, objtype=of_body, objname=body, intprm=[fields, _NET_FORCE, 1])


def dofs_above(model: mujoco.MjModel, body: int) -> list[int]:
    """Return the degrees of freedom that move a body."""
    dofs: list[int] = []
    while body:
        first = int(model.body_dofadr[body])
        dofs += range(first, first + int(model.body_dofnum[body]))
        body = int(model.body_parentid[body])
    return dofs


def mass_addresses(model: mujoco.MjModel, columns: np.ndarray) -> np.ndarray:
    """Return the addresses of pairs of degrees of freedom in MuJoCo's packed mass matrix; -1 where it has none."""
    addresses, column_of = np.full((len(columns), len(columns)), -1), {int(dof): k for k, dof in enumerate(columns)}
    for dof, row in column_of.items():
        start = int(model.M_rowadr[dof])
        for address in range(start, start + int(model.M_rownnz[dof])):
            column = column_of.get(int(model.M_colind[address]))
            if column is not None:
                addresses[row, column] = addresses[column, row] = address
    return addresses
