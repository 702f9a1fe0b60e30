"""Construct a task of Isaac Gym code with its state, and arrange its environments in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from envcoder_bench.core.errors import user_input
from envcoder_bench.tasks.base import EnvGroups, Field, Task
from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.checkpoint import Checkpoint
from envcoder_bench.tasks.isaacgym_tasks.draws import Draws
from envcoder_bench.tasks.isaacgym_tasks.driver import Driver, make_driver
from envcoder_bench.tasks.isaacgym_tasks.groups import make_groups_alike, one_group
from envcoder_bench.tasks.isaacgym_tasks.making import as_dict, make_isaac
from envcoder_bench.tasks.isaacgym_tasks.mirror import Mirror
from envcoder_bench.tasks.isaacgym_tasks.randomizer import make_randomizer
from envcoder_bench.tasks.isaacgym_tasks.resets import Resets
from envcoder_bench.tasks.isaacgym_tasks.scene import Scene
from envcoder_bench.tasks.isaacgym_tasks.scoring import Scoring
from envcoder_bench.tasks.isaacgym_tasks.source import Source
from envcoder_bench.tasks.isaacgym_tasks.tensors import Place, Row

if TYPE_CHECKING:
    from envcoder_bench.sim.base import PoseSource

ENV_BYTES = 160 * 1024  # approximate memory of one environment in the physics engine, without the task's tensors


class IsaacBase(Task):
    """A task of Isaac Gym code without its steps and episodes: its simulation, its state and its groups.

    Attributes:
        source: the task's class and config.
        keys: keys of the state that are tensors of the task, and their places.
        rows: all tensors of the task that have rows for each environment.
        histories: its lists and deques of such tensors.
        score: the fitness of one step, called with the keys of the state that its parameters name.
        once: whether an episode's fitness is 1 if ``score`` was ever above 0.
        config_keys, ignored_keys, only: of its YAML, as in ``SimTask``.
    """

    source: ClassVar[Source]
    keys: ClassVar[dict[str, Place]]
    rows: ClassVar[dict[Place, Row]]
    histories: ClassVar[tuple[str, ...]] = ()
    constant_names: ClassVar[tuple[str, ...]]
    score: ClassVar[Callable[..., Tensor] | None] = None
    once: ClassVar[bool] = False
    regroups = False
    fields: dict[str, Field]
    config_keys: tuple[str, ...] = ()
    ignored_keys: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, str]] = {}

    def __init__(self, cfg: Mapping[str, Any], num_envs: int, device: str) -> None:
        self.cfg = as_dict(cfg)
        with user_input():  # the config may have been overridden
            self.isaac, self._gym = make_isaac(self.source, cfg, num_envs, device)
        self.num_envs, self.device = num_envs, torch.device(self.isaac.device)
        self._draws = Draws(num_envs, self.device)
        self._draws.wrap(self.isaac)
        self.driver: Driver = make_driver(self.isaac, self._gym)
        with self.source.errors_of_code(), self._draws.call("reset", None, True):
            self.driver.first()  # here, because some tasks make tensors when they observe
            if not all(tensors.fits(self.isaac, place, self.rows[place], num_envs) for place in self.keys.values()):
                self.driver.settle()  # some replace tensors by others of another shape in a step
        self.scene = Scene(self._gym, self.isaac.sim, num_envs)
        with user_input():
            self._randomizer = make_randomizer(self.cfg, self.isaac, self._gym, self.scene, self.driver.repeats)
        self.randomizes = self._randomizer is not None
        self.num_dofs, self.dt = self.scene.num_dofs, self.driver.dt
        self.dof_names, self.body_names = self.scene.dof_names, self.scene.body_names
        self.sim = SimpleNamespace(**self.scene.limits)
        self.substeps = int(getattr(self.isaac.sim_params, "substeps", 1))
        self.max_episode_length = self.driver.max_episode_length
        self.clip_actions, self.clip_observations = self.driver.clip_actions, self.driver.clip_observations
        self.default_action_dim = self.driver.num_actions
        self.object_keys = tuple(self.scene.objects)
        self.refusals = self.scene.refusals

        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self.timed_out = self.driver.timed_out
        self._gym.blown = torch.zeros_like(self.unstable)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=self.device)
        self.engine_warnings: dict[str, int] = {}
        self._progress: Tensor = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        with user_input():
            self._mirror = Mirror(self.isaac, self.keys, self.rows, num_envs, self.device)
        unmasked = tensors.Unmasked(self.isaac, self.rows, self.histories)
        self._resets = Resets(self.source, self.driver, self.scene, self._draws, unmasked, self._randomizer)
        self.state: dict[str, Tensor] = self._mirror.state
        self.state.update({key: x.clone() for key, x in self.scene.read().items()})
        self.state["reset_buf"] = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        found = tensors.constants_of(self.isaac, 0)
        self.constants = {key: found[key] for key in self.constant_names if key in found}
        self.constants["max_episode_length"] = torch.tensor(self.max_episode_length)
        self._scoring = Scoring(type(self).score, self.once, self.state, self.constants)
        self.default_state = {key: x.clone() for key, x in self.state.items() if key in self.scene.keys}
        live = {"state": self.state, "default": self.default_state}
        self._checkpoint = Checkpoint(self.isaac, self._gym, self.scene, self._randomizer, live, self._progress)
        self._first = self.get_state()
        self.attach(one_group(num_envs, self.driver.num_actions, self.device))
        self._begun: Tensor | None = None

    def _sync(self) -> None:
        """Update the state from the task and the scene."""
        self._mirror.sync()
        live = self.scene.read()
        tensors.copy_all([self.state[key] for key in live], list(live.values()))

    @property
    def bytes_per_env(self) -> int:
        own = {x.untyped_storage().data_ptr(): x for _, x in tensors.tensors_of(self.isaac)}
        return ENV_BYTES + 3 * sum(x.untyped_storage().nbytes() for x in own.values()) // self.num_envs

    def pose_source(self) -> PoseSource | None:
        source = getattr(getattr(self.isaac.sim, "engine", None), "pose_source", None)
        return None if source is None else source()

    # groups

    def attach(self, groups: EnvGroups) -> None:
        self._groups = groups
        self._draws.seeds, self._draws.lanes = groups.seeds, groups.lanes
        self._compared = False
        self._gym.commanded = groups.commands
        self._own_actions = ~groups.commands.unsqueeze(1)
        # asked once here, because each step would wait for the device
        self._commanded, self._begins, self._aims = (
            bool(x.any()) for x in (groups.commands, groups.initial_states, groups.goals)
        )
        if self._randomizer is not None:
            self._randomizer.undo()
        if make_groups_alike(self.isaac, self.rows, self.histories, self.driver, self.scene, groups.lanes):
            self._first = self.get_state()
        if self._randomizer is not None:
            self._randomizer.attach(groups.seeds, groups.lanes)

    def set_drive_mode(self, effort: Tensor) -> None:
        self._gym.effort = effort
        self._gym.targeted = bool((self._groups.commands & ~effort).any())
        self.scene.set_drives(self._groups.commands, effort)

    # checkpoints

    def get_state(self) -> dict[str, Tensor]:
        return self._checkpoint.get_state()

    def set_state(self, state: dict[str, Tensor]) -> None:
        self._checkpoint.set_state(state)
