"""The engines that the scenes run on: the CPU's, MuJoCo Warp on the CPU, MuJoCo Warp on CUDA."""

import pytest
import torch
from isaacgym_scene import Scene

from isaacgym_mujoco.api.simulation import ENGINE_VARIABLE

torch.set_num_threads(1)  # tests are many small operations


@pytest.fixture(autouse=True)
def same_numbers():
    """Seed the generator, so that a test draws the same numbers after whichever other one."""
    torch.default_generator.manual_seed(0)


@pytest.fixture
def engine(request, monkeypatch):
    """Choose the engine of a test's scenes: ``cpu``, ``warp`` or ``cuda``."""
    if request.param == "warp":
        monkeypatch.setenv(ENGINE_VARIABLE, "warp")
    monkeypatch.setattr(Scene, "device", "cuda:0" if request.param == "cuda" else "cpu")
    return request.param
