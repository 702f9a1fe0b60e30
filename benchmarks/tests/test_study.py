"""The studies: the variants of shaping, the numbers by hand, and small parts of it from the command line."""

import contextlib
import math
import re
import sys
from argparse import Namespace

import pytest
import study as script
from bench import records
from pages import study_tables
from studies import analysis, bank, components, quarters, ranks, training
from studies.components import COMPONENTS, variants

from envcoder_bench import evaluate
from envcoder_bench.run.hooks import Reporter
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.shaping.source import shaping_source
from envcoder_bench.sources.registry import find_spec, task_names


def part(text, types):
    return shaping_source(text, types).fingerprint()


@pytest.mark.parametrize("task", task_names())
def test_variant_differs_from_the_human_baseline_only_in_its_component(task):
    human = find_spec(task).baseline_path("human").read_text("utf-8")
    found = variants(task)
    for name, types in COMPONENTS.items():
        text = found[f"no_{name}"]
        if text is None:
            continue
        others = [kind for kind in SHAPER_TYPES if kind not in types]
        own, before = (shaping_source(each, others).shapers(others) for each in (text, human))
        assert own == before and all(part(text, [kind]) == part(human, [kind]) for kind in own), name
        assert part(text, types) != part(human, types) or name == "action"
    assert {f"no_{name}" for name in COMPONENTS} | {components.NOTHING} == set(found)


def test_nothing_variant_has_sparse_reward_and_raw_torques():
    text = variants("Anymal")["nothing"]
    unshaped = find_spec("Anymal").baseline_path("unshaped").read_text("utf-8")
    for kind in ("compute_reward", "compute_observation", "compute_terminal", "compute_initial_state", "compute_goal"):
        assert part(text, [kind]) == part(unshaped, [kind])
    assert "80.0 * action" in text and "compute_dof_target" not in text
    sparse = find_spec("Humanoid").baseline_path("sparse").read_text("utf-8")
    assert part(variants("Humanoid")["no_reward"], ["compute_reward"]) == part(sparse, ["compute_reward"])


def test_component_equal_to_the_task_is_no_variant():
    assert variants("Anymal")["no_goal"] is None  # the same commands
    assert variants("Humanoid")["no_action"] is None  # raw torques
    assert variants("AllegroHand")["no_initial_state"] is None


def test_generated_candidates_are_distinct_and_reproducible():
    made = ranks.generated("Ant", 12)
    assert len(made) == 12 == len({shaping_source(text, SHAPER_TYPES).fingerprint() for text in made.values()})
    assert made == ranks.generated("Ant", 12)
    assert list(ranks.generated("Anymal", 3)) == list(ranks.generated("Anymal", 5))[:3]


def ranked(role="cheap", **fitness):
    seeds = len(next(iter(fitness.values())))
    own = {"kind": "ranks", "task": "Anymal", "role": role, "envs": 64, "iteration": 10, "iterations": 10}
    return {**own, "seeds": seeds, "env_steps": 1000, "complete": True, "candidates": 3, "fitness": fitness}


def test_agreement_is_the_mean_over_all_choices_of_seeds():
    cheap = ranked(a=[3.0, 1.0], b=[2.0, 2.0], c=[1.0, 3.0], human=[9.0, 9.0])
    reference = ranked("reference", a=[0.9], b=[0.5], c=[0.1], human=[0.0])
    one = analysis.agreement(cheap, reference, 1)
    assert (one.spearman, one.tops[1], one.candidates) == (0.0, 0.5, 3)  # +1 and -1
    both = analysis.agreement(cheap, reference, 2)
    assert math.isnan(both.spearman) and both.tops == {1: 1.0, 5: 1.0, 10: 1.0} and both.env_steps == 2000
    assert one.worth == pytest.approx({1: (0.9 + 0.1) / 2, 5: 0.9, 10: 0.9})
    assert analysis.agreement(ranked(a=[3.0], b=[2.0], c=[None]), reference, 1).candidates == 2


def test_the_reference_itself_is_compared_with_its_other_seeds():
    reference = ranked("reference", a=[10.0, 3.0], b=[20.0, 2.0], c=[30.0, 1.0])
    one = analysis.agreement(reference, reference, 1)
    assert one.spearman == pytest.approx(-1.0)  # 0 with itself among them
    assert one.worth[1] == (1.0 + 10.0) / 2


def test_cheapest_setting_has_the_fewest_env_steps_of_those_that_agree():
    def setting(spearman, env_steps):
        return analysis.Agreement(64, 10, 1, spearman, {}, {}, 3, env_steps)

    found = [setting(0.5, 1), setting(0.95, 30), setting(0.91, 20), setting(math.nan, 5)]
    assert analysis.cheapest(found) == found[2]
    assert analysis.cheapest(found[:1]) is None


def test_lengths_are_judged_by_their_last_quarter_and_by_the_longest_comparable_training():
    orders = {3: [1.0, 2.0, 3.0], 4: [1.0, 2.0, 3.0], 8: [3.0, 2.0, 1.0], 9: [1.0, 2.0, 3.0], 12: [3.0, 2.0, 1.0]}
    points = [{**ranked(**{name: [x] for name, x in zip("abc", order)}), "iteration": k} for k, order in orders.items()]

    def judged():
        return [(x.iteration, x.agreement, x.truth) for x in analysis.judged_lengths(points)]

    assert judged() == [(4, 1.0, -1.0)]  # the others are longer than half of the longest
    points[-1]["settings"] = {"evaluation.point_steps": 300}  # the last evaluation has longer episodes
    assert judged() == [(4, 1.0, 1.0)]


def test_weighted_candidates_pay_the_terms_of_human_with_other_weights():
    made = quarters.weighted("Anymal", 4)
    assert len(set(made.values())) == 4 and made == quarters.weighted("Anymal", 4)
    weights = dict(re.findall(r"'(\w+)': ([\d.]+)", made["w00"]))
    assert set(weights) == {"lin_vel_xy", "ang_vel_z", "torque"}
    parts = {"lin_vel_xy": 2.0, "ang_vel_z": 3.0, "torque": 5.0}
    scope = {"human_reward": lambda _: (10.0, parts)}
    exec(made["w00"].split("compute_observation", 1)[1].split("\n\n\n")[-1], scope)
    assert scope["compute_reward"]({})[0] == 10.0 + sum((float(w) - 1.0) * parts[name] for name, w in weights.items())


def test_reliability_is_the_correlation_between_seeds():
    assert analysis.reliability(ranked(a=[1.0, 3.0], b=[2.0, 2.0], c=[3.0, 1.0])) == pytest.approx(-1.0)
    assert math.isnan(analysis.reliability(ranked(a=[1.0], b=[2.0])))


def test_shares_are_paired_by_seed():
    last = {"fitness": {"human": [1.0, 2.0, 4.0], "half": [0.5, None, 2.0], "failed": [None, None, None]}}
    assert analysis.shares(last) == {"human": 1.0, "half": 0.5}
    assert math.isnan(analysis.shares({"fitness": {"human": [0.0], "a": [1.0]}})["a"])


def test_complete_training_replaces_a_stopped_one():
    cut = {**ranked(a=[1.0]), "complete": False}
    whole = [{**ranked(a=[2.0]), "iteration": k, "date": "2026-01-01"} for k in (10, 5)]
    assert analysis.trainings([cut], "ranks") == [[cut]]
    assert analysis.trainings([*whole, {**cut, "iteration": 10}], "ranks")[0] == [whole[1], whole[0]]


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["study.py", "..."])
    return ["--out", str(tmp_path / "study.jsonl"), "--work", str(tmp_path / "runs"), "--device", "cpu"]


SMALL = ["--tasks", "Cartpole", "--envs", "8", "--episodes", "4", "evaluation.num_envs=4"]


def test_stopped_part_resumes_and_recorded_part_is_not_repeated(where, tmp_path, capsys, monkeypatch):
    words = ["components", *where, *SMALL, "--iterations", "60", "--seeds", "2", "--points", "3"]

    class After30(Reporter):
        def __init__(self, stop):
            self.stop = stop

        def iteration_done(self, iteration, env_steps, best):
            if iteration == 30:
                self.stop("test")

    def stopped(*args, stop, **more):
        return evaluate(*args, reporter=After30(stop), stop=stop, **more)

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate", stopped)
        assert script.main(words) == script.STOPPED
    (partial,) = records.read(tmp_path / "study.jsonl.partial")
    assert partial["iteration"] == 20 and not partial["complete"] and not (tmp_path / "study.jsonl").exists()
    assert script.main(words) == 0
    made = records.read(tmp_path / "study.jsonl")
    assert [r["iteration"] for r in made] == [20, 40, 60] and all(r["complete"] for r in made)
    assert made[0]["fitness"] == partial["fitness"] and set(made[0]["fitness"]) >= {"human", "no_reward", "nothing"}
    assert not (tmp_path / "study.jsonl.partial").exists()
    capsys.readouterr()
    assert script.main(words) == 0 and capsys.readouterr().out == ""
    assert records.read(tmp_path / "study.jsonl") == made


def test_training_with_other_settings_or_candidates_is_not_reused(tmp_path, monkeypatch):
    args = Namespace(out=tmp_path / "study.jsonl", work=tmp_path, limit=0, sim="auto", device="cpu", devices=None)
    args.overrides = []
    trained = []

    def stop(*words, **more):
        trained.append(more["output_dir"].name)
        raise RuntimeError

    monkeypatch.setattr(training, "evaluate", stop)

    def train(texts, points):
        study = training.Study(args)
        with contextlib.suppress(RuntimeError):
            return study.train({"kind": "x", "task": "Cartpole", "envs": 4}, texts, 2, **{"evaluation.points": points})

    train({"a": "x = 1"}, 2), train({"a": "x = 1"}, 3), train({"a": "x = 2"}, 2)
    assert len(set(trained)) == 3
    about = {"kind": "x", "task": "Cartpole", "envs": 4, "seeds": 2, "first_seed": 0, "overrides": []}
    sources = training.digest([["a", "x = 1"]])
    records.append(args.out, {**about, "complete": True, "settings": {"evaluation.points": 2}, "sources": sources})
    train({"a": "x = 1"}, 2)
    assert len(trained) == 3  # the recorded one
    train({"a": "x = 1"}, 3), train({"a": "x = 2"}, 2)
    assert len(trained) == 5
    args.out.unlink()
    records.append(args.out, {**about, "complete": True})  # an older record
    train({"a": "x = 1"}, 2)
    assert len(trained) == 5


def test_bad_input_prints_one_message(where, capsys):
    for words in (["--tasks", "Cartpole", "seeds=2"], ["--tasks", "Cartpole", "device=none"], ["--tasks", "Cartpol"]):
        assert script.main(["components", *where, *words]) == 2
        assert capsys.readouterr().err.startswith("study: error: ")


def test_every_part_gives_a_table(where, tmp_path):
    small = [*where, *SMALL, "--iterations", "4"]
    assert script.main(["components", *small, "--seeds", "2", "--points", "1"]) == 0
    rank = ["--candidates", "4", "--seeds", "2", "--reference_envs", "8", "--reference_seeds", "2"]
    assert script.main(["ranks", *small, *rank]) == 0
    long = ["--iterations", "12", "--points", "12", "--candidates", "4", "--seeds", "1"]
    assert script.main(["quarters", *where, *SMALL, *long]) == 0
    made = records.read(tmp_path / "study.jsonl")
    pair = {"a": [1.0, 2.0], "human": [1.0, 1.0], "unshaped": [0.0, 0.0]}
    made += [of_bank("bank", **pair), of_bank("fresh", **pair)]
    for part in study_tables.STUDIES.values():
        lines = part(made)
        assert any(line.startswith("|---|") for line in lines) and any("Cartpole" in line for line in lines)
        assert part([]) == []


def of_bank(role, **fitness):
    facts = {
        "kind": "bank",
        "task": "CartpoleSwingup",
        "role": role,
        "candidates": 3,
        "envs": 8,
        "iterations": 9,
        "wall_time": 5.0,
    }
    return {**facts, "seeds": 2, "complete": True, "fitness": fitness}


def test_calibration_is_of_the_bank_and_of_fresh_seeds():
    first = of_bank("bank", a=[1.0, 1.0], b=[2.0, 3.0], c=[3.0, 2.0], human=[9.0, 9.0], unshaped=[0.0, 0.0])
    fresh = of_bank("fresh", b=[2.0, 2.2], c=[9.0, None], human=[1.0, 1.4], unshaped=[0.0, 0.1])
    found = analysis.calibration(first, fresh)
    assert (found.agreement, found.best) == (pytest.approx(0.5), "b")  # c failed with a seed
    assert found.above_human == pytest.approx((2.1 - 1.2) / (0.4 / math.sqrt(2)))
    assert found.above_unshaped == pytest.approx((2.1 - 0.05) / (0.2 / math.sqrt(2)))
    (row,) = [line for line in study_tables.bank([first, fresh]) if line.startswith("| CartpoleSwingup")]
    assert "0.50" in row and "2.10 (b)" in row and "10 policies in 5 s" in row
    assert study_tables.bank([first]) == []


def test_the_frozen_bank_is_the_same_each_time():
    for address in ("Ant", "Anymal"):
        made = bank.candidates(address, 3)
        assert made == {**bank.candidates(address, 2), "bank_002": made["bank_002"]} and len(set(made.values())) == 3
    assert '"turn": ' in made["bank_002"] and "human_reward(state_dict)" in made["bank_002"]


@pytest.mark.slow
def test_goals_of_a_run_are_those_of_a_run_that_is_ranked_by_them(tmp_path):
    goal = bank.SCORED["AnymalTurn"].goal
    words = ["num_envs_per_candidate=4", "learning_iterations=1", "seeds=1", "device=cpu", f"fitness='{goal}'"]
    words += [
        "evaluation.points=1",
        "evaluation.num_envs=2",
        "evaluation.final_episodes=2",
        "task.env.learn.episodeLength_s=1.0",
    ]
    words += [f"shaper_types=[{','.join(bank.TRACK)}]"]
    result = training.evaluate("Anymal", bank.candidates("Anymal", 2), overrides=words, output_dir=tmp_path / "run")
    measured = bank.goals_of(result, {"turn": goal}, 2, [0])["turn"]
    assert {name: [pytest.approx(x, abs=2e-5) for x in values] for name, values in measured.items()} == {
        row.candidate: [row.fitness] for row in result.rows if row.candidate in measured
    }
    assert {"human", "bank_000", "bank_001"} <= measured.keys()
