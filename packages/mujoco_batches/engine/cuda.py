"""The engine on MuJoCo Warp: each environment is a world, and a ``simulate`` is one CUDA graph.

Setters and refreshes are one kernel each. Nothing waits for the device, except ``blow_ups``, ``get_state`` and
``set_state``. The engine also runs on Warp's CPU device, one world after the other, for tests.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
import logging
from collections.abc import Callable
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from mujoco_batches.compat.warp_memory import allocated_by, capacity
from mujoco_batches.compat.warp_start import start_warp
from mujoco_batches.compat.warp_structs import check_structs
from mujoco_batches.engine import cuda_kernels as kernels
from mujoco_batches.engine.base import Engine
from mujoco_batches.engine.cuda_contacts import ContactLists
from mujoco_batches.engine.cuda_properties import WarpProperties
from mujoco_batches.engine.layout import Layout
from mujoco_batches.engine.numerics import first_state, massless_roots, position_limits, room
from mujoco_batches.physics.live_tensors import restore, save
from mujoco_batches.physics.models import mass_addresses
from mujoco_batches.physics.warp_contacts import ContactForces
from mujoco_batches.physics.warp_device import DROPPING, captured, put_model
from mujoco_batches.physics.warp_loading import load_kernels
from mujoco_batches.physics.warp_streams import TorchStream
from mujoco_batches.scene.transforms import pose_array

logger = logging.getLogger("mujoco_batches")

# a batch waits for its slowest world; in float32 the solver converges within a few iterations, or never
_ITERATIONS, _LINE_SEARCH_ITERATIONS = 10, 20
_DENSE_DOFS = 60  # above this, use mujoco_warp's sparse solver
# quantities that take time are computed from their first read on, together with others
_WANTED = {
    **{"bodies": "bodies", "centres": "bodies", "contact_forces": "contacts"},
    **{"jacobian": "mass", "mass_matrix": "mass"},
}
_LATE = {"bodies": ("xpos", "xquat", "xipos", "cvel", "subtree_com"), "mass": ("cdof", "M")}  # fields of each
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
        n = self.num_envs
        self._dropped = torch.zeros(n, dtype=torch.bool, device=self.device)
        self.overflows = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._blow_ups = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._dof_forces = torch.zeros_like(self.efforts)
        self._contacts = torch.zeros(n, 3 * self.num_bodies, device=self.device)
        self._sensors = torch.zeros(n, len(layout.sensors), 6, device=self.device)
        self._joint_wrenches = torch.zeros(n, self.num_bodies, 6, device=self.device)
        self._columns = torch.from_numpy(layout.dof_qvel).to(self.device)
        self._wanted: set[str] = set()
        self._actors: dict[int, tuple[wp.array, ...]] = {}
        self._steps, self._warned, self._graph = 0, False, None
        self._refresh_graph: Any = None
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
        host = copy.copy(layout.model)
        host.opt.iterations, host.opt.ls_iterations = _ITERATIONS, _LINE_SEARCH_ITERATIONS
        kinds = mujoco.mjtJacobian
        host.opt.jacobian = kinds.mjJAC_SPARSE if host.nv > _DENSE_DOFS else kinds.mjJAC_DENSE
        self._model = put_model(host)
        contacts, rows = room(host)
        self._data = data = mjw.make_data(host, nworld=self.num_envs, nconmax=contacts, njmax=max(1, rows))
        self._properties = WarpProperties(host, self._model, data, layout)
        # what kernels take: fields of the layout, of the model and of the data
        self._kernel_layout = _layout_struct(layout, poses)
        self._kernel_model = _struct(kernels.Model, self._model, self._model.opt)
        self._kernel_data = _struct(kernels.Data, data)
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            wp.copy(getattr(data, name), getattr(self._kernel_layout, f"first_{name}"))
        self._loads_of_links = wp.clone(data.xfrc_applied) if layout.link_damping.any() else None
        # torch's tensors as arrays of Warp, without a copy
        self._drives = self._properties.drives
        for name in ("position_targets", "velocity_targets", "efforts"):
            setattr(self._drives, name, wp.from_torch(getattr(self, name)))
        self._drives.forces = wp.from_torch(self.forces.view(self.num_envs, -1))
        self._results = kernels.Results()
        for name in ("blown", "blow_ups", "overflows", "dropped", "dof_forces", "contacts", "sensors"):
            tensor = getattr(self, f"_{name}" if hasattr(self, f"_{name}") else name)
            setattr(self._results, name, wp.from_torch(tensor))
        for name in ("accelerations", "wrenches"):
            setattr(self._results, name, wp.zeros((self.num_envs, len(layout.sensors)), dtype=wp.spatial_vector))
        row_of_body = np.full(host.nbody, -1)
        row_of_body[layout.bodies] = np.arange(len(layout.bodies))
        self._contact_forces = ContactForces(self._model, data, row_of_body, self._results.contacts)
        self._lists = None
        if layout.contact_lists:
            self._lists = ContactLists(self._model, data, layout, self._contact_forces, row_of_body)

    @property
    def blow_ups(self) -> int:
        """Number of resets after failed physics so far; waits for the device."""
        return int(self._blow_ups)

    @property
    def bytes_per_env(self) -> int:
        state, dropped = self.get_state(), self._dropped.clone()
        with self._on_torch_stream():
            of_step = allocated_by(self._advance) // self._layout.substeps  # substeps use the same memory
        self.set_state(state)
        self._dropped.copy_(dropped)
        return (capacity(self._data, self._data.efc, self._data.contact) + of_step) // self.num_envs

    def set_gravity(self, gravity: np.ndarray) -> None:
        with self._on_torch_stream():
            self._properties.set_gravity(gravity)

    # a step

    def step(self) -> None:
        with self._on_torch_stream():
            self._flush()
            if self.joint_forces is not None:
                wp.to_torch(self._data.qfrc_applied)[:, self._columns] = self.joint_forces
            if self._graph is None:
                self._advance()  # also loads the kernels, which is not allowed in a capture
            else:
                wp.capture_launch(self._graph)
        if self._graph is None:
            self._graph = self._captured(self._advance)
        self._check_overflows()

    def _flush(self) -> None:
        """Apply changes of properties; a graph that was captured with replaced arrays is dropped."""
        if self._properties.flush():
            self._kernel_model = _struct(kernels.Model, self._model, self._model.opt)
            self._graph = self._refresh_graph = None

    def _captured(self, launch: Callable[[], None]) -> Any:
        """Capture what was launched once, without running it; return None on a CPU."""
        device = self._on_torch_stream.device
        if not device.is_cuda:
            return None
        wp.synchronize_device(device)
        with wp.ScopedDevice(device):
            return captured(device, launch)

    def _launch(self, kernel: Any, dims: tuple[int, ...], *arguments: Any) -> None:
        """Launch a kernel with a thread for each world and each index of ``dims``."""
        check_structs(kernel, arguments)
        wp.launch(kernel, dim=(self.num_envs, *dims), inputs=[*arguments])

    def _advance(self) -> None:
        """Launch one ``simulate``: load commands, run the substeps, compute outputs."""
        layout, data, results = self._kernel_layout, self._kernel_data, self._results
        self._launch(kernels.load_commands, (), layout, data, self._drives, results)
        if self._loads_of_links is not None:
            wp.copy(self._loads_of_links, self._data.xfrc_applied)
        for substep in range(self._layout.substeps):
            self._substep(last=substep == self._layout.substeps - 1)
        # resets of failed worlds, then what readers get
        self._launch(kernels.finish, (), layout, data, results, DROPPING)
        self._derive()

    def _substep(self, last: bool) -> None:
        """Launch a physics step between what drives and roots need and the limits of velocities."""
        world = self._kernel_layout, self._kernel_model, self._kernel_data
        # damp firm drives of light joints, which would overshoot in this step
        if self._properties.steadied:
            self._launch(kernels.steady, (self.num_dofs,), *world, self._drives)
        if np.any(self._layout.root_damping):
            self._launch(kernels.damp_roots, (self.num_actors,), *world)
        if self._loads_of_links is None:
            mjw.step(self._model, self._data)
        else:
            mjw.step1(self._model, self._data)
            self._launch(kernels.damp_links, (self.num_bodies,), *world, self._loads_of_links)
            mjw.step2(self._model, self._data)
        # contacts and sensors are of the last physics step, before velocities are limited
        if last:
            if self._layout.sensors:
                self._launch(kernels.read_accelerations, (len(self._layout.sensors),), *world, self._results)
            if "contacts" in self._wanted or self._layout.contact_sensors or self._lists is not None:
                self._contact_forces.update()
            if self._lists is not None:
                self._lists.update()
            if "wrenches" in self._wanted:
                mjw.rne_postconstraint(self._model, self._data)
                inputs = [*world, self._data.cfrc_int, wp.from_torch(self._joint_wrenches)]
                self._launch(kernels.read_joint_wrenches, (self.num_bodies,), *inputs)
            if self._layout.contact_sensors:
                self._results.wrenches.zero_()
                contact, wrench = self._data.contact, self._contact_forces.wrench
                bodies = contact.geom, self._model.geom_bodyid
                inputs = [self._data.nacon, contact.worldid, *bodies, contact.pos, wrench]
                inputs += [self._kernel_layout, self._kernel_data, self._results]
                wp.launch(kernels.add_contact_wrenches, dim=self._data.naconmax, inputs=inputs)
        self._launch(kernels.limit_velocities, (), *world, self._drives)

    def _derive(self) -> None:
        """Launch the computation of body states, mass matrix and sensors from the state at the end of a step."""
        sensors = len(self._layout.sensors)
        if "bodies" in self._wanted or sensors:
            self._pose_bodies()
        if "mass" in self._wanted:
            mjw.crb(self._model, self._data)
        if sensors:
            world = self._kernel_layout, self._kernel_model, self._kernel_data
            self._launch(kernels.read_sensors, (sensors,), *world, self._results)

    def refresh(self) -> None:
        inside = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        with self._on_torch_stream():
            self._want("bodies")
            self._flush()
            if self._refresh_graph is None or inside:
                self._pose_bodies()
            else:
                wp.capture_launch(self._refresh_graph)
        if self._refresh_graph is None and not inside:
            self._refresh_graph = self._captured(self._pose_bodies)

    def _pose_bodies(self) -> None:
        """Launch the computation of body states from the state."""
        mjw.kinematics(self._model, self._data)
        mjw.com_pos(self._model, self._data)
        mjw.com_vel(self._model, self._data)

    def take_overflows(self) -> Tensor:
        dropped = self._dropped.clone()
        self._dropped.zero_()
        return dropped

    def contacts(self, number: int) -> Tensor:
        wanted = self._layout.contact_lists[number]
        if self._lists is None or number not in self._lists.starts:
            raise NotImplementedError("MuJoCo Warp's engine has net forces of a body, and lists by what it touches")
        first = self._lists.starts[number]
        values = wp.to_torch(self._lists.lists)[:, first : first + wanted.size]
        values = values.reshape(self.num_envs, wanted.slots, -1)
        return values.masked_fill(self.blown[:, None, None], 0.0)

    def normal_forces(self) -> Tensor:
        if self._lists is None:
            return torch.zeros(self.num_envs, self.num_bodies, 3, device=self.device)
        values = wp.to_torch(self._lists.normal_forces).view(self.num_envs, self.num_bodies, 3)
        return values.masked_fill(self.blown[:, None, None], 0.0)

    def joint_wrenches(self) -> Tensor:
        if "wrenches" not in self._wanted:
            self._wanted.add("wrenches")
            self._graph = None
        return self._joint_wrenches.clone()

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

    # writers and readers

    def actor_mask(self, rows: Tensor) -> Tensor:
        mask = torch.zeros(self.num_envs, self.num_actors, dtype=torch.bool, device=rows.device)
        if len(rows):
            with self._on_torch_stream():
                arrays = [wp.from_torch(x) for x in (rows.contiguous(), mask.view(-1))]
                wp.launch(kernels.mark_actors, dim=len(rows), inputs=arrays)
        return mask

    def write_roots(self, mask: Tensor | None, states: Tensor) -> None:
        with self._on_torch_stream():
            self._flush()  # centres of mass must be up to date, because their velocities are set
            world = self._kernel_layout, self._kernel_model, self._kernel_data
            self._launch(kernels.write_roots, (self.num_actors,), *world, self._mask(mask), _rows(states, 13))

    def write_dofs(self, mask: Tensor | None, states: Tensor) -> None:
        if self.num_dofs:
            with self._on_torch_stream():
                world = self._kernel_layout, self._kernel_data
                self._launch(kernels.write_dofs, (), *world, self._mask(mask), _rows(states, 2))

    def _mask(self, mask: Tensor | None) -> wp.array:
        mask = self._all_actors() if mask is None else mask
        return wp.from_torch(mask.reshape(self.num_envs, self.num_actors))

    def _want(self, what: str) -> None:
        """Compute ``contacts``, ``bodies`` or ``mass`` from now on, and once now; call it on torch's stream."""
        if what in self._wanted:
            return
        self._wanted |= {what} if what == "contacts" else {what, "bodies"}
        self._graph = None
        if what == "contacts":
            self._contact_forces.update()
        else:
            self._flush()
            self._derive()

    def read(self, quantity: str, out: Tensor, actor: int = -1) -> None:
        with self._on_torch_stream():
            if quantity in _WANTED:
                self._want(_WANTED[quantity])
            layout, model, data = self._kernel_layout, self._kernel_model, self._kernel_data
            match quantity:
                case "roots":
                    self._launch(kernels.read_roots, (self.num_actors,), layout, model, data, _rows(out, 13))
                case "dofs" if self.num_dofs:
                    self._launch(kernels.read_dofs, (self.num_dofs,), layout, data, _rows(out, 2))
                case "bodies":
                    self._launch(kernels.read_bodies, (self.num_bodies,), layout, model, data, _rows(out, 13))
                case "jacobian":
                    links, columns, moved, _ = self._structure(actor)
                    base = 0 if self._layout.places[actor].fixed else 6
                    dims, parts = (len(links), base + len(columns)), (base, links, columns, moved)
                    self._launch(kernels.read_jacobian, dims, model, data, *parts, wp.from_torch(out))
                case "mass_matrix":
                    _, columns, _, addresses = self._structure(actor)
                    parts = columns, addresses, wp.from_torch(out)
                    self._launch(kernels.read_mass_matrix, addresses.shape, model, data, *parts)
                case "centres":
                    bodies = wp.to_torch(layout.bodies).long()
                    out.copy_(wp.to_torch(self._data.xipos)[:, bodies].reshape(out.shape))
                case "contact_forces" | "dof_forces" | "force_sensors":
                    held = {"contact_forces": self._contacts, "dof_forces": self._dof_forces}
                    out.copy_(held.get(quantity, self._sensors).view(out.shape))

    def _structure(self, actor: int) -> tuple[wp.array, ...]:
        """Return an actor's links, DOF columns, which DOF moves which link, and addresses in the packed mass matrix."""
        if actor not in self._actors:
            links, columns, moved = self._layout.structure(actor)
            numbers = links, columns, mass_addresses(self._layout.model, columns)
            links, columns, addresses = (wp.array(x, dtype=wp.int32) for x in numbers)
            self._actors[actor] = links, columns, wp.array(moved, dtype=wp.bool), addresses
        return self._actors[actor]

    # checkpoints

    def _late(self) -> dict[str, Tensor]:
        """Return the fields of bodies and mass matrices that are computed from their first read on."""
        names = [name for what in sorted(self._wanted & _LATE.keys()) for name in _LATE[what]]
        return {name: wp.to_torch(getattr(self._data, name)) for name in names}

    def _live(self) -> dict[str, Tensor]:
        """Return the tensors on which a step and the readers depend."""
        names = ("position_targets", "velocity_targets", "efforts", "forces", "blown", "overflows")
        fields = ("qpos", "qvel", "qacc_warmstart", "mocap_pos", "mocap_quat")
        lists = {} if self._lists is None else {name: getattr(self._lists, name) for name in ("normal_forces", "lists")}
        return {
            **{name: getattr(self, name) for name in names},
            **{name: getattr(self, f"_{name}") for name in ("blow_ups", "dof_forces", "contacts", "sensors")},
            **{name: wp.to_torch(values) for name, values in lists.items() if values.size},
            **{name: wp.to_torch(getattr(self._data, name)) for name in fields},
            **self._late(),
        }

    def get_state(self) -> dict[str, Tensor]:
        return save(self._live())

    def set_state(self, state: dict[str, Tensor]) -> None:
        with self._on_torch_stream():
            for what, fields in _LATE.items():
                if fields[-1] in state:
                    self._want(what)
            saved = {name: x for name, x in self._live().items() if name in state or name not in self._late()}
            restore(saved, state)
            if len(saved) < len(self._live()):  # some outputs were first read after the state was saved
                self._flush()
                self._derive()
                restore(saved, state)  # it has overwritten the others


def _struct(kind: Any, *owners: Any) -> Any:
    """Return a struct of Warp with the owners' arrays of the names of its fields."""
    struct = kind()
    for name in kind.vars:
        setattr(struct, name, next(getattr(owner, name) for owner in owners if hasattr(owner, name)))
    return struct


def _layout_struct(layout: Layout, poses: np.ndarray) -> Any:
    """Return a layout, and the first state of its worlds, on Warp's device."""
    struct = kernels.Layout()
    places = [[int(p.fixed), p.qpos, p.qvel, p.mocap, p.root] for p in layout.places]
    sensor_bodies = layout.bodies[[sensor.body for sensor in layout.sensors]]
    sensor_poses = np.array([pose_array(sensor.pose) for sensor in layout.sensors]).reshape(-1, 7)
    qpos, mocap_pos, mocap_quat = first_state(layout, poses)
    integers = {"bodies": layout.bodies, "places": np.array(places, dtype=np.int32), "sensor_bodies": sensor_bodies}
    integers |= {name: getattr(layout, name) for name in ("dof_qpos", "dof_qvel", "dof_actors")}
    numbers = {"position_limits": position_limits(layout.model), "first_qpos": qpos}
    numbers |= {name: getattr(layout, name) for name in ("root_damping", "link_damping")}
    numbers["root_limits"] = np.minimum(layout.max_velocity, 1e30)
    for arrays, dtype in ((integers, wp.int32), (numbers, wp.float32)):
        for name, values in arrays.items():
            setattr(struct, name, wp.array(values, dtype=dtype))
    struct.sensor_pos = wp.array(sensor_poses[:, :3], dtype=wp.vec3)
    struct.sensor_quat = wp.array(sensor_poses[:, 3:], dtype=wp.vec4)
    struct.sensor_weights = wp.array([sensor.weights for sensor in layout.sensors], dtype=wp.vec2)
    in_world = [sensor.properties.use_world_frame for sensor in layout.sensors]
    struct.sensor_in_world = wp.array(in_world, dtype=wp.bool)
    struct.first_mocap_pos = wp.array(mocap_pos, dtype=wp.vec3, shape=mocap_pos.shape[:2])
    struct.first_mocap_quat = wp.array(mocap_quat, dtype=wp.quat, shape=mocap_quat.shape[:2])
    return struct


def _rows(values: Tensor, width: int) -> wp.array:
    return wp.from_torch(values.detach().view(-1, width))
