"""MuJoCo's viewer for a recording, in a window.

It plays the episodes one after the other, in real time, until it is closed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import python_path
from envcoder_bench.video.recording import Recording


def has_display() -> bool:
    """Return whether a window can be opened here."""
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def missing() -> str:
    """Return why MuJoCo's viewer cannot be opened here; empty if it can."""
    return "" if has_display() else "--view needs a display (DISPLAY is not set): leave it out to write a video"


def view(recording: Recording, model: bytes) -> None:
    """Open the viewer in a process of its own and wait until it is closed. Raises UserError if it cannot be opened."""
    command = [sys.executable, "-m", "envcoder_bench.sim.viewing"]
    if sys.platform == "darwin":
        command[0] = str(Path(sys.executable).with_name("mjpython"))  # MuJoCo's viewer needs its own main thread
    environment = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    with tempfile.TemporaryDirectory(prefix="envcoder_bench_view_") as name:
        folder = Path(name)
        (folder / "model.mjb").write_bytes(model)
        recording.save(folder / "recording.npz")
        files = [str(folder / "model.mjb"), str(folder / "recording.npz")]
        with subprocess.Popen([*command, *files], env={**environment, "PYTHONPATH": python_path()}) as process:
            code = _wait(process)
    if code:
        raise UserError("MuJoCo's viewer could not be opened, see above: write a video with --video FILE")


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code; Ctrl-C, which the process receives, too, ends it."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        return 0
