"""Walk with policies that repositories for Isaac Lab publish, in their own environment classes on isaaclab_mujoco.

    python benchmarks/lab_policies.py CLONES WORK [NAME ...]

``CLONES`` and ``WORK`` are as in ``lab_training.py``. Each policy is asked for some speeds forward; robots, events and
noise are those of the task. ``measurements/lab_policies.json`` has the mean speed forward of those that did not fall,
from the second 2 to 10, and how many fell: the task itself ended their episode.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab_forks import place
from lab_training import GO2

RECORD = Path(__file__).parent / "measurements" / "lab_policies.json"
ROBOTS, SECONDS, FROM = 64, 10.0, 2.0
DLS = "iit-DLSLab/basic-locomotion-dls-isaaclab"
POLICY = "tested_policies/go2/2025-09-07_19-13-16_go2_cuncurrent_se/exported"
PLAYS = {  # commit, asked speeds in m/s
    DLS: ("fe25711", (0.25, 0.5)),
    "Open-X-Humanoid/TienKung-Lab": ("7ce828b", (0.5, 1.0)),
}


def main() -> None:
    clones, work, chosen = Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:] or sorted(PLAYS)
    for name in chosen:
        commit, speeds = PLAYS[name]
        sources = (f"{name}@{commit}", "ZihanWang0422/legged_rl_lab@49687e6")
        folders = [work / source.split("@")[0].replace("/", "+") for source in sources]
        for source, folder in zip(sources, folders):
            if not folder.is_dir():
                place(clones, source, folder)
        for speed in speeds:
            command = [sys.executable, __file__, "--play", name, *map(str, folders), str(speed)]
            done = subprocess.run(command, cwd=folders[0], check=True, capture_output=True, text=True)
            values = json.loads(done.stdout.strip().splitlines()[-1])
            record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
            record[f"{name} {speed}"] = {"commit": commit, "asked": speed, **values}
            RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")
            print(row(f"{name} {speed}", record[f"{name} {speed}"]), flush=True)


def play(name: str, folder: Path, other: Path, speed: float) -> dict[str, Any]:
    """Return the mean speed of robots that did not fall, and how many fell."""
    import torch

    import isaaclab_mujoco
    from isaaclab_mujoco.assets import find

    find.roots.append(folder)
    isaaclab_mujoco.install()
    make = dls if name == DLS else tienkung
    with torch.inference_mode():
        env, robot, step = make(folder, other, speed)
        fallen, sums, count = torch.zeros(ROBOTS, dtype=torch.bool), torch.zeros(ROBOTS), 0
        for k in range(round(SECONDS / env.step_dt)):
            fallen |= step()
            if k * env.step_dt >= FROM:
                sums += robot.data.root_lin_vel_b[:, 0]
                count += 1
    return {"fell": int(fallen.sum()), "speed": round(float((sums / count)[~fallen].mean()), 3), "robots": ROBOTS}


def dls(folder: Path, other: Path, speed: float) -> tuple[Any, Any, Any]:
    """The Go2 of IIT's DLS lab, whose velocity is estimated by a network of theirs."""
    import torch

    from isaaclab_mujoco.assets import find

    sys.path.insert(0, str(folder / "source" / "basic_locomotion_dls_isaaclab"))
    find.given["go2.usd"] = str(other / GO2)
    from basic_locomotion_dls_isaaclab.tasks.locomotion.locomotion_env import (  # pyright: ignore
        Go2FlatEnvCfg,
        LocomotionEnv,
    )
    from basic_locomotion_dls_isaaclab.tasks.supervised_learning_networks import load_network  # pyright: ignore

    cfg = Go2FlatEnvCfg()
    cfg.scene.num_envs, cfg.sim.device, cfg.seed = ROBOTS, "cpu", 1
    env = LocomotionEnv(cfg)
    env._cuncurrent_state_est_network = load_network(str(folder / POLICY / "cuncurrent_state_estimator.pth"), "cpu")
    policy = torch.jit.load(folder / POLICY / "policy.pt")
    told = torch.tensor([speed, 0.0, 0.0])
    env._get_new_random_commands = lambda: env._commands.copy_(told.expand(ROBOTS, 3))
    seen = env.reset()[0]["policy"]
    env.common_step_counter = 24 * 1500 + 1  # after its estimator was trained, and before it would be again
    env.episode_length_buf.zero_()

    def step() -> torch.Tensor:
        nonlocal seen
        observed, _, terminated, _, _ = env.step(policy(seen))
        seen = observed["policy"]
        return terminated

    return env, env._robot, step


def tienkung(folder: Path, other: Path, speed: float) -> tuple[Any, Any, Any]:
    """TienKung 2 Lite, which walks."""
    import torch

    sys.path[:0] = [str(folder), str(folder / "rsl_rl")]
    from legged_lab.envs import TienKungEnv, TienKungWalkFlatEnvCfg  # pyright: ignore

    cfg = TienKungWalkFlatEnvCfg()
    cfg.scene.num_envs, cfg.scene.seed, cfg.device = ROBOTS, 1, "cpu"
    told = cfg.commands
    told.debug_vis, told.heading_command, told.rel_standing_envs = False, False, 0.0
    told.ranges.lin_vel_x, told.ranges.lin_vel_y, told.ranges.ang_vel_z = (speed, speed), (0.0, 0.0), (0.0, 0.0)
    env = TienKungEnv(cfg, True)
    policy = torch.jit.load(folder / "Exported_policy" / "walk.pt", map_location="cpu")
    seen = env.get_observations()[0]

    def step() -> torch.Tensor:
        nonlocal seen
        seen = env.step(policy(seen)[:, : env.num_actions])[0]
        return env.reset_buf & ~env.time_out_buf

    return env, env.robot, step


def row(name: str, values: dict[str, Any]) -> str:
    """Return a row of the table in isaaclab.md."""
    repository = f"{name.rpartition(' ')[0]} {values['commit']}"
    return f"| {repository} | {values['asked']} | {values['speed']} | {values['fell']} of {values['robots']} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        print(json.dumps(play(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5]))), flush=True)
        sys.stdout.flush()
        __import__("os")._exit(0)
    main()
