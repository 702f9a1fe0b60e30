"""Expressions as programs in kernels, and the same expressions as torch computes them."""

import inspect
import linecache
from collections.abc import Callable, Sequence
from textwrap import dedent, indent
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench import torch_utils
from envcoder_bench.compile import kernels, trace  # noqa: F401  (trace knows all rules)
from envcoder_bench.compile.c_code import CCode, write_c
from envcoder_bench.compile.kernels import GroupProgram
from envcoder_bench.compile.program import FLOATS, Output, Program
from envcoder_bench.compile.recorder import Recorder
from envcoder_bench.compile.trace import ROWS

Function = Callable[..., object]
Obstacle = tuple[Any, str]  # a line and a reason
SPECIALS = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -2.5, 1e30, -1e-30, 88.9)
STORES = {"floats": "O_floats[{place}] = {value};", "wholes": "O_wholes[{place}] = {value};"}


class Result(NamedTuple):
    """All numbers that an expression gives each environment, row by row: floating ones, and the others."""

    floats: Tensor
    wholes: Tensor


def make_state(n: int, seed: int = 0, special: bool = False) -> dict[str, Tensor]:
    """State of n environments: one letter for each kind of tensor that candidates read."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        x = torch.randn(n, *shape, generator=g)
        if special:
            chosen = torch.tensor(SPECIALS)[torch.randint(len(SPECIALS), x.shape, generator=g)]
            x = torch.where(torch.rand(x.shape, generator=g) < 0.3, chosen, x)
        return x

    def whole(*shape: int) -> Tensor:
        return torch.randint(-9, 10, (n, *shape), generator=g)

    q, r = normal(4), normal(4)
    return {
        "x": normal(4), "y": normal(4), "s": normal(), "z": normal(), "v": normal(3), "w": normal(3),
        "f": normal(4, 3), "m": normal(3, 3), "d": normal(4).double(),
        "unit": 1.98 * torch.rand(n, 4, generator=g) - 0.99,
        "pos": torch.rand(n, 4, generator=g) * 3 + 0.1,
        "q": q if special else F.normalize(q, dim=-1), "r": r if special else F.normalize(r, dim=-1),
        "i": whole(), "k": whole(4), "j": whole(4).int(), "u": whole(4).abs().to(torch.uint8),
        "b": whole(4) > 0, "c": whole() > 0,
    }  # fmt: skip


NAMES = tuple(make_state(1))
WEIGHT = torch.tensor([[0.5, -1.0, 2.0, 0.25], [1.5, 0.1, -0.3, 0.7], [-0.2, 0.9, 1.1, -1.3]])
INDEX = torch.tensor([2, 0])
GIVEN: dict[str, Any] = {
    "torch": torch, "F": F, "np": np, "Tensor": Tensor, "W": WEIGHT, "IDX": INDEX, "ZERO_D": torch.tensor(0.05),
    "WHOLE_0D": torch.tensor(3), "MASK": torch.tensor([True, False, True, False]),
    **{name: value for name, value in vars(torch_utils).items() if not name.startswith("_")},
}  # fmt: skip


def function(body: str, name: str = "expression") -> Function:
    """A function of the whole state, from an expression or a body with ``return``; TorchScript finds its text."""
    body = dedent(body).strip()
    body = body if "return" in body else f"return {body}"
    text = f"def f({', '.join(NAMES)}):\n{indent(body, '    ')}\n"
    file = f"<{name}: {body}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {**GIVEN, "__name__": "expressions"}
    exec(compile(text, file, "exec"), space)
    return space["f"]


def tensors(value: object) -> list[Tensor]:
    """The tensors in what a function returned."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [x for part in parts for x in tensors(part)]  # type: ignore[union-attr]


def record(f: Function, state: dict[str, Tensor]) -> Program | Obstacle:
    """Record a function on a sample of a state, as ``trace`` does."""
    n = next(iter(state.values())).shape[0]
    sample = {name: x[torch.arange(ROWS) % n] for name, x in state.items()}
    recorder = Recorder(ROWS, inspect.getsourcefile(f) or f.__code__.co_filename)  # type: ignore[attr-defined]
    for name, x in sample.items():
        recorder.load(x, name)
    with torch.no_grad(), recorder:
        value = f(**sample)
    if recorder.obstacle is not None:
        return recorder.obstacle
    values, outputs = [recorder.value(x) for x in tensors(value)], {}
    for name, chosen in (("floats", True), ("wholes", False)):
        parts = [own.nodes.reshape(-1) for own in values if (own.kind in FLOATS) == chosen]
        nodes = np.concatenate(parts).tolist() if parts else []
        outputs[name] = Output(nodes, "f64" if chosen else "i64")
    return recorder.finished(outputs)


def eager(f: Function, state: dict[str, Tensor]) -> Result:
    """What torch gives, for the environments of one group."""
    n = next(iter(state.values())).shape[0]
    with torch.no_grad():
        parts = tensors(f(**state))
    floats = [x.double().reshape(n, -1) for x in parts if x.is_floating_point()]
    wholes = [x.long().reshape(n, -1) for x in parts if not x.is_floating_point()]
    device = parts[0].device
    return Result(
        torch.cat([torch.zeros(n, 0, dtype=torch.float64, device=device), *floats], dim=1),
        torch.cat([torch.zeros(n, 0, dtype=torch.int64, device=device), *wholes], dim=1),
    )


class Compiled:
    """Programs in kernels, one group of n environments for each; ``state`` has the shapes if not make_state's."""

    def __init__(
        self,
        programs: Sequence[Program],
        n: int,
        device: str = "cpu",
        seeds: Sequence[int] = (),
        state: dict[str, Tensor] | None = None,
    ) -> None:
        self.n, self.device, groups = n, torch.device(device), len(programs)
        self.programs, self.codes = programs, [write_c(program, STORES) for program in programs]
        widths = [max(len(p.outputs[name].nodes) for p in programs) for name in STORES]
        state = make_state(n) if state is None else state
        state = {name: x.repeat(groups, *[1] * (x.dim() - 1)) for name, x in state.items()}
        self.buffers = kernels.StageBuffers(
            {name: x.to(device) for name, x in state.items()},
            {
                "floats": torch.zeros(groups * n, max(widths[0], 1), dtype=torch.float64, device=device),
                "wholes": torch.zeros(groups * n, max(widths[1], 1), dtype=torch.int64, device=device),
            },
            torch.zeros(groups, 0, n, device=device),
            torch.ones(groups, dtype=torch.uint8, device=device),
            torch.zeros((), dtype=torch.int64, device=device),
        )
        seeds = list(seeds) or [0] * groups
        jobs = [GroupProgram(g, seed, code) for g, (seed, code) in enumerate(zip(seeds, self.codes))]
        self.launches = kernels.launches([(jobs, self.buffers)], n)[0][0]

    def run(self, state: dict[str, Tensor], step: int = 0) -> list[Result]:
        """Each program's numbers for one and the same ``state`` of n environments."""
        for name, x in state.items():
            self.buffers.state[name].copy_(x.repeat(len(self.programs), *[1] * (x.dim() - 1)))
        self.buffers.step.fill_(step)
        for buffer in self.buffers.outputs.values():
            buffer.fill_(-77)
        for launch in self.launches:
            launch()
        results = []
        for g, program in enumerate(self.programs):
            parts = (self.buffers.outputs[name][g * self.n : (g + 1) * self.n] for name in STORES)
            results.append(
                Result(*(x[:, : len(program.outputs[name].nodes)].clone() for name, x in zip(STORES, parts)))
            )
        return results


def c_code(body: str, n: int = 8) -> CCode:
    """The C code of an expression."""
    made = record(function(body), make_state(n))
    assert isinstance(made, Program), made
    return write_c(made, STORES)
