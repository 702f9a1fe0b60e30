"""The process of MuJoCo's viewer: ``python -m envcoder_bench.sim.viewing MODEL RECORDING``.

Plays the poses of a recording in real time, one episode after the other, until the window is closed.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.sim.rendering import load_model

PAUSE = 1.0  # s, between episodes


def main(model_file: str, recording_file: str) -> int:
    """Open the viewer; return when it is closed."""
    import mujoco
    import mujoco.viewer

    model = load_model(Path(model_file))
    data = mujoco.MjData(model)
    with np.load(recording_file) as arrays:
        plain: dict[str, Any] = json.loads(arrays["plain"].tobytes())
        poses = [arrays[f"{k}/qpos"] for k in range(len(plain["episodes"]))]
    with mujoco.viewer.launch_passive(model, data) as window:
        while window.is_running():
            for own, frames in zip(plain["episodes"], poses):
                print(f"playing {own['name']}", flush=True)
                _play(window, model, data, frames, plain["dt"])
    return 0


def _play(window: Any, model: Any, data: Any, frames: np.ndarray, dt: float) -> None:
    import mujoco

    began = time.monotonic()
    for k, qpos in enumerate(frames):
        if not window.is_running():
            return
        with window.lock():
            data.qpos[:] = qpos
            data.time = k * dt
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_camlight(model, data)
        window.sync()
        time.sleep(max(0.0, began + (k + 1) * dt - time.monotonic()))
    time.sleep(PAUSE)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
