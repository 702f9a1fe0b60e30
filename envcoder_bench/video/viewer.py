"""MuJoCo's viewer for a recording: plays its episodes one after the other, in real time, until it is closed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.video.recording import Recording


def missing() -> str:
    """Return why the viewer cannot be opened here; empty if it can."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "--view needs a display, and there is none (DISPLAY is not set): write a video with --video FILE"
    return ""


def view(recording: Recording, model: bytes) -> None:
    """Open the viewer in a process of its own and wait until it is closed.

    Raises:
        UserError: it cannot be opened.
    """
    command = [sys.executable, "-m", "envcoder_bench.sim.viewing"]
    if sys.platform == "darwin":
        command[0] = str(Path(sys.executable).with_name("mjpython"))  # MuJoCo's viewer needs its own main thread
    package = str(Path(__file__).resolve().parent.parent.parent)
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    environment = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    with tempfile.TemporaryDirectory(prefix="envcoder_bench_view_") as name:
        folder = Path(name)
        (folder / "model.mjb").write_bytes(model)
        recording.save(folder / "recording.npz")
        files = [str(folder / "model.mjb"), str(folder / "recording.npz")]
        done = subprocess.run([*command, *files], env={**environment, "PYTHONPATH": paths}, check=False)
    if done.returncode:
        raise UserError("MuJoCo's viewer could not be opened, see above: write a video with --video FILE")
