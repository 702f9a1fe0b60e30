"""CUDA graphs give the same results as eager calls; requires CUDA."""

import warnings

import pytest
import torch
from shaping_fakes import PLAIN, RICH, FakeTask, Groups, close, shaping

from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.outputs import TOTAL

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SCRIPTED = """
@torch.jit.script
def compute_reward(dof_pos: Tensor, dof_vel: Tensor, dof_vel_scale: float) -> Tensor:
    return torch.exp(-dof_pos.square().sum(dim=-1)) * dof_vel_scale + torch.tanh(dof_vel).mean(dim=-1)
"""


def rich(width):
    return RICH.format(width=width, scale=0.1, action="torque")


def quiet(codes, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # what cannot be captured; torch deprecates TorchScript
        groups = Groups(codes, device="cuda:0", **kwargs)
        groups.step(0)
    return groups


def test_cuda_graphs_match_eager_calls():
    codes = [rich(2 + i % 4) for i in range(20)] + [SCRIPTED, PLAIN]
    seeds = [i % 3 for i in range(22)]
    graphs = quiet(codes, n=33, seeds=seeds)
    eager = Groups(codes, n=33, seeds=seeds, device="cuda:0", deferred_faults=False)
    eager.step(0)
    for t in range(1, 8):
        close(graphs.step(t), eager.step(t))
    for one, two in zip(graphs.dispatch.components.means(), eager.dispatch.components.means()):
        assert one == pytest.approx(two, rel=1e-5)
    for one, two in zip(graphs.dispatch.components.spreads(), eager.dispatch.components.spreads()):
        assert one.keys() == two.keys() and TOTAL in one
        for name in one:
            assert one[name] == pytest.approx(two[name], rel=1e-5)
    graphs.dispatch.poll()
    assert graphs.dispatch.failures == {}


def test_random_numbers_in_cuda_graphs_follow_the_step():
    graphs = quiet([rich(3)], n=16)
    cpu = Groups([rich(3)], n=16)
    cpu.step(0)
    for t in (1, 2, 50):
        on_device, on_cpu = graphs.step(t)["observation"][:, -2:], cpu.step(t)["observation"][:, -2:]
        torch.testing.assert_close(on_device.cpu(), on_cpu, rtol=0, atol=0)


def test_torch_random_functions_in_cuda_graphs_match_the_cpu():
    code = "def compute_observation(dof_pos):\n    return torch.randint_like(dof_pos, 9) + torch.rand_like(dof_pos)\n"
    graphs, cpu = quiet([code, PLAIN], n=16), Groups([code, PLAIN], n=16)
    for t in (0, 1, 2, 50):
        on_device, on_cpu = graphs.step(t)["observation"][:16], cpu.step(t)["observation"][:16]  # not PLAIN's
        torch.testing.assert_close(on_device.cpu(), on_cpu, rtol=0, atol=0)


CANNOT = {
    "x = float(dof_pos[0, 0])": (3, "it waits for the device"),
    "x = dof_pos[dof_pos[:, 0] > 0].sum()": (3, "it waits for the device"),
    "x = torch.tensor([1.0], device=dof_pos.device)": (3, "it waits for the device"),
    "x = torch.randperm(8, device=dof_pos.device) * 0": (3, "may draw from a library's generator"),
    "compute_reward.x = x = 0": (2, "it may keep something for its next call"),
    "x = 0; torch.cuda.synchronize()": (3, "in a capture"),
}


@pytest.mark.parametrize("line", list(CANNOT))
def test_functions_that_cannot_be_captured_run_eagerly_with_a_warning(line):
    code = f"# 1\ndef compute_reward(dof_pos):\n    {line}\n    return dof_pos.exp().sum(dim=-1) + x\n"
    groups = Groups([PLAIN, code, PLAIN], n=8, device="cuda:0")
    number, reason = CANNOT[line]
    with pytest.warns(RuntimeWarning, match=rf"c1\.py:{number}: in compute_reward: cannot be captured.*{reason}"):
        groups.dispatch.reward(0)
    eager = Groups([PLAIN, code, PLAIN], n=8, device="cuda:0", deferred_faults=False)
    for t in range(1, 4):
        groups.task.state["dof_pos"].add_(0.1)
        eager.task.state["dof_pos"].add_(0.1)
        torch.testing.assert_close(groups.dispatch.reward(t), eager.dispatch.reward(t))
    assert groups.dispatch.alive == [True] * 3


@pytest.mark.parametrize("eagerly", [False, True])
def test_non_finite_results_are_masked_at_once_and_reported_by_poll(eagerly):
    extra = "    float(dof_pos[0, 0])\n" if eagerly else ""
    code = (
        f"def compute_reward(dof_pos, progress_buf):\n{extra}"
        "    return torch.where((progress_buf > 4) & (dof_pos[:, 0] > -9), math.nan, dof_pos[:, 0])\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups, clean = Groups([PLAIN, code], n=8, device="cuda:0"), Groups([PLAIN], n=8, device="cuda:0")
        for t in range(8):
            made, expected = groups.step(t), clean.step(t)
            close(groups.of(made, 0), clean.of(expected, 0), 0.0, 0.0)
            assert bool(made["reward"].isfinite().all())
            assert bool(made["observation"][8:].any()) == (t < 4)
    assert groups.dispatch.alive == [True, True]
    groups.dispatch.poll()
    assert groups.dispatch.alive == [True, False]
    assert str(groups.dispatch.failures[1]) == (
        f"c1.py:{2 + eagerly}: in compute_reward: returned NaN or infinity in 8 of 8 values (environment step 4)"
    )
    assert not groups.step(8)["command"][8:].any()


def test_exception_in_an_eager_function_fails_only_its_group():
    code = """
    calls = 0
    def compute_reward(dof_pos):
        global calls
        calls += 1
        assert calls < 5, "five"
        return dof_pos[:, 0]
    """
    with pytest.warns(RuntimeWarning):
        groups = Groups([PLAIN, code], n=8, device="cuda:0")
        groups.run(8)
    assert groups.dispatch.alive == [True, False]
    made = groups.step(8)  # the functions in the graphs still run, but nothing of them shows
    assert not made["command"][8:].any() and not made["observation"][8:].any()
    assert "c1.py:6: in compute_reward: raised AssertionError: five" in str(groups.dispatch.failures[1])


def test_out_of_bounds_index_is_rejected_before_it_reaches_the_device():
    code = "def compute_reward(dof_pos):\n    return dof_pos[:, torch.tensor([7], device=dof_pos.device)].sum(dim=-1)\n"
    with pytest.raises(CandidateError, match="out of bounds"):
        shaping(code, task=FakeTask(4, "cuda:0"))
    torch.cuda.synchronize()
    code = "def compute_reward(dof_pos):\n    return dof_pos.cpu().sum(dim=-1)\n"
    with pytest.raises(
        CandidateError, match="returned a tensor on cpu; it must be on cuda: make new tensors with device"
    ):
        shaping(code, task=FakeTask(4, "cuda:0"))
