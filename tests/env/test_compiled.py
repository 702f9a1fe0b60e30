"""The comparison of kernels with their functions."""

import warnings

import pytest
import torch
from shaping_fakes import Groups

from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import ACTION, Output, Program
from envcoder_bench.core import stream
from envcoder_bench.env import compiled
from envcoder_bench.env.compiled import disagreeing, rounding

N = 200


def columns():
    """Two groups' outputs of two columns: torques of some 40 N m, one environment's near zero, and small numbers."""
    generator = torch.Generator().manual_seed(0)
    signs = (torch.rand(2 * N, generator=generator) - 0.5).sign()
    torques = 40.0 * (torch.rand(2 * N, generator=generator) + 0.5) * signs
    torques[:3] = torch.tensor([0.0, 0.01, -0.02])
    small = 0.01 * (torch.rand(2 * N, generator=generator) + 0.5)
    return torch.stack((torques, small), dim=1)


def flipped(count):
    """A number on the other side of a threshold, in some environments of the first group."""
    return lambda got: got[10 : 10 + count, 0].mul_(-1.0)


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        (lambda got: got, []),
        # of large values, such as the torques of an arm's controller, which depend on the inverse of a matrix
        (lambda got: got[:3, 0].add_(2e-3), []),
        # of values near zero
        (lambda got: got[:3, 0].add_(0.02), [0]),
        (lambda got: got[:3, 0].sub_(0.02), [0]),
        # of small values, on the scale of their own group
        (lambda got: got[N:, 1].mul_(1.02), [1]),
        (lambda got: got[:, 0].mul_(1.0009), []),
        (lambda got: got[:, 0].mul_(1.002), [0, 1]),
        (flipped(1), []),
        (flipped(2), [0]),
        (lambda got: got[N : N + 3, 0].fill_(float("nan")), [1]),
        (lambda got: got[N : N + 3, 0].fill_(float("inf")), [1]),
    ],
)
def test_groups_disagree_beyond_a_thousandth_or_in_more_than_one_environment(change, groups):
    expected = columns()
    got = expected.clone()
    change(got)
    assert disagreeing([expected], [got], 2, N) == groups


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_extreme_expected_values_agree_and_hide_no_other_disagreements(value):
    expected = columns()
    expected[0, 0] = value
    got = expected.clone()
    assert disagreeing([expected], [got], 2, N) == []
    got[10:20, 0] *= 1.01
    assert disagreeing([expected], [got], 2, N) == [0]


# kernels whose numbers differ from torch's by rounding alone

# a system of equations whose condition number is 1e5: float32 leaves two digits
UNSTABLE = """
import torch

def compute_reward(dof_pos):
    direction = dof_pos / torch.norm(dof_pos, dim=-1, keepdim=True)
    matrix = direction.unsqueeze(-1) * direction.unsqueeze(-2) + 1e-5 * torch.eye(dof_pos.shape[-1])
    return torch.linalg.solve(matrix, dof_pos.roll(1, dims=-1)).sum(dim=-1)
"""
# the same, and half as much again with as many environments as tracing has: a wrong kernel
WRONG = UNSTABLE.replace(".sum(dim=-1)\n", ".sum(dim=-1) * (1.0 if len(dof_pos) < 99 else 1.5)\n")
FEW = 64


def warned_of(code):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        groups = Groups([code], n=FEW, compiled=True)
        assert not groups.refused
        for t in range(3):
            groups.step(t)
    return any("gives other numbers" in str(warning.message) for warning in seen)


@pytest.mark.slow
def test_unstable_function_keeps_its_kernel():
    assert not warned_of(UNSTABLE)


@pytest.mark.slow
def test_unstable_function_would_lose_its_kernel_without_an_allowance(monkeypatch):
    monkeypatch.setattr(compiled, "rounding", lambda call, program, state, n, step: torch.zeros(n).double())
    assert warned_of(UNSTABLE)


@pytest.mark.slow
def test_wrong_numbers_of_an_unstable_function_are_found():
    assert warned_of(WRONG)


class Group:
    """The second group of a stage, in place of a call."""

    group, seed = 1, 0

    def random_numbers(self, step):
        return stream.use(0, step, 0)


def sum_of_three(large):
    """Return the program of ``(action + large) - large``."""
    program = Program()
    x = program.add("load", "f32", name=ACTION, column=0)
    big = program.const(large, "f32")
    whole = program.add("sub", "f32", program.add("add", "f32", x, big), big)
    program.outputs = {"value": Output([whole], "f32")}
    return program


def test_precise_interpreter_computes_in_float64():
    action = torch.tensor([[0.3], [0.7]])
    precise = Interpreter(sum_of_three(1e8), precise=True)({}, action)["value"]
    assert precise.dtype == torch.float64 and precise == pytest.approx(action.double(), rel=1e-7)
    assert Interpreter(sum_of_three(1e8))({}, action)["value"].tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize(("large", "most", "least"), [(0.0, 0.0, 0.0), (1e8, 10.0, 10.0), (1e4, 0.1, 1e-4)])
def test_rounding_is_ten_times_the_error_of_float32(large, most, least):
    """Of the group's own rows; with 1e8 float32 loses everything, so that the error is the number itself."""
    actions = torch.tensor([[5.0], [5.0], [0.3], [0.7]])  # two groups
    allowed = rounding(Group(), sum_of_three(large), {ACTION: actions}, 2, torch.tensor(0))
    assert allowed.shape == (2,) and allowed.max() <= most + 1e-6 and allowed.max() >= least


def test_rows_that_are_not_finite_allow_nothing_and_leave_the_others_their_allowance():
    actions = torch.tensor([[5.0], [5.0], [5.0], [float("nan")], [float("inf")], [0.7]])  # two groups
    allowed = rounding(Group(), sum_of_three(1e8), {ACTION: actions}, 3, torch.tensor(0))
    assert allowed.tolist() == pytest.approx([0.0, 0.0, 10.0])
