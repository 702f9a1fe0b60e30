"""Views of some environments of mjlab's objects: a scene, its entities and sensors, and managers.

Everything in ``entity.data`` derives from the arrays of the simulation, so an entity whose arrays are sliced is a real
``Entity``. Sensors compute their data for all environments, and a view slices the result.
"""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from mjlab.actuator import Actuator
from mjlab.envs import ManagerBasedRlEnv
from mjlab.sim.sim_data import TorchArray, WarpBridge
from mjlab.utils.buffers import DelayBuffer
from torch import Tensor

from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation, declared_shapes
from envcoder_bench.sources.term_tasks.views import ManagerView, View, live_rows, rows_of

TERRAIN = ("env_origins", "terrain_levels", "terrain_types")  # tensors of a terrain with a row per environment


class ArraysView:
    """The arrays of some environments of ``sim.data`` or ``sim.model``.

    Args:
        arrays: mjlab's bridge of all environments, or one of this project's simulations.
        batched: whether the field of a name has a row per environment.
    """

    def __init__(self, arrays: Any, rows: slice, batched: Callable[[str], bool]) -> None:
        self._arrays, self._rows, self._batched = arrays, rows, batched

    def __getattr__(self, name: str) -> Any:
        if name == "nworld":
            return self._rows.stop - self._rows.start
        value = getattr(self._arrays, name)  # a simulation may refresh it now
        if isinstance(value, WarpBridge):
            return ArraysView(value, self._rows, self._batched)
        tensor = value._tensor if isinstance(value, TorchArray) else value
        if not isinstance(tensor, Tensor):
            return value
        return tensor[self._rows] if self._batched(name) else tensor


class SimView:
    """Some environments of the simulation."""

    def __init__(self, sim: Any, rows: slice) -> None:
        self._sim, self._rows = sim, rows
        self.data = ArraysView(sim.data, rows, lambda name: declared_shapes("Data").get(name, ())[:1] == ("nworld",))
        self.model = ArraysView(sim.model, rows, lambda name: declared_shapes("Model").get(name, ())[:1] == ("*",))
        self.num_envs = rows.stop - rows.start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sim, name)

    def forward(self) -> None:
        """Compute derived quantities, on a CPU of these environments alone, as every block may call it once a step."""
        if isinstance(self._sim, BatchSimulation):
            self._sim.forward(np.arange(self._rows.start, self._rows.stop))
        else:
            self._sim.forward()


class SceneView:
    """Some environments of a scene."""

    def __init__(self, scene: Any, sim: SimView, rows: slice) -> None:
        self._scene, self._rows = scene, rows
        self.num_envs = rows.stop - rows.start
        self.terrain = None if scene.terrain is None else rows_of(scene.terrain, rows, scene.num_envs, TERRAIN)
        self.entities = {name: self._entity(entity, sim) for name, entity in scene.entities.items()}
        self.sensors = {name: _sensor_view(sensor, rows) for name, sensor in scene.sensors.items()}

    def _entity(self, entity: Any, sim: SimView) -> Any:
        if entity is self._scene.terrain:
            return self.terrain
        view = copy.copy(entity)
        view._data = rows_of(entity._data, self._rows, self._scene.num_envs)
        view._data.data, view._data.model = sim.data, sim.model
        view._actuators = [_actuator_view(x, self._rows, self._scene.num_envs) for x in entity._actuators]
        return view

    def __getitem__(self, name: str) -> Any:
        return self.sensors[name] if name in self.sensors else self.entities[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)

    @property
    def env_origins(self) -> Tensor:
        return self._scene.env_origins[self._rows]


def _sensor_view(sensor: Any, rows: slice) -> Any:
    """Return a sensor of the same class, because terms check it, whose data are those of ``rows``."""
    cls = type(sensor)

    def data(self: Any) -> Any:
        value = sensor.data
        if isinstance(value, Tensor):
            return value[rows]
        result = copy.copy(value)
        for name, x in vars(value).items():
            if isinstance(x, Tensor):
                setattr(result, name, x[rows])
        return result

    def sliced(name: str) -> Callable[..., Tensor]:
        return lambda self, *args, **kwargs: getattr(sensor, name)(*args, **kwargs)[rows]

    methods = [name for name in ("compute_first_contact", "compute_first_air") if hasattr(cls, name)]
    members = {"data": property(data), **{name: sliced(name) for name in methods}}
    view = copy.copy(sensor)
    view.__class__ = type(cls.__name__, (cls,), members)
    return view


def _actuator_view(actuator: Any, rows: slice, num_envs: int) -> Any:
    """Return some environments of an actuator, whose gains and delays events change."""

    def other(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: other(x) for key, x in value.items()}
        return live_rows(value, rows, num_envs, other) if isinstance(value, (DelayBuffer, Actuator)) else value

    return live_rows(actuator, rows, num_envs, other)


class Actions(ManagerView):
    """Some environments of the action manager."""

    def __init__(self, manager: Any, rows: slice, env: EnvView) -> None:
        super().__init__(manager, rows)
        self._env = env

    def get_term(self, name: str) -> Any:
        """Return a term of the same class, whose tensors are those of the environments."""
        term, rows, env = self._manager.get_term(name), self._rows, self._env
        views = {id(entity): env.scene[key] for key, entity in env.world.scene.entities.items()}
        views[id(env.world.env)] = env
        return live_rows(term, rows, env.world.num_envs, lambda value: views.get(id(value), value))


class EnvView(View, ManagerBasedRlEnv):
    """Some environments of the shared simulation, as mjlab's terms see them: a ``ManagerBasedRlEnv``.

    Args:
        world: the scene, the simulation and the actions of all environments.
        rows: the environments.
        cfg: the config of these environments.
    """

    def __init__(self, world: Any, rows: slice, cfg: Any) -> None:
        self.world, self.rows, self.cfg = world, rows, cfg
        whole = rows == slice(0, world.num_envs)
        sim = world.sim if whole else SimView(world.sim, rows)
        self.sim = sim
        self.scene = world.scene if whole else SceneView(world.scene, sim, rows)  # type: ignore[arg-type,assignment]
        self.extras: dict[str, Any] = {"log": {}}
        self.obs_buf, self.render_mode = {}, None
        if hasattr(world, "action_manager"):
            actions = world.action_manager
            self.action_manager = actions if whole else Actions(actions, rows, self)  # type: ignore[assignment]

    @property
    def episode_length_buf(self) -> Tensor:  # type: ignore[override]
        return self.world.episode_length_buf[self.rows]

    @property
    def common_step_counter(self) -> int:  # type: ignore[override]
        self.world.reads += 1
        return self.world.steps

    @property
    def _sim_step_counter(self) -> int:  # type: ignore[override]
        return self.common_step_counter * self.cfg.decimation

    @property
    def max_episode_length(self) -> int:
        return super().max_episode_length

    def close(self) -> None:
        """Do nothing: the simulation belongs to all environments."""


class PartView(EnvView):
    """Some environments of a block, with its managers as soon as it has them."""

    def __init__(self, block: Any, rows: slice) -> None:
        first = block.rows.start
        super().__init__(block.world, slice(first + rows.start, first + rows.stop), block.cfg)
        self._block, self._rows = block, rows
        self.event_manager = block.event_manager

    def __getattr__(self, name: str) -> Any:
        block = vars(self).get("_block")
        managers = ("command_manager", "termination_manager", "reward_manager")
        manager = vars(block).get(name) if block is not None and name in managers else None
        if manager is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return ManagerView(manager, self._rows)
