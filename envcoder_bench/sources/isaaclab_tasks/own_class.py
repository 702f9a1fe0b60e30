"""Environments of classes of their own that step, reset and observe by themselves, as LeggedLab's ``BaseEnv`` does.

Such a class begins episodes and observes inside ``step``. Here these two do nothing in a step, and are called when the
environment of this project asks for them.
"""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from isaaclab.managers import CommandTerm, ManagerBase
from isaaclab.utils.buffers import CircularBuffer, DelayBuffer
from torch import Tensor

from envcoder_bench.sources.isaaclab_tasks.direct import DirectWorld
from envcoder_bench.sources.isaaclab_tasks.task import ShiftedBuffer
from envcoder_bench.sources.isaaclab_tasks.world import SEED
from envcoder_bench.sources.term_tasks.checkpoint import held
from envcoder_bench.sources.term_tasks.words import command_in_words

_KEPT = (CommandTerm, ManagerBase, CircularBuffer, DelayBuffer)  # what keeps state besides tensors


class OwnWorld(DirectWorld):
    """The environment of such a class; see ``DirectWorld``."""

    shows_actions = False  # it keeps a buffer of them

    def make(self, cfg: Any, make: Any, num_envs: int, device: str) -> Any:
        cfg.scene.num_envs, cfg.scene.env_spacing, cfg.scene.seed, cfg.device = num_envs, 0.0, SEED, device
        for part in filter(None, (getattr(cfg, "commands", None), getattr(cfg.scene, "height_scanner", None))):
            part.debug_vis = False
        return make(cfg, True)  # True: no window is opened

    def learn(self) -> None:
        env = self.env
        self.decimation, self.longest = int(env.cfg.sim.decimation), int(env.max_episode_length)
        self.num_actions = int(env.num_actions)
        self._reset, self._observe = env.reset, env.compute_observations
        env.reset, env.compute_observations = lambda *_: None, lambda *_: (None, None)
        apply = env.event_manager.apply

        def apply_apart(mode: str, *args: Any, **kwargs: Any) -> None:
            if mode == "interval":
                self.intervals()
            else:
                apply(mode, *args, **kwargs)

        env.event_manager.apply = apply_apart
        if self.scene.terrain is not None:
            self.keep_levels()
        for _, _, (owner, _) in list(held(self, [])):
            if type(owner) is CircularBuffer:
                owner.__class__ = ShiftedBuffer

    def held(self) -> dict[str, Any]:
        kept = {name: x for name, x in vars(self.env).items() if isinstance(x, _KEPT)}
        return {"kept": kept, **super().held()}

    def sources(self) -> dict[str, Any]:
        term = getattr(self.env, "command_generator", None)
        command = {"command": (lambda: term.command, *command_in_words("command", term.cfg))} if term else {}
        return {**super().sources(), **command}

    @property
    def events(self) -> Any:
        return self.env.event_manager

    def drawing(self) -> list[Any]:
        return [self.env, *(x for x in vars(self.env).values() if isinstance(x, CommandTerm))]

    def first(self) -> None:
        pass

    def alike(self) -> frozenset[str]:
        lags = [key for key, _, _ in held(self, []) if key.endswith("_time_lags")]
        return super().alike() | {f"held/{key}" for key in lags}

    def count(self, steps: int) -> None:
        self.steps, self.env.sim_step_counter = steps, steps * self.decimation

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        env = self.env
        reward = env.step(action)[1]
        self.count(self.steps + 1)
        return reward, env.reset_buf & ~env.time_out_buf, env.time_out_buf

    def reset(self, ids: Tensor) -> None:
        # a class writes to the simulation here, for which delayed actuators of all environments take a step
        self.scene.write_data_to_sim = lambda: None
        try:
            self._reset(ids)
        finally:
            del self.scene.write_data_to_sim

    def observed(self) -> dict[str, Tensor]:
        actor, critic = self._observe()
        return {"policy": actor, "critic": critic}

    def after_resets(self) -> None:
        pass  # events of intervals are applied in a step
