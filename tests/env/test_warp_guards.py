"""The guard as Warp kernels does what the guard of torch operators does."""

import math

import pytest
import torch

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.stages import Stage
from envcoder_bench.env.warp_guards import fused_guard

GROUPS, ENVS = 5, 3
CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
)


def stage(device, shapes, with_rest):
    """Return a stage with buffers of these shapes, in which live values are 7, 8, ..."""
    layout = GroupLayout(GROUPS, ENVS)
    buffers = {f"b{k}": torch.ones(layout.num_envs, *shape, device=device) for k, shape in enumerate(shapes)}
    rest = {f"b{k}": torch.full_like(x, 7.0 + k) for k, x in enumerate(buffers.values())} if with_rest else None
    stage = Stage("test", layout, torch.device(device), buffers, [1] * GROUPS, rest)
    stage._fused = None
    return stage


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("with_rest", [False, True])
@pytest.mark.parametrize("shapes", [[()], [(4,)], [(13,), (2, 3), (0,)]])
def test_kernels_match_torch_over_several_steps(device, shapes, with_rest):
    plain, fused = (stage(device, shapes, with_rest) for _ in range(2))
    guard = fused_guard(fused.buffers, fused.rest, fused.fault_step, fused.fault_count)
    step = torch.zeros((), dtype=torch.int64, device=device)
    dead = [torch.zeros(GROUPS, dtype=torch.bool, device=device) for _ in range(2)]
    dead[0][4] = dead[1][4] = True  # stopped by something else: cleared, and no fault of this stage
    generator = torch.Generator().manual_seed(0)
    for k in range(6):
        step.fill_((1 << 40) + k)
        for key, buffer in plain.buffers.items():
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
            if buffer.numel() and k in (1, 2, 4):
                group = {1: 1, 2: 3, 4: 1}[k]
                rows = buffer[group * ENVS : (group + 1) * ENVS].view(-1)
                rows[0], rows[-1] = (math.nan, math.inf) if k == 1 else (-math.inf, 1e38)
            fused.buffers[key].copy_(buffer)
        plain.guard(dead[0], step)
        guard(dead[1], step)
        assert torch.equal(dead[0], dead[1])
        for a, b in ((plain.fault_step, fused.fault_step), (plain.fault_count, fused.fault_count)):
            assert torch.equal(a, b)
        for key, buffer in plain.buffers.items():
            assert torch.equal(buffer, fused.buffers[key])
    assert dead[1].tolist() == [False, True, False, True, True]
    assert fused.fault_step.tolist() == [-1, (1 << 40) + 1, -1, (1 << 40) + 2, -1]


def test_tensors_of_other_types_and_rows_with_gaps_are_left_to_torch():
    marks = torch.zeros(GROUPS, dtype=torch.int64), torch.zeros(GROUPS, dtype=torch.int64)
    whole = {"a": torch.zeros(15, 4)}
    assert fused_guard(whole, None, *marks) is not None
    assert fused_guard(whole, {"a": torch.zeros(15, 8)[:, :4]}, *marks) is not None  # rows may have a stride
    assert fused_guard({"a": torch.zeros(15, 4, dtype=torch.int64)}, None, *marks) is None
    assert fused_guard({"a": torch.zeros(15, 4).double()}, None, *marks) is None
    assert fused_guard({"a": torch.zeros(4, 15).t()}, None, *marks) is None
    assert fused_guard({"a": torch.zeros(15, 2, 2)}, {"a": torch.zeros(15, 4, 4)[:, :2, :2]}, *marks) is None


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("fused", [False, True])
def test_results_that_need_not_be_finite_are_kept_and_those_of_dead_groups_cleared(device, fused):
    layout = GroupLayout(GROUPS, ENVS)
    values = torch.ones(layout.num_envs, device=device)
    fitness = Stage("fitness", layout, torch.device(device), {"value": values}, [1] * GROUPS, finite=False)
    fitness._fused = (
        fused_guard(fitness.buffers, None, fitness.fault_step, fitness.fault_count, finite=False) if fused else None
    )
    dead = torch.zeros(GROUPS, dtype=torch.bool, device=device)
    dead[1] = True
    values[:6] = math.nan
    assert fitness.non_finite() == {}
    fitness.guard(dead, torch.zeros((), dtype=torch.int64, device=device))
    assert dead.tolist() == [False, True, False, False, False] and fitness.fault_step.tolist() == [-1] * GROUPS
    assert values.isnan().tolist() == [True] * 3 + [False] * 12 and not values[3:6].any()
