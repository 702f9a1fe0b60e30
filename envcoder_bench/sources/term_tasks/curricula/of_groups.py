"""Curricula that read what the environments of a group did, and set numbers for this group alone.

The groups of a block share its commands, events and terms. A curriculum's function gets a view of its group's
environments, whose managers show the group's own terms, and copies of the configs that it asks for (``settings.py``).
As in the frameworks, it is called where an episode begins.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.checkpoint import assign
from envcoder_bench.sources.term_tasks.curricula.plain import plain
from envcoder_bench.sources.term_tasks.curricula.settings import Shared
from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.faults import FAULTS
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.term_tasks.managers import GroupManager, Rewards
from envcoder_bench.sources.term_tasks.terms import Term, frozen, is_foreign, key_of


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
                key = functools.partial(key_of, dialect)
                term.shared = Shared(name, term, term.cfg, groups, copier, key, term.groups, term.foreign)
                settings.others.append(term.shared)
        for manager, rows in block.observations.managers:
            groups = range(rows.start // block.size, rows.stop // block.size)
            for section, terms in dialect.observation_terms(manager).items():
                for name, term in terms:
                    named = dialect.get(term, "func")
                    name, foreign = f"observations/{section}/{name}", is_foreign(named.func)
                    named.shared = Shared(name, named, None, groups, lambda _: None, foreign=foreign)
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
        may_act = any(self._may_act(name, steps) for name in self.names)
        return [group for group in range(len(self.envs)) if may_act and group not in self._failed]

    def _may_act(self, name: str, steps: int) -> bool:
        dialect = self._block.dialect
        term = dialect.terms(self._block.cfg, "curriculum")[name]
        known = plain(dialect.get(term, "func"))
        return known is None or known.may_act(steps, self.envs[0], dialect.get(term, "params"))

    def periodic(self, steps: int) -> list[str]:
        """Return the terms that may do something at ``steps``, and not in the next step."""
        return [name for name in self.names if self._may_act(name, steps) and not self._may_act(name, steps + 1)]

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

    def groups_with_own(self) -> list[list[int]]:
        """Return the groups that have copies of configs, for each code that groups share."""
        return [list(shared.own) for shared in self._block.settings.all()]

    def own(self, groups: Sequence[Sequence[int]]) -> list[dict[int, Any]]:
        """Return the copies of configs that ``groups`` have."""
        return [{group: shared.own_of(group) for group in some} for shared, some in self._all_shared(groups)]

    def reset_settings(self, groups: Sequence[Sequence[int]]) -> None:
        """Give all copies of configs, and those of ``groups``, the registered numbers."""
        for shared, some in self._all_shared(groups):
            for group in {*shared.own, *some}:
                copy_into(self._block.dialect, shared.own_of(group), shared.copy(group))

    def _all_shared(self, groups: Sequence[Sequence[int]]) -> Iterator[tuple[Shared, Sequence[int]]]:
        return zip(self._block.settings.all(), groups, strict=True)


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
            assign((config, key), new)
