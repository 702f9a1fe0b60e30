"""What happens to a file in the jail: it is read, loaded, checked, traced and held against its trace."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Sequence

import torch
from torch import Tensor

from envcoder_bench import tasks
from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import FLOATS, Program
from envcoder_bench.compile.sizes import knows_size
from envcoder_bench.compile.trace import Memo, SampleState, trace
from envcoder_bench.core import noise, stream
from envcoder_bench.core.random_calls import FromStream
from envcoder_bench.env.compiled import disagreeing
from envcoder_bench.jail import surroundings
from envcoder_bench.jail.names import HELPERS, remedy
from envcoder_bench.jail.seal import Seal
from envcoder_bench.jail.syntax import MAX_CHARACTERS, refusal
from envcoder_bench.shaping import redirect
from envcoder_bench.shaping.assemble import assemble
from envcoder_bench.shaping.binding import bind
from envcoder_bench.shaping.checking import TrialState, check
from envcoder_bench.shaping.contract import CandidateError, CandidateFunction, Shaping
from envcoder_bench.shaping.faults import FAULTS, from_exception, shared_settings
from envcoder_bench.shaping.kinds import STAGES, VALUE, Kind
from envcoder_bench.shaping.loading import GIVEN, load_candidate, parse
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.tasks.contract import TaskContract, TaskSnapshot

FILE = "candidate.py"  # what a file is called in here
MOST_ROWS = 8192  # environments on which programs are held against their functions


class Examiner:
    """Everything that the files of one task need, made once.

    Args:
        contract: of the task; ``outside``: names of tasks from outside the package, whose baselines may be imported.
        state: a real state, ``(n, ...)`` tensors; ``constants``: the task's.
        baseline: the text of the file that fills in for absent functions.
        shaper_types: which functions come from the files; None: all.
        seed: what modules are loaded with.
        sizes: environments of a group, in training and in evaluations.
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
    ) -> None:
        self._task = TaskSnapshot(contract, state, constants, torch.device("cpu"), _no_drives)
        self._state, self._constants, self._types, self._seed = state, constants, shaper_types, seed
        self._baseline = load_candidate("baseline", baseline, "baseline.py", seed)
        self._trial = TrialState(state, constants, self._task)
        self._memo, self._given = Memo(incomplete=True), surroundings.prepare(_libraries(outside))
        self._fresh, self._sizes = _disturbed(state), sorted({min(size, MOST_ROWS) for size in sizes})
        self._seal = Seal()

    def warm_up(self) -> None:
        """Do everything once, so that what torch and Python load late is there when files can no longer be read."""
        baseline = assemble(self._baseline, self._baseline)
        shaping = check(baseline, self._state, self._constants, self._task, self._trial)
        shaping, _ = trace(shaping, self._state, self._constants, self._task, self._memo)
        self._verify(shaping)
        self.judge(_WARM_UP, scan=False)

    def judge(self, source: str, scan: bool = True) -> dict[str, Any]:
        """Describe a file's functions as plain data, or say what is wrong with it.

        Args:
            scan: check its syntax tree first, and show it a part of the modules alone. False is for trying the walls
                of the process.
        """
        answer = self._answered(source, scan)
        broken = self._seal.broken() if scan else ""
        return _error(f"changes {broken}, which untrusted code may not: define one of your own") if broken else answer

    def _answered(self, source: str, scan: bool) -> dict[str, Any]:
        try:
            return {"candidate": self._judged(source, scan)}
        except CandidateError as error:
            return _error(error.message, error.line, error.function)
        except FAULTS as error:  # MemoryError, and whatever a candidate makes of our own code
            return _error(f"raised {type(error).__name__}")

    def _judged(self, source: str, scan: bool) -> dict[str, Any]:
        if len(source) > MAX_CHARACTERS:
            raise CandidateError(f"has more than {MAX_CHARACTERS} characters", FILE)
        tree = parse(source, FILE)
        found = refusal(tree) if scan else None
        if found is not None:
            raise CandidateError(found.reason, FILE, found.line)
        candidate = load_candidate("candidate", source, FILE, self._seed, given=self._given if scan else GIVEN)
        shaping = assemble(candidate, self._baseline, self._types)
        shaping = check(shaping, self._state, self._constants, self._task, self._trial)
        own = _own(shaping)
        traced, refused = trace(own, self._state, self._constants, self._task, self._memo)
        if refused:
            first = min(refused, key=lambda one: one.line)
            message = f"untrusted code must be traceable: {first.reason}{remedy(first.reason)}"
            raise CandidateError(message, FILE, first.line, first.function.type)
        self._verify(traced)
        return _plain(traced)

    def _verify(self, shaping: Shaping) -> None:
        """Hold programs against their functions on states that were not recorded, as large as the groups will be."""
        for size in self._sizes:
            sample = SampleState(
                self._fresh, self._constants, self._task, torch.device("cpu"), shaping.action_dim, rows=size
            )
            for stage, function in shaping.functions.items():
                if stage in shaping.programs:
                    _hold_against(function, shaping, STAGES[stage], sample)


def _hold_against(function: CandidateFunction, shaping: Shaping, kind: Kind, sample: SampleState) -> None:
    given, action = sample.given(), sample.action.clone()
    try:
        with torch.no_grad(), shared_settings():
            with stream.use(5, 3, kind.purpose), FromStream():
                value = bind(function, given, action if kind.acts else None)()
                parts = sample.parts(kind, value, shaping.components if kind.components else ())
            with stream.use(5, 3, kind.purpose):
                made = Interpreter(shaping.programs[kind.stage])(sample.given(), sample.action)
    except FAULTS as error:
        raise from_exception(error, function) from None
    exact = [0] if knows_size(shaping.programs[kind.stage]) else []
    if not set(made) <= set(parts) or disagreeing(*_rows(parts, made, sample.rows), 1, sample.rows, exact):
        message = (
            f"untrusted code must be traceable: with {sample.rows} environments the function returned other numbers"
            " than its trace: do not let it depend on how many there are (x.shape[0], len(x)) or on earlier calls"
        )
        raise CandidateError(message, FILE, function.line, function.type)


def _error(message: str, line: int | None = None, function: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "line": line, "function": function}}


def _no_drives(*_: object) -> Tensor:
    """The task's own drives are traced in the trainer."""
    raise NotImplementedError


def _libraries(outside: Sequence[str]) -> dict[str, frozenset[str]]:
    """The modules of this package that files may import from: the helpers, and every task's baselines."""
    found = {name: redirect.helper_names() for name in HELPERS}
    shipped = [file.parent.name for file in sorted(Path(tasks.__file__).parent.glob("*/human.py"))]
    for folder in (*shipped, *outside):
        for baseline in BASELINES:
            name = f"{tasks.__name__}.{folder}.{baseline}"
            own = vars(importlib.import_module(name)).items()
            found[name] = frozenset(key for key, value in own if getattr(value, "__module__", "") == name)
    return {name: frozenset(key for key in own if key[0] != "_") for name, own in found.items()}


def _rows(parts: dict[str, Tensor], made: dict[str, Tensor], n: int) -> tuple[list[Tensor], list[Tensor]]:
    whole = [parts[name].expand(n) if parts[name].dim() == 0 else parts[name] for name in made]
    return [x.reshape(n, -1) for x in whole], [made[name].reshape(n, -1) for name in made]


def _disturbed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state near a real one, of which no number is the same."""
    fresh = {}
    for key, x in state.items():
        shift = noise.uniform(1, 1, noise.CONTROL, x.shape[0], max(x[0].numel(), 1)) - 0.5
        shift = shift.reshape(x.shape).to(x.dtype) if x.is_floating_point() else 0
        fresh[key] = x * (1 + 0.02 * shift) + 0.01 * shift if x.is_floating_point() else x
    return fresh


def _own(shaping: Shaping) -> Shaping:
    """The file's own functions alone; the baseline's are traced elsewhere."""
    return replace(shaping, functions={stage: own for stage, own in shaping.functions.items() if own.file == FILE})


def _plain(shaping: Shaping) -> dict[str, Any]:
    functions, components = {}, list(shaping.components)
    for stage, function in shaping.functions.items():
        program = shaping.programs[stage]
        if STAGES[stage].components:
            components, program = _named(components, program)
        functions[function.type] = {"line": function.line, **_plain_program(program)}
    return {"functions": functions, "action_dim": shaping.action_dim, "components": components}


def _named(components: list[str], program: Program) -> tuple[list[str], Program]:
    """The names of the components that could be traced, and the program with these numbered anew."""
    kept = [i for i in range(len(components)) if f"component{i}" in program.outputs]
    outputs = {VALUE: program.outputs[VALUE]}
    outputs.update({f"component{place}": program.outputs[f"component{i}"] for place, i in enumerate(kept)})
    return [components[i] for i in kept], replace(program, outputs=outputs)


def _plain_program(program: Program) -> dict[str, Any]:
    nodes = []
    for node in program.nodes:
        value = float(node.value) if node.op == "const" and node.kind in FLOATS else int(node.value)
        nodes.append([node.op, node.kind, list(node.args), value, node.name, node.column])
    return {"nodes": nodes, "outputs": {name: [own.nodes, own.kind] for name, own in program.outputs.items()}}


# uses what torch loads when it is first used
_WARM_UP = """
import torch.nn.functional as F
import numpy as np
import warnings
SHOWN = [str(torch.ones(2, 2)), repr(torch.ones(2, dtype=torch.int64)), repr(np.ones(2)), str(torch.float32)]
warnings.warn("something", DeprecationWarning)
torch.vmap(torch.sum)(torch.ones(2, 2)), torch.distributions.Normal(torch.zeros(1), 1.0).log_prob(torch.zeros(1))
def drawn(n):
    D, zeros = torch.distributions, torch.zeros(n)
    own = D.Normal(zeros, 1.0), D.Uniform(zeros, 1.0), D.Bernoulli(zeros + 0.5), D.Categorical(torch.ones(n, 2))
    return sum(each.sample() for each in (*own, D.Laplace(zeros, 1.0), D.LogNormal(zeros, 1.0), D.Gumbel(zeros, 1.0)))
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
