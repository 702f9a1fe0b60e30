"""The choice of the simulator by flags, and errors if it is not available."""

import sys

import pytest
import torch

from envcoder_bench.sim import make_simulator, pick_simulator


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    def pretend(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return pretend


@pytest.mark.parametrize(
    "count, sim, device, chosen",
    [
        (0, "auto", "auto", ("mujoco_cpu", "cpu")),
        (1, "auto", "auto", ("mujoco_warp", "cuda:0")),
        (1, "auto", "cpu", ("mujoco_cpu", "cpu")),
        (2, "auto", "cuda:1", ("mujoco_warp", "cuda:1")),
        (1, "auto", "cuda", ("mujoco_warp", "cuda:0")),
        (1, "mujoco_cpu", "auto", ("mujoco_cpu", "cpu")),
        (0, "mujoco_warp", "auto", ("mujoco_warp", "cpu")),
        (1, "mujoco_warp", "auto", ("mujoco_warp", "cuda:0")),
        (1, "mujoco_warp", "cpu", ("mujoco_warp", "cpu")),
    ],
)
def test_simulator_and_device_are_picked(gpus, count: int, sim: str, device: str, chosen: tuple) -> None:
    gpus(count)
    assert pick_simulator(sim, device) == chosen


@pytest.mark.parametrize(
    "count, sim, device, message",
    [
        (0, "auto", "cuda:0", r"device cuda:0 was asked for, but torch .* sees no CUDA device"),
        (0, "mujoco_warp", "cuda", r"device cuda was asked for, but torch .* sees no CUDA device"),
        (2, "auto", "cuda:2", r"device cuda:2 was asked for, but there are only cuda:0 to cuda:1"),
        (1, "mujoco_cpu", "cuda:0", r"mujoco_cpu runs on the CPU, not on cuda:0: use --sim mujoco_warp, or"),
        (1, "mujoco_wrap", "auto", r"unknown simulator 'mujoco_wrap': .* \(did you mean mujoco_warp"),
        (1, "auto", "gpu0", r"unknown device 'gpu0': choose auto, cpu or cuda:0"),
        (1, "auto", "mps", r"no simulator runs on 'mps': choose auto, cpu or cuda:0"),
    ],
)
def test_invalid_simulator_or_device_is_refused(gpus, count: int, sim: str, device: str, message: str) -> None:
    gpus(count)
    with pytest.raises(ValueError, match=message):
        pick_simulator(sim, device)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("bullet", "x.xml", 4, 0.02, 4, "cpu"), "unknown simulator 'bullet': choose auto, mujoco_cpu or mujoco_warp"),
        (("mujoco_cpu", "x.xml", 0, 0.02, 4, "cpu"), "at least one environment, got 0"),
        (("mujoco_cpu", "x.xml", 4, 0.02, 4, "cuda:0"), "mujoco_cpu runs on the CPU, not on cuda:0"),
    ],
)
def test_invalid_simulator_arguments_are_refused(gpus, arguments: tuple, message: str) -> None:
    gpus(1)
    with pytest.raises(ValueError, match=message):
        make_simulator(*arguments)


@pytest.mark.parametrize(
    "name, absent, needs_it", [("mujoco_cpu", "mujoco", "mujoco_model"), ("mujoco_warp", "mujoco_warp", "mujoco_warp")]
)
def test_missing_package_is_reported(monkeypatch, name: str, absent: str, needs_it: str) -> None:
    monkeypatch.delitem(sys.modules, f"envcoder_bench.sim.{needs_it}", raising=False)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=f"{name} needs the package {absent.replace('_', '-')}: pip install"):
        make_simulator(name, "x.xml", 4, 0.02, 4, "cpu")
