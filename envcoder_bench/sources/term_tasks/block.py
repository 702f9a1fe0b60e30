"""A framework's environment for consecutive groups that have the same commands, events and curriculum.

The order of a step is that of mjlab's ``ManagerBasedRlEnv.step``. The managers are the framework's own; rewards and
terminations are those of ``terms.py``, as their terms and weights differ between the groups.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.curricula.of_groups import GroupCurricula
from envcoder_bench.sources.term_tasks.curricula.settings import Settings, Shared
from envcoder_bench.sources.term_tasks.draws import Draws, TermStream, drawing, rename_stream
from envcoder_bench.sources.term_tasks.faults import FAULTS, PatchError, raised_in
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.term_tasks.graphs.parts import in_capture, side_by_side
from envcoder_bench.sources.term_tasks.managers import Rewards, Terminations
from envcoder_bench.sources.term_tasks.mixing import mixing_number
from envcoder_bench.sources.term_tasks.observations import Observations
from envcoder_bench.sources.term_tasks.patches import changes_terms, has_unknown_curricula, judges, judges_groups
from envcoder_bench.sources.term_tasks.terms import Contents, Term, TermTable, frozen, key_of, runs
from envcoder_bench.sources.term_tasks.world import World

ReportFault = Callable[[Sequence[int], Exception], None]  # groups of the task, and what a candidate's function raised


class Named:
    """A term's function, which draws random numbers in the name of the term.

    Attributes:
        func: the function.
        cfg: the config with the parameters of some groups; None: those that it is called with.
    """

    def __init__(self, func: Any, name: str, settings: Settings) -> None:
        self.func, self._name, self._settings = func, name, settings
        self.cfg: Any = None
        self.shared: Shared | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._settings.run(self.shared, functools.partial(self._called, args, kwargs), self.func)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any], users: Tensor | None) -> Any:
        rename_stream(self._name)
        if users is not None and len(args) > 1:  # an event, of some environments or of all
            ids = EnvIds.of(users) if args[1] is None else EnvIds.of(args[1].mask & users, args[1].as_subclass(Tensor))
            args = (args[0], ids, *args[2:])
        return self.func(*args, **(kwargs if self.cfg is None else self._settings.dialect.get(self.cfg, "params")))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # an object that is being copied has no attributes yet
            raise AttributeError(name)
        return getattr(self.func, name)


class Unlogged(dict[str, Tensor]):
    """A command's metrics while it is reset: their means would be logged, which waits for a device."""

    def items(self) -> Any:
        return ()


class Block:
    """Groups with the same commands, events and curriculum.

    Args:
        world: what all groups share.
        groups: the consecutive groups of the task that it has.
        size: environments of a group.
        configs: the config of each group.
        draws: the seeds and lanes of its environments.
        faults: called if a candidate's function raises.
        buffers: tensors of all environments to fill: ``reward`` ``(n,)``, its weighted ``terms`` ``(n, columns)``, the
            observations ``(n, columns)`` by who reads them, and ``unstable`` ``(n,)``, which is read.

    Attributes:
        env: its environments as the framework's terms see them, with its managers.
        rows, groups: its environments and groups among those of the task.
        cfg, configs: the config of its first group, and of each.
    """

    observations: Observations
    event_manager: Any
    command_manager: Any
    termination_manager: Terminations
    reward_manager: Rewards
    curriculum_manager: Any
    metrics_manager: Any

    def __init__(
        self,
        world: World,
        groups: range,
        size: int,
        configs: Sequence[Any],
        draws: Draws,
        faults: ReportFault,
        buffers: Mapping[str, Tensor],
    ) -> None:
        self.world, self.dialect = world, world.dialect
        self.rows = rows = slice(groups.start * size, groups.stop * size)
        self.cfg, self.env = configs[0], world.view(rows, configs[0])
        self.groups, self.size, self.configs, self.draws = groups, size, configs, draws
        self.faults, self._n = faults, rows.stop - rows.start
        self.buffers = {name: x[rows] for name, x in buffers.items()}
        self._shapes = FixedShapes(self._n)
        self._device = torch.device(self.env.device)
        self._dt = torch.zeros(self._n, device=self._device)
        self._failed = False
        objects = _objects_of(self.env.scene)
        self.settings = Settings(self.dialect, size, self._device, objects, self._may_stop, self._stop_groups)
        self.group_curricula: GroupCurricula | None = None
        self.is_alone = has_unknown_curricula(self.dialect, self.cfg)
        # what a curriculum may change in configs
        self._may_have_new_settings, self._before, self._contents = True, None, None
        self._outdated = False  # whether graphs are, as a curriculum has set something for some groups

    @property
    def reward_terms(self) -> Tensor:
        """The weighted reward terms of the last step: ``(n, columns)``."""
        return self.buffers["terms"]

    @property
    def reward_scale(self) -> float:
        """The factor of all weights: seconds of a step, or 1."""
        return self.dialect.reward_scale(self.cfg, self.env.step_dt)

    def attempt(self, call: Callable[..., None], *args: Any) -> None:
        """Call a method for commands, events or the curriculum; if those of a candidate raise, its groups stop."""
        if self._failed:
            return
        try:
            call(*args)
        except FAULTS as error:
            if self.world.parts.capturing:
                raise
            if not any(self.is_patched(self.cfg, section) for section in ("events", "commands", "curriculum")):
                raise
            self._failed = True
            self.faults(list(self.groups), raised_in("events, commands or curriculum", "", error))

    def load(self) -> None:
        """Construct the managers, in the order of mjlab."""
        cfg, dialect = self.cfg, self.dialect
        with self.drawing_in("events", -1):
            self._add("event_manager", dialect.event_manager(cfg, self.env))
        events = [
            (name, term, self.named(term, f"events/{name}")) for name, term in dialect.event_terms(self.event_manager)
        ]
        commands = copy.deepcopy(dialect.terms(cfg, "commands"))  # a curriculum changes them
        with self.drawing_in("commands", -1):
            manager = dialect.command_manager(dialect.with_terms(cfg, "commands", commands), self.env)
            self._add("command_manager", manager)
        self.observations = Observations(self)
        ends = Terminations(self._n, self._device)
        self._add("termination_manager", ends)
        self.ends = ends.table = self._table("terminations", "time_out")
        rewards = Rewards(self)
        self._add("reward_manager", rewards)
        self.rewards = rewards.table = self._table("rewards")
        terms = dialect.terms(cfg, "curriculum")
        if judges_groups(dialect, cfg):
            rewards.sums = torch.zeros_like(self.reward_terms)
        if judges_groups(dialect, cfg) and not self.is_alone:
            self.group_curricula = GroupCurricula(self, {name: named for name, _, named in events})
            terms = {name: term for name, term in terms.items() if name not in self.group_curricula.names}
        self._weights = [self._weight(term) for term in self.rewards.terms]
        manager = dialect.curriculum_manager(dialect.with_terms(cfg, "curriculum", terms), self.env)
        self._add("curriculum_manager", manager)
        self._add("metrics_manager", dialect.metrics_manager(cfg, self.env))
        self._attributes = set(vars(self.env))

    def _add(self, name: str, manager: Any) -> None:
        """Give a manager to the block and to the terms that see its environments."""
        setattr(self, name, manager)
        setattr(self.env, name, manager)

    def named(self, term: Any, name: str) -> Named:
        """Let the function of a term draw random numbers in its name."""
        named = Named(self.dialect.get(term, "func"), name, self.settings)
        self.dialect.put(term, "func", named)
        return named

    def mixes(self) -> bool:
        """Return whether an object that groups share keeps a number that follows from the environments of all."""
        get = self.dialect.get
        terms = [term for _, term in self._commands()]
        terms += [term.func for table in (self.rewards, self.ends) for term in table.terms]
        configs = [term for _, term in self.dialect.event_terms(self.event_manager)]
        for manager, _ in self.observations.managers:
            configs += [term for some in self.dialect.observation_terms(manager).values() for _, term in some]
        terms += [get(cfg, "func").func for cfg in configs]
        return len(self.groups) > 1 and any(mixing_number(term) is not None for term in terms)

    def startup(self) -> None:
        """Apply the events of mode ``startup``."""
        if "startup" in self.event_manager.available_modes:
            with self.drawing_in("events/startup", -1):
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
                is_time_out = self.dialect.get(term.cfg, "time_out", False)
                (ends.time_outs if is_time_out else ends.terminated)[term.rows] |= value
                ends.get_term(term.name)[term.rows] = value

    def judge(self) -> None:
        """Compute rewards and metrics."""
        self._reward()
        if self.reward_manager.sums is not None:
            self.reward_manager.sums += self.reward_terms
        with torch.no_grad():
            self.metrics_manager.compute()

    def _reward(self) -> None:
        if self.dialect.branches and in_capture():  # branches share what sensors compute
            for sensor in self.env.scene.sensors.values():
                _ = sensor.data
        terms = zip(self.rewards.terms, self._weights if self._plain else map(self._set_weight, self.rewards.terms))
        used = [(term, weight) for term, (weight, used) in terms if used]
        weighted = [functools.partial(self._weighted, term, weight) for term, weight in used]
        parts = side_by_side(weighted, self.dialect.branches)
        reward = self.buffers["reward"].zero_()
        for (term, _), part in zip(used, parts):
            if part is not None:
                reward[term.rows] += part

    def _weighted(self, term: Term, weight: Any) -> Tensor | None:
        """Evaluate a reward term ``(rows,)``, with its weight, and write its column; None if it fails."""
        value = self._value(term)
        if value is None:
            return None
        # the product in the order of mjlab's reward manager
        part = value * weight * self.reward_scale
        clean = torch.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0)
        if term.foreign:  # its NaN is a fault, except of unstable physics; beside graphs the dispatcher finds it
            clean = torch.where(self.buffers["unstable"][term.rows], clean, part)
            if not self.world.parts.captures and not bool(torch.isfinite(clean).all()):
                message = f"the term '{term.name}' returned NaN or infinity"
                self._fail(term, PatchError(term.section, term.name, message))
                return None
        self._write(term, clean)
        return clean if term.users is None else torch.where(term.users, clean, 0.0)

    def _write(self, term: Term, values: Tensor) -> None:
        """Write the column of a term where it is used."""
        rows = self.buffers["terms"][term.rows]
        if isinstance(term.columns, int):
            target = rows[:, term.columns]
            target.copy_(values if term.users is None else torch.where(term.users, values, target))
        else:
            columns = term.columns.unsqueeze(1)
            old = rows.gather(1, columns).squeeze(1)
            rows.scatter_(
                1, columns, (values if term.users is None else torch.where(term.users, values, old)).unsqueeze(1)
            )

    def _set_weight(self, term: Term) -> tuple[float, bool]:
        """Return the weight that a curriculum has set, and whether it is not 0; without a weight the column is 0."""
        weight = self.dialect.get(term.cfg, "weight")
        if weight == 0.0:
            self._write(term, torch.zeros(term.rows.stop - term.rows.start, device=self._device))
        return weight, weight != 0.0

    def events(self, more: Sequence[str] = ("interval",)) -> None:
        """Apply the events of mode ``step``, and of ``more``."""
        for mode in ("step", *more):
            if mode in self.event_manager.available_modes:
                with self._masked(f"events/{mode}"):
                    self.event_manager.apply(mode=mode, dt=self.env.step_dt)

    def curriculum(self, mask: Tensor, groups: Sequence[int]) -> None:
        """Evaluate the curriculum.

        Args:
            mask: ``(n,)`` where episodes begin.
            groups: those of the block in which one begins.
        """
        get, self._may_have_new_settings = self.dialect.get, True
        shared = dict(self.dialect.curriculum_terms(self.curriculum_manager))
        for name, term in self.dialect.terms(self.cfg, "curriculum").items():
            if name in shared and self.is_alone and judges(self.dialect, term):
                if groups:
                    with self.drawing_in(f"curriculum/{name}", self.draws.step):
                        get(shared[name], "func")(self.env, mask.nonzero().squeeze(1), **get(shared[name], "params"))
            elif name in shared:
                with self._masked(f"curriculum/{name}"):
                    get(shared[name], "func")(self.env, EnvIds.of(mask), **get(shared[name], "params"))
            elif self.group_curricula is not None and name in self.group_curricula.names:
                for group, error in self.group_curricula.evaluate(name, mask, groups):
                    self._stop_curriculum(group, name, error)
        if self.group_curricula is not None and groups:
            self._update_settings()

    def active_groups(self) -> list[int]:
        """Return the groups for which the curriculum may do something, if an episode begins."""
        if self.group_curricula is None:
            return [0] if self.is_alone else []
        return self.group_curricula.active(self.world.steps)

    def missed(self, groups: Sequence[int]) -> tuple[list[str], list[int]]:
        """Return the terms of the curriculum that act in this step and not in the next, and the groups that miss it.

        Args:
            groups: those of the block in which an episode begins.
        """
        missing = [group for group in self.active_groups() if group not in groups]
        if self.group_curricula is None or not missing:
            return [], []
        return self.group_curricula.periodic(self.world.steps), missing

    def _stop_curriculum(self, group: int, name: str, error: BaseException) -> None:
        """Stop a group whose own curriculum, or a curriculum that reads its own terms, has raised."""
        if not any(self.is_patched(self.configs[group], section) for section in SECTIONS):
            raise error
        self._stop_groups([group], raised_in("curriculum", name, error))

    def _may_stop(self) -> bool:
        """Return whether groups may be stopped now for numbers that their curriculum has set: a candidate's."""
        return self.is_patched(self.cfg, "curriculum") and not self.world.parts.capturing

    def _stop_groups(self, groups: Sequence[int], fault: PatchError) -> None:
        """Stop groups, and undo what their curriculum has set, such as commands for which code of all groups raises."""
        assert self.group_curricula is not None
        for group in groups:
            self.group_curricula.stop(group)
            for x in (x for _, term in self._commands() for x in vars(term).values()):
                is_by_row = isinstance(x, Tensor) and x.is_floating_point() and x.dim() and len(x) == self._n
                if is_by_row and 0 not in x.stride():  # else rows share their memory
                    x[self.rows_of(group)] = 0.0
        self.faults([self.groups.start + group for group in groups], fault)
        self._update_settings(dropped=True)

    def _update_settings(self, dropped: bool = False) -> None:
        """Let shared code run with what curricula have set for each group; ``dropped``: some have no longer any."""
        try:
            self._outdated |= self.settings.update()
        except FAULTS:
            self._outdated = True
            if not self._stop_bad_groups():
                raise
        for k, term in enumerate(self.rewards.terms):
            if term.shared.own or dropped:
                self._outdated |= self._update_weight(k, term)

    def _stop_bad_groups(self) -> bool:
        """Stop the groups for which a curriculum has set what no group can have alone; return whether there are any."""
        found = False
        for group in range(len(self.groups)):
            try:
                self.settings.check(group)
            except FAULTS as error:
                self._stop_curriculum(group, "", error)
                found = True
        return found

    def _update_weight(self, k: int, term: Term) -> bool:
        """Compute the weights of a term anew; return whether graphs are outdated."""
        before, after = self._weights[k][0], self._weight(term)
        if isinstance(before, Tensor) and isinstance(after[0], Tensor):
            before.copy_(after[0])
            return False
        self._weights[k] = after
        if not after[1]:
            self._write(term, torch.zeros(term.rows.stop - term.rows.start, device=self._device))
        return type(before) is not type(after[0]) or isinstance(after[0], Tensor) or after[0] != before

    def has_new_settings(self) -> bool:
        """Return whether a curriculum, or a checkpoint, has changed numbers of configs since the last call."""
        if self.group_curricula is not None:
            outdated, self._outdated = self._outdated, False
            return outdated
        if not (self._has_curriculum and self._may_have_new_settings):
            return False
        self._may_have_new_settings = False
        terms = [term.cfg for table in (self.rewards, self.ends) for term in table.terms]
        events = [term for _, term in self.dialect.event_terms(self.event_manager)]
        configs = [*(term.cfg for _, term in self._commands()), *events, *terms]
        if self._contents is not None and self._contents.are_in(configs):
            return False
        before, self._before, self._contents = self._before, frozen(configs), Contents(configs)
        return self._before != before

    def set_by_curricula(self) -> tuple[list[str], list[list[int]]]:
        """Return the attributes that terms have set in the environments, and which groups have copies of configs."""
        names = [name for name in vars(self.env) if name not in self._attributes]
        return names, [] if self.group_curricula is None else self.group_curricula.groups_with_own()

    def kept_by_curricula(self, names: Sequence[str], groups: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return what curricula keep and set, for checkpoints; see ``set_by_curricula``."""
        get, curricula = self.dialect.get, self.group_curricula
        managers = [self.curriculum_manager]
        if curricula is None:
            configs = [term.cfg for _, term in self._commands()]
            configs += [term.cfg for table in (self.rewards, self.ends) for term in table.terms]
        else:
            configs = curricula.own(groups)
            managers += [env.curriculum_manager for env in curricula.envs]
        terms = [get(term, "func") for manager in managers for _, term in self.dialect.curriculum_terms(manager)]
        attributes = {name: vars(self.env)[name] for name in names if name in vars(self.env)}
        return {"terms": terms, "configs": configs, "attributes": attributes}

    def reset_settings(self, names: Sequence[str], groups: Sequence[Sequence[int]]) -> None:
        """Let nothing be set that a checkpoint has not."""
        for name in {*vars(self.env)} - {*self._attributes, *names}:
            delattr(self.env, name)
        if self.group_curricula is not None:
            self.group_curricula.reset_settings(groups)

    def restored(self, kept: Mapping[str, Any]) -> None:
        """Go on with what a checkpoint has given ``kept_by_curricula``."""
        vars(self.env).update(kept["attributes"])
        self._may_have_new_settings = True
        if self.group_curricula is not None:
            self._update_settings(dropped=True)

    def begin(self, mask: Tensor) -> None:
        """Apply the events of mode ``reset`` where ``mask`` ``(n,)`` is True, and reset the managers."""
        env_ids = EnvIds.of(mask)
        with self._masked("events/reset"):
            if "reset" in self.event_manager.available_modes:
                self.event_manager.apply(mode="reset", env_ids=env_ids, global_env_step_count=self.world.clock)
        self.observations.reset(mask)
        with self._masked("terms/reset"):
            self.rewards.reset(lambda rows: EnvIds.of(mask[rows]))
            if self.reward_manager.sums is not None:
                self.reward_manager.sums.masked_fill_(mask.unsqueeze(1), 0.0)
            for name, term in self._commands():
                term.metrics = Unlogged(term.metrics)
                self._of_command(name, term, functools.partial(self._reset_command, name, term, mask))
                term.metrics = dict(term.metrics)
                for value in term.metrics.values():
                    value.masked_fill_(mask, 0.0)
            rename_stream("events/timers")
            self.event_manager.reset(env_ids)
            self.ends.reset(lambda rows: EnvIds.of(mask[rows]))
            for manager in (self.curriculum_manager, self.metrics_manager):
                for term in self.dialect.kept_terms(manager):
                    self.dialect.get(term, "func").reset(env_ids=env_ids)
        if self.group_curricula is not None:
            self.group_curricula.reset(mask)

    def command(self, mask: Tensor) -> None:
        """Advance the commands; where ``mask`` ``(n,)`` is True an episode has begun, and timers stay full."""
        dt: Any = self.env.step_dt
        if self.dialect.keeps_timers:
            dt = self._dt.fill_(dt).masked_fill_(mask, 0.0)
        with self._masked("commands"):
            for name, term in self._commands():
                self._of_command(name, term, functools.partial(self._advance_command, name, term, dt))

    def _of_command(self, name: str, term: Any, call: Callable[[Tensor | None], None]) -> None:
        """Run a command's code with the config of each group."""
        self.settings.run(self.settings.commands.get(name), call, term, reads=False)

    def _reset_command(self, name: str, term: Any, mask: Tensor, users: Tensor | None) -> None:
        rename_stream(f"commands/{name}/reset")
        term.reset(EnvIds.of(mask if users is None else mask & users))

    def _advance_command(self, name: str, term: Any, dt: Any, users: Tensor | None) -> None:
        rename_stream(f"commands/{name}")
        self._shapes.only = users
        try:
            term.compute(dt)
        finally:
            self._shapes.only = None

    # parts

    def rows_of(self, group: int) -> slice:
        """Return the environments of a group."""
        return slice(group * self.size, (group + 1) * self.size)

    def part(self, rows: slice) -> Any:
        """Return some environments of the block as terms see them, with its managers."""
        return self.env if rows == slice(0, self._n) else self.world.part(self, rows)

    def _table(self, section: str, *attributes: str) -> TermTable:
        configs = [self.dialect.terms(cfg, section) for cfg in self.configs]
        return TermTable(self.dialect, section, configs, self.size, attributes, self.part, self._device)

    def _weight(self, term: Term) -> tuple[Any, bool]:
        """Return the weights of a term, a number or ``(rows,)``, and whether any is not 0."""
        name = term.name
        groups = range(term.rows.start // self.size, term.rows.stop // self.size)
        own = {} if term.shared is None else term.shared.own
        of_group = {
            g: self.dialect.get(own.get(g, self.dialect.terms(self.configs[g], "rewards")[name]), "weight")
            for g in term.groups
        }
        if len(set(of_group.values())) == 1:
            weight = of_group[min(of_group)]
            return weight, weight != 0.0
        weights = [of_group.get(g, 0.0) for g in groups]
        return torch.tensor(weights, dtype=torch.float32, device=self._device).repeat_interleave(self.size), True

    def _commands(self) -> list[tuple[str, Any]]:
        return list(self.dialect.command_terms(self.command_manager))

    @property
    def _has_curriculum(self) -> bool:
        return bool(self.dialect.terms(self.cfg, "curriculum"))

    @property
    def _plain(self) -> bool:
        """Whether no curriculum sets weights of all groups."""
        return self.group_curricula is not None or not changes_terms(self.dialect, self.cfg)

    def is_patched(self, cfg: Any, section: str) -> bool:
        """Return whether a config has other terms in a section than the registered one."""
        sections = (self.dialect.terms(each, section) for each in (cfg, self.world.cfg))
        terms, registered = ([(name, id(term)) for name, term in terms.items()] for terms in sections)
        return terms != registered

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
        while not term.failed:
            try:
                with self.world.parts.noting(term):
                    return self.settings.run(term.shared, lambda _: term(), term.func)
            except FAULTS as error:
                if self.world.parts.capturing:
                    raise
                fault = error if isinstance(error, PatchError) else raised_in(term.section, term.name, error)
                own_curriculum = self.is_alone and self.is_patched(self.cfg, "curriculum")
                if not (term.foreign or own_curriculum or self._is_changed(term)):
                    raise
                self._fail(term, fault)
        return None

    def _is_changed(self, term: Term) -> bool:
        """Return whether a term has another function or other parameters than the registered one."""
        configs = (self.world.cfg, self.configs[min(term.groups)])
        cfgs = (self.dialect.terms(cfg, term.section).get(term.name) for cfg in configs)
        registered, present = (None if cfg is None else key_of(self.dialect, cfg) for cfg in cfgs)
        return present != registered

    def _fail(self, term: Term, error: PatchError) -> None:
        """Stop the groups that use a term."""
        term.failed = True
        code = getattr(term.func, "__code__", None)
        error.line = code.co_firstlineno if term.foreign and code is not None else None
        self.faults([self.groups.start + group for group in term.groups], error)

    # random numbers and fixed shapes

    def stream(self, name: str, step: int | Tensor, rows: slice) -> TermStream:
        return TermStream(name, self.draws.seeds[rows], self.draws.lanes[rows], step)

    @contextmanager
    def drawing_in(self, name: str, step: int | Tensor, rows: slice = slice(None)) -> Iterator[None]:
        """Let the code inside the block draw in the name ``name``, for some environments of the block."""
        with self.stream(name, step, rows), drawing(), torch.no_grad():
            yield

    @contextmanager
    def _masked(self, name: str) -> Iterator[None]:
        """Run the framework's code for some environments."""
        self._shapes.name = name
        with self.drawing_in(name, self.draws.step), self._shapes:
            yield


def loaded(keys: Sequence[Any], make: Callable[[range], Block]) -> list[Block]:
    """Construct a block for each run of groups with equal keys; groups that would mix in one get a block each.

    Args:
        make: constructs the block of some groups; its managers follow.
    """
    blocks = [make(range(first, last)) for first, last in runs(keys)]
    for block in blocks:
        block.load()
    mixed = {group for block in blocks if block.mixes() for group in block.groups}
    return loaded([(k, key) if k in mixed else (-1, key) for k, key in enumerate(keys)], make) if mixed else blocks


def _objects_of(scene: Any) -> list[Any]:
    """Return what a scene holds, such as entities and sensors, and what these hold."""
    held = [x for value in vars(scene).values() for x in (value.values() if isinstance(value, Mapping) else (value,))]
    return [scene, *held]
