"""``omni.physics.tensors.ArticulationView``: a robot in all environments."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isaaclab_mujoco.assets.robots import breadth_first
from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.stage.prims import of_env
from isaaclab_mujoco.tensors.bodies import apply_forces, shapes_of
from isaaclab_mujoco.tensors.masses import Masses
from isaaclab_mujoco.tensors.materials import note
from isaaclab_mujoco.tensors.physics import Physics
from mujoco_batches.engine.numerics import consecutive

# what a view calls a column of the DOF properties
_COLUMNS = {
    "stiffnesses": "stiffness",
    "dampings": "damping",
    "armatures": "armature",
    "max_forces": "effort",
    "max_velocities": "velocity",
}


class ArticulationView:
    """One articulation of each environment; links and joints are breadth first, quaternions xyzw, poses of the world.

    A drive and the actuation force of its joint add up; the drive alone is limited by ``max_forces``, as in PhysX.
    """

    _backend = "mujoco"
    max_fixed_tendons = max_spatial_tendons = 0

    def __init__(self, physics: Physics, actor: int) -> None:
        self.physics, self.actor, self.count = physics, actor, physics.num_envs
        place, asset, self.path = physics.layout.places[actor], physics.actors[actor].asset, physics.spawned[actor].path
        bodies, self._dofs = breadth_first(asset)
        self.rows = [place.bodies.start + body for body in bodies]
        self.columns = torch.tensor([place.dofs.start + dof for dof in self._dofs], device=physics.device).long()
        self._slots = consecutive(self.columns.cpu().numpy())  # the same columns
        self._all_columns = self.columns.tolist() == list(range(physics.engine.num_dofs))
        self._index = torch.tensor(self.rows, device=physics.device)
        self._envs = torch.arange(self.count)
        links, joints = [asset.body_names[i] for i in bodies], [asset.dof_names[i] for i in self._dofs]
        self.shared_metatype = SimpleNamespace(
            link_names=links,
            dof_names=joints,
            joint_names=joints,
            link_count=len(links),
            dof_count=len(joints),
            joint_count=len(joints),
            fixed_base=place.fixed,
        )
        self.max_links, self.max_dofs = len(links), len(joints)
        self.prim_paths = [of_env(self.path, env) for env in range(self.count)]
        self.link_paths = [[f"{path}/{name}" for name in links] for path in self.prim_paths]
        self.dof_paths = [[f"{path}/{name}" for name in joints] for path in self.prim_paths]
        self.masses, self._shapes = Masses(physics, self.rows), shapes_of(physics, actor, self.rows)
        self.max_shapes = len(self._shapes)
        self.friction = torch.zeros(self.count, len(joints), 3)
        self.friction[..., 0] = self.friction[..., 1] = self._column("friction")
        if self.friction.any():
            self._set_friction(self.friction, torch.arange(self.count))

    # states

    def get_root_transforms(self) -> Tensor:
        return self.physics.engine.root_poses(self.actor)

    def get_root_velocities(self) -> Tensor:
        return self.physics.engine.root_velocities(self.actor)

    def set_root_transforms(self, data: Tensor, indices: Tensor) -> None:
        self.physics.write_roots(self.actor, slice(0, 7), data[indices.long()], indices.long())

    def set_root_velocities(self, data: Tensor, indices: Tensor) -> None:
        self.physics.write_roots(self.actor, slice(7, 13), data[indices.long()], indices.long())

    def get_link_transforms(self) -> Tensor:
        return self.physics.bodies()[:, self._index, :7]

    def get_link_velocities(self) -> Tensor:
        return self.physics.bodies()[:, self._index, 7:]

    def get_link_accelerations(self) -> Tensor:
        return self.physics.read_accelerations()[:, self._index]

    def get_dof_positions(self) -> Tensor:
        return self._in_view(self.physics.engine.dof_states(0))

    def get_dof_velocities(self) -> Tensor:
        return self._in_view(self.physics.engine.dof_states(1))

    def _in_view(self, values: Tensor) -> Tensor:
        """Return the columns of the view's joints, contiguous, of a new tensor of all DOFs."""
        return values.contiguous() if self._all_columns else values[:, self.columns]

    def set_dof_positions(self, data: Tensor, indices: Tensor) -> None:
        self.physics.write_dofs(self.actor, self.columns, 0, data[indices.long()], indices.long())

    def set_dof_velocities(self, data: Tensor, indices: Tensor) -> None:
        self.physics.write_dofs(self.actor, self.columns, 1, data[indices.long()], indices.long())

    def get_link_incoming_joint_force(self) -> Tensor:
        """Return the parent's force and torque on each link at its joint in the link's frame, ``(count, links, 6)``."""
        return self.physics.engine.joint_wrenches()[:, self._index]

    def get_jacobians(self) -> Tensor:
        return self._in_order(self.physics.engine.tensor("jacobian", self.actor), 1, 3)

    def get_generalized_mass_matrices(self) -> Tensor:
        if not self.shared_metatype.fixed_base:
            raise NotSupported(
                "get_generalized_mass_matrices: of a robot with a free root; isaaclab_mujoco has the joints' alone"
            )
        order = torch.tensor(self._dofs, device=self.physics.device).long()
        return self.physics.engine.tensor("mass_matrix", self.actor)[:, order[:, None], order]

    def _in_order(self, jacobian: Tensor, links: int, dofs: int) -> Tensor:
        """Return a Jacobian with links and joints breadth first; the root of a fixed base has no row."""
        fixed = self.shared_metatype.fixed_base
        first = self.physics.layout.places[self.actor].bodies.start
        base, device = 0 if fixed else 6, self.physics.device
        rows = torch.tensor([row - first - int(fixed) for row in self.rows[int(fixed) :]], device=device)
        columns = torch.tensor([*range(base), *(base + dof for dof in self._dofs)], device=device)
        return jacobian.index_select(links, rows).index_select(dofs, columns)

    # commands

    def set_dof_position_targets(self, data: Tensor, indices: Tensor) -> None:
        self._command(self.physics.engine.position_targets, data, indices)

    def set_dof_velocity_targets(self, data: Tensor, indices: Tensor) -> None:
        self._command(self.physics.engine.velocity_targets, data, indices)

    def set_dof_actuation_forces(self, data: Tensor, indices: Tensor) -> None:
        self._command(self.physics.joint_forces, data, indices)

    def _command(self, held: Tensor, data: Tensor, indices: Tensor) -> None:
        envs = indices.long()
        if type(envs) is Tensor and envs.device.type == "cpu" and torch.equal(envs, self._envs):
            held[:, self._slots] = data
        else:
            held[envs[:, None], self.columns] = data[envs]

    def apply_forces_and_torques_at_position(
        self,
        force_data: Tensor | None = None,
        torque_data: Tensor | None = None,
        position_data: Tensor | None = None,
        indices: Tensor | None = None,
        is_global: bool = False,
    ) -> None:
        apply_forces(self.physics, self._index, force_data, torque_data, position_data, is_global)

    # properties of joints

    def _column(self, name: str) -> Tensor:
        values = self.physics.properties[self.actor][name][:, self._dofs]
        return torch.from_numpy(values.astype(np.float32, order="C"))

    def _set_column(self, name: str, data: Tensor, indices: Tensor) -> None:
        envs = indices.long().cpu().numpy()
        self.physics.properties[self.actor][name][envs[:, None], self._dofs] = data.cpu().numpy()[envs]
        self.physics.changed.add(self.actor)

    def get_dof_limits(self) -> Tensor:
        return torch.stack([self._column("lower"), self._column("upper")], dim=-1)

    def set_dof_limits(self, data: Tensor, indices: Tensor) -> None:
        self._set_column("lower", data[..., 0], indices)
        self._set_column("upper", data[..., 1], indices)

    def get_dof_friction_properties(self) -> Tensor:
        """Return static and dynamic friction, N m, and viscous friction of the joints, ``(count, dofs, 3)``."""
        return self.friction.clone()

    def set_dof_friction_properties(self, data: Tensor, indices: Tensor) -> None:
        self._set_friction(data, indices)

    def get_dof_friction_coefficients(self) -> Tensor:
        return self.friction[..., 0].clone()

    def set_dof_friction_coefficients(self, data: Tensor, indices: Tensor) -> None:
        self._set_friction(torch.stack([data, data, torch.zeros_like(data)], dim=-1), indices)

    def _set_friction(self, data: Tensor, indices: Tensor) -> None:
        envs, columns = indices.long().cpu(), self.physics.layout.dof_qvel[self.columns.cpu()]
        self.friction[envs] = data.cpu()[envs]
        if (self.friction[..., 0] != self.friction[..., 1]).any():
            note("dynamic friction of joints has no effect: MuJoCo has one, and the static one is taken")
        if self.friction[..., 2].any():
            note("viscous friction of joints has no effect; give their actuators a damping")
        for env in envs.tolist():
            self.physics.set_fields(env, {"dof_frictionloss": (columns, self.friction[env, :, 0].numpy())})

    # properties of bodies

    def get_masses(self) -> Tensor:
        return self.masses.get("mass")

    def set_masses(self, data: Tensor, indices: Tensor) -> None:
        self.masses.set("mass", data, indices)

    def get_inertias(self) -> Tensor:
        return self.masses.get("inertia")

    def set_inertias(self, data: Tensor, indices: Tensor) -> None:
        self.masses.set("inertia", data, indices)

    def get_coms(self) -> Tensor:
        return self.masses.get("com")

    def set_coms(self, data: Tensor, indices: Tensor) -> None:
        self.masses.set("com", data, indices)

    def get_material_properties(self) -> Tensor:
        return self.physics.materials.get(self._shapes)

    def set_material_properties(self, data: Tensor, indices: Tensor) -> None:
        envs = indices.long().cpu()
        self.physics.materials.set(envs.numpy(), self._shapes, data.cpu()[envs].numpy())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        column = _COLUMNS.get(name[8:])
        if column is not None and name.startswith("get_dof_"):
            return lambda: self._column(column)
        if column is not None and name.startswith("set_dof_"):
            return lambda data, indices: self._set_column(column, data, indices)
        if "tendon" in name:  # there are none
            return lambda *_: torch.zeros(self.count, 0)
        raise NotSupported(f"ArticulationView.{name}: isaaclab_mujoco does not have this")
