"""The Warp backend: contact buffers, memory, and on CUDA graph, streams and no syncs."""

import pytest
import torch
from backends import BACKENDS, Backend, commands, everywhere, stand, tensors

CUDA = Backend("mujoco_warp", "cuda:0", False)
warp_backends = pytest.mark.parametrize("backend", BACKENDS[1:])


def needs_cuda(test):
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    return pytest.mark.cuda(skip(test))


@pytest.mark.slow
@warp_backends
def test_contact_pool_suffices_for_all_robots_on_the_ground(backend: Backend) -> None:
    """The pool of contacts is shared: in a too small pool, worlds would lose contacts to others."""
    sim = backend.anymal(num_envs=6)
    stand(sim)
    root, pos = sim.root_states.clone(), torch.zeros_like(sim.dof_pos)
    root[:, 2] = 0.1
    root[::2, 3], root[::2, 6] = 1.0, 0.0  # every other one on its back
    sim.write(everywhere(sim), root, pos, torch.zeros_like(pos))
    sim.set_drive_mode(everywhere(sim))
    most = 0
    for _ in range(20):
        sim.step(torch.zeros_like(pos))
        most = max(most, int(sim._data.nacon.numpy()[0]))
    assert not sim.contact_overflows.any()
    assert most >= 6 * 6, "the test needs many contacts"


@pytest.mark.slow
def test_memory_per_environment_is_constant_and_small() -> None:
    """250,000 ANYmals must fit on one large GPU; the size is nearly independent of their number."""
    few, many = (Backend("mujoco_warp", "cpu", True).anymal(num_envs=n).bytes_per_env for n in (4, 64))
    assert few == pytest.approx(many, rel=0.02)
    assert 30 < many / 1024 < 60


@needs_cuda
def test_memory_per_environment_on_the_device_matches_the_estimate() -> None:
    CUDA.anymal(num_envs=4).step(torch.zeros(4, 12, device="cuda"))  # what is taken once: context, modules
    torch.cuda.synchronize()
    before, _ = torch.cuda.mem_get_info()
    sim = CUDA.anymal(num_envs=50_000)
    sim.step(torch.zeros(50_000, 12, device="cuda"))
    torch.cuda.synchronize()
    after, _ = torch.cuda.mem_get_info()
    assert (before - after) / 50_000 == pytest.approx(sim.bytes_per_env, rel=0.4)


@needs_cuda
def test_step_does_not_synchronize_with_the_gpu() -> None:
    sim = CUDA.anymal(num_envs=32)
    assert sim._graph is not None, "the control step is one CUDA graph"
    stance = stand(sim)
    mask = torch.arange(32, device=sim.device) % 3 == 0
    torch.cuda.set_sync_debug_mode("error")
    try:
        sim.step(stance)
        sim.set_drive_mode(mask)
        sim.write(mask, dof_pos=stance + 0.1)
        sim.step(stance)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(sim.root_states).all()


@needs_cuda
def test_step_is_ordered_on_any_stream() -> None:
    """On a side stream, after slow work on which its command depends, a step gives the results of the main stream."""
    results = []
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            sim = CUDA.anymal(num_envs=64)
            stand(sim)
            for command in commands(sim, steps=10):
                slow = torch.randn(2048, 2048, device="cuda")
                for _ in range(20):
                    slow = slow @ slow * 1e-3
                sim.step(command + 0.0 * slow.nan_to_num().clamp(-1, 1).mean())
            results.append(tensors(sim))
        torch.cuda.synchronize()
    for name, value in results[0].items():
        CUDA.assert_same(results[1][name], value)


@needs_cuda
def test_gpu_matches_the_cpu() -> None:
    sims = [CUDA.anymal(num_envs=256), Backend("mujoco_cpu", "cpu", True).anymal(num_envs=256)]
    for sim in sims:
        stand(sim)
        for command in commands(sim, steps=10):
            sim.step(command)
    difference = (sims[0].dof_pos.cpu() - sims[1].dof_pos).abs()
    assert difference.quantile(0.99) < 1e-3
