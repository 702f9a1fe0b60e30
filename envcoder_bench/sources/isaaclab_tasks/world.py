"""The scene, the simulation and the actions that all groups share."""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from isaaclab.managers import ActionManager
from isaaclab.scene import InteractiveScene
from isaaclab.sensors import ContactSensor, Imu
from isaaclab.sim import SimulationContext
from torch import Tensor

from envcoder_bench.core.stream import seeded
from envcoder_bench.sources.isaaclab_tasks.facts import Facts
from envcoder_bench.sources.isaaclab_tasks.scene_state import DERIVED, SceneState
from envcoder_bench.sources.isaaclab_tasks.view import EnvView, PartView
from envcoder_bench.sources.term_tasks import world
from envcoder_bench.sources.term_tasks.draws import Draws
from envcoder_bench.sources.term_tasks.graphs.parts import Call, Parts
from envcoder_bench.sources.term_tasks.views import Commands
from isaaclab_mujoco.stage.waits import NONE, note_outdated

SEED = 42  # of terrains and of whatever else is drawn while a scene is built


class World(SceneState, world.World):
    """One scene in ``num_envs`` environments, all at the origin of the world, or at one of a generated terrain.

    Attributes:
        scene, sim, action_manager: Isaac Lab's; ``commands`` are those of all blocks.
        steps: control steps so far, of all environments, which is also ``clock``.
        reads: how often Isaac Lab's code has read ``steps``.
        parts: runs the parts of a step.
        dialect, obs_sets, reads_rewards: see ``TermFacts``.
        has_read_rewards: whether code of the task or a candidate has read ``env.reward_manager``.
        episode_length_buf: ``(num_envs,)`` int64, control steps of each episode.
    """

    def __init__(self, facts: Facts, num_envs: int, device: str) -> None:
        self.dialect, self.device = facts.dialect, torch.device(device)
        self.obs_sets, self.reads_rewards, self.has_read_rewards = facts.obs_sets, facts.reads_rewards, False
        self.cfg = cfg = facts.env_cfg()
        cfg.scene.num_envs, cfg.scene.env_spacing, cfg.seed, cfg.sim.device = num_envs, 0.0, SEED, device
        self.num_envs, self.reads, self.steps, self.group_size = num_envs, 0, 0, num_envs
        with seeded(SEED, device):
            SimulationContext.clear_instance()
            self.sim = SimulationContext(cfg.sim)
            self.scene = InteractiveScene(cfg.scene)
            self.sim.reset()
            self.scene.update(dt=cfg.sim.dt)
        if self.scene.terrain is not None:
            self.keep_levels()
        self.warnings: dict[str, int] = {}  # the engine counts none
        self.parts = Parts(None, self, [])
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.env = EnvView(self, slice(0, num_envs), cfg)
        self.env.command_manager = self.commands = Commands(cfg.commands)  # type: ignore[assignment]
        self.env.action_manager = self.action_manager = ActionManager(cfg.actions, self.env)
        everyone = torch.arange(num_envs, device=device)
        self.draws = Draws(torch.zeros_like(everyone), everyone)
        self._clock = None if device == "cpu" else torch.zeros((), dtype=torch.int64, device=device)
        self._flags: dict[str, list[str | None]] = {}  # which data of sensors are outdated after a graph
        self._kept = [x for x in self.scene.sensors.values() if isinstance(x, (ContactSensor, Imu))]  # what was sensed

    # what blocks and checkpoints ask for

    def view(self, rows: slice, cfg: Any) -> EnvView:
        return EnvView(self, rows, cfg)

    def part(self, block: Any, rows: slice) -> EnvView:
        return PartView(block, rows)

    def held(self) -> dict[str, Any]:
        return {"actions": self.action_manager, "episode_length": {"buf": self.episode_length_buf}, **super().held()}

    # the simulation

    def place(self, seeds: Tensor, lanes: Tensor, evaluates: bool = False) -> None:
        self.draws = Draws(seeds, lanes, self.draws.step)
        super().place(seeds, lanes, evaluates)

    def advance(self, action: Tensor, stages: Iterable[tuple[str, list[Call], Call]]) -> None:
        """Simulate one control step with ``action`` ``(num_envs, width)``, and judge it by the last of each stage."""
        self.sim.activate()
        for k in range(self.cfg.decimation):
            self.parts(f"control {k}", functools.partial(self._control, k, action))
            self.sim.step(render=False)
            times = [asset.data._sim_timestamp for asset in self.assets.values()]
            self.parts("update", self._update)
            for asset, time in zip(self.assets.values(), times):
                if asset.data._sim_timestamp == time:  # a graph does not advance what is on the host
                    asset.data._sim_timestamp = time + self.cfg.sim.dt
                    if (derived := getattr(asset.data, DERIVED, None)) is not None:
                        derived.timestamp = asset.data._sim_timestamp
        self.count(self.steps + 1)
        self.judge(self._sense_all, stages)

    def _control(self, k: int, action: Tensor) -> None:
        with self.drawing(f"actions/{k}"):
            if k == 0:
                self.action_manager.process_action(action)
            self.action_manager.apply_action()
            self.scene.write_data_to_sim()

    def _update(self) -> None:
        self.scene.update(dt=self.cfg.sim.dt)

    def _sense_all(self) -> None:
        for sensor in self._kept:
            _ = sensor.data  # computed in each step, whether or not a candidate reads it
        self.episode_length_buf.add_(1)

    # graphs

    def capturing(self, name: str) -> None:
        """Prepare the capture of a part: it computes what it reads."""
        self._flags.pop(name, None)
        self.forget()

    def replayed(self, name: str) -> None:
        """Set on the host what a part that was captured, or replayed, has changed."""
        sensors = list(self.scene.sensors.values())
        flags = self._flags.setdefault(name, [getattr(sensor, "_outdated", None) for sensor in sensors])
        for sensor, which in zip(sensors, flags):
            note_outdated(sensor, which)
        self.forget()
        if name in ("begin", "command"):  # events have set states
            self.sim.running.stale = True

    def reset(self, mask: Tensor) -> None:
        """Do nothing: the scene's reset, and events, begin the episodes."""

    def reset_scene(self, mask: Tensor) -> None:
        super().reset_scene(mask)
        for sensor in self._kept:
            sensor._is_outdated.masked_fill_(mask, False)  # zero until the next step, not the old episode's data
            note_outdated(sensor, NONE)

    def begun(self, mask: Tensor) -> None:
        """Do nothing: commands of actuators are written in each step."""
