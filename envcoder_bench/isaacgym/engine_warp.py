"""The tensor interface's engine on MuJoCo Warp: each environment a world, a whole ``simulate`` one CUDA graph.

Setters and refreshes are one kernel each; nothing here waits for the device, except ``blow_ups``, ``get_state`` and
``set_state``. It also runs on Warp's CPU device, one world after the other: for tests and small scenes.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import copy
import logging
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from envcoder_bench.isaacgym import warp_state_kernels as state_kernels
from envcoder_bench.isaacgym import warp_step_kernels as step_kernels
from envcoder_bench.isaacgym.engine import Engine
from envcoder_bench.isaacgym.layout import Layout
from envcoder_bench.isaacgym.numerics import first_state, room
from envcoder_bench.isaacgym.warp_outputs import WarpOutputs
from envcoder_bench.isaacgym.warp_properties import WarpProperties
from envcoder_bench.isaacgym.warp_state_kernels import Motion
from envcoder_bench.isaacgym.warp_step_kernels import Drives
from envcoder_bench.sim.live_tensors import restore, save
from envcoder_bench.sim.mujoco_warp import DROPPING, put_model
from envcoder_bench.sim.torch_stream import TorchStream

logger = logging.getLogger("envcoder_bench.isaacgym")

# a batch waits for its slowest world: the solver of float32 has converged in a few iterations, or does not
_ITERATIONS, _LINE_SEARCH_ITERATIONS = 10, 20
_DENSE_DOFS = 60  # mujoco_warp's solver is sparse beyond
_STATE = ("qpos", "qvel", "qacc_warmstart", "mocap_pos", "mocap_quat")
_LOOK_EVERY = 64  # steps between looks at the count of dropped contacts


class WarpEngine(Engine):
    """``num_envs`` worlds of a layout.

    The first one on a machine compiles Warp's kernels, some minutes; Warp keeps them in its cache folder
    (``~/.cache/warp``, or ``WARP_CACHE_PATH``).

    Attributes:
        overflows: ``(1,)`` how often an environment had no room for all of its contacts in a step.
    """

    def __init__(self, layout: Layout, poses: np.ndarray, device: str = "cpu") -> None:
        """Start all environments with the actors' ``poses``, ``(num_envs, actors, 7)``, quaternions wxyz."""
        self._layout, self.device = layout, torch.device(device)
        self.num_envs, self.num_actors = poses.shape[:2]
        self.num_bodies, self.num_dofs = len(layout.bodies), len(layout.dof_qpos)
        self.position_targets = self._zeros(self.num_dofs)
        self.velocity_targets = self._zeros(self.num_dofs)
        self.efforts = self._zeros(self.num_dofs)
        self.forces = self._zeros(self.num_bodies, 6)
        self.blown = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self.overflows = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._blow_ups = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._dof_forces = self._zeros(self.num_dofs)
        self._steps, self._warned, self._graph = 0, False, None
        seen = torch.zeros(1, dtype=torch.int32)
        self._seen_overflows = seen.pin_memory() if self.device.type == "cuda" else seen
        wp.init()
        self._on_torch_stream = TorchStream(self.device)
        with wp.ScopedDevice(self._on_torch_stream.device):
            self._build(poses)
            wp.synchronize_device()  # the only wait: torch's and Warp's streams have filled the arrays

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.num_envs, *shape, device=self.device)

    def _build(self, poses: np.ndarray) -> None:
        layout = self._layout
        model = copy.copy(layout.model)
        model.opt.iterations, model.opt.ls_iterations = _ITERATIONS, _LINE_SEARCH_ITERATIONS
        if model.nv > _DENSE_DOFS:
            model.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
        self._model = put_model(model)
        self._model.opt.run_qacc_smooth = False  # the solver starts from the last step's acceleration instead
        contacts, rows = room(model)
        self._data = data = mjw.make_data(model, nworld=self.num_envs, nconmax=contacts, njmax=max(1, rows))
        self._properties = WarpProperties(model, self._model, data, layout)
        self._outputs = WarpOutputs(self._model, data, layout, self.device)

        qpos, mocap_pos, mocap_quat = first_state(layout, poses)
        self._first, self._motion = Motion(), Motion()
        self._first.qpos = wp.array(qpos, dtype=wp.float32)
        self._first.mocap_pos = wp.array(mocap_pos, dtype=wp.vec3, shape=mocap_pos.shape[:2])
        self._first.mocap_quat = wp.array(mocap_quat, dtype=wp.quat, shape=mocap_quat.shape[:2])
        self._state = {name: getattr(data, name) for name in _STATE}
        for name, array in self._state.items():
            setattr(self._motion, name, array)
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            wp.copy(self._state[name], getattr(self._first, name))
        places = [[int(p.fixed), p.qpos, p.qvel, p.mocap, p.root] for p in layout.places]
        self._places = wp.array(np.array(places, dtype=np.int32), dtype=wp.int32)
        self._root_limits = wp.array(np.minimum(layout.max_velocity, 1e30), dtype=wp.float32)
        self.dof_actors = torch.from_numpy(layout.dof_actors).to(self.device)
        self._dof_actor = wp.array(layout.dof_actors, dtype=wp.int32)
        addresses = (layout.dof_qpos, layout.dof_qvel, layout.bodies)
        self._dof_qpos, self._dof_qvel, self._bodies = (wp.array(x, dtype=wp.int32) for x in addresses)
        self._drives = Drives()
        self._drives.position_targets = wp.from_torch(self.position_targets)
        self._drives.velocity_targets = wp.from_torch(self.velocity_targets)
        self._loads = [wp.from_torch(x) for x in (self.efforts, self.forces.view(self.num_envs, -1))]
        self._counters = [wp.from_torch(x) for x in (self.blown, self._blow_ups, self.overflows, self._dof_forces)]

    @property
    def blow_ups(self) -> int:
        """Number of environments so far that were put back because the physics failed; waits for the device."""
        return int(self._blow_ups)

    def set_dof_properties(self, env: int | None, dofs: slice, properties: np.ndarray) -> None:
        self._properties.set_dofs(env, dofs, properties)

    def set_body_mass(self, env: int, body: int, mass: float, com: np.ndarray, inertia: np.ndarray) -> None:
        self._properties.set_body(env, int(self._layout.bodies[body]), mass, com, inertia)

    def set_friction(self, env: int, actor: int, friction: np.ndarray) -> None:
        self._properties.set_friction(env, self._layout.geoms(actor), friction)

    def set_model_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        self._properties.set_fields(env, fields)

    def set_gravity(self, gravity: np.ndarray) -> None:
        with self._on_torch_stream():
            self._properties.set_gravity(gravity)

    def step(self) -> None:
        with self._on_torch_stream():
            if self._properties.flush():
                self._graph = None
            if self._graph is None:
                self._advance()  # also loads the kernels, which a capture must not
            else:
                wp.capture_launch(self._graph)
        if self._graph is None:
            self._capture()
        self._look_for_overflows()

    def _capture(self) -> None:
        """Capture a step; nothing runs. Without its memory pool Warp cannot allocate in a capture."""
        device = self._on_torch_stream.device
        if not device.is_cuda or not wp.is_mempool_enabled(device):
            return
        wp.synchronize_device(device)
        with wp.ScopedDevice(device), wp.ScopedCapture(device) as capture:
            self._advance()
        self._graph: Any = capture.graph

    def _advance(self) -> None:
        """Launch one ``simulate``: commands in, substeps, outputs."""
        model, data, properties = self._model, self._data, self._properties
        failed, blow_ups, overflows, dof_forces = self._counters
        for name in ("mode", "stiffness", "damping"):
            setattr(self._drives, name, getattr(properties, name))
        wp.launch(
            step_kernels.load_commands,
            dim=self.num_envs,
            inputs=[self._drives, self._bodies, self._first],
            outputs=[*self._loads, self._motion, data.ctrl, data.xfrc_applied, failed],
        )
        for substep in range(self._layout.substeps):
            mjw.step(model, data)
            if substep == self._layout.substeps - 1:
                self._outputs.collect()
            wp.launch(
                step_kernels.limit_velocities,
                dim=self.num_envs,
                inputs=[self._dof_qvel, properties.max_velocity, self._places, self._root_limits],
                outputs=[data.qvel],
            )
        wp.launch(
            step_kernels.finish,
            dim=self.num_envs,
            inputs=[self._dof_qvel, data.qacc, data.qfrc_actuator, DROPPING, self._first],
            outputs=[
                *(self._motion, failed, blow_ups, data.overflow, overflows, dof_forces),
                self._outputs.contacts_array,
            ],
        )
        self._outputs.refresh(failed)

    def _look_for_overflows(self) -> None:
        """Warn once of dropped contacts, from a count that was copied some steps ago: nothing waits."""
        self._steps += 1
        if self._warned or self._steps % _LOOK_EVERY:
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

    def write_roots_masked(self, mask: Tensor, states: Tensor) -> None:
        with self._on_torch_stream():
            wp.launch(
                state_kernels.write_roots,
                dim=(self.num_envs, self.num_actors),
                inputs=[self._mask(mask), _rows(states, 13), self._places, self._model.body_ipos],
                outputs=[self._motion],
            )

    def write_dofs_masked(self, mask: Tensor, states: Tensor) -> None:
        if self.num_dofs == 0:
            return
        with self._on_torch_stream():
            wp.launch(
                state_kernels.write_dofs,
                dim=self.num_envs,
                inputs=[self._mask(mask), _rows(states, 2), self._dof_actor, self._dof_qpos, self._dof_qvel],
                outputs=[self._motion],
            )

    def _mask(self, mask: Tensor) -> wp.array:
        return wp.from_torch(mask.reshape(self.num_envs, self.num_actors))

    def read_roots(self, out: Tensor) -> None:
        with self._on_torch_stream():
            wp.launch(
                state_kernels.read_roots,
                dim=(self.num_envs, self.num_actors),
                inputs=[self._places, self._model.body_ipos, self._motion],
                outputs=[_rows(out, 13)],
            )

    def read_dofs(self, out: Tensor) -> None:
        if self.num_dofs == 0:
            return
        with self._on_torch_stream():
            wp.launch(
                state_kernels.read_dofs,
                dim=(self.num_envs, self.num_dofs),
                inputs=[self._dof_qpos, self._dof_qvel, self._motion],
                outputs=[_rows(out, 2)],
            )

    def _want(self, what: str) -> None:
        """Compute an output from now on, and now for the first time; to be used on torch's stream."""
        if self._outputs.want(what):
            self._graph = None
            if what == "contacts":
                self._outputs.collect_contacts()
            else:
                self._properties.flush()
                self._outputs.refresh(self._counters[0])

    def read_bodies(self, out: Tensor) -> None:
        with self._on_torch_stream():
            self._want("bodies")
            self._outputs.read_bodies(out)

    def read_contact_forces(self, out: Tensor) -> None:
        with self._on_torch_stream():
            self._want("contacts")
        out.copy_(self._outputs.contacts.view(out.shape))

    def read_dof_forces(self, out: Tensor) -> None:
        out.copy_(self._dof_forces.view(out.shape))

    def read_force_sensors(self, out: Tensor) -> None:
        out.copy_(self._outputs.sensors.view(out.shape))

    def read_jacobian(self, actor: int, out: Tensor) -> None:
        with self._on_torch_stream():
            self._want("mass")
            self._outputs.read_jacobian(actor, out)

    def read_mass_matrix(self, actor: int, out: Tensor) -> None:
        with self._on_torch_stream():
            self._want("mass")
            self._outputs.read_mass_matrix(actor, out)

    def _live(self) -> dict[str, Tensor]:
        """What a step and the readers depend on."""
        names = ("position_targets", "velocity_targets", "efforts", "forces", "blown", "overflows")
        own = {name: getattr(self, name) for name in names}
        own.update({name: wp.to_torch(array) for name, array in self._state.items()})
        return {**own, "blow_ups": self._blow_ups, "dof_forces": self._dof_forces, **self._outputs.derived()}

    def get_state(self) -> dict[str, Tensor]:
        return save(self._live())

    def set_state(self, state: dict[str, Tensor]) -> None:
        with self._on_torch_stream():
            for what in ("bodies", "mass"):
                if {"bodies": "xpos", "mass": "M"}[what] in state:
                    self._want(what)
            known = {name: x for name, x in self._live().items() if name in state or name not in self._outputs.late()}
            restore(known, state)
            if len(known) < len(self._live()):  # outputs that were first read after the state was saved
                self._properties.flush()
                self._outputs.refresh(self._counters[0])
                restore(known, state)  # the others may be older than the state


def _rows(values: Tensor, width: int) -> wp.array:
    return wp.from_torch(values.detach().view(-1, width))
