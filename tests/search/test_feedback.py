"""Feedback on the rounds so far for the model."""

import math

import pytest
from search_fakes import random_archive, source

from envcoder_bench.results.logs import Point
from envcoder_bench.search import archive as records
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.prompt.feedback import explain, feedback, history_line, idea, summary, training_course
from envcoder_bench.shaping.contract import Fault


def attempt(name, fitness, **known):
    number = int(name[1])
    return Attempt(name, number, source(name), fitness=fitness, by_seed={number: fitness}, **known)


def archive(*attempts):
    baselines = {
        "human": Attempt("human", 0, "", fitness=0.5, by_seed={1: 0.25, 2: 0.75}),
        "unshaped": Attempt("unshaped", 0, "", fitness=0.1, by_seed={1: 0.1, 2: 0.1}),
    }
    return Archive(list(attempts), baselines)


def section(text, title):
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_best_candidates_have_source_and_differences():
    text = feedback(
        archive(attempt("r1_00", 0.9, episode_length=123.0), attempt("r2_00", 0.8), attempt("r2_01", 0.2)), 9000
    )
    best, last = section(text, "The best so far"), section(text, "The best of the last round")
    # by the seeds that both had: human had 0.25 where r1_00 was trained, and 0.75 where r2_00 was
    assert best.startswith(
        "r1_00, of round 1: fitness 0.9 over 1 seed (+0.65 against human, +0.8 against unshaped); episodes of 123"
    )
    assert last.startswith("r2_00, of round 2: fitness 0.8 over 1 seed (+0.05 against human, +0.7 against unshaped)")
    assert source("r1_00").strip() in best and source("r2_00").strip() in last
    told = section(text, "The baselines")
    assert told.startswith("human: fitness 0.5 ± 3.2 over 2 seeds\nunshaped: fitness 0.1 ± 0.62 over 2 seeds\n")
    assert "ranked by their difference to human" in told


@pytest.mark.parametrize(
    ("by_seed", "over_episodes", "told"),
    [
        ({1: 0.9}, None, "0.9 over 1 seed (+0.65 against human, +0.8 against unshaped)"),
        ({1: 0.9}, (0.8, 1.0), "0.9 ± 0.1 over the episodes of 1 seed (+0.65 against human, +0.8 against unshaped)"),
        (
            {1: 0.75, 2: 1.0},
            None,
            "0.875 ± 1.4 over 2 seeds (+0.375 ± 1.6 against human, +0.775 ± 1.8 against unshaped)",
        ),
        ({7: 0.9}, None, "0.9 over 1 seed"),
    ],
)
def test_fitness_has_interval_and_number_of_seeds(by_seed, over_episodes, told):
    mean = sum(by_seed.values()) / len(by_seed)
    one = Attempt("r1_00", 1, "", fitness=mean, by_seed=by_seed, over_episodes=over_episodes, episode_length=1.0)
    assert summary(one, archive(one)) == f"r1_00, of round 1: fitness {told}; episodes of 1 step"


def test_baselines_are_described_by_round():
    known = archive(attempt("r1_00", 0.9))
    known.seeds = {1: (1,), 2: (2,)}
    told = section(feedback(known, 9000), "The baselines").splitlines()
    assert told[0] == "human: fitness 0.5 ± 3.2 over 2 seeds: 0.25 in round 1, 0.75 in round 2"


def test_remaining_room_has_other_sources():
    last = [attempt(f"r2_{k:02d}", 0.70 - 0.1 * k) for k in range(6)]  # the last of them did badly
    stopped = Attempt(
        "r2_06", 2, source("r2_06"), status=records.FAILED, fault=Fault("NaN", "r2_06.py", 5, "compute_reward")
    )
    known = archive(*(attempt(f"r1_{k:02d}", 0.9 - 0.05 * k) for k in range(8)), *last, stopped)
    whole = feedback(known, 10**6)
    others = section(whole, "Others, the best first")
    names = [a.name for a in known.ranked() if a.name not in ("r1_00", "r2_00")]
    assert [line.split(",")[0] for line in others.splitlines() if ", of round " in line] == names
    assert all(source(name).strip() in others for name in names)
    block = f"The file of r2_06:\n```python\n{source('r2_06').strip()}\n```"
    assert block in section(whole, "Failed in the last round")
    # with less room: the next best, the worst of the last round and one that stopped in training come first
    shown = []
    for limit in range(2000, len(whole), 50):
        text = feedback(known, limit)
        assert len(text) <= limit
        shown += [name for name in [*names, "r2_06"] if source(name).strip() in text and name not in shown]
    assert set(shown[:3]) == {"r1_01", "r2_05", "r2_06"}
    assert shown[3:6] == ["r1_02", "r1_03", "r1_04"]


def test_training_course_has_ten_points():
    points = [
        Point(
            "r1_00", seed, i, 0, 0.01 * i + seed, 2.0 * i, {"a": (0.5 + seed, -1.0 - seed, 1.0 + seed), "b": (0, 0, 0)}
        )
        for seed in (0, 1)
        for i in range(1, 21)
    ]
    rows = dict(
        line.split(": ") for line in training_course(attempt("r1_00", 1.0, points=tuple(points))).splitlines()[1:]
    )
    assert rows["iteration"] == "2, 4, 6, 8, 10, 12, 14, 16, 18, 20"
    assert rows["fitness"].split(", ") == [f"{0.01 * i + 0.5:.3g}" for i in range(2, 21, 2)]
    assert rows["episode length"].split(", ")[-1] == "40"
    assert set(rows["a mean"].split(", ")) == {"1"}  # over seeds: the mean of means, least minimum, greatest maximum
    assert set(rows["a min"].split(", ")) == {"-2"}
    assert set(rows["a max"].split(", ")) == {"2"}
    assert set(rows["b mean"].split(", ")) == {"0"}


def test_missing_component_is_unknown():
    nan = math.nan
    points = (Point("x", 0, 1, 0, nan, 1.0, {}), Point("x", 0, 2, 0, 0.5, 1.0, {"a": (1.0, 0.0, 2.0)}))
    text = training_course(attempt("r1_00", 1.0, points=points))
    assert "fitness: unknown, 0.5" in text and "a max: unknown, 2" in text


def test_failures_have_their_lines():
    bad = Attempt(
        "r2_01",
        2,
        source("r2_01"),
        status=records.FAILED_AT_LOAD,
        fault=Fault("no", "/a/b/r2_01.py", 6, "compute_reward"),
    )
    stopped = Attempt(
        "r2_02", 2, source("r2_02"), status=records.FAILED, fault=Fault("NaN", "/a/r2_02.py", 5, "compute_reward")
    )
    empty = Attempt("r2_03", 2, "", status=records.NO_CODE, fault=Fault("the model declined"))
    old = Attempt("r1_00", 1, "x", status=records.FAILED_AT_LOAD, fault=Fault("old"))
    text = section(feedback(archive(old, bad, stopped, empty, attempt("r2_04", 0.1)), 9000), "Failed in the last round")
    assert (
        "r2_01 was not trained: r2_01.py:6: in compute_reward: no\n    reward = reward + 0 * pole_angle  # r2_01"
        in text
    )
    assert "r2_02 stopped in training: r2_02.py:5: in compute_reward: NaN\n    reward = -pole_angle ** 2" in text
    assert "r2_03 was not trained: the model declined" in text
    assert "r1_00" not in text
    assert "/a" not in text  # of no use to the model


def test_history_lines_have_parents_fitness_and_idea():
    known = archive(attempt("r1_00", 0.9), attempt("r2_00", 0.8, parents=("r1_00", "human")))
    assert (
        history_line(known.attempts[1], known) == "r2_00 from r1_00, human: 0.8 (+0.05 against human); Idea of r2_00."
    )
    failed = Attempt("r1_01", 1, "", status=records.NO_CODE, fault=Fault("the model declined"))
    assert history_line(failed, known) == "r1_01: failed: the model declined; no code"
    plain = Attempt("r1_02", 1, "def compute_reward(x):\n    return x\n", fitness=0.5, by_seed={1: 0.5})
    assert history_line(plain, known).endswith("; no docstring")
    text = section(feedback(known, 9000), "History")
    assert text.splitlines() == [history_line(a, known) for a in known.attempts]
    again = known.attempts[0].measured_again({2: 0.7})
    assert history_line(again, known) == "r1_00: 0.8 of 2 seeds (+0.3 against human); Idea of r1_00."
    known.reference = "unshaped"
    assert history_line(known.attempts[0], known) == "r1_00: 0.9 (+0.8 against unshaped); Idea of r1_00."


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_length_limit_holds_and_drops_the_oldest_first(seed):
    known = random_archive(seed)
    whole = feedback(known, 10**9)
    for limit in (0, 10, 100, 1000, 3000, len(whole) - 1, len(whole)):
        text = feedback(known, limit)
        assert len(text) <= limit
        assert (text == whole) == (limit >= len(whole))
        shown = section(text, "History").splitlines() if "## History" in text else []
        for missing in [a for a in known.attempts if history_line(a, known) not in shown]:
            # it was left out for its length alone: what is older and there nevertheless is shorter
            older = [line for line in shown if int(line[1]) < missing.round]
            assert all(len(line) < len(history_line(missing, known)) for line in older)


def test_cut_source_has_a_note():
    long = Attempt("r1_00", 1, source("r1_00", 500), fitness=0.9, by_seed={1: 0.9})
    text = feedback(archive(long), 3000)
    assert 2500 < len(text) <= 3000
    assert "more lines\n```" in text and "Idea of r1_00" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"""Stay up. And more."""\nx = 1', "Stay up. And more."),
        ('# a comment\n\n"""\nStay up,\nplease."""', "Stay up,"),
        ("'Stay up'\n", "Stay up"),
        ('r"""Stay up', "Stay up"),
        ("x = 1\n'''no'''", ""),
        ("", ""),
        ('"""', ""),
    ],
)
def test_idea_is_the_first_line_of_the_docstring(text, told):
    assert idea(text) == told


def test_error_is_explained_with_its_line():
    assert explain(Fault("no", "/a/b c/x.py", 2, "f"), "one\n  two\n") == "x.py:2: in f: no\n    two"
    assert explain(Fault("no", "/a/x.py", 9), "one") == "x.py:9: no"
    assert explain(Fault("no place", remedy="add one"), "one") == "no place; add one"
    assert explain(Fault("x.py:1: made up"), "one") == "x.py:1: made up"
    assert explain(Fault("read keys instead of gym (docs/coming_from.md)"), "") == "read keys instead of gym"
    fault = Fault("has no line: see '/c/d e/y.txt', /f/g", "/a b/x.py")
    assert explain(fault, "one") == "x.py: has no line: see 'y.txt', g"
    assert explain(Fault("no", "/a/human.py", 1, "f"), "one") == "human.py:1: in f: no"  # a line of another file
    assert len(explain(Fault("a" * 10_000, "x.py", 1), "b" * 10_000)) < 1000


def test_functions_that_were_left_out_are_named():
    one, two = attempt("r1_00", 0.9, left_out=("compute_observation", "compute_goal")), attempt("r2_00", 0.8)
    three = Attempt("r2_01", 2, "x", status=records.FAILED, fault=Fault("bad"), left_out=("compute_goal",))
    told = section(feedback(archive(one, two, three), 9000), "History")
    assert told.startswith(
        "Not part of this search, so left out of candidates and never trained: compute_observation (of r1_00),"
        " compute_goal (of r1_00, r2_01). Do not write them.\nr1_00"
    )
    assert "left out" not in feedback(archive(two), 9000)
