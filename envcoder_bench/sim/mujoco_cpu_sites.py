"""Sites, Jacobian and mass matrix of MuJoCo's batch on the CPU, at the present state."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch

from envcoder_bench.sim.mujoco_model import RobotModel


class CpuSites:
    """Quantities computed from positions and velocities, because MuJoCo's fields lag one substep after a step.

    Attributes:
        states, jacobian, mass_matrix: as in ``Simulator``.
    """

    def __init__(self, batch: Batch, robot: RobotModel) -> None:
        sites, dofs, n = robot.sites, len(robot.dof_names), batch.nsim
        self._batch, self._sites = batch, sites
        self.states = torch.zeros(n, len(sites.names), 13)
        rows = 0 if sites.jacobian is None else 1
        self.jacobian = torch.zeros(n, 6 * rows, dofs)
        self.mass_matrix = torch.zeros(n, dofs * rows, dofs)
        if not sites.names:  # bound fields are copied at every step
            return
        self._pos, self._com = batch.bind("site_xpos"), batch.bind("subtree_com")
        self._quat, self._vel = batch.bind("xquat"), batch.bind("cvel")
        if rows:
            self._axes, self._inertia = batch.bind("cdof"), batch.bind("M")
            self._dofs = slice(robot.first_qvel, robot.first_qvel + dofs)
        self.refresh()

    def refresh(self, ids: np.ndarray | None = None) -> None:
        """Update the tensors from the batch's state, for all environments or ``ids``."""
        if not self._sites.names:
            return
        self._batch.forward(ids=ids, stage=mujoco.mjtStage.mjSTAGE_VEL)
        rows = slice(None) if ids is None else ids
        states = self.states.numpy()
        for k, (body, root, quat) in enumerate(zip(self._sites.bodies, self._sites.roots, self._sites.quats)):
            point = self._pos[rows, k]
            turn, shift = self._vel[rows, body, :3], self._vel[rows, body, 3:]
            states[rows, k, 0:3] = point
            states[rows, k, 3:7] = _multiply(self._quat[rows, body], quat)
            states[rows, k, 7:10] = shift + cross(turn, point - self._com[rows, root])
            states[rows, k, 10:13] = turn
        if self._sites.jacobian is not None:
            self._refresh_jacobian(rows, self._sites.jacobian)

    def _refresh_jacobian(self, rows: slice | np.ndarray, site: int) -> None:
        arm = self._pos[rows, site] - self._com[rows, self._sites.roots[site]]
        axes = self._axes[rows, self._dofs]
        jacobian = self.jacobian.numpy()
        for dof in np.flatnonzero(self._sites.moves):
            turn = axes[:, dof, :3]
            jacobian[rows, 0:3, dof] = axes[:, dof, 3:] + cross(turn, arm)
            jacobian[rows, 3:6, dof] = turn
        place = self._sites.inertia
        self.mass_matrix.numpy()[rows] = np.where(place < 0, 0.0, self._inertia[rows][:, place])


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cross products of ``(n, 3)`` vectors, one operation at a time, so that all batch sizes round equally."""
    out = np.empty_like(a)
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[:, i] = a[:, j] * b[:, k] - a[:, k] * b[:, j]
    return out


def _multiply(body: np.ndarray, local: np.ndarray) -> np.ndarray:
    """Return quaternions xyzw of ``(n, 4)`` bodies' wxyz times one rotation ``(4,)`` wxyz in the body."""
    w, x, y, z = body.T
    a, b, c, d = local
    return np.stack(
        [
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
            w * a - x * b - y * c - z * d,
        ],
        axis=1,
    )
