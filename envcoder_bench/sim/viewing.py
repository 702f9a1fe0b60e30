"""The process of MuJoCo's viewer: ``python -m envcoder_bench.sim.viewing MODEL RECORDING [web]``.

It plays the episodes of a recording in real time, one after the other, until the window is closed. With ``web`` it
serves browsers on this machine until Ctrl-C.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.sim.rendering import load_model

PAUSE = 1.0  # seconds between episodes


class Playback:
    """A recording that is played in a viewer.

    Attributes:
        model, data: the model and its present pose.
        title: the episode that is played, its time and its fitness so far.
    """

    def __init__(self, model_file: str, recording_file: str) -> None:
        import mujoco

        self.model = load_model(Path(model_file))
        self.data = mujoco.MjData(self.model)
        self.title = ""
        with np.load(recording_file) as arrays:
            self._plain: dict[str, Any] = json.loads(arrays["plain"].tobytes())
            self._arrays = {name: arrays[name] for name in arrays.files}

    def play(self, is_open: Callable[[], bool], show: Callable[[], None]) -> None:
        """Play all episodes again and again while ``is_open``; ``show`` draws the present pose."""
        dt = self._plain["dt"]
        while is_open():
            for k, episode in enumerate(self._plain["episodes"]):
                print(f"playing {episode['name']}", flush=True)
                began = time.monotonic()
                for step in range(len(self._arrays[f"{k}/qpos"])):
                    if not is_open():
                        return
                    self._pose(k, episode["name"], step)
                    show()
                    time.sleep(max(0.0, began + (step + 1) * dt - time.monotonic()))
                time.sleep(PAUSE)

    def _pose(self, episode: int, name: str, step: int) -> None:
        arrays, dt = self._arrays, self._plain["dt"]
        self.data.qpos[:] = arrays[f"{episode}/qpos"][step]
        self.data.time = step * dt
        if f"{episode}/mocap_pos" in arrays:
            self.data.mocap_pos[:] = arrays[f"{episode}/mocap_pos"][step]
            self.data.mocap_quat[:] = arrays[f"{episode}/mocap_quat"][step]
        total = float(arrays[f"{episode}/fitness"][:step].sum())
        fitness = total if self._plain["summed"] else total / max(step, 1)
        self.title = f"{name}   {step * dt:.1f} s   fitness so far {fitness:.3f}"


def main(model_file: str, recording_file: str, where: str = "window") -> int:
    """Play until the viewer is closed."""
    playback = Playback(model_file, recording_file)
    if where == "web":
        from envcoder_bench.sim.web_viewing import web_viewer

        with web_viewer(playback) as (is_open, show):
            playback.play(is_open, show)
        return 0
    import mujoco
    import mujoco.viewer

    with mujoco.viewer.launch_passive(playback.model, playback.data) as window:

        def show() -> None:
            with window.lock():
                mujoco.mj_kinematics(playback.model, playback.data)
                mujoco.mj_comPos(playback.model, playback.data)
                mujoco.mj_camlight(playback.model, playback.data)
            window.sync()

        playback.play(window.is_running, show)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:  # the way to end a web viewer
        sys.exit(0)
