"""scripts/study.py: the variants of shaping, the numbers by hand, and small parts of it from the command line."""

import contextlib
import json
import math
import sys
from argparse import Namespace
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import study as script  # noqa: E402
from bench import records  # noqa: E402
from studies import analysis, components, evolution, ranks, report, training  # noqa: E402
from studies.components import COMPONENTS, variants  # noqa: E402

from envcoder_bench.core.errors import UserError  # noqa: E402
from envcoder_bench.run.config import compose_config  # noqa: E402
from envcoder_bench.run.policies import open_run  # noqa: E402
from envcoder_bench.search.evolve import NEW_TERM  # noqa: E402
from envcoder_bench.search.folder import SearchFolder  # noqa: E402
from envcoder_bench.search.genome import Genome  # noqa: E402
from envcoder_bench.search.launch import start  # noqa: E402
from envcoder_bench.shaping.kinds import SHAPER_TYPES  # noqa: E402
from envcoder_bench.tasks.registry import baseline_path, task_names  # noqa: E402

# variants


def part(text, types):
    return Genome(text, types).fingerprint()


@pytest.mark.parametrize("task", task_names())
def test_variant_differs_from_the_human_baseline_only_in_its_component(task):
    human = baseline_path(task, "human").read_text("utf-8")
    found = variants(task)
    for name, types in COMPONENTS.items():
        text = found[f"no_{name}"]
        if text is None:
            continue
        others = [kind for kind in SHAPER_TYPES if kind not in types]
        own = {f.name: part(text, [f.name]) for f in Genome(text, others).shapers()}
        assert own == {f.name: part(human, [f.name]) for f in Genome(human, others).shapers()}, name
        assert part(text, types) != part(human, types) or name == "action"
    assert {f"no_{name}" for name in COMPONENTS} | {components.NOTHING} == set(found)


def test_nothing_variant_has_sparse_reward_and_raw_torques():
    text = variants("Anymal")["nothing"]
    unshaped = baseline_path("Anymal", "unshaped").read_text("utf-8")
    for kind in ("compute_reward", "compute_observation", "compute_terminal", "compute_initial_state", "compute_goal"):
        assert part(text, [kind]) == part(unshaped, [kind])
    assert "80.0 * action" in text and "compute_dof_target" not in text
    sparse = baseline_path("Humanoid", "sparse").read_text("utf-8")
    assert part(variants("Humanoid")["no_reward"], ["compute_reward"]) == part(sparse, ["compute_reward"])


def test_component_equal_to_the_task_is_no_variant():
    assert variants("Anymal")["no_goal"] is None  # the same commands
    assert variants("Humanoid")["no_action"] is None  # raw torques
    assert variants("AllegroHand")["no_initial_state"] is None


def test_generated_candidates_are_distinct_and_reproducible():
    made = ranks.generated("Ant", 12)
    assert len(made) == 12 == len({Genome(text, SHAPER_TYPES).fingerprint() for text in made.values()})
    assert made == ranks.generated("Ant", 12)
    assert list(ranks.generated("Anymal", 3)) == list(ranks.generated("Anymal", 5))[:3]


# numbers


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


def test_reliability_is_the_correlation_between_seeds():
    assert analysis.reliability(ranked(a=[1.0, 3.0], b=[2.0, 2.0], c=[3.0, 1.0])) == pytest.approx(-1.0)
    assert math.isnan(analysis.reliability(ranked(a=[1.0], b=[2.0])))


def test_ratios_are_paired_by_seed():
    last = {"fitness": {"human": [1.0, 2.0, 4.0], "half": [0.5, 1.0, 2.0], "failed": [None, None, None]}}
    found = analysis.ratios(last)
    assert found["half"] == pytest.approx((0.5, 0.5, 0.5)) and found["human"] == pytest.approx((1.0, 1.0, 1.0))
    assert "failed" not in found
    assert math.isnan(analysis.ratios({"fitness": {"human": [0.0], "a": [1.0]}})["a"][0])


def test_length_matches_hand_computed_values():
    points = [
        {"env_steps": steps, "fitness": {"human": own}}
        for steps, own in ((10, [0.1, 0.3]), (20, [0.8, 1.0]), (30, [0.6, 0.8]), (40, [0.7, 0.7]))
    ]
    found = analysis.length(points, "human", (0.0, 1.0))
    assert (found.best[0], found.best_steps, found.last[0], found.steps) == pytest.approx((0.9, 20, 0.7, 40))
    assert found.gained[0] == pytest.approx(0.0)  # 0.1 up and 0.1 down since 30
    assert found.best[2] == 1.0  # within the bounds
    assert analysis.length(points, "unshaped", (0.0, 1.0)) is None
    single = analysis.length(points[:1], "human", (0.0, 1.0))
    assert single.last[0] == pytest.approx(0.2) and math.isnan(single.gained[0])  # no gain is known


def test_normalized_scores_are_0_for_sparse_and_1_for_human():
    assert analysis.normalized([1.0, 3.0, None, 5.0], sparse=1.0, human=3.0) == [0.0, 1.0, 2.0]
    assert analysis.normalized([1.0], 2.0, 2.0) == [] == analysis.normalized([1.0], 2.0, 1.0)


def test_distance_is_in_units_of_the_standard_deviation_of_seeds():
    # both deviate by 1; the second is 2 higher, and seed by seed by 1, 2 and 3
    means, seeds = analysis.distance([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    spread = math.sqrt((1.0 + 4.0) / 2)
    assert (means, seeds) == pytest.approx((2.0 / spread, math.sqrt(14 / 3) / spread))
    assert all(math.isnan(x) for x in analysis.distance([1.0], [2.0]))
    assert all(math.isnan(x) for x in analysis.distance([1.0, 1.0], [1.0, 1.0]))


def test_complete_training_replaces_a_stopped_one():
    cut = {**ranked(a=[1.0]), "complete": False}
    whole = [{**ranked(a=[2.0]), "iteration": k, "date": "2026-01-01"} for k in (10, 5)]
    assert analysis.trainings([cut], "ranks") == [[cut]]
    assert analysis.trainings([*whole, {**cut, "iteration": 10}], "ranks")[0] == [whole[1], whole[0]]


# the command line


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["study.py", "..."])
    return ["--out", str(tmp_path / "study.jsonl"), "--work", str(tmp_path / "runs"), "--device", "cpu"]


SMALL = ["--tasks", "Cartpole", "--envs", "8", "--episodes", "4", "evaluation.num_envs=4"]


def page(folder):
    path = folder / "page.md"
    path.write_text("".join(f"<!-- study {name} -->\n<!-- end -->\n" for name in report.PARTS))
    return path


@pytest.mark.slow
def test_stopped_part_resumes_and_recorded_part_is_not_repeated(where, tmp_path, capsys):
    words = ["components", *where, *SMALL, "--iterations", "60", "--seeds", "2", "--points", "3"]
    began = training._Follower.iteration_done

    def stopping(follower, iteration, env_steps, best):
        began(follower, iteration, env_steps, best)
        if iteration == 30:
            studies[0].stop("test")

    studies = []
    make = training.Study.__init__

    def remember(study, args):
        make(study, args)
        studies.insert(0, study)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Follower, "iteration_done", stopping)
        patch.setattr(training.Study, "__init__", remember)
        assert script.main(words) == script.STOPPED
    partial = records.read(tmp_path / "study.jsonl.partial")
    assert [r["iteration"] for r in partial] == [20] and not partial[0]["complete"]
    assert not (tmp_path / "study.jsonl").exists()
    assert script.main(words) == 0
    made = records.read(tmp_path / "study.jsonl")
    assert [r["iteration"] for r in made] == [20, 40, 60] and all(r["complete"] for r in made)
    assert made[0]["fitness"] == partial[0]["fitness"] and set(made[0]["fitness"]) >= {"human", "no_reward", "nothing"}
    assert not (tmp_path / "study.jsonl.partial").exists()
    capsys.readouterr()
    assert script.main(words) == 0 and capsys.readouterr().out == ""
    assert records.read(tmp_path / "study.jsonl") == made


@pytest.mark.slow
def test_every_part_gives_a_table(where, tmp_path, capsys):
    small = [*where, *SMALL, "--iterations", "4"]
    assert script.main(["components", *small, "--seeds", "2", "--points", "1"]) == 0
    assert script.main(["lengths", *small, "--seeds", "2", "--points", "2"]) == 0
    rank = ["--candidates", "4", "--seeds", "2", "--reference_envs", "8", "--reference_seeds", "2"]
    assert script.main(["ranks", *small, *rank]) == 0
    assert script.main(["devices", *small, "--seeds", "2", "--points", "1", "--neighbours", "0", "4"]) == 0
    search = ["--searches", "1", "--rounds", "1", "--per_round", "2", "--final_seeds", "2"]
    assert script.main(["evolve", *small, *search]) == 0
    out = page(tmp_path)
    words = ["--records", str(tmp_path / "study.jsonl"), "--page", str(out), "--images", str(tmp_path / "images")]
    assert script.main(["report", *words]) == 0
    text = out.read_text()
    for name in report.PARTS:
        block = text.split(f"<!-- study {name} -->")[1].split("<!-- end -->")[0]
        assert "|---|" in block and "Cartpole" in block
    alone = [line for line in text.splitlines() if "alone" in line and "among 4" in line]
    assert not alone or all(line.endswith("| +0.00 | 0.00 |") for line in alone)  # isolated on the CPU
    assert (tmp_path / "images" / report.HEAT_MAP).stat().st_size > 1000


SEARCHES = ["--iterations", "4", "--rounds", "2", "--per_round", "3", "--final_seeds", "2"]


@pytest.mark.slow
def test_searches_in_one_batch_are_those_of_auto_shape(where, tmp_path, monkeypatch):
    monkeypatch.setattr(evolution, "APART", 1)  # random choices of the first searches are those of seed 1
    words = ["evolve", *where, *SMALL, *SEARCHES, "--kinds", "reward", "--searches", "2"]
    assert script.main(words) == 0
    found = {(r["method"], r["search"]): r for r in records.read(tmp_path / "study.jsonl") if r["role"] == "search"}
    assert list(found) == [("evolve", 0), ("random", 0), ("evolve", 1), ("random", 1)]
    settings = {
        "num_envs_per_candidate": 8, "learning_iterations": 4, "seed": 1, "num_iters": 2, "shapers_per_iter": 3,
        "final_seeds": 2, "final_episodes": 4, "evaluation.final_episodes": 4, "evaluation.points": 1,
        "evaluation.num_envs": 4, "parents": "[unshaped]", "shaper_types": "[compute_reward]", "device": "cpu",
    }  # fmt: skip
    for method in ("evolve", "random"):
        folder = tmp_path / method
        alone = start("Cartpole", method, overrides=[f"{k}={v}" for k, v in settings.items()], output_dir=folder)
        rows = open_run(SearchFolder(folder).final).rows
        own = found[method, 0]
        assert own["fitness"]["best"] == [row.fitness for row in rows if row.candidate == alone.best]
        assert own["fitness"]["human"] == [row.fitness for row in rows if row.candidate == "human"]
        assert own["evaluations"] == 6


def test_proposals_are_checked_together_and_repaired_as_one_by_one(monkeypatch):
    cfg = compose_config("Cartpole", ["sim=mujoco_cpu", "device=cpu", "shaper_types=[compute_reward]"])
    facts = [{"task": "Cartpole", "method": method, "search": 0} for method in ("evolve", "random")]
    searches = [evolution._begin(own, ["compute_reward"], cfg) for own in facts]
    refused = {own.proposer.propose(own.archive, 1, 3)[1].source for own in searches}
    checks = []

    def prepare(cfg, sources):
        checks.append([source.name for source in sources])
        return [], {s.name: UserError("on purpose") for s in sources if s.source in refused}

    monkeypatch.setattr(evolution, "prepare", prepare)
    rounds = evolution._propose(cfg, searches, 1, 3)
    everyone = [own.batched(f"r1_0{k}") for own in searches for k in range(3)]
    assert checks == [everyone, ["r1_01"], ["r1_01"]]  # the check of all, and of each repaired one
    for own, made in zip(searches, rounds):
        alone = evolution._propose(cfg, [own], 1, 3)
        assert [made] == alone and list(made.repaired) == ["r1_01"]
        assert [p.name for p in made.ready] == ["r1_00", "r1_01", "r1_02"]
        assert not refused & {p.source for p in made.ready}


@pytest.mark.slow
def test_stopped_searches_go_on(where, tmp_path, monkeypatch, capsys):
    words = ["evolve", *where, *SMALL, *SEARCHES, "--kinds", "all", "--searches", "1"]
    run, begun = training.Study.run, []

    def stopping_in_round_2(self, task, candidates, folder, *args, **settings):
        begun.append(folder.name[: len("round_1")])
        if begun[-2:] == ["round_1", "round_2"]:
            self.stop("enough")
        return run(self, task, candidates, folder, *args, **settings)

    monkeypatch.setattr(training.Study, "run", stopping_in_round_2)
    assert script.main(words) == script.STOPPED
    reference = records.read(tmp_path / "study.jsonl")
    assert begun[1:] == ["round_1", "round_2"] and [r["role"] for r in reference] == ["reference"]
    monkeypatch.setattr(training.Study, "run", run)
    assert script.main(words) == 0
    made = records.read(tmp_path / "study.jsonl")
    other = [*words, "--work", str(tmp_path / "other"), "--out", str(tmp_path / "b.jsonl")]
    assert script.main(other) == 0
    same = [{**r, "date": "", "command": "", "wall_time": 0} for r in made]
    assert len(list((tmp_path / "runs").glob("*/round_*"))) == 2
    assert same == [{**r, "date": "", "command": "", "wall_time": 0} for r in records.read(tmp_path / "b.jsonl")]
    capsys.readouterr()
    assert script.main(words) == 0 and capsys.readouterr().out == ""


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


def test_only_searches_of_equal_budget_are_compared():
    about = {"kind": "evolve", "task": "Ant", "envs": 8, "iterations": 2, "overrides": [], "complete": True}
    fitness = {"no_reward": [None], "human": [2.0]}  # the sparse reward failed: there is no scale
    reference = {**about, "role": "reference", "iteration": 2, "seeds": 1, "fitness": fitness}
    search = {**about, "role": "search", "method": "evolve", "kinds": "reward", "rounds": 3, "per_round": 4}
    search.update(evaluations=12, fitness={"best": [1.0]})
    others = [{**search, "envs": 16}, {**search, "rounds": 9}, {**search, "overrides": ["a=1"]}]
    lines = report.evolve([reference, *others, search, search])
    (row,) = (line for line in lines if line.startswith("| Ant"))
    assert "| 2 x 12 |" in row and row.endswith("|  |  | 2.00 |")


def test_methods_are_compared_from_three_searches_on():
    about = {"kind": "evolve", "task": "Ant", "envs": 8, "iterations": 2, "overrides": [], "complete": True}
    fitness = {"no_reward": [0.0], "human": [2.0]}
    reference = {**about, "role": "reference", "iteration": 2, "seeds": 1, "fitness": fitness}
    search = {**about, "role": "search", "kinds": "reward", "rounds": 3, "per_round": 4, "evaluations": 12}
    search["new_terms"] = NEW_TERM
    better = {**search, "method": "evolve", "fitness": {"best": [2.0]}}
    worse = {**search, "method": "random", "fitness": {"best": [1.0]}}

    def told(*searches):
        return [line for line in report.evolve([reference, *searches]) if line.startswith("- ")]

    assert told(better, worse) == told(better, better, worse, worse) == []
    assert told(*[better] * 3, *[worse] * 3) == [
        "- evolve, reward: human-normalized interquartile mean over 1 task 1.00 [1.00, 1.00]",
        "- random, reward: human-normalized interquartile mean over 1 task 0.50 [0.50, 0.50]",
        "- probability that a search by evolve, reward ends better than one by random, reward: 1.00 [1.00, 1.00]",
    ]
    many = {**better, "new_terms": True}
    without = {key: value for key, value in better.items() if key != "new_terms"}  # rewards got no new terms then
    lines = told(*[better] * 3, *[many] * 3, *[without] * 3, *[worse] * 3)
    pairs = [line.split(" search by ")[1].split(":")[0] for line in lines if "probability" in line]
    assert pairs == [  # of searches that differ in one thing
        "evolve, reward ends better than one by evolve with many new terms, reward",
        "evolve, reward ends better than one by evolve without new terms, reward",
        "evolve, reward ends better than one by random, reward",
        "evolve with many new terms, reward ends better than one by evolve without new terms, reward",
    ]


def test_parts_without_records_stay_empty(tmp_path):
    out = page(tmp_path)
    before = out.read_text()
    (tmp_path / "study.jsonl").write_text(json.dumps({"kind": "other"}) + "\n")
    report.report([tmp_path / "study.jsonl"], out, tmp_path)
    assert out.read_text() == before
    with pytest.raises(UserError, match="measure first"):
        report.report([tmp_path / "none.jsonl"], out, tmp_path)


def test_bad_input_prints_one_message(where, capsys):
    for words in (["--tasks", "Cartpole", "seeds=2"], ["--tasks", "Cartpole", "device=none"], ["--tasks", "Cartpol"]):
        assert script.main(["components", *where, *words]) == 2
        assert capsys.readouterr().err.startswith("study: error: ")


def test_unreadable_records_and_pages_are_reported(tmp_path, capsys):
    records, none = tmp_path / "study.jsonl", tmp_path / "none.md"
    records.write_text('{"kind": "other"}\n{"kind":\n')
    assert script.main(["report", "--records", str(records)]) == 2
    assert f"{records}:2: this is not a record" in capsys.readouterr().err
    records.write_text('{"kind": "other"}\n')
    assert script.main(["report", "--records", str(records), "--page", str(none)]) == 2
    assert str(none) in capsys.readouterr().err
