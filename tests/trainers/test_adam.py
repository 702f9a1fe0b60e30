import pytest
import torch
from kernel_device import DEVICE, compares_kernels

from envcoder_bench.trainers.ppo.adam import GroupedAdam
from envcoder_bench.trainers.ppo.backend import Backend

TORCH = Backend(kernels=False, fixed_order=False)


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
