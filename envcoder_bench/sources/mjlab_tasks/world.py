"""The scene, the simulation and the actions that all groups share."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import warp as wp
from mjlab.managers.action_manager import ActionManager
from mjlab.scene import Scene
from mjlab.sim.sim_data import TorchArray, WarpBridge
from mjlab.terrains import TerrainEntity
from torch import Tensor

from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation
from envcoder_bench.sources.mjlab_tasks.facts import Facts
from envcoder_bench.sources.mjlab_tasks.histories import ActuatorDelay, beginning
from envcoder_bench.sources.mjlab_tasks.robot import touch_sensor
from envcoder_bench.sources.mjlab_tasks.view import TERRAIN, EnvView, PartView
from envcoder_bench.sources.term_tasks import world
from envcoder_bench.sources.term_tasks.draws import Draws
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.term_tasks.graphs.parts import Call, Parts
from envcoder_bench.sources.term_tasks.views import Commands
from mujoco_batches.physics.warp_streams import TorchStream

_SIMULATED = (
    "qpos", "qvel", "act", "ctrl", "qacc_warmstart", "xfrc_applied", "qfrc_applied", "mocap_pos", "mocap_quat", "time",
    "eq_active",
)  # fmt: skip
TERRAIN_SEED = 7270  # mjlab's training has it: its default seed of 42 draws it


class World(world.World):
    """One scene in ``num_envs`` environments.

    Args:
        facts: of the task.
        simulation: creates the simulation, as mjlab's ``Simulation``.
        substeps: steps of the simulation in each physics step of the config. Terms, actuators, their delays and
            sensors are those of the config's step.
        contacts: whether a sensor measures the contact force on each body of the robot.

    Attributes:
        scene, sim, action_manager: mjlab's; ``commands`` are those of all blocks.
        steps: control steps so far, of all environments; ``clock`` has them as an int, or on a device as a tensor.
        reads: how often mjlab's code has read ``steps``, or has run the simulation.
        parts: runs the parts of a step.
        dialect, obs_sets, reads_rewards: see ``TermFacts``.
        has_read_rewards: whether code of the task or a candidate has read ``env.reward_manager``.
        group_size: environments of a group, which the task sets.
        pushed: bodies, and the forces ``(num_envs, bodies, 3)`` on them in each step besides those of the task.
        episode_length_buf: ``(num_envs,)`` int64, control steps of each episode.
    """

    def __init__(
        self,
        facts: Facts,
        num_envs: int,
        device: str,
        simulation: Callable[..., Any],
        substeps: int = 1,
        contacts: bool = False,
    ) -> None:
        self.substeps = substeps
        self.dialect, self.device = facts.dialect, torch.device(device)
        self.obs_sets, self.reads_rewards, self.has_read_rewards = facts.obs_sets, facts.reads_rewards, False
        cfg = facts.source.env_cfg()
        cfg.scene.num_envs = num_envs
        generator = None if cfg.scene.terrain is None else cfg.scene.terrain.terrain_generator
        if generator is not None and generator.seed is None:
            generator.seed = TERRAIN_SEED
        if contacts:
            cfg.scene.sensors = (*(cfg.scene.sensors or ()), touch_sensor(cfg.scene.entities))
        self.pushed: tuple[Tensor, Tensor] | None = None
        self.cfg, self.num_envs, self.reads, self.group_size = cfg, num_envs, 0, num_envs
        self.scene, self.evaluates = Scene(cfg.scene, device=device), False
        if self.scene.terrain is not None:
            self.scene.terrain.__class__ = _Terrain
            self.scene.terrain.world = self  # type: ignore[attr-defined]
        model: dict[str, Any] = {}
        if hasattr(self.scene, "collect_variant_info"):
            model = {"spec": self.scene.spec, "variant_info": self.scene.collect_variant_info()}
        else:  # mjlab 1.2 and 1.3
            model = {"model": self.scene.compile()}
        finer = copy.deepcopy(cfg.sim)
        finer.mujoco.timestep /= substeps
        self.sim = simulation(num_envs=num_envs, cfg=finer, device=device, **model)
        if not isinstance(self.sim, BatchSimulation):
            self.sim._data_bridge = _InOrder(self.sim.wp_data)
            self.sim._model_bridge = _InOrder(self.sim.wp_model, nworld=num_envs)
            self.sim._reset_mask._torch_stream = None
            self._on_stream = TorchStream(torch.device(device))
            for name in ("step", "forward", "reset", "recompute_constants"):
                setattr(self.sim, name, self._counted(getattr(self.sim, name)))
        self.warnings: dict[str, int] = getattr(self.sim, "warnings", {})  # MuJoCo Warp has none
        self.parts = Parts(None, self, [])
        self._initialize(device)
        self.steps = 0
        self._clock = None if device == "cpu" else torch.zeros((), dtype=torch.int32, device=device)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.env = EnvView(self, slice(0, num_envs), cfg)
        self.env.command_manager = self.commands = Commands(cfg.commands)  # type: ignore[assignment]
        self.action_manager = ActionManager(cfg.actions, self.env)
        self.env.action_manager = self.action_manager
        everyone = torch.arange(num_envs, device=device)
        self.draws, self.delays = Draws(torch.zeros_like(everyone), everyone), self._actuator_delays()

    def _counted(self, method: Callable[..., None]) -> Callable[..., None]:
        """Return a method of the simulation that is in the order of torch's work, and noted in ``reads``."""

        def counted(*args: Any) -> None:
            self.reads += 1
            with self._on_stream():
                method(*args)

        return counted

    def _initialize(self, device: str) -> None:
        """Bind entities and sensors to the simulation."""
        self._rays: list[Any] = []  # sensors that mjlab's simulation does not serve
        sim, sensors = self.sim, list(self.scene.sensors.values())
        if not isinstance(sim, BatchSimulation):
            self.scene.initialize(mj_model=sim.mj_model, model=sim.model, data=sim.data)
            if self.scene.sensor_context is not None:
                sim.set_sensor_context(self.scene.sensor_context)
            return
        self.scene._default_env_origins = torch.zeros(self.num_envs, 3)
        for part in [*self.scene.entities.values(), *sensors]:
            part.initialize(sim.mj_model, sim.model, sim.data, device)
        self._rays = [sensor for sensor in sensors if sensor.requires_sensor_context]
        for sensor in self._rays:
            sensor.set_context(self)  # it asks whether there is one

    # what blocks and checkpoints ask for

    def view(self, rows: slice, cfg: Any) -> EnvView:
        return EnvView(self, rows, cfg)

    def part(self, block: Any, rows: slice) -> EnvView:
        return PartView(block, rows)

    def held(self) -> dict[str, Any]:
        roots = {"actions": self.action_manager, "episode_length": {"buf": self.episode_length_buf}}
        for name, entity in self.scene.entities.items():
            data = getattr(entity, "_data", None)
            roots[f"entity {name}"] = {
                "data": {} if data is None else vars(data),
                "actuators": getattr(entity, "_actuators", []),
                "terrain": {key: getattr(entity, key) for key in TERRAIN if hasattr(entity, key)},
            }
        return {**roots, **{f"sensor {name}": sensor for name, sensor in self.scene.sensors.items()}}

    def get_simulation(self) -> dict[str, Tensor]:
        sim = self.sim
        if isinstance(sim, BatchSimulation):
            sim._push()
            rows = {f"model/{name}": torch.from_numpy(x) for name, x in sim.model.get_rows().items()}
            return {"sim/rows": torch.from_numpy(sim.batch.state), **rows}
        state = {f"sim/{name}": getattr(sim.data, name)[:] for name in self._simulated()}
        return {**state, **{f"model/{name}": getattr(sim.model, name)[:] for name in sim.expanded_fields}}

    def set_simulation(self, state: Mapping[str, Tensor]) -> None:
        sim = self.sim
        if isinstance(sim, BatchSimulation):
            sim.model.set_rows({name: state[f"model/{name}"].numpy() for name in sim.expanded_fields})
            sim._push()
            sim.batch.state[:] = state["sim/rows"].numpy()
            sim.data.stale()
        else:
            for name in sim.expanded_fields:
                getattr(sim.model, name)[:] = state[f"model/{name}"].to(self.device)
            for name in self._simulated():
                getattr(sim.data, name)[:] = state[f"sim/{name}"].to(self.device)
        sim.forward()

    def _simulated(self) -> list[str]:
        """Return the fields of the state of MuJoCo Warp that the model has."""
        return [name for name in _SIMULATED if getattr(self.sim.wp_data, name).size]

    # the simulation

    def place(self, seeds: Tensor, lanes: Tensor, evaluates: bool = False) -> None:
        """Give every environment its origin: the same for a lane of every group of a seed, whatever the other groups.

        On a generated terrain a lane has the type that it has in a simulation of one group. Its first level is drawn;
        where policies are evaluated, lanes are spread evenly over all levels and stay there.
        """
        terrain, count = self.scene.terrain, int(lanes.max()) + 1
        self.evaluates, self.draws = evaluates, Draws(seeds, lanes, self.draws.step)
        if terrain is None:
            return
        assert terrain.env_origins is not None
        if terrain.terrain_origins is None:
            grid = terrain._compute_env_origins_grid(count, terrain.cfg.env_spacing)
            terrain.env_origins.copy_(grid[lanes])
            return
        levels, types, most = terrain.terrain_levels, terrain.terrain_types, terrain.cfg.max_init_terrain_level
        rows = terrain.max_terrain_level
        # the types of one group, by mjlab's rule; the tensors stay, as views of parts of them exist
        generator = terrain.cfg.terrain_generator
        assert generator is not None
        shares = np.array([kind.proportion for kind in generator.sub_terrains.values()])
        arguments = [count, terrain.terrain_origins, shares / shares.sum()]
        if "proportions" not in inspect.signature(terrain._compute_env_origins_curriculum).parameters:  # mjlab 1.2
            arguments.pop()
        terrain._compute_env_origins_curriculum(*arguments)
        types.copy_(terrain.terrain_types[lanes])
        levels.copy_(world.first_levels(rows, evaluates, seeds, lanes, rows if most is None else most + 1))
        terrain.terrain_levels, terrain.terrain_types = levels, types
        terrain.env_origins.copy_(terrain.terrain_origins[levels, types])

    def advance(self, action: Tensor, stages: Iterable[tuple[str, list[Call], Call]]) -> None:
        """Simulate one control step with ``action`` ``(num_envs, width)``, and judge it by the last of each stage."""

        def control(k: int) -> None:
            with self.drawing(f"actions/{k}"):
                if k == 0:
                    self.action_manager.process_action(action)
                self.action_manager.apply_action()
                self.scene.write_data_to_sim()

        def go_on(k: int) -> None:
            self.scene.update(dt=self.env.physics_dt)
            control(k)

        def end() -> None:
            self.scene.update(dt=self.env.physics_dt)
            self.episode_length_buf.add_(1)

        wrenches = self._push()
        for k in range(self.cfg.decimation):
            self.parts(f"control {k}", functools.partial(go_on if k else control, k))
            for _ in range(self.substeps):
                self.sim.step()
        if wrenches is not None:
            self.sim.data.xfrc_applied[:] = wrenches
        self.count(self.steps + 1)
        self.judge(end, stages)

    def _push(self) -> Tensor | None:
        """Apply the forces of ``pushed``; return the wrenches of the task alone."""
        if self.pushed is None:
            return None
        bodies, forces = self.pushed
        wrenches = self.sim.data.xfrc_applied[:].clone()
        self.sim.data.xfrc_applied[:, bodies, :3] += forces
        return wrenches

    def reset(self, mask: Tensor) -> None:
        """Reset the simulation where ``mask`` is True."""
        with FixedShapes(self.num_envs, "the simulation's reset"):
            self.sim.reset(EnvIds.of(mask))

    def begun(self, mask: Tensor) -> None:
        """Write the actuators' commands anew after the resets where ``mask`` is True.

        As in mjlab also in the other environments of a group, for which an actuator may compute another torque. Other
        groups keep their commands, which sensors of forces read.
        """
        ctrl = self.sim.data.ctrl
        before = ctrl[:].clone()
        with self.drawing("actions/first"), beginning(self.delays, mask):
            self.scene.write_data_to_sim()
        resets = mask.view(-1, self.group_size).any(dim=1).repeat_interleave(self.group_size)
        ctrl[:] = torch.where(resets.unsqueeze(1), ctrl[:], before)

    def _actuator_delays(self) -> list[ActuatorDelay]:
        """Return the delays of all actuators, each once."""
        delays: dict[int, Any] = {}
        for entity in self.scene.entities.values():
            for actuator in getattr(entity, "_actuators", ()):
                kept = getattr(actuator, "_delay_buffers", None) or {"": getattr(actuator, "_delay_buffer", None)}
                delays.update({id(delay): delay for delay in kept.values() if delay is not None})
        for delay in delays.values():
            delay.__class__ = ActuatorDelay
        return list(delays.values())

    def sense(self) -> None:
        """Cast rays."""
        sim, context = self.sim, self.scene.sensor_context
        if not isinstance(sim, BatchSimulation) and context is not None:
            self.parts("rays", context.prepare, masked=True)
            with self._on_stream():
                if sim.sense_graph is not None:
                    wp.capture_launch(sim.sense_graph)
                else:
                    sim._sense_kernel()
        for sensor in self._rays:
            sensor.prepare_rays()
            points, rays = (wp.to_torch(x).view(self.num_envs, -1, 3) for x in (sensor._ray_pnt, sensor._ray_vec))
            excluded = sensor._ray_bodyexclude.numpy()
            hits = self.sim.cast(points.numpy(), rays.numpy(), sensor.cfg.include_geom_groups, excluded)
            for target, x in zip((sensor._ray_dist, sensor._ray_geomid, sensor._ray_normal), hits):
                wp.to_torch(target).copy_(x)

    def sensed(self) -> None:
        """Compute where rays hit, and let sensors compute their data from the present state."""
        if not isinstance(self.sim, BatchSimulation) and self.scene.sensor_context is not None:
            self.scene.sensor_context.finalize()
        for sensor in self._rays:
            sensor.postprocess_rays()
        self.forget()

    def capturing(self, name: str) -> None:
        pass

    replayed = capturing

    def forget(self) -> None:
        """Drop the data that sensors have computed."""
        for sensor in self.scene.sensors.values():
            sensor._invalidate_cache()


class _Terrain(TerrainEntity):
    """mjlab's terrain, whose levels stay as they are in evaluations."""

    world: World

    def update_env_origins(self, env_ids: Any, move_up: Tensor, move_down: Tensor) -> None:
        if not self.world.evaluates:
            super().update_env_origins(env_ids, move_up, move_down)


class _InOrder(WarpBridge):
    """mjlab's bridge to Warp's arrays, whose writes are in the order of torch's work, also in a capture."""

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        if isinstance(value, TorchArray):
            value._torch_stream = None
        return value
