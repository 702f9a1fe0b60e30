"""Sites, Jacobian and mass matrix of MuJoCo Warp's worlds, at the present state."""

# Warp compiles the kernels; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false

import mujoco_warp as mjw
import torch
import warp as wp

from envcoder_bench.sim.mujoco_model import RobotModel
from isaacgym_mujoco.physics.warp_functions import as_vec4, multiply, set_state_row, velocity_at


class WarpSites:
    """Quantities computed from positions and velocities, because MuJoCo Warp's fields lag one substep after a step.

    It must be created within Warp's scope of the device.

    Attributes:
        states, jacobian, mass_matrix: as in ``Simulator``.
    """

    def __init__(self, model: mjw.Model, data: mjw.Data, robot: RobotModel, device: torch.device) -> None:
        sites, dofs, n = robot.sites, len(robot.dof_names), data.nworld
        self._model, self._data, self._robot = model, data, robot
        rows = 0 if sites.jacobian is None else 1
        self.states = torch.zeros(n, len(sites.names), 13, device=device)
        self.jacobian = torch.zeros(n, 6 * rows, dofs, device=device)
        self.mass_matrix = torch.zeros(n, dofs * rows, dofs, device=device)
        self._everywhere = wp.ones(n, dtype=wp.bool)
        if not sites.names:
            return
        self._places = [wp.array(x, dtype=wp.int32) for x in (sites.bodies, sites.roots)]
        self._quats = wp.array(sites.quats, dtype=wp.quat)  # four numbers wxyz, as MuJoCo Warp stores them
        self._states = wp.from_torch(self.states.view(-1, 13))
        if rows:
            self._moves = wp.array(sites.moves, dtype=wp.bool)
            self._inertia = wp.array(sites.inertia, dtype=wp.int32)
            self._jacobian, self._mass_matrix = wp.from_torch(self.jacobian), wp.from_torch(self.mass_matrix)

    def refresh(self, mask: wp.array | None = None) -> None:
        """Update the tensors from the worlds' state, for all worlds or where ``mask`` is True."""
        model, data, sites = self._model, self._data, self._robot.sites
        if not sites.names:
            return
        chosen = self._everywhere if mask is None else mask
        mjw.kinematics(model, data)
        mjw.com_pos(model, data)
        mjw.com_vel(model, data)
        wp.launch(
            _read_sites,
            dim=(data.nworld, len(sites.names)),
            inputs=[chosen, *self._places, self._quats, data.site_xpos, data.xquat, data.subtree_com, data.cvel],
            outputs=[self._states],
        )
        if sites.jacobian is None:
            return
        mjw.crb(model, data)
        wp.launch(
            _read_jacobian,
            dim=(data.nworld, len(self._robot.dof_names)),
            inputs=[
                *(chosen, sites.jacobian, int(sites.roots[sites.jacobian]), self._robot.first_qvel),
                *(self._moves, self._inertia, data.site_xpos, data.subtree_com, data.cdof, data.M),
            ],
            outputs=[self._jacobian, self._mass_matrix],
        )


@wp.kernel(enable_backward=False)
def _read_sites(
    mask: wp.array[wp.bool],
    bodies: wp.array[wp.int32],
    roots: wp.array[wp.int32],
    quats: wp.array[wp.quat],
    site_xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    subtree_com: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    states: wp.array2d[wp.float32],
):
    """Compute a site's pose and velocity, one thread per world and site."""
    env, site = wp.tid()
    if not mask[env]:
        return
    body = bodies[site]
    point = site_xpos[env, site]
    quat = multiply(as_vec4(xquat[env, body]), as_vec4(quats[site]))
    linear = velocity_at(cvel[env, body], point - subtree_com[env, roots[site]])
    row = env * bodies.shape[0] + site
    set_state_row(row, 0, point, quat, linear, wp.spatial_top(cvel[env, body]), states)


@wp.kernel(enable_backward=False)
def _read_jacobian(
    mask: wp.array[wp.bool],
    site: int,
    root: int,
    first_qvel: int,
    moves: wp.array[wp.bool],
    inertia: wp.array2d[wp.int32],
    site_xpos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cdof: wp.array2d[wp.spatial_vector],
    packed: wp.array2d[wp.float32],
    jacobian: wp.array3d[wp.float32],
    mass_matrix: wp.array3d[wp.float32],
):
    """Compute a joint's column of the Jacobian and row of the mass matrix, one thread per world and joint."""
    env, dof = wp.tid()
    if not mask[env]:
        return
    if moves[dof]:
        axis = cdof[env, first_qvel + dof]
        linear = velocity_at(axis, site_xpos[env, site] - subtree_com[env, root])
        for i in range(3):
            jacobian[env, i, dof] = linear[i]
            jacobian[env, 3 + i, dof] = wp.spatial_top(axis)[i]
    for other in range(inertia.shape[1]):
        entry = inertia[dof, other]
        if entry >= 0:
            mass_matrix[env, dof, other] = packed[env, entry]
