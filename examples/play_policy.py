"""Play an exported Cartpole policy with MuJoCo and onnxruntime, without EnvCoderBench: python play_policy.py FOLDER"""

import json
import sys
from pathlib import Path

import mujoco
import numpy as np
import onnxruntime


def play(folder, qpos, qvel):
    """Return the fitness of the episode that begins at these joint positions and velocities."""
    about = json.loads((folder / "policy.json").read_text())
    policy = onnxruntime.InferenceSession(folder / about["files"]["onnx"])
    if policy.get_inputs()[0].shape[1] != 4:
        sys.exit("this example has the observation of the unshaped baseline, 4 numbers; write that of your candidate")
    model = mujoco.MjModel.from_xml_path(str(folder / about["files"]["model"]))
    data, upright, steps = mujoco.MjData(model), 0, about["episode_control_steps"]
    data.qpos[:], data.qvel[:] = qpos, qvel
    for _ in range(steps):
        obs = np.array([[data.qpos[0], data.qvel[0], data.qpos[1], data.qvel[1]]], np.float32)  # input.columns
        _actions, command = policy.run(None, {"obs": obs})
        data.ctrl[:] = command[0, about["outputs"]["command"]["actuated"]]
        mujoco.mj_step(model, data, about["rates"]["physics_steps_per_control_step"])
        if abs(data.qpos[0]) > 3.0 or abs(data.qpos[1]) > np.pi / 2:  # the cart left its range, or the pole fell
            break
        upright += np.cos(data.qpos[1]) >= np.cos(np.radians(12.0))
    return upright / steps


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python play_policy.py FOLDER, the folder that envcoder-bench export wrote")
    if not Path(sys.argv[1], "policy.json").is_file():
        sys.exit(f"{sys.argv[1]}/policy.json is missing: export a policy with envcoder-bench export")
    random = np.random.default_rng(0)
    played = [play(Path(sys.argv[1]), random.uniform(-0.1, 0.1, 2), random.uniform(-0.25, 0.25, 2)) for _ in range(20)]
    print(f"fitness {np.mean(played):.3f} in {len(played)} episodes")
