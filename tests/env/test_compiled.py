"""The comparison of kernels with their functions."""

import pytest
import torch

from envcoder_bench.env.compiled import disagreeing

N = 200


def columns():
    """Two groups' outputs of two columns: torques of some 40 N m, one environment's near zero, and small numbers."""
    generator = torch.Generator().manual_seed(0)
    signs = (torch.rand(2 * N, generator=generator) - 0.5).sign()
    torques = 40.0 * (torch.rand(2 * N, generator=generator) + 0.5) * signs
    torques[:3] = torch.tensor([0.0, 0.01, -0.02])
    small = 0.01 * (torch.rand(2 * N, generator=generator) + 0.5)
    return torch.stack((torques, small), dim=1)


def wrong(change):
    expected = columns()
    got = expected.clone()
    change(got)
    return disagreeing([expected], [got], 2, N)


def test_equal_values_agree_including_nan_and_infinity():
    expected = columns()
    expected[:9, 0], expected[9:20, 0] = float("nan"), float("inf")
    assert disagreeing([expected], [expected.clone()], 2, N) == []


def test_small_relative_differences_of_large_values_agree():
    """For example the torques of an arm's controller, which depend on the inverse of a matrix."""

    def change(got):
        got[:3, 0] += 2e-3

    assert wrong(change) == []


@pytest.mark.parametrize("off", [0.02, -0.02])
def test_large_differences_of_values_near_zero_disagree(off):
    def change(got):
        got[:3, 0] += off

    assert wrong(change) == [0]


def test_small_values_are_compared_on_the_scale_of_their_own_group():
    def change(got):
        got[N:, 1] *= 1.02

    assert wrong(change) == [1]


def test_values_agree_within_a_relative_tolerance_of_one_thousandth():
    assert wrong(lambda got: got[:, 0].mul_(1.0009)) == []
    assert wrong(lambda got: got[:, 0].mul_(1.002)) == [0, 1]


@pytest.mark.parametrize(("count", "groups"), [(1, []), (2, [0])])
def test_threshold_flips_are_tolerated_in_one_environment(count, groups):
    def change(got):
        got[10 : 10 + count, 0] *= -1.0

    assert wrong(change) == groups


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_disagree_with_finite_ones(value):
    def change(got):
        got[N : N + 3, 0] = value

    assert wrong(change) == [1]


@pytest.mark.parametrize("value", [1e9, float("inf")])
def test_non_finite_expected_value_does_not_hide_other_disagreements(value):
    expected = columns()
    expected[0, 0] = value
    got = expected.clone()
    got[10:20, 0] *= 1.01
    assert disagreeing([expected], [got], 2, N) == [0]
