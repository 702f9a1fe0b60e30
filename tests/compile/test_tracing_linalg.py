"""Small matrices of each environment in programs, against LAPACK: pivots, bad conditions, no result; a controller."""

import math
from typing import Any

import pytest
import torch
from arm_fakes import CONTROLLER, LIMITS, REST, ArmTask
from shaping_fakes import Groups
from tracing_fakes import Compiled, eager, record

from envcoder_bench.compile.program import MAX_NODES, Program

N = 24
KINDS = (torch.float32, torch.float64)
SIZES = (1, 2, 3, 6, 7)


def matrices(size, dtype=torch.float64, condition=3.0, seed=0, n=N):
    """Random matrices (n, size, size) with singular values from 1 to ``condition``."""
    g = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(n, size, size, generator=g, dtype=torch.float64))[0] for _ in range(2))
    values = torch.logspace(0, 1, size, base=condition, dtype=torch.float64)
    return (u @ torch.diag(values) @ v).to(dtype)


def rotated(size, n=N):
    """Matrices whose diagonal is zero: only rows that change places give pivots."""
    scale = torch.arange(1, n + 1).view(n, 1, 1)
    return torch.eye(size, dtype=torch.float64).roll(1, 0) * scale + 1e-3 * matrices(size).triu(2)


def compiled(f, **state):
    """A function's program, run as a kernel on the state."""
    n = len(next(iter(state.values())))
    program = record(f, state)
    assert isinstance(program, Program), program
    return Compiled([program], n, state=state).run(state)[0]


def relative(got, want):
    """How far matrices are apart, beside the largest number of each."""
    return ((got - want).abs().amax((1, 2)) / want.abs().amax((1, 2))).max().item()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_inverse_and_solve_are_as_accurate_as_lapack(size, dtype):
    def f(a, b):
        return torch.inverse(a), torch.linalg.solve(a, b)

    eps = torch.finfo(dtype).eps
    for condition in (3.0, 1e2, 0.01 / eps):
        a, b = matrices(size, dtype, condition), matrices(size, dtype, seed=1)[:, :, :2]
        exact = torch.linalg.inv(a.double()), torch.linalg.solve(a.double(), b.double())
        own, theirs = compiled(f, a=a, b=b).floats, eager(f, dict(a=a, b=b)).floats
        start = 0
        for want in exact:
            part = slice(start, start + want[0].numel())
            error, their_error = (relative(x[:, part].view_as(want), want) for x in (own, theirs))
            rounding = eps * (condition if dtype == torch.float64 else 1.0)  # of what counts as exact
            assert error <= 4 * their_error + 8 * size * rounding, (condition, error, their_error)
            start = part.stop


@pytest.mark.parametrize("size", (2, 3, 6, 7))
def test_inverse_pivots_zero_diagonal_elements(size):
    a, b = rotated(size), torch.arange(1.0, N * size + 1, dtype=torch.float64).view(N, size)
    assert a.diagonal(dim1=1, dim2=2).abs().max() == 0

    def f(a, b):
        return torch.linalg.inv(a), torch.linalg.solve(a, b.unsqueeze(-1)), torch.linalg.det(a), torch.slogdet(a)[0]

    want, got = eager(f, dict(a=a, b=b)), compiled(f, a=a, b=b)
    torch.testing.assert_close(got.floats, want.floats, rtol=1e-12, atol=1e-12)


def test_determinants_match_torch_for_all_sizes_and_signs():
    def f(a):
        return (torch.linalg.det(a), *torch.linalg.slogdet(a), torch.logdet(a))

    for size in SIZES:
        a = matrices(size, condition=10.0)
        a[::2, 0] *= -1
        want, got = eager(f, dict(a=a)), compiled(f, a=a)
        assert (want.floats[:, 0] < 0).any() and (want.floats[:, 0] > 0).any()
        torch.testing.assert_close(got.floats, want.floats, rtol=1e-11, atol=1e-11, equal_nan=True)


def test_singular_matrices_have_no_finite_inverse_and_leave_others_unchanged():
    a, b = matrices(3), torch.ones(N, 3, dtype=torch.float64)
    a[0::6] = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])  # all numbers exact: a pivot is zero
    a[2::6] = 0
    a[4::6, :, 0] = 0
    with pytest.raises(RuntimeError, match="singular"):
        torch.inverse(a)

    def inverse(a, b):
        return torch.linalg.inv_ex(a)

    def solve(a, b):
        return torch.linalg.solve_ex(a, b)

    for f in (inverse, solve):
        got, want = compiled(f, a=a, b=b), eager(f, dict(a=a, b=b))
        assert (want.wholes[::2] > 0).all() and not want.wholes[1::2].any()
        assert torch.equal(got.wholes, want.wholes)  # the first pivot that is zero
        assert (~torch.isfinite(got.floats[::2])).any(dim=1).all()
        torch.testing.assert_close(got.floats[1::2], want.floats[1::2], rtol=1e-11, atol=1e-11)

    def determinants(a):
        return (torch.linalg.det(a), *torch.linalg.slogdet(a))

    want, got = eager(determinants, dict(a=a)), compiled(determinants, a=a)
    assert (got.floats[::2, 0] == 0).all() and (want.floats[1::2, 0] != 0).all()
    # LAPACK's own pivot may be a rounding error instead of zero, with a processor's fused multiply-add
    exact = want.floats[:, 0] == 0
    assert torch.equal(exact[1::2], torch.zeros_like(exact[1::2])) and (want.floats[::2, 0].abs() < 1e-12).all()
    compared = exact | (torch.arange(N) % 2 == 1)
    torch.testing.assert_close(got.floats[compared], want.floats[compared], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("place", [(0, 0), (2, 1), (1, 2)])
def test_nan_affects_only_its_own_matrix(place):
    a = matrices(3)
    a[(5, *place)] = float("nan")
    got = compiled(lambda a: (torch.linalg.inv_ex(a)[0], torch.det(a)), a=a).floats
    assert torch.isnan(got[5]).all() and torch.isfinite(got[:5]).all() and torch.isfinite(got[6:]).all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_cholesky_reads_only_one_triangle(size, dtype):
    half = matrices(size, dtype, 30.0)
    a, b = half @ half.mT, matrices(size, dtype, seed=2)[:, :, :1]
    lower, upper = a.tril() + 7 * a.triu(1), a.triu() - 5 * a.tril(-1)

    def f(lower, upper, b):
        left, right = torch.linalg.cholesky(lower), torch.linalg.cholesky(upper, upper=True)
        return left, right, torch.cholesky_solve(b, left), torch.cholesky_inverse(right, upper=True)

    want, got = eager(f, dict(lower=lower, upper=upper, b=b)), compiled(f, lower=lower, upper=upper, b=b)
    eps = 1e4 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.floats, want.floats, rtol=eps, atol=eps)


def test_cholesky_of_indefinite_matrices_reports_the_first_failing_minor():
    a = matrices(4, condition=2.0)
    a = a @ a.mT
    for i in range(4):
        a[4 + i, i, i] = -1.0  # the minor of i + 1 rows is the first that is not positive
    with pytest.raises(RuntimeError, match="positive-definite"):
        torch.linalg.cholesky(a)

    def f(a):
        return torch.linalg.cholesky_ex(a)

    want, got = eager(f, dict(a=a)), compiled(f, a=a)
    assert want.wholes[4:8].flatten().tolist() == [1, 2, 3, 4] and torch.equal(got.wholes, want.wholes)
    assert torch.isnan(got.floats[4:8]).any(dim=1).all()
    good = [i for i in range(N) if i not in range(4, 8)]
    torch.testing.assert_close(got.floats[good], want.floats[good], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "f, reason",
    [
        (lambda a: torch.inverse(torch.eye(18) + a.repeat(1, 3, 3)), "matrix of (18, 18)"),
        (lambda a: torch.linalg.solve(a, a.repeat(1, 1, 3)), "matrix of (6, 18)"),
        (lambda a: torch.diag_embed(a[:, 0, 0]), "environments twice"),
        (lambda a: torch.linalg.det(a[:, 0] @ a[:, 0].T), "environments twice"),
        (lambda a: torch.linalg.pinv(a), "uses linalg_pinv, which has no rule"),
        (lambda a: torch.linalg.eigvalsh(a), "uses _linalg_eigh, which has no rule"),
        (lambda a: torch.ops.aten._linalg_solve_ex(a[:, :2, :2], a[:, :2])[1] * 1, "do not come from the state"),
        (lambda a: [torch.inverse(a + i) for i in range(40)], f"more than {MAX_NODES}"),
    ],
)
def test_large_matrices_and_unsupported_operators_are_refused(f, reason):
    fault = record(f, dict(a=matrices(6)))
    assert not isinstance(fault, Program) and reason in fault[1], fault


def test_operational_space_controller_is_compiled_and_matches_eager(monkeypatch):
    monkeypatch.setattr("shaping_fakes.FakeTask", ArmTask)
    stiff = CONTROLLER.replace("150.0", "300.0")
    eager_groups, groups = (Groups([CONTROLLER, stiff], n=64, compiled=c) for c in (False, True))
    assert groups.refused == [] and groups.shapings[0].programs["command"].nodes
    for t in range(6):
        want, got = eager_groups.step(t)["command"], groups.step(t)["command"]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3 * LIMITS.max().item())
        assert (want.abs() < LIMITS).float().mean() > 0.3  # the limits do not hide the rest
    stage = groups.dispatch.stages["command"]
    assert len(stage.traced) == 2 and not stage.calls and len(stage.launches) == 1  # verified, and not taken back
    assert not torch.equal(want[:64], want[64:])


def test_kernel_near_a_singular_posture_is_as_accurate_as_torch(monkeypatch):
    monkeypatch.setattr("arm_fakes.REST", torch.tensor([0.0, 0.3, 0.0, -0.4, 0.0, 0.7, 0.7]))  # nearly stretched
    task = ArmTask(128)
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(CONTROLLER, space)

    def f(q, qd, eef_vel, jacobian, mass_matrix):
        action = torch.stack([torch.sin(k + q[:, 0]) for k in range(6)], dim=-1)
        return space["compute_torque"](action, q, qd, eef_vel, jacobian, mass_matrix, REST.to(q), 1e6)

    state = {key: task.state[key] for key in ("q", "qd", "eef_vel", "jacobian", "mass_matrix")}
    jacobian, mass = state["jacobian"].double(), state["mass_matrix"].double()
    assert torch.linalg.cond(jacobian @ torch.inverse(mass) @ jacobian.mT).median() > 1e3
    truth = eager(f, {key: x.double() for key, x in state.items()}).floats
    errors = [(x.floats - truth).norm(dim=1) for x in (compiled(f, **state), eager(f, state))]
    for share in (0.1, 0.5, 0.9):
        own, theirs = (error.quantile(share) for error in errors)
        assert own <= 3 * theirs, (share, own, theirs)
