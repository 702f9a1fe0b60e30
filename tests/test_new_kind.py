"""A new kind of function is a row of the table of kinds and a call in the environment; nothing else changes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers import QUICK

import envcoder_bench
from envcoder_bench.core.folders import project_folder

TESTS = Path(__file__).parent
ROW = """
    Kind(
        name="compute_bonus",
        aliases=("compute_extra",),
        stage="bonus",
        purpose=48,
        called=AFTER_PHYSICS,
        judged_with=UNSHAPED,
        returns="(n,) float, added to the reward",
        absent="nothing is added",
        shape=_number,
    ),
"""
BEFORE = "reward = self.dispatch.reward(self.step_count)"
BONUSES = {"zero": "0.0 * pole_angle", "large": "100.0 * pole_angle"}
FLAGS = ["--profile", *(["--untrusted"] if sys.platform.startswith("linux") else [])]  # the jail needs Linux
CALL = f'{BEFORE} + self.dispatch.run("bonus", self.step_count)["value"]'


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} has changed: where is {old!r} now?"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs with a copy of the package that has one kind more, after the unit checks of ``fakes/new_kind.py``."""
    folder = tmp_path_factory.mktemp("tree")
    package, candidates = folder / "envcoder_bench", folder / "candidates"
    shutil.copytree(Path(envcoder_bench.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copytree(project_folder("cfg"), folder / "cfg")
    edit(package / "shaping" / "kinds.py", "\n)\n\nKINDS", f"{ROW})\n\nKINDS")
    edit(package / "env" / "grouped_vec_task.py", BEFORE, CALL)
    candidates.mkdir()
    for name, value in BONUSES.items():
        (candidates / f"{name}.py").write_text(f"def compute_bonus(pole_angle):\n    return {value}\n")
    words = ["--task", "Cartpole", "--candidates", candidates, "--shaper_types", "compute_bonus"]
    words += [*QUICK, "--num_envs_per_candidate", 8, "--learning_iterations", 3, "--output_dir"]
    run_words = [[*map(str, words), str(folder / flag.strip("-")), flag] for flag in FLAGS]
    paths = [folder, TESTS / "fakes", TESTS / "jail"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    script = [sys.executable, TESTS / "fakes" / "new_kind.py", json.dumps(run_words)]
    done = subprocess.run(script, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def weights(run, candidate):
    return torch.load(run / "candidates" / candidate / "policy.pth", weights_only=False)["model"]


@pytest.mark.slow
@pytest.mark.parametrize("flag", FLAGS)
def test_added_kind_is_trained(runs, flag):
    run = runs / flag.strip("-")
    rows = pd.read_csv(run / "results.csv", dtype={"candidate": str}).set_index("candidate")
    assert (rows["status"] == "ok").all(), rows
    human, zero, large = (weights(run, name) for name in ("human", *BONUSES))
    assert all(torch.equal(human[key], zero[key]) for key in human)
    assert not all(torch.equal(human[key], large[key]) for key in human)
    if flag == "--profile":
        profile = json.loads((run / "profile" / "breakdown.json").read_text())
        assert "bonus" in profile["seconds"]
