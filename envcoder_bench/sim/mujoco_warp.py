"""MuJoCo Warp: each environment is a world on one GPU, in float32; a control step is one CUDA graph.

The state is in torch tensors, which Warp's kernels read and write in place. All work is on torch's current stream, so
that neither library waits for the other, and no value is read back to the host. For tests it also runs on Warp's CPU
device, one world after the other.

With ``use_deterministic_algorithms`` a world's bits depend only on its own state; see
``compat/mujoco_warp_order.py``.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from envcoder_bench.compat.mujoco_warp_memory import drop_untouched
from envcoder_bench.core.torch_settings import is_deterministic
from envcoder_bench.sim.base import Variation
from envcoder_bench.sim.mujoco_model import RobotModel, outermost_geom
from envcoder_bench.sim.mujoco_tensors import MujocoTensors
from envcoder_bench.sim.mujoco_warp_kernels import (
    STATE_TENSORS,
    Worlds,
    add_sensor_forces,
    add_sensor_forces_in_order,
    load_command,
    publish,
    read_jacobian,
    read_sites,
    to_body_frame,
    write,
)
from mujoco_batches.compat.warp_memory import allocated_by, capacity
from mujoco_batches.compat.warp_start import start_warp
from mujoco_batches.physics.live_tensors import PoseSource, restore, save
from mujoco_batches.physics.warp_contacts import ContactForces
from mujoco_batches.physics.warp_device import DROPPING, captured, put_model, vary_model
from mujoco_batches.physics.warp_loading import Loading, is_in_background
from mujoco_batches.physics.warp_streams import TorchStream


class MujocoWarp(MujocoTensors):
    """``num_envs`` worlds of one MuJoCo Warp model.

    The first one on a machine compiles Warp's kernels, a minute or so; Warp keeps them in its cache folder
    (``~/.cache/warp``, or ``WARP_CACHE_PATH``) for later processes.
    """

    def __init__(self, robot: RobotModel, num_envs: int, device: str) -> None:
        super().__init__(robot, num_envs, device)
        self._ordered = is_deterministic()
        self._graph: Any | None = None
        self._site_graph: Any | None = None

        self.engine_warnings: dict[str, int] = {}  # MuJoCo Warp has no warnings
        self._written = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self._command = torch.zeros(num_envs, self.num_dofs, device=self.device)

        start_warp()
        self._on_torch_stream = TorchStream(self.device)
        self._wp_device = self._on_torch_stream.device
        self._loading: Loading | None = None
        with wp.ScopedDevice(self._wp_device):
            self._build()
            self._loading = self._load()
        if not is_in_background():
            self._wait()

    def _make_worlds(self) -> None:
        """Create the model and its worlds on the device."""
        robot, model = self._robot, self._robot.mj_model
        self._model = put_model(model)
        # All worlds share one pool of contacts. It has a slot for every pair of geoms that can touch and every contact
        # that the robot can have, so that it never overflows. Each world has its own constraint rows.
        contacts = max(robot.max_pairs, robot.max_contacts)
        self._data = mjw.make_data(
            model,
            nworld=self.num_envs,
            nconmax=contacts,
            nccdmax=min(robot.max_convex, contacts),
            njmax=max(1, robot.max_constraints),  # mujoco_warp does not move with 0
        )
        drop_untouched(self._model, self._data)

    def _build(self) -> None:
        """Create the worlds, and wrap the shared arrays for torch."""
        self._make_worlds()
        robot, model = self._robot, self._robot.mj_model
        # position drives
        drives = (self.num_envs, model.nu)  # each world has gains of its own, for its drive mode
        self._model.actuator_gainprm = wp.zeros(drives, dtype=self._model.actuator_gainprm.dtype)
        self._model.actuator_biasprm = wp.zeros(drives, dtype=self._model.actuator_biasprm.dtype)
        self._gain = wp.to_torch(self._model.actuator_gainprm)
        self._bias = wp.to_torch(self._model.actuator_biasprm)
        self._stiffness, self._damping = (torch.from_numpy(x).to(self.device) for x in (robot.stiffness, robot.damping))
        self._actuated = wp.array(robot.actuated, dtype=wp.int32)
        # the state for Warp's kernels: MuJoCo's arrays, and torch's tensors with a row for each world
        self._worlds = worlds = Worlds()
        worlds.first_qpos, worlds.first_qvel = robot.first_qpos, robot.first_qvel
        worlds.default_qpos = wp.array(model.qpos0[None], dtype=wp.float32)
        for name in ("qpos", "qvel", "qacc_warmstart"):
            setattr(worlds, name, getattr(self._data, name))
        tensors = {name: getattr(self, name) for name in STATE_TENSORS}
        self._state_arrays = {name: wp.from_torch(x.view(self.num_envs, x[0].numel())) for name, x in tensors.items()}
        for name, array in self._state_arrays.items():
            setattr(worlds, name, array)
        # contact forces of bodies and sensors
        if self._ordered:
            from envcoder_bench.compat.mujoco_warp_order import RowOrder

            self._order = RowOrder(self._model, self._data)
        row_of_body = np.arange(-1, model.nbody - 1)  # the first body is the world
        self._contacts = ContactForces(
            self._model, self._data, row_of_body, self._state_arrays["contact_forces"], self._ordered
        )
        sensor_of_body = np.full(model.nbody, -1)
        sensor_of_body[robot.sensor_bodies + 1] = np.arange(len(robot.sensor_bodies))
        self._sensor_of_body = wp.array(sensor_of_body, dtype=wp.int32)
        self._sensor_bodies = wp.array(robot.sensor_bodies + 1, dtype=wp.int32)
        self._sites = WarpSites(self._model, self._data, robot, self.device)
        self.site_states = self._sites.states
        self.jacobian, self.mass_matrix = self._sites.jacobian, self._sites.mass_matrix
        self._written_mask = wp.from_torch(self._written)
        self._flags = [wp.from_torch(x) for x in (self._refused, self.unstable)]
        self._applied = wp.to_torch(self._data.xfrc_applied)[:, 1:, :3]  # forces, not torques
        self._saved: dict[str, Tensor] = {
            "qpos": wp.to_torch(self._data.qpos),
            "qvel": wp.to_torch(self._data.qvel),
            "qacc_warmstart": wp.to_torch(self._data.qacc_warmstart),
            **self._live(),
        }

    def _load(self) -> Loading:
        """Begin to compile and load all kernels."""
        wp.synchronize_device(self._wp_device)  # torch's and Warp's streams have filled the arrays
        initial, none = save(self._saved), torch.zeros_like(self._effort)
        loading = Loading(lambda: (self.write(none), self._advance()))
        wp.synchronize_device(self._wp_device)  # a step also fills arrays without a kernel
        restore(self._saved, initial)
        weakref.finalize(self, loading.stop)
        return loading

    def _wait(self) -> None:
        """Wait until all kernels are loaded; all methods that use the engine call it first."""
        if self._loading is not None:
            self._loading.wait()
            self._loading = None
            with wp.ScopedDevice(self._wp_device):
                self._warm_up()

    def _warm_up(self) -> None:
        """Take a step, capture the control step on CUDA, and restore the default state."""
        wp.synchronize_device(self._wp_device)
        initial = save(self._saved)
        none = torch.zeros_like(self._effort)
        self.set_drive_mode(none)
        self.write(none)
        wp.synchronize_device(self._wp_device)
        # a graph's physics steps allocate one after another, in the same memory
        self._workspace = allocated_by(self._advance) // self._robot.substeps
        self._graph = captured(self._wp_device, self._advance)  # without a graph, a step launches each kernel
        if self.site_names:
            self._site_graph = captured(self._wp_device, lambda: self._sites.refresh(self._written_mask))
        wp.synchronize_device(self._wp_device)
        self.set_state(initial)

    def pose_source(self) -> PoseSource:
        """Return the live poses of all environments, for pictures."""
        return PoseSource(self._robot.mj_model, lambda: self._saved["qpos"].cpu().numpy())

    @property
    def bytes_per_env(self) -> int:
        self._wait()
        arrays = [self._model.actuator_gainprm, self._model.actuator_biasprm, *self._state_arrays.values()]
        allocated = capacity(self._data, self._data.efc, self._data.contact) + self._contacts.capacity
        allocated += sum(x.capacity for x in arrays)
        allocated += self._order.capacity if self._ordered else 0
        return (allocated + self._workspace) // self.num_envs

    def set_drive_mode(self, effort: Tensor) -> None:
        self._wait()
        self._effort.copy_(effort)
        mode, strength = self._effort.unsqueeze(1), self._strength.unsqueeze(1)
        gains = strength * self._gains.unsqueeze(1)
        # force = gain * ctrl + bias_pos * q + bias_vel * dq, clamped to the model's effort limits
        self._gain[:, :, 0] = torch.where(mode, strength, gains * self._stiffness)
        self._bias[:, :, 1] = torch.where(mode, 0.0, -gains * self._stiffness)
        self._bias[:, :, 2] = torch.where(mode, 0.0, -gains * self._damping)

    def vary(self, variation: Variation) -> None:
        self._wait()
        vary_model(self._model, self._robot.mj_model, self._robot.varied(variation))
        self._strength.copy_(variation.strength)
        self._gains.copy_(variation.gains)
        with wp.ScopedDevice(self._wp_device):
            self._warm_up()

    def track(self, bodies: Sequence[int]) -> Callable[[], Tensor]:
        self._wait()
        geoms = torch.tensor([outermost_geom(self._robot.mj_model, body + 1) for body in bodies], device=self.device)
        positions = wp.to_torch(self._data.geom_xpos)
        return lambda: positions[:, geoms]

    def apply_forces(self, forces: Tensor) -> None:
        self._wait()
        self._applied.copy_(forces.detach())

    def step(self, command: Tensor) -> None:
        self._wait()
        self._command.copy_(command.detach())
        with self._on_torch_stream():
            if self._graph is None:
                self._advance()
            else:
                wp.capture_launch(self._graph)

    def write(
        self,
        mask: Tensor,
        root_states: Tensor | None = None,
        dof_pos: Tensor | None = None,
        dof_vel: Tensor | None = None,
        object_states: Tensor | None = None,
    ) -> None:
        self._wait()
        # None keeps a state. The kernel reads all arguments; flags say which of them it writes
        arguments = (root_states if self._robot.floating else None, dof_pos, dof_vel, object_states)
        present = (self.root_states, self.dof_pos, self.dof_vel, self.object_states)
        new = [mine if x is None else x.detach().to(mine).contiguous() for x, mine in zip(arguments, present)]
        flat = [x.view(self.num_envs, x[0].numel()) for x in new]
        self._written.copy_(mask)
        with self._on_torch_stream():
            wp.launch(
                write,
                dim=self.num_envs,
                inputs=[
                    self._written_mask,
                    *(x is not None for x in arguments),
                    *(wp.from_torch(x) for x in flat),
                ],
                outputs=[self._worlds, *self._flags],
            )
            # sites follow from the new state
            if self._site_graph is None:
                self._sites.refresh(self._written_mask)
            else:
                wp.capture_launch(self._site_graph)

    def get_state(self) -> dict[str, Tensor]:
        self._wait()
        return save(self._saved)

    def set_state(self, state: dict[str, Tensor]) -> None:
        self._wait()
        restore(self._saved, state)
        self.set_drive_mode(self._effort)
        with self._on_torch_stream():
            self._sites.refresh()

    def _advance(self) -> None:
        """Launch one control step: load the command, run the substeps, update the state tensors."""
        robot, data = self._robot, self._data
        wp.launch(
            load_command,
            dim=self.num_envs,
            inputs=[wp.from_torch(self._command), self._actuated],
            outputs=[data.ctrl, *self._flags],
        )
        # contact forces are those of the last substep
        for _ in range(robot.substeps):
            mjw.step(self._model, data)
        self._contacts.update()
        if robot.sensor_names:
            self._read_sensors()
        wp.launch(
            publish,
            dim=self.num_envs,
            inputs=[data.qfrc_actuator, DROPPING],
            outputs=[self._worlds, data.overflow, wp.from_torch(self.contact_overflows), self._flags[1]],
        )
        self._sites.refresh()

    def _read_sensors(self) -> None:
        """Add up contact forces and torques at the force-torque sensors."""
        data = self._data
        forces = self._state_arrays["sensor_forces"]
        forces.zero_()
        inputs = [data.contact.geom, data.contact.pos, self._contacts.wrench]
        inputs += [self._model.geom_bodyid, self._sensor_of_body, data.xpos]
        # the result of atomic additions depends on their order; a fixed order costs time
        if self._ordered:
            inputs = [data.nefc, data.efc.type, data.efc.id, data.contact.efc_address, *inputs]
            wp.launch(add_sensor_forces_in_order, dim=self.num_envs, inputs=inputs, outputs=[forces])
        else:
            inputs = [data.nacon, data.contact.worldid, *inputs]
            wp.launch(add_sensor_forces, dim=data.naconmax, inputs=inputs, outputs=[forces])
        wp.launch(
            to_body_frame,
            dim=(self.num_envs, len(self.sensor_names)),
            inputs=[self._sensor_bodies, data.xquat],
            outputs=[forces],
        )


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
        # positions and velocities of bodies follow from the joints
        mjw.kinematics(model, data)
        mjw.com_pos(model, data)
        mjw.com_vel(model, data)
        wp.launch(
            read_sites,
            dim=(data.nworld, len(sites.names)),
            inputs=[chosen, *self._places, self._quats, data.site_xpos, data.xquat, data.subtree_com, data.cvel],
            outputs=[self._states],
        )
        if sites.jacobian is None:
            return
        # the mass matrix
        mjw.crb(model, data)
        wp.launch(
            read_jacobian,
            dim=(data.nworld, len(self._robot.dof_names)),
            inputs=[
                *(chosen, sites.jacobian, int(sites.roots[sites.jacobian]), self._robot.first_qvel),
                *(self._moves, self._inertia, data.site_xpos, data.subtree_com, data.cdof, data.M),
            ],
            outputs=[self._jacobian, self._mass_matrix],
        )
