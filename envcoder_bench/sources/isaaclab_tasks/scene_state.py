"""A scene of Isaac Lab, and its simulation, as checkpoints save and restore them."""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from isaaclab.utils.buffers import TimestampedBuffer
from torch import Tensor

from envcoder_bench.sources.isaaclab_tasks.view import TERRAIN
from envcoder_bench.sources.term_tasks.world import first_levels
from isaaclab_mujoco.stage.waits import note_outdated

DERIVED = "_joint_acc"  # the buffer that does not follow from the state alone
_WRENCHES = ("permanent_wrench_composer", "instantaneous_wrench_composer")  # since 2.3.1


class SceneState:
    """What the assets, the sensors and the terrain of a scene hold; ``checkpoint.py`` calls these methods.

    Attributes:
        scene, sim: Isaac Lab's.
        steps: control steps so far.
        evaluates: whether policies are evaluated, in which environments stay on their levels of a terrain.
    """

    scene: Any
    sim: Any
    steps: int
    evaluates = False

    @property
    def assets(self) -> dict[str, Any]:
        return {**self.scene.articulations, **self.scene.rigid_objects}

    def held(self) -> dict[str, Any]:
        roots: dict[str, Any] = {}
        for name, asset in self.assets.items():
            data, view = vars(asset.data), asset.root_physx_view
            own, values = Attributes(asset), Attributes(asset.data)
            for wrench in (x for x in _WRENCHES if hasattr(asset, x)):
                for part in ("force", "torque"):
                    own.add(f"{wrench} {part}", getattr(asset, wrench), f"_composed_{part}_b_torch")
            if DERIVED in data:
                values.add(DERIVED, data[DERIVED], "data")
            roots[f"asset {name}"] = {
                "own": own,
                "values": values,
                "actuators": getattr(asset, "actuators", {}),
                "properties": {**view.masses.values, "friction": getattr(view, "friction", None)},
            }
        for name, sensor in self.scene.sensors.items():
            roots[f"sensor {name}"] = {"own": Attributes(sensor), "values": Attributes(sensor._data)}
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
            times = [asset.data._sim_timestamp, getattr(getattr(asset.data, DERIVED, None), "timestamp", 0.0)]
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
                    buffer.timestamp = derived if key == DERIVED else -1.0

        for sensor in self.scene.sensors.values():
            note_outdated(sensor, None)

    def keep_levels(self) -> None:
        """Let environments stay on their levels of a terrain in evaluations."""
        terrain = self.scene.terrain
        update = terrain.update_env_origins

        def update_env_origins(view: Any, *args: Any, **kwargs: Any) -> None:
            if not self.evaluates:
                update.__func__(view, *args, **kwargs)

        terrain.__class__ = type("Terrain", (type(terrain),), {"update_env_origins": update_env_origins})

    def place(self, seeds: Tensor, lanes: Tensor, evaluates: bool = False) -> None:
        """Give every environment its origin: the same for a lane of every group of a seed, whatever the other groups.

        On a generated terrain a lane has the type that it has in a simulation of one group. Its first level is drawn;
        where policies are evaluated, lanes are spread evenly over all levels and stay there.
        """
        self.sim.activate()
        self.evaluates, terrain, count = evaluates, self.scene.terrain, int(lanes.max()) + 1
        if terrain is None or terrain.terrain_origins is None:
            return
        origins = terrain.terrain_origins
        levels, columns = origins.shape[:2]
        most = levels if terrain.cfg.max_init_terrain_level is None else terrain.cfg.max_init_terrain_level + 1
        terrain.terrain_types.copy_(torch.div(lanes, count / columns, rounding_mode="floor"))
        terrain.terrain_levels.copy_(first_levels(levels, evaluates, seeds, lanes, most))
        terrain.env_origins.copy_(origins[terrain.terrain_levels, terrain.terrain_types])

    def sense(self) -> None:
        """Compute the poses of bodies that were written since; sensors compute their data when they are read."""
        self.sim.forward()

    def sensed(self) -> None:
        pass

    def forget(self) -> None:
        """Let data of assets be computed anew from the simulation when they are read."""
        for asset in self.assets.values():
            for key, buffer in vars(asset.data).items():
                if isinstance(buffer, TimestampedBuffer) and key != DERIVED:
                    buffer.timestamp = -1.0


class Attributes(dict[str, Tensor]):
    """The tensors that are attributes of an object; what is put here is set there."""

    def __init__(self, owner: Any) -> None:
        held = {name: x for name, x in vars(owner).items() if isinstance(x, Tensor) and not name.startswith("_ALL")}
        super().__init__(held)
        self._owners = {name: (owner, name) for name in held}

    def add(self, key: str, owner: Any, name: str) -> None:
        """Let the attribute ``name`` of another object be here as ``key``."""
        super().__setitem__(key, getattr(owner, name))
        self._owners[key] = owner, name

    def __setitem__(self, key: str, x: Tensor) -> None:
        super().__setitem__(key, x)
        setattr(*self._owners[key], x)
