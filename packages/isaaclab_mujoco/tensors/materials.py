"""Friction: materials of shapes and grounds, combined as PhysX combines them."""

import logging
from typing import Any

import numpy as np
import torch

from mujoco_batches.assets.collisions import MIN_FRICTION, ROLL, SPIN

_log = logging.getLogger("isaaclab_mujoco")
# of two materials with different modes, the one that is later here counts
MODES = ("average", "min", "multiply", "max")
_DEFAULT = (0.5, "average")  # of PhysX, where nothing has set a material
_logged: set[str] = set()


class Materials:
    """Materials of all shapes of an environment, then of the grounds.

    MuJoCo has one coefficient of friction, so that the static one is taken. A shape's combine mode is that of the
    simulation's default material. Two shapes of one robot have the larger friction of both, MuJoCo's own rule.

    Attributes:
        values: ``(num_envs, shapes, 3)`` static friction, dynamic friction, restitution.
    """

    def __init__(self, physics: Any, default: Any, grounds: list[Any]) -> None:
        self._physics, layout = physics, physics.layout
        friction, mode = (_DEFAULT[0], _DEFAULT[1]) if default is None else _friction(default)
        count = sum(len(actor.shapes) for actor in physics.actors)
        self._geoms = np.concatenate([layout.geoms(k) for k in range(len(physics.actors))])
        self.values = np.zeros((physics.num_envs, count, 3))
        self.values[...] = (
            friction,
            getattr(default, "dynamic_friction", friction),
            getattr(default, "restitution", 0.0),
        )
        first = 0
        modes = [MODES.index(mode)] * count
        for actor, spawned in zip(physics.actors, physics.spawned):
            material = getattr(spawned.cfg, "physics_material", None)
            shapes = slice(first, first + len(actor.shapes))
            if material is not None:
                own, own_mode = _friction(material)
                self.values[:, shapes] = (own, material.dynamic_friction, material.restitution)
                modes[shapes] = [MODES.index(own_mode)] * len(actor.shapes)
            first = shapes.stop
        ground = [
            _friction(material or default) if (material or default) is not None else _DEFAULT for material in grounds
        ]
        self._ground = np.array([friction for friction, _ in ground])
        modes += [MODES.index(mode) for _, mode in ground]
        pairs = layout.pairs.surfaces
        self._mode = np.array(modes, dtype=int)[pairs].max(axis=1) if len(pairs) else np.zeros(0, dtype=int)
        self.changed = np.ones(physics.num_envs, dtype=bool)
        for material in (default, *grounds):
            self._note(
                np.array(
                    [getattr(material, name, 0.0) for name in ("static_friction", "dynamic_friction", "restitution")]
                )
            )

    def get(self, shapes: np.ndarray) -> torch.Tensor:
        """Return materials in all environments, ``(num_envs, len(shapes), 3)``, contiguous as PhysX's are."""
        return torch.from_numpy(self.values[:, shapes].astype(np.float32, order="C"))

    def set(self, envs: np.ndarray, shapes: np.ndarray, values: np.ndarray) -> None:
        """Set materials, ``(len(envs), len(shapes), 3)``."""
        self.values[envs[:, None], shapes] = values
        self.changed[envs] = True
        self._note(values)

    def combined(self, env: int) -> np.ndarray:
        """Return the friction of each pair of surfaces in an environment."""
        friction = np.concatenate([self.values[env, :, 0], self._ground])
        a, b = friction[self._physics.layout.pairs.surfaces].T
        return np.choose(self._mode, [(a + b) / 2, np.minimum(a, b), a * b, np.maximum(a, b)])

    def apply(self) -> None:
        """Give the changed materials to the engine."""
        if not self.changed.any():
            return
        pairs = self._physics.layout.pairs
        for env in np.flatnonzero(self.changed).tolist():
            fields = {"geom_friction": (self._geoms, _columns(self.values[env, :, 0], 1, SPIN, ROLL))}
            if len(pairs.ids):
                sliding = np.maximum(self.combined(env), MIN_FRICTION)
                fields["pair_friction"] = (pairs.ids, _columns(sliding, 2, SPIN, ROLL, ROLL))
            self._physics.set_fields(env, fields)
        self.changed[:] = False

    def _note(self, values: np.ndarray) -> None:
        if (values[..., 2] != 0).any():
            note("restitution has no effect: MuJoCo's contacts are soft")
        if (values[..., 0] != values[..., 1]).any():
            note("dynamic friction has no effect: MuJoCo has one coefficient, and the static one is taken")


def note(line: str) -> None:
    """Log once what has no effect."""
    if line not in _logged:
        _logged.add(line)
        _log.warning("isaaclab_mujoco: %s", line)


def _friction(material: Any) -> tuple[float, str]:
    mode = getattr(material, "friction_combine_mode", "average")
    return float(material.static_friction), mode if mode in MODES else "average"


def _columns(sliding: np.ndarray, count: int, *rest: float) -> np.ndarray:
    """Return MuJoCo's friction of geoms or pairs: ``count`` columns of sliding, then spin and roll."""
    return np.stack([sliding] * count + [np.full_like(sliding, value) for value in rest], axis=1)
