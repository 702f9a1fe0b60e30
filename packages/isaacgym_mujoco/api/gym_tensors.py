"""Methods of ``gym`` that simulate, and that acquire, refresh and set tensors."""

import torch
from torch import Tensor

from isaacgym_mujoco.api.params import ENV_SPACE, LOCAL_SPACE
from isaacgym_mujoco.api.simulation import Simulation
from isaacgym_mujoco.api.torch_utils import quat_apply


class TensorMethods:
    """The tensor interface; shapes and frames are those of ``Engine``."""

    def simulate(self, sim: Simulation) -> None:
        """Advance by ``dt``. Efforts and forces act in this call alone; targets stay."""
        sim.engine.step()
        sim.frame += 1

    def fetch_results(self, sim: Simulation, wait: bool) -> bool:
        """Do nothing: results are available after ``simulate``."""
        return True

    def acquire_actor_root_state_tensor(self, sim: Simulation) -> Tensor:
        engine = sim.engine
        return sim.tensor((engine.num_envs * engine.num_actors, 13), engine.read_roots, "roots")

    def acquire_dof_state_tensor(self, sim: Simulation) -> Tensor:
        engine = sim.engine
        return sim.tensor((engine.num_envs * engine.num_dofs, 2), engine.read_dofs, "dofs")

    def acquire_rigid_body_state_tensor(self, sim: Simulation) -> Tensor:
        engine = sim.engine
        return sim.tensor((engine.num_envs * engine.num_bodies, 13), engine.read_bodies, "bodies")

    def acquire_net_contact_force_tensor(self, sim: Simulation) -> Tensor:
        engine = sim.engine
        return sim.tensor((engine.num_envs * engine.num_bodies, 3), engine.read_contact_forces, "contacts")

    def acquire_dof_force_tensor(self, sim: Simulation) -> Tensor:
        engine = sim.engine
        return sim.tensor((engine.num_envs * engine.num_dofs,), engine.read_dof_forces, "dof forces")

    def acquire_force_sensor_tensor(self, sim: Simulation) -> Tensor:
        engine = sim.engine
        count = engine.num_envs * len(sim.layout.sensors)
        return sim.tensor((count, 6), engine.read_force_sensors, "sensors")

    def acquire_jacobian_tensor(self, sim: Simulation, name: str) -> Tensor:
        """Return ``(num_envs, links, 6, dofs)`` of the actor ``name``; with a free base, ``6 + dofs`` columns."""
        actor = _actor(sim, name, "acquire_jacobian_tensor")
        parts = sim.layout.places[actor]
        links, dofs = parts.bodies.stop - parts.bodies.start, parts.dofs.stop - parts.dofs.start
        shape = (sim.engine.num_envs, links - 1, 6, dofs) if parts.fixed else (sim.engine.num_envs, links, 6, 6 + dofs)
        return sim.tensor(shape, lambda out: sim.engine.read_jacobian(actor, out), "jacobian", actor)

    def acquire_mass_matrix_tensor(self, sim: Simulation, name: str) -> Tensor:
        """Return ``(num_envs, dofs, dofs)`` of the actor ``name``."""
        actor = _actor(sim, name, "acquire_mass_matrix_tensor")
        parts = sim.layout.places[actor]
        dofs = parts.dofs.stop - parts.dofs.start
        shape = (sim.engine.num_envs, dofs, dofs)
        return sim.tensor(shape, lambda out: sim.engine.read_mass_matrix(actor, out), "mass matrix", actor)

    def refresh_actor_root_state_tensor(self, sim: Simulation) -> bool:
        sim.engine.read_roots(self.acquire_actor_root_state_tensor(sim))
        return True

    def refresh_dof_state_tensor(self, sim: Simulation) -> bool:
        sim.engine.read_dofs(self.acquire_dof_state_tensor(sim))
        return True

    def refresh_rigid_body_state_tensor(self, sim: Simulation) -> bool:
        sim.engine.read_bodies(self.acquire_rigid_body_state_tensor(sim))
        return True

    def refresh_net_contact_force_tensor(self, sim: Simulation) -> bool:
        sim.engine.read_contact_forces(self.acquire_net_contact_force_tensor(sim))
        return True

    def refresh_dof_force_tensor(self, sim: Simulation) -> bool:
        sim.engine.read_dof_forces(self.acquire_dof_force_tensor(sim))
        return True

    def refresh_force_sensor_tensor(self, sim: Simulation) -> bool:
        sim.engine.read_force_sensors(self.acquire_force_sensor_tensor(sim))
        return True

    def refresh_jacobian_tensors(self, sim: Simulation) -> bool:
        for (_, actor), tensor in sim.acquired("jacobian"):
            sim.engine.read_jacobian(actor, tensor)
        return True

    def refresh_mass_matrix_tensors(self, sim: Simulation) -> bool:
        for (_, actor), tensor in sim.acquired("mass matrix"):
            sim.engine.read_mass_matrix(actor, tensor)
        return True

    def set_actor_root_state_tensor(self, sim: Simulation, states: Tensor) -> bool:
        sim.engine.write_roots_masked(_everyone(sim), states)
        return True

    def set_actor_root_state_tensor_indexed(self, sim: Simulation, states: Tensor, ids: Tensor, count: int) -> bool:
        """Set the roots of the actors ``ids`` (int32, over all environments) from the whole tensor."""
        rows = _rows(sim, ids, count, "set_actor_root_state_tensor_indexed")
        sim.engine.write_roots(rows, states)
        return True

    def set_dof_state_tensor(self, sim: Simulation, states: Tensor) -> bool:
        sim.engine.write_dofs_masked(_everyone(sim), states)
        return True

    def set_dof_state_tensor_indexed(self, sim: Simulation, states: Tensor, ids: Tensor, count: int) -> bool:
        """Set all DOFs of the actors ``ids`` (int32, over all environments) from the whole tensor."""
        sim.engine.write_dofs(_rows(sim, ids, count, "set_dof_state_tensor_indexed"), states)
        return True

    def set_dof_position_target_tensor(self, sim: Simulation, targets: Tensor) -> bool:
        return _command(sim, sim.engine.position_targets, targets)

    def set_dof_position_target_tensor_indexed(self, sim: Simulation, targets: Tensor, ids: Tensor, count: int) -> bool:
        rows = _rows(sim, ids, count, "set_dof_position_target_tensor_indexed")
        return _command(sim, sim.engine.position_targets, targets, rows)

    def set_dof_velocity_target_tensor(self, sim: Simulation, targets: Tensor) -> bool:
        return _command(sim, sim.engine.velocity_targets, targets)

    def set_dof_velocity_target_tensor_indexed(self, sim: Simulation, targets: Tensor, ids: Tensor, count: int) -> bool:
        rows = _rows(sim, ids, count, "set_dof_velocity_target_tensor_indexed")
        return _command(sim, sim.engine.velocity_targets, targets, rows)

    def set_dof_actuation_force_tensor(self, sim: Simulation, efforts: Tensor) -> bool:
        return _command(sim, sim.engine.efforts, efforts)

    def set_dof_actuation_force_tensor_indexed(self, sim: Simulation, efforts: Tensor, ids: Tensor, count: int) -> bool:
        rows = _rows(sim, ids, count, "set_dof_actuation_force_tensor_indexed")
        return _command(sim, sim.engine.efforts, efforts, rows)

    def apply_rigid_body_force_tensors(
        self,
        sim: Simulation,
        forceTensor: Tensor | None = None,
        torqueTensor: Tensor | None = None,
        space: int = ENV_SPACE,
    ) -> bool:
        """Apply forces at the centres of mass, and torques, in the next ``simulate``; tasks use these keywords."""
        engine = sim.engine
        bodies = None
        if space == LOCAL_SPACE:
            bodies = torch.zeros(engine.num_envs * engine.num_bodies, 13, device=engine.device)
            engine.read_bodies(bodies)
        for columns, tensor in ((slice(0, 3), forceTensor), (slice(3, 6), torqueTensor)):
            if tensor is None:
                continue
            vectors = tensor.reshape(-1, 3)
            if bodies is not None:
                vectors = quat_apply(bodies[:, 3:7], vectors)
            engine.forces[..., columns] = vectors.view(engine.num_envs, engine.num_bodies, 3)
        return True

    def apply_rigid_body_force_at_pos_tensors(
        self, sim: Simulation, forceTensor: Tensor, posTensor: Tensor, space: int = ENV_SPACE
    ) -> bool:
        """Apply forces at points of the bodies in the next ``simulate``; with LOCAL_SPACE, in the bodies' frames."""
        engine = sim.engine
        forces, points = forceTensor.reshape(-1, 3), posTensor.reshape(-1, 3)
        if space == LOCAL_SPACE:
            bodies = torch.zeros(engine.num_envs * engine.num_bodies, 13, device=engine.device)
            engine.read_bodies(bodies)
            forces = quat_apply(bodies[:, 3:7], forces)
            points = bodies[:, :3] + quat_apply(bodies[:, 3:7], points)
        centres = torch.zeros(engine.num_envs * engine.num_bodies, 3, device=engine.device)
        engine.read_centres(centres)
        torques = torch.linalg.cross(points - centres, forces)
        engine.forces[...] = torch.cat([forces, torques], dim=1).view(engine.forces.shape)
        return True


def _actor(sim: Simulation, name: str, method: str) -> int:
    names = [actor.name for actor in sim.envs[0].actors]
    if name not in names:
        raise ValueError(f"{method}: there is no actor {name!r}; there are {', '.join(names)}")
    return names.index(name)


def _rows(sim: Simulation, ids: Tensor, count: int, method: str) -> Tensor:
    """Check actor indices, and return the first ``count``."""
    if ids.dtype != torch.int32:
        raise TypeError(f"{method}: actor indices are int32, got {ids.dtype}")
    rows = ids.reshape(-1)[:count]
    last = sim.engine.num_envs * sim.engine.num_actors
    # on CUDA the check would wait for the device; the engine ignores indices out of range
    if rows.device.type != "cpu" or not rows.numel():
        return rows
    numbers = rows.numpy()  # a fraction of the time of torch's operators for few rows
    if numbers.min() < 0 or numbers.max() >= last:
        raise IndexError(f"{method}: actor indices run from 0 to {last - 1}")
    return rows


def _everyone(sim: Simulation) -> Tensor:
    engine = sim.engine
    return torch.ones(engine.num_envs, engine.num_actors, dtype=torch.bool, device=engine.device)


def _command(sim: Simulation, held: Tensor, command: Tensor, rows: Tensor | None = None) -> bool:
    """Store a command for all DOFs, or for those of the actors ``rows``."""
    values = command.detach().reshape(held.shape)
    if rows is None:
        held.copy_(values)
    else:
        sim.engine.write_commands(held, rows, values)
    return True
