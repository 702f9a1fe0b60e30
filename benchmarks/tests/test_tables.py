"""Measurements of all tasks: trainings, the other simulator, tables, plots, and the script for all."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark as script  # noqa: E402
from bench import finer, learning, outside_plot, plots, records, scaling, task_tables  # noqa: E402
from bench.motion import depths  # noqa: E402
from bench.report import report  # noqa: E402
from bench.session import Session, find_sources, make_config  # noqa: E402
from bench.settings import Physics, engine_model  # noqa: E402
from bench.tables import table  # noqa: E402

from envcoder_bench.run.run_files import baseline_sources  # noqa: E402

pytestmark = pytest.mark.slow

QUICK = ["task.env.episodeLength=40"]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def parsed(folder, *words):
    common = ["--task", "Cartpole", "--seeds", "2", "--envs", "8", "--episodes", "4", "--points", "3"]
    where = ["--sim", "mujoco_cpu", "--device", "cpu", "--run", str(folder)]
    return script.build_parser().parse_args(["learning", *common, *where, *map(str, words), *QUICK])


def take(monkeypatch, *seconds):
    """Let iterations take so many seconds, one after the other."""
    own = Session.iterate
    left = iter(seconds)
    monkeypatch.setattr(Session, "iterate", lambda session: own(session) * 0 + next(left))


def test_learning_records_points_and_transfer(tmp_path, monkeypatch):
    take(monkeypatch, 0.0, 3.0, 3.0, 4.0)  # the first one compiles, and is taken back
    *made, human, unshaped = learning.learning(parsed(tmp_path, "--seconds", 10, "--points", 2, "--transfer"))
    assert [(r["candidate"], r["point"], r["iteration"], r["seconds"]) for r in made] == [
        ("human", 1, 2, 6.0), ("unshaped", 1, 2, 6.0), ("human", 2, 3, 10.0), ("unshaped", 2, 3, 10.0),
    ]  # fmt: skip
    what = "Cartpole: human and unshaped, 2 seeds x 8, task.env.episodeLength=40"
    assert {r["what"] for r in made} == {what} and all(r["overrides"] == QUICK for r in made)
    assert len({r["run"] for r in made}) == 1
    for r in made:
        assert r["env_steps"] == r["iteration"] * 8 * 16 and r["policies"] == 4 and r["episodes"] == 4
        assert len(r["fitness"]) == len(r["length"]) == 2 and all(0 <= x <= 1 for x in r["fitness"])
        assert [len(noise) for noise in r["noise"]] == [1, 1] and all(0.5 < x < 2 for (x,) in r["noise"])
    exported = torch.load(tmp_path / "Cartpole_human.pth", weights_only=False)["model"]["a2c_network.sigma"]
    assert [round(exported.exp().item(), 4)] in made[2]["noise"]
    for row, own in zip((human, unshaped), made[2:]):
        assert row["candidate"] == own["candidate"] and row["trained_in"] == "mujoco_cpu"
        assert row["fitness"]["mujoco_cpu"] == own["fitness"]
        assert row["fitness"]["mujoco_warp"] == pytest.approx(own["fitness"], abs=0.1)
    assert {path.name for path in tmp_path.iterdir()} == {"Cartpole_human.pth", "Cartpole_unshaped.pth"}


def finer_of(folder, *words):
    common = ["--task", "Cartpole", "--policy", str(folder / "Cartpole_unshaped.pth"), "--candidate", "unshaped"]
    where = ["--episodes", "4", "--sim", "mujoco_cpu", "--device", "cpu", *QUICK]
    return list(finer.finer(script.build_parser().parse_args(["finer", *common, *words, *where])))


def test_saved_policy_is_evaluated_with_finer_steps(tmp_path):
    """With the steps of its training, the fitness equals that of the last evaluation."""
    *_, last = learning.learning(parsed(tmp_path, "--seconds", 1e-6, "--seeds", 1))
    made = finer_of(tmp_path, "--substeps", "2", "6")
    assert last["candidate"] == "unshaped" and sum(made[0]["fitness"]) / 4 == pytest.approx(last["fitness"][0])
    assert [r["physics_step_ms"] for r in made] == pytest.approx([8.3, 16.6 / 6]) and made[0]["substeps"] == 2
    assert made[0]["fitness"] != made[1]["fitness"] or made[0]["length"] == 39
    row = table("finer", task_tables.finer_rows(made))[2]
    assert row.startswith("| Cartpole, unshaped | MuJoCo | ") and "(implicitfast 8.3 ms), " in row
    assert row.endswith("| 4 |")
    made = finer_of(tmp_path, "--physics", "own", "discrete:1:4", "--policy", str(tmp_path / "Cartpole_unshaped.pth"))
    settings = [(r["integrator"], r["iterations"], r["substeps"]) for r in made]
    assert settings == [("implicitfast", 10, 2), ("discrete", 4, 1)]
    made = finer_of(tmp_path)
    assert [r["substeps"] for r in made] == [2, 4, 8, 16] and made[0]["motion"][0]["unstable_steps"] == 0


def test_trained_policies_are_evaluated_with_other_physics(tmp_path):
    """Including settings that differ from the training; seeds are separate, and their motion is recorded."""
    args = parsed(tmp_path, "--candidates", "human", "--physics", "own", "discrete:1", "--seconds", 1e-6)
    args.overrides.append("task.sim.mujoco.integrator=Euler")
    point, own, other = learning.learning(args)
    assert own["fitness"] == pytest.approx(point["fitness"]) and own["seeds"] == 2 and len(own["motion"]) == 2
    assert (own["integrator"], other["integrator"], other["substeps"]) == ("Euler", "discrete", 1)
    assert own["trained_with"] == other["trained_with"] == [*QUICK, "task.sim.mujoco.integrator=Euler"]
    speed = own["motion"][0]["joint_speed"]
    assert 0 < speed["mean"] <= speed["p99"] <= speed["max"] <= own["motion"][0]["fastest_joint"]
    (row,) = task_tables.finer_rows([own, other])
    text = table("finer", [row])[2]
    assert "integrator=Euler | MuJoCo | " in text and "(discrete 16.6 ms), " in text and text.endswith("| 2 x 4 |")


def test_penetration_depths_match_the_pose():
    args = Namespace(task="Ant", sim="mujoco_cpu", device="cpu", overrides=[])
    model = engine_model(make_config(args).task)
    pose = model.qpos0.copy()
    pose[2] = 10.0
    high = depths(model, np.array([pose]))
    pose[2] = radius = 0.25 - 0.01  # the torso is a ball of 25 cm
    assert high == [0.0] and depths(model, np.array([pose]))[0] >= 0.25 - radius - 1e-9


@pytest.mark.parametrize("word", ["discrete", "discrete:0", "disc:2", "discrete:2:3:4", "discrete:x", ""])
def test_invalid_physics_setting_is_refused(word, capsys):
    with pytest.raises(SystemExit):
        script.build_parser().parse_args(["physics", "--physics", word])
    assert "write own, or INTEGRATOR:STEPS[:ITERATIONS]" in capsys.readouterr().err


def session(seeds=1):
    args = Namespace(task="Cartpole", sim="mujoco_cpu", device="cpu", overrides=QUICK)
    return Session.build(args, baseline_sources("Cartpole"), 8, seeds)


def test_warm_up_does_not_change_training():
    torch.set_num_threads(1)
    cold, warm = session(), session()
    learning.warm_up(warm)
    for each in (cold, warm):
        for _ in range(2):
            each.iterate()
    one, two = (each.trainer.state()["learners"] for each in (cold, warm))
    assert all(torch.equal(a["params"], b["params"]) for a, b in zip(one, two))
    assert cold.env.step_count == warm.env.step_count == 32


def test_failing_policy_is_omitted_and_others_continue(capsys):
    own = session(seeds=2)
    evaluation = learning._evaluation(own.cfg, own.groups, 4)
    evaluation.dispatch.fail(1, RuntimeError("mine.py:3: out of luck"))
    learning._end_failed(own, evaluation)
    learning._end_failed(own, evaluation)
    assert own.env.alive == [True, False, True, True]
    assert capsys.readouterr().err == "human (seed 1) failed: mine.py:3: out of luck\n"
    values = torch.arange(8.0).view(4, 2)
    assert learning._by_seed(own, "human", values) == [0.5, None]
    assert learning._by_seed(own, "unshaped", values) == [4.5, 6.5]


@pytest.mark.parametrize("task", ["Ant", "Cartpole"])  # torques of robots, with and without a free base
def test_physics_is_measured_for_other_tasks(task):
    args = Namespace(tasks=[task], envs=[4], sim="mujoco_cpu", device="cpu", overrides=[], physics=None)
    (row,) = scaling.physics(args)
    assert row["physics"] > 0 and (row["task"], row["sim"], row["envs"]) == (task, "mujoco_cpu", 4)
    other = Namespace(**{**vars(args), "physics": [Physics("discrete", 1)]})
    (changed,) = scaling.physics(other)
    assert (changed["integrator"], changed["substeps"]) == ("discrete", 1)
    assert len(task_tables.physics_rows([row, changed])) == 2


# tables and pictures


def point(task, candidate, k, fitness, run="2026-01-02 03:04:05", together="human and unshaped", **more):
    about = {
        "label": "box",
        "machine": "a box",
        "date": "2026-01-02 03:04",
        "command": f"train {task}",
        "device": "cuda",
    }
    own = {"kind": "learning", "what": f"{task}: {together}", "run": run, "task": task, "candidate": candidate}
    size = {"envs": 8, "seeds": len(fitness), "policies": 4, "episodes": 4, "iteration": k, "env_steps": k * 10**6}
    return {**own, **size, "point": k, "seconds": 10.0 * k, "fitness": fitness, "length": fitness, **about, **more}


def ant(run="2026-01-02 03:04:05", best=6.0, **more):
    human = [point("Ant", "human", k, [x - 0.5, x + 0.5], run, **more) for k, x in ((1, 2.0), (2, 5.0), (3, best))]
    return human + [point("Ant", "unshaped", k, [1.0, 1.5], run, **more) for k in (1, 2, 3)]


def test_latest_training_is_reported_with_all_its_parts():
    before = "2026-01-01 00:00:00"
    old = [*ant(before, 9.0), point("Ant", "human", 4, [9.0, 9.0], before)]
    parts = ant()
    parts[2]["command"] = "train Ant --resume"
    human, unshaped = task_tables.learning_rows(parts[:2] + old + parts[2:])
    assert (human["point"], human["fitness"], human["command"]) == (3, [5.5, 6.5], "train Ant\n    train Ant --resume")
    assert unshaped["fitness"] == [1.0, 1.5]
    lines = table("learning", [human, unshaped])
    assert lines[2].endswith("| 30 s | 3.0 M | 6.00 ± 6.35 | 5 within 60 s: after 20 s, 2.0 M |")  # t(1) = 12.7
    assert lines[3].endswith("| 1.25 ± 3.18 |  |")


def test_failed_seeds_are_counted_separately():
    assert task_tables.interval([1.0, None, 1.0]) == "1.00 ± 0.00 (1 failed)"
    assert task_tables.interval([None, None]) == "failed" and task_tables.interval([0.5]) == "0.50"
    (row,) = task_tables.learning_rows([point("Ant", "human", 1, [None, None])])
    assert row["reached"] is None and "failed" in table("learning", [row])[2]


def test_gap_is_that_of_the_newest_training_of_both_baselines():
    older, newer = ant("2026-01-02 00:00:00", 9.0), ant("2026-01-03 00:00:00", label="H100 80GB HBM3")
    assert [r["fitness"] for r in task_tables.gap_rows(older)] == [[8.5, 9.5]]
    for rows in (older + newer, newer + older):  # also on another card
        (row,) = task_tables.gap_rows(rows)
        assert row["fitness"] == [5.5, 6.5] and row["unshaped"]["fitness"] == [1.0, 1.5]
    alone = [point("Ant", "human", 1, [9.0, 9.0], "2026-01-04 00:00:00", "human")]  # without the other
    assert task_tables.gap_rows(newer + alone)[0]["fitness"] == [5.5, 6.5] and task_tables.gap_rows(alone) == []
    few = [point("Ant", name, 1, [9.0], "2026-01-04 00:00:00") for name in ("human", "unshaped")]  # with fewer seeds
    assert task_tables.gap_rows(newer + few)[0]["fitness"] == [5.5, 6.5]


def test_gap_compares_after_equal_env_steps():
    longer = [point("Ant", "unshaped", k, [float(k)] * 3) for k in (1, 2, 3)]
    (row,) = task_tables.gap_rows([*longer, point("Ant", "human", 1, [0.5] * 3)])
    assert table("gap", [row])[2].startswith(
        "| Ant | forward speed, m/s | **1.00 ± 0.00** |  | 0.50 ± 0.00 | 3 x 1.0 M |"
    )


def test_training_with_changed_settings_does_not_replace_a_baseline():
    changed = ant("2026-01-03 00:00:00", 9.0, overrides=["train.params.config.gamma=0.9"])
    changed = [{**r, "what": r["what"] + ", train.params.config.gamma=0.9"} for r in changed]
    rows = task_tables.learning_rows(ant() + changed)
    assert [task_tables.name(r) for r in rows] == ["human", "unshaped", "human, gamma=0.9", "unshaped, gamma=0.9"]
    lines = table("learning", rows)
    assert "after 20 s" in lines[2] and lines[4].startswith("| Ant, human, gamma=0.9 |") and lines[4].endswith("|  |")
    longer = [{**changed[k], "point": 4, "env_steps": 4 * 10**6, "fitness": [9.0, 9.0]} for k in (0, 3)]
    (row,) = task_tables.gap_rows([*ant(), *changed, *longer])  # which would else be taken as the longest
    assert row["fitness"] == [5.5, 6.5] and row["unshaped"]["fitness"] == [1.0, 1.5]
    moved = {"kind": "transfer", "candidate": "human", "task": "Ant", "seeds": 2, "label": "box"}
    rows = task_tables.transfer_rows([{**moved, "fitness": 1}, {**moved, "fitness": 2, "overrides": ["a=1"]}])
    assert [r["fitness"] for r in rows] == [1]


def test_values_whose_intervals_meet_are_not_bold():
    records = [point("Cartpole", "human", 1, [0.9999] * 3), point("Cartpole", "unshaped", 1, [1.0] * 3)]
    (row,) = task_tables.gap_rows(records)
    wanted = "| Cartpole | fraction of time upright | 1.00 ± 0.00 |  | 1.00 ± 0.00 | 3 x 1.0 M |"
    assert table("gap", [row])[2].startswith(wanted)
    (row,) = task_tables.gap_rows(ant())  # 6 and 1.25, with two seeds each
    assert "**" not in table("gap", [row])[2]


def test_gap_is_that_of_the_study_also_if_it_was_stopped():
    study = {"kind": "lengths", "task": "Ant", "complete": False, "seeds": 2, "label": "H200"}
    study.update(
        machine="H200, 16 CPU cores, MuJoCo Warp 4.0.0", date="2026-02-01 02:03", command="study", device="cuda"
    )
    fitness = {"human": [7.0, 7.0], "unshaped": [8.0, 8.0], "no_reward": [3.0, 3.0]}
    long = [{**study, "iteration": k, "env_steps": k * 10**7, "fitness": fitness} for k in (1, 2)]
    (row,) = task_tables.gap_rows([*ant(), *task_tables.lengths_as_learning([*long, {"kind": "ranks"}])])
    wanted = "| Ant | forward speed, m/s | **8.00 ± 0.00** | 3.00 ± 0.00 | 7.00 ± 0.00 | 2 x 20.0 M |"
    assert table("gap", [row])[2] == f"{wanted} H200, MuJoCo Warp 4.0.0, 2026-02-01 |"


def test_candidate_files_are_trained_like_baselines(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("def compute_reward(pole_angle):\n    return -pole_angle.abs()\n")
    found = find_sources("Cartpole", ["human", str(own)])
    assert [(x.name, x.source == own.read_text()) for x in found] == [("human", False), ("mine", True)]
    with pytest.raises(SystemExit, match="--candidates humann: there is no such file, and the baselines are human"):
        find_sources("Cartpole", ["humann"])


def test_outside_task_is_compared_with_the_native_one_at_equal_env_steps(tmp_path):
    address = "isaacgymenvs:Ant"
    outside = [point(address, "human", k, [x, x + 1.0], together="human") for k, x in ((1, 1.0), (2, 4.0), (4, 7.0))]
    (row,) = task_tables.outside_rows([*ant(), *outside])
    wanted = "| isaacgymenvs:Ant, human | 2 x 8 | 40 s | 4.0 M | 7.50 ± 6.35 | 6.8 | 4.50 ± 6.35 (2.0 M), native"
    assert table("outside", [row])[2] == wanted + " 5.00 ± 6.35 (2.0 M) |"
    assert outside_plot.plot_outside(ant(), tmp_path) == []
    for record in (*ant(), *outside):
        records.append(tmp_path / "all.jsonl", record)
    page = tmp_path / "page.md"
    page.write_text("<!-- learning cuda -->\n<!-- end -->\n<!-- curves cuda -->\n<!-- end -->\n")
    made = report(tmp_path / "all.jsonl", [page], tmp_path)
    assert "isaacgymenvs" not in page.read_text()  # the pages of the native tasks are without it
    assert {path.name for path in made} == {"page.md", "ant_training.png", "isaacgym_training.png"}
    longer = [{**outside[0], "seeds": 3, "run": "2030"}, {**outside[1], "run": "2029"}]
    other = [{**outside[2], "overrides": ["task.env.length=9"], "what": "other"}]
    panels = outside_plot._by_title(task_tables.curves([*outside, *longer, *other]))
    assert list(panels) == [address, f"{address}, length=9"]  # runs of other numbers of seeds share a panel
    assert sorted((points[0]["seeds"], points[0]["run"]) for points in panels[address])[-1] == (3, "2030")


def test_curves_have_distinct_styles_and_fit_the_limits():
    alone = [point("Ant", "human", 1, [2.0, 3.0], together="human", policies=2)]
    other = [point("Ant", name, 1, [0.1, 0.2], together=name) for name in ("a", "b")]
    own = task_tables.curves(ant() + alone + other)
    looks = plots._looks(own)
    assert len({(look["color"], look["linestyle"]) for look in looks}) == len({look["label"] for look in looks}) == 5
    low, high = plots._limits(own, 5.0)
    assert low < 0.0 and high > 6.0  # the best mean
    failed = [[point("Ant", "human", 1, [None, None])], [point("Ant", "unshaped", 1, [0.0, 0.0])]]
    low, high = plots._limits(failed, None)
    assert low < 0.0 < high < 10.0


def test_report_writes_all_pages_and_pictures(tmp_path):
    rows = [*ant(), *ant(label="small", device="cpu"), *(point("Cartpole", "human", k, [0.1 * k]) for k in (1, 2))]
    moved = {
        "kind": "transfer",
        "trained_in": "mujoco_warp",
        "episodes": 4,
        "candidate": "human",
        "task": "Ant",
        "seeds": 2,
    }
    rows.append({**rows[0], **moved, "fitness": {"mujoco_warp": [5.0, 6.0], "mujoco_cpu": [5.25, None]}})
    for row in rows:
        records.append(tmp_path / "records.jsonl", row)
    pages = [tmp_path / "one.md", tmp_path / "two.md"]
    pages[0].write_text("".join(f"<!-- {k} cuda -->\n<!-- end -->\n" for k in ("learning", "transfer", "curves")))
    pages[1].write_text("<!-- gap any -->\n<!-- end -->\nend\n")
    written = report(tmp_path / "records.jsonl", pages, tmp_path)
    pictures = [tmp_path / "cartpole_training.png", tmp_path / "ant_training.png"]
    assert written == [*pages, *pictures] and all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    text = pages[0].read_text()
    assert "    train Ant\n" in text and text.index("| Cartpole, human |") < text.index("| Ant, human |")
    assert "| Ant, human | MuJoCo Warp | 5.50 ± 6.35 | 5.25 (1 failed) | -0.25 (1 failed) | 2 x 4 |" in text
    assert text.index("cartpole_training.png") < text.index("](images/ant_training.png)")
    assert pages[1].read_text().count("\n| Ant |") == 1 and "train" not in pages[1].read_text()


def test_measuring_script_continues_after_failures(tmp_path):
    """The measuring program is replaced by one that records its arguments and fails."""
    fake, log = tmp_path / "python", tmp_path / "log"
    fake.write_text('#!/usr/bin/env bash\necho "$*" >> "$LOG"\nexit 1\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", str(SCRIPTS / "gpu_measure.sh"), str(tmp_path / "out"), "speed", "tasks", "run"],
        env={"PATH": os.environ["PATH"], "PYTHON": str(fake), "LOG": str(log)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert len(lines) == 28 and all(line.endswith(f"--out {tmp_path}/out/records.jsonl") for line in lines)
    assert any(line.startswith("scripts/benchmark.py scaling --candidates 250 --envs 256 --dispatch") for line in lines)
    for line in lines:  # the program takes what it is given
        script.build_parser().parse_args(line.split()[1:])
