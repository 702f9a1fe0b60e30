"""The engine on MuJoCo Warp: each environment is a world, and a ``simulate`` is one CUDA graph.

Setters and refreshes are one kernel each. Nothing waits for the device, except ``blow_ups``, ``get_state`` and
``set_state``. The engine also runs on Warp's CPU device, one world after the other, for tests.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
import logging
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from isaacgym_mujoco.compat.warp_start import start_warp
from isaacgym_mujoco.engine import cuda_step_kernels as kernels
from isaacgym_mujoco.engine.base import Engine
from isaacgym_mujoco.engine.cuda_outputs import WarpOutputs
from isaacgym_mujoco.engine.cuda_properties import WarpProperties
from isaacgym_mujoco.engine.cuda_state import WarpState
from isaacgym_mujoco.engine.layout import Layout
from isaacgym_mujoco.engine.numerics import massless_roots, room
from isaacgym_mujoco.physics.live_tensors import restore, save
from isaacgym_mujoco.physics.warp_device import DROPPING, captured, put_model
from isaacgym_mujoco.physics.warp_loading import load_kernels
from isaacgym_mujoco.physics.warp_streams import TorchStream

logger = logging.getLogger("isaacgym_mujoco")

# a batch waits for its slowest world; in float32 the solver converges within a few iterations, or never
_ITERATIONS, _LINE_SEARCH_ITERATIONS = 10, 20
_DENSE_DOFS = 60  # above this, use mujoco_warp's sparse solver
# quantities that take time are computed from their first read on, together with others
_WANTED = {
    **{"bodies": "bodies", "centres": "bodies", "contact_forces": "contacts"},
    **{"jacobian": "mass", "mass_matrix": "mass"},
}
_CHECK_EVERY = 64  # steps between checks of the count of dropped contacts


class WarpEngine(Engine):
    """``num_envs`` worlds of a layout.

    The first engine on a machine compiles Warp's kernels, which takes minutes; Warp keeps them in its cache folder
    (``~/.cache/warp``, or ``WARP_CACHE_PATH``).

    Attributes:
        overflows: ``(1,)`` number of steps of environments that dropped contacts.
    """

    def __init__(self, layout: Layout, poses: np.ndarray, device: str = "cpu") -> None:
        """Start all environments with the actors' ``poses``, ``(num_envs, actors, 7)``, quaternions wxyz."""
        super().__init__(layout, poses, torch.device(device))
        self.overflows = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._blow_ups = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._dof_forces = torch.zeros_like(self.efforts)
        self._steps, self._warned, self._graph = 0, False, None
        seen = torch.zeros(1, dtype=torch.int32)
        self._seen_overflows = seen.pin_memory() if self.device.type == "cuda" else seen
        start_warp()
        self._on_torch_stream = TorchStream(self.device)
        with wp.ScopedDevice(self._on_torch_stream.device):
            self._build(poses)
            load_kernels(self._advance)
            wp.synchronize_device()  # both torch's and Warp's stream have filled arrays

    def _build(self, poses: np.ndarray) -> None:
        layout = self._layout
        for name in massless_roots(layout):
            logger.warning(
                "the free root %r has no mass: MuJoCo Warp's single precision cannot simulate it, unless its joints "
                "have an armature. Give it an <inertial>, or use the CPU",
                name,
            )
        # single precision needs more iterations; sparse matrices where dense ones of many joints are slow
        model = copy.copy(layout.model)
        model.opt.iterations, model.opt.ls_iterations = _ITERATIONS, _LINE_SEARCH_ITERATIONS
        if model.nv > _DENSE_DOFS:
            model.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
        self._model = put_model(model)
        contacts, rows = room(model)
        self._data = data = mjw.make_data(model, nworld=self.num_envs, nconmax=contacts, njmax=max(1, rows))
        self._properties = WarpProperties(model, self._model, data, layout)
        self._outputs = WarpOutputs(self._model, data, layout, self.device)

        self._state = WarpState(self._model, data, layout, poses)
        # limits and damping of roots and links
        self._root_limits = wp.array(np.minimum(layout.max_velocity, 1e30), dtype=wp.float32)
        self._root_damping = wp.array(layout.root_damping, dtype=wp.float32)
        self._damped = bool(np.any(layout.root_damping))
        self._link_damping = wp.array(layout.link_damping, dtype=wp.float32)
        self._loads_of_links = wp.clone(data.xfrc_applied) if layout.link_damping.any() else None
        self._bodies = wp.array(layout.bodies, dtype=wp.int32)
        # torch's tensors as arrays of Warp, without a copy
        self._drives = kernels.Drives()
        self._drives.position_targets = wp.from_torch(self.position_targets)
        self._drives.velocity_targets = wp.from_torch(self.velocity_targets)
        self._loads = [wp.from_torch(x) for x in (self.efforts, self.forces.view(self.num_envs, -1))]
        self._counters = [wp.from_torch(x) for x in (self.blown, self._blow_ups, self.overflows, self._dof_forces)]

    @property
    def blow_ups(self) -> int:
        """Number of resets after failed physics so far; waits for the device."""
        return int(self._blow_ups)

    def set_gravity(self, gravity: np.ndarray) -> None:
        with self._on_torch_stream():
            self._properties.set_gravity(gravity)

    def step(self) -> None:
        with self._on_torch_stream():
            self._flush()
            if self._graph is None:
                self._advance()  # also loads the kernels, which is not allowed in a capture
            else:
                wp.capture_launch(self._graph)
        if self._graph is None:
            self._capture()
        self._check_overflows()

    def _flush(self) -> None:
        """Apply changes of properties; a graph that was captured with replaced arrays is dropped."""
        if self._properties.flush():
            self._graph = None

    def _capture(self) -> None:
        """Capture a step without running it."""
        device = self._on_torch_stream.device
        if device.is_cuda:
            wp.synchronize_device(device)
            with wp.ScopedDevice(device):
                self._graph: Any = captured(device, self._advance)

    def _advance(self) -> None:
        """Launch one ``simulate``: load commands, run the substeps, compute outputs."""
        data, properties, state = self._data, self._properties, self._state
        failed, blow_ups, overflows, dof_forces = self._counters
        # commands and loads
        for name in ("mode", "stiffness", "damping"):
            setattr(self._drives, name, getattr(properties, name))
        wp.launch(
            kernels.load_commands,
            dim=self.num_envs,
            inputs=[self._drives, self._bodies, state.position_limits, state.first],
            outputs=[*self._loads, state.motion, data.ctrl, data.xfrc_applied, failed],
        )
        if self._loads_of_links is not None:
            wp.copy(self._loads_of_links, data.xfrc_applied)
        for substep in range(self._layout.substeps):
            self._substep(last=substep == self._layout.substeps - 1)
        # resets of failed worlds, then what readers get
        wp.launch(
            kernels.finish,
            dim=self.num_envs,
            inputs=[state.dof_qvel, data.qacc, data.qfrc_actuator, DROPPING, state.position_limits, state.first],
            outputs=[
                *(state.motion, failed, blow_ups, data.overflow, overflows, dof_forces),
                self._outputs.contacts_array,
            ],
        )
        self._outputs.refresh(failed)

    def _substep(self, last: bool) -> None:
        """Launch a physics step between what drives and roots need and the limits of velocities."""
        model, data, properties, state = self._model, self._data, self._properties, self._state
        # damp firm drives of light joints, which would overshoot in this step
        if properties.steadied:
            wp.launch(
                kernels.steady,
                dim=(self.num_envs, self.num_dofs),
                inputs=[
                    *(self._drives, properties.effort, properties.max_velocity, model.dof_invweight0),
                    *(state.dof_qpos, state.dof_qvel, model.opt.timestep, state.motion),
                ],
                outputs=[model.dof_damping],
            )
        # damping of free roots
        if self._damped:
            wp.launch(
                kernels.damp_roots,
                dim=(self.num_envs, self.num_actors),
                inputs=[state.places, self._root_damping, model.body_ipos, model.opt.timestep],
                outputs=[data.qpos, data.qvel],
            )
        self._step()
        # contacts and sensors are of the last physics step, before velocities are limited
        if last:
            self._outputs.collect()
        wp.launch(
            kernels.limit_velocities,
            dim=self.num_envs,
            inputs=[
                *(state.dof_qpos, state.dof_qvel, properties.max_velocity, state.places, self._root_limits),
                model.opt.timestep,
            ],
            outputs=[data.qpos, data.qvel],
        )

    def _step(self) -> None:
        """Launch a physics step, with the links' damping as forces."""
        model, data = self._model, self._data
        if self._loads_of_links is None:
            mjw.step(model, data)
            return
        mjw.step1(model, data)
        wp.launch(
            kernels.damp_links,
            dim=(self.num_envs, self.num_bodies),
            inputs=[
                *(self._bodies, self._link_damping, model.opt.timestep, model.opt.gravity, model.body_gravcomp),
                *(model.body_mass, model.body_inertia, model.body_rootid, data.ximat, data.xipos, data.subtree_com),
                *(data.cvel, self._loads_of_links),
            ],
            outputs=[data.xfrc_applied],
        )
        mjw.step2(model, data)

    def _check_overflows(self) -> None:
        """Log dropped contacts once, from a count that was copied some steps ago, so that nothing waits."""
        self._steps += 1
        if self._warned or self._steps % _CHECK_EVERY:
            return
        if int(self._seen_overflows):
            self._warned = True
            logger.warning(
                "an environment had more contacts than there is room for (%d, %d constraint rows), and some were "
                "dropped",
                self._data.naconmax // self.num_envs,
                self._data.njmax,
            )
        self._seen_overflows.copy_(self.overflows, non_blocking=True)

    def actor_mask(self, rows: Tensor) -> Tensor:
        with self._on_torch_stream():
            return self._state.actor_mask(rows.contiguous())

    def write_roots_masked(self, mask: Tensor, states: Tensor) -> None:
        with self._on_torch_stream():
            self._flush()  # of centres of mass, whose velocities are set
            self._state.write_roots(mask, states)

    def write_dofs_masked(self, mask: Tensor, states: Tensor) -> None:
        with self._on_torch_stream():
            self._state.write_dofs(mask, states)

    def _want(self, what: str) -> None:
        """Compute an output from now on, and once now; it must be called on torch's stream."""
        if self._outputs.want(what):
            self._graph = None
            if what == "contacts":
                self._outputs.collect_contacts()
            else:
                self._flush()
                self._outputs.refresh(self._counters[0])

    def read(self, quantity: str, out: Tensor, actor: int = -1) -> None:
        outputs = self._outputs
        with self._on_torch_stream():
            if quantity in _WANTED:
                self._want(_WANTED[quantity])
            match quantity:
                case "roots":
                    self._state.read_roots(out)
                case "dofs":
                    self._state.read_dofs(out)
                case "bodies":
                    outputs.read_bodies(out)
                case "jacobian":
                    outputs.read_jacobian(actor, out)
                case "mass_matrix":
                    outputs.read_mass_matrix(actor, out)
                case "centres":
                    out.copy_(outputs.centres().reshape(out.shape))
                case _:
                    held = {"contact_forces": outputs.contacts, "dof_forces": self._dof_forces}
                    out.copy_(held.get(quantity, outputs.sensors).view(out.shape))

    def _live(self) -> dict[str, Tensor]:
        """Return the tensors on which a step and the readers depend."""
        names = ("position_targets", "velocity_targets", "efforts", "forces", "blown", "overflows")
        buffers = {name: getattr(self, name) for name in names}
        return {
            **buffers,
            **self._state.live(),
            "blow_ups": self._blow_ups,
            "dof_forces": self._dof_forces,
            **self._outputs.derived(),
        }

    def get_state(self) -> dict[str, Tensor]:
        return save(self._live())

    def set_state(self, state: dict[str, Tensor]) -> None:
        with self._on_torch_stream():
            for what in ("bodies", "mass"):
                if {"bodies": "xpos", "mass": "M"}[what] in state:
                    self._want(what)
            saved = {name: x for name, x in self._live().items() if name in state or name not in self._outputs.late()}
            restore(saved, state)
            if len(saved) < len(self._live()):  # some outputs were first read after the state was saved
                self._flush()
                self._outputs.refresh(self._counters[0])
                restore(saved, state)  # the refresh has overwritten the others
