"""Properties of actors and the gravity that a task's own code changes in steps and resets, for checkpoints."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Key = tuple[str, int, int]  # kind, index of the environment, index of the actor

_SHAPE = ("friction", "rolling_friction", "torsion_friction", "restitution")
_TENDON = ("stiffness", "damping", "limit_stiffness", "fixed_spring_rest_length")
# kinds by the methods of gym that set them
_KINDS = {
    "set_actor_rigid_shape_properties": "shapes",
    "set_actor_rigid_body_properties": "bodies",
    "set_actor_dof_properties": "dofs",
    "set_actor_tendon_properties": "tendons",
    "set_sim_params": "gravity",
}


class OwnProperties:
    """Notes what a task's code sets while it is watched, with the values before; saves and restores these properties.

    Args:
        gym: the task's gym.
        sim: its simulation.
        envs: handles of the environments.
    """

    def __init__(self, gym: Any, sim: Any, envs: list[Any]) -> None:
        self._gym, self._sim, self._envs = gym, sim, envs
        self._indices = {id(env): k for k, env in enumerate(envs)}
        self._first: dict[Key, np.ndarray] = {}
        self._watching = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is set inside the block."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def note(self, method: str, args: tuple[Any, ...]) -> None:
        """Note a call of a method of gym, before it is made."""
        if not self._watching or method not in _KINDS or len(args) < 2:
            return
        kind = _KINDS[method]
        key = (kind, 0, 0) if kind == "gravity" else (kind, self._indices.get(id(args[0]), -1), int(args[1]))
        if key[1] >= 0 and key not in self._first:
            self._first[key] = self._get(key)

    def get_state(self) -> dict[str, Tensor]:
        """Return the present values of what was noted."""
        return {".".join(map(str, key)): torch.from_numpy(self._get(key)) for key in self._first}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``get_state`` returned; what was noted since then gets its first values."""
        given = {_key(name): x.cpu().numpy() for name, x in state.items()}
        for key in given:
            self._first.setdefault(key, self._get(key))
        for key, first in self._first.items():
            values = given.get(key, first)
            if not np.array_equal(values, self._get(key)):
                self._set(key, values)

    def _get(self, key: Key) -> np.ndarray:
        """Return properties as numbers, one row for each shape, body, DOF or tendon."""
        rows = self._read(key)
        kind = key[0]
        if kind == "gravity":
            return np.array([rows.gravity.x, rows.gravity.y, rows.gravity.z])
        if kind == "dofs":
            return np.stack([rows[name].astype(float) for name in rows.dtype.names], axis=-1)
        if kind == "bodies":
            return np.array([[b.mass, *_numbers(b.com), *(y for x in _axes(b) for y in _numbers(x))] for b in rows])
        return np.array([[getattr(row, name) for name in _names(kind)] for row in rows], dtype=float)

    def _set(self, key: Key, values: np.ndarray) -> None:
        kind, index, actor = key
        rows = self._read(key)
        if kind == "gravity":
            rows.gravity.x, rows.gravity.y, rows.gravity.z = map(float, values)
            self._gym.set_sim_params(self._sim, rows)
            return
        if kind == "dofs":
            for name, column in zip(rows.dtype.names, values.T):
                rows[name] = column
        elif kind == "bodies":
            for body, (mass, *vectors) in zip(rows, values.tolist()):
                body.mass = mass
                for k, x in enumerate((body.com, *_axes(body))):
                    x.x, x.y, x.z = vectors[3 * k : 3 * k + 3]
        else:
            for row, own in zip(rows, values.tolist()):
                for name, x in zip(_names(kind), own):
                    setattr(row, name, x)
        method = next(name for name, own in _KINDS.items() if own == kind)
        more = (False,) if kind == "bodies" else ()  # inertias are given
        getattr(self._gym, method)(self._envs[index], actor, rows, *more)

    def _read(self, key: Key) -> Any:
        kind, index, actor = key
        if kind == "gravity":
            return self._gym.get_sim_params(self._sim)
        method = next(name for name, own in _KINDS.items() if own == kind)
        return getattr(self._gym, method.replace("set_", "get_", 1))(self._envs[index], actor)


def _key(name: str) -> Key:
    kind, index, actor = name.split(".")
    return kind, int(index), int(actor)


def _names(kind: str) -> tuple[str, ...]:
    return _SHAPE if kind == "shapes" else _TENDON


def _numbers(x: Any) -> tuple[float, float, float]:
    return x.x, x.y, x.z


def _axes(body: Any) -> tuple[Any, Any, Any]:
    return body.inertia.x, body.inertia.y, body.inertia.z
