"""Pairs of shapes of different actors, or of an actor and the ground, that may collide, and their friction.

PhysX uses the mean of two shapes' friction, MuJoCo the larger one. Therefore these contacts are explicit pairs of
MuJoCo's model, with a friction per environment. Shapes of one actor collide by MuJoCo's masks, and with the larger one.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

from envcoder_bench.isaacgym.collisions import GROUND, ShapeClass, may_touch

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
        """Return MuJoCo's friction of some pairs, ``(len(pairs), 5)``, from the friction of all shapes."""
        mean = np.maximum(np.array([*shapes, *self.grounds])[self.surfaces[pairs]].mean(axis=1), MIN_FRICTION)
        return np.stack([mean, mean, *(np.full(len(pairs), v) for v in (SPIN, ROLL, ROLL))], axis=1)


def touching(classes: list[list[ShapeClass]], grounds: int) -> list[tuple[int, int]]:
    """Return the pairs of surfaces of different actors, or of an actor and a ground, that may collide."""
    owners = [k for k, actor in enumerate(classes) for _ in actor] + [-1] * grounds
    kinds = [kind for actor in classes for kind in actor] + [GROUND] * grounds
    answers: dict[tuple[ShapeClass, ShapeClass], bool] = {}
    found = []
    for b, second in enumerate(kinds):
        for a in range(b):
            if owners[a] != owners[b]:
                key = kinds[a], second
                if key not in answers:
                    answers[key] = may_touch(*key)
                if answers[key]:
                    found.append((a, b))
    return found


def add_pairs(
    spec: mujoco.MjSpec, names: list[str], pairs: list[tuple[int, int]], friction: Sequence[float]
) -> list[str]:
    """Add pairs of the surfaces ``names`` to a specification; return the names of the pairs."""
    added = []
    for a, b in pairs:
        name, mean = f"pair {a} {b}", max(0.5 * (friction[a] + friction[b]), MIN_FRICTION)
        spec.add_pair(
            name=name, geomname1=names[a], geomname2=names[b], condim=3, friction=[mean, mean, SPIN, ROLL, ROLL]
        )
        added.append(name)
    return added
