"""Curricula that read what the environments of a group did, and set numbers for this group alone.

The groups of a block share its commands, events and terms. A curriculum's function gets a view of its group's
environments, whose managers show the group's own terms, and copies of the configs that it asks for (``settings.py``).
As in the frameworks, it is called where an episode begins.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.checkpoint import as_tensor, number_of
from envcoder_bench.sources.term_tasks.curricula.plain import plain
from envcoder_bench.sources.term_tasks.curricula.settings import Shared
from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.faults import FAULTS
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.term_tasks.managers import GroupManager, Rewards
from envcoder_bench.sources.term_tasks.terms import Term, frozen, key_of


class GroupCurricula:
    """The curricula of a block's groups.

    Args:
        block: a ``Block`` with its managers, except that of its curriculum.
        events: the functions of its events by name.

    Attributes:
        names: the terms of the curriculum that are evaluated for each group.
        envs: the environments of each group, with managers of the group.
    """

    def __init__(self, block: Any, events: Mapping[str, Any]) -> None:
        self._block, dialect = block, block.dialect
        terms = dialect.terms(block.cfg, "curriculum")
        self.names = [name for name, term in terms.items() if not dialect.is_of_one_environment(term)]
        self._events: dict[str, Shared] = {}
        self._share(events)
        self.envs = [self._env(group) for group in range(len(block.groups))]
        cfg = dialect.with_terms(block.cfg, "curriculum", {name: terms[name] for name in self.names})
        for env in self.envs:
            env.curriculum_manager = dialect.curriculum_manager(cfg, env)
        self._failed: set[int] = set()  # groups that are stopped

    def _share(self, events: Mapping[str, Any]) -> None:
        """Let commands, events and terms run with the config of each group."""
        block, settings, dialect = self._block, self._block.settings, self._block.dialect
        everyone = range(len(block.groups))
        for name, term in dialect.command_terms(block.command_manager):
            cfg = term.cfg
            copier = functools.partial(lambda cfg, _: copy.deepcopy(cfg), cfg)
            settings.add_command(name, term, Shared(f"commands/{name}", term, cfg, everyone, copier))
        live = dict(dialect.event_terms(block.event_manager))
        for name, named in events.items():
            cfg = live[name]
            copier, key = self._copier(cfg), self._key_of_event(cfg)
            shared = Shared(f"events/{name}", named, cfg, everyone, copier, key)
            named.shared = self._events[name] = shared
            settings.others.append(shared)
        for table in (block.rewards, block.ends):
            for term in table.terms:
                groups = range(term.rows.start // block.size, term.rows.stop // block.size)
                name, copier = f"{term.section}/{term.name}", self._copier_of(term)
                term.shared = Shared(name, term, term.cfg, groups, copier, functools.partial(key_of, dialect))
                settings.others.append(term.shared)
        for manager, rows in block.observation_managers:
            groups = range(rows.start // block.size, rows.stop // block.size)
            for section, terms in dialect.observation_terms(manager).items():
                for name, term in terms:
                    named = dialect.get(term, "func")
                    named.shared = Shared(f"observations/{section}/{name}", named, None, groups, lambda _: None)
                    settings.others.append(named.shared)

    def _copier(self, cfg: Any) -> Any:
        dialect = self._block.dialect
        return lambda _: dialect.with_values(cfg, {"params": copy.deepcopy(dialect.get(cfg, "params"))})

    def _copier_of(self, term: Term) -> Any:
        """Return what copies a term's config for a group, with the group's own weight."""
        block, dialect, base = self._block, self._block.dialect, term.cfg
        params = copy.deepcopy(dialect.get(base, "params"))  # a curriculum may change those of the first group

        def of_group(group: int) -> Any:
            cfg = dialect.terms(block.configs[group], term.section)[term.name]
            weight = dialect.get(cfg, "weight")
            values = {"params": copy.deepcopy(params)}
            return dialect.with_values(base, values if weight is None else {**values, "weight": weight})

        return of_group

    def _key_of_event(self, base: Any) -> Any:
        """Return what makes an event's config distinct: its parameters; the manager reads the rest for all groups."""
        dialect = self._block.dialect

        def rest(cfg: Any) -> Any:
            return frozen({key: x for key, x in dialect.values(cfg).items() if key not in ("func", "params")})

        of_base = rest(base)

        def key(cfg: Any) -> Any:
            if rest(cfg) != of_base:
                raise UserError("a curriculum by what a candidate's environments did can set an event's params alone")
            return frozen(dialect.get(cfg, "params"))

        return key

    def _env(self, group: int) -> Any:
        """Return the environments of a group, with managers that show the group's own."""
        block, settings = self._block, self._block.settings
        rows = block.rows_of(group)
        env = block.world.part(block, rows)
        env.cfg = block.configs[group]
        env.command_manager = GroupManager(block.command_manager, rows, env, group, settings.commands)
        env.event_manager = GroupManager(block.event_manager, rows, env, group, self._events)
        env.termination_manager = block.termination_manager.of_group(rows, group)
        env.reward_manager = Rewards(block, group)
        return env

    def active(self, steps: int) -> list[int]:
        """Return the groups of which a term of the curriculum may do something at ``steps``."""
        groups = [group for group in range(len(self.envs)) if group not in self._failed]
        return [group for group in groups if any(self._may_act(name, group, steps) for name in self.names)]

    def _may_act(self, name: str, group: int, steps: int) -> bool:
        dialect, env = self._block.dialect, self.envs[group]
        term = dialect.terms(self._block.cfg, "curriculum")[name]
        known = plain(dialect.get(term, "func"))
        return known is None or known.may_act(steps, env, dialect.get(term, "params"))

    def evaluate(self, name: str, mask: Tensor, groups: Iterable[int]) -> Iterator[tuple[int, BaseException]]:
        """Evaluate a term for some groups that are not stopped; yield those for which it raises, with the error.

        Args:
            mask: ``(n,)`` where episodes begin.
        """
        for group in groups:
            try:
                self._evaluate(name, mask, group)
            except FAULTS as error:
                self._failed.add(group)
                yield group, error

    def _evaluate(self, name: str, mask: Tensor, group: int) -> None:
        """Evaluate a term for a group, with the indices of the environments whose episodes begin."""
        block, get = self._block, self._block.dialect.get
        env, rows = self.envs[group], block.rows_of(group)
        term = dict(block.dialect.curriculum_terms(env.curriculum_manager))[name]
        with block.drawing_in(f"curriculum/{name}", block.draws.step, rows):
            get(term, "func")(env, mask[rows].nonzero().squeeze(1), **get(term, "params"))

    def reset(self, mask: Tensor) -> None:
        """Reset terms that keep something, where ``mask`` ``(n,)`` is True."""
        block = self._block
        for group, env in enumerate(self.envs):
            for term in block.dialect.kept_terms(env.curriculum_manager):
                rows = block.rows_of(group)
                with FixedShapes(block.size, "curriculum/reset"):
                    block.dialect.get(term, "func").reset(env_ids=EnvIds.of(mask[rows]))

    def stop(self, group: int) -> None:
        """Evaluate no curriculum of a group any more, and undo what they have set."""
        self._failed.add(group)
        self._block.settings.drop(group)

    # checkpoints

    def numbers(self) -> dict[str, Tensor]:
        """Return the numbers of the groups' own configs."""
        result = {}
        for group in range(len(self.envs)):
            for path, _, _, x in self._numbers_of(group):
                result[f"{group}/{path}"] = as_tensor(x)
        return result

    def restore(self, numbers: Mapping[str, Tensor]) -> None:
        """Restore what ``numbers`` returned."""
        dialect = self._block.dialect
        for group in range(len(self.envs)):
            own = {key.partition("/")[2]: x for key, x in numbers.items() if key.startswith(f"{group}/")}
            for kind, k, shared in self._all_shared():
                if group in shared.own or any(path.startswith(f"{kind}/{k}/") for path in own):
                    fresh = shared.copy(group)
                    for path, owner, key, x in list(numbers_of(dialect, fresh, f"{kind}/{k}")):
                        if path in own:
                            set_number(dialect, owner, key, number_of(own[path], x))
                    copy_into(dialect, shared.own_of(group), fresh)

    def _numbers_of(self, group: int) -> Iterator[tuple[str, Any, Any, Any]]:
        for kind, k, shared in self._all_shared():
            if group in shared.own:
                yield from numbers_of(self._block.dialect, shared.own[group], f"{kind}/{k}")

    def _all_shared(self) -> Iterator[tuple[str, Any, Shared]]:
        settings = self._block.settings
        for name, shared in settings.commands.items():
            yield "commands", name, shared
        for k, shared in enumerate(settings.others):
            if shared.base is not None:
                yield "terms", k, shared


def numbers_of(dialect: Dialect, config: Any, path: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield path, owner, key and value of the numbers, or tuples of numbers, that a config holds."""
    for key in config if isinstance(config, dict) else dialect.keys(config):
        x = config[key] if isinstance(config, dict) else dialect.get(config, key)
        parts = x if isinstance(x, (tuple, list)) else (x,)
        if parts and all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in parts):
            yield f"{path}/{key}", config, key, x
        elif isinstance(x, dict) or dialect.keys(x):
            yield from numbers_of(dialect, x, f"{path}/{key}")


def copy_into(dialect: Dialect, config: Any, source: Any) -> None:
    """Give a config, and what it holds, the values of another: a curriculum may have kept these objects."""
    if isinstance(config, dict):
        for key in [key for key in config if key not in source]:
            del config[key]
    for key in source if isinstance(source, dict) else dialect.keys(source):
        old, new = (x.get(key) if isinstance(x, dict) else dialect.get(x, key) for x in (config, source))
        if type(old) is type(new) and (isinstance(new, dict) or dialect.keys(new)):
            copy_into(dialect, old, new)
        elif new is not old:
            set_number(dialect, config, key, new)


def set_number(dialect: Dialect, owner: Any, key: Any, value: Any) -> None:
    """Set a number that ``numbers_of`` has yielded."""
    if isinstance(owner, dict):
        owner[key] = value
    else:
        dialect.put(owner, key, value)
