"""Which shapes may collide: Isaac Gym's groups and filters, within an actor as MuJoCo's contype and conaffinity.

In Isaac Gym two shapes of one environment collide if their actors' groups are equal or one is -1, and if their filters
have no bit in common. MuJoCo's masks have the opposite polarity: geoms with a common bit collide. Therefore shapes with
equal settings form a class, and each set of classes that may collide with a class gets a bit.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

MAX_BITS = 31


@dataclass(frozen=True)
class ShapeClass:
    """Shapes with equal collision settings.

    Attributes:
        group, filter: of the actor, or of the shape if it was set; the ground has group -1 and filter 0.
        immovable: whether it belongs to a fixed base or the ground; such shapes do not collide with each other.
        actor: the actor, if the file's own masks apply (filter -1), else None.
        contype, conaffinity: the file's masks, if they apply.
    """

    group: int
    filter: int
    immovable: bool
    actor: int | None = None
    contype: int = 0
    conaffinity: int = 0


GROUND = ShapeClass(group=-1, filter=0, immovable=True)


def may_touch(a: ShapeClass, b: ShapeClass) -> bool:
    """Return whether shapes of two classes (or two shapes of one class) may collide."""
    if a.immovable and b.immovable:
        return False
    if -1 not in (a.group, b.group) and a.group != b.group:
        return False
    if a.actor is not None and a.actor == b.actor:
        return bool((a.contype & b.conaffinity) | (b.contype & a.conaffinity))
    return (max(a.filter, 0) & max(b.filter, 0)) == 0


def masks(actors: Sequence[Sequence[ShapeClass]]) -> list[dict[ShapeClass, tuple[int, int]]]:
    """Return ``(contype, conaffinity)`` of the classes of each actor's shapes.

    Two shapes of one actor have a common bit if and only if they may collide; shapes of two actors never have one.

    Raises:
        NotImplementedError: the actors need more than 31 bits.
    """
    assigned, used = [], 0
    for shapes in actors:
        distinct = list(dict.fromkeys(shapes)) if len(shapes) > 1 else []
        # classes with the same partners share one bit, which all of their partners get
        partners = {a: frozenset(b for b in distinct if may_touch(a, b)) for a in distinct}
        groups = list(dict.fromkeys(p for p in partners.values() if p))
        contype, conaffinity = dict.fromkeys(shapes, 0), dict.fromkeys(shapes, 0)
        for bit, group in enumerate(groups, start=used):
            for a in distinct:
                contype[a] |= (partners[a] == group) << bit
                conaffinity[a] |= (a in group) << bit
        used += len(groups)
        assigned.append({a: (contype[a], conaffinity[a]) for a in contype})
    if used > MAX_BITS:
        raise NotImplementedError(
            f"collisions within {len(actors)} actors need {used} bits of contype and conaffinity; MuJoCo has {MAX_BITS}"
        )
    return assigned


SPIN, ROLL = 0.005, 0.0001  # MuJoCo's defaults, which contacts of dimension 3 do not use
MIN_FRICTION = 1e-3  # MuJoCo Warp, in single precision, is unstable at 1e-4


@dataclass
class Pairs:
    """Pairs of surfaces. Surfaces are the actors' shapes in their order, then the grounds.

    Attributes:
        surfaces: ``(n, 2)``, the surfaces of each pair.
        ids: ``(n,)``, the id of each pair in MuJoCo's model.
        grounds: friction of each ground.
        first_shape: of each actor, the index of its first shape.
    """

    surfaces: np.ndarray
    ids: np.ndarray
    grounds: list[float]
    first_shape: list[int] = field(default_factory=list)

    def of_actor(self, actor: int, count: int) -> np.ndarray:
        """Return indices into ``surfaces`` of the pairs with one of an actor's ``count`` shapes."""
        first = self.first_shape[actor]
        return np.flatnonzero(((self.surfaces >= first) & (self.surfaces < first + count)).any(axis=1))

    def friction(self, pairs: np.ndarray, shapes: Sequence[float]) -> np.ndarray:
        """Return MuJoCo's friction of some pairs, ``(len(pairs), 5)``, from the friction of all shapes: means."""
        mean = np.maximum(np.array([*shapes, *self.grounds])[self.surfaces[pairs]].mean(axis=1), MIN_FRICTION)
        return np.stack([mean, mean, *(np.full(len(pairs), v) for v in (SPIN, ROLL, ROLL))], axis=1)


def touching(classes: list[list[ShapeClass]], grounds: int) -> list[tuple[int, int]]:
    """Return the pairs of surfaces of different actors, or of an actor and a ground, that may collide."""
    owners = [k for k, actor in enumerate(classes) for _ in actor] + [-1] * grounds
    kinds = [kind for actor in classes for kind in actor] + [GROUND] * grounds
    answers: dict[tuple[ShapeClass, ShapeClass], bool] = {}
    pairs = []
    for b, second in enumerate(kinds):
        for a in range(b):
            if owners[a] != owners[b]:
                key = kinds[a], second
                if key not in answers:
                    answers[key] = may_touch(*key)
                if answers[key]:
                    pairs.append((a, b))
    return pairs


def contact_parameters(max_velocity: float) -> dict[str, list[float]]:
    """Return MuJoCo's ``solref`` and ``solimp`` that bound the speed, m/s, at which contacts push bodies apart.

    Stiffness and damping at the surface are those of MuJoCo's default. The impedance falls to ``_DEEP`` over a width in
    proportion to the bound, and the stiffness with it; the damping does not. It begins above the default, so that feet
    sink no deeper, and falls linearly, because MuJoCo Warp clamps other curves as if they rose. A bound that the
    default hardly reaches gives the default.
    """
    if not 0 < max_velocity < _FREE_VELOCITY:
        return {}
    stiffness, damping = _DEFAULT / _NEAR * (_DEEP / (_DEFAULT * _TIME)) ** 2, 2 * _DEEP / (_DEFAULT * _TIME)
    return {"solref": [-stiffness, -damping], "solimp": [_NEAR, _DEEP, _WIDTH * max_velocity, 0.5, 1.0]}


_DEFAULT, _TIME = 0.95, 0.02  # MuJoCo's default impedance and time constant, s
_NEAR, _DEEP = 0.99, 0.2  # impedance at the surface and of deep contacts
_WIDTH = 0.14  # m, depth between both impedances for a bound of 1 m/s
_FREE_VELOCITY = 5.0  # m/s, speed at which MuJoCo's default pushes out a body that is 0.3 m deep in another one


def add_pairs(spec: mujoco.MjSpec, names: list[str], pairs: list[tuple[int, int]], max_velocity: float) -> list[str]:
    """Add pairs of the surfaces ``names``, pushed apart at most at ``max_velocity``; return the names of the pairs.

    Their friction is set in the compiled model: ``Pairs.friction``.
    """
    parameters = contact_parameters(max_velocity)
    for a, b in pairs:
        spec.add_pair(name=f"pair {a} {b}", geomname1=names[a], geomname2=names[b], condim=3, **parameters)
    return [f"pair {a} {b}" for a, b in pairs]
