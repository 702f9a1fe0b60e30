"""The process of MuJoCo's viewer: ``python -m envcoder_bench.sim.viewing MODEL RECORDING``.

It plays the episodes of a recording in real time, one after the other, until the window is closed.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import mujoco
import mujoco.viewer
import numpy as np

from envcoder_bench.sim.rendering import load_model

PAUSE = 1.0  # seconds between episodes


def main(model_file: str, recording_file: str) -> None:
    """Play until the viewer is closed."""
    model = load_model(Path(model_file))
    data = mujoco.MjData(model)
    with np.load(recording_file) as file:
        arrays = {name: file[name] for name in file.files}
    recording: dict[str, Any] = json.loads(arrays["plain"].tobytes())
    with mujoco.viewer.launch_passive(model, data) as window:
        while window.is_running():
            for k, episode in enumerate(recording["episodes"]):
                print(f"playing {episode['name']}", flush=True)
                began = time.monotonic()
                for step in range(len(arrays[f"{k}/qpos"])):
                    if not window.is_running():
                        return
                    with window.lock():
                        _pose(data, arrays, k, step)
                        mujoco.mj_kinematics(model, data)
                        mujoco.mj_comPos(model, data)
                        mujoco.mj_camlight(model, data)
                    window.sync()
                    time.sleep(max(0.0, began + (step + 1) * recording["dt"] - time.monotonic()))
                time.sleep(PAUSE)


def _pose(data: Any, arrays: dict[str, np.ndarray], episode: int, step: int) -> None:
    data.qpos[:] = arrays[f"{episode}/qpos"][step]
    if f"{episode}/mocap_pos" in arrays:
        data.mocap_pos[:] = arrays[f"{episode}/mocap_pos"][step]
        data.mocap_quat[:] = arrays[f"{episode}/mocap_quat"][step]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
