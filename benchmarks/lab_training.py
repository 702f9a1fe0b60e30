"""Train a task of each of some repositories for Isaac Lab, by its own script and by this project, and compare rewards.

    python benchmarks/lab_training.py CLONES WORK [OWNER/NAME ...]

``CLONES`` has clones as ``lab_forks.py`` reads them. ``WORK`` gets the files of each repository at its commit, robots
of other repositories, and packages from PyPI. Each repository is tried in three ways, and
``measurements/lab_training.json`` has what came of each; what it has is not tried again:

- its own script, unmodified, for two iterations with 16 environments;
- ``isaaclab:PACKAGE:NAME`` with two candidates, which double the first weight and leave out the last term
  whose weight no curriculum changes; of a class of its own, the reward, and the last number that it observes;
- its own ``ManagerBasedRLEnv``, with its own ``RewardManager``, beside this project's task: the same actions and random
  numbers, 3 environments, 50 steps; values of each reward term that are not bitwise equal are counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab_forks import place

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).parent / "measurements" / "lab_training.json"
TABLE = """<robot name="table"><link name="table"><inertial><mass value="10"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 -0.025"/><geometry><box size="1.2 0.8 0.05"/></geometry></collision></link></robot>"""
OWN = {  # candidates of a task with an environment class of its own
    "double.py": "def compute_reward(reward_buf):\n    return 2.0 * reward_buf\n",
    "without.py": "def compute_observation(obs_buf):\n    return obs_buf[:, :-1]\n",
}
ENVS, ITERATIONS, STEPS, SIZE, LIMIT = 16, 2, 50, 3, 2400
OLDER = ("isaaclab==2.2.0", "rsl-rl-lib==2.3.3")  # for scripts of 2024 and early 2025


@dataclass(frozen=True)
class Training:
    """A task of a repository, and what it needs beside the repository.

    Attributes:
        commit, script, package, task: of the repository.
        robots: files that the config names -> the files that answer them, below the repository or as
            ``OWNER/NAME@COMMIT:FILE``.
        packages: what pip installs.
    """

    commit: str
    script: str
    package: str
    task: str
    robots: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


TRAIN = "scripts/rsl_rl/train.py"
GO2 = "source/legged_rl_lab/legged_rl_lab/data/robots/go2_description/urdf/go2_description.urdf"
TRAININGS = {
    "BoosterRobotics/booster_train": Training(
        *("b77e0e9", TRAIN, "booster_train", "Booster-K1-Fight_001-v0"),
    ),
    "GrassFanWang/Booster_T1_locomotion": Training(
        *("2fb654d", TRAIN, "Booster_T1_locomotion", "Booster-T1-Velocity"), robots={"T1.usd": "T1_usd/T1_23dof.xml"}
    ),
    "HybridRobotics/Berkeley-Humanoid-Lite": Training(
        *("edc4738", TRAIN, "berkeley_humanoid_lite", "Velocity-Berkeley-Humanoid-Lite-v0"),
        packages=OLDER,
    ),
    "MuammerBay/isaac_so_arm101": Training(
        *("e4624de", f"src/isaac_so_arm101/{TRAIN}", "isaac_so_arm101", "Isaac-SO-ARM100-Reach-v0"),
        robots={"table_instanceable.usd": "table.urdf"},
    ),
    "Hellod035/LeggedLab": Training(
        *("708d90b", "legged_lab/scripts/train.py", "legged_lab", "g1_flat"), robots={"g1.usd": "mjlab's G1"}
    ),
    "YumaMatsumura/go2_isaac_lab": Training(
        *("f213119", TRAIN, "go2_isaac_lab", "Go2-Isaac-Lab-Velocity-Rough-v0"),
        robots={"go2.usd": f"ZihanWang0422/legged_rl_lab@49687e6:{GO2}"},
    ),
    "ZihanWang0422/legged_rl_lab": Training(
        *("49687e6", TRAIN, "legged_rl_lab", "LeggedRLLab-Isaac-Velocity-Flat-Unitree-Go2-v0"),
        robots={"go2.usd": GO2},
        packages=("joblib==1.6.0",),
    ),
    "enactic/openarm_isaac_lab": Training(
        *("36a1d33", f"scripts/reinforcement_learning/{TRAIN[8:]}", "openarm", "Isaac-Reach-OpenArm-v0"),
        robots={"openarm_unimanual.usd": "enactic/openarm_mujoco@396c88d:v1/openarm.xml"},
    ),
    "fkfk21/mevius_isaac_lab": Training(
        *("497ea84", TRAIN, "mevius_isaac_lab", "Isaac-Velocity-Flat-Mevius-v0"),
        robots={"mevius.usd": "haraduka/mevius@35fdb6c:models/mevius.urdf"},
        packages=OLDER,
    ),
    "limxdynamics/tron1-rl-isaaclab": Training(
        *("28ae509", TRAIN, "bipedal_locomotion", "Isaac-Limx-PF-Blind-Flat-v0"),
        robots={"PF_TRON1A.usd": "limxdynamics/robot-description@469df8d:pointfoot/PF_TRON1A/urdf/robot.urdf"},
        packages=OLDER[:1],
    ),
    "rt-net/mujina_isaac_lab": Training(
        *("98bf94e", TRAIN, "mujina_isaac_lab", "Isaac-Velocity-Rough-Mujina-v0"),
        robots={"mujina.usd": "rt-net/mujina_ros@38ff97f:mujina_description/urdf/mujina.urdf"},
    ),
    "tianzong-cheng/OpenHomie-LeggedLab": Training(
        *("22f4f0f", "legged_lab/scripts/train.py", "legged_lab", "g1_homie"), robots={"g1.usd": "mjlab's G1"}
    ),
    "zitongbai/legged_lab": Training(
        *("3bd2363", TRAIN, "legged_lab", "LeggedLab-Isaac-Velocity-Flat-Unitree-G1-v0"),
        robots={"g1_29dof_rev_1_0.usd": "mjlab's G1"},
        packages=("joblib==1.6.0",),
    ),
}


def main() -> None:
    clones, work, chosen = Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:] or sorted(TRAININGS)
    for name in chosen:
        training = TRAININGS[name]
        folder, files, env = prepared(clones, work, name, training)
        for part, key in ((own_script, "iterations"), (ours, "ours")):
            noted = {"commit": training.commit, "task": training.task, **recorded().get(name, {})}
            if key not in noted:  # else it was tried before
                noted |= part(training, folder, files, env)
                RECORD.write_text(json.dumps(dict(sorted({**recorded(), name: noted}.items())), indent=1) + "\n")
        print(row(name, recorded()[name]), flush=True)


def recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text()) if RECORD.is_file() else {}


def prepared(clones: Path, work: Path, name: str, training: Training) -> tuple[Path, dict[str, str], dict[str, str]]:
    """Unpack what a training needs; return its folder, its robots' files and the environment variables."""

    def placed(source: str, folder: Path) -> Path:
        if not folder.is_dir() or not any(folder.iterdir()):
            place(clones, source, folder)
        return folder

    folder = placed(f"{name}@{training.commit}", work / name.replace("/", "+"))
    (folder / "table.urdf").write_text(TABLE)
    files = {}
    for asset, file in training.robots.items():
        if file == "mjlab's G1":
            files[asset] = str(next((work / "mjlab").glob("**/unitree_g1/xmls/g1.xml")))
        elif "@" in file:
            source, path = file.split(":")
            files[asset] = str(placed(source, work / source.split("@")[0].replace("/", "+")) / path)
        else:
            files[asset] = str(folder / file)
    variables, paths = {**os.environ, "OMP_NUM_THREADS": "1"}, [str(ROOT), str(ROOT / "packages")]
    for package in training.packages:
        target = work / "packages" / package
        if not target.is_dir():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), package]
            subprocess.run(pip, check=True)
        if package.startswith("isaaclab"):
            variables["ISAACLAB_PATH"] = str(target / "isaaclab")
        else:
            paths.append(str(target))
    return folder, files, {**variables, "PYTHONPATH": os.pathsep.join(paths)}


def own_script(training: Training, folder: Path, files: dict[str, str], env: dict[str, str]) -> dict[str, Any]:
    """Run the repository's script; return the iterations that it trained, and why there are none."""
    assets = [word for name, file in files.items() for word in ("--asset", f"{name}={file}")]
    sizes = ["--headless", "--num_envs", str(ENVS), "--max_iterations", str(ITERATIONS)]
    command = [sys.executable, "-m", "isaaclab_mujoco", *assets, training.script, "--task", training.task, *sizes]
    done = finished(command, folder, env)
    iterations = (done.stdout + done.stderr).count("Learning iteration ")
    if done.returncode == 0:
        return {"iterations": iterations, "reason": ""}
    return {"iterations": 0, "reason": last_line(done.stderr, folder)}


def ours(training: Training, folder: Path, files: dict[str, str], env: dict[str, str]) -> dict[str, Any]:
    """Rank two candidates and compare reward terms, in a process of its own."""
    words = [f"isaaclab:{training.package}:{training.task}", json.dumps(files)]
    command = [sys.executable, __file__, "--ours", *words]
    done = finished(command, folder, env)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    values = {key: value for line in lines for key, value in json.loads(line).items()}
    return {**values, "ours": "" if done.returncode == 0 else last_line(done.stderr, folder)}


def finished(command: list[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"not done after {LIMIT} s")


def last_line(text: str, folder: Path) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()] or ["the process ended without a message"]
    return lines[-1].replace(f"{folder}/", "").replace(f"{folder.parent}/", "")[:400]


def measure(address: str, files: dict[str, str]) -> None:
    """Print what the two candidates came to, then how many values of each reward term are unequal."""
    import tempfile

    import envcoder_bench
    from envcoder_bench.sources.isaaclab_tasks.source import find_source
    from envcoder_bench.sources.isaaclab_tasks.spec import facts_of
    from isaaclab_mujoco.assets import find

    find.given.update(files)
    facts = None if find_source(address).is_own else facts_of(address)
    with tempfile.TemporaryDirectory() as run:
        texts = OWN if facts is None else changes(facts.env_cfg())
        candidates = [Path(run) / name for name in texts]
        for file, text in zip(candidates, texts.values()):
            file.write_text(text)
        small = ["evaluation.final_episodes=2", "evaluation.num_envs=2", "evaluation.points=1"]
        sizes = {"num_envs_per_candidate": 4, "learning_iterations": ITERATIONS, "output_dir": Path(run) / "out"}
        result = envcoder_bench.evaluate(address, candidates, baselines=False, overrides=small, **sizes)
    print(json.dumps({"candidates": [row.status for row in result.rows]}), flush=True)
    if facts is not None:
        print(json.dumps({"unequal": unequal(address, facts)}), flush=True)


def changes(cfg: Any) -> dict[str, str]:
    """Return two candidates: they double the first weight, and leave out the last term that no curriculum changes."""
    rewards, scheduled = cfg.rewards, [term.params.get("term_name") for term in cfg.curriculum.values()]
    first, last = next(iter(rewards)), [name for name in rewards if name not in scheduled][-1]
    double = f"rewards = {{{first!r}: {2 * rewards[first].weight}}}\n"
    return {"double.py": double, "without.py": f"rewards = {{{last!r}: None}}\n"}


def unequal(address: str, facts: Any) -> dict[str, int]:
    """Return how many values of each reward term differ from those of the repository's own environment."""
    import torch

    sys.path += [str(ROOT / "tests" / "sources"), str(ROOT / "tests" / "sources" / "isaaclab_tasks")]
    from lab_reference import Reference
    from term_driven import TermDriven, actions

    from envcoder_bench.sources.isaaclab_tasks.view import TERRAIN

    reference, driven = Reference(facts.env_cfg(), SIZE), TermDriven(address, SIZE, begin=False)
    own, terrain = reference.env.scene.terrain, driven.task.world.scene.terrain
    for name in TERRAIN if getattr(own, "terrain_origins", None) is not None else ():
        getattr(own, name).copy_(getattr(terrain, name))  # Isaac Lab draws other places
    driven.begin()
    reference.env.sim.activate()
    reference.reset()
    names = reference.env.reward_manager.active_terms
    counts = dict.fromkeys(names, 0)
    for k, action in enumerate(actions(SIZE, driven.task.num_dofs, STEPS)):
        mine = driven.step(action)["reward_terms"][:, : len(names)] / driven.task.dt
        reference.env.sim.activate()
        for name, equal in zip(names, (mine == reference.step(action, k)["terms"]).T):
            counts[name] += int((~equal).sum())
    assert torch.isfinite(mine).all()
    return counts


def row(name: str, values: dict[str, Any]) -> str:
    """Return a row of the table in isaaclab.md; parts that were not tried are empty."""
    count, terms = values.get("iterations"), values.get("unequal")
    trained = "" if count is None else f"{count} iterations" if count else values["reason"]
    ranked = ", ".join(values.get("candidates", ())) or values.get("ours", "")
    compared = "" if terms is None else f"{sum(terms.values())} of {len(terms) * SIZE * STEPS}, {len(terms)} terms"
    return f"| {name} {values['commit']} | {values['task']} | {trained} | {ranked} | {compared} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ours"]:
        measure(sys.argv[2], json.loads(sys.argv[3]))
        sys.stdout.flush()
        os._exit(0)  # without the complaints of environments that are taken down
    main()
