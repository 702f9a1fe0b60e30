"""Configs that a curriculum has set for single groups of a block, and shared code that runs with each of them.

A curriculum that reads what a group's environments did sets numbers for this group, such as the ranges of a command.
The group then has copies of the configs that its curriculum asks for. The commands, events and terms stay those of all
groups: where the copies differ, their code runs once for each distinct config, and the environments of a group keep
what it did with the group's own. No code is changed for it, and so any number of a config may be set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sources.term_tasks.checkpoint import held_by, put
from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.faults import FAULTS, PatchError, raised_in
from envcoder_bench.sources.term_tasks.terms import Contents, frozen
from envcoder_bench.sources.term_tasks.views import View


class ReadsCommands(Exception):
    """Raised where code reads the config of a command, in which groups differ, for the first time."""


@dataclass
class Variant:
    """A distinct setting of some groups.

    Attributes:
        configs: objects, and the ``cfg`` that they have for these groups.
        groups, users: these groups, and their environments, ``(rows,)`` bool.
    """

    configs: list[tuple[Any, Any]]
    groups: list[int]
    users: Tensor


@dataclass(eq=False)
class Shared(View):
    """Code that groups share, and that reads a config: a command, an event or a term.

    Attributes:
        name: of the code, after that of its section, such as ``events/push``.
        owner: the object that has the config, as ``cfg``.
        base: the config of groups without a copy.
        groups: the groups of the block for whose environments the code runs, from the first to the last user.
        copy: returns a copy of the config for a group.
        key: returns what makes a config distinct.
        users: the groups that use what the code returns; those between them may use none of it.
        foreign: whether a candidate's file defines the code.
        own: the copies, by group.
        reads_commands: whether the code reads the configs of commands as well.
        variants: the distinct settings of the groups; empty if all have the same one.
    """

    name: str
    owner: Any
    base: Any
    groups: Sequence[int]
    copy: Callable[[int], Any]
    key: Callable[[Any], Any] = frozen
    users: Collection[int] = ()
    foreign: bool = False
    own: dict[int, Any] = field(default_factory=dict)
    reads_commands: bool = False
    variants: list[Variant] = field(default_factory=list)
    _base_key: Any = None
    _keys: dict[int, tuple[Contents, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._base_key = self.key(self.base)
        self.users = self.users or self.groups

    def of(self, group: int) -> Any:
        """Return the config of a group."""
        return self.own.get(group, self.base)

    def own_of(self, group: int) -> Any:
        """Return a group's copy of the config, which is made when it is asked for."""
        if group not in self.own:
            self.own[group] = self.copy(group)
        return self.own[group]

    def key_of(self, group: int) -> Any:
        """Return what makes the config of a group distinct."""
        if group not in self.own:
            return self._base_key
        configs, known = [self.own[group]], self._keys.get(group)
        if known is None or not known[0].are_in(configs):
            known = self._keys[group] = Contents(configs), self.key(configs[0])
        return known[1]


class Settings(View):
    """What groups of a block share, and what of it a curriculum has set for each.

    Args:
        size: environments of a group.
        shared_objects: objects, such as those of a scene, whose tensors are not those of a command or term.
        may_stop: returns whether groups may be stopped now, for what their curriculum has set.
        stop: stops groups of the block, and gives them the settings of before their curriculum.
    """

    def __init__(
        self,
        dialect: Dialect,
        size: int,
        device: torch.device,
        shared_objects: Collection[Any],
        may_stop: Callable[[], bool],
        stop: Callable[[Sequence[int], PatchError], None],
    ) -> None:
        self.dialect, self._size, self._device = dialect, size, device
        self._may_stop, self._stop = may_stop, stop
        self._skipped = {id(x) for x in shared_objects}
        self.commands: dict[str, Shared] = {}
        self.others: list[Shared] = []
        self._partitions: dict[int, list[Any]] = {}
        self._reading: Shared | None = None

    def add_command(self, name: str, term: Any, shared: Shared) -> None:
        """Add a command; other code that reads its config is noted."""
        note, cls = self._note_read, type(term)

        def read(term: Any) -> Any:
            note()
            return vars(term)["cfg"]

        def write(term: Any, cfg: Any) -> None:
            vars(term)["cfg"] = cfg

        term.__class__ = type(cls.__name__, (cls,), {"cfg": property(read, write), "__module__": cls.__module__})
        self.commands[name] = shared

    def all(self) -> list[Shared]:
        """Return all code that groups share."""
        return [*self.commands.values(), *self.others]

    def _note_read(self) -> None:
        if self._reading is not None and not self._reading.reads_commands:
            self._reading.reads_commands = True
            if any(shared.variants for shared in self.commands.values()):
                raise ReadsCommands

    def drop(self, group: int) -> None:
        """Let a group have the settings of before its curriculum."""
        for shared in self.all():
            shared.own.pop(group, None)

    def check(self, group: int) -> None:
        """Raise if a curriculum has set for a group what no group can have alone."""
        for shared in self.all():
            shared.key_of(group)

    def update(self) -> bool:
        """Find the distinct configs anew; return whether there are others than before, which graphs must know."""
        return any([self._update(shared) for shared in self.all()])

    def _update(self, shared: Shared) -> bool:
        sources = [shared, *(self.commands.values() if shared.reads_commands else ())]
        if not any(source.own for source in sources) and id(shared) not in self._partitions:
            return False
        groups = [group if group in shared.users else shared.groups[0] for group in shared.groups]
        keys = [tuple(source.key_of(group) for source in sources) for group in groups]
        before = self._partitions.get(id(shared))
        self._partitions[id(shared)] = keys
        shared.owner.cfg = shared.of(shared.groups[0])  # where no variant sets it
        if keys == (before or [(shared._base_key, *(x._base_key for x in sources[1:]))] * len(keys)):
            return False
        first = {key: group for key, group in reversed(list(zip(keys, shared.groups)))}
        users = {key: [each == key for each in keys] for key in dict.fromkeys(keys)}
        shared.variants = [
            Variant(
                [(source.owner, source.of(first[key])) for source in sources],
                [group for group, used in zip(shared.groups, mask) if used],
                torch.tensor(mask, device=self._device).repeat_interleave(self._size),
            )
            for key, mask in (users.items() if len(users) > 1 else ())
        ]
        return True

    def run(self, shared: Shared | None, call: Callable[[Tensor | None], Any], holder: Any, reads: bool = True) -> Any:
        """Call code with the config of each group. A group with whose settings it raises is stopped.

        Args:
            call: takes the environments ``(rows,)`` for which it runs; None: all.
            holder: the object that keeps tensors for the code, of which each environment keeps its own rows.
            reads: whether reads of commands' configs are noted; False for commands themselves.

        Returns:
            What the call returns, each row with the config of its group.
        """
        if shared is None:
            return call(None)
        outer, self._reading = self._reading, shared if reads else None
        try:
            return self._run(shared, call, holder)
        except ReadsCommands:
            self._update(shared)
            return self._run(shared, call, holder)
        finally:
            self._reading = outer

    def _run(self, shared: Shared, call: Callable[[Tensor | None], Any], holder: Any) -> Any:
        if not shared.variants:
            try:
                return call(None)
            except FAULTS as error:
                self._stop(*self._faulty(shared, shared.groups, error))
                return self._run(shared, call, holder)
        before = {path: x.clone() if isinstance(x, Tensor) else x for path, x, _ in self._held(holder)}
        configs = [(owner, owner.cfg) for owner, _ in shared.variants[0].configs]
        results: Any = None
        kept: dict[str, Tensor] = {}
        faulty: list[tuple[list[int], PatchError]] = []
        variants = shared.variants
        try:
            for k, variant in enumerate(variants):
                if k:
                    self._set(holder, before)
                for owner, cfg in variant.configs:
                    owner.cfg = cfg
                try:
                    result = call(variant.users)
                except FAULTS as error:
                    faulty.append(self._faulty(shared, variant.groups, error))
                    continue
                results = result if results is None else merged(variant.users, result, results)
                for path, x, _ in self._held(holder):
                    if isinstance(x, Tensor):
                        kept[path] = merged(variant.users, x, kept[path]) if path in kept else x.clone()
        except BaseException:
            self._set(holder, before)
            raise
        finally:
            for owner, cfg in configs:
                owner.cfg = cfg
        self._set(holder, kept)
        for groups, fault in faulty:
            self._stop(groups, fault)
        return results if len(faulty) < len(variants) else self._run(shared, call, holder)

    def _faulty(self, shared: Shared, groups: Sequence[int], error: BaseException) -> tuple[list[int], PatchError]:
        """Return the groups with whose own settings code has raised, and the fault; raise the error if there are none.

        The task's code that reads no config of a group may raise for what follows from any, such as a command.
        """
        sources = [shared, *(self.commands.values() if shared.reads_commands else ())]
        groups = [group for group in groups if group in shared.users]
        own = [group for group in groups if any(group in source.own for source in sources)]
        if len(own) < len(groups):  # some have the task's own numbers
            every = () if shared.variants or shared.foreign else self.all()
            own = [group for group in groups if any(group in source.own for source in every)]
        if isinstance(error, ReadsCommands) or not own or not self._may_stop():
            raise error
        section, _, name = shared.name.partition("/")
        return own, raised_in(section, name, error, ", with numbers that its curriculum has set,")

    def _held(self, holder: Any) -> list[tuple[str, Any, Any]]:
        return list(held_by(holder, set(self._skipped)))

    def _set(self, holder: Any, values: Mapping[str, Any]) -> None:
        for path, _, owner in self._held(holder):
            if path in values:
                put(owner, values[path], self._device)


def merged(users: Tensor, new: Any, old: Any) -> Any:
    """Return the rows of ``new`` where ``users`` ``(rows,)`` is True, and those of ``old`` elsewhere."""
    if not isinstance(new, Tensor) or not new.dim() or len(new) != len(users):
        return new
    return torch.where(users.view(-1, *[1] * (new.dim() - 1)), new, old)
