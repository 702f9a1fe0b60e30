"""Programs are valid for any number of environments, whatever the size of the sample."""

import math

import pytest
import torch
from tracing_fakes import Compiled, eager, function, make_state, record

from envcoder_bench.compile import sizes, trace
from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import Output, Program

NUMBERS = {
    "n": lambda n: n,
    "n - 1": lambda n: n - 1,
    "3 * n + 2": lambda n: 3 * n + 2,
    "n // 2": lambda n: n // 2,
    "3 * n // 4": lambda n: 3 * n // 4,
    "int(0.1 * n)": lambda n: int(0.1 * n),
    "n - n // 4": lambda n: n - n // 4,
    "ceil": lambda n: math.ceil(n / 8),
    "(n - 1) // 2": lambda n: (n - 1) // 2,
    "n - n // 10 - 1": lambda n: n - n // 10 - 1,
    "n % 4": lambda n: n % 4,
    "min(n, 300)": lambda n: min(n, 300),
    "max(n, 300)": lambda n: max(n, 300),
    "0.01 * n": lambda n: 0.01 * n,
    "2 / (n - 1)": lambda n: 2 / (n - 1),
    "a number": lambda n: 0.7,
}
STRANGE = {
    "n ** 0.5": lambda n: n**0.5,
    "int(n ** 0.5)": lambda n: int(n**0.5),
    "n ** 2": lambda n: n * n,
    "log": lambda n: math.log(n),
    "bits": lambda n: n.bit_length(),
}


def programs(number, kind):
    """What recordings of ``x * number(n)`` come to, one for each size."""
    made = []
    for n in trace.SIZES:
        own = Program()
        x = own.cast(own.add("load", "f32", name="x", column=0), kind)
        own.outputs["value"] = Output([own.add("mul", kind, x, own.const(number(n), kind))], kind)
        made.append(own)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ("i64", "i32", "f32", "f64"))
@pytest.mark.parametrize("name", list(NUMBERS))
def test_common_formulas_of_the_number_of_environments_are_traced(name, kind):
    number = NUMBERS[name]
    made = sizes.for_any_size(programs(number, kind), trace.SIZES)
    if kind in ("i64", "i32") and not isinstance(number(10), int) and "//" not in name and name != "a number":
        return  # becomes a whole number anywhere: 0.01 * n is 1 and 2 here
    assert isinstance(made, Program), made
    for n in (*range(1, 14), 64, 99, 130, 131, 255, 299, 300, 301, 1000, 4096):
        if name == "2 / (n - 1)" and n == 1:
            continue
        x = torch.full((n, 1), 3.0)
        want = x[:, 0].to({"i64": torch.int64, "i32": torch.int32, "f32": torch.float32, "f64": torch.float64}[kind])
        got = Interpreter(made)({"x": x}, torch.zeros(n, 1))["value"][:, 0]
        torch.testing.assert_close(got, want * torch.tensor(number(n)).to(want.dtype))


@pytest.mark.parametrize("kind", ("i64", "f32"))
@pytest.mark.parametrize("name", list(STRANGE))
def test_other_uses_of_the_number_of_environments_are_refused(name, kind):
    made = sizes.for_any_size(programs(STRANGE[name], kind), trace.SIZES)
    assert not isinstance(made, Program) and "how many environments there are" in made[1]


def test_equal_programs_are_recognized():
    one, two, three = (programs(lambda n, x=x: x, "f32")[0] for x in (float("nan"), float("nan"), 0.0))
    assert sizes.equal(one, two) and not sizes.equal(one, three)
    other = programs(lambda n: 0.0, "f64")[0]
    assert not sizes.equal(three, other)


def test_kernel_uses_the_actual_number_of_environments():
    body = "x + torch.linspace(-1.0, 2.0, x.shape[0]).unsqueeze(-1)"
    program = record(function(body), make_state(20))
    for n in (1, 2, 7, 64, 131):
        state = make_state(n)
        got, want = Compiled([program], n).run(state)[0], eager(function(body), state)
        torch.testing.assert_close(got.floats, want.floats, rtol=1e-6, atol=1e-6)


# ways to the number of environments
ASKED = [
    "len(x)", "x.shape[0]", "x.size(0)", "x.size()[0]", "x.numel() // 4", "torch.numel(x) // 4", "x.nelement() // 4",
    "x.T.shape[1]", "x.T.contiguous().stride(0)", "sum(1 for _ in x)", "len(list(x))", "len(x.unbind(0))",
    "x.nbytes // 16", "[*x.shape][0]", "len(torch.split(x, 1))", "x.sum(dim=1).shape[0]", "max(x.shape)",
    "len(x[:, 0])", "torch.Size(x.shape).numel() // 4", "int(repr(x.shape)[12:-5])", "x.T.size(-1)",
]  # fmt: skip
UNASKED = ["x * 2.0", "torch.cat([x, y], dim=-1)", "quat_rotate_inverse(q, v)", "torch.zeros_like(x) + y", "x.T.T"]


@pytest.mark.parametrize("asked", ASKED)
def test_program_that_reads_the_number_of_environments_is_marked_sized(asked):
    program = record(function(f"x[:, 0] * ({asked})"), make_state(trace.ROWS))
    assert isinstance(program, Program) and program.sized
    assert {node.value for node in program.nodes if node.op == "const"} & {float(trace.ROWS), trace.ROWS}


def test_torchscript_program_is_always_marked_sized():
    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return x[:, 0] * x.shape[0]

    program = record(lambda x: scripted(x), {"x": make_state(trace.ROWS)["x"]})
    assert isinstance(program, Program) and program.sized


@pytest.mark.parametrize("body", UNASKED)
def test_program_independent_of_the_number_of_environments_is_not_sized(body):
    program = record(function(body), make_state(trace.ROWS))
    assert isinstance(program, Program) and not program.sized
