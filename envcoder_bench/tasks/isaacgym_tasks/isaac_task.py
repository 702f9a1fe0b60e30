"""Adapt a task of Isaac Gym code to the ``Task`` interface."""

from __future__ import annotations

import contextlib
import inspect
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Iterator, Mapping

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.tasks.base import EnvGroups, Field, Task
from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.checkpoint import restore_task, save_task
from envcoder_bench.tasks.isaacgym_tasks.draws import Draws
from envcoder_bench.tasks.isaacgym_tasks.driver import Driver, make_driver
from envcoder_bench.tasks.isaacgym_tasks.fairness import tell_unequal_beginnings
from envcoder_bench.tasks.isaacgym_tasks.importing import one_line
from envcoder_bench.tasks.isaacgym_tasks.making import as_dict, make_isaac
from envcoder_bench.tasks.isaacgym_tasks.mirror import Mirror
from envcoder_bench.tasks.isaacgym_tasks.randomizer import make_randomizer
from envcoder_bench.tasks.isaacgym_tasks.scene import Scene
from envcoder_bench.tasks.isaacgym_tasks.source import Source
from envcoder_bench.tasks.isaacgym_tasks.tensors import Place, Row

if TYPE_CHECKING:
    from envcoder_bench.sim.poses import PoseSource

ENV_BYTES = 160 * 1024  # approximate memory of one environment in the physics engine, without the task's tensors
_NUMBERED = re.compile(r"ind(ex|ic)|handle|ids?$")  # tensors of indices of actors and bodies in the whole simulation
SOLVED = "solved_before"  # key of the state for fitness functions that count once per episode


class IsaacTask(Task):
    """A task of Isaac Gym code. ``spec.py`` makes a subclass for each.

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
        with self._task_code(), self._draws.call("reset", None, True):  # some tasks make tensors when they observe
            self.driver.first()
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
        self._progress = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        with user_input():
            self._mirror = Mirror(self.isaac, self.keys, self.rows, num_envs, self.device)
        self._unmasked = tensors.Unmasked(self.isaac, self.rows, self.histories)
        self.state: dict[str, Tensor] = self._mirror.state
        self.state.update({key: x.clone() for key, x in self.scene.read().items()})
        self.state["reset_buf"] = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        if self.once:
            self.state[SOLVED] = torch.zeros(num_envs, device=self.device)
        found = tensors.constants_of(self.isaac, 0)
        self.constants = {key: found[key] for key in self.constant_names if key in found}
        self.constants["max_episode_length"] = torch.tensor(self.max_episode_length)
        self.default_state = {key: x.clone() for key, x in self.state.items() if key in self.scene.keys}
        self._first = self.get_state()
        everyone = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.attach(
            EnvGroups(
                seeds=everyone,
                lanes=torch.arange(num_envs, device=self.device),
                actions=torch.zeros(num_envs, self.default_action_dim, device=self.device),
                commands=everyone.bool(),
                initial_states=everyone.bool(),
                goals=everyone.bool(),
            )
        )
        self._begun: Tensor | None = None

    def _sync(self) -> None:
        """Update the state from the task and the scene."""
        self._mirror.sync()
        live = self.scene.read()
        tensors.copy_all([self.state[key] for key in live], list(live.values()))

    @contextlib.contextmanager
    def _task_code(self) -> Iterator[None]:
        """Convert any exception of the task's code to a UserError of one line."""
        try:
            yield
        except Exception as error:
            raise UserError(f"{self.source.address}: {one_line(error, self.source.file.parent)}") from error

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
        self._make_groups_alike()
        if self._randomizer is not None:
            self._randomizer.attach(groups.seeds, groups.lanes)

    def _make_groups_alike(self) -> None:
        """Copy what the task drew or placed at its construction from the first environment of each lane.

        Frictions, masses, origins and terrain levels of a group are then independent of other groups.
        """
        lanes = self._groups.lanes
        if bool((lanes == torch.arange(self.num_envs, device=self.device)).all()):
            return
        for place, row in self.rows.items():
            x = tensors.read(self.isaac, place)
            if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != self.num_envs * row.repeats:
                continue
            if tensors.writable(x) and (x.is_floating_point() or not _NUMBERED.search("".join(place))):
                own = x.reshape(self.num_envs, row.repeats, *x.shape[1:])[lanes.to(x.device)]
                x.copy_(own.reshape(x.shape))
        for name in self.histories:
            for x in getattr(self.isaac, name):
                x.copy_(x[lanes.to(x.device)])
        self.driver.place(lanes)
        self.scene.make_alike(lanes)
        self._first = self.get_state()

    def set_drive_mode(self, effort: Tensor) -> None:
        self._gym.effort = effort
        self._gym.targeted = bool((self._groups.commands & ~effort).any())
        self.scene.set_drives(self._groups.commands, effort)

    def restart(self) -> None:
        if self._randomizer is not None:
            self._randomizer.expire()
            everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
            self._randomize(everyone, torch.arange(self.num_envs, device=self.device))
        self._restore(self._first)

    # domain randomization

    def _randomize(self, mask: Tensor, env_ids: Tensor) -> None:
        """Randomize what is due at a reset of the environments ``env_ids``, where ``mask`` is True."""
        assert self._randomizer is not None
        with self._task_code():
            self._randomizer.refresh(self.step_count)
            for own in self._by_group(mask, env_ids):
                self._randomizer.randomize(own, self.step_count)

    def randomize_actions(self, actions: Tensor, rows: slice) -> Tensor:
        return self._with_noise("actions", actions, rows)

    def randomize_observations(self, obs: Tensor, rows: slice) -> Tensor:
        return self._with_noise("observations", obs, rows)

    def _with_noise(self, which: str, x: Tensor, rows: slice) -> Tensor:
        if self._randomizer is None:
            return x
        self._randomizer.refresh(self.step_count)
        return self._randomizer.add_noise(which, x, rows, self.step_count)

    # one control step

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        # unused: the action goes to the task's own pre_physics_step
        return torch.zeros(action.shape[0], self.num_dofs, dtype=action.dtype, device=action.device)

    def step(self, command: Tensor) -> None:
        self._gym.command = command if self._commanded else None
        width = min(self.default_action_dim or 0, self._groups.actions.shape[1])
        actions = torch.zeros(self.num_envs, self.default_action_dim or 0, device=self.device)
        actions[:, :width] = self._groups.actions[:, :width] * self._own_actions
        if self.once:
            self.state[SOLVED].copy_(torch.maximum(self.state[SOLVED], self._score(self._known(self.state))))
        self._gym.blown.zero_()  # type: ignore[union-attr]
        self._draws.begin_step(self.step_count)
        with self._task_code(), self.scene.own_properties.watched():
            self.driver.act(actions)
            ends = self.driver.judge(self._progress)
        self._progress += 1
        self._sync()
        self.state["reset_buf"].copy_(ends)
        torch.logical_or(self._gym.blown, self._not_finite(), out=self.unstable)  # type: ignore[arg-type]

    def _not_finite(self) -> Tensor:
        rows = [self.state[key] for key in ("root_states", "dof_pos", "dof_vel") if key in self.state]
        return ~torch.isfinite(torch.cat([self.isaac.rew_buf.unsqueeze(1), *rows], dim=1)).all(dim=1)

    # episodes

    def prepare_reset(self, mask: Tensor) -> None:
        """Begin episodes as the task does where ``mask`` is True, and set their rows of ``default_state``."""
        env_ids = mask.nonzero().flatten()
        self._begun = mask.clone()
        if not len(env_ids):
            return
        if self._randomizer is not None:
            self._randomize(mask, env_ids)
        self._unmasked.save()
        with self._task_code():
            for own in self._by_group(mask, env_ids):
                self._reset(own)
            self._draws.begin_step(-1 - self.step_count)
            with self._draws.call("observe", None, True):
                self.driver.observe()
        self._unmasked.restore(mask)
        self._progress.masked_fill_(mask, 0)
        self._sync()
        self.state["reset_buf"].masked_fill_(mask, 0)
        if self.once:
            self.state[SOLVED].masked_fill_(mask, 0.0)
        tensors.copy_all(list(self.default_state.values()), [self.state[key] for key in self.default_state])
        if not self._compared and len(env_ids) == self.num_envs:
            self._compared = True
            own = {key: self.state[key] for key in ("commands", "obs_buf", *self.scene.keys) if key in self.state}
            tell_unequal_beginnings(self.source.address, own, self._groups.seeds, self._groups.lanes)

    def _by_group(self, mask: Tensor, env_ids: Tensor) -> list[Tensor]:
        """Return the environments to reset in each call of the task's code.

        On a CPU a call has environments of one group, so that the code mixes no groups. On CUDA it has all: results
        are not bitwise reproducible there, and each call costs time.
        """
        if self.device.type != "cpu":
            return [env_ids]
        size = int(self._groups.lanes.max()) + 1
        found = torch.split(mask, size)
        return [own.nonzero().flatten() + k * size for k, own in enumerate(found) if bool(own.any())]

    def _reset(self, env_ids: Tensor) -> None:
        self._draws.begin_step(-1 - self.step_count)  # negative, so that draws differ from those of the step
        before = self.scene.get_state() if self.driver.advances and self.device.type == "cpu" else None
        with self._draws.call("reset", env_ids, True), self.scene.own_properties.watched():
            self.driver.reset(env_ids)
        if before is not None:
            self.scene.undo_others(env_ids, before)
            self._gym.changed()

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        if initial:
            if self._begun is None:
                self.prepare_reset(mask)
            self._begun = None
            own = mask & self._groups.initial_states
            if self._begins:
                self._overwrite("initial", own, lambda: self.scene.write(own, {**self.default_state, **initial}))
        if goal:
            for key in goal:
                if key not in self.goal_keys:
                    raise ValueError(f"{self.name} has no goal '{key}'{near_matches(key, self.goal_keys)}")
            own = mask & self._groups.goals
            if self._aims:
                self._overwrite("goal", own, lambda: self._write_goals(own, goal))

    def _overwrite(self, what: str, mask: Tensor, write: Callable[[], None]) -> None:
        """Overwrite the initial states of new episodes, and compute their observations again."""
        if not bool(mask.any()):
            return
        self._unmasked.save()
        write()
        with self._draws.call(f"observe {what}", mask.nonzero().flatten(), True):
            self.driver.observe()
        self._unmasked.restore(mask)
        self._sync()

    def _write_goals(self, mask: Tensor, goal: dict[str, Tensor]) -> None:
        """Set goals where ``mask`` is True."""
        for key, value in goal.items():
            buffer = self._mirror.row(self.keys[key])
            assert buffer is not None
            buffer.copy_(torch.where(mask.view(-1, *[1] * (buffer.dim() - 1)), value, buffer))

    # fitness

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        value = self._score(self._known(state))
        return value * (1.0 - state[SOLVED]) if self.once else value

    def _known(self, state: Mapping[str, Tensor]) -> dict[str, Any]:
        return {**self.constants, **state}

    def _score(self, known: Mapping[str, Any]) -> Tensor:
        if self.score is None:
            return torch.zeros_like(known["reset_buf"], dtype=torch.float32)
        function = type(self).score
        assert function is not None
        return function(**{name: known[name] for name in inspect.signature(function).parameters})

    # checkpoints

    def get_state(self) -> dict[str, Tensor]:
        saved = save_task(self.isaac)
        saved.update({f"sim.{key}": x for key, x in self.scene.get_state().items()})
        saved.update({f"own.{key}": x for key, x in self.scene.own_properties.get_state().items()})
        for kind, live in self._checkpointed().items():
            saved.update({f"{kind}.{key}": x.to("cpu", copy=True) for key, x in live.items()})
        if self._randomizer is not None:
            saved.update({f"random.{key}": x for key, x in self._randomizer.get_state().items()})
        return {**saved, "progress": self._progress.to("cpu", copy=True)}

    def set_state(self, state: dict[str, Tensor]) -> None:
        if self._randomizer is not None:  # first, because the scene computes poses from properties
            own = {key[len("random.") :]: x for key, x in state.items() if key.startswith("random.")}
            self._randomizer.set_state(own)
        self._restore(state)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state, except the randomization."""
        own = {key[len("own.") :]: x for key, x in state.items() if key.startswith("own.")}
        self.scene.own_properties.set_state(own)  # first, because the scene computes poses from properties
        self.scene.set_state({key[4:]: x for key, x in state.items() if key.startswith("sim.")})
        self._gym.changed()
        restore_task(self.isaac, state, self.device)
        for kind, live in self._checkpointed().items():
            for key, x in live.items():
                x.copy_(state[f"{kind}.{key}"])
        self._progress.copy_(state["progress"])

    def _checkpointed(self) -> dict[str, dict[str, Tensor]]:
        return {"state": self.state, "default": self.default_state}
