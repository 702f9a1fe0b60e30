"""The calls of one kind of function for all groups, and the padded buffers that they fill."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from envcoder_bench.compile.program import Program
from envcoder_bench.core import noise, stream
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.random_calls import FromStream
from envcoder_bench.env.input_copies import DeviceCopies, GroupCopies, Inputs
from envcoder_bench.shaping import outputs
from envcoder_bench.shaping.contract import CandidateFunction
from envcoder_bench.shaping.kinds import VALUE, Kind, Part

Store = Callable[[object], None]


class Call:
    """A function of a group, bound to its inputs and to its rows of the stage's buffers.

    The same object runs on the CPU, eagerly on CUDA and in a captured graph. ``function`` is None for the task's own
    drives; ``inputs`` are what ``invoke`` passes to it.
    """

    __slots__ = (
        "_device",
        "_draws",
        "_invoke",
        "_purpose",
        "_store",
        "_uses_generator",
        "function",
        "group",
        "inputs",
        "seed",
    )

    def __init__(
        self,
        group: int,
        function: CandidateFunction | None,
        inputs: Inputs,
        invoke: Callable[[], object],
        store: Store,
        seed: int,
        purpose: int,
        device: torch.device,
    ) -> None:
        self.group, self.function, self.inputs = group, function, inputs
        self.seed = seed
        self._invoke, self._store, self._purpose, self._device = invoke, store, purpose, device
        self._draws = function is not None and function.random_line is not None
        self._uses_generator = function is not None and function.generator_line is not None

    def __call__(self, step: noise.Counter) -> None:
        """Call the function with the random numbers of ``step``, check its result, and store it in its rows."""
        with self.random_numbers(step):
            value = self._drawing(step) if self._draws else self._invoke()
            self._store(value)

    def random_numbers(self, step: noise.Counter) -> stream.use:
        """Return the context in which the function draws its random numbers of ``step``."""
        return stream.use(self.seed, step, self._purpose)

    def _drawing(self, step: noise.Counter) -> object:
        """Call a function that may draw random numbers."""
        if not self._uses_generator:
            with FromStream():
                return self._invoke()
        with stream.seeded(noise.stream_seed(self.seed, int(step), self._purpose), self._device), FromStream():
            return self._invoke()


def into(kind: Kind, rows: Mapping[str, Tensor], counts: tuple[Tensor, Mapping[str, Tensor]] | None = None) -> Store:
    """Return a function that stores the result of a function of ``kind`` in ``rows`` ``(n, ...)``, by part.

    ``counts`` are the statistics of the result and, by name, of its components, ``(3, n)`` each: the sum, and the
    minimum and maximum, which ignore NaN.
    """
    n, on_cuda = next(((x.shape[0], x.is_cuda) for x in rows.values()), (0, False))
    parts = {key: Part(tuple(x.shape[1:]), kind.floating and x.is_floating_point()) for key, x in rows.items()}
    whole = None if counts is None else counts[0].unbind()
    component_counts = {} if counts is None else {name: part.unbind() for name, part in counts[1].items()}

    def store(value: object) -> None:
        results, components = outputs.returned(kind, value, parts, n, on_cuda)
        for key, x in results.items():
            rows[key].copy_(x)
        if whole is not None:
            _count(whole, results[VALUE])
            for name, component in components.items():
                # evaluation may run another reward than the checked one, with other components
                if name in component_counts:
                    _count(component_counts[name], component)

    return store


def _count(counts: tuple[Tensor, ...], value: Tensor) -> None:
    total, low, high = counts
    total.add_(value)
    torch.fmin(low, value, out=low)
    torch.fmax(high, value, out=high)


class Stage:
    """The calls of one kind, and their buffers.

    Args:
        name: the name of the result, for messages.
        buffers: ``(num_envs, ...)`` tensors that the calls fill, overwritten at every run.
        widths: each group's width; the rest is padding.
        rest: live ``(num_envs, ...)`` tensors that give the rows not set by a call; None: those rows are zeros.
        counts: whether statistics of the results and their components are kept.
        finite: whether numbers that are not finite are faults.
    """

    def __init__(
        self,
        name: str,
        layout: GroupLayout,
        device: torch.device,
        buffers: dict[str, Tensor],
        widths: list[int],
        rest: Mapping[str, Tensor] | None = None,
        counts: bool = False,
        finite: bool = True,
    ) -> None:
        self.name, self.layout, self.buffers, self.widths, self.rest = name, layout, buffers, widths, rest
        self.counts = counts
        self.calls: list[Call] = []
        # traced calls with their programs, and the launches of the kernels
        self.traced: list[tuple[Call, Program]] = []
        self.launches: list[Callable[[], None]] = []
        # whether the next run compares the kernels with the functions, the number of comparisons so far, and the
        # groups whose kernels disagreed
        self.due, self.checks = True, 0
        self.compared = False  # whether all its kernels of this process were compared
        self.taken_back: list[int] = []
        # CUDA: calls that cannot be captured, and the graph of all others; None until the first run
        self.eager: list[Call] = []
        self.replay: Callable[[], None] | None = None
        self._guarded = [key for key, buffer in buffers.items() if finite and buffer.is_floating_point()]
        self.fault_step = torch.full((layout.num_groups,), -1, dtype=torch.int64, device=device)
        self.fault_count = torch.zeros(layout.num_groups, dtype=torch.int64, device=device)
        self._fused: Callable[[Tensor, Tensor], None] | None = None
        if device.type == "cuda":  # where a launch costs more than the work of most of the operators in ``guard``
            from envcoder_bench.env.warp_guards import fused_guard  # Warp takes a while to import

            self._fused = fused_guard(buffers, rest, self.fault_step, self.fault_count, finite)

    def rows(self, group: int) -> dict[str, Tensor]:
        """Return the group's rows of the buffers."""
        return {key: buffer[self.layout.slice(group)] for key, buffer in self.buffers.items()}

    def call(self, group: int) -> Call | None:
        """Return the call that fills the group's rows, or whose kernel does; None if nothing fills them."""
        calls = [*self.calls, *(call for call, _ in self.traced)]
        return next((call for call in calls if call.group == group), None)

    def launch(self) -> None:
        """Run the kernels."""
        for launch in self.launches:
            launch()

    def prefill(self) -> None:
        """Copy the live values in, so that rows not set by a call keep their values."""
        if self.rest is not None:
            for key, buffer in self.buffers.items():
                buffer.copy_(self.rest[key])

    def poison(self) -> None:
        """Fill the buffers with values that reveal which entries a run does not write."""
        if self.rest is None:
            for buffer in self.buffers.values():
                buffer.fill_(float("nan"))
        self.prefill()

    def clear(self, group: int) -> None:
        """Reset the rows of a group to live values or zeros."""
        for key, rows in self.rows(group).items():
            if self.rest is None:
                rows.zero_()
            else:
                rows.copy_(self.rest[key][self.layout.slice(group)])

    def non_finite(self) -> dict[int, int]:
        """Return the number of NaN and infinities by group, for groups with any; syncs CUDA."""
        # a sum is the cheapest test; a sum of finite numbers may overflow, hence the exact test below
        if all(math.isfinite(self.buffers[key].sum().item()) for key in self._guarded):
            return {}
        counts = self._counts().tolist()
        return {group: count for group, count in enumerate(counts) if count}

    def guard(self, dead: Tensor, step: Tensor) -> None:
        """Mark groups whose rows are not finite, and clear the rows of all that are ``dead``; no device sync.

        ``dead`` ``(num_groups,)`` bool is updated, ``fault_step`` and ``fault_count`` keep each group's first fault.
        """
        if self._fused is not None:
            self._fused(dead, step)
            return
        groups = self.layout.num_groups
        counts = self._counts()
        fresh = (counts > 0) & ~dead
        self.fault_step.copy_(torch.where(fresh, step, self.fault_step))
        self.fault_count.copy_(torch.where(fresh, counts, self.fault_count))
        dead.logical_or_(fresh)
        for key, buffer in self.buffers.items():
            rows = buffer.view(groups, -1)
            if self.rest is None:
                rows.masked_fill_(dead.unsqueeze(1), 0)
            else:
                rows.copy_(torch.where(dead.unsqueeze(1), self.rest[key].reshape(groups, -1), rows))

    def _counts(self) -> Tensor:
        """Return the number of entries of each group that are not finite, ``(num_groups,)``."""
        counts = torch.zeros_like(self.fault_count)
        for key in self._guarded:
            counts += (~torch.isfinite(self.buffers[key])).view(self.layout.num_groups, -1).sum(dim=1)
        return counts


def device_copies(copies: Sequence[GroupCopies], dead: Tensor, step: Tensor) -> DeviceCopies:
    """Return the copies of all groups on a device, with their guards.

    Args:
        copies: the copies of all groups.
        dead: ``(num_groups,)`` bool, groups that are skipped; a guard adds groups that changed something.
        step: 0-d int64, the present step.
    """
    jobs = [job for group in copies for job in group.jobs if job.copy.numel()]
    if not jobs:
        return DeviceCopies()
    from envcoder_bench.env.warp_guards import WarpDeviceCopies  # Warp takes a while to import

    return WarpDeviceCopies(jobs, dead, step)
