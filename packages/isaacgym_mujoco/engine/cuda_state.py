"""The state of MuJoCo Warp's worlds: positions and velocities of roots and DOFs."""

# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from isaacgym_mujoco.engine.layout import Layout
from isaacgym_mujoco.engine.numerics import first_state, position_limits
from isaacgym_mujoco.physics.warp_functions import as_vec4, conjugate, rotate, set_state_row

_FIELDS = ("qpos", "qvel", "qacc_warmstart", "mocap_pos", "mocap_quat")


class WarpState:
    """Readers and writers of the state; each is one kernel.

    It must be created and used within Warp's scope of the device.

    Attributes:
        motion: the state.
        first: the state at the start; only positions are set.
        places: ``(num_actors, 5)`` addresses of the actors' roots, with the columns ``FIXED`` to ``ROOT``.
        position_limits: ``numerics.position_limits``, ``(nq,)``.
        dof_qvel: ``(num_dofs,)`` addresses of the DOFs in qvel.
    """

    def __init__(self, model: mjw.Model, data: mjw.Data, layout: Layout, poses: np.ndarray) -> None:
        self._model, self.num_envs = model, data.nworld
        # the state at the beginning, to which failed worlds return
        qpos, mocap_pos, mocap_quat = first_state(layout, poses)
        self.first, self.motion = Motion(), Motion()
        self.first.qpos = wp.array(qpos, dtype=wp.float32)
        self.first.mocap_pos = wp.array(mocap_pos, dtype=wp.vec3, shape=mocap_pos.shape[:2])
        self.first.mocap_quat = wp.array(mocap_quat, dtype=wp.quat, shape=mocap_quat.shape[:2])
        self._fields = {name: getattr(data, name) for name in _FIELDS}
        for name, array in self._fields.items():
            setattr(self.motion, name, array)
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            wp.copy(self._fields[name], getattr(self.first, name))
        # where each actor's numbers are
        places = [[int(p.fixed), p.qpos, p.qvel, p.mocap, p.root] for p in layout.places]
        self.places = wp.array(np.array(places, dtype=np.int32), dtype=wp.int32)
        addresses = (layout.dof_qpos, layout.dof_qvel, layout.dof_actors)
        self.position_limits = wp.array(position_limits(layout.model), dtype=wp.float32)
        self.dof_qpos, self.dof_qvel, self._dof_actor = (wp.array(x, dtype=wp.int32) for x in addresses)

    def live(self) -> dict[str, Tensor]:
        """Return the state's tensors, as MuJoCo names them."""
        return {name: wp.to_torch(array) for name, array in self._fields.items()}

    def actor_mask(self, rows: Tensor) -> Tensor:
        """Return ``(num_envs, num_actors)`` bool, True for the actors ``rows`` ``(n,)`` int32."""
        shape = (self.num_envs, len(self.places))
        mask = torch.zeros(shape, dtype=torch.bool, device=rows.device)
        if len(rows):
            outputs = [wp.from_torch(mask.view(-1))]
            wp.launch(mark_actors, dim=len(rows), inputs=[wp.from_torch(rows)], outputs=outputs)
        return mask

    def write_roots(self, mask: Tensor, states: Tensor) -> None:
        """Set roots where ``mask`` is True, from ``(num_envs * num_actors, 13)``."""
        wp.launch(
            write_roots,
            dim=(self.num_envs, len(self.places)),
            inputs=[self._mask(mask), _rows(states, 13), self.places, self._model.body_ipos],
            outputs=[self.motion],
        )

    def write_dofs(self, mask: Tensor, states: Tensor) -> None:
        """Set the DOFs of the actors where ``mask`` is True, from ``(num_envs * num_dofs, 2)``."""
        if len(self.dof_qvel):
            wp.launch(
                write_dofs,
                dim=self.num_envs,
                inputs=[self._mask(mask), _rows(states, 2), self._dof_actor, self.dof_qpos, self.dof_qvel],
                outputs=[self.motion],
            )

    def read_roots(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_actors, 13)``."""
        wp.launch(
            read_roots,
            dim=(self.num_envs, len(self.places)),
            inputs=[self.places, self._model.body_ipos, self.motion],
            outputs=[_rows(out, 13)],
        )

    def read_dofs(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_dofs, 2)``."""
        if len(self.dof_qvel):
            wp.launch(
                read_dofs,
                dim=(self.num_envs, len(self.dof_qvel)),
                inputs=[self.dof_qpos, self.dof_qvel, self.motion],
                outputs=[_rows(out, 2)],
            )

    def _mask(self, mask: Tensor) -> wp.array:
        return wp.from_torch(mask.reshape(self.num_envs, len(self.places)))


def _rows(values: Tensor, width: int) -> wp.array:
    return wp.from_torch(values.detach().view(-1, width))


# columns of an actor's row in ``places``
FIXED = wp.constant(0)
QPOS = wp.constant(1)
QVEL = wp.constant(2)
MOCAP = wp.constant(3)
ROOT = wp.constant(4)


@wp.struct
class Motion:
    """The state that a step advances, of all worlds; fixed roots are mocap bodies."""

    qpos: wp.array2d[wp.float32]
    qvel: wp.array2d[wp.float32]
    qacc_warmstart: wp.array2d[wp.float32]
    mocap_pos: wp.array2d[wp.vec3]
    mocap_quat: wp.array2d[wp.quat]


@wp.kernel(enable_backward=False)
def mark_actors(rows: wp.array[wp.int32], mask: wp.array[wp.bool]):
    """Set the mask for the actors ``rows``; rows out of range are ignored."""
    row = rows[wp.tid()]
    if row >= 0 and row < mask.shape[0]:
        mask[row] = True


@wp.kernel(enable_backward=False)
def read_roots(
    places: wp.array2d[wp.int32], body_ipos: wp.array2d[wp.vec3], motion: Motion, out: wp.array2d[wp.float32]
):
    """Fill a root's 13 numbers, one thread per world and actor."""
    env, actor = wp.tid()
    position = wp.vec3()
    quat = wp.vec4()
    linear = wp.vec3()
    angular = wp.vec3()
    if places[actor, FIXED] != 0:
        at = places[actor, MOCAP]
        position = motion.mocap_pos[env, at]
        quat = as_vec4(motion.mocap_quat[env, at])
    else:
        at = places[actor, QPOS]
        first = places[actor, QVEL]
        for i in range(3):
            position[i] = motion.qpos[env, at + i]
            linear[i] = motion.qvel[env, first + i]
            angular[i] = motion.qvel[env, first + 3 + i]
        for i in range(4):
            quat[i] = motion.qpos[env, at + 3 + i]
        # MuJoCo's angular velocity is in the body's frame, its linear one of the origin; Isaac Gym's is of the centre
        # of mass
        angular = rotate(quat, angular)
        com = rotate(quat, body_ipos[env % body_ipos.shape[0], places[actor, ROOT]])
        linear = linear + wp.cross(angular, com)
    set_state_row(env * places.shape[0] + actor, 0, position, quat, linear, angular, out)


@wp.kernel(enable_backward=False)
def write_roots(
    mask: wp.array2d[wp.bool],
    states: wp.array2d[wp.float32],
    places: wp.array2d[wp.int32],
    body_ipos: wp.array2d[wp.vec3],
    motion: Motion,
):
    """The reverse of ``read_roots`` for masked actors; clears the warm start of their worlds."""
    env, actor = wp.tid()
    if not mask[env, actor]:
        return
    row = env * places.shape[0] + actor
    quat = wp.vec4(states[row, 6], states[row, 3], states[row, 4], states[row, 5])
    norm = wp.length(quat)
    quat = quat / norm if norm > 1.0e-9 else wp.vec4(1.0, 0.0, 0.0, 0.0)
    if places[actor, FIXED] != 0:
        at = places[actor, MOCAP]
        motion.mocap_pos[env, at] = wp.vec3(states[row, 0], states[row, 1], states[row, 2])
        motion.mocap_quat[env, at] = wp.quat(quat[0], quat[1], quat[2], quat[3])  # wxyz, as MuJoCo Warp stores them
    else:
        at = places[actor, QPOS]
        first = places[actor, QVEL]
        linear = wp.vec3(states[row, 7], states[row, 8], states[row, 9])
        angular = wp.vec3(states[row, 10], states[row, 11], states[row, 12])
        com = rotate(quat, body_ipos[env % body_ipos.shape[0], places[actor, ROOT]])
        linear = linear - wp.cross(angular, com)
        angular = rotate(conjugate(quat), angular)
        for i in range(3):
            motion.qpos[env, at + i] = states[row, i]
            motion.qvel[env, first + i] = linear[i]
            motion.qvel[env, first + 3 + i] = angular[i]
        for i in range(4):
            motion.qpos[env, at + 3 + i] = quat[i]
    for i in range(motion.qacc_warmstart.shape[1]):
        motion.qacc_warmstart[env, i] = 0.0


@wp.kernel(enable_backward=False)
def read_dofs(dof_qpos: wp.array[wp.int32], dof_qvel: wp.array[wp.int32], motion: Motion, out: wp.array2d[wp.float32]):
    """Fill a DOF's position and velocity, one thread per world and DOF."""
    env, dof = wp.tid()
    row = env * dof_qpos.shape[0] + dof
    out[row, 0] = motion.qpos[env, dof_qpos[dof]]
    out[row, 1] = motion.qvel[env, dof_qvel[dof]]


@wp.kernel(enable_backward=False)
def write_dofs(
    mask: wp.array2d[wp.bool],
    states: wp.array2d[wp.float32],
    dof_actor: wp.array[wp.int32],
    dof_qpos: wp.array[wp.int32],
    dof_qvel: wp.array[wp.int32],
    motion: Motion,
):
    """Set the DOFs of masked actors, one thread per world; clears the warm start of their worlds."""
    env = wp.tid()
    written = wp.bool(False)
    for actor in range(mask.shape[1]):
        written = written or mask[env, actor]
    if not written:
        return
    for dof in range(dof_qpos.shape[0]):
        if mask[env, dof_actor[dof]]:
            row = env * dof_qpos.shape[0] + dof
            motion.qpos[env, dof_qpos[dof]] = states[row, 0]
            motion.qvel[env, dof_qvel[dof]] = states[row, 1]
    for i in range(motion.qacc_warmstart.shape[1]):
        motion.qacc_warmstart[env, i] = 0.0
