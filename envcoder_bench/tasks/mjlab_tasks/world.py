"""The scene, the simulation and the actions that all groups share."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import warp as wp
from mjlab.managers.action_manager import ActionManager
from mjlab.scene import Scene
from torch import Tensor

from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation
from envcoder_bench.tasks.mjlab_tasks.env_ids import EnvIds
from envcoder_bench.tasks.mjlab_tasks.view import EnvView


class World:
    """One scene in ``num_envs`` environments.

    Args:
        cfg: mjlab's config of the task, which this class may change.
        simulation: creates the simulation, as mjlab's ``Simulation``.

    Attributes:
        scene, sim, action_manager: mjlab's.
        steps: control steps so far, of all environments.
        episode_length_buf: ``(num_envs,)`` int64, control steps of each episode.
    """

    def __init__(self, cfg: Any, num_envs: int, device: str, simulation: Callable[..., Any]) -> None:
        cfg.scene.num_envs = num_envs
        self.cfg, self.num_envs = cfg, num_envs
        self.scene = Scene(cfg.scene, device=device)
        self.sim = simulation(
            num_envs=num_envs,
            cfg=cfg.sim,
            spec=self.scene.spec,
            variant_info=self.scene.collect_variant_info(),
            device=device,
        )
        self._initialize(device)
        self.steps = 0
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.env = EnvView(self, slice(0, num_envs), cfg)
        self.action_manager = ActionManager(cfg.actions, self.env)
        self.env.action_manager = self.action_manager

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

    def place(self, lanes: Tensor) -> None:
        """Give the same lane of every group the origin that it has in a simulation of one group."""
        terrain = self.scene.terrain
        if terrain is not None and terrain.terrain_origins is None:
            count = int(lanes.max()) + 1
            grid = terrain._compute_env_origins_grid(count, terrain.cfg.env_spacing)
            assert terrain.env_origins is not None
            terrain.env_origins.copy_(grid[lanes])

    def advance(self, action: Tensor) -> None:
        """Simulate one control step with ``action`` ``(num_envs, width)``."""
        self.action_manager.process_action(action)
        for _ in range(self.cfg.decimation):
            self.action_manager.apply_action()
            self.scene.write_data_to_sim()
            self.sim.step()
            self.scene.update(dt=self.env.physics_dt)
        self.episode_length_buf += 1
        self.steps += 1

    def reset(self, env_ids: EnvIds) -> None:
        """Reset the simulation and the buffers of entities and sensors."""
        self.sim.reset(env_ids)
        self.scene.reset(env_ids)

    def refresh(self, written: bool) -> None:
        """Compute what derives from positions and velocities; ``written``: whether episodes have begun."""
        if written:
            self.scene.write_data_to_sim()
        self.sim.forward()

    def sense(self) -> None:
        """Cast rays, and let sensors compute their data from the present state."""
        if not isinstance(self.sim, BatchSimulation):
            self.sim.sense()
        for sensor in self._rays:
            sensor.prepare_rays()
            points, rays = (wp.to_torch(x).view(self.num_envs, -1, 3) for x in (sensor._ray_pnt, sensor._ray_vec))
            excluded = sensor._ray_bodyexclude.numpy()
            hits = self.sim.cast(points.numpy(), rays.numpy(), sensor.include_geom_groups, excluded)
            for target, x in zip((sensor._ray_dist, sensor._ray_geomid, sensor._ray_normal), hits):
                wp.to_torch(target).copy_(x)
            sensor.postprocess_rays()
        for sensor in self.scene.sensors.values():
            sensor._invalidate_cache()
