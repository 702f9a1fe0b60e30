"""Batch normalization of groups equals torch's, with its gradients; by kernels too, where they run."""

import pytest
import torch
import torch.nn.functional as F
from kernel_device import DEVICE, INTERPRETED, compares_kernels

from envcoder_bench.trainers.offpolicy import batch_norm
from envcoder_bench.trainers.offpolicy.batch_norm import EPSILON, MOMENTUM, BatchNorm, FixedNorm

# more than a tile in each direction, and no multiple of it
GROUPS, SAMPLES, WIDTH = (2, 40, 20) if INTERPRETED else (3, 300, 70)


@pytest.fixture(autouse=True)
def tiles_are_small_in_the_interpreter(monkeypatch):
    if INTERPRETED:
        monkeypatch.setattr(batch_norm, "_CHUNK", 32)
        monkeypatch.setattr(batch_norm, "_COLUMNS", 16)
        monkeypatch.setattr(batch_norm, "_TILE", {"CHUNK": 32, "ROWS": 16, "COLUMNS": 16})


def tensors(device):
    generator = torch.Generator().manual_seed(1)
    x = 0.3 * torch.randn(GROUPS, SAMPLES, WIDTH, generator=generator) + 4.0
    scale, shift = 1.0 + 0.5 * torch.randn(2, GROUPS, WIDTH, generator=generator)
    grad = torch.randn(GROUPS, SAMPLES, WIDTH, generator=generator)
    grad[:, SAMPLES // 2 :] = 0.0
    return [each.to(device) for each in (x, scale, shift, grad)]


def differentiate(function, inputs, grad):
    inputs = [each.detach().clone().requires_grad_() for each in inputs]
    y = function(*inputs)
    return [y.detach(), *torch.autograd.grad(y, inputs, grad.to(y.dtype))]


def torchs(x, scale, shift, relu):
    normalized = [F.batch_norm(x[g], None, None, scale[g], shift[g], training=True, eps=EPSILON) for g in range(len(x))]
    return torch.stack([torch.relu(y) if relu else y for y in normalized])


def run(x, scale, shift, grad, relu, kernels):
    """Return the result, the gradients and the running statistics, which begin as 1."""
    running = torch.ones(2, *scale.shape, device=x.device)

    def normalized(*each):
        return BatchNorm.apply(*each, *running, relu, x.dtype, kernels)

    return [*differentiate(normalized, [x, scale, shift], grad), *running]


def check(device, dtype, relu, kernels):
    x, *rest, grad = tensors(device)
    x = x.to(dtype)
    *got, mean, var = run(x, *rest, grad, relu, kernels)
    want = differentiate(lambda *each: torchs(*each, relu), [each.double() for each in (x, *rest)], grad.double())
    tolerance = 2e-4 if dtype == torch.float32 else 0.03
    for ours, theirs in zip(got, want, strict=True):
        difference = (ours.double() - theirs).abs().mean() / theirs.abs().mean()
        assert difference < tolerance
    torch.testing.assert_close(mean.double(), 0.99 + MOMENTUM * x.double().mean(dim=1), rtol=0, atol=1e-6)
    torch.testing.assert_close(var.double(), 0.99 + MOMENTUM * x.double().var(dim=1), rtol=0, atol=1e-6)


def check_fixed(device, dtype, relu, kernels):
    x, factor, offset, grad = tensors(device)
    x = x.to(dtype)
    got = differentiate(lambda x: FixedNorm.apply(x, factor, offset - 4.0 * factor, relu, dtype, kernels), [x], grad)
    y = x.double() * factor.double().unsqueeze(1) + (offset - 4.0 * factor).double().unsqueeze(1)
    slope = (y > 0) | (not relu)
    want = [y * slope, grad * factor.unsqueeze(1) * slope]
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.double() - theirs).abs().mean() / theirs.abs().mean() < (1e-6 if dtype == torch.float32 else 0.03)


EACH = pytest.mark.parametrize("dtype, relu", [(torch.float32, True), (torch.float32, False), (torch.bfloat16, True)])


@EACH
def test_operators_equal_torchs_batch_norm(dtype, relu):
    check("cpu", dtype, relu, kernels=False)
    check_fixed("cpu", dtype, relu, kernels=False)


@EACH
@compares_kernels
def test_kernels_equal_torchs_batch_norm(dtype, relu):
    check(DEVICE, dtype, relu, kernels=True)
    check_fixed(DEVICE, dtype, relu, kernels=True)


@compares_kernels
def test_a_group_has_the_same_bits_alone():
    x, scale, shift, grad = tensors(DEVICE)

    among = run(x, scale, shift, grad, True, kernels=True)
    columns = x[1:2].transpose(1, 2).contiguous().transpose(1, 2)  # in another order in memory
    alone = run(columns, *(each[1:2] for each in (scale, shift, grad)), True, kernels=True)
    for one, two in zip(among, alone, strict=True):
        assert torch.equal(one[1:2], two)
