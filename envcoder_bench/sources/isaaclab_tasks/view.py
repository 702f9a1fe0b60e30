"""Views of some environments of Isaac Lab's objects: scenes, assets, their data, sensors and environments.

Data are computed for all environments, and a view slices them. What is written through a view goes to the object of
all environments, with plain indices.
"""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from isaaclab.envs import ManagerBasedRLEnv
from torch import Tensor

from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes, plain_indices
from envcoder_bench.sources.term_tasks.views import ManagerView, View, live_rows, rows_of

TERRAIN = ("env_origins", "terrain_levels", "terrain_types")  # tensors of a terrain with a row per environment
_WRENCHES = ("set_external_force_and_torque", "set_forces_and_torques")
_WRITERS = (
    *(f"write_{x}_{part}_to_sim" for x in ("root", "root_link", "root_com") for part in ("pose", "velocity", "state")),
    *(f"write_joint_{part}_to_sim" for part in ("state", "position", "velocity")),
    *(f"set_joint_{part}_target" for part in ("position", "velocity", "effort")),
)
_COUNTS = ("num_instances", "num_envs", "_num_envs", "count")
_PLAIN = ("builtins", "torch", "numpy", "warp")


class Rows(View):
    """Some environments of an object: an asset, its data or view of PhysX, an actuator, a sensor.

    Args:
        source: the object of all ``num_envs`` environments.
    """

    def __init__(self, source: Any, rows: slice, num_envs: int) -> None:
        vars(self).update(_source=source, _rows=rows, _n=num_envs)

    @property
    def __class__(self) -> Any:  # code checks it
        return type(self._source)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        rows = self._rows
        if name in _COUNTS:
            return rows.stop - rows.start
        if name.startswith("_ALL") and name.endswith("INDICES"):
            return torch.arange(rows.stop - rows.start, device=_device_of(self._source))
        with plain_indices():  # a sensor may compute its data now
            value = getattr(self._source, name)
        return self._view(value, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(self._source, name, None), Tensor) and isinstance(value, Tensor):
            getattr(self, name)[:] = value
        else:
            setattr(self._source, name, value)

    def _view(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Tensor):
            is_index = not value.is_floating_point() and ("ind" in name or name.endswith("ids"))
            return value if is_index or not value.dim() or len(value) != self._n else value[self._rows]
        if isinstance(value, (MethodType, FunctionType)):
            return functools.partial(self._call, value)
        if isinstance(value, dict):
            return {key: self._view(x) for key, x in value.items()}
        module = type(value).__module__.partition(".")[0]
        holds = hasattr(value, "__dict__") and module not in _PLAIN and not callable(value)
        return Rows(value, self._rows, self._n) if holds and name not in ("cfg", "_physics_sim_view") else value

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the object of all environments."""
        signature = _signature(getattr(method, "__func__", method))
        given = signature.bind(*([method.__self__] if isinstance(method, MethodType) else []), *args, **kwargs)
        ids = given.arguments.get("env_ids")
        if isinstance(ids, EnvIds) and (ids.is_cuda or not FixedShapes.asks) and _masks(method, given.arguments):
            return self._call_masked(getattr(method, "__func__", method), given, ids)
        with plain_indices():
            if "env_ids" in signature.parameters and not self._choose(given.arguments):
                return None
            if "indices" in signature.parameters:
                self._fill(given.arguments)
            return self._view(getattr(method, "__func__", method)(*given.args, **given.kwargs))

    def _call_masked(self, function: Callable[..., Any], given: inspect.BoundArguments, ids: EnvIds) -> None:
        """Call a method with a mask of all environments, which waits for nothing."""
        rows, count = self._rows, self._rows.stop - self._rows.start
        for key, x in given.arguments.items() if count < self._n else ():
            if key != "env_ids" and isinstance(x, Tensor) and x.dim() and len(x) == count:
                given.arguments[key] = _placed(x, rows, self._n)
        mask = ids.mask if count == self._n else _placed(ids.mask, rows, self._n)
        given.arguments["env_ids"] = EnvIds.of(mask)
        with FixedShapes(self._n, function.__name__):
            (_set_wrench if function.__name__ in _WRENCHES else function)(**given.arguments)

    def _choose(self, arguments: dict[str, Any]) -> int:
        """Replace ``env_ids`` by indices among all environments, and arguments by the rows of these; return how many.

        Other indices than an ``EnvIds`` come with arguments that have a row for each of them.
        """
        ids, count = arguments.get("env_ids"), self._rows.stop - self._rows.start
        if isinstance(ids, EnvIds):
            own = _meant(ids)
            for key, x in arguments.items():
                if key != "env_ids" and isinstance(x, Tensor) and x.dim() and len(x) == count:
                    arguments[key] = x[own]
        else:
            device = _device_of(self._source)
            own = torch.arange(count, device=device)
            if ids is not None:
                own = own[ids] if isinstance(ids, slice) else torch.as_tensor(ids, dtype=torch.long, device=device)
        arguments["env_ids"] = own + self._rows.start
        return len(own)

    def _fill(self, arguments: dict[str, Any]) -> None:
        """Replace ``indices``, and data that have a row for each environment of the view, by those of all."""
        ids, rows = arguments.get("indices"), self._rows
        own = _meant(ids) if isinstance(ids, EnvIds) else ids
        own = torch.arange(rows.stop - rows.start, device=_device_of(self._source)) if own is None else own
        for key, x in arguments.items():
            if key not in ("self", "indices") and isinstance(x, Tensor) and x.dim():
                whole = x.new_zeros((self._n, *x.shape[1:]))
                whole[rows] = x
                arguments[key] = whole
        arguments["indices"] = own.long() + rows.start


def _placed(x: Tensor, rows: slice, n: int) -> Tensor:
    """Return a tensor with ``n`` rows, of which ``rows`` are those of x, and the others 0."""
    whole = x.new_zeros((n, *x.shape[1:]))
    whole[rows] = x
    return whole


def _set_wrench(self: Any, forces: Tensor, torques: Tensor, env_ids: EnvIds, body_ids: Any = None, **_: Any) -> None:
    """Set external forces and torques where a mask is True; ``self`` is an asset or its composer of wrenches."""
    composer, mask = getattr(self, "permanent_wrench_composer", self), env_ids.mask.view(-1, 1, 1)
    composer._active, bodies = True, slice(None) if body_ids is None else body_ids
    for held, x in ((composer.composed_force_as_torch, forces), (composer.composed_torque_as_torch, torques)):
        held[:, bodies] = torch.where(mask, x, held[:, bodies])


def _masks(method: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether a method can write where a mask of the environments is True; others need the indices."""
    name = getattr(method, "__name__", "")
    if name not in _WRENCHES:
        return name in _WRITERS
    others = {key for key, x in arguments.items() if x is not None and x is not False}
    has_composer = hasattr(arguments.get("self"), "permanent_wrench_composer") or name == _WRENCHES[1]  # since 2.3.1
    return has_composer and others <= {"self", "forces", "torques", "env_ids", "body_ids"}


@functools.lru_cache(maxsize=512)
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def _device_of(source: Any) -> Any:
    """Return the device of an asset, a sensor, an actuator, or a view of PhysX."""
    owner = getattr(source, "physics", source)
    return getattr(owner, "device", None) or getattr(owner, "_device", "cpu")


def _meant(ids: EnvIds) -> Tensor:
    if ids.is_cuda:
        with plain_indices():
            return ids.mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(ids.mask.numpy()))


class SceneView(View):
    """Some environments of a scene."""

    def __init__(self, scene: Any, rows: slice) -> None:
        self._scene, self._rows, self.num_envs = scene, rows, rows.stop - rows.start
        n, terrain = scene.num_envs, scene.terrain
        self.terrain = None if terrain is None else rows_of(terrain, rows, n, TERRAIN)
        held = ("articulations", "rigid_objects", "rigid_object_collections", "sensors")
        for kind in held:
            views = {name: Rows(x, rows, n) for name, x in getattr(scene, kind, {}).items()}
            setattr(self, kind, views)
        self._views: dict[str, Any] = {name: x for kind in held for name, x in getattr(self, kind).items()}
        if terrain is not None:
            self._views["terrain"] = self.terrain

    def __getitem__(self, name: str) -> Any:
        return self._views[name] if name in self._views else self._scene[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)

    @property
    def env_origins(self) -> Tensor:
        return self._scene.env_origins[self._rows]


class Actions(ManagerView):
    """Some environments of the action manager."""

    def __init__(self, manager: Any, rows: slice, num_envs: int) -> None:
        super().__init__(manager, rows)
        self._num_envs = num_envs

    def get_term(self, name: str) -> Any:
        """Return a term of the same class, whose tensors are those of the environments."""
        return live_rows(self._manager.get_term(name), self._rows, self._num_envs, lambda value: value)


class EnvView(View, ManagerBasedRLEnv):
    """Some environments of the shared simulation, as Isaac Lab's terms see them: a ``ManagerBasedRLEnv``.

    Args:
        world: the scene, the simulation and the actions of all environments.
        rows: the environments.
        cfg: the config of these environments.
    """

    def __init__(self, world: Any, rows: slice, cfg: Any) -> None:
        self.world, self.rows, self.cfg = world, rows, cfg
        self.sim, self.scene = world.sim, SceneView(world.scene, rows)  # type: ignore[assignment]
        self.extras: dict[str, Any] = {"log": {}}
        self.obs_buf, self.render_mode, self._is_closed = {}, None, True
        if hasattr(world, "action_manager"):
            self.action_manager = Actions(world.action_manager, rows, world.num_envs)  # type: ignore[assignment]

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
    def reset_terminated(self) -> Tensor:  # type: ignore[override]
        return self.termination_manager.terminated

    @property
    def reset_time_outs(self) -> Tensor:  # type: ignore[override]
        return self.termination_manager.time_outs

    @property
    def reset_buf(self) -> Tensor:  # type: ignore[override]
        return self.termination_manager.dones

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
