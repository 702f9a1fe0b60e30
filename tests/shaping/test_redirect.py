"""Candidates' imports of Isaac Gym's helpers, beside the open ``isaacgym`` itself."""

import importlib
import sys

import pytest

from envcoder_bench.shaping.loading import OURS, redirect_helpers
from isaacgym_mujoco import import_hook


@pytest.fixture
def no_isaacgym(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "isaacgym"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    import_hook.uninstall()


def test_install_works_after_redirected_helpers(no_isaacgym):
    redirect_helpers()
    assert importlib.import_module("isaacgym.torch_utils").__name__ == OURS
    import_hook.install()
    gymapi = importlib.import_module("isaacgym.gymapi")
    assert gymapi.DOF_MODE_EFFORT == 3
    assert importlib.import_module("isaacgym").__implementation__.startswith("isaacgym_mujoco")
    assert hasattr(importlib.import_module("isaacgym.torch_utils"), "quat_mul")
