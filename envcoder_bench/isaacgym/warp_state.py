"""The state of MuJoCo Warp's worlds: positions and velocities of roots and DOFs."""

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from envcoder_bench.isaacgym import warp_state_kernels as kernels
from envcoder_bench.isaacgym.layout import Layout
from envcoder_bench.isaacgym.numerics import first_state, position_limits

_FIELDS = ("qpos", "qvel", "qacc_warmstart", "mocap_pos", "mocap_quat")


class WarpState:
    """Readers and writers of the state; each is one kernel.

    It must be created and used within Warp's scope of the device.

    Attributes:
        motion: the state.
        first: the state at the start; only positions are set.
        places: ``(num_actors, 5)`` addresses of the actors' roots, with the columns of ``warp_state_kernels``.
        position_limits: ``numerics.position_limits``, ``(nq,)``.
        dof_qvel: ``(num_dofs,)`` addresses of the DOFs in qvel.
    """

    def __init__(self, model: mjw.Model, data: mjw.Data, layout: Layout, poses: np.ndarray) -> None:
        self._model, self.num_envs = model, data.nworld
        qpos, mocap_pos, mocap_quat = first_state(layout, poses)
        self.first, self.motion = kernels.Motion(), kernels.Motion()
        self.first.qpos = wp.array(qpos, dtype=wp.float32)
        self.first.mocap_pos = wp.array(mocap_pos, dtype=wp.vec3, shape=mocap_pos.shape[:2])
        self.first.mocap_quat = wp.array(mocap_quat, dtype=wp.quat, shape=mocap_quat.shape[:2])
        self._fields = {name: getattr(data, name) for name in _FIELDS}
        for name, array in self._fields.items():
            setattr(self.motion, name, array)
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            wp.copy(self._fields[name], getattr(self.first, name))
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
            wp.launch(kernels.mark_actors, dim=len(rows), inputs=[wp.from_torch(rows)], outputs=outputs)
        return mask

    def write_roots(self, mask: Tensor, states: Tensor) -> None:
        """Set roots where ``mask`` is True, from ``(num_envs * num_actors, 13)``."""
        wp.launch(
            kernels.write_roots,
            dim=(self.num_envs, len(self.places)),
            inputs=[self._mask(mask), _rows(states, 13), self.places, self._model.body_ipos],
            outputs=[self.motion],
        )

    def write_dofs(self, mask: Tensor, states: Tensor) -> None:
        """Set the DOFs of the actors where ``mask`` is True, from ``(num_envs * num_dofs, 2)``."""
        if len(self.dof_qvel):
            wp.launch(
                kernels.write_dofs,
                dim=self.num_envs,
                inputs=[self._mask(mask), _rows(states, 2), self._dof_actor, self.dof_qpos, self.dof_qvel],
                outputs=[self.motion],
            )

    def read_roots(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_actors, 13)``."""
        wp.launch(
            kernels.read_roots,
            dim=(self.num_envs, len(self.places)),
            inputs=[self.places, self._model.body_ipos, self.motion],
            outputs=[_rows(out, 13)],
        )

    def read_dofs(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_dofs, 2)``."""
        if len(self.dof_qvel):
            wp.launch(
                kernels.read_dofs,
                dim=(self.num_envs, len(self.dof_qvel)),
                inputs=[self.dof_qpos, self.dof_qvel, self.motion],
                outputs=[_rows(out, 2)],
            )

    def _mask(self, mask: Tensor) -> wp.array:
        return wp.from_torch(mask.reshape(self.num_envs, len(self.places)))


def _rows(values: Tensor, width: int) -> wp.array:
    return wp.from_torch(values.detach().view(-1, width))
