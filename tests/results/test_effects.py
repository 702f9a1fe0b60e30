"""Effects of variants: right in simulated runs whose truth is known, and shown as they are."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from simulated_runs import CASES, seed_of

from envcoder_bench.report.terms.plot import plot_sweep
from envcoder_bench.report.terms.table import (
    render_studies,
    seeds_that_show,
    study_lead,
    study_notes,
    study_sections,
    verdicts,
)
from envcoder_bench.results.effects import COLUMNS, NO_EFFECT, studies, write_effects
from envcoder_bench.results.logs import Point
from envcoder_bench.results.rows import FAILED, STOPPED, Result
from envcoder_bench.results.speed import SHARE
from envcoder_bench.results.statistics import UNBOUNDED
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.variants import FACTORS, SWEEP, TERMS, Variant
from envcoder_bench.tasks.base import UNTRAINED

RUNS = 30


def variants_of(terms):
    made = {}
    for term in terms:
        for factor in FACTORS:
            made[f"m.{term}_x{factor:g}"] = Variant("m", TERMS, term, factor)
    return made


def simulated(case, terms, seeds, rng, effects=None, spreads=None):
    """Return a study of a run; the fitness of its variants is the original's times ``spreads`` plus ``effects``."""
    draw, _, bounds = CASES[case]
    made = variants_of([f"t{k}" for k in range(terms)])
    episodes = draw(rng, 1 + len(made), seeds)
    if spreads is not None:
        episodes[1:] *= np.asarray(spreads)[:, None, None]
    if effects is not None:
        episodes[1:] += np.asarray(effects)[:, None, None]
    shared = 0.0 if bounds != UNBOUNDED else rng.standard_normal((1, seeds, 1))  # what a seed does to all
    rows, evaluation = [], {}
    for name, own in zip(["m", *made], episodes + shared):
        for seed, fitness in enumerate(own.tolist()):
            rows.append(Result(name, seed, fitness=math.fsum(fitness) / len(fitness), episodes=len(fitness)))
            evaluation[name, seed] = tuple(fitness)
    return studies(made, rows, evaluation, bounds=bounds)[0]


@pytest.fixture
def plans_nothing(monkeypatch):
    """Leave out how many seeds would show an effect: it takes longer than all the rest."""
    monkeypatch.setattr("envcoder_bench.results.effects.seeds_needed", lambda *_: None)


def beyond(share, runs):
    return share + 4 * math.sqrt(share * (1 - share) / runs)


def test_p_value_of_a_single_variant_is_that_of_the_paired_t_test():
    """Differences of 0.10, 0.13 and 0.10: p is that of test_ranking.py."""
    fitness = {"m": (0.1, 0.5, 0.9), "m.t_x0": (0.2, 0.63, 1.0)}
    rows = [Result(name, k, fitness=x, episodes=10) for name, own in fitness.items() for k, x in enumerate(own)]
    (study,) = studies({"m.t_x0": Variant("m", TERMS, "t", 0.0)}, rows)
    assert study.effects[0].p == pytest.approx(1.25 * (1 - 11 / math.sqrt(123)))


@pytest.mark.usefixtures("plans_nothing")
@pytest.mark.slow
@pytest.mark.parametrize(("case", "seeds"), [(case, 2 + k % 2) for k, case in enumerate(CASES)])  # few are the hardest
def test_changes_without_an_effect_are_not_marked_and_intervals_cover_it(case, seeds):
    rng = np.random.default_rng(seed_of("variants", case, seeds))
    marked, covered, count = 0, 0, 0
    for _ in range(RUNS):
        effects = simulated(case, 5, seeds, rng).effects
        marked += any(one.significant for one in effects)
        known = [one for one in effects if not math.isnan(one.ci_low)]
        covered += sum(one.ci_low - 1e-9 <= 0 <= one.ci_high + 1e-9 for one in known)
        count += len(known)
    assert marked / RUNS <= beyond(0.05, RUNS)
    # the intervals of a run share its original and its spread: far fewer than 15 independent ones
    assert count == 0 or covered / count >= 0.93 - 4 * math.sqrt(0.93 * 0.07 / RUNS / 2)


@pytest.mark.slow
@pytest.mark.usefixtures("plans_nothing")
def test_intervals_cover_effects_and_large_ones_are_marked():
    rng = np.random.default_rng(seed_of("effects of variants"))
    truth = np.array([-6.0, 0, 0, -6.0, 0, 0, 6.0, 0, 0] + [0.0] * 6)
    covered, marked, false = [], [], 0
    for _ in range(RUNS):
        effects = simulated("normal, seeds differ", 5, 3, rng, truth).effects
        covered += [one.ci_low <= effect <= one.ci_high for one, effect in zip(effects, truth)]
        marked += [
            one.significant and (one.effect > 0) == (effect > 0) for one, effect in zip(effects, truth) if effect
        ]
        false += any(one.significant for one, effect in zip(effects, truth) if not effect)
    assert np.mean(covered) >= 0.93 - 4 * math.sqrt(0.93 * 0.07 / RUNS / 2)
    assert np.mean(marked) > 0.7 and false / RUNS <= beyond(0.05, RUNS)


@pytest.mark.usefixtures("plans_nothing")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "seeds"),
    [("normal, seeds differ", 2), ("normal, seeds differ", 5), ("success rate 0.5, seeds differ", 3)],
)
def test_dead_variants_do_not_lend_their_spread_to_others(case, seeds):
    """Twelve of fifteen always fail, with next to no spread: the others are marked no more often than by chance."""
    runs = 80
    rng = np.random.default_rng(seed_of("dead variants", case, seeds))
    has_bounds = CASES[case][2] != UNBOUNDED
    dead = np.arange(15) >= 3
    truth = np.where(dead, -0.5 if has_bounds else -10.0, 0.0)
    spreads = np.where(dead, 0.0 if has_bounds else 0.02, 1.0)  # times 0, a success rate is 0
    false, covered = 0, []
    for _ in range(runs):
        effects = simulated(case, 5, seeds, rng, None if has_bounds else truth, spreads).effects
        false += any(one.significant for one in effects[:3])
        covered += [one.ci_low - 1e-9 <= effect <= one.ci_high + 1e-9 for one, effect in zip(effects, truth)]
    assert false / runs <= beyond(0.05, runs)
    assert np.mean(covered) >= 0.93 - 4 * math.sqrt(0.93 * 0.07 / runs / 2)


# a run that is written out


def course(name, seed, values, weight=1.0, cost=-0.5):
    parts = {"total reward": (2.0, 0, 0), "speed": (1.5 * weight, 0, 0), "cost": (cost, 0, 0)}
    return [Point(name, seed, 10 * (k + 1), 1000 * (k + 1), value, 100.0, parts) for k, value in enumerate(values)]


def example(seeds=3):
    """A speed that is all, a cost that does nothing; without the goal the robot fails, and one variant is stopped."""
    made = {**variants_of(["speed", "cost"]), "m.without_goal": Variant("m", TERMS, function="compute_goal")}
    level = {"m": 0.8, "m.speed_x0": 0.1, "m.speed_x0.5": 0.7, "m.speed_x2": 0.82, "m.cost_x0": 0.79}
    rows, points = [Result(UNTRAINED, seed, fitness=0.0) for seed in range(seeds)], []
    for k, name in enumerate(["m", *made]):
        for seed in range(seeds):
            final = level.get(name, 0.8) + 0.01 * seed + 0.002 * ((7 * k + 5 * seed) % 3)
            row = Result(name, seed, fitness=final, episodes=64)
            if name == "m.without_goal":
                row = Result(name, seed, FAILED, fault=Fault("raised", "a.py", 3, "compute_goal"))
            if name == "m.cost_x2":
                row = dataclasses.replace(row, status=STOPPED, stopped_at=20)
            rows.append(row)
            slow = 0.45 if name == "m.speed_x0.5" else 0.9 + 0.01 * ((k + seed) % 3)
            points += course(name, seed, [slow * final * part for part in (0.5, 1.0)] + [final])
    return studies(made, rows, points=points, bounds=(0.0, 1.0))


def test_effects_of_an_example():
    (study,) = example()
    by_name = {one.candidate: one for one in study.effects}
    assert study.target == pytest.approx(SHARE * study.fitness, abs=1e-9), "the untrained policy has 0"
    assert by_name["m.speed_x0"].significant and by_name["m.speed_x0"].effect == pytest.approx(-0.7, abs=0.01)
    assert by_name["m.speed_x0"].reached == 0 and not by_name["m.cost_x0"].significant
    assert by_name["m.speed_x0"].slower_high == math.inf and by_name["m.cost_x0"].slower_high < 3
    assert (
        by_name["m.speed_x0.5"].slower == pytest.approx(1.45, abs=0.15) and by_name["m.speed_x0.5"].slower_significant
    )
    assert [by_name[f"m.{name}"].status for name in ("without_goal", "cost_x2")] == ["failed", "stopped at 20"]
    assert by_name["m.speed_x2"].share == pytest.approx(0.75) and by_name["m.cost_x2"].share == pytest.approx(0.25)
    found = verdicts(study)
    assert "without speed" in found["worse"] and NO_EFFECT in found and "cost" in found[NO_EFFECT]
    assert study.comparisons == 5  # of 7 changes two have no fitness


def test_share_of_a_term_counts_its_weight():
    made = {f"m.{term}": Variant("m", TERMS, term, 0.0, weight) for term, weight in (("speed", 1.0), ("cost", -9.0))}
    rows = [Result(name, 0, fitness=0.5) for name in ("m", *made)]
    (study,) = studies(made, rows, points=course("m", 0, [0.1, 0.5]))
    assert [one.share for one in study.effects] == pytest.approx([1.5 / 6.0, 4.5 / 6.0])
    assert "only repeat" not in render_studies([study], 100)


def test_terms_have_no_shares_if_the_weight_of_one_is_not_one_number():
    made = {f"m.{term}": Variant("m", TERMS, term, 0.0, weight) for term, weight in (("speed", 1.0), ("cost", 0.0))}
    rows = [Result(name, 0, fitness=0.5) for name in ("m", *made)]
    (study,) = studies(made, rows, points=course("m", 0, [0.1, 0.5]))
    assert all(math.isnan(one.share) for one in study.effects)
    assert "only repeat" not in render_studies([study], 100)


def test_a_term_that_is_always_0_is_named():
    """Its variants differ from the candidate by chance alone."""
    made = {f"m.{term}": Variant("m", TERMS, term, 0.0) for term in ("speed", "cost")}
    rows = [Result(name, 0, fitness=0.5) for name in ("m", *made)]
    text = render_studies(studies(made, rows, points=course("m", 0, [0.1, 0.5], cost=0.0)), 100)
    assert "\ncost: 0 in the last evaluation; if it always is, its variants only repeat m\n" in text


def test_table_of_an_example():
    text = render_studies(example(), 100, "runs/a")
    assert max(map(len, text.splitlines())) <= 100
    said = ("left out", "75 %", "never", "failed", "stopped at 20", "worse: without speed", NO_EFFECT, "5 changes")
    assert not [words for words in said if words not in text]
    assert f"{NO_EFFECT}: cost;" in text, "a function that failed was not compared"
    assert render_studies([]) == ""


def test_number_of_seeds_that_would_show_an_effect_that_matters_is_said():
    """Of the range of a bounded fitness, else of what the original learns; ten times the spread asks for more."""
    (study,) = example()
    assert study.size == pytest.approx(0.1) and study.seeds_needed is not None
    (line,) = seeds_that_show(study, "R")
    assert "an effect of 0.1 of any change in 80 % of runs" in line and line in " ".join(study_notes(study, "R"))
    assert line in study_lead([study], "R") and study_lead([study])[0].startswith("terms of m: worse: without speed")
    rng = np.random.default_rng(3)
    made = variants_of(["a"])

    def needed(spread):
        noise = {(name, seed): spread * rng.standard_normal() for name in ("m", *made) for seed in range(6)}
        rows = [Result(name, seed, fitness=5.0 + x) for (name, seed), x in noise.items()]
        return studies(made, [*rows, *(Result(UNTRAINED, seed, fitness=1.0) for seed in range(6))])[0]

    assert needed(0.1).size == pytest.approx(0.4, abs=0.02)  # of 4 that it learns
    few, many = needed(0.1).seeds_needed, needed(1.0).seeds_needed
    assert few < 10 < many
    assert f"{many} seeds would show" in seeds_that_show(dataclasses.replace(study, seeds_needed=many, size=0.1))[0]
    assert "over 1,000 seeds would show" in seeds_that_show(dataclasses.replace(study, seeds_needed=None))[0]
    assert seeds_that_show(example(seeds=1)[0]) == []


def test_candidate_that_has_not_learnt_is_named():
    made = variants_of(["a"])
    rows = [Result(name, 0, fitness=0.2) for name in ("m", *made)] + [Result(UNTRAINED, 0, fitness=0.3)]
    (study,) = studies(made, rows, points=course("m", 0, [0.1, 0.2]))
    assert not study.has_learned and math.isnan(study.target)
    assert "m is not better than the policy before training" in render_studies([study])
    assert "before training" not in render_studies(example())


def test_single_seed_shows_nothing_and_says_what_would():
    (study,) = example(seeds=1)
    assert study.comparisons == 0 and not any(one.significant for one in study.effects)
    text = render_studies([study], 100, "runs/a")
    assert "no effect can be told from chance" in text and "--extend runs/a --seeds 3" in text and "±" not in text


def test_file_has_a_row_for_each_change(tmp_path):
    write_effects(tmp_path / "terms.csv", example())
    table = pd.read_csv(tmp_path / "terms.csv")
    assert list(table.columns) == list(COLUMNS) and len(table) == 7
    assert table.set_index("candidate").loc["m.speed_x0", "effect"] == pytest.approx(-0.7, abs=0.01)


def sweep(names, values):
    points = np.stack(np.meshgrid(*values, indexing="ij"), -1).reshape(-1, len(names)).tolist()
    usual = {name: 1.0 for name in names}
    made = {
        f"m.{k}": Variant("m", SWEEP, values=dict(zip(names, point)), usual=usual)
        for k, point in enumerate(points)
        if point != [1.0] * len(names)
    }
    rows = []
    for name in ["m", *made]:
        own = made[name].values if name in made else usual
        for seed in range(3):
            fitness = math.exp(-sum((math.log10(x + 0.1) - 0.1) ** 2 for x in own.values())) + 0.02 * seed
            rows.append(Result(name, seed, fitness=fitness + 0.01 * ((5 * len(rows) + seed) % 3), episodes=64))
    return studies(made, rows)


SWEEPS = [
    (["effort"], [[0, 0.5, 1, 2, 4]]), (["a", "b"], [[0, 1, 10], [1, 2]]), (["a", "b", "c"], [[0, 1], [1, 2], [1, 3]]),
]  # fmt: skip


@pytest.mark.slow
def test_pictures_and_sections(tmp_path):
    swept = [study for names, values in SWEEPS for study in sweep(names, values)]
    found = [*example(), *example(seeds=1), *swept]
    for number, study in enumerate(found):
        if study.is_sweep:
            file = plot_sweep(study, tmp_path / f"{number}.png", "Task")
            assert file.read_bytes()[:4] == b"\x89PNG" and file.stat().st_size > 3000
    for study, (names, _) in zip(swept, SWEEPS, strict=True):
        text = render_studies([study])
        assert all(name in text for name in names) and "the original" in text
    sections = study_sections(found, {"m": b"\x89PNG"}, "runs/a")
    assert len(sections) == 5 and len({section.anchor for section in sections}) == 5
    assert "data:image/png" in sections[-1].body and "left out" in sections[0].body
    # five of seven changes have an effect: an interval, or of one seed a point
    assert sections[0].body.count('class="interval"') == sections[1].body.count('class="interval"') == 5


def test_picture_without_any_fitness(tmp_path):
    rows = [Result(name, 0, FAILED) for name in ("m", "m.1")]
    for variant in (Variant("m", TERMS, "a", 0.0), Variant("m", SWEEP, values={"a": 2.0}, usual={"a": 1.0})):
        (study,) = studies({"m.1": variant}, rows)
        if study.is_sweep:
            assert plot_sweep(study, tmp_path / "a.png", "Task").is_file()
        assert "failed" in render_studies([study]) and "failed" in study_sections([study], {})[0].body
