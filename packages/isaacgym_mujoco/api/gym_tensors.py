"""Methods of ``gym`` that simulate, and that acquire, refresh and set tensors."""

from collections.abc import Callable

import torch
from torch import Tensor

from isaacgym_mujoco.api.simulation import Simulation
from mujoco_batches.engine.base import Engine
from mujoco_batches.scene.params import ENV_SPACE, LOCAL_SPACE
from mujoco_batches.torch_utils import quat_apply


class TensorMethods:
    """The tensor interface; shapes and frames are those of ``Engine``."""

    def simulate(self, sim: Simulation) -> None:
        """Advance by ``dt``. Efforts and forces act only in this call; targets stay."""
        sim.engine.step()
        sim.frame += 1

    def fetch_results(self, sim: Simulation, wait: bool) -> bool:
        """Do nothing: results are available after ``simulate``."""
        return True

    def apply_rigid_body_force_tensors(
        self,
        sim: Simulation,
        forceTensor: Tensor | None = None,
        torqueTensor: Tensor | None = None,
        space: int = ENV_SPACE,
    ) -> bool:
        """Apply forces at the centres of mass, and torques, in the next ``simulate``; tasks use these keywords."""
        engine = sim.engine
        bodies = engine.tensor("bodies") if space == LOCAL_SPACE else None
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
            bodies = engine.tensor("bodies")
            forces = quat_apply(bodies[:, 3:7], forces)
            points = bodies[:, :3] + quat_apply(bodies[:, 3:7], points)
        torques = torch.linalg.cross(points - engine.tensor("centres"), forces)
        engine.forces[...] = torch.cat([forces, torques], dim=1).view(engine.forces.shape)
        return True


def _actor(sim: Simulation, name: str, method: str) -> int:
    names = [actor.name for actor in sim.envs[0].actors]
    if name not in names:
        raise ValueError(f"{method}: unknown actor {name!r}; there are {', '.join(names)}")
    return names.index(name)


def _rows(sim: Simulation, ids: Tensor, count: int, method: str) -> Tensor:
    """Check actor indices, and return the first ``count``."""
    if ids.dtype != torch.int32:
        raise TypeError(f"{method}: actor indices are int32, got {ids.dtype}")
    rows = ids.reshape(-1)[:count]
    last = sim.engine.num_envs * sim.engine.num_actors
    # the check would wait for a CUDA device; the engine ignores indices out of range
    if rows.device.type != "cpu" or not rows.numel():
        return rows
    numbers = rows.numpy()  # a fraction of the time of torch's operators for few rows
    if numbers.min() < 0 or numbers.max() >= last:
        raise IndexError(f"{method}: actor indices run from 0 to {last - 1}")
    return rows


def _add_quantity(name: str, quantity: str) -> None:
    """Add the methods that acquire and refresh a tensor; without DOFs theirs has no axes, and is wrapped to None."""

    def acquire(self: TensorMethods, sim: Simulation) -> Tensor:
        tensor = sim.tensor(quantity)
        return torch.empty(()) if quantity.startswith("dof") and not len(tensor) else tensor

    def refresh(self: TensorMethods, sim: Simulation) -> bool:
        sim.engine.read(quantity, sim.tensor(quantity))
        return True

    setattr(TensorMethods, f"acquire_{name}_tensor", acquire)
    setattr(TensorMethods, f"refresh_{name}_tensor", refresh)


def _add_quantity_of_actors(name: str) -> None:
    """Add the methods that acquire a tensor of the actor ``name``, of ``Engine.tensor``'s shape, and refresh all."""

    def acquire(self: TensorMethods, sim: Simulation, actor: str) -> Tensor:
        return sim.tensor(name, _actor(sim, actor, f"acquire_{name}_tensor"))

    def refresh(self: TensorMethods, sim: Simulation) -> bool:
        for (_, actor), tensor in sim.acquired(name):
            sim.engine.read(name, tensor, actor)
        return True

    setattr(TensorMethods, f"acquire_{name}_tensor", acquire)
    setattr(TensorMethods, f"refresh_{name}_tensors", refresh)


def _add_setters(name: str, write: Callable[[Engine, Tensor | None, Tensor], None]) -> None:
    """Add the methods that set a state or command of all actors, or of the actors ``ids``.

    The values are those of all actors or DOFs; ``ids`` are int32, over all environments.

    Args:
        write: sets values of the actors of a mask, or of all.
    """

    def set_all(self: TensorMethods, sim: Simulation, values: Tensor) -> bool:
        write(sim.engine, None, values)
        return True

    def set_indexed(self: TensorMethods, sim: Simulation, values: Tensor, ids: Tensor, count: int) -> bool:
        mask = sim.engine.actor_mask(_rows(sim, ids, count, f"set_{name}_tensor_indexed"))
        write(sim.engine, mask, values)
        return True

    setattr(TensorMethods, f"set_{name}_tensor", set_all)
    setattr(TensorMethods, f"set_{name}_tensor_indexed", set_indexed)


for _name, _quantity in {
    **{"actor_root_state": "roots", "dof_state": "dofs", "rigid_body_state": "bodies"},
    **{"net_contact_force": "contact_forces", "dof_force": "dof_forces", "force_sensor": "force_sensors"},
}.items():
    _add_quantity(_name, _quantity)
_add_quantity_of_actors("jacobian")
_add_quantity_of_actors("mass_matrix")
_add_setters("actor_root_state", lambda engine, mask, states: engine.write_roots(mask, states))
_add_setters("dof_state", lambda engine, mask, states: engine.write_dofs(mask, states))
_add_setters("dof_position_target", lambda engine, mask, x: engine.write_commands(engine.position_targets, mask, x))
_add_setters("dof_velocity_target", lambda engine, mask, x: engine.write_commands(engine.velocity_targets, mask, x))
_add_setters("dof_actuation_force", lambda engine, mask, x: engine.write_commands(engine.efforts, mask, x))
