import pytest
import torch
from kernel_device import DEVICE, compares_kernels

from envcoder_bench.trainers.ppo.adam import GroupedAdam
from envcoder_bench.trainers.ppo.backend import Backend

TORCH = Backend(kernels=False, fixed_order=False)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_optimizer_matches_torch_adam_and_clip_grad_norm_for_every_group(weight_decay: float) -> None:
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(3, 7, generator=rng, dtype=torch.float64)
    rates = [1e-3, 1e-2, 1e-1]
    params = start.clone()
    adam = GroupedAdam(TORCH, params, 1.0, weight_decay)
    stock = [torch.nn.Parameter(row.clone()) for row in start]
    optimizers = [torch.optim.Adam([p], eps=1e-8, weight_decay=weight_decay) for p in stock]
    clipped = 0
    for step in range(20):
        grad = torch.randn(3, 7, generator=rng, dtype=torch.float64) * torch.tensor([[0.01], [1.0], [100.0]])
        adam.learning_rate.copy_(torch.tensor(rates, dtype=torch.float64) / (step + 1))
        for row, p, optimizer, rate in zip(grad, stock, optimizers, rates):
            p.grad = row.clone()
            clipped += float(torch.nn.utils.clip_grad_norm_([p], 1.0)) > 1.0
            optimizer.param_groups[0]["lr"] = rate / (step + 1)
            optimizer.step()
        adam.step(grad, max_norm=1.0)
    assert 0 < clipped < 60  # the clip bites for some groups and not for others
    torch.testing.assert_close(params, torch.stack([p.detach() for p in stock]), rtol=1e-12, atol=1e-12)


def test_failed_or_nan_group_leaves_the_others_bitwise_unchanged() -> None:
    rng = torch.Generator().manual_seed(0)
    start, grads = torch.randn(3, 7, generator=rng), torch.randn(5, 3, 7, generator=rng)
    alone, among = start.clone(), start.clone()
    a, b = GroupedAdam(TORCH, alone, 1e-2), GroupedAdam(TORCH, among, 1e-2)
    alive = torch.tensor([True, False, True])
    for grad in grads:
        a.step(grad.clone(), max_norm=0.5)
        broken = grad.clone()
        broken[1] = float("nan")
        b.step(broken, max_norm=0.5, alive=alive)
    assert torch.equal(alone[[0, 2]], among[[0, 2]])
    assert torch.equal(among[1], start[1])


def test_state_restores_the_optimizer() -> None:
    rng = torch.Generator().manual_seed(0)
    params = torch.randn(2, 5, generator=rng)
    first = GroupedAdam(TORCH, params, 1e-2)
    first.step(torch.randn(2, 5, generator=rng))
    first.learning_rate[1] = 1e-3
    copy = params.clone()
    second = GroupedAdam(TORCH, copy, 1.0)
    second.set_state(first.get_state())
    grad = torch.randn(2, 5, generator=rng)
    first.step(grad.clone())
    second.step(grad.clone())
    assert torch.equal(params, copy)


@compares_kernels
@pytest.mark.parametrize("weight_decay, max_norm", [(0.0, 1.0), (0.1, None)])
def test_kernel_matches_torch(weight_decay: float, max_norm: float | None) -> None:
    rng = torch.Generator().manual_seed(0)
    start, alive = torch.randn(3, 3000, generator=rng), torch.tensor([True, False, True])
    plain = GroupedAdam(TORCH, start.clone(), 1e-2, weight_decay)
    fused = GroupedAdam(Backend.choose(DEVICE), start.to(DEVICE, copy=True), 1e-2, weight_decay)
    for step in range(6):
        grad = torch.randn(3, 3000, generator=rng) * torch.tensor([[0.01], [1.0], [1.0]])
        if step > 2:
            grad[1] = float("nan")
        mask = alive if step > 2 else None
        plain.step(grad.clone(), max_norm, mask)
        fused.step(grad.to(DEVICE), max_norm, None if mask is None else mask.to(DEVICE))
        if step == 2:
            before = fused.params[1].clone()
    torch.testing.assert_close(fused.params.cpu(), plain.params, rtol=1e-5, atol=1e-6)
    assert torch.equal(fused.params[1], before)
