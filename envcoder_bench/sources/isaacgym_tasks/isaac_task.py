"""Adapt a task of Isaac Gym code to the ``Task`` interface: its construction, steps, episodes and fitness."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import user_input
from envcoder_bench.core.settings import plain
from envcoder_bench.sim.base import Robot
from envcoder_bench.sources.isaacgym_tasks import tensors
from envcoder_bench.sources.isaacgym_tasks.draws import Draws
from envcoder_bench.sources.isaacgym_tasks.driver import TERMS, Driver, Resets, make_driver
from envcoder_bench.sources.isaacgym_tasks.fitness import Fitness
from envcoder_bench.sources.isaacgym_tasks.probe import Facts
from envcoder_bench.sources.isaacgym_tasks.randomizer import make_randomizer
from envcoder_bench.sources.isaacgym_tasks.scene import Scene
from envcoder_bench.sources.isaacgym_tasks.source import Source, make_isaac
from envcoder_bench.sources.isaacgym_tasks.tensors import Mirror
from envcoder_bench.tasks.base import EnvGroups, Field, Task
from envcoder_bench.tasks.sim_task import MAX_EPISODE_LENGTH

if TYPE_CHECKING:
    from envcoder_bench.sources.isaacgym_tasks.robot import IsaacRobot
    from mujoco_batches.physics.live_tensors import PoseSource

log = logging.getLogger(__name__)
SOLVED = "solved_before"  # key of the state for fitness functions that count once per episode
ENV_BYTES = 160 * 1024  # approximate memory of one environment in another physics engine, without the task's tensors
TOLERANCE = 1e-4  # rounding may depend on an environment's place in a tensor
_told: set[str] = set()  # addresses of tasks whose unequal beginnings were logged


class IsaacTask(Task):
    """A task of Isaac Gym code.

    Args:
        source: the task's class and config.
        fitness: None for a fitness of 0.
        facts: its properties with this config.
        cfg: its config.

    Attributes:
        keys: keys of the state that are tensors of the task, and their slots.
        rows: all tensors of the task that have rows for each environment.
        histories: its lists and deques of such tensors.
    """

    regroups = False
    fitness_meaning = ""

    def __init__(
        self, source: Source, fitness: Fitness | None, facts: Facts, cfg: Mapping[str, Any], num_envs: int, device: str
    ) -> None:
        self.source, self.name, self.cfg = source, source.name, plain(cfg)
        self._take_facts(facts, fitness)
        with user_input():  # the config may have been overridden
            self.isaac, self._gym = make_isaac(self.source, cfg, num_envs, device)
        self.num_envs, self.device = num_envs, torch.device(self.isaac.device)
        # the task's own code: its random numbers, and the methods that are driven
        self._draws = Draws(num_envs, self.device)
        self._draws.wrap(self.isaac)
        self.driver: Driver = make_driver(self.isaac, self._gym)
        if not any(slot[0] == TERMS for slot in self.keys.values()):
            self.driver.terms.drop()
        with self.source.running_code(), self._draws.call("reset", None, True):
            self.driver.first()  # here, because some tasks make tensors when they observe
            if not all(tensors.fits(self.isaac, slot, self.rows[slot], num_envs) for slot in self.keys.values()):
                self.driver.settle()  # some replace tensors by others of another shape in a step
        self.scene = Scene(self._gym, self.isaac.sim, num_envs)
        with user_input():
            self._randomizer = make_randomizer(self.cfg, self.isaac, self._gym, self.scene, self.driver.repeats)
        self._take_properties()
        # what the environment reads after each step
        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self.timed_out = self.driver.timed_out
        self._gym.blown = torch.zeros_like(self.unstable)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=self.device)
        self.engine_warnings: dict[str, int] = {}
        self._progress: Tensor = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        with user_input():
            # the state: the task's tensors, and the poses of its actors
            self._mirror = Mirror(self.isaac, self.keys, self.rows, num_envs, self.device)
        unmasked = tensors.Unmasked(self.isaac, self.rows, self.histories)
        self._resets = Resets(self.source, self.driver, self.scene, self._draws, unmasked, self._randomizer)
        self.state: dict[str, Tensor] = self._mirror.state
        self.state.update({key: x.clone() for key, x in self.scene.read().items()})
        self._watch_moments()
        self.state["reset_buf"] = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        constants = tensors.constants_of(self.isaac, 0)
        self.constants = {key: constants[key] for key in facts.constant_names if key in constants}
        self.constants["max_episode_length"] = torch.tensor(self.max_episode_length)
        # fitness, and what a checkpoint holds
        self._scoring = Scoring(fitness, self.state, self.constants)
        self.default_state = {key: x.clone() for key, x in self.state.items() if key in self.scene.keys}
        self._live = {"state": self.state, "default": self.default_state}
        self._first = self.get_state()
        self.attach(EnvGroups.alone(num_envs, torch.zeros(num_envs, self.driver.num_actions, device=self.device)))
        self._begun: Tensor | None = None
        self._robot: IsaacRobot | None = None
        self._commanded: Tensor | None = None

    def _take_facts(self, facts: Facts, fitness: Fitness | None) -> None:
        """Set what is known of the task before it is constructed."""
        self.keys, self.rows, self.histories = facts.keys, facts.rows, facts.histories
        self.goal_keys, self.fields = facts.goal_keys, dict(facts.fields)
        if fitness is not None:
            self.fitness_meaning = fitness.meaning
            self.fitness_reduction = "sum" if fitness.once or fitness.summed else "mean"
        if fitness is not None and fitness.once:
            self.fields[SOLVED] = Field((), "-", "1 where the episode has been solved before this step")
        self.fields["max_episode_length"] = MAX_EPISODE_LENGTH

    def _watch_moments(self) -> None:
        """Keep what the task's own observation read in the last step, without what the step returns."""
        returned = self.driver.moments.results
        self._results = [key for key, slot in self.keys.items() if slot[0] == TERMS or slot[0] in returned]
        self._observed = {key: x.clone() for key, x in self._live_tensors().items() if key not in self._results}
        self._begun_since: Tensor | None = None  # environments whose episode began since the step
        self.driver.moments.watch(self._sync, self._note_observed)

    def _take_properties(self) -> None:
        """Set what a task says of itself, from the simulation's actors and the task's code."""
        scene, driver = self.scene, self.driver
        self.randomizes = self._randomizer is not None
        self.num_dofs, self.dt = scene.num_dofs, driver.dt
        self.dof_names, self.body_names = scene.dof_names, scene.body_names
        self.sim = SimpleNamespace(**scene.limits, drive_gains=scene.drive_gains, joint_facts=scene.joint_facts)
        self.substeps = int(getattr(self.isaac.sim_params, "substeps", 1))
        self.max_episode_length = driver.max_episode_length
        self.clip_actions, self.clip_observations = driver.clip_actions, driver.clip_observations
        self.default_action_dim = driver.num_actions
        self.object_keys = tuple(scene.objects)
        self.refusals = scene.refusals

    def _sync(self) -> None:
        """Update the state from the task and the scene."""
        self._mirror.sync()
        live = self.scene.read()
        tensors.copy_all([self.state[key] for key in live], list(live.values()))

    def _note_observed(self) -> None:
        """Copy what the task and the scene are now to ``_observed``."""
        live = self._live_tensors()
        keys = [key for key in self._observed if key in live]
        tensors.copy_all([self._observed[key] for key in keys], [live[key] for key in keys])

    def _live_tensors(self) -> dict[str, Tensor]:
        return {**self._mirror.live(), **self.scene.read()}

    @property
    def bytes_per_env(self) -> int:
        storages = {x.untyped_storage().data_ptr(): x for _, x in tensors.tensors_of(self.isaac)}
        engine = getattr(self.isaac.sim, "engine", None)
        of_engine = ENV_BYTES if engine is None else engine.bytes_per_env
        return of_engine + 4 * sum(x.untyped_storage().nbytes() for x in storages.values()) // self.num_envs

    def pose_source(self) -> PoseSource | None:
        source = getattr(getattr(self.isaac.sim, "engine", None), "pose_source", None)
        return None if source is None else source()

    def robot(self) -> Robot | None:
        actor = self.scene.robot
        if actor is None or getattr(self.isaac.sim, "engine", None) is None:
            return None
        from envcoder_bench.sources.isaacgym_tasks.robot import IsaacRobot  # it imports MuJoCo

        self._robot = robot = IsaacRobot(self.isaac, self.driver, self.scene, actor, self._begin_anew)
        self.driver.moments.observing = self._observing
        return robot

    def _observing(self) -> AbstractContextManager[None]:
        """Return the context of the task's own observation: commands that are set, and sensors that err."""
        if self._commanded is not None:
            width = self._commanded.shape[1]
            self.isaac.commands[:, :width] = self._commanded
            self.isaac.commands[:, 3:] = 0.0  # the heading
        return nullcontext() if self._robot is None else self._robot.erring(self._groups.actions)

    # velocity commands, of tasks as in legged_gym and IsaacGymEnvs' Anymal

    def velocity_ranges(self) -> dict[str, float]:
        isaac, commands = self.isaac, getattr(self.isaac, "commands", None)
        if not isinstance(commands, Tensor) or commands.dim() != 2 or commands.shape[1] not in (3, 4):
            return {}
        ranges = getattr(isaac, "command_ranges", None)
        names = {"x": "lin_vel_x", "y": "lin_vel_y", "yaw": "ang_vel_yaw"}
        of_axis = {axis: getattr(isaac, f"command_{axis}_range", None) for axis in names}
        if isinstance(ranges, Mapping):
            of_axis = {axis: ranges.get(name) for axis, name in names.items()}
        heading = getattr(getattr(getattr(isaac, "cfg", None), "commands", None), "heading_command", True)
        if commands.shape[1] == 4 and heading:  # the yaw rate follows from it
            del of_axis["yaw"]
        ends = {axis: max(abs(float(x)) for x in ends) for axis, ends in of_axis.items() if ends is not None}
        return {axis: end for axis, end in ends.items() if end > 0.0}

    def command(self, velocities: Tensor) -> None:
        self._commanded = velocities[:, : 3 if "yaw" in self.velocity_ranges() else 2]
        self.driver.moments.observing = self._observing

    def unmeasured(self, group: int) -> set[str]:
        return self.driver.moments.unmeasured(self.isaac)

    def _begin_anew(self) -> None:
        """Take the present tensors for the first state."""
        self._sync()
        self._note_observed()
        self._first = self.get_state()

    # groups

    def attach(self, groups: EnvGroups) -> None:
        self._groups = groups
        self._draws.seeds, self._draws.lanes, self._draws.group_size = groups.seeds, groups.lanes, groups.size
        self._compared = False
        self._gym.commanded = groups.commands
        self._own_actions = ~groups.commands.unsqueeze(1)
        # asked once here, because each step would wait for the device
        self._commands_drives, self._begins, self._aims = (
            bool(x.any()) for x in (groups.commands, groups.initial_states, groups.goals)
        )
        if self._randomizer is not None:
            self._randomizer.undo()
        if bool((groups.lanes != torch.arange(self.num_envs, device=groups.lanes.device)).any()):
            # each of several groups gets what the task drew or placed at its construction for the first one: frictions,
            # masses, origins and terrain levels are then independent of other groups
            tensors.make_alike(self.isaac, self.rows, self.histories, groups.lanes)
            self.driver.place(groups.lanes)
            self.scene.make_alike(groups.lanes)
            self._begin_anew()
        if self._randomizer is not None:
            self._randomizer.attach(groups.seeds, groups.lanes)

    def set_drive_mode(self, effort: Tensor) -> None:
        self._gym.effort = effort
        self._gym.targeted = bool((self._groups.commands & ~effort).any())
        self.scene.set_drives(self._groups.commands, effort)

    # domain randomization

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
        # commands of candidates go to the proxy, actions to the task
        self._gym.command = command if self._commands_drives else None
        width = min(self.default_action_dim or 0, self._groups.actions.shape[1])
        actions = torch.zeros(self.num_envs, self.default_action_dim or 0, device=self.device)
        actions[:, :width] = self._groups.actions[:, :width] * self._own_actions
        # physics and judgement, by the task's own methods
        if self._robot is not None:
            self._sync()  # the state has what sensors measure
        self._scoring.note_solved()
        self._gym.blown.zero_()  # type: ignore[union-attr]
        self._draws.begin_step(self.step_count)
        with self.source.running_code(), self.scene.own_properties.watched():
            self.driver.act(actions)
            ends = self.driver.judge(self._progress)
        self._progress += 1
        self._mirror.sync(self._results)
        self.state["reset_buf"].copy_(ends)
        torch.logical_or(self._gym.blown, self._not_finite(), out=self.unstable)  # type: ignore[arg-type]
        self.contact_overflows += self.scene.take_overflows() & ~self.unstable

    def _not_finite(self) -> Tensor:
        live = self.scene.read()
        rows = [live[key] for key in ("root_states", "dof_pos", "dof_vel") if key in live]
        return ~torch.isfinite(torch.cat([self.isaac.rew_buf.view(self.num_envs, -1), *rows], dim=1)).all(dim=1)

    def finish_step(self) -> None:
        self._sync()

    # episodes

    def prepare_reset(self, mask: Tensor) -> None:
        """Begin episodes as the task does where ``mask`` is True, and set their rows of ``default_state``."""
        self._resets.foresee()
        env_ids = mask.nonzero().flatten()
        self._begun = mask.clone()
        if not len(env_ids):
            return
        # the task's own reset, whose result is the default state of these episodes
        self._resets.begin(mask, env_ids, self.step_count)
        self._progress.masked_fill_(mask, 0)
        self._sync()
        self._begun_since = self._begun
        self.state["reset_buf"].masked_fill_(mask, 0)
        self._scoring.forget(mask)
        tensors.copy_all(list(self.default_state.values()), [self.state[key] for key in self.default_state])
        alike = self._commanded is None and self._robot is None
        if alike and not self._compared and len(env_ids) == self.num_envs:
            self._compared = True
            beginning = {key: self.state[key] for key in ("commands", "obs_buf", *self.scene.keys) if key in self.state}
            tell_unequal_beginnings(self.source.address, beginning, self._groups.seeds, self._groups.lanes)

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        if initial:
            if self._begun is None:
                self.prepare_reset(mask)
            self._begun = None
            # the task's own reset has run; candidates overwrite what it chose
            chosen = mask & self._groups.initial_states
            states = {**self.default_state, **initial}
            if self._begins and self._resets.overwrite("initial", chosen, lambda: self.scene.write(chosen, states)):
                self._sync()
        if goal:
            chosen = mask & self._groups.goals
            if self._aims and self._resets.overwrite("goal", chosen, lambda: self._write_goals(chosen, goal)):
                self._sync()

    def settle(self) -> None:
        """Show every environment what its observation reads, whatever other environments did since the step."""
        if self._begun_since is not None:
            with self.driver.moments.observing():
                self._sync()
            for key, x in self._observed.items():
                rows = self._begun_since.view(-1, *[1] * (x.dim() - 1))
                torch.where(rows, self.state[key], x, out=x)
            self._begun_since = None
        tensors.copy_all([self.state[key] for key in self._observed], list(self._observed.values()))

    def _write_goals(self, mask: Tensor, goal: dict[str, Tensor]) -> None:
        """Set goals where ``mask`` is True."""
        for key, value in goal.items():
            buffer = self._mirror.row(self.keys[key])
            assert buffer is not None
            buffer.copy_(torch.where(mask.view(-1, *[1] * (buffer.dim() - 1)), value, buffer))

    # fitness

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return self._scoring.fitness(state)

    # checkpoints

    def get_state(self) -> dict[str, Tensor]:
        saved = tensors.save(self.isaac)
        saved.update({f"sim.{key}": x for key, x in self.scene.get_state().items()})
        saved.update({f"own.{key}": x for key, x in self.scene.own_properties.get_state().items()})
        for kind, live in self._live.items():
            saved.update({f"{kind}.{key}": x.to("cpu", copy=True) for key, x in live.items()})
        if self._randomizer is not None:
            saved.update({f"random.{key}": x for key, x in self._randomizer.get_state().items()})
        return {**saved, "progress": self._progress.to("cpu", copy=True)}

    def set_state(self, state: dict[str, Tensor]) -> None:
        if self._randomizer is not None:  # first, because the scene computes poses from properties
            self._randomizer.set_state(_section(state, "random"))
        self._restore(state)

    def _restore(self, state: dict[str, Tensor]) -> None:
        """Restore a state, except the randomization."""
        self.scene.own_properties.set_state(_section(state, "own"))  # first, as the randomization
        self.scene.set_state(_section(state, "sim"))
        self._gym.changed()
        tensors.restore(self.isaac, state, self.device)
        for kind, live in self._live.items():
            for key, x in live.items():
                x.copy_(state[f"{kind}.{key}"])
        tensors.copy_all(list(self._observed.values()), [self.state[key] for key in self._observed])
        self._progress.copy_(state["progress"])

    def restart(self) -> None:
        if self._randomizer is not None:
            self._randomizer.expire()
            everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
            self._resets.randomize(everyone, torch.arange(self.num_envs, device=self.device), self.step_count)
        self._restore(self._first)


def _section(state: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Return the entries of a saved state whose keys begin with ``kind.``, without that."""
    return {key[len(kind) + 1 :]: x for key, x in state.items() if key.startswith(f"{kind}.")}


class Scoring:
    """Fitness of the state.

    Args:
        fitness: None for a fitness of 0. If an episode counts once, ``state`` gets a key for it.
        state, constants: of the task; tensors of the state stay in place.
    """

    def __init__(
        self,
        fitness: Fitness | None,
        state: dict[str, Tensor],
        constants: Mapping[str, Tensor],
    ) -> None:
        self._function = None if fitness is None else fitness.function
        self._once, self._state, self._constants = fitness is not None and fitness.once, state, constants
        self._names = () if fitness is None else tuple(inspect.signature(fitness.function).parameters)
        if self._once:
            state[SOLVED] = torch.zeros(len(state["reset_buf"]), device=state["reset_buf"].device)

    def fitness(self, state: Mapping[str, Tensor]) -> Tensor:
        value = self._score(state)
        return value * (1.0 - state[SOLVED]) if self._once else value

    def note_solved(self) -> None:
        """Note before a step which episodes are solved."""
        if self._once:
            self._state[SOLVED].copy_(torch.maximum(self._state[SOLVED], self._score(self._state)))

    def forget(self, mask: Tensor) -> None:
        """Begin episodes where ``mask`` is True."""
        if self._once:
            self._state[SOLVED].masked_fill_(mask, 0.0)

    def _score(self, state: Mapping[str, Tensor]) -> Tensor:
        if self._function is None:
            return torch.zeros_like(state["reset_buf"], dtype=torch.float32)
        keys = {**self._constants, **state}
        return self._function(**{name: keys[name] for name in self._names})


def tell_unequal_beginnings(address: str, state: Mapping[str, Tensor], seeds: Tensor, lanes: Tensor) -> None:
    """Warn once per task if groups of one seed begin with different states, which is unfair to some of them.

    Random numbers of such groups are equal, so that the task's code treats environments by their index in all groups.

    Args:
        address: of the task.
        state: tensors ``(num_envs, ...)`` after the task's own reset of all environments.
        seeds, lanes: ``(num_envs,)``, the seed of each environment's group, and its index in the group.
    """
    # groups of the first group's seed
    size = int(lanes.max()) + 1
    seed = seeds.view(-1, size)[:, 0]
    same = (seed == seed[0]).nonzero().flatten()
    if address in _told or len(same) < 2:
        return
    # keys whose rows differ between these groups by more than rounding
    differ = []
    for key, x in state.items():
        groups = x.reshape(len(seed), size, -1)[same].float()
        if not torch.allclose(groups, groups[:1].expand_as(groups), TOLERANCE, TOLERANCE, equal_nan=True):
            differ.append(key)
    if differ:
        _told.add(address)
        log.warning(
            "%s: candidates of one seed begin with different %s: the task's code distinguishes environments by their"
            " index among those of all candidates. For a fair ranking give --isolate process",
            address,
            ", ".join(differ),
        )
