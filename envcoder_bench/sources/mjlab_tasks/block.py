"""mjlab's environment for consecutive groups that have the same commands, events and curriculum.

The order of a step is that of ``ManagerBasedRlEnv.step``. The managers are mjlab's own; rewards and terminations are
those of ``terms.py``, as their terms and weights differ between the groups.
"""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from mjlab.managers.command_manager import CommandManager, CommandTerm, NullCommandManager
from mjlab.managers.curriculum_manager import CurriculumManager, NullCurriculumManager
from mjlab.managers.event_manager import EventManager
from mjlab.managers.metrics_manager import MetricsManager, NullMetricsManager
from mjlab.managers.observation_manager import ObservationManager
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.mjlab_tasks.draws import Draws, TermStream, drawing, rename_stream
from envcoder_bench.sources.mjlab_tasks.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.mjlab_tasks.faults import FAULTS, PatchError, misshapen, raised_in
from envcoder_bench.sources.mjlab_tasks.parts import in_capture, side_by_side
from envcoder_bench.sources.mjlab_tasks.patches import changes_terms
from envcoder_bench.sources.mjlab_tasks.terms import Term, TermTable, frozen, key_of
from envcoder_bench.sources.mjlab_tasks.view import EnvView, ManagerView, device_of
from envcoder_bench.sources.mjlab_tasks.world import World

Fault = Callable[[Sequence[int], Exception], None]  # groups of the task, and what a candidate's function raised


class Named:
    """A term's function, which draws random numbers in the name of the term."""

    def __init__(self, func: Any, name: str) -> None:
        self._func, self._name = func, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rename_stream(self._name)
        return self._func(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self._func, name)


class Unlogged(dict[str, Tensor]):
    """A command's metrics while it is reset: their means would be logged, which waits for a device."""

    def items(self) -> Any:
        return ()


class Terms:
    """The terms of a section as a curriculum reads and changes them: ``env.reward_manager``."""

    table: TermTable

    @property
    def active_terms(self) -> list[str]:
        return list(dict.fromkeys(term.name for term in self.table.terms))

    def get_term_cfg(self, name: str) -> Any:
        """Return the config of a term, whose weight and parameters a curriculum may set."""
        for term in self.table.terms:
            if term.name == name:
                return term.cfg
        there = ", ".join(self.active_terms)
        message = f"a curriculum or event reads the term '{name}' of {self.table.section}; there are {there}"
        raise ValueError(f"{message}: patch the curriculum, too")


class Rewards(Terms):
    """The reward terms of a block whose groups have the same ones, as ``RewardManager`` has them.

    Commands and observations of some packages read its private parts.

    Args:
        block: ``world.reads_rewards`` says whether the task's own code reads them; then blocks differ in rewards, too.
    """

    def __init__(self, block: Block) -> None:
        self._block = block

    @property
    def active_terms(self) -> list[str]:
        self._refuse_mixed()
        return super().active_terms

    def get_term_cfg(self, name: str) -> Any:
        self._refuse_mixed()
        return super().get_term_cfg(name)

    @property
    def _term_names(self) -> list[str]:
        return self.active_terms

    @property
    def _term_cfgs(self) -> list[Any]:
        self._refuse_mixed()
        return [term.cfg for term in self.table.terms]

    @property
    def _step_reward(self) -> Tensor:
        """Weighted terms of the last step, per second if the config scales them by the step: ``(n, terms)``."""
        names = self.active_terms
        return self._block.reward_terms[:, : len(names)] / self._block.reward_scale

    def _refuse_mixed(self) -> None:
        world = self._block.world
        world.has_read_rewards = True
        if not (world.reads_rewards or changes_terms(self._block.cfg.curriculum)):
            message = "env.reward_manager is there for the task's own code and for curricula"
            raise UserError(f"{message}: a candidate's other terms cannot read it")


class Terminations(Terms):
    """Which episodes end, as reward terms read it from ``env.termination_manager``.

    Attributes:
        terminated, time_outs: ``(n,)`` bool.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.terminated = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.time_outs = torch.zeros_like(self.terminated)
        self.values: dict[str, Tensor] = {}

    @property
    def dones(self) -> Tensor:
        return self.terminated | self.time_outs

    def get_term(self, name: str) -> Tensor:
        """Return which episodes a term ends."""
        if name not in self.values:
            self.values[name] = torch.zeros_like(self.terminated)
        return self.values[name]


class Block(EnvView):
    """Groups with the same commands, events and curriculum.

    Args:
        world: what all groups share.
        groups: the consecutive groups of the task that it has.
        size: environments of a group.
        configs: the config of each group.
        draws: the seeds and lanes of its environments.
        faults: called if a candidate's function raises.
        widths: the number of columns for observations, and for reward terms.

    Attributes:
        reward, obs, critic, columns: ``(n,)``, ``(n, widths)``, the critic's, and the weighted reward terms.
        terminations: which episodes end.
    """

    def __init__(
        self,
        world: World,
        groups: range,
        size: int,
        configs: Sequence[Any],
        draws: Draws,
        faults: Fault,
        buffers: Mapping[str, Tensor],
    ) -> None:
        rows = slice(groups.start * size, groups.stop * size)
        super().__init__(world, rows, configs[0])
        self.groups, self.size, self.configs, self.draws = groups, size, configs, draws
        self._faults, self._n = faults, rows.stop - rows.start
        self._buffers = {name: x[rows] for name, x in buffers.items()}
        self._shapes = FixedShapes(self._n)
        self.device_ = device_of(self)
        self._dt = torch.zeros(self._n, device=self.device_)
        self._observations: list[tuple[ObservationManager, slice]] = []
        self._failed = False

    @property
    def reward_terms(self) -> Tensor:
        """The weighted reward terms of the last step: ``(n, columns)``."""
        return self._buffers["terms"]

    @property
    def reward_scale(self) -> float:
        """The factor of all weights: seconds of a step, or 1."""
        return self.step_dt if self.cfg.scale_rewards_by_dt else 1.0

    def attempt(self, call: Callable[..., None], *args: Any) -> None:
        """Call a method for commands, events or the curriculum; if those of a candidate raise, its groups stop."""
        if self._failed:
            return
        try:
            call(*args)
        except FAULTS as error:
            if self.world.parts.capturing:
                raise
            base, sections = self.world.cfg, ("events", "commands", "curriculum")
            if all(getattr(self.cfg, section) is getattr(base, section) for section in sections):
                raise
            self._failed = True
            self._faults(list(self.groups), raised_in("events, commands or curriculum", "", error))

    def load(self) -> None:
        """Construct the managers, in the order of mjlab."""
        cfg = self.cfg
        with self._drawing("events", -1):
            self.event_manager = EventManager(cfg.events, self)
        for cfgs in self.event_manager._mode_term_cfgs.values():
            for term in cfgs:
                name = next(name for name, own in self.event_manager.cfg.items() if own is term)
                term.func = Named(term.func, f"events/{name}")
        commands = copy.deepcopy(cfg.commands)  # a curriculum changes them
        with self._drawing("commands", -1):
            self.command_manager = CommandManager(commands, self) if commands else NullCommandManager()
        # observations, one manager for each run of groups with the same
        with self._drawing("observations", -1):
            for first, last in runs([frozen(own.observations) for own in self.configs]):
                env = self.part(slice(first * self.size, last * self.size))
                try:
                    manager = ObservationManager(self.configs[first].observations, env)
                except FAULTS as error:
                    raise self._of_observation(first, env, error) from error
                self._read_widths(manager)
                for group, terms in manager._group_obs_term_names.items():
                    for name, term in zip(terms, manager._group_obs_term_cfgs[group]):
                        term.func = Named(term.func, f"observations/{group}/{name}")
                self._observations.append((manager, slice(first * self.size, last * self.size)))
        # terminations and rewards
        ends = Terminations(self._n, self.device_)
        self.termination_manager = ends  # type: ignore[assignment]
        self.ends = ends.table = self._table("terminations", "time_out")
        rewards = Rewards(self)
        self.reward_manager = rewards  # type: ignore[assignment]
        self.rewards = rewards.table = self._table("rewards")
        self._weights = [self._weight(term) for term in self.rewards.terms]
        self.curriculum_manager = CurriculumManager(cfg.curriculum, self) if cfg.curriculum else NullCurriculumManager()
        self.metrics_manager = MetricsManager(cfg.metrics, self) if cfg.metrics else NullMetricsManager()

    def startup(self) -> None:
        """Apply the events of mode ``startup``."""
        if "startup" in self.event_manager.available_modes:
            with self._drawing("events/startup", -1):
                self.event_manager.apply(mode="startup")

    # one control step

    def end(self) -> None:
        """Compute which episodes end, after the physics."""
        ends = self.termination_manager
        ends.terminated.zero_()
        ends.time_outs.zero_()
        for term in self.ends.terms:
            value = self._value(term)
            if value is not None:
                value = value.bool()
                value = value if term.users is None else value & term.users
                (ends.time_outs if term.cfg.time_out else ends.terminated)[term.rows] |= value
                ends.get_term(term.name)[term.rows] = value

    def judge(self) -> None:
        """Compute rewards and metrics."""
        self._reward()
        with torch.no_grad():
            self.metrics_manager.compute()

    def _reward(self) -> None:
        if in_capture():  # branches share what sensors compute
            for sensor in self.scene.sensors.values():
                _ = sensor.data
        used = [(term, weight) for term, (weight, used) in zip(self.rewards.terms, self._weights) if used]
        parts = side_by_side([functools.partial(self._weighted, term, weight) for term, weight in used])
        reward = self._buffers["reward"].zero_()
        for (term, _), part in zip(used, parts):
            if part is not None:
                reward[term.rows] += part

    def _weighted(self, term: Term, weight: Any) -> Tensor | None:
        """Evaluate a reward term ``(rows,)``, with its weight, and write its column; None if it fails."""
        value = self._value(term)
        if value is None:
            return None
        # the product in the order of mjlab's reward manager
        part = value * (weight if self._plain else term.cfg.weight) * self.reward_scale
        clean = torch.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0)
        if term.foreign:  # its NaN is a fault, except of unstable physics; beside graphs the dispatcher finds it
            clean = torch.where(self._buffers["unstable"][term.rows], clean, part)
            if not self.world.parts.captures and not bool(torch.isfinite(clean).all()):
                message = f"the term '{term.name}' returned NaN or infinity"
                self._fail(term, PatchError(term.section, term.name, message))
                return None
        rows = self._buffers["terms"][term.rows]
        if isinstance(term.columns, int):
            target = rows[:, term.columns]
            target.copy_(clean if term.users is None else torch.where(term.users, clean, target))
        else:
            columns = term.columns.unsqueeze(1)
            old = rows.gather(1, columns).squeeze(1)
            rows.scatter_(
                1, columns, (clean if term.users is None else torch.where(term.users, clean, old)).unsqueeze(1)
            )
        return clean if term.users is None else torch.where(term.users, clean, 0.0)

    def events(self) -> None:
        """Apply the events of modes ``step`` and ``interval``."""
        for mode in ("step", "interval"):
            if mode in self.event_manager.available_modes:
                with self._masked(f"events/{mode}"):
                    self.event_manager.apply(mode=mode, dt=self.step_dt)

    def curriculum(self, mask: Tensor) -> None:
        """Evaluate the curriculum; ``mask`` ``(n,)``: where episodes begin."""
        for name, term in zip(self.curriculum_manager.active_terms, getattr(self.curriculum_manager, "_term_cfgs", ())):
            with self._masked(f"curriculum/{name}"):
                term.func(self, EnvIds.of(mask), **term.params)

    @property
    def settings(self) -> Any:
        """The numbers that a curriculum may change; None without a curriculum."""
        if not self.curriculum_manager.active_terms:
            return None
        terms = [term.cfg for table in (self.rewards, self.ends) for term in table.terms]
        commands = [term.cfg for _, term in self._commands()]
        return frozen([commands, list(self.event_manager.cfg.values()), terms])

    def begin(self, mask: Tensor) -> None:
        """Apply the events of mode ``reset`` where ``mask`` ``(n,)`` is True, and reset the managers."""
        env_ids = EnvIds.of(mask)
        with self._masked("events/reset"):
            if "reset" in self.event_manager.available_modes:
                self.event_manager.apply(mode="reset", env_ids=env_ids, global_env_step_count=self.world.clock)
        with self._masked("observations/reset"):
            for manager, rows in self._observations:
                manager.reset(EnvIds.of(mask[rows]))
        with self._masked("terms/reset"):
            self.rewards.reset(lambda rows: EnvIds.of(mask[rows]))
            for name, term in self._commands():
                rename_stream(f"commands/{name}/reset")
                term.metrics = Unlogged(term.metrics)
                term.reset(env_ids)
                term.metrics = dict(term.metrics)
                for value in term.metrics.values():
                    value.masked_fill_(mask, 0.0)
            rename_stream("events/timers")
            self.event_manager.reset(env_ids)
            self.ends.reset(lambda rows: EnvIds.of(mask[rows]))
            for own in getattr(self.curriculum_manager, "_class_term_cfgs", ()):
                own.func.reset(env_ids=env_ids)
            for own in getattr(self.metrics_manager, "_class_term_cfgs", ()):
                own.func.reset(env_ids=env_ids)

    def command(self, mask: Tensor) -> None:
        """Advance the commands; where ``mask`` ``(n,)`` is True an episode has begun, and timers stay full."""
        dt: Any = self.step_dt  # before mjlab 1.6 the timers of all environments go on
        if "env_ids" in inspect.signature(CommandTerm.compute).parameters:
            dt = self._dt.fill_(self.step_dt).masked_fill_(mask, 0.0)
        with self._masked("commands"):
            for name, term in self._commands():
                rename_stream(f"commands/{name}")
                term.compute(dt)

    def observe(self) -> None:
        """Compute the observations of the actor and the critic, once per step."""
        with self._drawing("observations", self.draws.step):
            for manager, rows in list(self._observations):
                try:
                    with self._stream("observations", rows):
                        kinds = list(manager._group_obs_term_names)
                        calls = [functools.partial(manager.compute_group, kind, True) for kind in kinds]
                        observed = dict(zip(kinds, side_by_side(calls)))
                except FAULTS as error:
                    if self.world.parts.capturing:
                        raise
                    groups = range(rows.start // self.size, rows.stop // self.size)
                    if self.configs[groups[0]].observations is self.world.cfg.observations:
                        raise
                    self._observations.remove((manager, rows))
                    fault = self._of_observation(groups[0], self.part(rows), error)
                    self._faults([self.groups.start + g for g in groups], fault)
                    continue
                for reader, groups in self.world.obs_sets.items():
                    first = 0
                    for x in (observed[group] for group in groups):
                        assert isinstance(x, Tensor)
                        self._buffers[reader][rows, first : first + x.shape[1]].copy_(x)
                        first += x.shape[1]

    def obs_widths(self) -> dict[str, int]:
        """Return how many columns the actor, and the critic, of the first group read."""
        return self._read_widths(self._observations[0][0])

    def _read_widths(self, manager: ObservationManager) -> dict[str, int]:
        widths = {}
        for reader, groups in self.world.obs_sets.items():
            for group in groups:
                if group not in manager.group_obs_dim:  # mjlab skips it
                    raise PatchError("observations", group, f"the observations '{group}' of the {reader} have no term")
            dims: list[Any] = [manager.group_obs_dim[group] for group in groups]
            if any(not isinstance(dim, tuple) or len(dim) != 1 for dim in dims):
                raise PatchError(
                    "observations",
                    "",
                    f"the observations of the {reader} ({', '.join(groups)}) must be one row of numbers",
                )
            widths[reader] = sum(dim[0] for dim in dims)
        return widths

    def _of_observation(self, group: int, env: EnvView, error: BaseException) -> PatchError:
        """Return the fault of a group's observations: of the term that has not one row for each environment, if any."""
        n = env.num_envs
        for kind in self.configs[group].observations.values():
            for name, term in kind.terms.items():
                if term is None or inspect.isclass(term.func):
                    continue
                try:
                    value = term.func(env, **term.params)
                except FAULTS as own:
                    return raised_in("observations", name, own)
                shape = tuple(getattr(value, "shape", ()))
                if not isinstance(value, Tensor) or len(shape) < 2 or shape[0] != n:
                    return misshapen("observations", name, value, n, f"({n}, k)")
        return raised_in("observations", "", error)

    def set_by_curriculum(self) -> tuple[str, str] | None:
        """Return section and name of what the first group has patched, and its curriculum has set to other numbers.

        A curriculum that the group has patched, too, may set the terms that it names.
        """
        own = self._set_by_own()
        live = {
            "rewards": {term.name: term.cfg for term in self.rewards.terms},
            "terminations": {term.name: term.cfg for term in self.ends.terms},
            "commands": {name: term.cfg for name, term in self._commands()},
        }
        for section, terms in live.items():
            registered, patched = (getattr(cfg, section) for cfg in (self.world.cfg, self.configs[0]))
            for name, cfg in terms.items():
                if name not in registered or name in own:
                    continue
                before, asked, now = map(_numbers, (registered[name], patched[name], cfg))
                if any(x not in (before.get(key), now.get(key)) for key, x in asked.items()):
                    return section, name
        return None

    def _set_by_own(self) -> set[str]:
        """Return the terms that the terms of the first group's curriculum name which are not the registered ones."""
        registered, patched = (cfg.curriculum for cfg in (self.world.cfg, self.configs[0]))
        own = [term for name, term in patched.items() if registered.get(name) is not term]
        return {x for term in own for x in term.params.values() if isinstance(x, str)}

    # parts

    def part(self, rows: slice) -> EnvView:
        """Return a view of some environments of the block, with its managers."""
        if rows == slice(0, self._n):
            return self
        return PartView(self, rows)

    def _table(self, section: str, *attributes: str) -> TermTable:
        configs = [getattr(cfg, section) for cfg in self.configs]
        return TermTable(section, configs, self.size, attributes, self.part, copy.deepcopy, self.device_)

    def _weight(self, term: Term) -> tuple[Any, bool]:
        """Return the weights of a term, a number or ``(rows,)``, and whether any is not 0."""
        name = term.name
        groups = range(term.rows.start // self.size, term.rows.stop // self.size)
        weights = [self.configs[g].rewards[name].weight if g in term.groups else 0.0 for g in groups]
        own = [self.configs[g].rewards[name].weight for g in term.groups]
        if len(set(own)) == 1:
            return own[0], own[0] != 0.0
        return torch.tensor(weights, dtype=torch.float32, device=self.device_).repeat_interleave(self.size), True

    def _commands(self) -> list[tuple[str, Any]]:
        return list(getattr(self.command_manager, "_terms", {}).items())

    @property
    def _plain(self) -> bool:
        """Whether no curriculum sets weights."""
        return not self.curriculum_manager.active_terms or not changes_terms(self.cfg.curriculum)

    def _value(self, term: Term) -> Tensor | None:
        """Return a term's value; None if it has failed."""
        return term.result if term.eager and term.result is not None else self._evaluated(term)

    def refresh(self, term: Term) -> None:
        """Evaluate an eager term, for the graphs that read its result."""
        value = self._evaluated(term)
        if term.result is None:
            term.result = value
        else:
            term.result.zero_() if value is None else term.result.copy_(value)

    def _evaluated(self, term: Term) -> Tensor | None:
        """Evaluate a term; a fault of a candidate's function stops its groups."""
        if term.failed:
            return None
        try:
            with self.world.parts.noting(term):
                return term()
        except FAULTS as error:
            if self.world.parts.capturing or not (term.foreign or self._is_changed(term)):
                raise
            fault = error if isinstance(error, PatchError) else raised_in(term.section, term.name, error)
            self._fail(term, fault)
            return None

    def _is_changed(self, term: Term) -> bool:
        """Return whether a term has another function or other parameters than the registered one."""
        cfgs = (getattr(own, term.section).get(term.name) for own in (self.world.cfg, self.configs[min(term.groups)]))
        registered, own = (None if cfg is None else key_of(cfg) for cfg in cfgs)
        return own != registered

    def _fail(self, term: Term, error: PatchError) -> None:
        """Stop the groups that use a term."""
        term.failed = True
        code = getattr(term.cfg.func, "__code__", None)
        error.line = code.co_firstlineno if term.foreign and code is not None else None
        self._faults([self.groups.start + group for group in term.groups], error)

    # random numbers and fixed shapes

    @contextmanager
    def _stream(self, name: str, rows: slice | None = None) -> Iterator[None]:
        seeds, lanes = self.draws.seeds, self.draws.lanes
        if rows is not None:
            seeds, lanes = seeds[rows], lanes[rows]
        with TermStream(name, seeds, lanes, self.draws.step):
            yield

    @contextmanager
    def _drawing(self, name: str, step: int | Tensor) -> Iterator[None]:
        with TermStream(name, self.draws.seeds, self.draws.lanes, step), drawing(), torch.no_grad():
            yield

    @contextmanager
    def _masked(self, name: str) -> Iterator[None]:
        """Run mjlab's code for some environments."""
        self._shapes.name = name
        with self._drawing(name, self.draws.step), self._shapes:
            yield


class PartView(EnvView):
    """Some environments of a block, with its managers as soon as it has them."""

    def __init__(self, block: Block, rows: slice) -> None:
        first = block.rows.start
        super().__init__(block.world, slice(first + rows.start, first + rows.stop), block.cfg)
        self._block, self._rows = block, rows
        self.event_manager = block.event_manager

    def __getattr__(self, name: str) -> Any:
        managers = ("command_manager", "termination_manager", "reward_manager")
        manager = vars(vars(self).get("_block", _NOTHING)).get(name) if name in managers else None
        if manager is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return ManagerView(manager, self._rows)


def _numbers(cfg: Any) -> dict[str, Any]:
    """Return the numbers of a term's config, or a command's, and their ranges."""
    if cfg is None:
        return {}
    values = {**vars(cfg), **getattr(cfg, "params", {}), **vars(getattr(cfg, "ranges", None) or _NOTHING)}
    return {key: x for key, x in values.items() if isinstance(x, (int, float, tuple))}


_NOTHING = SimpleNamespace()


def runs(keys: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the first and the last + 1 index of each run of equal keys."""
    starts = [k for k in range(len(keys)) if k == 0 or keys[k] != keys[k - 1]]
    return list(zip(starts, [*starts[1:], len(keys)]))
