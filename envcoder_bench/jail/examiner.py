"""Load, check and trace one file in the jail, and compare its programs with its functions."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envcoder_bench import tasks
from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import Program, to_plain
from envcoder_bench.compile.sizes import knows_size
from envcoder_bench.compile.trace import Memo, SampleState, trace
from envcoder_bench.core import noise, stream
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.random_calls import FromStream
from envcoder_bench.env.compiled import disagreeing
from envcoder_bench.jail.surroundings import clocks_ahead, names_given, remedy_of, start_clocks
from envcoder_bench.jail.wire import MAX_CHARACTERS
from envcoder_bench.shaping.checking import TrialState, check
from envcoder_bench.shaping.contract import CandidateError, CandidateFunction, Fault, Shaping, assemble
from envcoder_bench.shaping.dicts import read_dicts
from envcoder_bench.shaping.faults import FAULTS, from_exception
from envcoder_bench.shaping.kinds import STAGES, VALUE, Kind
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.shared import shared_settings
from envcoder_bench.shaping.state import bind
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import TaskContract, TaskSnapshot

FILE = "candidate.py"  # the name of every file in the jail
MAX_ROWS = 8192  # most environments for the comparison of programs and functions


class Examiner:
    """Examines files of one task; created once, before the first fork.

    Args:
        outside: names of tasks from outside the package, whose baselines may be imported.
        state: a real state of the task, ``(n, ...)`` tensors.
        baseline: source of the baseline that fills in missing functions.
        shaper_types: functions to take from the files; None for all.
        seed: seed with which modules are loaded.
        sizes: environments per group in training and in evaluations.
        reads_dicts: whether the task takes dicts such as ``rewards``.
    """

    def __init__(
        self,
        contract: TaskContract,
        outside: Sequence[str],
        state: dict[str, Tensor],
        constants: dict[str, Tensor],
        baseline: str,
        shaper_types: Sequence[str] | None,
        seed: int,
        sizes: Sequence[int],
        reads_dicts: bool = False,
    ) -> None:
        self._reads_dicts = reads_dicts
        self._task = TaskSnapshot(contract, state, constants, torch.device("cpu"), _no_drives)
        self._state, self._constants, self._types, self._seed = state, constants, shaper_types, seed
        self._baseline = load_candidate("baseline", baseline, "baseline.py", seed)
        self._trial = TrialState(state, constants, self._task)
        self._memo, self._namespace = Memo(incomplete=True), names_given(_baseline_modules(outside))
        self._other_state, self._sizes = _perturb(state), sorted({min(size, MAX_ROWS) for size in sizes})

    def warm_up(self) -> None:
        """Examine a file before the first fork, so that torch and Python load lazy modules while files can be read."""
        baseline = assemble(self._baseline, self._baseline)
        shaping = check(baseline, self._state, self._constants, self._task, self._trial)
        shaping, _ = trace(shaping, self._state, self._constants, self._task, self._memo)
        self._verify(shaping)
        self.examine(_WARM_UP)

    def examine(self, source: str) -> dict[str, Any]:
        """Return the functions and dicts of a file, given by its text, as plain data, or its error."""
        start_clocks()
        try:
            if len(source) > MAX_CHARACTERS:
                raise CandidateError(f"has more than {MAX_CHARACTERS} characters", FILE)
            dicts = read_dicts(source, FILE) if self._reads_dicts else None
            answer = {} if dicts is None else {"dicts": asdict(dicts)}
            if dicts is None or dicts.functions:
                answer["candidate"] = self._candidate(source)
            return answer
        except CandidateError as error:
            fault = error.fault
            return _error(replace(fault, remedy=fault.remedy or remedy_of(fault.message)))
        except FAULTS as error:  # MemoryError, and errors that a candidate causes in this package's code
            return _error(Fault(f"raised {type(error).__name__}", kind="raised"))

    def _candidate(self, source: str) -> dict[str, Any]:
        candidate = load_candidate("candidate", source, FILE, self._seed, namespace=self._namespace)
        # call each function once, which also gives the widths
        shaping = assemble(candidate, self._baseline, self._types)
        shaping = check(shaping, self._state, self._constants, self._task, self._trial)
        # the baseline's functions are traced elsewhere
        functions = {stage: function for stage, function in shaping.functions.items() if function.file == FILE}
        shaping = shaping.with_functions(functions)
        traced, refused = trace(shaping, self._state, self._constants, self._task, self._memo)
        # the trainer does not run code, so that an untraceable function is a fault
        if refused:
            first = min(refused, key=lambda refusal: refusal.line)
            message = f"untrusted code must be traceable: {first.reason}"
            raise CandidateError(message, FILE, first.line, first.function.type)
        self._verify(traced)
        return _to_plain(traced)

    def _verify(self, shaping: Shaping) -> None:
        """Compare programs with their functions on another state than the recorded one, for all sizes of groups."""
        for size in self._sizes:
            sample = SampleState(
                self._other_state, self._constants, self._task, torch.device("cpu"), shaping.action_dim, rows=size
            )
            for stage, function in shaping.functions.items():
                if stage in shaping.programs:
                    _compare(function, shaping, STAGES[stage], sample)


def _compare(function: CandidateFunction, shaping: Shaping, kind: Kind, sample: SampleState) -> None:
    """Raise CandidateError if a function and its program return different numbers."""
    state, action = sample.copy_state(), sample.action.clone()
    try:
        with torch.no_grad(), shared_settings(), clocks_ahead():
            # the function and its program, on the same random numbers
            with stream.use(5, 3, kind.purpose), FromStream():
                value = bind(function, state, action if kind.acts else None)()
                parts = sample.parts(kind, value, shaping.components if kind.components else ())
            with stream.use(5, 3, kind.purpose):
                outputs = Interpreter(shaping.programs[kind.stage])(sample.copy_state(), sample.action)
    except FAULTS as error:
        raise from_exception(error, function) from None
    exact = [0] if knows_size(shaping.programs[kind.stage]) else []
    if not set(outputs) <= set(parts) or disagreeing(*_rows(parts, outputs, sample.rows), 1, sample.rows, exact):
        message = (
            f"untrusted code must be traceable: with {sample.rows} environments the function returned other numbers"
            " than its trace"
        )
        remedy = "it must not depend on the number of environments (x.shape[0], len(x)), the time or earlier calls"
        raise CandidateError(message, FILE, function.line, function.type, remedy=remedy)


def _error(fault: Fault) -> dict[str, Any]:
    return {"error": {key: value for key, value in asdict(fault).items() if key not in ("file", "twin")}}


def _no_drives(*_: object) -> Tensor:
    """Stand for the task's own drives, which the trainer traces."""
    raise NotImplementedError


def _baseline_modules(outside: Sequence[str]) -> list[str]:
    """Return the modules of the tasks' baselines, which files may import."""
    shipped = [file.parent.name for file in sorted(Path(tasks.__file__).parent.glob("*/human.py"))]
    return [f"{tasks.__name__}.{folder}.{name}" for folder in (*shipped, *outside) for name in BASELINE_FILES]


def _rows(parts: dict[str, Tensor], outputs: dict[str, Tensor], n: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the function's and the program's results as lists of ``(n, ...)`` tensors."""
    expanded = [parts[name].expand(n) if parts[name].dim() == 0 else parts[name] for name in outputs]
    return [x.reshape(n, -1) for x in expanded], [outputs[name].reshape(n, -1) for name in outputs]


def _perturb(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a similar state, whose floating-point numbers are all different."""
    perturbed = dict(state)
    for key, x in state.items():
        if x.is_floating_point():
            shift = noise.uniform(1, 1, Purpose.COMMAND, x.shape[0], max(x[0].numel(), 1)) - 0.5
            shift = shift.reshape(x.shape).to(x.dtype)
            perturbed[key] = x * (1 + 0.02 * shift) + 0.01 * shift
    return perturbed


def _to_plain(shaping: Shaping) -> dict[str, Any]:
    functions, components = {}, list(shaping.components)
    for stage, function in shaping.functions.items():
        program = shaping.programs[stage]
        if STAGES[stage].components:
            components, program = _renumber(components, program)
        functions[function.type] = {"line": function.line, **to_plain(program)}
    return {"functions": functions, "action_dim": shaping.action_dim, "components": components}


def _renumber(components: list[str], program: Program) -> tuple[list[str], Program]:
    """Return the names of the components that could be traced, and the program with only these, renumbered."""
    traced = [i for i in range(len(components)) if f"component{i}" in program.outputs]
    outputs = {VALUE: program.outputs[VALUE]}
    outputs.update({f"component{index}": program.outputs[f"component{i}"] for index, i in enumerate(traced)})
    return [components[i] for i in traced], replace(program, outputs=outputs)


# code that uses the parts of torch that are loaded lazily
_WARM_UP = """
import torch.nn.functional as F
import numpy as np
import warnings
SHOWN = [str(torch.ones(2, 2)), repr(torch.ones(2, dtype=torch.int64)), repr(np.ones(2)), str(torch.float32)]
warnings.warn("something", DeprecationWarning)
torch.vmap(torch.sum)(torch.ones(2, 2)), torch.distributions.Normal(torch.zeros(1), 1.0).log_prob(torch.zeros(1))
def drawn(n):
    D, zeros = torch.distributions, torch.zeros(n)
    some = D.Normal(zeros, 1.0), D.Uniform(zeros, 1.0), D.Bernoulli(zeros + 0.5), D.Categorical(torch.ones(n, 2))
    return sum(each.sample() for each in (*some, D.Laplace(zeros, 1.0), D.LogNormal(zeros, 1.0), D.Gumbel(zeros, 1.0)))
def compute_reward(state_dict):
    x = next(v for v in state_dict.values() if v.dim() == 2 and v.is_floating_point())
    x = torch.cat([x, x, x, x], dim=-1)[:, :4]
    square = torch.einsum("ni,nj->nij", x, x) + 3.0 * torch.eye(4)
    y = torch.linalg.norm(x, dim=-1) + F.normalize(x, dim=-1).sum(-1)
    y = y + torch.matmul(square, x.unsqueeze(-1)).mean((1, 2))
    y = y + torch.softmax(x, -1).amax(-1) + F.cosine_similarity(x, x + 1.0) + F.linear(x, torch.ones(1, 4)).squeeze(-1)
    y = y + torch.linalg.det(square) + torch.linalg.inv(square).sum((1, 2)) + torch.bmm(square, square).sum((1, 2))
    y = y + torch.sort(x, dim=-1)[0][:, 0] + torch.std(x, dim=-1) + torch.special.expit(x).mean(-1) + float(np.pi)
    y = y + drawn(len(x))
    return y, {"all": y}
"""
