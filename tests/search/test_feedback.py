"""Feedback on the rounds so far for the model."""

import math
import re
from dataclasses import replace

import pytest
from search_fakes import random_archive, source

from envcoder_bench.results.logs import Course, Point
from envcoder_bench.search import archive as records
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.prompt.feedback import (
    block,
    explain,
    fastest,
    feedback,
    history_line,
    idea,
    parents,
    shown_in_full,
    summary,
    to_mend,
)
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


def test_best_candidates_have_their_block_and_source():
    known = archive(attempt("r1_00", 0.9), attempt("r2_00", 0.8), attempt("r2_01", 0.2))
    text = feedback(known, 9000)
    shown = section(text, "Candidates")
    for each in known.attempts:
        assert f"{block(each, known)}\n```python\n{each.source.strip()}\n```" in shown
    assert re.match(
        r"r1_00: fitness 0\.9 \(1 seed\); on new seeds \+[\d.]+ ± [\d.]+ against human: cannot tell\n", shown
    )
    assert section(text, "Baselines").startswith("human: 0.5 ± 3.2 over 2 seeds\nunshaped: 0.1 ± 0.62 over 2 seeds\n")


def test_fitness_has_interval_number_of_seeds_and_a_verdict():
    one = Attempt("r1_00", 1, "", fitness=0.5, by_seed={7: 0.5}, stopped_at=9, hacked="it pays for falling")
    known = Archive([one], {"human": Attempt("human", 0, "", fitness=0.25, by_seed={7: 0.25})})
    assert summary(replace(one, stopped_at=0, hacked=""), known) == (
        "r1_00: fitness 0.5 (1 seed); +0.25 against human, on one seed: cannot tell"
    )
    known = Archive([one])
    assert summary(one, known) == (
        "r1_00: fitness 0.5 (1 seed); stopped at iteration 9, where it was too far behind the best to win;"
        " hacked? it pays for falling"
    )
    human = Attempt("human", 0, "", fitness=0.5, by_seed={k: 0.5 + 0.01 * (-1) ** k for k in range(6)})
    good = Attempt("r1_01", 1, "", ("r1_00",), fitness=0.9, by_seed={k: 0.9 + 0.01 * (k % 3) for k in range(6)})
    known = Archive([good], {"human": human})
    told = summary(good, known)
    assert told.startswith("r1_01 from r1_00: fitness 0.9 ± 0.019 over 6 seeds; on new seeds +0.41 ± ")
    assert told.endswith(" against human: better beyond luck")


def test_nothing_learnt_is_said():
    known = archive(attempt("r1_00", 0.2))
    known.untrained = Attempt("untrained", 0, "", fitness=0.2, by_seed={1: 0.2})
    told = section(feedback(known, 9000), "Baselines")
    assert told.endswith("Nothing has been learned yet: no candidate is above the policy before training.\n")
    known.untrained = Attempt("untrained", 0, "", fitness=0.1, by_seed={1: 0.1})
    assert "Nothing has been learned" not in feedback(known, 9000)


def training(name, fitness, seed=1, **terms):
    """Points at 30, 60 and 90 iterations, with the same means of terms in each."""
    components = {"total reward": (1.0, 0.0, 2.0), **{name: (x, 0.0, 1.0) for name, x in terms.items()}}
    return tuple(Point(name, seed, 30 * k, 0, x, 100.0 * k, components) for k, x in enumerate(fitness, 1))


def test_block_has_training_terms_and_episodes_beside_the_baseline():
    known = archive(
        attempt(
            "r1_00",
            0.5,
            points=training("r1_00", [0.4, 0.8, 0.5], swing=0.25, rail=-0.75),
            courses=(Course("r1_00", 1, (0.5, 0.25), (1.0, 0.5)),),
            ended="16 cart_pos at its range",
        )
    )
    human = known.baselines["human"]
    # the baseline's points of other seeds are not beside it
    points = (*training("human", [0.1, 0.2, 0.25]), *training("human", [0.9, 0.9, 0.9], seed=2))
    courses = (Course("human", 1, (0.25, 0.25), (1.0, 1.0)), Course("human", 2, (1.0, 1.0), (1.0, 1.0)))
    known.baselines["human"] = replace(human, points=points, courses=courses)
    known.episodes = 32
    assert block(known.attempts[0], known).splitlines()[1:] == [
        "at 33, 67, 100 % of training: fitness .40 .80 .50 (human .10 .20 .25); steps 100 200 300",
        "terms per step, with exploration noise: swing .25 .25 .25 (25 %), rail -.75 -.75 -.75 (75 %)",
        "judged by tenths of the episode: .50 .25; still running 100 50 %",
        "human: .25 .25",
        "ended early: 16 cart_pos at its range, of 32 episodes",
    ]


def test_points_of_a_training_are_few_and_means_over_the_seeds():
    points = [Point("r1_00", seed, i, 0, 0.01 * i + seed, 2.0 * i, {"a": (0.5 + seed, -1.0, 1.0)})
              for seed in (0, 1) for i in range(1, 21)]  # fmt: skip
    one = Attempt("r1_00", 1, "", fitness=1.0, by_seed={0: 1.0, 1: 1.0}, points=tuple(points))
    lines = block(one, archive(one)).splitlines()
    assert "at 25, 50, 75, 100 % of training: fitness .55 .60 .65 .70; steps 10 20 30 40" in lines
    assert "terms per step, with exploration noise: a 1 1 1 1 (100 %)" in lines


def test_missing_numbers_are_question_marks():
    nan = math.nan
    points = (Point("x", 1, 1, 0, nan, 1.0, {}), Point("x", 1, 2, 0, 0.5, 1.0, {"a": (1.0, 0.0, 2.0)}))
    text = block(attempt("r1_00", 1.0, points=points), archive())
    assert "fitness ? .50; steps 1 1" in text and "a ? 1 (100 %)" in text


def test_starting_points_are_the_best_the_fastest_and_one_that_loses_what_it_had():
    fast = attempt("r1_01", 0.6, points=training("r1_01", [0.55, 0.6, 0.6]))
    best = attempt("r1_00", 0.7, points=training("r1_00", [0.1, 0.3, 0.7]))
    lost = attempt("r1_02", 0.2, points=training("r1_02", [0.2, 0.8, 0.2]))
    poor = attempt("r1_03", 0.1, points=training("r1_03", [0.1, 0.1, 0.1]))
    known = archive(best, fast, lost, poor)
    assert (known.best(), fastest(known), to_mend(known)) == (best, fast, lost)
    # an early end loses fitness, too
    short = attempt("r1_04", 0.3, courses=(Course("r1_04", 1, (0.9, 0.9, 0.0), (1.0, 0.5, 0.2)),),
                    points=training("r1_04", [0.1, 0.2, 0.3]))  # fmt: skip
    assert to_mend(archive(best, fast, short, poor)) == short
    assert to_mend(archive(best)) is None and fastest(archive(best)) is None
    more = [attempt(f"r1_{k:02d}", 0.65, points=training("x", [0.0, 0.0, 0.65])) for k in range(5, 9)]
    assert [a.name for a in shown_in_full(archive(best, fast, lost, *more))] == ["r1_00", "r1_01", "r1_02", "r1_05"]


def test_candidates_without_their_source_have_a_line():
    last = [attempt(f"r2_{k:02d}", 0.70 - 0.1 * k) for k in range(6)]
    stopped = Attempt(
        "r2_06", 2, source("r2_06"), status=records.FAILED, fault=Fault("NaN", "r2_06.py", 5, "compute_reward")
    )
    known = archive(*(attempt(f"r1_{k:02d}", 0.9 - 0.05 * k) for k in range(8)), *last, stopped)
    whole = feedback(known, 10**6)
    full = [a.name for a in shown_in_full(known)]
    others = section(whole, "Other candidates").splitlines()
    rest = [a for a in known.attempts if a.name not in full and a.name != "r2_06"]
    assert others == [history_line(a, known) for a in rest]
    file = f"The file of r2_06:\n```python\n{source('r2_06').strip()}\n```"
    assert file in section(whole, "Failed in the last round")
    # with less room, the best keeps its source longest
    for limit in range(700, len(whole), 500):
        text = feedback(known, limit)
        assert len(text) <= limit
        assert source(full[0]).strip() in text or limit < 900


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
    line = "r2_00 from r1_00, human: 0.8 (+0.05 against human: cannot tell); Idea of r2_00."
    assert history_line(known.attempts[1], known) == line
    failed = Attempt("r1_01", 1, "", status=records.NO_CODE, fault=Fault("the model declined"))
    assert history_line(failed, known) == "r1_01: failed: the model declined; no code"
    plain = Attempt("r1_02", 1, "def compute_reward(x):\n    return x\n", fitness=0.5, by_seed={1: 0.5})
    assert history_line(plain, known).endswith("; no docstring")
    named = Attempt("r1_03", 1, '"""Steeper (from: r1_00, human)."""\nx = 1\n', fitness=0.5, by_seed={1: 0.5})
    assert parents(named.source) == ["r1_00", "human"] and parents(source("r1_00")) == []
    assert history_line(named, known).endswith("; Steeper")
    below = '"""Steeper.\n\nThe rest is that of from: r1_00.\n(from: r1_02,\n r1_03)\n"""\n# (from: r1_04)\n'
    assert parents(below) == ["r1_02", "r1_03"]
    assert parents('"""Steeper (from: r1_02,\nr1_03)."""\n') == parents(below) and parents('"""As from: r1_00."""')
    again = known.attempts[0].measured_again({2: 0.7})
    assert history_line(again, known) == "r1_00: 0.8 of 2 seeds (+0.3 against human: cannot tell); Idea of r1_00."
    known.reference = "unshaped"
    assert history_line(known.attempts[0], known) == "r1_00: 0.9 (+0.8 against unshaped: cannot tell); Idea of r1_00."


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_length_limit_holds_and_drops_the_oldest_first(seed):
    known = random_archive(seed)
    whole = feedback(known, 10**9)
    for limit in (0, 10, 100, 1000, 3000, len(whole) - 1, len(whole)):
        text = feedback(known, limit)
        assert len(text) <= limit
        assert (text == whole) == (limit >= len(whole))
        shown = section(text, "Other candidates").splitlines() if "## Other candidates" in text else []
        every = section(whole, "Other candidates").splitlines()
        for missing in [a for a in known.attempts if history_line(a, known) in set(every) - set(shown)]:
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
    told = section(feedback(archive(one, two, three), 9000), "Other candidates")
    assert told.startswith(
        "Not part of this search, so left out of candidates and never trained: compute_observation (of r1_00),"
        " compute_goal (of r1_00, r2_01). Do not write them."
    )
    assert "left out" not in feedback(archive(two), 9000)
