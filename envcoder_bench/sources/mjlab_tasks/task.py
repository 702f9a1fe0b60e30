"""A task of mjlab: its construction and its simulation."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from mjlab.utils.buffers import CircularBuffer

from envcoder_bench.core.errors import UserError
from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation
from envcoder_bench.sources.mjlab_tasks.deployment import deployment
from envcoder_bench.sources.mjlab_tasks.facts import Facts
from envcoder_bench.sources.mjlab_tasks.histories import ShiftedBuffer
from envcoder_bench.sources.mjlab_tasks.keys import sources_of
from envcoder_bench.sources.mjlab_tasks.robot import VARIED, MjlabRobot
from envcoder_bench.sources.mjlab_tasks.source import quiet
from envcoder_bench.sources.mjlab_tasks.words import unmeasured_by
from envcoder_bench.sources.mjlab_tasks.world import World
from envcoder_bench.sources.term_tasks.task import TermTask

if TYPE_CHECKING:
    from mujoco_batches.physics.live_tensors import PoseSource

REFUSALS = {
    "compute_torque": "actions go to mjlab's action terms",
    "compute_dof_target": "actions go to mjlab's action terms",
    "compute_initial_state": 'give events = {"reset_base": ...} instead, as in mjlab',
    "compute_goal": 'give commands = {"twist": ...} instead, as in mjlab',
}


class MjlabTask(TermTask):
    """A task of mjlab, with the simulation that ``sim.backend`` of its config chooses."""

    refusals: Mapping[str, str] = REFUSALS

    def make_world(self, facts: Facts) -> World:
        simulation = simulation_of(self.cfg, str(self.device), facts.needs_warp)
        return World(facts, self.num_envs, str(self.device), simulation, substeps_of(self.cfg), has_contacts(self.cfg))

    def robot(self) -> MjlabRobot:
        events = self.world.dialect.event_terms(self.blocks[0].event_manager)
        late = [(name, getattr(x.func, "model_fields", ())) for name, x in events if x.mode != "startup"]
        robot = MjlabRobot(self.world, [name for name, fields in late if {*fields} & {*VARIED}])
        self.erring = robot.erring
        return robot

    def unmeasured_by(self, term: Any) -> str:
        return unmeasured_by(self.world, term)

    def deployment(self, group: int) -> dict[str, Any]:
        block = next(block for block in self.blocks if group in block.groups)
        return deployment(self.world, block, group - block.groups.start)

    def sources(self) -> dict[str, Any]:
        return sources_of(self.world)

    @property
    def bytes_per_env(self) -> int:
        of_state = sum(x.numel() * x.element_size() for x in self.state.values()) // self.num_envs
        return 64 * 1024 + 200 * self.world.sim.mj_model.nv**2 + 2 * of_state

    def pose_source(self) -> PoseSource | None:
        from mujoco_batches.physics.live_tensors import PoseSource

        sim = self.world.sim
        return PoseSource(sim.mj_model, lambda: sim.data.qpos[:].detach().double().cpu().numpy())

    def rings(self) -> tuple[type, type]:
        return CircularBuffer, ShiftedBuffer

    def quiet(self) -> Any:
        return quiet()

    def startup(self) -> None:
        expanded = {name for block in self.blocks for name in block.event_manager.domain_randomization_fields}
        self.world.sim.expand_model_fields(tuple(sorted(expanded)))
        super().startup()

    def restore_model(self) -> None:
        sim = self.world.sim
        if isinstance(sim, BatchSimulation):
            sim.model.restore()
            return
        for name in sim.expanded_fields:
            getattr(sim.model, name)[:] = sim.get_default_field(name)

    def note_unstable(self) -> None:
        data = self.world.sim.data
        finite = torch.isfinite(data.qpos[:]).all(dim=1) & torch.isfinite(data.qvel[:]).all(dim=1)
        failed = getattr(self.world.sim, "failed", None)
        self.unstable.copy_(~finite if failed is None else ~finite | failed)
        self.contact_overflows.add_(self.world.sim.take_overflows() & ~self.unstable)
        if failed is not None:
            failed.zero_()


def substeps_of(cfg: Mapping[str, Any]) -> int:
    """Return how many steps of the simulation each physics step of the task's own config has."""
    substeps = cfg.get("sim", {}).get("substeps", 1)
    if type(substeps) is not int or substeps < 1:
        raise UserError(f"task.sim.substeps is {substeps!r}: it must be a whole number of at least 1")
    return substeps


def has_contacts(cfg: Mapping[str, Any]) -> bool:
    """Return whether the contact force on each body is measured."""
    contacts = cfg.get("sim", {}).get("contacts", False)
    if type(contacts) is not bool:
        raise UserError(f"task.sim.contacts is {contacts!r}: it must be true or false")
    return contacts


def simulation_of(cfg: Mapping[str, Any], device: str, needs_warp: bool = False) -> Any:
    """Return the class of the simulation: C MuJoCo on a CPU, unless Warp is asked for or needed."""
    backend = cfg.get("sim", {}).get("backend", "auto")
    if backend not in ("auto", "mujoco", "warp"):
        raise UserError(f"task.sim.backend is {backend!r}: it must be auto, mujoco or warp")
    if backend == "mujoco" and device != "cpu":
        raise UserError(f"task.sim.backend=mujoco simulates on the CPU, and the device is {device}")
    if backend == "mujoco" and needs_warp:
        raise UserError("task.sim.backend=mujoco: the task's code reads arrays of MuJoCo Warp; take auto or warp")
    if device == "cpu" and backend != "warp" and not needs_warp:
        from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation

        return BatchSimulation
    if is_before_warp():
        raise UserError("mjlab before 1.5 does not run on this MuJoCo Warp: take --device cpu, and no task.sim.backend")
    from envcoder_bench.sim.mjlab.warp_simulation import WarpSimulation

    return WarpSimulation


def is_before_warp() -> bool:
    """Return whether mjlab is older than 1.5, which does not run on the installed MuJoCo Warp."""
    from mjlab.sim.sim import SimulationCfg

    return getattr(SimulationCfg, "ls_parallel", None) is not None
