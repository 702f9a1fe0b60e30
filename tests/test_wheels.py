"""The wheels of both distributions work without the repository."""

from pathlib import Path

import pytest
from fresh_environment import environment_with, run_in

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "packages"


@pytest.mark.slow
def test_a_candidate_is_checked_from_the_wheels(tmp_path):
    programs = environment_with(tmp_path, ROOT, PACKAGES / "isaacgym_mujoco", PACKAGES / "mujoco_batches")
    (tmp_path / "upright.py").write_text("def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n")
    out = run_in(programs, tmp_path, "eval-shapers", "--task", "Cartpole", "--candidates", "upright.py", "--check")
    assert "upright" in out
    place = "import envcoder_bench.sim as a, mujoco_batches as b; print(a.__file__, b.__file__)"
    assert run_in(programs, tmp_path, "python", "-c", place).count(str(tmp_path)) == 2
