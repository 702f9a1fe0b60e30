"""Compilation of the traced functions of stages into kernels, and comparison of the kernels with the functions."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from envcoder_bench.compile import kernels
from envcoder_bench.compile.c_code import C_TYPES, CCode, write_c
from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.kernels import GroupProgram
from envcoder_bench.compile.program import ACTION, KINDS, Program
from envcoder_bench.compile.sizes import knows_size
from envcoder_bench.env.components import Components
from envcoder_bench.env.stages import Call, Stage
from envcoder_bench.shaping.contract import CandidateWarning, Fault
from envcoder_bench.shaping.faults import one_line
from envcoder_bench.shaping.kinds import VALUE

RELATIVE, ABSOLUTE = 1e-3, 1e-4  # tolerances of a kernel's numbers against torch's
# a factor for the rounding error of torch's result: a kernel computes in another order, so that the two can be farther
# from each other than from the exact result, as for inverses of matrices and differences of large numbers
ORDERS = 10.0
# number and share of a group's environments that may differ more, because a number is close to a threshold
FEW, SHARE = 1, 0.002
# sampled comparisons: programs of a check after the first one, and groups of a program that several share
PROGRAMS, SAMPLE = 64, 8


class Compiler:
    """Builds the kernels of stages, and compares them with the functions they replace.

    Args:
        state: tensors that programs read: all groups' rows, or group 0's, followed by the others' in memory.
        active: ``(num_groups,)`` uint8, nonzero for the groups that the kernels run.
        step: 0-d int64, the step of the random numbers.
        refuse: called with a call and a reason if the call's program cannot be compiled, and has no function.
        sampled: whether only some of the groups that share a program are compared, other groups each time. Whether a
            wrong kernel is noticed then depends on the groups that share it.
    """

    def __init__(
        self,
        state: dict[str, Tensor],
        components: Components,
        active: Tensor,
        step: Tensor,
        refuse: Callable[[Call, str], None],
        sampled: bool = False,
    ) -> None:
        self._state, self._components, self._active, self._step = state, components, active, step
        self._refuse, self._sampled = refuse, sampled

    def can_compile(self, program: Program) -> bool:
        """Return whether a kernel can read the program's inputs: each environment's row must be contiguous."""
        return all(self._state[name][0].is_contiguous() for name in program.state_names())

    def compile(self, stages: Sequence[Stage]) -> None:
        """Build the kernels of the stages' traced calls; without a working compiler, call the functions instead."""
        for stage in stages:
            stage.launches = []
        stages = [stage for stage in stages if stage.traced]
        if not stages:
            return
        try:
            self._compile(stages)
        except Exception as error:  # a compiler, its files and its cache can raise anything
            for stage in stages:
                stage.calls += [call for call, _ in stage.traced]
                stage.traced, stage.launches = [], []
            message = f"candidate functions cannot be compiled here, so they run as PyTorch calls: {one_line(error)}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _compile(self, stages: Sequence[Stage]) -> None:
        readable = {name: x for name, x in self._state.items() if x.dtype in KINDS}
        work = []
        for stage in stages:
            buffers = kernels.StageBuffers(readable, stage.buffers, self._components.counts, self._active, self._step)
            jobs = [
                GroupProgram(call.group, call.seed, _c_code(program, stage, len(self._components.names(call.group))))
                for call, program in stage.traced
            ]
            work.append((jobs, buffers))
        # the programs of all stages are compiled together
        built = kernels.launches(work, stages[0].layout.envs_per_group)
        for stage, launches, refused in zip(stages, *built):
            stage.launches = launches
            for group, reason in refused:
                self._call_instead(stage, group, reason)

    def _call_instead(self, stage: Stage, group: int, reason: str) -> None:
        """Call a function whose program cannot be compiled. A program without a function is refused instead.

        Interpreting it operation by operation could slow down all other groups.
        """
        call = next(call for call, _ in stage.traced if call.group == group)
        stage.traced = [(other, program) for other, program in stage.traced if other is not call]
        if call.function is not None and call.function.program is not None:
            self._refuse(call, reason)
        else:
            stage.calls.append(call)
            _warn(call, f"cannot be compiled, so it runs as PyTorch calls, more slowly: {reason}")

    def verify(self, stage: Stage, alive: Sequence[bool], attempt: Callable[[Call], object]) -> None:
        """Call the functions that kernels replace once, and stop using the kernels that disagree.

        The first call does nothing if an earlier stage verified all programs for the same seeds and group size.

        Args:
            alive: whether each group has not failed; ``attempt`` may change it.
            attempt: makes a call and handles its faults.
        """
        groups, n, stage.due = stage.layout.num_groups, stage.layout.envs_per_group, False
        first, stage.checks = stage.checks == 0, stage.checks + 1
        if not stage.traced or (first and all((call.seed, n) in program.verified for call, program in stage.traced)):
            return
        compared, stage.compared = self._choose(stage, alive), True
        counts, before = self._components.counts.clone(), {key: x.clone() for key, x in stage.buffers.items()}

        def run_and_copy(run: Callable[[], None]) -> list[Tensor]:
            self._components.clear()
            stage.poison()
            run()
            return [x.clone() for x in (*stage.buffers.values(), self._components.counts.movedim(3, 1))]

        def call_functions() -> None:
            for call, _ in compared:
                attempt(call)

        self._active.copy_(torch.tensor(alive, dtype=torch.uint8))  # it may hold another stage's mask
        expected, got = run_and_copy(call_functions), run_and_copy(stage.launch)
        self._components.counts.copy_(counts)  # this was not a step
        for key, x in before.items():
            stage.buffers[key].copy_(x)
        exact = {call.group for call, program in stage.traced if knows_size(program)}
        differing = set(disagreeing(expected, got, groups, n, exact))
        if differing:
            allowance = torch.zeros(groups, n, dtype=torch.float64, device=self._step.device)
            for call, program in compared:
                if call.group in differing:
                    error = rounding(call, program, self._state, n, self._step)
                    allowance[call.group] = torch.maximum(allowance[call.group], error)
            differing = set(disagreeing(expected, got, groups, n, exact, allowance))
        wrong = {id(program) for call, program in compared if call.group in differing and alive[call.group]}
        replaced: list[int] = []
        for call, program in stage.traced:
            # if groups were sampled, a wrong program is replaced for all its groups
            if id(program) in wrong and alive[call.group] and (self._sampled or call.group in differing):
                _warn(call, "its compiled form gives other numbers, so it runs as PyTorch calls, more slowly")
                replaced.append(call.group)
            else:
                program.verified.add((call.seed, n))
        self.take_back(stage, replaced)

    def _choose(self, stage: Stage, alive: Sequence[bool]) -> list[tuple[Call, Program]]:
        """Choose the traced calls to compare: all, or if sampled those of ``PROGRAMS`` programs, in turn.

        A program that many groups share, as those of a baseline, is compared for ``SAMPLE`` of its groups, in turn.
        Comparing all could take longer than the iterations between two checks, with the device nearly idle.
        """
        if not self._sampled:
            return [(call, program) for call, program in stage.traced if alive[call.group]]
        by_program: dict[int, list[tuple[Call, Program]]] = {}
        for call, program in stage.traced:
            by_program.setdefault(id(program), []).append((call, program))
        programs = list(by_program.values())
        count = min(PROGRAMS, len(programs)) if stage.compared else len(programs)
        chosen: list[tuple[Call, Program]] = []
        for position in range((stage.checks - 1) * count, stage.checks * count):
            turn, i = divmod(position, len(programs))
            calls = programs[i]
            chosen += [calls[(turn * SAMPLE + k) % len(calls)] for k in range(min(SAMPLE, len(calls)))]
        return [(call, program) for call, program in chosen if alive[call.group]]

    def take_back(self, stage: Stage, groups: Sequence[int]) -> None:
        """Call the functions of these groups instead of their kernels from now on."""
        if groups:
            stage.calls += [call for call, _ in stage.traced if call.group in groups]
            stage.traced = [(call, program) for call, program in stage.traced if call.group not in groups]
            stage.taken_back += groups
            stage.replay = None  # the old graph has the old kernels
            self.compile([stage])


def _warn(call: Call, message: str) -> None:
    function = call.function
    if function is None:
        warnings.warn(f"the task's drives: {message}", RuntimeWarning, stacklevel=2)
    else:
        warnings.warn(CandidateWarning(Fault(message, function.file, function.line, function.type)), stacklevel=2)


def _c_code(program: Program, stage: Stage, num_components: int) -> CCode:
    stores = {}
    for key, buffer in stage.buffers.items():
        stores[key] = f"O_{{name}}[{{place}}] = ({C_TYPES[KINDS[buffer.dtype]]}){{value}};"
    if stage.counts:
        stores[VALUE] += _count(0)
        stores.update({f"component{i}": _count(i + 1) for i in range(num_components)})
    key = tuple(stores.items())
    if key not in program.codes:  # groups share programs, and so do training and evaluation
        program.codes[key] = write_c(program, stores)
    return program.codes[key]


def _count(row: int) -> str:
    """Return C code that updates the sum, minimum and maximum of a value; NaN does not change the latter two."""
    value, (total, low, high) = "(float){value}", (f"O_counts[{3 * row + k} * n]" for k in range(3))
    return f" {total} += {value}; if ({value} < {low}) {low} = {value}; if ({value} > {high}) {high} = {value};"


def disagreeing(
    expected: Sequence[Tensor],
    got: Sequence[Tensor],
    groups: int,
    n: int,
    exact: Collection[int] = (),
    allowance: Tensor | None = None,
) -> list[int]:
    """Return the groups in which ``got`` differs too much from ``expected``, tensors of each group's n environments.

    Columns are compared separately, so that neither many correct numbers nor a neighbour's padding hide a wrong one.
    The tolerance is relative to their sizes (``column_sizes``).

    Args:
        exact: groups in which no environment may differ: numbers computed from the number of environments can be wrong
            in a single environment, at every step.
        allowance: ``(groups, n)``, added to the relative tolerance (None: nothing).
    """
    allowed = torch.tensor([0.0 if g in exact else max(FEW, SHARE * n) for g in range(groups)])
    wrong = []
    for x, y in zip(expected, got):
        x, y = (z.to(torch.float64).reshape(groups, n, -1) for z in (x, y))
        relative = RELATIVE if allowance is None else RELATIVE + allowance.unsqueeze(2)
        near = (x - y).abs() <= ABSOLUTE + relative * column_sizes(x)
        same = near | (x == y) | (torch.isnan(x) & torch.isnan(y))
        wrong.append(((~same).sum(dim=1).cpu() > allowed.unsqueeze(1)).any(dim=1))
    return torch.stack(wrong).any(dim=0).nonzero().flatten().tolist()


def rounding(call: Call, program: Program, state: Mapping[str, Tensor], n: int, step: Tensor) -> Tensor:
    """Return how far apart a group's numbers may be, relative to their columns' sizes, because of rounding: ``(n,)``.

    Args:
        state: tensors that the program reads: all groups' rows, or group 0's, followed by the others' in memory.
        n: number of environments of a group.
        step: 0-d int64, the step of the random numbers.
    """
    read = {name: _rows(state[name], call.group, n) for name in program.state_names()}
    action = read[ACTION] if ACTION in read else torch.zeros(n, 1, device=step.device)
    with call.random_numbers(step):
        usual = Interpreter(program)(read, action)
    with call.random_numbers(step):
        precise = Interpreter(program, precise=True)(read, action)
    worst = torch.zeros(n, dtype=torch.float64, device=action.device)
    for name, x in precise.items():
        if x.is_floating_point():
            errors = (usual[name] - x).abs() / column_sizes(x.unsqueeze(0))[0].clamp_min(1e-30)
            worst = torch.maximum(worst, errors.nan_to_num(0.0, 0.0).amax(dim=1))
    return ORDERS * worst


def column_sizes(x: Tensor) -> Tensor:
    """Return the scale on which numbers ``(groups, n, columns)`` are compared.

    This is the number, or a tenth of its column's median if that is larger: a torque of 0.01 N m among torques of
    40 N m is a difference of large numbers.
    """
    size = x.abs().nan_to_num(0.0, 0.0, 0.0)
    return torch.maximum(size, 0.1 * size.median(dim=1, keepdim=True).values)


def _rows(x: Tensor, group: int, n: int) -> Tensor:
    """Return a group's rows, which can be beyond the end of the tensor."""
    stride = x.stride(0)
    flat = x.as_strided((n, x[0].numel()), (stride, 1), x.storage_offset() + group * n * stride)
    return flat.reshape(n, *x.shape[1:])
