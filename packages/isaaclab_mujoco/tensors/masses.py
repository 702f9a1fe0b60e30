"""Masses, centres of mass and inertias of bodies, by environment."""

import numpy as np
import torch
from torch import Tensor

from isaaclab_mujoco.tensors.physics import Physics
from mujoco_batches.engine.numerics import principal_axes
from mujoco_batches.physics.rotations import rotation_matrices


class Masses:
    """Properties of some bodies of an environment, in all environments.

    A centre of mass is a pose in the body's frame whose axes are the body's; the inertia is about it, along these axes.
    """

    def __init__(self, physics: Physics, rows: list[int]) -> None:
        self._physics, self._ids = physics, physics.layout.bodies[rows]
        model, n, ids = physics.layout.model, physics.num_envs, self._ids
        com = np.concatenate([model.body_ipos[ids], np.tile([0.0, 0.0, 0.0, 1.0], (len(ids), 1))], axis=1)
        turn = rotation_matrices(model.body_iquat[ids])
        inertia = np.einsum("bij,bj,bkj->bik", turn, model.body_inertia[ids], turn).reshape(-1, 9)
        parts = {"mass": model.body_mass[ids], "com": com, "inertia": inertia}
        self.values = {k: torch.tensor(v, dtype=torch.float32).repeat(n, *[1] * np.ndim(v)) for k, v in parts.items()}

    def get(self, name: str) -> Tensor:
        """Return ``(num_envs, bodies, ...)``."""
        return self.values[name].clone()

    def set(self, name: str, data: Tensor, indices: Tensor) -> None:
        """Set the values of the environments ``indices`` from a tensor of all environments."""
        envs = indices.long().cpu()
        held = self.values[name]
        held[envs] = data.cpu()[envs].view(len(envs), *held.shape[1:])
        for env in envs.tolist():
            self._physics.set_fields(env, self._fields(name, held[env].numpy().astype(float)))
        self._physics.stale = True

    def _fields(self, name: str, values: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        if name == "mass":
            return {"body_mass": (self._ids, values)}
        if name == "com":
            return {"body_ipos": (self._ids, values[:, :3])}
        axes = [principal_axes(one.reshape(3, 3)) for one in values]
        moments, quats = (np.array(part) for part in zip(*axes))
        return {"body_inertia": (self._ids, moments), "body_iquat": (self._ids, quats)}
