"""Rewards and terminations as a framework's managers show them: to terms, to curricula, and of one group."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.curricula.settings import Shared
from envcoder_bench.sources.term_tasks.patches import changes_terms, judges_groups
from envcoder_bench.sources.term_tasks.terms import Term, TermTable
from envcoder_bench.sources.term_tasks.views import ManagerView, live_rows


class Terms:
    """The terms of a section as a curriculum reads and changes them: ``env.reward_manager``.

    Attributes:
        table: the section.
        group: the group of the block that it shows; None: all, which have the same terms.
    """

    table: TermTable
    group: int | None = None

    @property
    def active_terms(self) -> list[str]:
        return list(dict.fromkeys(term.name for term in self.terms))

    @property
    def terms(self) -> list[Term]:
        """The terms, those of a group in its own order."""
        group = self.group
        if group is None:
            return self.table.terms
        return sorted((x for x in self.table.terms if group in x.groups), key=lambda x: x.groups[group])

    def get_term_cfg(self, name: str) -> Any:
        """Return the config of a term, whose weight and parameters a curriculum may set."""
        term = self._term(name)
        return term.cfg if self.group is None or term.shared is None else term.shared.own_of(self.group)

    def set_term_cfg(self, name: str, cfg: Any) -> None:
        """Replace the config of a term."""
        term = self._term(name)
        if self.group is None or term.shared is None:
            term.cfg = cfg
        else:
            term.shared.own[self.group] = cfg

    def _term(self, name: str) -> Term:
        for term in self.terms:
            if term.name == name:
                return term
        there = ", ".join(self.active_terms)
        message = f"a curriculum or event reads the term '{name}' of {self.table.section}; there are {there}"
        raise ValueError(f"{message}: patch the curriculum, too")


class Rewards(Terms):
    """The reward terms of a block whose groups have the same ones, or of one group, as ``RewardManager`` has them.

    Commands and observations of some packages read its private parts.

    Args:
        block: a ``Block``. Its ``world.reads_rewards`` says whether the task's own code reads them; then blocks also
            differ in rewards.
        group: of the block.
    """

    def __init__(self, block: Any, group: int | None = None) -> None:
        self._block, self.group = block, group
        self.sums: Tensor | None = None  # of the weighted terms since an episode began; None until someone reads it
        if group is not None:
            self.table = block.rewards

    @property
    def active_terms(self) -> list[str]:
        self._refuse_mixed()
        return super().active_terms

    def _term(self, name: str) -> Term:
        self._refuse_mixed()
        return super()._term(name)

    @property
    def _term_names(self) -> list[str]:
        return self.active_terms

    @property
    def _term_cfgs(self) -> list[Any]:
        return [self.get_term_cfg(name) for name in self.active_terms]

    @property
    def _step_reward(self) -> Tensor:
        """Weighted terms of the last step, per second if the config scales them by the step: ``(n, terms)``."""
        names = self.active_terms
        return self._rows(self._block.reward_terms)[:, : len(names)] / self._block.reward_scale

    @property
    def _episode_sums(self) -> dict[str, Tensor]:
        """Weighted terms of an episode so far, by name."""
        names, owner = self.active_terms, self._block.reward_manager
        if owner.sums is None:
            owner.sums = torch.zeros_like(self._block.reward_terms)
        sums = self._rows(owner.sums)
        return {name: sums[:, k] for k, name in enumerate(names)}

    def _rows(self, x: Tensor) -> Tensor:
        return x if self.group is None else x[self._block.rows_of(self.group)]

    def _refuse_mixed(self) -> None:
        if self.group is not None:
            return
        world = self._block.world
        world.has_read_rewards = True
        cfg, dialect = self._block.cfg, world.dialect
        sets_terms = changes_terms(dialect, cfg) and (self._block.is_alone or not judges_groups(dialect, cfg))
        if not (world.reads_rewards or sets_terms):
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

    def of_group(self, rows: slice, group: int) -> Terminations:
        """Return those of one group, with ``rows`` of the block."""
        view = copy.copy(self)
        view.group, view.terminated, view.time_outs = group, self.terminated[rows], self.time_outs[rows]
        view.get_term = lambda name: self.get_term(name)[rows]
        return view


class Configs:
    """The configs of a group's commands or events by name, as attributes and items: ``manager.cfg``."""

    def __init__(self, shared: Mapping[str, Shared], group: int) -> None:
        self._shared, self._group = shared, group

    def __getitem__(self, name: str) -> Any:
        return self._shared[name].own_of(self._group)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._shared:
            raise AttributeError(name)
        return self[name]


class GroupManager(ManagerView):
    """The commands, or the events, of one group, which has copies of the configs that its curriculum asks for."""

    def __init__(self, manager: Any, rows: slice, env: Any, group: int, shared: Mapping[str, Shared]) -> None:
        super().__init__(manager, rows)
        self._env, self._group, self._shared = env, group, shared
        self.cfg = Configs(shared, group)

    def get_term_cfg(self, name: str) -> Any:
        return self.cfg[name]

    def set_term_cfg(self, name: str, cfg: Any) -> None:
        self._shared[name].own[self._group] = cfg

    def get_term(self, name: str) -> Any:
        """Return a command of the same class, whose tensors and config are those of the group."""
        term, rows, env = self._manager.get_term(name), self._rows, self._env

        def other(value: Any) -> Any:
            if value is term.cfg:
                return self.cfg[name]
            if isinstance(value, dict):
                return {key: other(x) for key, x in value.items()}
            if isinstance(value, Tensor):
                return value[rows] if value.dim() and len(value) == term.num_envs else value
            return env if value is vars(term).get("_env") else value

        shared, group = self._shared[name], self._group
        own = {key: values[group] for key, values in shared.values.items() if group in values}
        return live_rows(term, rows, term.num_envs, other, own, functools.partial(shared.set_value, group))
