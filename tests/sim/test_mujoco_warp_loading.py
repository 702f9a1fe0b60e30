"""The kernels of a simulation are found without being launched, and compiled at the same time."""

import gc
import sys
import threading
import time

import pytest
import torch
import warp as wp
from backends import BACKENDS
from warp_launches import launched_by

from envcoder_bench.core.torch_settings import settings_kept, use_deterministic_algorithms
from envcoder_bench.run.config import compose_config
from envcoder_bench.sim import in_background
from envcoder_bench.sources.registry import find_spec
from mujoco_batches.compat import warp_modules
from mujoco_batches.compat.warp_start import start_warp
from mujoco_batches.physics import warp_loading as loading

pytestmark = pytest.mark.slow
SMALL_TERRAIN = [f"task.env.terrain.{key}" for key in ("numLevels=2", "borderSize=3")]


@pytest.fixture(autouse=True)
def on_the_cpu():
    start_warp()
    with wp.ScopedDevice("cpu"):
        yield


def make_kernel(factor):
    """A kernel in a module of its own."""

    def add(out: wp.array(dtype=float)):
        wp.atomic_add(out, 0, wp.static(factor) * 1.0)

    return wp.kernel(add, module="unique")


def is_loaded(kernel):
    return any(device is None for device, _ in kernel.module.execs)  # of the CPU


def test_kernels_of_branches_and_loops_are_loaded_and_not_launched():
    kernels = [make_kernel(0.5 + i) for i in range(5)]
    out, condition = wp.zeros(1, dtype=float), wp.ones(1, dtype=int)

    def launch(i):
        wp.launch(kernels[i], dim=1, outputs=[out])

    def step():
        launch(0)
        launch(0)
        wp.capture_if(condition, on_true=lambda: launch(1), on_false=lambda: launch(2))
        wp.capture_while(condition, while_body=launch, i=3)  # without end, if it were run

    def names():
        return warp_modules.Module.load, wp.capture_if, wp.capture_while, wp.get_suggested_block_size

    usual = names()
    loading.load_kernels(step)
    assert names() == usual
    assert [is_loaded(kernel) for kernel in kernels] == [True] * 4 + [False]
    assert out.numpy()[0] == 0.0
    launch(3)
    assert out.numpy()[0] == 3.5


def test_other_threads_launch_meanwhile():
    kernel, out = make_kernel(7.5), wp.zeros(1, dtype=float)

    def launch():
        wp.launch(kernel, dim=1, outputs=[out], device="cpu")

    def step():
        other = threading.Thread(target=launch)
        other.start()
        other.join()

    loading.load_kernels(step)
    assert out.numpy()[0] == 7.5


def test_errors_of_the_compiler_are_raised(monkeypatch):
    def load(target):
        raise RuntimeError("does not compile")

    monkeypatch.setattr(warp_modules, "load", load)
    with pytest.raises(RuntimeError, match="does not compile"):
        loading.load_kernels(lambda: wp.launch(make_kernel(3.25), dim=1, outputs=[wp.zeros(1, dtype=float)]))


def test_grid_sizes_are_asked_for_without_loaded_kernels():
    """As mujoco_warp does on CUDA, where Warp answers only for kernels that are loaded."""
    first, second = make_kernel(11.5), make_kernel(12.5)

    def step():
        dim, _ = wp.get_suggested_block_size(first, "cpu")
        wp.launch(second, dim=dim, outputs=[wp.zeros(1, dtype=float)])

    loading.load_kernels(step)
    assert is_loaded(second)
    assert [block_dim for _, block_dim in first.module.execs] == [first.module.options["block_dim"]]


def test_progress_is_told_when_it_takes_long(monkeypatch):
    kernels = [make_kernel(31.5 + i) for i in range(3)]
    warned, calls, messages = threading.Event(), [], []

    def step():
        for kernel in kernels:
            wp.launch(kernel, dim=1, outputs=[wp.zeros(1, dtype=float)])

    def load(loading, target):
        calls.append(target)
        if len(calls) > 1:
            warned.wait(60)

    def warning(text, *values):
        messages.append(text % values)
        warned.set()

    monkeypatch.setattr(loading._log, "warning", warning)
    monkeypatch.setattr(loading, "TELL_AFTER", 1e9)
    loading.load_kernels(step)
    assert not messages
    monkeypatch.setattr(loading.Loading, "_load", load)
    monkeypatch.setattr(loading, "TELL_AFTER", 0.0)
    loading.load_kernels(step)
    (message,) = messages
    assert "1 of 3 modules done" in message


def test_kernels_before_an_error_are_loaded():
    kernels = make_kernel(21.5), make_kernel(22.5)

    def step():
        wp.launch(kernels[0], dim=1, outputs=[wp.zeros(1, dtype=float)])
        raise TypeError("no answer")
        wp.launch(kernels[1], dim=1, outputs=[wp.zeros(1, dtype=float)])

    loading.load_kernels(step)
    assert [is_loaded(kernel) for kernel in kernels] == [True, False]


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize(
    ("name", "overrides", "in_order"),
    [("Anymal", [], True), ("FrankaCubeStack", [], False), ("AnymalTerrain", SMALL_TERRAIN, False)],
)
def test_all_kernels_of_a_control_step_are_found(backend, name, overrides, in_order, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # set with deterministic algorithms
    with settings_kept():
        if in_order:
            use_deterministic_algorithms()
        sim = find_spec(name).make(compose_config(name, overrides).task, 2, "mujoco_warp", backend.device).sim
    targets = {}
    with wp.ScopedDevice(backend.device):
        with warp_modules.recording(targets):
            sim._advance()
        launched = launched_by(sim._advance, monkeypatch)
    assert len(launched) > 20
    assert launched <= set(targets)


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_simulation_that_loads_in_the_background_is_an_equal_one(backend):
    name, device = backend.name, backend.device
    cfg = compose_config("Anymal", []).task
    usual = find_spec("Anymal").make(cfg, 2, name, device)
    with in_background(name):
        later = find_spec("Anymal").make(cfg, 2, name, device)
    assert later.sim._loading is not None
    command = torch.full((2, 12), 0.3, device=later.device)
    for task in (later, usual):
        task.step(command)
    assert later.sim._loading is None
    assert torch.equal(later.sim.dof_pos, usual.sim.dof_pos)
    with in_background(name):
        assert find_spec("Anymal").make(cfg, 2, name, device).bytes_per_env == usual.bytes_per_env


def test_nothing_is_loaded_any_more_for_a_simulation_that_is_gone(monkeypatch):
    began, done = threading.Event(), []

    def load(loading, target):
        began.set()
        deadline = time.monotonic() + 60
        # the thread may begin before all are submitted
        while not any(other.cancelled() for other in getattr(loading, "_loads", ())) and time.monotonic() < deadline:
            time.sleep(0.01)
        done.append(target)

    with in_background("mujoco_warp"):
        task = find_spec("Cartpole").make(compose_config("Cartpole", []).task, 1, "mujoco_warp", "cpu")
    task.sim._loading.wait()
    monkeypatch.setattr(loading, "own_cpus", lambda: 1)
    with monkeypatch.context() as patch, in_background("mujoco_warp"):
        patch.setattr(loading.Loading, "_load", load)
        task = find_spec("Cartpole").make(compose_config("Cartpole", []).task, 1, "mujoco_warp", "cpu")
    assert began.wait(60)
    del task
    gc.collect()
    assert len(done) == 1  # the one that had begun, of many


def test_other_simulators_are_not_built_in_the_background():
    with in_background("mujoco_cpu"):
        assert not loading.is_in_background()


def test_kernels_that_are_loaded_by_then_are_not_reported(monkeypatch, caplog):
    kernels, out = [make_kernel(7.5 + i) for i in range(3)], wp.zeros(1, dtype=float)
    monkeypatch.setattr(loading, "TELL_AFTER", 0.0)
    all_three = loading.Loading(lambda: [wp.launch(kernel, dim=1, outputs=[out]) for kernel in kernels])
    for load in all_three._loads:
        load.result()
    all_three.wait()
    assert len(all_three._loads) == 3 and not caplog.records


def test_threads_take_short_turns_while_something_is_loaded():
    usual = sys.getswitchinterval()
    first, second = loading.Loading(lambda: None), loading.Loading(lambda: None)
    assert sys.getswitchinterval() == pytest.approx(loading.SHORT_INTERVAL)
    first.stop()
    first.stop()  # a simulation that is gone stops again
    assert sys.getswitchinterval() == pytest.approx(loading.SHORT_INTERVAL)
    second.wait()
    assert sys.getswitchinterval() == usual
