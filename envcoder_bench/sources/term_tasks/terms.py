"""Reward and termination terms of all groups: each distinct term is evaluated once, and weights combine them.

A term is its function and parameters. It is evaluated for the environments from the first to the last group that uses
it, and each environment has a weight for it: 1,000 settings of weights are one evaluation and a larger sum.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.faults import FAULTS, misshapen, raised_in
from envcoder_bench.sources.term_tasks.views import NeedsAll

MakeEnv = Callable[[slice], Any]  # returns the view of some environments


@dataclass
class Term:
    """A distinct term.

    Attributes:
        section, name: where it is in the first config that has it.
        dialect: of its framework.
        cfg: its config, with resolved names and an instance of a class.
        rows: the environments for which it is evaluated, of the block.
        users: ``(rows,)`` bool, those that use it; None for all.
        groups: the block's groups that use it, and the index of the term in the config of each.
        foreign: whether a candidate's file defines the function.
        shared: how it runs with configs of its groups; None: a curriculum sets none for single groups.
        eager, result: whether no graph can contain it, and its value ``(rows,)`` then, which graphs read.
    """

    dialect: Dialect
    section: str
    name: str
    cfg: Any
    env: Any
    rows: slice
    users: Tensor | None
    groups: dict[int, int]
    columns: Tensor | int
    foreign: bool
    shared: Any = field(default=None)
    failed: bool = field(default=False)
    eager: bool = field(default=False)
    result: Tensor | None = field(default=None)

    @property
    def func(self) -> Any:
        """Its function, which a curriculum may replace."""
        return self.dialect.get(self.cfg, "func")

    def __call__(self) -> Tensor:
        """Evaluate it: ``(rows,)``."""
        value = self.func(self.env, **self.dialect.get(self.cfg, "params"))
        n = self.rows.stop - self.rows.start
        if not isinstance(value, Tensor) or tuple(value.shape) != (n,):
            raise misshapen(self.section, self.name, value, n, f"({n},)")
        return value


def resolve(dialect: Dialect, cfg: Any, env: Any) -> Any:
    """Resolve the names in a term's parameters, and construct a class, as the framework's managers do."""
    for value in dialect.get(cfg, "params").values():
        dialect.resolve(value, env.scene)
    func: Any = dialect.get(cfg, "func")
    if inspect.isclass(func):
        dialect.put(cfg, "func", func(cfg=cfg, env=env))  # pyright: ignore[reportCallIssue]
    return cfg


def key_of(dialect: Dialect, cfg: Any, *names: str) -> tuple[Any, ...]:
    """Return what makes a term distinct: its function, its parameters, and the attributes ``names``."""
    return tuple(frozen(dialect.get(cfg, name)) for name in ("func", "params", *names))


def frozen(value: Any) -> Any:
    """Return a hashable value that is equal for equal configs; functions and tensors are compared by identity."""
    if isinstance(value, dict):
        return tuple((key, frozen(x)) for key, x in value.items())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(frozen, value))
    if is_dataclass(value) and not isinstance(value, type):
        attributes = [(name, x) for name, x in vars(value).items() if not name.startswith("_")]
        return (type(value), *((name, frozen(x)) for name, x in attributes or [(f.name, None) for f in fields(value)]))
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return ("object", id(value)) if isinstance(value, Tensor) else (type(value).__name__, value)


def runs(keys: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the first and the last + 1 index of each run of equal keys."""
    starts = [k for k in range(len(keys)) if k == 0 or keys[k] != keys[k - 1]]
    return list(zip(starts, [*starts[1:], len(keys)]))


class Contents:
    """The objects that configs hold, which are compared in less time than ``frozen`` takes."""

    def __init__(self, configs: Sequence[Any]) -> None:
        self._configs, seen = configs, set[int]()
        self._held = [(x, list(_values_of(x))) for config in configs for x in _holders(config, seen)]

    def are_in(self, configs: Sequence[Any]) -> bool:
        """Return whether configs are the same objects as before, and hold the same objects."""
        return _are_same(configs, self._configs) and all(_are_same(_values_of(x), before) for x, before in self._held)


def _are_same(values: Collection[Any], others: Collection[Any]) -> bool:
    return len(values) == len(others) and all(map(operator.is_, values, others))


def _holders(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a config and what it holds: dicts, lists, tuples and dataclasses, each once."""
    is_holder = isinstance(value, (dict, list, tuple)) or (is_dataclass(value) and not isinstance(value, type))
    if is_holder and id(value) not in seen:
        seen.add(id(value))
        yield value
        for held in _values_of(value):
            yield from _holders(held, seen)


def _values_of(holder: Any) -> Collection[Any]:
    if isinstance(holder, (list, tuple)):
        return holder
    return (holder if isinstance(holder, dict) else vars(holder)).values()


def merged_order(configs: Sequence[Mapping[str, Any]], key: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """Return the distinct ``(name, key)`` of all configs, so that the order of each config is kept."""
    order: list[tuple[str, Any]] = []
    seen: set[tuple[str, Any]] = set()
    for config in configs:
        position = 0
        for name, cfg in config.items():
            term = (name, key(cfg))
            if term not in seen:
                order.insert(position, term)
                seen.add(term)
                position += 1
            else:
                position = max(position, order.index(term) + 1)
    return order


class TermTable:
    """The distinct terms of a section of all groups of a block.

    Args:
        dialect: of the framework.
        section: their name in the config.
        configs: the terms of each group by name, as the framework has them.
        size: environments of a group.
        attributes: attributes of a config that make it distinct.
        make_env: returns the view of some environments of the block.
    """

    def __init__(
        self,
        dialect: Dialect,
        section: str,
        configs: Sequence[Mapping[str, Any]],
        size: int,
        attributes: Sequence[str],
        make_env: MakeEnv,
        device: torch.device,
    ) -> None:
        self.dialect, self.section, self.configs, self.size, self.device = dialect, section, configs, size, device
        by_id: dict[int, Any] = {}

        def key(cfg: Any) -> Any:
            if id(cfg) not in by_id:  # groups share most config objects
                by_id[id(cfg)] = key_of(dialect, cfg, *attributes)
            return by_id[id(cfg)]

        users: dict[tuple[str, Any], dict[int, int]] = {}
        for group, config in enumerate(configs):
            for index, (name, cfg) in enumerate(config.items()):
                users.setdefault((name, key(cfg)), {})[group] = index
        distinct = {id(config): config for config in configs}  # the same dict for all seeds of a candidate
        self.terms: list[Term] = []
        for name, term_key in merged_order(list(distinct.values()), key):
            groups = users[name, term_key]
            self.terms.append(self._term(name, configs[min(groups)][name], groups, make_env))

    def _term(self, name: str, cfg: Any, groups: dict[int, int], make_env: MakeEnv) -> Term:
        first, last = min(groups), max(groups)
        try:
            try:
                rows = slice(first * self.size, (last + 1) * self.size)
                env = make_env(rows)
                resolved = resolve(self.dialect, copy.deepcopy(cfg), env)
                if first > 0 or last < len(self.configs) - 1:
                    # it may read what has no view of some environments
                    _try(self.dialect.get(resolved, "func"), env, self.dialect.get(resolved, "params"))
            except NeedsAll:
                first, last = 0, len(self.configs) - 1
                rows = slice(0, (last + 1) * self.size)
                env = make_env(rows)
            resolved = resolve(self.dialect, copy.deepcopy(cfg), env)  # what it keeps is as new
        except FAULTS as error:
            raise raised_in(self.section, name, error) from error
        used = torch.tensor([group in groups for group in range(first, last + 1)], device=self.device)
        columns = torch.tensor([groups.get(group, 0) for group in range(first, last + 1)], device=self.device)
        same = set(groups.values())
        return Term(
            dialect=self.dialect,
            section=self.section,
            name=name,
            cfg=resolved,
            env=env,
            rows=rows,
            users=None if bool(used.all()) else used.repeat_interleave(self.size),
            groups=groups,
            columns=same.pop() if len(same) == 1 else columns.repeat_interleave(self.size),
            foreign=is_foreign(self.dialect.get(resolved, "func")),
        )

    def reset(self, make_ids: Callable[[slice], Any]) -> None:
        """Reset terms that keep something, for the environments that ``make_ids`` returns of some rows."""
        for term in self.terms:
            if hasattr(term.func, "reset") and not term.failed:
                term.func.reset(env_ids=make_ids(term.rows))


def is_foreign(func: Any) -> bool:
    """Return whether a candidate's file defines a function or the class of an object."""
    while isinstance(func, functools.partial):
        func = func.func
    module = getattr(func, "__module__", None) or type(func).__module__
    return module.startswith("envcoder_candidate_")


def _try(func: Any, env: Any, params: Mapping[str, Any]) -> None:
    """Call a term's function. Raises NeedsAll; other faults are those of the steps, before which nothing is drawn."""
    try:
        func(env, **params)
    except NeedsAll:
        raise
    except FAULTS:
        pass
