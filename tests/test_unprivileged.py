"""A run as a user without privileges, with a home of its own: cache, jail, kernels and page."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import envcoder_bench

pytestmark = pytest.mark.slow

USER = 65534  # nobody
SCRIPT = """
import os, sys
from pathlib import Path
import envcoder_bench

assert os.getuid() == {user} and not os.access("/etc/shadow", os.R_OK)
quick = dict(
    num_envs_per_candidate=2, learning_iterations=1, sim="mujoco_cpu", device="cpu", baselines=False,
    overrides={{"evaluation.num_envs": 2, "evaluation.final_episodes": 2, "task.env.episodeLength": 12}},
)
text = "def compute_reward(pole_angle):\\n    return torch.cos(pole_angle)\\n"
jailed = envcoder_bench.evaluate("Cartpole", {{"calm": text}}, untrusted=True, video=0, **quick)
assert list(jailed.results.status) == ["ok"], jailed.failed
assert (jailed.folder / "report.html").is_file()
assert envcoder_bench.resume(jailed.folder).complete
print("done")
"""


@pytest.fixture
def home():
    """A folder of the user's own, outside of pytest's, which only its user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="unprivileged_"))
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can become another user")
def test_a_run_works_for_a_user_without_privileges(home):
    packages = [str(Path(envcoder_bench.__file__).resolve().parents[1]), str(Path(torch.__file__).resolve().parents[1])]
    environment = {name: x for name, x in os.environ.items() if not name.startswith(("ENVCODER_BENCH_", "XDG_"))}
    environment.update(HOME=str(home), PYTHONPATH=os.pathsep.join(packages), PATH="/usr/bin:/bin")
    environment.update(TMPDIR=str(home))
    user = {"user": USER, "group": USER, "extra_groups": [], "cwd": home, "env": environment}

    def python(program, code):
        return subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=400, check=False, **user)

    def is_usable(program):
        try:
            return python(program, f"open({torch.__file__!r})").returncode == 0
        except PermissionError:
            return False

    # this Python may lie in root's home; the system may have the same version
    version = f"python3.{sys.version_info.minor}"
    programs = [sys.executable, *filter(None, [shutil.which(version, path="/usr/local/bin:/usr/bin")])]
    program = next(filter(is_usable, programs), None)
    if program is None:
        pytest.skip("this Python or its packages cannot be read by other users")
    done = python(program, SCRIPT.format(user=USER))
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert {path.name for path in home.iterdir()} >= {"runs", ".cache"}
    assert all(path.lstat().st_uid == USER for path in home.rglob("*"))
