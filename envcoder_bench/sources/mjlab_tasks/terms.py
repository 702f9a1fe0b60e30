"""Reward and termination terms of all groups: each distinct term is evaluated once, and weights combine them.

A term is its function and parameters. It is evaluated for the environments from the first to the last group that uses
it, and each environment has a weight for it: 1,000 settings of weights are one evaluation and a larger sum.
"""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg
from torch import Tensor

from envcoder_bench.sources.mjlab_tasks.faults import FAULTS, misshapen, raised_in
from envcoder_bench.sources.mjlab_tasks.view import EnvView, NeedsAll

MakeEnv = Callable[[slice], EnvView]


@dataclass
class Term:
    """A distinct term.

    Attributes:
        section, name: where it is in the first config that has it.
        cfg: its config, with resolved names and an instance of a class.
        rows: the environments for which it is evaluated, of the block.
        users: ``(rows,)`` bool, those that use it; None for all.
        groups: the block's groups that use it, and the index of the term in the config of each.
        foreign: whether a candidate's file defines the function.
        eager, result: whether no graph can contain it, and its value ``(rows,)`` then, which graphs read.
    """

    section: str
    name: str
    cfg: Any
    env: EnvView
    rows: slice
    users: Tensor | None
    groups: dict[int, int]
    columns: Tensor | int
    foreign: bool
    failed: bool = field(default=False)
    eager: bool = field(default=False)
    result: Tensor | None = field(default=None)

    def __call__(self) -> Tensor:
        """Evaluate it: ``(rows,)``."""
        value = self.cfg.func(self.env, **self.cfg.params)
        n = self.rows.stop - self.rows.start
        if not isinstance(value, Tensor) or tuple(value.shape) != (n,):
            raise misshapen(self.section, self.name, value, n, f"({n},)")
        return value


def resolve(cfg: Any, env: EnvView) -> Any:
    """Resolve the names in a term's parameters, and construct a class, as mjlab's managers do."""
    for value in cfg.params.values():
        if isinstance(value, SceneEntityCfg):
            value.resolve(env.scene)  # type: ignore[arg-type]
    func: Any = cfg.func
    cfg.func = func(cfg=cfg, env=env) if inspect.isclass(func) else func  # pyright: ignore[reportCallIssue]
    return cfg


def key_of(cfg: Any, *names: str) -> tuple[Any, ...]:
    """Return what makes a term distinct: its function, its parameters, and the attributes ``names``."""
    return (frozen(cfg.func), frozen(cfg.params), *(frozen(getattr(cfg, name)) for name in names))


def frozen(value: Any) -> Any:
    """Return a hashable value that is equal for equal configs; functions and tensors are compared by identity."""
    if isinstance(value, dict):
        return tuple((key, frozen(x)) for key, x in value.items())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(frozen, value))
    if is_dataclass(value) and not isinstance(value, type):
        own = [(name, x) for name, x in vars(value).items() if not name.startswith("_")]
        return (type(value), *((name, frozen(x)) for name, x in own or [(f.name, None) for f in fields(value)]))
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return ("object", id(value)) if isinstance(value, Tensor) else (type(value).__name__, value)


def merged_order(configs: Sequence[Mapping[str, Any]], key: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """Return the distinct ``(name, key)`` of all configs, so that the order of each config is kept."""
    order: list[tuple[str, Any]] = []
    known: set[tuple[str, Any]] = set()
    for config in configs:
        place = 0
        for name, cfg in config.items():
            term = (name, key(cfg))
            if term not in known:
                order.insert(place, term)
                known.add(term)
                place += 1
            else:
                place = max(place, order.index(term) + 1)
    return order


class TermTable:
    """The distinct terms of a section of all groups of a block.

    Args:
        section: their name in the config.
        configs: the terms of each group by name, config objects of mjlab.
        size: environments of a group.
        attributes: attributes of a config that make it distinct.
        make_env: returns the view of some environments of the block.
        clone: copies a config, so that resolving it changes no other.
    """

    def __init__(
        self,
        section: str,
        configs: Sequence[Mapping[str, Any]],
        size: int,
        attributes: Sequence[str],
        make_env: MakeEnv,
        clone: Callable[[Any], Any],
        device: torch.device,
    ) -> None:
        self.section, self.configs, self.size, self.device = section, configs, size, device
        by_id: dict[int, Any] = {}

        def key(cfg: Any) -> Any:
            if id(cfg) not in by_id:  # groups share most config objects
                by_id[id(cfg)] = key_of(cfg, *attributes)
            return by_id[id(cfg)]

        users: dict[tuple[str, Any], dict[int, int]] = {}
        for group, config in enumerate(configs):
            for index, (name, cfg) in enumerate(config.items()):
                users.setdefault((name, key(cfg)), {})[group] = index
        distinct = {id(config): config for config in configs}  # the same dict for all seeds of a candidate
        self.terms: list[Term] = []
        for name, own in merged_order(list(distinct.values()), key):
            groups = users[name, own]
            self.terms.append(self._term(name, configs[min(groups)][name], groups, make_env, clone))

    def _term(
        self, name: str, cfg: Any, groups: dict[int, int], make_env: MakeEnv, clone: Callable[[Any], Any]
    ) -> Term:
        first, last = min(groups), max(groups)
        try:
            try:
                rows = slice(first * self.size, (last + 1) * self.size)
                env = make_env(rows)
                own = resolve(clone(cfg), env)
                if first > 0 or last < len(self.configs) - 1:
                    own.func(env, **own.params)  # it may read what has no view of some environments
            except NeedsAll:
                first, last = 0, len(self.configs) - 1
                rows = slice(0, (last + 1) * self.size)
                env = make_env(rows)
            own = resolve(clone(cfg), env)  # what it keeps is as new
        except FAULTS as error:
            raise raised_in(self.section, name, error) from error
        used = torch.tensor([group in groups for group in range(first, last + 1)], device=self.device)
        columns = torch.tensor([groups.get(group, 0) for group in range(first, last + 1)], device=self.device)
        same = set(groups.values())
        return Term(
            section=self.section,
            name=name,
            cfg=own,
            env=env,
            rows=rows,
            users=None if bool(used.all()) else used.repeat_interleave(self.size),
            groups=groups,
            columns=same.pop() if len(same) == 1 else columns.repeat_interleave(self.size),
            foreign=is_foreign(own.func),
        )

    def reset(self, make_ids: Callable[[slice], Any]) -> None:
        """Reset terms that keep something, for the environments that ``make_ids`` returns of some rows."""
        for term in self.terms:
            if hasattr(term.cfg.func, "reset") and not term.failed:
                term.cfg.func.reset(env_ids=make_ids(term.rows))


def is_foreign(func: Any) -> bool:
    """Return whether a candidate's file defines a function or the class of an object."""
    while isinstance(func, functools.partial):
        func = func.func
    module = getattr(func, "__module__", None) or type(func).__module__
    return module.startswith("envcoder_candidate_")
