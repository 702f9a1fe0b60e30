"""``omni.physics.tensors.RigidBodyView``: bodies of any actors by their paths, and rigid objects."""

import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.stage.prims import of_env
from isaaclab_mujoco.tensors.masses import Masses
from isaaclab_mujoco.tensors.physics import Physics


class RigidBodyView:
    """Bodies whose paths match, by environment and then by body. Quaternions are xyzw, poses of the world."""

    _backend = "mujoco"

    def __init__(self, physics: Physics, pattern: str | list[str]) -> None:
        self.physics, patterns = physics, [pattern] if isinstance(pattern, str) else list(pattern)
        self.rows = [row for one in patterns for row in physics.rows(one)]
        # a path of one environment, as of randomizations that count shapes, is a view of that one
        one = [re.match(r"/World/envs/env_(\d+)/", p) for p in patterns]
        envs = [int(found[1]) for found in one if found]
        self.envs = range(physics.num_envs) if not envs else range(envs[0], envs[0] + 1)
        self.prim_paths = [of_env(physics.paths[row], env) for env in self.envs for row in self.rows]
        self.count = len(self.prim_paths)
        if not self.count:
            raise NotSupported(f"{pattern}: no body has such a path; there are {', '.join(physics.paths)}")
        self.masses = Masses(physics, self.rows)
        self._index = torch.tensor(self.rows, device=physics.device)
        self._actors = [k for k, place in enumerate(physics.layout.places) if set(self.rows) & set(_bodies(place))]

    @property
    def max_shapes(self) -> int:
        layout = self.physics.layout
        return int(layout.model.body_geomnum[layout.bodies[self.rows]].max(initial=0))

    def _of_all(self, values: Tensor) -> Tensor:
        """Return rows of the view of a tensor ``(num_envs, num_bodies, ...)``."""
        return values[self.envs.start : self.envs.stop, self._index].reshape(self.count, *values.shape[2:])

    def get_transforms(self) -> Tensor:
        return self._of_all(self.physics.bodies()[..., :7])

    def get_velocities(self) -> Tensor:
        return self._of_all(self.physics.bodies()[..., 7:])

    def get_accelerations(self) -> Tensor:
        return self._of_all(self.physics.read_accelerations())

    def set_transforms(self, data: Tensor, indices: Tensor) -> None:
        self._write(slice(0, 7), data, indices)

    def set_velocities(self, data: Tensor, indices: Tensor) -> None:
        self._write(slice(7, 13), data, indices)

    def _write(self, part: slice, data: Tensor, indices: Tensor) -> None:
        if len(self.rows) != 1 or len(_bodies(self.physics.layout.places[self._actors[0]])) != 1:
            raise NotSupported(f"{self.prim_paths[0]}: only views of one object, not of links, can be written")
        envs = indices.long()
        self.physics.write_roots(self._actors[0], part, data[envs], envs)

    def apply_forces_and_torques_at_position(
        self,
        force_data: Tensor | None = None,
        torque_data: Tensor | None = None,
        position_data: Tensor | None = None,
        indices: Tensor | None = None,
        is_global: bool = False,
    ) -> None:
        apply_forces(self.physics, self._index, force_data, torque_data, position_data, is_global)

    def get_masses(self) -> Tensor:
        return self.masses.get("mass").reshape(self.count, 1)

    def set_masses(self, data: Tensor, indices: Tensor) -> None:
        self.masses.set("mass", data.view(-1, len(self.rows)), indices)

    def get_inertias(self) -> Tensor:
        return self.masses.get("inertia").reshape(self.count, 9)

    def set_inertias(self, data: Tensor, indices: Tensor) -> None:
        self.masses.set("inertia", data.view(-1, len(self.rows), 9), indices)

    def get_coms(self) -> Tensor:
        return self.masses.get("com").reshape(self.count, 7)

    def set_coms(self, data: Tensor, indices: Tensor) -> None:
        self.masses.set("com", data.view(-1, len(self.rows), 7), indices)

    def _shapes(self) -> np.ndarray:
        return shapes_of(self.physics, self._actors[0], self.rows)

    def get_material_properties(self) -> Tensor:
        return self.physics.materials.get(self._shapes())

    def set_material_properties(self, data: Tensor, indices: Tensor) -> None:
        envs = indices.long().cpu()
        self.physics.materials.set(envs.numpy(), self._shapes(), data.cpu()[envs].numpy())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotSupported(f"{type(self).__name__}.{name}: isaaclab_mujoco does not have this")


def _bodies(place: Any) -> range:
    return range(place.bodies.start, place.bodies.stop)


def shapes_of(physics: Physics, actor: int, rows: Any) -> np.ndarray:
    """Return the shapes of an actor's bodies among all shapes of an environment, in the order of the bodies."""
    layout, first = physics.layout, physics.layout.pairs.first_shape[actor]
    geoms = layout.geoms(actor)
    order = [np.flatnonzero(layout.model.geom_bodyid[geoms] == body) for body in layout.bodies[rows]]
    return first + np.concatenate([*order, np.zeros(0, dtype=int)]).astype(int)


def apply_forces(
    physics: Physics,
    rows: Tensor,
    forces: Tensor | None,
    torques: Tensor | None,
    positions: Tensor | None,
    is_global: bool,
) -> None:
    """Set forces and torques of the next step; they act at the centres of mass unless there are positions.

    Forces, torques and positions are in the frame of the world or of the bodies.
    """
    bodies = physics.bodies()[:, rows]
    shape = (physics.num_envs, len(rows), 3)
    force = bodies.new_zeros(shape) if forces is None else forces.view(shape)
    torque = bodies.new_zeros(shape) if torques is None else torques.view(shape)
    if not is_global:
        force, torque = rotate(bodies[..., 3:7], force), rotate(bodies[..., 3:7], torque)
    if positions is not None:
        point = positions.view(shape)
        point = point if is_global else bodies[..., :3] + rotate(bodies[..., 3:7], point)
        centres = physics.engine.tensor("centres").view(physics.num_envs, -1, 3)[:, rows]
        torque = torque + torch.linalg.cross(point - centres, force)
    physics.engine.forces[:, rows] = torch.cat([force, torque], dim=-1)


def rotate(quat: Tensor, vector: Tensor) -> Tensor:
    """Rotate vectors by quaternions xyzw."""
    axis, w = quat[..., :3], quat[..., 3:]
    twice = 2.0 * torch.linalg.cross(axis, vector)
    return vector + w * twice + torch.linalg.cross(axis, twice)
