"""An engine of ``mujoco_batches`` whose environments differ as the stress test has drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from envcoder_bench.sim.base import Variation
from envcoder_bench.sim.mujoco_model import LEAST_FRICTION
from mujoco_batches.engine.base import Engine

NO_LIMIT = 1e30  # the largest float32 means that there is no limit
FRICTIONS = {"geom_friction": 1, "pair_friction": 2}  # fields of MuJoCo's model, and their columns of sliding
_DRIVES = (1, 2)  # modes of position and velocity drives


def vary_engine(
    engine: Engine, variation: Variation, base: int, bodies: slice | Tensor, columns: slice, forces: Tensor
) -> None:
    """Let an engine change the properties that are set from now on, and add forces in each step.

    Who sets them keeps the task's values, so that nothing is changed twice.

    Args:
        base: the body of MuJoCo's model whose mass and centre of mass differ.
        bodies, columns: the robot's bodies and DOFs, in an environment.
        forces: ``(num_envs, bodies, 3)``, N, world frame; read in each step.
    """
    friction, mass, com = (x.numpy() for x in (variation.friction, variation.mass, variation.com))
    strength, gains = variation.strength.float(), variation.gains.float()
    weaker, of_efforts = strength.numpy()[:, None], strength.unsqueeze(1).to(engine.device)
    factor = (strength * gains).numpy()[:, None]
    step, set_fields, set_dofs = engine.step, engine.set_model_fields, engine.set_dof_properties

    def varied_step() -> None:
        engine.efforts[:, columns] *= of_efforts
        engine.forces[:, bodies, :3] += forces
        step()

    def set_model_fields(env: int, fields: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        changed = {name: (ids, np.array(rows, dtype=float)) for name, (ids, rows) in fields.items()}
        for name, count in FRICTIONS.items():
            if name in changed and not np.isnan(friction[env]):
                changed[name][1][:, :count] = max(friction[env], LEAST_FRICTION)
        for name in changed.keys() & {"body_mass", "body_inertia", "body_ipos"}:
            ids, rows = changed[name]
            if name == "body_ipos":
                rows[ids == base, 0] += com[env]
            else:
                rows[ids == base] *= mass[env]
        set_fields(env, changed)

    def set_dof_properties(env: int | None, dofs: slice, properties: np.ndarray) -> None:
        if dofs == columns:
            properties, rows = properties.copy(), slice(None) if env is None else env
            is_drive = np.isin(properties["driveMode"], _DRIVES)
            for name in ("stiffness", "damping"):  # without a drive they are the joint's own spring and damper
                properties[name] *= np.where(is_drive, factor[rows], 1.0)
            properties["effort"] *= np.where(properties["effort"] < NO_LIMIT, weaker[rows], 1.0)
        set_dofs(env, dofs, properties)

    engine.step, engine.set_model_fields, engine.set_dof_properties = varied_step, set_model_fields, set_dof_properties
