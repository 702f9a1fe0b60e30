"""Scripts on the open isaacgym, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


def run_script(folder, path, *arguments, places=()):
    """Run a script in a folder, with ``places`` on the import path; return its output."""
    path_variable = [str(SCRIPTS.parents[2]), *map(str, places), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path_variable), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "isaacgym_mujoco", str(path), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
