"""Every operator of programs, as candidates write it, compared with torch on states that were not recorded."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from tracing_fakes import Compiled, Result, eager, function, make_state, record
from tracing_table import SOLVERS, TABLE

from envcoder_bench.compat.torch_decompositions import DECOMPOSED
from envcoder_bench.compile import recorder
from envcoder_bench.compile.program import Program
from envcoder_bench.compile.values import RULES
from envcoder_bench.core.folders import project_folder

pytestmark = pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
# not met from Python with this version of torch, or with known numbers alone
ELSEWHERE = {
    "_conj", "_index_put_impl", "_neg_view", "_reshape_alias", "_reshape_copy", "alias", "bitwise_right_shift", "dot",
    "empty_strided", "lift", "to", "unsafe_split", "view_copy",
}  # fmt: skip
ROW_COUNTS = (1, 7, 64)
PARTS = 20  # of the table; each reports all of its expressions that fail
# float32 keeps 24 bits: a few roundings in another order, of numbers of about 1, and a digit for steep functions
RTOL, ATOL = 1e-5, 2e-6
# where torch itself gives other numbers from one build to the next: overflow within sums of squares and products,
# vectorised functions near the end of their range, and which of equal numbers is taken
EXTREME = {
    "x % y", "torch.fmod(x, y)", "torch.remainder(x, y)", "torch.hypot(x, y)", "torch.sinh(x)", "torch.cosh(x)",
    "F.gelu(x)", "x.std(dim=-1)", "x.std(dim=1, correction=2)", "torch.var_mean(x, dim=1)",
    "torch.std_mean(f, dim=-1)", "F.layer_norm(x, (4,))", "F.layer_norm(f, (4, 3))", "x.kthvalue(2, dim=1)",
    "exp_map_to_quat(v)",
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded():
    return {body: record(function(body), make_state(20)) for body in TABLE}


class Kernels:
    """The table's programs as kernels, run once for each state."""

    def __init__(self, recorded, device):
        self.bodies = [body for body, made in recorded.items() if isinstance(made, Program)]
        programs = [recorded[body] for body in self.bodies]
        self.compiled = {n: Compiled(programs, n, device) for n in ROW_COUNTS}
        self.known = {}

    def pairs(self, body, special=False):
        """(torch's result on the CPU, the kernel's) for each state."""
        for seed, n in enumerate(ROW_COUNTS):
            state = make_state(n, seed + 5, special)
            if (n, special) not in self.known:
                self.known[n, special] = dict(zip(self.bodies, self.compiled[n].run(state)))
            got = self.known[n, special][body]
            yield eager(function(body), state), Result(got.floats.cpu(), got.wholes.cpu())


@pytest.fixture(scope="module")
def on_cpu(recorded):
    return Kernels(recorded, "cpu")


@pytest.fixture(scope="module")
def on_cuda(recorded):
    return Kernels(recorded, "cuda:0")


def compare(want: Result, got: Result):
    assert torch.equal(got.wholes, want.wholes)
    torch.testing.assert_close(got.floats, want.floats, rtol=RTOL, atol=ATOL, equal_nan=True)


def differences(bodies, recorded, kernels, special=False):
    """Return the expressions that are not recorded or differ from torch, with the reasons."""
    reasons = []
    for body in bodies:
        if not isinstance(recorded[body], Program):
            reasons.append(f"{body}: {recorded[body]}")
            continue
        try:
            for want, got in kernels.pairs(body, special):
                compare(want, got)
        except AssertionError as error:
            reasons.append(f"{body}: {error}")
    return "\n".join(reasons)


@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_match_torch(part, recorded, on_cpu):
    assert not differences([*TABLE][part::PARTS], recorded, on_cpu)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_match_torch_for_nan_and_infinity(part, recorded, on_cpu):
    bodies = [body for body in [*TABLE][part::PARTS] if body not in EXTREME and body not in SOLVERS]
    assert not differences(bodies, recorded, on_cpu, special=True)


def rounded_after_every_operation(device):
    bodies = (
        "x * y + x",
        "x * y - y * x.flip(1)",
        "(x * s.unsqueeze(1) + y) * z.unsqueeze(1) - x",
        "x / 3.0 + y * 0.1",
    )
    kernel, state = Compiled([record(function(body), make_state(8)) for body in bodies], 64, device), make_state(64, 4)
    return [
        torch.equal(got.floats.cpu(), eager(function(body), state).floats)
        for body, got in zip(bodies, kernel.run(state))
    ]


def test_arithmetic_is_rounded_after_every_operation():
    assert rounded_after_every_operation("cpu") == [True] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: torch.tensor([5, 6, 7], dtype=x.dtype)[i],
        lambda x, i: torch.tensor([5, 6, 7], dtype=x.dtype).index_select(0, i),
        lambda x, i: x[torch.arange(x.shape[0]), i],
        lambda x, i: x.gather(1, i.unsqueeze(1)).squeeze(1),
        lambda x, i: torch.where(i < 3, x.gather(1, i.unsqueeze(1)).squeeze(1), 0),  # torch reads it all the same
        lambda x, i: torch.zeros_like(x).index_put((torch.arange(x.shape[0]), i), x[:, 0]).sum(dim=1),
    ],
    ids=["table", "index_select", "index", "gather", "where", "index_put"],
)
def test_results_are_nan_where_torch_raises_for_an_index_beyond_its_tensor(read, dtype):
    """A number of another place would be a wrong result that nobody sees."""
    x = torch.arange(15.0).view(5, 3).to(dtype)

    def f(x, i):
        return read(x, i) + 0.5, torch.ones(x.shape[0])

    inside = torch.tensor([0, 1, 2, 1, 0])
    program = record(f, dict(x=x, i=inside))
    assert isinstance(program, Program), program
    compiled, found = Compiled([program], 5, state=dict(x=x, i=inside)), set()
    for row, index in itertools.product(range(5), range(-4, 5)):
        places = inside.clone()
        places[row] = index
        state = dict(x=x, i=places)
        got = compiled.run(state)[0].floats
        want = eager(f, dict(x=x, i=inside)).floats  # of the other rows
        try:
            want[row] = eager(f, state).floats[row]
        except (RuntimeError, IndexError):
            want[row], found = torch.nan, found | {index}
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert found >= {-4, 3, 4}


@pytest.mark.slow
def test_every_operator_rule_is_tested(recorded, monkeypatch):
    used = set()
    for name in list(RULES):
        original = RULES[name]

        def counted(*given, name=name, original=original):
            used.add(name)
            return original(*given)

        monkeypatch.setitem(RULES, name, counted)
    original_steps = recorder.decomposition
    monkeypatch.setattr(recorder, "decomposition", lambda func, name: used.add(name) or original_steps(func, name))
    for body in TABLE:
        record(function(body), make_state(4))
    known = {*RULES, *DECOMPOSED}
    assert known - used <= ELSEWHERE, sorted(known - used)
    assert not DECOMPOSED & set(RULES)


@pytest.mark.slow
def test_decompositions_import_no_modules():
    """Importing torch's compiler takes seconds, and a jailed process cannot import modules."""
    bodies = [
        "torch.addmm(torch.ones(3), x, W.T), torch.baddbmm(m, m, m, beta=0.5), x.aminmax(dim=1)",
        "F.prelu(x, ZERO_D.reshape(1)), F.celu(x), x.frac(), F.gelu(x), F.hardshrink(x), F.hardsigmoid(x)",
        "F.hardswish(x), F.hardtanh(x), torch.heaviside(x, y), x.isinf(), x.isfinite(), F.leaky_relu(x)",
        "F.logsigmoid(x), torch.logaddexp(x, y), x.logit(), x.logsumexp(1), F.mish(x), x.nansum(1), x.roll(1, 1)",
        "F.mse_loss(x, y, reduction='none'), F.smooth_l1_loss(x, y, reduction='none'), x.nan_to_num(), F.silu(x)",
        "torch.sinc(x), F.softplus(x), x.std(1), torch.std_mean(x, 1), F.threshold(x, 0.1, 2.0), x.count_nonzero(1)",
        "torch.dot(W[0], W[1]) * x",
        "o = x.clone(); F.leaky_relu_(o); F.hardtanh(o, inplace=True); return o",
    ]
    script = (
        "import sys\nsys.path[:0] = ['tests/fakes']\nfrom tracing_fakes import function, make_state, record\n"
        "from envcoder_bench.compile.program import Program\n"
        "record(function('x + 1'), make_state(4))\nbefore = set(sys.modules)\n"
        f"for body in {bodies!r}:\n"
        "    made = record(function(body.replace('; ', chr(10))), make_state(4))\n"
        "    assert isinstance(made, Program), (body, made)\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    root = project_folder("user_functions").parent
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.cuda
@NEEDS_CUDA
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_match_torch_on_cuda(part, recorded, on_cuda):
    assert not differences([*TABLE][part::PARTS], recorded, on_cuda)


@pytest.mark.cuda
@NEEDS_CUDA
def test_arithmetic_on_cuda_is_rounded_after_every_operation():
    assert rounded_after_every_operation("cuda:0") == [True] * 4


@pytest.mark.cuda
@NEEDS_CUDA
def test_kernels_in_a_cuda_graph_read_the_state_at_replay(on_cuda):
    kernel, graph = on_cuda.compiled[64], torch.cuda.CUDAGraph()
    kernel.run(make_state(64, 1))
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for launch in kernel.launches:
            launch()
    expected, state = kernel.run(make_state(64, 2)), make_state(64, 2)
    kernel.run(make_state(64, 3))
    for name, x in state.items():
        kernel.buffers.state[name].copy_(x.repeat(len(kernel.programs), *[1] * (x.dim() - 1)))
    graph.replay()
    for g, own in enumerate(expected):
        for name, part in zip(("floats", "wholes"), own):
            rows = kernel.buffers.outputs[name][g * 64 : (g + 1) * 64, : part.shape[1]]
            torch.testing.assert_close(rows, part, rtol=0, atol=0, equal_nan=True)
