"""Programs draw the same random numbers as functions; those that differ only in constants share their code."""

import pytest
import torch
from shaping_fakes import FakeTask, shaping
from tracing_fakes import ROWS, STORES, Compiled, c_code, function, make_state, record

from envcoder_bench.compile.c_code import write_c
from envcoder_bench.compile.program import FLOATS, KINDS, Output, Program, convert
from envcoder_bench.compile.recorder import Recorder
from envcoder_bench.compile.trace import trace
from envcoder_bench.core import noise, stream

GOAL, REWARD, OBSERVATION = 2, 3, 4  # three purposes

STEPS = (0, 1, 7, 10**6, noise.EVALUATION_STEP, noise.EVALUATION_STEP + 3)
SEEDS = (0, 1, 7, 2**32 - 1, -5)
DRAWS = {
    "uniform": "torch_rand_float(-1.0, 1.0, (x.shape[0], 3), x.device)",
    "twice": "torch.cat([torch_rand_float(0.0, 1.0, (x.shape[0], 2), x.device) for _ in range(2)], dim=-1)",
    "wide": "torch_rand_float(-0.3, 0.7, (x.shape[0], 12), x.device)",
    "one for all": "torch_rand_float(0.0, 1.0, (1, 2), x.device).expand(x.shape[0], 2)",
    "direction": "torch_random_dir_2((x.shape[0], 1), x.device)",
    "several of each": "torch_rand_float(0.0, 1.0, (x.shape[0] * 4, 2), x.device).view(-1, 8)",
    "in a branch": "torch.where(c.unsqueeze(1), torch_rand_float(0.0, 1.0, (x.shape[0], 4), x.device), x)",
}


def recorded(body: str, purpose: int) -> Program:
    """A program of a function that draws, as ``trace`` records it."""
    f, state = function(body), {name: x[torch.arange(ROWS) % 8] for name, x in make_state(8).items()}
    recorder = Recorder(ROWS, "")
    seed, step = torch.tensor(3), torch.tensor(4)
    for name, x in state.items():
        recorder.load(x, name)
    recorder.scalar(seed, "seed")
    recorder.scalar(step, "step")
    with torch.no_grad(), stream.use(seed, step, purpose), recorder:
        value = f(**state)
    assert recorder.obstacle is None, recorder.obstacle
    recorder.program.outputs["floats"] = Output(recorder.value(value).nodes.reshape(-1).tolist(), "f32")
    recorder.program.outputs["wholes"] = Output([], "i64")
    return recorder.program


def drawn(body: str, n: int, seed: int, step: int, purpose: int) -> torch.Tensor:
    with stream.use(seed, step, purpose):
        return function(body)(**make_state(n, 1)).double()


@pytest.fixture(scope="module")
def purposes():
    return {name: recorded(body, OBSERVATION) for name, body in DRAWS.items()}


@pytest.mark.parametrize("name", list(DRAWS))
@pytest.mark.parametrize("n", (1, 9))
def test_kernel_draws_the_same_random_numbers_as_the_function(name, n, purposes):
    tolerance = 1e-6 if name == "direction" else 0.0  # sines and cosines of the same numbers
    kernel = Compiled([purposes[name]] * len(SEEDS), n, seeds=SEEDS)
    for step in STEPS:
        for seed, made in zip(SEEDS, kernel.run(make_state(n, 1), step)):
            want = drawn(DRAWS[name], n, seed, step, OBSERVATION)
            torch.testing.assert_close(made.floats, want, rtol=0, atol=tolerance)


def test_random_numbers_differ_by_purpose_seed_step_call_and_environment():
    body, n = DRAWS["twice"], 5
    programs = [recorded(body, purpose) for purpose in (REWARD, GOAL)]
    kernel = Compiled([programs[0], programs[1], programs[0], programs[0]], n, seeds=(1, 1, 2, 1))
    first, later = kernel.run(make_state(n), 1), kernel.run(make_state(n), 2)
    numbers = [x.floats for x in (*first[:3], *later[:3])]
    assert len({float(x) for part in numbers for x in part.reshape(-1)}) == 6 * n * 4
    assert torch.equal(first[0].floats, first[3].floats)  # one seed: paired noise
    assert all(0.0 <= float(x) < 1.0 for part in numbers for x in part.reshape(-1))


SWEEP = """
def compute_reward(dof_pos, dof_vel, dof_vel_scale):
    w = torch.tensor([{a}, {b}, 1.0])
    near = torch.exp(-((dof_pos - {a}) * w).square().sum(-1) / {b}) + torch.tensor([{a}, {b}]).norm() * dof_vel_scale
    return torch.where(dof_pos[:, 0] > {b}, near, {a} * near) - {b} * dof_vel.norm(dim=-1).clamp(max={a})
"""


def sources(codes):
    task = FakeTask(4)
    made = []
    for code in codes:
        own, refused = trace(shaping(code, task=task), task.state, task.constants, task)
        assert not refused
        made.append(write_c(own.programs["reward"], {"value": "O_value[{place}] = {value};"}))
    return made


def test_candidates_that_differ_in_constants_share_their_code():
    made = sources([SWEEP.format(a=0.3 + 0.1 * i, b=1.7 + i) for i in range(6)] + [SWEEP.format(a=1.0, b=1.0)])
    assert len({own.statements for own in made}) == 1 and len({own.constants for own in made}) == 7
    assert len({len(own.constants) for own in made}) == 1


def test_different_operations_give_different_code():
    base = SWEEP.format(a=0.3, b=1.7)
    others = [base.replace("dof_pos[:, 0]", "dof_pos[:, 1]"), base.replace("torch.exp", "torch.tanh")]
    others += [base.replace("norm(dim=-1)", "norm(p=1, dim=-1)"), base.replace("> 1.7", ">= 1.7")]
    assert len({own.statements for own in sources([base, *others])}) == 5


def test_programs_with_shared_code_keep_their_constants():
    bodies = [f"torch.exp(-x / {0.5 + i}) * {0.1 * i} + s.unsqueeze(1) ** 2 * {i}.5" for i in range(20)]
    programs = [record(function(body), make_state(8)) for body in bodies]
    assert len({write_c(program, STORES).statements for program in programs}) == 1
    kernel, state = Compiled(programs, 6), make_state(6, 3)
    assert len(kernel.launches) == 1
    for body, made in zip(bodies, kernel.run(state)):
        torch.testing.assert_close(made.floats, function(body)(**state).double(), rtol=1e-6, atol=1e-6)


def test_programs_are_split_into_kernels_independent_of_their_order():
    names = ("x", "y", "v", "w", "pos", "unit", "q")
    bodies = [f"torch.{op}({name}) * 1.5" for op in ("sin", "cos", "tanh", "floor") for name in names]
    programs = [record(function(body), make_state(8)) for body in bodies]
    state = make_state(5, 2)
    kernel, turned = Compiled(programs, 5), Compiled(programs[::-1], 5)
    assert len(kernel.launches) == 2
    for one, two in zip(kernel.run(state), turned.run(state)[::-1]):
        assert torch.equal(one.floats, two.floats)


def test_unused_and_repeated_operations_are_eliminated():
    made = c_code("v, w = x.sin(), y.exp()\nreturn v[:, :1]")
    assert made.statements.count("sinf(") == 1 and "expf" not in made.statements and made.state == (("x", "float"),)
    made = c_code("torch.sin(x) + torch.sin(x)")  # the same operation of the same numbers is computed once
    assert made.statements.count("sinf(") == 4


def test_inactive_groups_keep_their_rows():
    programs = [record(function("x * 2.0"), make_state(8)) for _ in range(3)]
    kernel = Compiled(programs, 4)
    kernel.buffers.active[1] = 0
    made, state = kernel.run(make_state(4, 1)), make_state(4, 1)
    assert torch.equal(made[1].floats, torch.full((4, 4), -77.0, dtype=torch.float64))
    for g in (0, 2):
        assert torch.equal(made[g].floats, (state["x"] * 2.0).double())


@pytest.mark.parametrize("kind", KINDS.values())
def test_constants_are_converted_like_torch(kind):
    dtype = next(dtype for dtype, name in KINDS.items() if name == kind)
    for value in (0, 1, 3, 0.5, 1.9, True, 1e-3):
        assert convert(value, kind) == torch.tensor(value).to(dtype).item()
        program = Program()
        made = program.nodes[program.cast(program.const(value, "f32" if isinstance(value, float) else "i64"), kind)]
        assert made.op == "const" and made.kind == kind
        assert torch.tensor(made.value).to(dtype) == torch.tensor(value).to(dtype)
    assert (kind in FLOATS) == dtype.is_floating_point
