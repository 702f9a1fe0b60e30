"""One control step of the real Isaac Lab 3.0, which simulates on Newton, and of Isaac Lab 2.3 on this project.

    python3.12 -m venv V3 && V3/bin/pip install isaaclab==3.0.0        # 11 GB
    V3/bin/pip install --no-deps mujoco-usd-converter==0.8.0 numpy-stl==3.2.0 python-utils==3.9.1
    V3/bin/python benchmarks/lab_newton.py record ROBOTS               # the real 3.0: measurements/lab_newton.json
    .venv-isaaclab/bin/python benchmarks/lab_newton.py compare ROBOTS  # this project, from the same states
    PYTHON benchmarks/lab_newton.py speed ROBOTS ROBOT NUM_ENVS        # either of them, by the Python that runs it

Both have the tasks that each version registers, and the same MJCF, which is written to the folder ``ROBOTS``: shapes,
masses, joints and ranges of this package's models. The 3.0 reads its conversion to USD, as it reads no MJCF without Isaac
Sim's importer. Numbers of actuators and steps that differ between the versions' configs are the 3.0's.

In the states named ``air`` nothing touches; those named ``ground`` are the 3.0's own after 30 steps of random actions.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).parent / "measurements" / "lab_newton.json"
STATES, SETTLING, SECONDS = 8, 30, 10.0
QUANTITIES = ("root_pos", "root_quat", "root_vel", "joint_pos", "joint_vel")  # quaternions xyzw; velocities of the link
_SIDES = {
    f"{side}_{ours}": f"{side}_{theirs}"
    for side in ("right", "left")
    for ours, theirs in {
        "hip_x": "thigh:0", "hip_y": "thigh:1", "hip_z": "thigh:2", "knee": "shin", "ankle_y": "foot:0",
        "ankle_x": "foot:1", "shoulder1": "upper_arm:0", "shoulder2": "upper_arm:2", "elbow": "lower_arm",
    }.items()
}  # fmt: skip
_LEGS = ("front_left", "front_right", "left_back", "right_back")
# of each robot, the names that the configs have for the joints of this package's models
JOINTS = {
    "cartpole": {"slider_to_cart": "slider_to_cart", "cart_to_pole": "cart_to_pole"},
    "ant": {
        f"{joint}_{k + 1}": f"{leg}_{part}"
        for k, leg in enumerate(_LEGS)
        for joint, part in {"hip": "leg", "ankle": "foot"}.items()
    },
    "humanoid": {"abdomen_z": "lower_waist:0", "abdomen_y": "lower_waist:1", "abdomen_x": "pelvis", **_SIDES},
}
# the numbers of the 3.0's configs that the 2.3's do not have
_NEWER = {
    "ant": {"damping": 0.1, "armature": 0.05, "effort_limit_sim": 15.0},
    "humanoid": {"armature": 0.01, "effort_limit_sim": 150.0},
}
_SUBSTEPS = {"humanoid": 2}  # Newton's steps in a physics step


def write_robot(name: str, folder: Path) -> Path:
    """Write a robot of this package without what only one of the engines would read; return its MJCF."""
    spec = mujoco.MjSpec.from_file(str(ROOT / "envcoder_bench" / "tasks" / name / f"{name}.xml"))
    for kind in (spec.actuators, spec.sensors, spec.lights, spec.numerics, spec.worldbody.geoms):
        for part in list(kind):
            spec.delete(part)
    for geom in (geom for body in spec.bodies for geom in body.geoms):
        geom.condim, geom.solref, geom.solimp = 3, [0.02, 1.0], [0.9, 0.95, 0.001, 0.5, 2.0]
        geom.contype = geom.conaffinity = int(name != "cartpole")
    for joint in spec.joints:
        joint.stiffness, joint.damping, joint.armature = [0.0] * 3, [0.0] * 3, 0.0
        joint.solimp_limit = [0.9, 0.95, 0.001, 0.5, 2.0]
    spec.compile()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.xml"
    path.write_text(spec.to_xml())
    return path


def by_joint(values: Any, names: dict[str, str]) -> Any:
    """Return a config's numbers by the names of the model's joints, where they are by those of the config."""
    if not isinstance(values, dict):
        return values
    matching = {ours: [v for key, v in values.items() if re.fullmatch(key, theirs)] for ours, theirs in names.items()}
    return {ours: found[0] for ours, found in matching.items() if found}


def set_names(cfg: Any, names: dict[str, str]) -> None:
    """Let a config of Ant or Humanoid name the joints as the model does."""
    robot = cfg.scene.robot
    robot.init_state.joint_pos = by_joint(robot.init_state.joint_pos, names)
    for actuator in robot.actuators.values():
        for key in ("stiffness", "damping"):
            setattr(actuator, key, by_joint(getattr(actuator, key), names))
    action = cfg.actions.joint_effort
    action.scale, action.clip = by_joint(action.scale, names), by_joint(action.clip, names)
    for term in vars(cfg.rewards).values():
        if "gear_ratio" in getattr(term, "params", ()):
            term.params["gear_ratio"] = by_joint(term.params["gear_ratio"], names)


class Newton:
    """A task of the real Isaac Lab 3.0."""

    def __init__(self, name: str, num_envs: int, folder: Path) -> None:
        import isaaclab_tasks  # noqa: F401  (it registers the tasks)
        from isaaclab.envs import ManagerBasedRLEnv
        from isaaclab_tasks.utils import parse_env_cfg
        from mujoco_usd_converter import Converter

        cfg = parse_env_cfg(f"Isaac-{name.capitalize()}", device="cpu", num_envs=num_envs)
        usd = Converter().convert(str(write_robot(name, folder)), str(folder / name))
        cfg.scene.robot.spawn.usd_path, cfg.seed = str(usd.path), 0
        set_names(cfg, JOINTS[name])
        self.env = env = ManagerBasedRLEnv(cfg)
        env.reset()
        self.robot, self.per_call = env.scene["robot"], cfg.decimation if env._physics_handles_decimation else 1
        self.calls = cfg.decimation // self.per_call

    def write(self, state: dict[str, np.ndarray]) -> None:
        x = {name: torch.tensor(value, dtype=torch.float32) for name, value in state.items()}
        robot = self.robot
        if not robot.is_fixed_base:
            robot.write_root_link_pose_to_sim_index(root_pose=torch.cat([x["root_pos"], x["root_quat"]], dim=1))
            robot.write_root_link_velocity_to_sim_index(root_velocity=x["root_vel"])
        robot.write_joint_state_to_sim_index(position=x["joint_pos"], velocity=x["joint_vel"])

    def read(self) -> dict[str, np.ndarray]:
        data, origins = self.robot.data, self.env.scene.env_origins
        names = ("root_link_pos_w", "root_link_quat_w", "root_link_vel_w", "joint_pos", "joint_vel")
        values = [getattr(data, name).torch.clone() for name in names]
        values[0] -= origins
        return {name: x.cpu().double().numpy() for name, x in zip(QUANTITIES, values)}


class Ours:
    """A task of Isaac Lab 2.3 on this project."""

    def __init__(self, name: str, num_envs: int, folder: Path) -> None:
        sys.path[:0] = [str(ROOT), str(ROOT / "packages")]
        import isaaclab_mujoco
        from isaaclab_mujoco.assets import find

        usd = {"cartpole": "cartpole.usd", "ant": "ant_instanceable.usd", "humanoid": "humanoid_instanceable.usd"}
        find.given[usd[name]] = str(write_robot(name, folder))
        isaaclab_mujoco.install()
        import gymnasium
        import isaaclab_tasks  # noqa: F401
        from isaaclab.envs import ManagerBasedRLEnv
        from isaaclab_tasks.utils import parse_env_cfg

        assert gymnasium.registry
        cfg = parse_env_cfg(f"Isaac-{name.capitalize()}-v0", device="cpu", num_envs=num_envs)
        cfg.seed = 0
        if name != "cartpole":
            set_names(cfg, JOINTS[name])
        for key, value in _NEWER.get(name, {}).items():
            setattr(cfg.scene.robot.actuators["body"], key, value)
        substeps = _SUBSTEPS.get(name, 1)
        cfg.sim.dt, cfg.decimation = cfg.sim.dt / substeps, cfg.decimation * substeps
        self.env = env = ManagerBasedRLEnv(cfg)
        env.reset()
        self.robot, self.per_call, self.calls = env.scene["robot"], 1, cfg.decimation

    def write(self, state: dict[str, np.ndarray]) -> None:
        x = {name: torch.tensor(value, dtype=torch.float32) for name, value in state.items()}
        if not self.robot.is_fixed_base:
            place, quat = x["root_pos"] + self.env.scene.env_origins, x["root_quat"].roll(1, dims=1)
            self.robot.write_root_link_pose_to_sim(torch.cat([place, quat], dim=1))
            self.robot.write_root_link_velocity_to_sim(x["root_vel"])
        self.robot.write_joint_state_to_sim(x["joint_pos"], x["joint_vel"])

    def read(self) -> dict[str, np.ndarray]:
        data = self.robot.data
        place, quat = data.root_link_pos_w - self.env.scene.env_origins, data.root_link_quat_w.roll(-1, dims=1)
        values = (place, quat, data.root_link_vel_w, data.joint_pos, data.joint_vel)
        return {name: x.clone().double().numpy() for name, x in zip(QUANTITIES, values)}


def control_step(lab: Any, actions: np.ndarray) -> None:
    """Do what ``ManagerBasedRLEnv.step`` does until terms are computed, so that no episode ends."""
    env = lab.env
    env.action_manager.process_action(torch.tensor(actions, dtype=torch.float32))
    for _ in range(lab.calls):
        env.action_manager.apply_action()
        env.scene.write_data_to_sim()
        env.sim.step(render=False)
        env.scene.update(dt=env.physics_dt * lab.per_call)


def in_the_air(lab: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw states in which nothing touches, in the order of the model's joints."""
    limits = lab.robot.data.joint_pos_limits
    lower, upper = (getattr(limits, "torch", limits)[0].double().numpy()).T
    lower, upper = np.maximum(lower, -1.0), np.minimum(upper, 1.0)
    middle, half, shape = (lower + upper) / 2, 0.3 * (upper - lower), (STATES, len(lower))
    quat = rng.normal(size=(STATES, 4))
    return {
        "root_pos": np.array([0.0, 0.0, 3.0]) + rng.uniform(-0.5, 0.5, (STATES, 3)),
        "root_quat": quat / np.linalg.norm(quat, axis=1, keepdims=True),
        "root_vel": rng.normal(size=(STATES, 6)),
        "joint_pos": middle + half * rng.uniform(-1.0, 1.0, shape),
        "joint_vel": rng.normal(size=shape),
    }


def record(folder: Path) -> None:
    """Step the real 3.0 and write what it makes of each state."""
    from importlib.metadata import version

    packages = ("isaaclab", "newton", "mujoco-warp", "warp-lang", "torch")
    out: dict[str, Any] = {"versions": {name: version(name) for name in packages}, "robots": {}}
    for name in JOINTS:
        lab, rng = Newton(name, STATES, folder), np.random.default_rng(7)
        width = lab.env.action_manager.total_action_dim
        air = in_the_air(lab, rng)
        if lab.robot.is_fixed_base:
            air = {key: x for key, x in air.items() if key.startswith("joint")}
        cases = {"air": air}
        if not lab.robot.is_fixed_base:
            for _ in range(SETTLING):
                control_step(lab, rng.uniform(-1.0, 1.0, (STATES, width)))
            cases["ground"] = lab.read()
        values = {}
        for case, state in cases.items():
            actions = rng.uniform(-1.0, 1.0, (STATES, width))
            lab.write(state)
            before = lab.read()
            control_step(lab, actions)
            values[case] = {"before": before, "actions": actions, "after": lab.read()}
        out["robots"][name] = {"joints": list(lab.robot.joint_names), **values}
        lab.env.close()
    RECORD.write_text(json.dumps(out, default=lambda x: np.round(x, 9).tolist()) + "\n")


def compare(folder: Path, name: str) -> dict[str, dict[str, float]]:
    """Return for each case the largest difference of each quantity after the step, over all states."""
    noted = json.loads(RECORD.read_text())["robots"][name]
    lab = Ours(name, STATES, folder)
    order = [noted["joints"].index(joint) for joint in lab.robot.joint_names]
    reorder = {"joint_pos": order, "joint_vel": order}

    def ours_of(state: dict[str, Any]) -> dict[str, np.ndarray]:
        arrays = {key: np.array(x) for key, x in state.items()}
        return {key: x[:, reorder[key]] if key in reorder else x for key, x in arrays.items()}

    out = {}
    for case in (case for case in ("air", "ground") if case in noted):
        before, after = ours_of(noted[case]["before"]), ours_of(noted[case]["after"])
        actions = np.array(noted[case]["actions"])
        if actions.shape[1] == len(order):
            actions = actions[:, order]
        lab.write(before)
        control_step(lab, actions)
        mine = lab.read()
        if not lab.robot.is_fixed_base:
            signs = np.sign((mine["root_quat"] * after["root_quat"]).sum(axis=1, keepdims=True))
            mine["root_quat"] *= signs
        names = [key for key in QUANTITIES if not (lab.robot.is_fixed_base and key.startswith("root"))]
        out[case] = {key: float(np.abs(mine[key] - after[key]).max()) for key in names}
        out[case]["moved"] = float(np.abs(after["joint_vel"] - before["joint_vel"]).max())
    lab.env.close()
    return out


def speed(lab: Any) -> float:
    """Return env-steps/s of ``env.step`` with random actions, over at least ``SECONDS``."""
    env = lab.env
    size = (env.num_envs, env.action_manager.total_action_dim)
    for _ in range(5):
        env.step(torch.rand(size) * 2.0 - 1.0)
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        env.step(torch.rand(size) * 2.0 - 1.0)
        steps += 1
    return steps * env.num_envs / (time.perf_counter() - start)


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    real = sys.version_info >= (3, 12)
    if verb == "record":
        record(folder)
    elif verb == "compare":
        for name in sys.argv[3:] or JOINTS:
            for case, values in compare(folder, name).items():
                print(f"| {name}, {case} | " + " | ".join(f"{key} {x:.1e}" for key, x in values.items()), flush=True)
    else:
        name, num_envs = sys.argv[3], int(sys.argv[4])
        print(json.dumps({"robot": name, "num_envs": num_envs, "3.0": real,
                          "env_steps_per_s": round(speed((Newton if real else Ours)(name, num_envs, folder)))}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
    sys.stdout.flush()
    os._exit(0)  # without the complaints of environments that are taken down
