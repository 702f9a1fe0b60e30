"""Adapt a task of terms to the ``Task`` interface: its groups, steps, episodes, fitness and checkpoints."""

from __future__ import annotations

import functools
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.profiling import span
from envcoder_bench.sources.term_tasks.block import Block, loaded
from envcoder_bench.sources.term_tasks.checkpoint import held, restore, saved
from envcoder_bench.sources.term_tasks.draws import Draws, TermStream, drawing
from envcoder_bench.sources.term_tasks.facts import TermFacts
from envcoder_bench.sources.term_tasks.fitness import TRACKING, Fitness
from envcoder_bench.sources.term_tasks.graphs.parts import Parts, cuda_capture
from envcoder_bench.sources.term_tasks.patches import Patches, block_keys, patched
from envcoder_bench.sources.term_tasks.state_reader import StateReader
from envcoder_bench.tasks.base import EnvGroups, Task

log = logging.getLogger(__name__)


class TermTask(Task):
    """A task of a framework of terms; a subclass builds its ``World`` and knows its simulation.

    Attributes:
        world: what all groups share.
        blocks: groups with the same commands, events and curriculum.
        erring: a context in which observations are computed, such as that of sensors with errors.
        events_after_reset: whether events of mode ``interval`` follow the resets and commands of a step.
    """

    goal_keys: tuple[str, ...] = ()
    quaternions = "wxyz, and helper functions take xyzw, `q[:, [1, 2, 3, 0]]`"
    regroups = False
    clip_actions = float("inf")
    clip_observations = float("inf")
    patched_stages = ("reward", "observation", "terminal", "goal", "initial_state", "fitness")
    events_after_reset = False
    captures = True  # parts of a step as CUDA graphs

    def __init__(self, facts: TermFacts, cfg: Mapping[str, Any], num_envs: int, device: str) -> None:
        self.cfg, self.num_envs, self.name = cfg, num_envs, facts.name
        self.erring: Callable[[], AbstractContextManager[None]] = nullcontext
        self._commanded: Tensor | None = None
        self.fitness_meaning, self.fitness_bounds = facts.measure.meaning, facts.measure.bounds
        self.fitness_reduction = facts.measure.reduction
        self.fields, self.notes, self._obs_sets = dict(facts.fields), facts.notes, facts.obs_sets
        self.device = torch.device(device)
        with self.quiet():
            self.world = self.make_world(facts)
        env = self.world.env
        self.dt, self.substeps = env.step_dt, env.cfg.decimation
        # IsaacGymEnvs' time-out comes one step earlier
        self.max_episode_length = env.max_episode_length + 1
        self.default_action_dim = self.num_dofs = self.world.action_manager.total_action_dim
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.engine_warnings: dict[str, int] = self.world.warnings
        # what the blocks fill, and the state
        self._buffers = {name: torch.zeros(num_envs, width, device=device) for name, width in facts.widths.items()}
        self._buffers["reward"] = torch.zeros(num_envs, device=device)
        self.unstable = self._buffers["unstable"] = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.timed_out = self._time_outs = torch.zeros_like(self.unstable)
        self._mask = torch.zeros_like(self.unstable)  # where episodes begin
        self._clock = None if device == "cpu" else torch.zeros((), dtype=torch.int64, device=device)
        self.state = {
            "reward_buf": self._buffers["reward"],
            "reward_terms": self._buffers["terms"],
            "obs_buf": self._buffers["actor"],
            **({"critic_buf": self._buffers["critic"]} if "critic" in self._buffers else {}),
            "reset_buf": torch.zeros_like(self.unstable),
            "score": torch.zeros(num_envs, device=device),
        }
        self.first_progress = self._first_progress = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.constants = {"max_episode_length": torch.tensor(self.max_episode_length)}
        self.default_state: dict[str, Tensor] = {}
        self.faults: dict[int, Exception] = {}
        self._has_warned = False  # of a curriculum that passes groups
        self._fitness = Fitness(facts.dialect, facts.measure, num_envs, self.device)
        self._patches: Sequence[Mapping[str, Any]] = ()
        self.reader = StateReader({})
        self.attach(EnvGroups.alone(num_envs, torch.zeros(num_envs, self.num_dofs, device=self.device)))
        self.reader = StateReader(self.sources())
        self.state.update(self.reader.tensors)

    # what a framework says

    @abstractmethod
    def make_world(self, facts: Any) -> Any:
        """Build the scene, the simulation and the actions of ``num_envs`` environments."""

    @abstractmethod
    def sources(self) -> dict[str, Any]:
        """Return how each key of the scene is read, its unit and its meaning."""

    @abstractmethod
    def restore_model(self) -> None:
        """Undo the randomization of an earlier startup."""

    @abstractmethod
    def note_unstable(self) -> None:
        """Set ``unstable``, and add to ``contact_overflows``, after the physics of a step."""

    @abstractmethod
    def rings(self) -> tuple[type, type]:
        """Return the framework's ring of past frames, and a class in its place whose pointer stays on the host."""

    @abstractmethod
    def quiet(self) -> Any:
        """Return a context that hides what the framework prints while it is built."""

    def startup(self) -> None:
        """Apply the events at the start."""
        for block in self.blocks:
            block.startup()

    @abstractmethod
    def unmeasured_by(self, term: Any) -> str:
        """Return what a term of observations reads and a robot does not measure, in words; empty: nothing."""

    # groups

    def patch(self, patches: Sequence[Mapping[str, Any]]) -> None:
        self._patches = patches

    def attach(self, groups: EnvGroups) -> None:
        size, dialect = groups.size, self.world.dialect
        count = self.num_envs // size
        self._groups, self.faults = groups, {}
        configs = patched(dialect, self.world.cfg, self._patches or [{}] * count, self._obs_sets["actor"][0])
        self.restore_model()
        for name in ("terms", *self._obs_sets):  # other groups may have had more columns
            self._buffers[name].zero_()
        self.world.count(0)
        self.world.group_size = size
        self.world.place(groups.seeds, groups.lanes)

        def block(of_block: range) -> Block:
            rows = slice(of_block.start * size, of_block.stop * size)
            draws, own = Draws(groups.seeds[rows], groups.lanes[rows]), configs[of_block.start : of_block.stop]
            return Block(self.world, of_block, size, own, draws, self._note, self._buffers)

        with self.quiet():
            self.blocks = loaded(block_keys(dialect, configs, self.world.reads_rewards), block)
            self.startup()
            ring, shifted = self.rings()
            for _, _, (owner, _) in list(held(self.world, self.blocks)):
                if type(owner) is ring:
                    owner.__class__ = shifted
        self.reader.used = groups.keys
        self.world.commands.blocks = self.blocks
        self._spread = True
        self._begun = False
        self.world.parts = Parts(capture_on(self.device) if self.captures else None, self.world, self.blocks)
        self._first: dict[str, Tensor] | None = None

    def refresh_state(self) -> None:
        self.reader.refresh(everything=True)

    def _note(self, groups: Sequence[int], error: Exception) -> None:
        for group in groups:
            self.faults.setdefault(group, error)

    def set_drive_mode(self, effort: Tensor) -> None:
        pass

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        # unused: the action goes to the framework's action terms
        return torch.zeros_like(action)

    def try_step(self, patches: Patches | None = None) -> None:
        """Begin episodes with a candidate's patches, and take a step without actions."""
        groups = EnvGroups.alone(self.num_envs, torch.zeros(self.num_envs, self.num_dofs, device=self.device))
        self.patch([patches or {}])
        self.attach(groups)
        self.prepare_reset(torch.ones_like(self._mask))
        self.settle()
        self.step(groups.actions)
        self.settle()

    # one control step

    def step(self, command: Tensor) -> None:
        with torch.no_grad():
            self._set_step(self.step_count)
            self.world.parts.begin()
            stages = [("ends", self._eager("ends"), self._end), ("rewards", self._eager("rewards"), self._judge)]
            self.world.advance(self._groups.actions[:, : self.num_dofs], stages)
        self._begun = False

    def _eager(self, table: str) -> list[Any]:
        """Return calls for the terms that no graph can contain."""
        terms = [(block, term) for block in self.blocks for term in getattr(block, table).terms]
        return [functools.partial(block.refresh, term) for block, term in terms if term.eager]

    def _end(self) -> None:
        self.note_unstable()
        for block in self.blocks:
            block.end()

    def _judge(self) -> None:
        for block in self.blocks:
            block.judge()
            ends = block.termination_manager
            self.state["reset_buf"][block.rows] = ends.terminated
            # the environment adds the time-out
            self._time_outs[block.rows] = ends.time_outs
            self.state["score"][block.rows] = self._fitness(block.env, self.state["reward_buf"][block.rows])
        self.reader.refresh()
        if not self.events_after_reset:
            self._apply_events()

    def _apply_events(self) -> None:
        for block in self.blocks:
            block.attempt(block.events, () if self._commanded is not None else ("interval",))

    def ends(self) -> dict[str, Tensor]:
        block = self.blocks[0]
        names = [x.name for x in block.ends.terms if not block.dialect.get(x.cfg, "time_out", False)]
        return {
            name: torch.cat([each.termination_manager.get_term(name) for each in self.blocks])
            for name in dict.fromkeys(names)
        }

    def _set_step(self, step: int) -> None:
        if self._clock is not None:
            self._clock.fill_(step)
        for draws in (self.world.draws, *(block.draws for block in self.blocks)):
            draws.step = step if self._clock is None else self._clock

    # episodes

    def prepare_reset(self, mask: Tensor) -> None:
        """Begin episodes as the framework does where ``mask`` is True."""
        if self._first is None:
            if self._spread and self.step_count < EVALUATION_STEP:  # training goes on after a rung of a race
                self.world.count(self.step_count)
            self._first = self.get_state()
        with torch.no_grad():
            self._mask.copy_(mask)
            self._set_step(self.step_count)
            self._advance_curricula()
            self.world.reset(self._mask)
            self.world.parts("begin", self._begin)
            self._spread_first_episodes()
        self._begun = True

    def _advance_curricula(self) -> None:
        """Evaluate the curricula: those by what a group did where episodes begin, others in each step."""
        begins = self._where_episodes_begin()
        for block in self.blocks:
            groups = [g for g, own in enumerate(block.groups) if begins[own]]
            if self.step_count < EVALUATION_STEP:
                self._warn_of_missed(block, groups)
            block.attempt(block.curriculum, self._mask[block.rows], groups)
        self._drop_outdated_graphs()

    def _warn_of_missed(self, block: Block, groups: Sequence[int]) -> None:
        """Name once a curriculum that acts in few steps, if one of these passes a group in which no episode begins.

        Episodes that time out begin again after as many steps, so that it may never act for such a group.
        """
        names, missing = ([], []) if self._has_warned else block.missed(groups)
        if names:
            self._has_warned = True
            seeds = self._groups.seeds.view(-1, self._groups.size)[block.groups.start :, 0][missing].unique().tolist()
            log.warning(
                "the curriculum %s acts in step %d, where an episode begins; none does in %d of %d groups (seed %s):"
                " with few environments it may never act, see docs/isaaclab.md",
                ", ".join(names),
                self.world.steps,
                len(missing),
                len(block.groups),
                ", ".join(map(str, seeds)),
            )

    def _drop_outdated_graphs(self) -> None:
        if any([block.has_new_settings() for block in self.blocks]) and self.world.parts.captures:
            self.world.parts.drop()

    def _where_episodes_begin(self) -> list[bool]:
        """Return for each group whether its curriculum may act, as an episode begins, by one wait for the device."""
        active = [block.groups.start + group for block in self.blocks for group in block.active_groups()]
        result = [False] * (self.num_envs // self._groups.size)
        if active:
            begins = self._mask.view(-1, self._groups.size).any(1).tolist()
            for group in active:
                result[group] = begins[group]
        return result

    def _begin(self) -> None:
        """Begin episodes in the simulated world."""
        self.world.reset_scene(self._mask)
        for block in self.blocks:
            block.attempt(block.begin, self._mask[block.rows])
        self.world.reset_actions(self._mask)
        self.world.episode_length_buf.masked_fill_(self._mask, 0)
        self._fitness.begin(self._mask)
        self.world.begun(self._mask)

    def _spread_first_episodes(self) -> None:
        """Begin the first episodes of a training, or after a rung, at random lengths, as rsl_rl's training does."""
        self._first_progress.zero_()
        if self._spread and self.step_count < EVALUATION_STEP:
            with TermStream("episode_length", self._groups.seeds, self._groups.lanes, self.step_count), drawing():
                lengths = torch.randint(0, self.max_episode_length - 1, (self.num_envs,), device=self.device)
            self._first_progress.copy_(lengths)
            self.world.episode_length_buf.copy_(lengths)
        self._spread = False

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        pass  # all of it is in ``prepare_reset``

    def settle(self) -> None:
        """Compute what follows the resets of a step: derived quantities, commands and observations."""
        with torch.no_grad():
            self._set_step(self.step_count)  # whether or not any environment was reset
            if not self._begun:
                self._mask.zero_()
                self._advance_curricula()
            with span("physics"):  # derived quantities of all environments, as each step of the framework has them
                self.world.sim.forward()
            self.world.parts("command", self._advance_commands)
            self.world.sense()
            with self.erring():
                self.world.parts("observe" if self._begun else "observe alone", self._observe)
            self.world.parts.end()
        self._begun = False

    def _advance_commands(self) -> None:
        for block in self.blocks:
            block.attempt(block.command, self._mask[block.rows])
            if self._commanded is not None:
                block.command_manager.get_term(self._fitness.measure.name).command.copy_(self._commanded[block.rows])
        if self.events_after_reset:
            self._apply_events()

    def _observe(self) -> None:
        self.world.sensed()
        for block in self.blocks:
            block.observations.compute()
        if self._begun or self.erring is not nullcontext:
            self.reader.refresh()

    def unmeasured(self, group: int) -> set[str]:
        block, dialect = next(block for block in self.blocks if group in block.groups), self.world.dialect
        cfg = block.configs[group - block.groups.start]
        sections = [dialect.terms(cfg, "observations")[name] for name in self.world.obs_sets["actor"]]
        terms = [term for section in sections for term in dialect.group_terms(section).values() if term is not None]
        return {self.unmeasured_by(term) for term in terms} - {""}

    # velocity commands

    def velocity_ranges(self) -> dict[str, float]:
        measure = self._fitness.measure
        if measure.kind != TRACKING:
            return {}
        ranges = self.blocks[0].command_manager.get_term(measure.name).cfg.ranges
        names = {"x": "lin_vel_x", "y": "lin_vel_y", "yaw": "ang_vel_z"}
        ends = {axis: max(abs(x) for x in getattr(ranges, name)) for axis, name in names.items()}
        return {axis: end for axis, end in ends.items() if end > 0.0}

    def command(self, velocities: Tensor) -> None:
        self._commanded = velocities

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return state["score"]

    # checkpoints

    def _live(self) -> dict[str, Tensor]:
        return {**self.state, "unstable": self.unstable, "timed_out": self._time_outs}

    def get_state(self) -> dict[str, Tensor]:
        return saved(self.world, self.blocks, self._live())

    def set_state(self, state: dict[str, Tensor]) -> None:
        with self.world.parts.replacing():
            restore(self.world, self.blocks, self._live(), state)
        self._drop_outdated_graphs()
        self._spread = False  # its episodes have begun

    def restart(self) -> None:
        if self._first is not None:
            self.set_state(self._first)
        evaluates = EVALUATION_STEP <= self.step_count < 2 * EVALUATION_STEP
        self.world.place(self._groups.seeds, self._groups.lanes, evaluates)


def capture_on(device: torch.device) -> Any:
    """Return what captures parts of a step as graphs; None on a CPU."""
    return cuda_capture(device) if device.type == "cuda" else None
