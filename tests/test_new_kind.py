"""A new kind of function is a row of the table of kinds and a call in the environment; nothing else changes."""

import json
import os
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from forked import Forked
from helpers import QUICK, TINY_WORDS

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
FRESH = {"envcoder_bench", "isaacgym_mujoco", "new_kind", "jail_fakes", "shaping_fakes", "tracing_fakes", "helpers"}
CALL = f'{BEFORE} + self.dispatch.run("bonus", self.step_count)["value"]'


def check(words, folder):
    """Import the copy of the package in place of this process' own, and check it."""
    for name in [name for name in sys.modules if name.split(".")[0] in FRESH]:
        del sys.modules[name]
    sys.path[:0] = [str(folder), str(TESTS / "jail")]
    os.chdir(folder)
    import new_kind

    return new_kind.check(words)


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} has changed: where is {old!r} now?"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a copy of the package that has one kind more, after the unit checks of ``fakes/new_kind.py``."""
    folder = tmp_path_factory.mktemp("tree")
    package, candidates = folder / "envcoder_bench", folder / "candidates"
    shutil.copytree(Path(envcoder_bench.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copytree(project_folder("cfg"), folder / "cfg")
    edit(package / "shaping" / "kinds.py", "\n)\n\nKINDS", f"{ROW})\n\nKINDS")
    edit(package / "env" / "grouped_vec_task.py", BEFORE, CALL)
    candidates.mkdir()
    for name, value in BONUSES.items():
        (candidates / f"{name}.py").write_text(f"def compute_bonus(pole_angle):\n    return {value}\n")
    words = ["--task", "Cartpole", "--candidates", candidates, "--shaper_types", "compute_bonus", "--profile"]
    words += [*QUICK, *TINY_WORDS, "--num_envs_per_candidate", 8, "--learning_iterations", 2, "--output_dir"]
    done = Forked(lambda: check([*map(str, words), str(folder / "run")], folder), folder / "stderr").waited()
    assert done.returncode == 0, done.communicate()[1]
    return folder / "run"


def weights(run, candidate):
    return torch.load(run / "candidates" / candidate / "policy.pth", weights_only=False)["model"]


@pytest.mark.slow
def test_added_kind_is_trained(run):
    rows = pd.read_csv(run / "results.csv", dtype={"candidate": str}).set_index("candidate")
    assert (rows["status"] == "ok").all(), rows
    human, zero, large = (weights(run, name) for name in ("human", *BONUSES))
    assert all(torch.equal(human[key], zero[key]) for key in human)
    assert not all(torch.equal(human[key], large[key]) for key in human)
    assert "bonus" in json.loads((run / "profile" / "breakdown.json").read_text())["seconds"]
