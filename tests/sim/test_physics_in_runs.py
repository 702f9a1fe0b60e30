"""Messages of runs on blow-ups and dropped contacts, which do not affect other candidates."""

import json
import re
from dataclasses import replace

import pytest
from helpers import ANYMAL_QUICK, QUICK, assert_same_weights, results, run, weights, write_candidates

from envcoder_bench.sim import mujoco_model

pytestmark = pytest.mark.slow

PLAIN = "def compute_reward(dof_pos):\n    return torch.cos(dof_pos[:, 1])\n"
FAR = "def compute_initial_state(dof_pos):\n    return {'dof_pos': torch.full_like(dof_pos, 1e6)}\n"
SOMETIMES = (
    "def compute_initial_state(dof_pos):\n"
    "    far = torch.rand_like(dof_pos[:, :1]) < 0.3\n"
    "    return {'dof_pos': torch.where(far, 2e4, 0.0) + torch.zeros_like(dof_pos)}\n"
)
WILD = (  # within the limits where it begins, and far beyond them one step later
    "def compute_initial_state(dof_pos):\n    return {'dof_pos': 9900.0 * torch.sign(torch.rand_like(dof_pos) - 0.5)}\n"
)
TORQUE = "ACTION_DIM = 2\ndef compute_torque(action):\n    return 1e9 * action\n"
SHORT = ["--no_baselines", "--num_envs_per_candidate", 8, "--learning_iterations", 3]


def test_unstable_physics_is_reported_per_candidate_without_mujoco_logs(tmp_path, monkeypatch, capfd):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    sources = {"far": FAR, "plain": PLAIN, "sometimes": SOMETIMES, "torque": TORQUE, "wild": WILD}
    paths = write_candidates(tmp_path / "candidates", sources)
    words = ["--task", "Cartpole", *SHORT, *QUICK, "task.sim.substeps=8"]
    out = run(tmp_path / "out", *words, "--candidates", *paths)
    told = capfd.readouterr()
    assert list((tmp_path / "empty").iterdir()) == []
    assert not list(tmp_path.rglob("MUJOCO_LOG.TXT")) and "WARNING" not in told.err and "RuntimeWarning" not in told.err

    rows = results(out)
    steps = 3 * 8 * 16
    assert (rows["status"] == "ok").all() and (rows["contact_overflows"] == 0).all()
    assert (rows["unstable_resets"] <= rows["training_episodes"]).all() and rows.loc["plain", "unstable_resets"] == 0
    for name in ("far", "wild"):  # each step begins an episode and ends it
        assert rows.loc[name, ["unstable_resets", "training_episodes"]].tolist() == [steps, steps]
    assert 0 < rows.loc["sometimes", "unstable_resets"] < 0.9 * rows.loc["sometimes", "training_episodes"]
    share = 100 * rows.loc["sometimes", "unstable_resets"] / rows.loc["sometimes", "training_episodes"]
    table = " ".join(told.out.split())  # its lines are as long as the terminal is wide
    assert f"because the physics blew up: far 100 %, wild 100 % and sometimes {share:.0f} % /" in table
    ranking = {row["candidate"]: row for row in json.loads((out / "summary.json").read_text())["ranking"]}
    assert ranking["far"]["unstable_resets"] == ranking["far"]["training_episodes"] == steps

    first, last = re.findall(r"MuJoCo warned (\d+) times .*: Linesearch objective is not convex; (.*)", told.err)
    assert 0 < int(first[0]) < int(last[0])
    assert all(f"{name} " in first[1] for name in ("far", "sometimes", "wild")) and "plain" not in last[1]

    alone = run(tmp_path / "alone", *words, "--candidates", paths[1])
    assert_same_weights(weights(alone, "plain"), weights(out, "plain"))


def test_dropped_contacts_are_reported_in_training_and_below_the_ranking(tmp_path, monkeypatch, capfd):
    load = mujoco_model.load_robot

    def with_little_room(*arguments):
        return replace(load(*arguments), max_constraints=8)  # two contacts; the pool keeps its size

    monkeypatch.setattr(mujoco_model, "load_robot", with_little_room)
    high = (  # a candidate that trains in the air; the evaluation puts it on the ground
        "def compute_initial_state(root_states):\n"
        "    high = torch.zeros_like(root_states)\n    high[:, 2], high[:, 6] = 900.0, 1.0\n"
        "    return {'root_states': high}\n"
    )
    paths = write_candidates(tmp_path / "candidates", {"high": high, "low": PLAIN})
    words = ["--task", "Anymal", *SHORT, *ANYMAL_QUICK, "--sim", "mujoco_warp", "--candidates", *paths]
    out = run(tmp_path / "out", *words)
    told = capfd.readouterr()
    rows = results(out)
    assert rows.loc["low", "contact_overflows"] > rows.loc["high", "contact_overflows"] > 0
    assert not rows["unstable_resets"].any() and "WARNING" not in told.err
    said = [line for line in told.err.splitlines() if "the simulation dropped contacts of" in line]
    assert said[0].startswith("the simulation dropped contacts of low for lack of room: ")
    assert len(said) == 2 and "all candidates" in said[1]
    worst, best = (rows.loc[name, "contact_overflows"] for name in ("low", "high"))
    table = " ".join(told.out.split())
    assert f"env-steps in which contacts were dropped: low {worst} and high {best}; do not trust" in table
    ranking = {row["candidate"]: row for row in json.loads((out / "summary.json").read_text())["ranking"]}
    assert ranking["low"]["contact_overflows"] == worst
