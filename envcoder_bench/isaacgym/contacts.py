"""Contacts between actors, and of actors with the ground: which pairs of shapes may touch, and with what friction.

PhysX takes the mean of two shapes' friction, MuJoCo the larger. So these contacts are explicit pairs of MuJoCo's, whose
friction each environment can have its own. Shapes of one actor touch by MuJoCo's masks, with the larger friction.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np

from envcoder_bench.isaacgym.collisions import GROUND, ShapeClass, may_touch

SPIN, ROLL = 0.005, 0.0001  # MuJoCo's defaults; without effect in contacts of three dimensions
MIN_FRICTION = 1e-3  # MuJoCo Warp, in single precision, blows up at 1e-4


@dataclass
class Pairs:
    """Pairs of surfaces: the actors' shapes in their order, then the grounds.

    Attributes:
        surfaces: ``(n, 2)``, the surfaces of each pair.
        ids: ``(n,)``, the number of each pair in MuJoCo's model.
        grounds: friction of each ground.
        first_shape: of each actor, the number of its first shape.
    """

    surfaces: np.ndarray
    ids: np.ndarray
    grounds: list[float]
    first_shape: list[int] = field(default_factory=list)

    def of_actor(self, actor: int, count: int) -> np.ndarray:
        """Return which pairs hold one of an actor's ``count`` shapes: indices into ``surfaces``."""
        first = self.first_shape[actor]
        return np.flatnonzero(((self.surfaces >= first) & (self.surfaces < first + count)).any(axis=1))

    def friction(self, pairs: np.ndarray, shapes: Sequence[float]) -> np.ndarray:
        """Return MuJoCo's ``(len(pairs), 5)`` friction of some pairs, where all shapes have the friction given."""
        mean = np.maximum(np.array([*shapes, *self.grounds])[self.surfaces[pairs]].mean(axis=1), MIN_FRICTION)
        return np.stack([mean, mean, *(np.full(len(pairs), v) for v in (SPIN, ROLL, ROLL))], axis=1)


def touching(classes: list[list[ShapeClass]], grounds: int) -> list[tuple[int, int]]:
    """List the pairs of surfaces of different actors, or of an actor and a ground, that may touch."""
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
    """Add pairs of the surfaces ``names`` to a specification; returns the pairs' names."""
    added = []
    for a, b in pairs:
        name, mean = f"pair {a} {b}", max(0.5 * (friction[a] + friction[b]), MIN_FRICTION)
        spec.add_pair(
            name=name, geomname1=names[a], geomname2=names[b], condim=3, friction=[mean, mean, SPIN, ROLL, ROLL]
        )
        added.append(name)
    return added
