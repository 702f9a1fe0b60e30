"""Solvers of tile kernels are compiled in processes of their own; here for a GPU that need not be there."""

import threading

import pytest
import torch
import warp as wp
from warp._src import context

from mujoco_batches.compat import warp_modules, warp_solvers
from mujoco_batches.compat.warp_solvers import Solvers
from mujoco_batches.compat.warp_start import start_warp
from mujoco_batches.physics import warp_loading as loading

start_warp()
pytestmark = pytest.mark.skipif(context.runtime.toolkit_version is None, reason="this Warp has no CUDA compiler")


class Gpu:
    is_cuda, arch = True, 90

    def get_cuda_compile_arch(self):
        return self.arch


@pytest.fixture
def wanted(monkeypatch, tmp_path):
    """A module with a solver, and one without."""
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    monkeypatch.setattr(wp, "get_device", lambda device: Gpu())
    monkeypatch.setattr(warp_solvers, "_is_missing", lambda *one: True)

    @wp.kernel(module="unique", module_options={"enable_backward": False})
    def solve(a: wp.array2d(dtype=float)):
        tile = wp.tile_load(a, shape=(4, 4))
        wp.tile_store(a, wp.tile_cholesky(tile))

    @wp.kernel(module="unique", module_options={"enable_backward": False})
    def add(a: wp.array2d(dtype=float)):
        a[0, 0] += 1.0

    return [(kernel.module, "cuda:0", 64) for kernel in (solve, add)]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes seconds, and matters on CUDA alone")
def test_kernel_finds_its_solver_in_the_cache(wanted, monkeypatch, tmp_path):
    solvers = Solvers(wanted)
    assert all(solvers.wait_for(one) for one in wanted)
    solvers.stop()
    assert len(list((tmp_path / "lto").glob("*_fatbin.lto"))) == 1
    monkeypatch.setattr(context.runtime.core, "wp_cuda_compile_solver", lambda *args: pytest.fail("compiled again"))
    for module, _, block_dim in wanted:
        options = module.resolve_options(wp.config, block_dim=block_dim)
        assert module._compile(None, output_arch=90, use_ptx=False, options=options)


def test_module_waits_for_its_own_solvers_alone(wanted, monkeypatch):
    """A slow one of another module does not hold it up; both share the process of an equal one."""
    slow, (solve, add), answers = threading.Event(), wanted, []

    class Process:
        def __init__(self, call):
            self.call = call

        def wait(self):
            assert self.call == "equal" or slow.wait(10.0)

        kill = slow.set

    monkeypatch.setattr(warp_solvers, "_start", Process)
    only = Solvers(wanted)  # by the code of the modules
    assert len(only._processes) == 1 and only.wait_for(add)
    calls = {solve[0]: ["slow", "equal"], add[0]: ["equal"]}
    monkeypatch.setattr(warp_solvers, "_has_solvers", lambda module: True)
    monkeypatch.setattr(warp_solvers, "_calls", lambda module, *rest: calls[module])
    solvers = Solvers(wanted)
    assert sorted(solvers._processes) == ["equal", "slow"]
    assert solvers.wait_for(add) and not slow.is_set()
    waiting = threading.Thread(target=lambda: answers.append(solvers.wait_for(solve)))
    waiting.start()
    assert waiting.is_alive()
    solvers.stop()
    waiting.join()
    assert answers == [False]  # a module that would take long is not compiled after Ctrl-C


def test_modules_are_loaded_after_their_solvers(monkeypatch):
    loaded = []

    class Noting:
        def __init__(self, targets):
            self.stop = lambda: loaded.append("stopped")

        def wait_for(self, one):
            loaded.append("waited")
            return True

    @wp.kernel(module="unique")
    def add(a: wp.array(dtype=float)):
        a[0] += 2.0

    monkeypatch.setattr(loading, "Solvers", Noting)
    usual = warp_modules.load
    monkeypatch.setattr(warp_modules, "load", lambda target: loaded.append("loaded") or usual(target))
    with wp.ScopedDevice("cpu"):
        loading.load_kernels(lambda: wp.launch(add, dim=1, inputs=[wp.zeros(1, dtype=float)]))
    assert loaded == ["waited", "loaded", "stopped"]
