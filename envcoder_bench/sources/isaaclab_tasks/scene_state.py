"""A scene of Isaac Lab, and its simulation, as checkpoints save and restore them."""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

import torch
from isaaclab.utils.buffers import TimestampedBuffer
from torch import Tensor

from envcoder_bench.sources.isaaclab_tasks.view import TERRAIN

_DERIVED = "_joint_acc"  # the buffer that does not follow from the state alone
_WRENCHES = ("permanent_wrench_composer", "instantaneous_wrench_composer")  # since 2.3.1

log = logging.getLogger(__name__)


@functools.cache
def note_device(kind: str) -> None:
    """Say once that steps on CUDA are not measured."""
    if kind == "cuda":
        log.warning("tasks of Isaac Lab were not measured on CUDA, with contacts: --device cpu is what the tests run")


class SceneState:
    """What the assets, the sensors and the terrain of a scene hold; ``checkpoint.py`` calls these methods.

    Attributes:
        scene, sim: Isaac Lab's.
        steps: control steps so far.
    """

    scene: Any
    sim: Any
    steps: int

    @property
    def assets(self) -> dict[str, Any]:
        return {**self.scene.articulations, **self.scene.rigid_objects}

    def held(self) -> dict[str, Any]:
        roots: dict[str, Any] = {}
        for name, asset in self.assets.items():
            data, view = vars(asset.data), asset.root_physx_view
            wrenches = {
                f"{wrench} {part}": getattr(getattr(asset, wrench), f"composed_{part}_as_torch")
                for wrench in _WRENCHES
                if hasattr(asset, wrench)
                for part in ("force", "torque")
            }
            roots[f"asset {name}"] = {
                "own": {**_tensors(vars(asset)), **wrenches},
                "values": {**_tensors(data), **({_DERIVED: data[_DERIVED].data} if _DERIVED in data else {})},
                "actuators": getattr(asset, "actuators", {}),
                "properties": {**view.masses.values, "friction": getattr(view, "friction", None)},
            }
        for name, sensor in self.scene.sensors.items():
            roots[f"sensor {name}"] = {"own": _tensors(vars(sensor)), "values": _tensors(vars(sensor._data))}
        if self.scene.terrain is not None:
            roots["terrain"] = {key: getattr(self.scene.terrain, key, None) for key in TERRAIN}
        return roots

    def take_failures(self, unstable: Tensor, overflows: Tensor) -> None:
        """Set where the physics failed in any physics step since the last call; count contacts dropped elsewhere."""
        physics = self.sim.running
        unstable.copy_(physics.failed)
        physics.failed.zero_()
        overflows.add_(physics.engine.take_overflows() & ~unstable)

    def get_simulation(self) -> dict[str, Tensor]:
        state = {f"sim/{name}": x for name, x in self.sim.running.get_state().items()}
        for name, asset in self.assets.items():
            wrenches = [getattr(asset, wrench)._active for wrench in _WRENCHES if hasattr(asset, wrench)]
            state[f"wrenches/{name}"] = torch.tensor([*wrenches, getattr(asset, "has_external_wrench", False)])
            # accelerations are divided by the difference of two times, whose last bits depend on both
            times = [asset.data._sim_timestamp, getattr(getattr(asset.data, _DERIVED, None), "timestamp", 0.0)]
            state[f"times/{name}"] = torch.tensor(times, dtype=torch.float64)
        return state

    def set_simulation(self, state: Mapping[str, Tensor]) -> None:
        prefix = "sim/"
        self.sim.running.set_state({key[len(prefix) :]: x for key, x in state.items() if key.startswith(prefix)})
        for name, asset in self.assets.items():
            *wrenches, external = state[f"wrenches/{name}"].tolist()
            for wrench, active in zip([x for x in _WRENCHES if hasattr(asset, x)], wrenches):
                getattr(asset, wrench)._active = active
            if hasattr(asset, "has_external_wrench"):
                asset.has_external_wrench = external
            time, derived = state[f"times/{name}"].tolist()
            asset.data._sim_timestamp = time
            for key, buffer in vars(asset.data).items():
                if isinstance(buffer, TimestampedBuffer):
                    buffer.timestamp = derived if key == _DERIVED else -1.0

    def count(self, steps: int) -> None:
        """Set the number of control steps so far, which curricula read."""
        self.steps = steps

    def sense(self) -> None:
        """Do nothing: sensors compute their data when they are read."""

    sensed = forget = sense


def _tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: x for name, x in values.items() if isinstance(x, Tensor) and not name.startswith("_ALL")}
