"""Count the task configs that load on isaaclab_mujoco, in repositories that were written for Isaac Lab.

    python benchmarks/lab_forks.py FOLDER [OWNER/NAME ...]

``FOLDER`` has a clone of each of ``REPOSITORIES`` and of their ``PARTS`` as ``OWNER+NAME``, or a bare one as
``OWNER+NAME/repo``. Its files at the commit are unpacked into a temporary folder; those that a partial clone does not
have, such as meshes, are left out. Packages that they import are on PYTHONPATH:

    pip install --no-deps --target FOLDER/packages cusrl objprint tyro docstring-parser shtab typeguard joblib
        opencv-python-headless reportlab

A config loads if its module is imported and the config is made. Results go to ``measurements/lab_forks.json``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "measurements" / "lab_forks.json"
REPOSITORIES = {
    "BoosterRobotics/booster_train": "b77e0e9",
    "CAI23sbP/Isaaclab_Parkour": "d6766d8",
    "DeepRoboticsLab/rl_training": "127b4ff",
    "GrassFanWang/Booster_T1_locomotion": "2fb654d",
    "Hellod035/LeggedLab": "708d90b",
    "HybridRobotics/Berkeley-Humanoid-Lite": "edc4738",
    "HybridRobotics/isaac_berkeley_humanoid": "ffc7b26",
    "HybridRobotics/whole_body_tracking": "cd65172",
    "MuammerBay/isaac_so_arm101": "e4624de",
    "Open-X-Humanoid/TienKung-Lab": "7ce828b",
    "YumaMatsumura/go2_isaac_lab": "f213119",
    "ZihanWang0422/legged_rl_lab": "49687e6",
    "ankitdipto/BALLU_IsaacLab_Extension": "104e07b",
    "enactic/openarm_isaac_lab": "36a1d33",
    "fan-ziqi/robot_lab": "09f7fb4",
    "fkfk21/mevius_isaac_lab": "497ea84",
    "iit-DLSLab/basic-locomotion-dls-isaaclab": "fe25711",
    "jaykorea/Isaac-RL-Two-wheel-Legged-Bot": "d922cce",
    "limxdynamics/tron1-rl-isaaclab": "28ae509",
    "rt-net/mujina_isaac_lab": "98bf94e",
    "tianzong-cheng/OpenHomie-LeggedLab": "22f4f0f",
    "unitreerobotics/unitree_rl_lab": "e72a072",
    "zitongbai/legged_lab": "3bd2363",
}
PARTS = {  # folders of a repository -> OWNER/NAME@COMMIT, such as submodules
    "BoosterRobotics/booster_train": {"booster_assets": "BoosterRobotics/booster_assets@486da0f"},
    "DeepRoboticsLab/rl_training": {"deep_robotics_model": "DeepRoboticsLab/deep_robotics_model@b452a1f"},
    "HybridRobotics/Berkeley-Humanoid-Lite": {
        "source/berkeley_humanoid_lite_assets": "HybridRobotics/Berkeley-Humanoid-Lite-Assets@205534d"
    },
}
_CALLS = re.compile(r"\b(?:gym|gymnasium|task_registry)\.register\(")


def main() -> None:
    mirrors, chosen = Path(sys.argv[1]), sys.argv[2:] or sorted(REPOSITORIES)
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            place(mirrors, f"{name}@{REPOSITORIES[name]}", Path(folder))
            record[name] = {"commit": REPOSITORIES[name], **counted(Path(folder))}
        print(row(name, record[name]), flush=True)
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")


def place(mirrors: Path, source: str, folder: Path) -> None:
    """Write the files of ``OWNER/NAME@COMMIT``, and of its parts."""
    name, commit = source.split("@")
    clone = mirrors / name.replace("/", "+")
    if not clone.is_dir():
        raise SystemExit(f"{mirrors} has no clone of {name}")
    unpack(clone / "repo" if (clone / "repo").is_dir() else clone, commit, folder)
    for part, source in PARTS.get(name, {}).items():
        place(mirrors, source, folder / part)


def unpack(git: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit that the clone has."""
    listing = subprocess.run(["git", "-C", git, "ls-tree", "-rz", commit], check=True, capture_output=True).stdout
    files = [(line.split("\t")[0].split()[2], line.split("\t")[1]) for line in listing.decode().split("\0") if line]
    # a partial clone must not ask its remote for what is missing
    reader = subprocess.run(
        ["git", "-C", git, "cat-file", "--batch"],
        *(),
        input="\n".join(digest for digest, _ in files).encode(),
        capture_output=True,
        check=True,
        env={**os.environ, "GIT_NO_LAZY_FETCH": "1"},
    ).stdout
    at = 0
    for _, path in files:
        end = reader.index(b"\n", at)
        header, at = reader[at:end].split(), end + 1
        if header[-1] == b"missing" or header[1] != b"blob":
            continue
        size = int(header[2])
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(reader[at : at + size])
        at += size + 1


def counted(folder: Path) -> dict[str, Any]:
    """Count in a process of its own, because repositories register the same names."""
    command = [sys.executable, __file__, "--count", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        error = done.stderr.strip().splitlines() or ["the process ended without a message"]
        return {"configs": 0, "loaded": 0, "missing": {}, "failures": {error[-1][:200]: 1}}
    return json.loads(lines[-1])


def count(folder: Path) -> dict[str, Any]:
    """Import every module of ``folder`` that registers tasks, and make the configs."""
    import isaaclab_mujoco

    isaaclab_mujoco.install()
    import gymnasium
    import isaaclab.envs  # pyright: ignore[reportMissingImports]  # noqa: F401, before tasks, as in Isaac Lab's scripts

    files = [file for file in sorted(folder.rglob("*.py")) if _CALLS.search(file.read_text(errors="replace"))]
    roots = {_root(file) for file in folder.rglob("__init__.py")} | {_root(file) for file in files} | {folder}
    roots |= {file.parent for name in ("setup.py", "pyproject.toml") for file in folder.rglob(name)}
    sys.path[:0] = [str(root) for root in sorted(roots, reverse=True)]  # inner ones first
    missing: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    loaded, before = 0, set(gymnasium.registry)
    for file in files:
        module = ".".join(file.relative_to(_root(file)).with_suffix("").parts).removesuffix(".__init__")
        error = _error(lambda module=module: __import__(module))
        if error is None:
            continue
        _note(error, _registrations(file), missing, failures, folder)
        for name, held in list(sys.modules.items()):  # half imported packages would give the next file another reason
            if str(getattr(held, "__file__", None)).startswith(f"{folder}/"):
                del sys.modules[name]
    made = [spec.kwargs.get("env_cfg_entry_point") for x, spec in gymnasium.registry.items() if x not in before]
    made = [entry for entry in made if entry is not None and not str(entry).startswith("isaaclab_tasks")]
    made += _task_registries()
    for entry in made:
        error = _error(lambda entry=entry: _make(entry))
        if error is None:
            loaded += 1
        else:
            _note(error, 1, missing, failures, folder)
    configs = loaded + sum(missing.values()) + sum(failures.values())
    return {"configs": configs, "loaded": loaded, "missing": dict(missing), "failures": dict(failures)}


def _root(file: Path) -> Path:
    """Return the folder that must be on the path for a file to be imported."""
    return next(parent for parent in file.parents if not (parent / "__init__.py").is_file())


def _registrations(file: Path) -> int:
    """Count the calls that register tasks."""
    calls = [node for node in ast.walk(ast.parse(file.read_text(errors="replace"))) if isinstance(node, ast.Call)]
    return sum(bool(_CALLS.match(ast.unparse(call.func) + "(")) for call in calls)


def _task_registries() -> list[Any]:
    """Return the configs of registries such as LeggedLab's, ``task_registry.env_cfgs``."""
    held = {id(x): x for module in list(sys.modules.values()) if (x := vars(module).get("task_registry")) is not None}
    return [cfg for registry in held.values() for cfg in getattr(registry, "env_cfgs", {}).values()]


def _make(entry: Any) -> Any:
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(__import__(module, fromlist=[name]), name)
    return entry() if callable(entry) else entry


def _error(call: Any) -> BaseException | None:
    try:
        call()
    except (Exception, SystemExit) as error:
        return error
    return None


def _note(error: BaseException, count: int, missing: Counter[str], failures: Counter[str], folder: Path) -> None:
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing[error.name] += count
    else:
        message = re.sub(r" \(/[^)]*\)", "", " ".join(str(error).split())).replace(
            str(folder), "."
        )  # without files of imports
        failures[f"{type(error).__name__}: {message}"[:200]] += count


def row(name: str, values: dict[str, Any]) -> str:
    """Return a row of the table in docs/isaaclab.md."""
    reasons = [f"{package} is missing ({n})" for package, n in values["missing"].items()]
    reasons += [f"{message.split(': ', 1)[-1]} ({n})" for message, n in values["failures"].items()]
    return f"| {name} {values['commit']} | {values['loaded']} of {values['configs']} | {'; '.join(reasons)} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        result = count(Path(sys.argv[2]).resolve())
        print(json.dumps(result), flush=True)
        os._exit(0)  # without the complaints of modules that were half imported
    main()
