"""The engines that the scenes run on: the CPU's, MuJoCo Warp on the CPU, MuJoCo Warp on CUDA."""

import pytest
from isaacgym_scene import Scene

from envcoder_bench.isaacgym.api.simulation import ENGINE_VARIABLE


@pytest.fixture
def engine(request, monkeypatch):
    """Choose the engine of a test's scenes: ``cpu``, ``warp`` or ``cuda``."""
    if request.param == "warp":
        monkeypatch.setenv(ENGINE_VARIABLE, "warp")
    monkeypatch.setattr(Scene, "device", "cuda:0" if request.param == "cuda" else "cpu")
    return request.param
