"""Views of some environments of mjlab's objects: a scene, its entities and sensors, and managers.

Everything in ``entity.data`` derives from the arrays of the simulation, so an entity whose arrays are sliced is a real
``Entity``. Sensors compute their data for all environments, and a view slices the result.
"""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mjlab.actuator import Actuator
from mjlab.envs import ManagerBasedRlEnv
from mjlab.sim.sim_data import TorchArray, WarpBridge
from mjlab.utils.buffers import DelayBuffer
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation, declared_shapes

TERRAIN = ("env_origins", "terrain_levels", "terrain_types")  # tensors of a terrain with a row per environment


class NeedsAll(UserError):
    """Raised where code reads an object that has no view of some environments."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the task's code reads the term '{name}', which cannot be divided by candidates")


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


def rows_of(source: Any, rows: slice, num_envs: int, names: tuple[str, ...] = ()) -> Any:
    """Return a shallow copy of an object, whose tensors with a row per environment are views of ``rows``.

    ``names`` restricts it to these attributes.
    """
    result = copy.copy(source)
    for name, value in vars(source).items():
        per_env = isinstance(value, Tensor) and value.dim() and value.shape[0] == num_envs
        if per_env and (not names or name in names):
            object.__setattr__(result, name, value[rows])
    return result


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


class ManagerView:
    """Some environments of a manager: its tensors, and the results of ``get_command``."""

    def __init__(self, manager: Any, rows: slice) -> None:
        self._manager, self._rows = manager, rows

    def get_command(self, name: str) -> Tensor:
        return self._manager.get_command(name)[self._rows]

    def get_term(self, name: str) -> Any:
        term = self._manager.get_term(name)
        if isinstance(term, Tensor):
            return term[self._rows]
        raise NeedsAll(name)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._manager, name)
        return value[self._rows] if isinstance(value, Tensor) and value.dim() else value


def _live(source: Any, rows: slice, num_envs: int, other: Callable[[Any], Any]) -> Any:
    """Return an object of the same class that reads the present attributes of ``source``.

    Of tensors with a row per environment it has ``rows``, and writes into them; ``other`` replaces other values.
    """
    cls = type(source)

    def getter(self: Any, name: str) -> Any:
        if name.startswith("__") or (name not in vars(source) and hasattr(cls, name)):  # of the class: of the view
            return object.__getattribute__(self, name)
        value = getattr(source, name)
        per_env = isinstance(value, Tensor) and value.dim() and len(value) == num_envs
        if name.endswith("_ids"):  # indices, of as many joints as there are environments
            per_env = per_env and value.is_floating_point()
        return value[rows] if per_env else other(value)

    def setter(self: Any, name: str, value: Any) -> None:
        getattr(self, name)[:] = value

    return object.__new__(type(cls.__name__, (cls,), {"__getattribute__": getter, "__setattr__": setter}))


def _actuator_view(actuator: Any, rows: slice, num_envs: int) -> Any:
    """Return some environments of an actuator, whose gains and delays events change."""

    def other(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: other(x) for key, x in value.items()}
        return _live(value, rows, num_envs, other) if isinstance(value, (DelayBuffer, Actuator)) else value

    return _live(actuator, rows, num_envs, other)


class Commands:
    """The commands of all blocks, as action terms read them: ``env.command_manager``.

    Args:
        cfgs: their configs.

    Attributes:
        blocks: of the task; they come after the actions.
    """

    def __init__(self, cfgs: Mapping[str, Any] | None = None) -> None:
        self.blocks: Sequence[Any] = ()
        self._cfgs = cfgs or {}

    def get_command(self, name: str) -> Tensor:
        return self.joined(name, lambda manager: manager.get_command(name))

    def get_term(self, name: str) -> Any:
        """Return an object with the tensors of a term."""
        return _Command(self, name)

    def class_of(self, name: str) -> type:
        """Return the class of a term; before there are any, the one that its config says that it builds."""
        if not self.blocks and name in self._cfgs:
            build = type(self._cfgs[name]).build
            returned = build.__annotations__.get("return")
            cls = build.__globals__.get(returned) if isinstance(returned, str) else returned
            if isinstance(cls, type):
                return cls
        return self.joined(name, lambda manager: type(manager.get_term(name)))

    def joined(self, name: str, read: Callable[[Any], Any]) -> Any:
        """Return a copy of what ``read`` returns for each block: all rows of a tensor, and others of the first."""
        if not self.blocks:
            message = f"an action reads the command '{name}' while it is constructed"
            raise UserError(f"{message}, when there are no commands yet: read it in process_actions")
        values = [read(block.command_manager) for block in self.blocks]
        return torch.cat(values) if isinstance(values[0], Tensor) and values[0].dim() else values[0]


class _Command:
    def __init__(self, commands: Commands, name: str) -> None:
        vars(self).update(_commands=commands, _name=name)

    @property
    def __class__(self) -> Any:  # the term's, because code checks it
        return self._commands.class_of(self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._commands.joined(self._name, lambda manager: getattr(manager.get_term(self._name), name))

    def __setattr__(self, name: str, value: Any) -> None:
        raise UserError(f"an action sets '{name}' of the command '{self._name}', and it can only read commands")


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
        return _live(term, rows, env.world.num_envs, lambda value: views.get(id(value), value))


class EnvView(ManagerBasedRlEnv):
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


def device_of(env: Any) -> torch.device:
    """Return the torch device of an environment."""
    return torch.device(env.device)
