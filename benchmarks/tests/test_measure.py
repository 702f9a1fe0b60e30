"""Every measurement, tiny, on the CPU through the command line; and the pages as they are."""

import json
import re
import sys
from argparse import Namespace
from dataclasses import replace

import measure
import pytest
import torch
from bench import records
from bench.session import Session
from helpers import ANYMAL_QUICK as QUICK
from measurements import learning, searches
from measurements.devices import _Progress
from pages import render

from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.workers.devices import Devices
from envcoder_bench.run.workers.ray_cluster import ray_started
from envcoder_bench.sources.registry import find_spec

PAGES = sorted((measure.ROOT / "benchmarks").glob("*.md"))


@pytest.fixture
def benchmark(tmp_path, monkeypatch, capsys):
    """Runs the command line; returns its records and what it printed."""

    def run(*words, more=QUICK):
        out = tmp_path / "records.jsonl"
        argv = [measure.__file__, *map(str, words), "--out", str(out), *more]
        monkeypatch.setattr(sys, "argv", argv)
        measure.main()
        printed = capsys.readouterr()
        assert f"python benchmarks/measure.py {words[0]}" in printed.out and "--out" not in printed.out
        made = records.read(out)
        assert all(record["id"] == records.identify({**record})["id"] for record in made)
        return made, printed.out

    return run


def test_mjlab_is_measured_in_turn(benchmark):
    pytest.importorskip("mjlab")
    words = ("--task", "Mjlab-Cartpole-Balance", "--envs", 2, "--steps", 2, "--rounds", 1)
    (row,), _ = benchmark("mjlab", *words, more=["--device", "cpu"])
    assert min(row["ours"], row["mjlab"], row["physics"]) > 0


def test_mjlab_learning_has_both_sides_at_every_point(benchmark, monkeypatch):
    pytest.importorskip("mjlab")
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # mjlab sets it
    size = ("--envs", 4, "--seeds", 2, "--iterations", 2, "--points", 2, "--episodes", 2)
    rows, printed = benchmark("mjlab_learning", "--task", "Mjlab-Cartpole-Balance", *size, more=["--device", "cpu"])
    assert [row["side"] for row in rows] == ["ours", "mjlab"] and "mjlab's runner" in printed
    for row in rows:
        assert row["env_steps"] == [128, 256]
        assert all(len(seeds) == 2 for what in ("reward", "fitness") for seeds in row[what]), row["side"]


def test_learner_measures_batched_and_loop(benchmark):
    words = ["--candidates", 3, "--envs", 8, "--iterations", 1, "--warmup", 1, "--loop_candidates", 2]
    (row,), printed = benchmark("learner", *words)
    assert row["batched_s"] > 0 and row["loop_s"] > 0 and row["loop_candidates"] == 2 and "2 candidates" in printed


def test_devices_are_compared_with_the_first(benchmark):
    words = ["--candidates", 2, "--envs", 4, "--iterations", 60, "--devices", "cpu:1", "cpu:1"]
    with ray_started(Devices("cpu", 1)):  # once for both
        rows, _ = benchmark("devices", *words)
    assert [row["count"] for row in rows] == [1, 1] and rows[1]["equal_policies"] == 2  # bitwise on a CPU
    assert rows[1]["fitness_difference"] == 0.0 and all(row["training"] > 0 for row in rows)


def test_speed_of_several_devices_is_that_while_all_of_them_train():
    watch = _Progress()  # two devices of an iteration and 100 env-steps/s each; the second begins after 10 s
    watch.seen = [(float(t), t + max(0, t - 10), 100 * (t + max(0, t - 10))) for t in range(1, 31)]
    watch.seen += [(40.0, 50, 5000)]  # a last evaluation
    assert watch.rate() == 200.0


def test_campaigns_have_a_row_for_each_design_and_gain(benchmark, monkeypatch):
    from measurements import campaigns

    monkeypatch.setattr(campaigns, "DESIGNS", ["normal within bounds"])
    monkeypatch.setattr(campaigns, "GAINS", [("normal within bounds", 0.4)])
    (equal, gain), printed = benchmark("campaigns", "--runs", 2, more=[])
    assert {*equal["better"].values()} == {0.0} and gain["told"]["ranks the best six again"] == 1.0
    assert "an agent that ranks the best six again" in printed


def test_designs_have_a_row_each_with_their_sizes(benchmark, monkeypatch):
    from measurements import certainty

    for name, small in (
        ("EQUAL_SIZES", [(1, 2), (3, 3)]), ("DIFFERENT_SIZES", {(3, 2): 1.0}), ("EXTENDED", ("normal",)),
        ("RECORDED", certainty.RECORDED[:1]),
    ):  # fmt: skip
        monkeypatch.setattr(certainty, name, small)
    made, printed = benchmark("designs", "--runs", 2, more=[])
    kinds = [row["kind"] for row in made]
    designs = [len(certainty.EQUAL), len(certainty.DIFFERENT)]
    assert [kinds.count(kind) for kind in dict.fromkeys(kinds)] == [*designs, 2, 1] and len(made[0]["cells"]) == 2
    assert "| plateaus, blind | 2, 2 |" in printed and "| Anymal, ranks-c93dc8b7 | 12 x 3 |" in printed


def test_learning_records_points(benchmark, monkeypatch):
    own, left = Session.iterate, iter((0.0, 3.0, 3.0, 4.0))  # the first one compiles, and is taken back
    monkeypatch.setattr(Session, "iterate", lambda session: own(session) * 0 + next(left))
    words = ["--task", "Cartpole", "--seeds", 2, "--envs", 8, "--episodes", 4, "--points", 2, "--seconds", 10]
    made, _ = benchmark("learning", *words, more=[*QUICK[:4], "task.env.episodeLength=40"])
    assert [(r["candidate"], r["point"], r["iteration"], r["seconds"]) for r in made] == [
        ("human", 1, 2, 6.0), ("unshaped", 1, 2, 6.0), ("human", 2, 3, 10.0), ("unshaped", 2, 3, 10.0),
    ]  # fmt: skip
    for r in made:
        assert r["env_steps"] == r["iteration"] * 8 * 16 and r["policies"] == 4 and r["episodes"] == 4
        assert len(r["fitness"]) == len(r["length"]) == 2 and all(0 <= x <= 1 for x in r["fitness"])


TWO_TERMS = """def compute_reward(pole_angle, pole_vel):
    terms = {"up": 0.5 * torch.cos(pole_angle), "calm": -0.1 * torch.abs(pole_vel)}
    return terms["up"] + terms["calm"], terms
"""


def test_searches_differ_in_variants_alone_and_resume(benchmark, tmp_path, monkeypatch):
    own = searches.EvolveProposer.propose

    def propose(proposer, archive, round, count):
        broken, *others = reversed(own(proposer, archive, round, count))
        return [*others, replace(broken, source="def compute_reward(:\n")]

    monkeypatch.setattr(searches.EvolveProposer, "propose", propose)
    monkeypatch.setattr(searches, "RUNS", tmp_path)
    (tmp_path / "start.py").write_text(TWO_TERMS)
    size = ("--searches", 2, "--rounds", 2, "--candidates", 4, "--term_variants", 2, "--envs", 8, "--iterations", 2)
    words = ("--task", "Cartpole", "--start", tmp_path / "start.py", *size, "--held_out", 2)
    quick = [*QUICK[:-1], "task.env.episodeLength=40"]
    rows, printed = benchmark("searches", *words, more=quick)
    one, two, end = rows
    assert one["with"] == one["without"] and one["variants"] == {"with": [0, 0], "without": [0, 0]}
    assert two["variants"] == {"with": [2, 2], "without": [0, 0]}
    assert two["failed"] == {"with": [2, 2], "without": [2, 2]}  # one in each round
    assert all(len(seeds) == 2 for seeds in [*end["with"], *end["without"], end["of_start"], end["of_human"]])
    assert "Cartpole, start | 2 x 2 x 4 | held-out seeds" in printed
    # the runs are read
    monkeypatch.setattr(searches, "evaluate", None)
    again = benchmark("searches", *words, more=quick)[0][3:]
    assert [{**row, "id": "", "date": ""} for row in again] == [{**row, "id": "", "date": ""} for row in rows]


def test_pairs_without_a_fitness_have_no_difference():
    row = {"with": [[0.5, 0.75], [], [0.25]], "without": [[0.5], [0.125], [0.5, 0.25]]}
    assert searches.differences(row) == [0.125, None, -0.125]


def session(seeds=1):
    overrides = ["task.env.episodeLength=40"]
    args = Namespace(task="Cartpole", sim="mujoco_cpu", device="cpu", overrides=overrides)
    return Session.build(args, baseline_sources(find_spec("Cartpole")), 8, seeds)


def test_warm_up_does_not_change_training():
    cold, warm = session(), session()
    learning.warm_up(warm)
    for each in (cold, warm):
        for _ in range(2):
            each.iterate()
    one, two = (each.trainer.get_state()["learners"] for each in (cold, warm))
    assert all(torch.equal(a["params"], b["params"]) for a, b in zip(one, two))
    assert cold.env.step_count == warm.env.step_count == 32


def test_failing_policy_is_omitted_and_others_continue(capsys):
    own = session(seeds=2)
    evaluation = learning.make_evaluation(own.spec, own.groups, 4)
    evaluation.dispatch.fail(1, RuntimeError("mine.py:3: out of luck"))
    learning._end_failed(own, evaluation)
    learning._end_failed(own, evaluation)
    assert own.env.alive == [True, False, True, True]
    assert capsys.readouterr().err == "human (seed 1) failed: mine.py:3: out of luck\n"
    values = torch.arange(8.0).view(4, 2)
    assert learning._by_seed(own, "human", values) == [0.5, None]


def test_bad_input_ends_with_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["measure.py", "learning", "--task", "Antt"])
    with pytest.raises(SystemExit, match="2"):
        measure.main()
    assert "measure: error: unknown task 'Antt'" in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_pages_are_accepted(page):
    parser = measure.benchmark.build_parser("", measure.MEASUREMENTS)
    for words in re.findall(r"^ +python benchmarks/measure\.py (?!report)(.*)$", page.read_text("utf-8"), re.MULTILINE):
        measure.benchmark.parse(parser, words.split("  ")[0].split())


def test_report_is_repeatable(tmp_path):
    for name in render.FILES:
        (tmp_path / name).write_text((measure.ROOT / "benchmarks" / name).read_text("utf-8"), "utf-8")
    page = tmp_path / "page.md"
    page.write_text("<!-- scaling any -->\nold\n<!-- end -->\n<!-- study ranks -->\n<!-- end -->\n", "utf-8")
    written = render.report(tmp_path, page)
    text = page.read_text("utf-8")
    assert "old" not in text and "| 250 x 256 |" in text and "Ant, 100 candidates; the reference" in text
    pictures = [path for path in written if path.suffix == ".png"]
    assert len(pictures) >= 9 and all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    render.report(tmp_path, page)
    assert page.read_text("utf-8") == text


def test_unreadable_record_is_reported(tmp_path):
    (tmp_path / "records.jsonl").write_text(json.dumps({"kind": "x"}) + '\n{"kind":\n')
    with pytest.raises(records.UserError, match=r"records.jsonl:2: this is not a record"):
        records.read(tmp_path / "records.jsonl")
