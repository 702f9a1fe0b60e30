"""C MuJoCo with the interface of mjlab's ``Simulation``, for the CPU, where MuJoCo Warp is several times slower.

The state is float64 in MuJoCo's batch; mjlab reads and writes float32 tensors of it. What was not written keeps its
float64 value. A field is copied when it is read, and ``sensordata``, of which sensors keep views, after every call.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
from torch import Tensor

from mujoco_batches.physics.batch import collected, make_batch, step_batch, take_overflows

# fields that mjlab's code writes
WRITTEN = ("qpos", "qvel", "act", "ctrl", "xfrc_applied", "qfrc_applied", "qacc_warmstart", "mocap_pos", "mocap_quat")
_EAGER = ("sensordata",)  # fields of which views are kept
_INNER = {"geom_aabb": (2, 3), "cam_mat0": (3, 3)}  # shapes of the rows of fields that are flat in C
_MATRICES = ("xmat", "ximat", "geom_xmat", "site_xmat", "cam_xmat")


class NeedsWarp(AttributeError):
    """Raised where code reads what MuJoCo Warp alone has."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not available with MuJoCo on a CPU: set task.sim.backend=warp")


@functools.cache
def declared_shapes(kind: str) -> dict[str, tuple[Any, ...]]:
    """Return MuJoCo Warp's declared shapes of the fields of ``Model`` or ``Data``; ``*`` or ``nworld``: per world."""
    return {field.name: getattr(field.type, "shape", ()) for field in fields(getattr(mujoco_warp, kind))}


class BatchData:
    """MuJoCo's state and results as float32 tensors ``(num_envs, ...)``."""

    def __init__(self, batch: Any, num_envs: int, counting: Callable[[], AbstractContextManager[None]]) -> None:
        self.nworld = num_envs
        self._batch, self._bound, self._counting = batch, {}, counting
        self._mirrors: dict[str, Tensor] = {}
        self._current: set[str] = set()
        self._given: set[str] = set()  # fields that may have been written since the last push
        for name in _EAGER:
            getattr(self, name)

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("__") or name not in declared_shapes("Data"):
            raise AttributeError(f"mjData has no field {name!r}")
        if name not in self._bound:
            try:
                self._bound[name] = self._batch.bind(name)
            except (ValueError, KeyError, TypeError) as error:
                raise NeedsWarp(f"sim.data.{name}") from error
            shape = self._bound[name].shape
            shape = (*shape[:2], 3, 3) if name in _MATRICES else shape
            self._mirrors[name] = torch.zeros(shape, dtype=torch.bool if name == "eq_active" else torch.float32)
            # a field that was not bound before has no value of the last call
            if name not in WRITTEN:
                with self._counting():
                    self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_ACC)
        if name not in self._current:
            self._copy(name)
        self._given.add(name)
        return self._mirrors[name]

    def _copy(self, name: str) -> None:
        mirror = self._mirrors[name].numpy()
        np.copyto(mirror, self._bound[name].reshape(mirror.shape), casting="unsafe")
        self._current.add(name)

    def push(self) -> None:
        """Write what was changed in the tensors to the state."""
        for name in WRITTEN:
            if name in self._given:
                state, mirror = self._bound[name], self._mirrors[name].numpy()
                changed = state.astype(np.float32) != mirror
                if changed.any():
                    np.copyto(state, mirror, where=changed)
        self._given.clear()

    def stale(self) -> None:
        """Copy the fields again when they are read."""
        self._current.clear()
        for name in _EAGER:
            self._copy(name)


def _narrowed(x: np.ndarray) -> np.ndarray:
    """Return numbers as MuJoCo Warp has them: float32, or integers."""
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def _shaped(name: str, x: Tensor) -> Tensor:
    """Return a field with the shape that MuJoCo Warp declares."""
    return x.unflatten(-1, _INNER[name]) if name in _INNER else x


class BatchModel:
    """The model's fields as tensors; a field has a row per environment, which is its own only if it was expanded."""

    def __init__(self, batch: Any, mj_model: Any, num_envs: int) -> None:
        self._batch, self._mj_model, self._num_envs = batch, mj_model, num_envs
        self._tensors: dict[str, Tensor] = {}
        self._rows: dict[str, np.ndarray] = {}
        self._given: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self._mj_model, name):
            raise AttributeError(f"mjModel has no field {name!r}")
        if name not in self._tensors:
            value = getattr(self._mj_model, name)
            if not isinstance(value, np.ndarray):
                return value
            kind = torch.float32 if value.dtype.kind == "f" else None
            x = _shaped(name, torch.as_tensor(value.copy(), dtype=kind))
            per_world = declared_shapes("Model").get(name, ())[:1] == ("*",)
            self._tensors[name] = x.expand(self._num_envs, *x.shape) if per_world else x
        if name in self._rows:
            self._given.add(name)
        return self._tensors[name]

    def expand(self, names: tuple[str, ...]) -> None:
        """Give each environment its own values of some fields."""
        for name in names:
            if name not in self._rows:
                self._rows[name] = self._batch.expand(name)
                self._tensors[name] = _shaped(name, torch.from_numpy(_narrowed(self._rows[name]).copy()))

    def push(self) -> bool:
        """Write what was changed in the tensors to the batch's models; return whether anything was."""
        written = False
        for name in self._given:
            rows = self._rows[name]
            tensor = self._tensors[name].numpy().reshape(rows.shape)
            changed = _narrowed(rows) != tensor
            if changed.any():
                np.copyto(rows, tensor, where=changed)
                written = True
        self._given.clear()
        return written

    def pull(self) -> None:
        """Read the fields again after MuJoCo has changed them."""
        for name, rows in self._rows.items():
            self._tensors[name].copy_(_shaped(name, torch.from_numpy(_narrowed(rows))))

    def get_rows(self) -> dict[str, np.ndarray]:
        """Return the expanded fields ``(num_envs, ...)`` in float64, live."""
        self.push()
        return self._rows

    def set_rows(self, rows: Mapping[str, np.ndarray]) -> None:
        """Set expanded fields. Through the tensors, a number that float32 cannot tell from the present one stays."""
        for name, value in rows.items():
            self._rows[name][...] = value
        self._given.clear()
        self.pull()

    def restore(self) -> None:
        """Set the expanded fields of all environments to those of the model."""
        self.set_rows({name: getattr(self._mj_model, name) for name in self._rows})


class BatchSimulation:
    """The interface of mjlab's ``Simulation`` over MuJoCo's batch of simulations on a thread pool.

    Attributes:
        failed: ``(num_envs,)`` bool, environments whose simulation failed since it was cleared.
        warnings: number of MuJoCo's warnings in all environments, by text.
    """

    def __init__(
        self,
        num_envs: int,
        cfg: Any,
        model: Any = None,
        device: str = "cpu",
        *,
        spec: Any = None,
        variant_info: Any = None,
    ) -> None:
        if variant_info:
            raise NeedsWarp("a mesh that differs between environments")
        self.cfg, self.device, self.num_envs = cfg, device, num_envs
        self.mj_model = spec.compile() if model is None else model
        cfg.mujoco.apply(self.mj_model)
        self.warnings: Counter[str] = Counter()
        with self._counting():
            self.batch = make_batch(self.mj_model, num_envs)
            self.batch.forward()
        self.data = BatchData(self.batch, num_envs, self._counting)
        self.model = BatchModel(self.batch, self.mj_model, num_envs)
        self.expanded_fields: set[str] = set()
        self.per_world_default_fields: set[str] = set()
        self.failed = torch.zeros(num_envs, dtype=torch.bool)
        self._defaults: dict[str, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        raise NeedsWarp(f"sim.{name}") if name.startswith("wp_") else AttributeError(f"the simulation has no {name!r}")

    @property
    def default_model_fields(self) -> dict[str, Tensor]:
        return self._defaults

    def expand_model_fields(self, names: tuple[str, ...]) -> None:
        self.model.expand(names)
        self.expanded_fields.update(names)

    def get_default_field(self, name: str) -> Tensor:
        if name not in self._defaults:
            kind = getattr(self.model, name).dtype
            self._defaults[name] = torch.as_tensor(getattr(self.mj_model, name), dtype=kind).clone()
        return self._defaults[name]

    def recompute_constants(self, level: Any) -> None:
        del level  # mj_setConst computes all of them
        self.model.push()
        with self._counting():
            self.batch.set_const()
        self.model.pull()

    def step(self) -> None:
        self._push()
        with self._counting():
            failures = step_batch(self.batch)
        if len(failures):
            self.failed[torch.from_numpy(failures)] = True
        self.data.stale()

    def forward(self, ids: np.ndarray | None = None) -> None:
        self._push()
        with self._counting():
            self.batch.forward(ids=ids)
        self.data.stale()

    def reset(self, env_ids: Any = None) -> None:
        self._push()
        mask = getattr(env_ids, "mask", None)  # of indices that stand for a mask
        ids = env_ids if mask is None else np.flatnonzero(mask.numpy())
        with self._counting():
            self.batch.reset(ids=ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        self.data.stale()

    def take_overflows(self) -> Tensor:
        """Return where contacts or constraints were dropped since the last call: ``(num_envs,)`` bool."""
        return torch.from_numpy(take_overflows(self.batch))

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count the warnings of MuJoCo inside the block, which would print each of them."""
        with collected() as texts:
            yield
        self.warnings.update(texts)

    def _push(self) -> None:
        self.data.push()
        self.model.push()

    def cast(
        self, points: np.ndarray, rays: np.ndarray, groups: tuple[int, ...] | None, excluded: np.ndarray
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return distance ``(n, k)``, -1 for a miss, geom and normal ``(n, k, 3)`` of k rays in each environment.

        Args:
            points, rays: ``(n, k, 3)`` origins and directions.
            groups: the groups of geoms that rays hit; None for all.
            excluded: ``(k,)`` the body that each ray passes through, or -1.
        """
        chosen = None if groups is None else np.array([k in groups for k in range(6)], dtype=np.uint8)
        hits = self.batch.ray(
            points.astype(np.float64),
            rays.astype(np.float64),
            geomgroup=chosen,
            flg_static=True,
            bodyexclude=excluded.astype(np.int32)[None],
            normal=True,
        )
        dist, geom, normal = map(torch.from_numpy, hits)
        return dist, geom, normal
