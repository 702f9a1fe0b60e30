"""Which shapes may collide: Isaac Gym's groups and filters, within an actor as MuJoCo's contype and conaffinity.

In Isaac Gym two shapes of one environment collide if their actors' groups are equal or one is -1, and if their filters
have no bit in common. MuJoCo's masks have the opposite polarity: geoms with a common bit collide. Therefore shapes with
equal settings form a class, and each set of classes that may collide with a class gets a bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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

    Pairs of shapes of one actor have a common bit if and only if they may collide; shapes of two actors have none.

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
