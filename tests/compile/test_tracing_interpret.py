"""Interpreted programs, compared with torch and with their kernels, up to the limits of number types."""

import itertools
import math

import pytest
import torch
from tracing_fakes import Compiled, eager, function, make_state, record
from tracing_table import TABLE

from envcoder_bench.compile.c_code import write_c
from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import FLOATS, Output, Program
from envcoder_bench.core import stream

LOW = {"i64": -(2**63), "i32": -(2**31), "u8": 0}
HIGH = {"i64": 2**63 - 1, "i32": 2**31 - 1, "u8": 255}
NAMES = {"i64": "k", "i32": "j", "u8": "u", "f32": "x", "f64": "d"}  # of the state, four columns each
WHOLE = ("add", "sub", "mul", "div", "fmod", "remainder", "floordiv", "maximum", "minimum", "shl", "shr", "and", "xor")
TORCH = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum}


def interpret(program, state):
    action = torch.zeros(state["x"].shape[0], 1)
    return Interpreter(program)(state, action)


@pytest.mark.slow
def test_interpreter_matches_torch_for_all_operators():
    differ, count = [], 0
    for body in TABLE:
        made = record(function(body), make_state(20))
        if not isinstance(made, Program):
            continue
        count += 1
        state = make_state(23, 9)
        want, got = eager(function(body), state), interpret(made, state)
        floats, wholes = got.get("floats", want.floats[:, :0]), got.get("wholes", want.wholes[:, :0])
        near = torch.allclose(floats, want.floats, rtol=1e-4, atol=1e-5, equal_nan=True)
        if not near or not torch.equal(wholes, want.wholes):
            differ.append(body)
    assert not differ and count > 300


def edges(kind):
    if kind in FLOATS:
        return [math.nan, math.inf, -math.inf, -0.0, 0.4, -0.5, 255.9, -1.0, 2.0**31, -(2.0**31), 1e19, -1e19, 2.0**63]
    return sorted({LOW[kind], LOW[kind] + 1, 0, 1, 2, 7, 31, 63, 64, 100, HIGH[kind] - 1, HIGH[kind]} | (
        {-1, -2, -7, -64} if kind != "u8" else set()
    ))  # fmt: skip


def pairs_program(kind, op, pairs, known):
    """Every pair as four numbers of an environment, or as numbers that the compiler knows."""
    program = Program()
    nodes = []
    for x, y in pairs if known else [(0, 1)]:
        if known:
            own = [program.const(x, kind), program.const(y, kind)]
        else:
            own = [program.add("load", kind, name=NAMES[kind], column=c) for c in (0, 1)]
        nodes.append(program.add(op, kind, *own))
    program.outputs = {"floats": Output([], "f64"), "wholes": Output([program.cast(x, "i64") for x in nodes], "i64")}
    return program


def state_of(kind, columns):
    state = make_state(len(columns))
    own = state[NAMES[kind]]
    for i, row in enumerate(columns):
        for c, value in enumerate(row):
            own[i, c] = value
    return state


@pytest.mark.slow  # so many lines are built in several processes
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", ["i64", "i32", "u8"])
def test_integer_operators_match_at_the_limits_of_their_range(kind, known):
    pairs = list(itertools.product(edges(kind), repeat=2))
    state = state_of(kind, pairs)
    programs = [pairs_program(kind, op, pairs, known) for op in WHOLE]
    compiled = Compiled(programs, len(pairs)).run(state)
    x, y = (state[NAMES[kind]][:, c] for c in (0, 1))
    for op, program, kernel in zip(WHOLE, programs, compiled):
        got = interpret(program, state)["wholes"]
        assert torch.equal(kernel.wholes, got), op
        if op in TORCH:
            want = TORCH[op](x, y).long()
            assert torch.equal(got[0] if known else got[:, 0], want), op
        if op in ("div", "fmod", "remainder", "floordiv") and not known:
            for (a, b), value in zip(pairs, got[:, 0].tolist()):
                if b == 0:
                    assert value == 0
                elif op in ("floordiv", "remainder"):
                    want = a // b if op == "floordiv" else a % b
                    assert value == want or (a, b) == (LOW[kind], -1)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind, to", list(itertools.product(FLOATS, ("i64", "i32", "u8"))))
def test_out_of_range_casts_give_the_lowest_integer(kind, to, known):
    values = edges(kind)
    state = state_of(kind, [(x,) for x in values])
    program = Program()
    if known:  # from whole numbers, which stand in the code: the compiler computes the cast itself
        one, zero = (program.cast(program.add("const", "i64", value=x), kind) for x in (1, 0))
        del one
        big = program.add("exp", kind, program.add("cast", kind, program.add("const", "i64", value=800)))
        nodes = [big, program.add("neg", kind, big), program.add("div", kind, zero, zero)]
    else:
        nodes = [program.add("load", kind, name=NAMES[kind], column=0)]
    casts = [program.cast(program.cast(x, to), "i64") for x in nodes]
    chosen = [program.add("select", "i64", program.add("gt", "b", x, program.const(0, "i64")), x, x) for x in casts]
    program.outputs = {"floats": Output([], "f64"), "wholes": Output(chosen, "i64")}
    kernel = Compiled([program], len(values)).run(state)[0].wholes
    if to != "u8":
        lowest = LOW[to]
        if known:
            assert kernel[0].tolist() == [lowest] * 3
        else:
            reach = 2.0 ** (63 if to == "i64" else 31)
            want = [int(x) if -reach <= x < reach else lowest for x in state[NAMES[kind]][:, 0].tolist()]
            assert kernel[:, 0].tolist() == want
    assert kernel.shape[0] == len(values)


@pytest.mark.parametrize("kind, to", list(itertools.product(FLOATS, ("i64", "i32", "u8"))))
def test_casts_in_c_are_guarded_against_undefined_behaviour(kind, to):
    """Results agree on common processors without the guard as well; only the C text shows it."""
    program = Program()
    program.outputs["value"] = Output([program.cast(program.add("load", kind, name="x"), to)], to)
    code = write_c(program, {"value": "O[{place}] = {value};"}).statements
    limit = "9.223372036854776e+18" if to == "i64" else "2147483648.0"
    assert f"v0 >= -{limit}" in code and f"v0 < {limit}" in code


def test_interpreter_reads_lane_seed_and_step_of_the_stream():
    program = Program()
    nodes = [program.add(op, "i64") for op in ("lane", "seed", "step")]
    program.outputs = {"value": Output(nodes, "i64")}
    with stream.use(41, 7, 3):
        assert interpret(program, make_state(3))["value"].tolist() == [[0, 41, 7], [1, 41, 7], [2, 41, 7]]
    with pytest.raises(RuntimeError, match="stream"):
        interpret(program, make_state(3))
