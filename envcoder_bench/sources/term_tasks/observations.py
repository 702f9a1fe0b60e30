"""The observations of a block's groups, which may differ in their terms."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import Tensor

from envcoder_bench.sources.term_tasks.faults import FAULTS, PatchError, misshapen, raised_in
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.term_tasks.graphs.parts import side_by_side
from envcoder_bench.sources.term_tasks.terms import frozen, runs


class Observations:
    """A manager for each run of groups with the same observations.

    Args:
        block: a ``Block`` with its events and commands.

    Attributes:
        managers: each with its environments of the block.
    """

    def __init__(self, block: Any) -> None:
        self._block, self._dialect = block, block.dialect
        self.managers: list[tuple[Any, slice]] = []
        self._load()

    def _load(self) -> None:
        """Construct a manager of observations for each run of groups with the same ones."""
        block = self._block
        for first, last in runs([frozen(self._dialect.terms(cfg, "observations")) for cfg in block.configs]):
            rows = slice(first * block.size, last * block.size)
            env = block.part(rows)
            with block.drawing_in("observations", -1, rows):
                try:
                    manager = self._dialect.observation_manager(block.configs[first], env)
                except FAULTS as error:
                    raise self._fault(first, env, error) from error
            self._read_widths(manager)
            for group, terms in self._dialect.observation_terms(manager).items():
                for name, term in terms:
                    block.named(term, f"observations/{group}/{name}")
            self.managers.append((manager, rows))

    def reset(self, mask: Tensor) -> None:
        """Reset what terms keep where ``mask`` ``(n,)`` is True."""
        block, name = self._block, "observations/reset"
        with block.drawing_in(name, block.draws.step):
            for manager, rows in self.managers:
                with block.stream(name, block.draws.step, rows), FixedShapes(rows.stop - rows.start, name):
                    manager.reset(EnvIds.of(mask[rows]))

    def compute(self) -> None:
        """Compute the observations of the actor and the critic, once per step."""
        block = self._block
        with block.drawing_in("observations", block.draws.step):
            for manager, rows in list(self.managers):
                with block.stream("observations", block.draws.step, rows):
                    try:
                        names = list(self._dialect.observation_terms(manager))
                        calls = [functools.partial(self._dialect.observe, manager, name) for name in names]
                        observed = dict(zip(names, side_by_side(calls, self._dialect.branches)))
                    except FAULTS as error:
                        if block.world.parts.capturing:
                            raise
                        groups = range(rows.start // block.size, rows.stop // block.size)
                        if not block.is_patched(block.configs[groups[0]], "observations"):
                            raise
                        self.managers.remove((manager, rows))
                        fault = self._fault(groups[0], block.part(rows), error)
                        block.faults([block.groups.start + g for g in groups], fault)
                        continue
                for reader, groups in block.world.obs_sets.items():
                    first = 0
                    for x in (observed[group] for group in groups):
                        assert isinstance(x, Tensor)
                        block.buffers[reader][rows, first : first + x.shape[1]].copy_(x)
                        first += x.shape[1]

    def widths(self) -> dict[str, int]:
        """Return how many columns the actor, and the critic, of the first group read."""
        return self._read_widths(self.managers[0][0])

    def _read_widths(self, manager: Any) -> dict[str, int]:
        widths, of_groups = {}, self._dialect.observation_dims(manager)
        for reader, groups in self._block.world.obs_sets.items():
            for group in groups:
                if group not in of_groups:  # mjlab skips it
                    raise PatchError("observations", group, f"the observations '{group}' of the {reader} have no term")
            dims: list[Any] = [of_groups[group] for group in groups]
            if any(not isinstance(dim, tuple) or len(dim) != 1 for dim in dims):
                raise PatchError(
                    "observations",
                    "",
                    f"the observations of the {reader} ({', '.join(groups)}) must be one row of numbers",
                )
            widths[reader] = sum(dim[0] for dim in dims)
        return widths

    def _fault(self, group: int, env: Any, error: BaseException) -> PatchError:
        """Return the fault of a group's observations: of the term that has not one row for each environment, if any."""
        n, get = env.num_envs, self._dialect.get
        for obs_group in self._dialect.terms(self._block.configs[group], "observations").values():
            for name, term in self._dialect.group_terms(obs_group).items():
                if term is None or inspect.isclass(get(term, "func")):
                    continue
                try:
                    value = get(term, "func")(env, **get(term, "params"))
                except FAULTS as raised:
                    return raised_in("observations", name, raised)
                shape = tuple(getattr(value, "shape", ()))
                if not isinstance(value, Tensor) or len(shape) < 2 or shape[0] != n:
                    return misshapen("observations", name, value, n, f"({n}, k)")
        return raised_in("observations", "", error)
