"""The wheel alone runs a script that imports ``isaacgym``."""

from pathlib import Path

import pytest
from fresh_environment import environment_with, run_in
from test_install import SCRIPT, assert_script_ran

import isaacgym_mujoco

SOURCE = Path(isaacgym_mujoco.__file__).parent
CHECK = """
import sys, isaacgym_mujoco
print("from", isaacgym_mujoco.__file__)
print("others", sorted({name.split(".")[0] for name in sys.modules if "envcoder" in name}))
"""


@pytest.mark.slow
def test_a_script_runs_from_the_wheel_alone(tmp_path):
    programs = environment_with(tmp_path, SOURCE, SOURCE.parent / "mujoco_batches")
    (tmp_path / "train.py").write_text(SCRIPT + CHECK)
    out = run_in(programs, tmp_path, "python", "-m", "isaacgym_mujoco", "train.py", "task=Ant", "-x")
    assert_script_ran(out)
    assert "not NVIDIA's" in out
    assert f"from {tmp_path}" in out and "others []" in out
    assert not list(tmp_path.glob("venv/lib/*/site-packages/isaacgym_mujoco/tests"))
