"""Steps of the real Isaac Lab 3.0, which simulates on Newton, and of Isaac Lab 2.3 on this project's MuJoCo.

    python3.12 -m venv V3 && V3/bin/pip install isaaclab==3.0.0 mujoco==3.12.0 && V3/bin/pip install --no-deps \\
        mujoco-usd-converter==0.8.0 numpy-stl==4.1.1 python-utils==4.2.0 tinyobjloader==2.0.0rc13
    V3/bin/python benchmarks/lab_newton.py record ROBOTS               # the 3.0: measurements/lab_newton.json
    .venv-isaaclab/bin/python benchmarks/lab_newton.py compare ROBOTS  # this project, from the same states
    PYTHON benchmarks/lab_newton.py speed ROBOTS ROBOT NUM_ENVS FOLDER PLACE COUNT  # either, by the Python that runs it

``COUNT`` processes that are started together with the same new ``FOLDER``, and each with its ``PLACE`` from 0 on, step
in turns of 1.5 s, so that what else the machine does meets all of them; each prints the medians of its five turns.
Both have the tasks that each version registers, and the same MJCF, which is written to the folder ``ROBOTS``: shapes,
masses, joints and ranges of this package's models. The 3.0 reads its conversion to USD. Numbers of actuators and steps
that differ between the versions' configs are the 3.0's. A step is one of the solver, of which Humanoid's physics steps
have two.

In the states named ``air`` nothing touches; those named ``ground`` are the 3.0's own after random actions. The second
step has the same actions as the first one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import mujoco
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).parent / "measurements" / "lab_newton.json"
GROUND = "Isaac/IsaacLab/Environments/Grid/default_ground_plane_checker_v1/default_ground_plane.usda"
PLANE = """#usda 1.0
(
    defaultPrim = "ground"
    metersPerUnit = 1
    upAxis = "Z"
)
def Xform "ground"
{
    def Plane "plane" (
        prepend apiSchemas = ["PhysicsCollisionAPI"]
    )
    {
        uniform token axis = "Z"
    }
}
"""  # NVIDIA's server has the usual one
STATES, SETTLING, STEPS, SECONDS, TURNS, WITHIN = 8, 30, 2, 1.5, 5, 1e-5
QUANTITIES = ("root_pos", "root_quat", "root_vel", "joint_pos", "joint_vel")  # quaternions xyzw; velocities of the link
_PARTS = {
    "thigh_0": "thigh:0", "thigh_1": "thigh:2", "thigh_2": "thigh:1", "shin_0": "shin", "foot_0": "foot:0",
    "foot_1": "foot:1", "upper_arm_0": "upper_arm:0", "upper_arm_1": "upper_arm:2", "lower_arm_0": "lower_arm",
}  # fmt: skip
_SIDES = {f"{side}_{joint}": f"{side}_{named}" for side in ("right", "left") for joint, named in _PARTS.items()}
_LEGS = ("front_left", "front_right", "left_back", "right_back")
# of each robot, the names that the configs have for the joints, which are here called by body and number
JOINTS = {
    "cartpole": {"cart_0": "slider_to_cart", "pole_0": "cart_to_pole"},
    "ant": {f"{leg}_{part}_0": f"{leg}_{part}" for leg in _LEGS for part in ("leg", "foot")},
    "humanoid": {
        "lower_waist_0": "lower_waist:0",
        "lower_waist_1": "lower_waist:1",
        "pelvis_0": "pelvis",
        **_SIDES,
    },
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
        geom.contype = geom.conaffinity = 1
    for joint in (joint for body in spec.bodies for joint in body.joints):
        if joint.name != "root":  # Newton makes one of several joints of a body, in the order of their names
            joint.name = f"{joint.parent.name}_{[*joint.parent.joints].index(joint)}"
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
    matching = {joint: [x for key, x in values.items() if re.fullmatch(key, name)] for joint, name in names.items()}
    return {joint: x[0] for joint, x in matching.items() if x}


def merged(name: str) -> str:
    """Return the name of a joint that Newton has made a part of another one, ``foot_0:1``, as ``foot_1``."""
    return re.sub(r"_\d+:(\d+)$", r"_\1", name)


def set_names(cfg: Any, names: dict[str, str]) -> None:
    """Let a config name the joints as the model does."""
    robot = cfg.scene.robot
    for actuator in robot.actuators.values():
        named = [
            joint for joint, name in names.items() if any(re.fullmatch(x, name) for x in actuator.joint_names_expr)
        ]
        actuator.joint_names_expr = named
    robot.init_state.joint_pos = by_joint(robot.init_state.joint_pos, names)
    for actuator in robot.actuators.values():
        for key in ("stiffness", "damping"):
            setattr(actuator, key, by_joint(getattr(actuator, key), names))
    action = cfg.actions.joint_effort
    action.joint_names = [
        joint for joint, name in names.items() if any(re.fullmatch(x, name) for x in action.joint_names)
    ]
    action.scale, action.clip = by_joint(action.scale, names), by_joint(action.clip, names)
    parts = [part for section in (cfg.rewards, cfg.terminations, cfg.events) for part in vars(section).values()]
    for params in (part.params for part in parts if hasattr(part, "params")):
        if "gear_ratio" in params:
            params["gear_ratio"] = by_joint(params["gear_ratio"], names)
        if "asset_cfg" in params and params["asset_cfg"].joint_names:
            called = params["asset_cfg"].joint_names
            params["asset_cfg"].joint_names = [joint for joint, name in names.items() if name in called]


class Newton:
    """A task of the real Isaac Lab 3.0."""

    def __init__(self, name: str, num_envs: int, folder: Path, single: bool = False) -> None:
        os.environ["ISAACSIM_ASSET_ROOT"] = str(folder)
        (folder / GROUND).parent.mkdir(parents=True, exist_ok=True)
        (folder / GROUND).write_text(PLANE)
        import isaaclab_tasks  # noqa: F401  (it registers the tasks)
        from isaaclab.envs import ManagerBasedRLEnv
        from isaaclab_tasks.utils import parse_env_cfg
        from mujoco_usd_converter import Converter

        cfg = parse_env_cfg(f"Isaac-{name.capitalize()}", device="cpu", num_envs=num_envs)
        usd = Converter().convert(str(write_robot(name, folder)), str(folder / name))
        cfg.scene.robot.spawn.usd_path, cfg.seed = str(usd.path), 0
        bodies = [joint.rpartition("_")[0] for joint in JOINTS[name]]
        several = {
            joint: f"{body}_0:{joint[-1]}" for joint, body in zip(JOINTS[name], bodies) if bodies.count(body) > 1
        }
        set_names(cfg, {several.get(joint, joint): called for joint, called in JOINTS[name].items()})
        if single:  # a step of the solver in each of the physics
            cfg.sim.dt, cfg.decimation = cfg.sim.dt / _SUBSTEPS.get(name, 1), cfg.decimation * _SUBSTEPS.get(name, 1)
            cfg.sim.physics.num_substeps = cfg.sim.physics.solver_cfg.update_data_interval = 1
        self.env = env = ManagerBasedRLEnv(cfg)
        env.reset()
        whole = env.sim.physics_manager.handles_decimation()
        self.robot, self.per_call = env.scene["robot"], cfg.decimation if whole else 1

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

    def __init__(self, name: str, num_envs: int, folder: Path, integrator: str = "") -> None:
        import isaaclab_mujoco
        from isaaclab_mujoco.assets import find
        from mujoco_batches.engine import layout

        plain = layout._world

        def world(params: Any) -> mujoco.MjSpec:
            spec = plain(params)
            if integrator:
                spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
            return spec

        usd = {"cartpole": "cartpole.usd", "ant": "ant_instanceable.usd", "humanoid": "humanoid_instanceable.usd"}
        isaaclab_mujoco.install()
        import isaaclab_tasks  # noqa: F401
        from isaaclab.envs import ManagerBasedRLEnv
        from isaaclab_tasks.utils import parse_env_cfg

        cfg = parse_env_cfg(f"Isaac-{name.capitalize()}-v0", device="cpu", num_envs=num_envs)
        cfg.seed = 0
        set_names(cfg, JOINTS[name])
        for key, value in _NEWER.get(name, {}).items():
            setattr(cfg.scene.robot.actuators["body"], key, value)
        substeps = _SUBSTEPS.get(name, 1)
        cfg.sim.dt, cfg.decimation = cfg.sim.dt / substeps, cfg.decimation * substeps
        files = {usd[name]: str(write_robot(name, folder))}
        with mock.patch.dict(find.given, files), mock.patch.object(layout, "_world", world):
            self.env = env = ManagerBasedRLEnv(cfg)
        env.reset()
        self.robot, self.per_call = env.scene["robot"], 1

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


def act(lab: Any, actions: np.ndarray) -> None:
    """Set the actions of the following steps."""
    lab.env.action_manager.process_action(torch.tensor(actions, dtype=torch.float32))


def step(lab: Any) -> None:
    """Do what ``ManagerBasedRLEnv.step`` does in a physics step, so that no episode ends."""
    env = lab.env
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
    out: dict[str, Any] = json.loads(RECORD.read_text())  # its speeds are copied there from what ``speed`` prints
    out |= {"versions": {name: version(name) for name in packages}, "robots": {}}
    for name in JOINTS:
        lab, rng = Newton(name, STATES, folder, single=True), np.random.default_rng(7)
        width = lab.env.action_manager.total_action_dim
        air = in_the_air(lab, rng)
        if lab.robot.is_fixed_base:
            air = {key: x for key, x in air.items() if key.startswith("joint")}
        cases = {"air": air}
        if not lab.robot.is_fixed_base:
            for _ in range(SETTLING):
                act(lab, rng.uniform(-1.0, 1.0, (STATES, width)))
                for _ in range(lab.env.cfg.decimation // lab.per_call):
                    step(lab)
            cases["ground"] = lab.read()
        values = {}
        for case, state in cases.items():
            actions = rng.uniform(-1.0, 1.0, (STATES, width))
            lab.write(state)
            before, after = lab.read(), []
            act(lab, actions)
            for _ in range(STEPS):
                step(lab)
                after.append(lab.read())
            values[case] = {"before": before, "actions": actions, "after": after}
        out["robots"][name] = {"joints": [merged(joint) for joint in lab.robot.joint_names], **values}
        lab.env.close()
    RECORD.write_text(json.dumps(out, default=lambda x: np.round(x, 9).tolist()) + "\n")


def compare(folder: Path, name: str, integrator: str) -> dict[str, list[np.ndarray]]:
    """Return for each case and step the largest differences of positions and of velocities, ``(states, 2)``."""
    noted = json.loads(RECORD.read_text())["robots"][name]
    lab = Ours(name, STATES, folder, integrator)
    order = [noted["joints"].index(joint) for joint in lab.robot.joint_names]
    out = {}
    for case in (case for case in ("air", "ground") if case in noted):
        before, *after = (sorted_joints(state, order) for state in (noted[case]["before"], *noted[case]["after"]))
        actions = np.array(noted[case]["actions"])
        lab.write(before)
        act(lab, actions[:, order] if actions.shape[1] == len(order) else actions)
        out[case] = []
        for theirs in after:
            step(lab)
            mine = lab.read()
            mine["root_quat"] *= np.sign((mine["root_quat"] * theirs["root_quat"]).sum(axis=1, keepdims=True))
            names = [key for key in QUANTITIES if not (lab.robot.is_fixed_base and key.startswith("root"))]
            worst = {key: np.abs(mine[key] - theirs[key]).max(axis=1) for key in names}
            kinds = [[x for key, x in worst.items() if key.endswith("vel") == fast] for fast in (False, True)]
            out[case].append(np.stack([np.max(kind, axis=0) for kind in kinds], axis=1))
    lab.env.close()
    type(lab.env.sim).clear_instance()
    return out


def sorted_joints(state: dict[str, Any], order: list[int]) -> dict[str, np.ndarray]:
    arrays = {key: np.array(x) for key, x in state.items()}
    return {key: x[:, order] if key.startswith("joint") else x for key, x in arrays.items()}


def turns(folder: Path, place: int, count: int) -> Iterator[None]:
    """Yield ``TURNS`` times, when it is the turn of the process at this place among ``count`` that share a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"ready {place}").touch()
    for turn in range(place, TURNS * count, count):
        while len([*folder.iterdir()]) < count + turn:
            time.sleep(0.05)
        yield
        (folder / f"turn {turn}").touch()


def speed(lab: Any) -> dict[str, int]:
    """Return env-steps of ``env.step`` with random actions per second, and per second of a core, over ``SECONDS``."""
    env = lab.env
    size = (env.num_envs, env.action_manager.total_action_dim)
    wall, core, steps = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall < SECONDS:
        env.step(torch.rand(size) * 2.0 - 1.0)
        steps += env.num_envs
    seconds = {"per_s": time.perf_counter() - wall, "per_core_s": time.process_time() - core}
    return {name: round(steps / x) for name, x in seconds.items()}


def row(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return a row of the page's table of two speeds of a robot."""
    name, core, wall = f"{theirs['robot']}, {theirs['num_envs']}", "per_core_s", "per_s"
    ratios = [f"{ours[per] / theirs[per]:.1f}" for per in (core, wall)]
    return f"| {name} | {theirs[core]:,} | {ours[core]:,} | {' | '.join(ratios)} |"


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    real = sys.version_info >= (3, 12)
    sys.path[:0] = [] if real else [str(ROOT), str(ROOT / "packages")]
    if verb == "record":
        record(folder)
    elif verb == "compare":
        for name in sys.argv[3:] or JOINTS:
            own, same = (compare(folder, name, integrator) for integrator in ("", "IMPLICITFAST"))
            for case, number in ((case, number) for case in own for number in range(STEPS)):
                both = [differences for x in (own, same) for differences in x[case][number].max(axis=0)]
                within = int((same[case][number] < WITHIN).all(axis=1).sum())
                words = " | ".join(f"{x:.1e}" for x in both)
                print(f"| {name} | {case}, {number + 1} | {words} | {within} of {STATES} |", flush=True)
    else:
        name, num_envs, together, place, count = sys.argv[3], int(sys.argv[4]), *sys.argv[5:]
        lab = (Newton if real else Ours)(name, num_envs, folder)
        speed(lab)  # the first steps compile
        speeds = [speed(lab) for _ in turns(Path(together), int(place), int(count))]
        medians = {key: int(np.median([x[key] for x in speeds])) for key in speeds[0]}
        print(json.dumps({"robot": name, "num_envs": num_envs, "3.0": real, **medians}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
    sys.stdout.flush()
    os._exit(0)  # without the complaints of environments that are taken down
