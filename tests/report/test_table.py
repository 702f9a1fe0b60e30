from dataclasses import replace

import numpy as np
import pytest

from envcoder_bench.core.words import fixed, shorten
from envcoder_bench.report.certainty import first_place
from envcoder_bench.report.table import render_failures, render_table
from envcoder_bench.results.logs import Point
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import FAILED, FAILED_AT_LOAD, Result
from envcoder_bench.shaping.contract import Fault

MEANING = "how well the commanded velocity is followed, mean over the full episode; 0 to 1"


def ok(candidate, seed, fitness, **more):
    return Result(
        candidate,
        seed,
        "ok",
        fitness,
        fitness - 0.015,
        fitness + 0.015,
        episodes=64,
        episode_length=1000 * fitness,
        **more,
    )


SMALL = [
    *(ok("human", seed, 0.70 + 0.01 * seed) for seed in range(3)),
    *(ok("unshaped", seed, 0.10) for seed in range(3)),
    ok("004_torque", 0, 0.81),
    ok("004_torque", 1, 0.83, unstable_resets=12, training_episodes=100),
    Result("004_torque", 2, FAILED, fault=Fault("out of memory: 93 GiB asked for")),
    *(
        Result(
            "005_shape",
            seed,
            FAILED,
            fault=Fault("returned (256, 1), not (256,)", "fns/005_shape.py", 12, "compute_reward"),
        )
        for seed in range(3)
    ),
    *(
        Result("006_syntax", seed, FAILED_AT_LOAD, fault=Fault("invalid syntax", "fns/006_syntax.py", 3))
        for seed in range(3)
    ),
]


def test_table_matches_expected_text():
    assert render_table(rank(SMALL), MEANING, 80) == (
        """\
fitness: how well the commanded velocity is followed, mean over the full
  episode; 0 to 1

#  candidate            fitness        vs human         steps  status
-----------------------------------------------------------------------------
1  human (baseline)     0.710 ± 0.020                     710  ok
2  unshaped (baseline)  0.100 ± 0.011  -0.610 ± 0.024     100  ok
3  004_torque           0.820 ± 0.029  +0.115 ± 0.039!    820  2/3 seeds
-  005_shape                                                   failed
-  006_syntax                                                  failed at load

human is the best of those that lost no seed with a probability of 95 %
on new seeds human is expected to have 0.710 [0.684, 0.735]

± or [ ]: 95 % interval over 2 to 3 seeds, their spread pooled over the
  candidates
vs human: difference to the human baseline, paired by seed
!: it differs from 0 (moderated t-test, 5 %)
2 seeds do not show an outcome that other seeds have, such as a seed that does
  not learn; the fitness has no bounds and the run no row untrained, so nothing
  here allows for it
2 seeds do not show whether some candidates' seeds move together
n/m seeds: the others failed; the numbers are of those that finished, and rank
  behind all that lost none
steps: mean length of an evaluation episode, control steps
training episodes that ended because the physics blew up: 004_torque 12 %

failed (3 of 3 candidates):
  004_torque (2/3 seeds)
    out of memory: 93 GiB asked for
  005_shape
    fns/005_shape.py:12
      in compute_reward: returned (256, 1), not (256,)
  006_syntax (failed at load)
    fns/006_syntax.py:3
      invalid syntax
"""
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_width(width):
    rows = [
        ok(f"{i:03d}_a_candidate_with_a_very_long_name_indeed", s, 0.001 * i + 0.01 * s)
        for i in range(120)
        for s in (0, 1)
    ]
    rows += [Result(f"bad_{i}", 0, FAILED, fault=Fault("many words " * 30, "f.py", 1)) for i in range(3)]
    rows += [ok("human", 0, 0.5), ok("human", 1, 0.5)]
    text = render_table(rank(rows), MEANING, width)
    assert max(map(len, text.splitlines())) <= width
    assert "24 more in results.csv" in text and (width < 80 or "human (baseline)" in text)
    assert "\033" not in text


def test_table_with_only_failures_matches_expected_text():
    ranked = rank([r for r in SMALL if r.candidate[:3] in ("005", "006")])
    assert render_failures(ranked, 40) == (
        """\
every candidate failed:
  005_shape
    fns/005_shape.py:12
      in compute_reward: returned (256,
      1), not (256,)
  006_syntax (failed at load)
    fns/006_syntax.py:3
      invalid syntax
"""
    )
    assert render_table(ranked, "m", 40) == "fitness: m\n\n" + render_failures(ranked, 40)


def physics(**counts):
    results = [ok("human", 0, 0.5), *(ok(name, 0, 0.4, **own) for name, own in counts.items())]
    return render_table(rank(results), "x", 200)


def test_interval_that_is_not_symmetric_is_shown_by_its_ends():
    rows = [ok(name, seed, x) for name, low in (("a", 0.0), ("b", 0.9)) for seed, x in enumerate((low, 1.0, 1.0))]
    text = render_table(rank(rows, (0.0, 1.0)), "m", 100)
    ranked = {row.candidate: row for row in rank(rows, (0.0, 1.0))}
    for name, mean in (("a", "0.667"), ("b", "0.967")):
        assert f"{name}          {mean} [{ranked[name].fitness_ci_low:.3f}, {ranked[name].fitness_ci_high:.3f}]" in text


def compared(values, seeds=3):
    rows = [
        ok(name, seed, x + 0.02 * (seed - 1) + 0.003 * ((5 * k + 7 * seed) % 3))
        for k, (name, x) in enumerate(values.items())
        for seed in range(seeds)
    ]
    return rank(rows), " ".join(render_table(rank(rows), "m", 120).split())


def test_candidates_that_may_be_the_best_are_named():
    ranked, text = compared({"a": 0.7, "b": 0.2, "c": 0.6})
    assert "a is the best with a probability of 95 %" in text and "may be" not in text
    rows = [ok(name, seed, 0.5 + x) for seed, own in enumerate(((0.1, 0.0), (0.0, 0.08), (0.1, 0.03))) for name, x in
            zip("ab", own)]  # fmt: skip
    ranked = rank(rows)
    text = " ".join(render_table(ranked, "m", 120).split())
    assert "a is first; 1 candidate (b) may be the best, too" in text and ranked[1].contender
    one_seed = compared({"a": 0.7, "b": 0.6}, seeds=1)[1]
    assert "probability of" not in one_seed and "one seed: how much seeds differ is unknown" in one_seed


def test_first_of_the_table_may_not_be_among_those_that_may_be_the_best():
    ranked, _ = compared({"a": 0.5, "b": 0.49, "c": 0.48})
    changed = [replace(row, contender=row.candidate != "a") for row in ranked]
    assert first_place(changed)[:1] == ["a is first; 2 candidates (b and c) may be the best"]


def test_ties_are_told_apart_by_the_steps_until_their_fitness():
    rows = [ok(name, seed, 1.0) for name in "abc" for seed in (0, 1)] + [ok("d", 0, 0.5), ok("d", 1, 0.6)]
    course = {"a": (0.2, 0.5, 1.0), "b": (0.9, 1.0, 1.0), "c": (0.9, 1.0, 1.0), "d": (0.1, 0.2, 0.55)}
    points = [
        Point(name, seed, k + 1, 1000 * (k + 1), x, 10.0)
        for name, own in course.items() for seed in (0, 1) for k, x in enumerate(own)
    ]  # fmt: skip
    ranked = rank(rows, points=points)
    assert [(row.rank, row.candidate) for row in ranked] == [(1, "b"), (1, "c"), (3, "a"), (4, "d")]
    lines = render_table(ranked, "m", 120).splitlines()
    assert "steps to tie" in lines[2] and "2,000" in lines[4] and "3,000" in lines[6]
    assert any(line.startswith("steps to tie: env-steps of a seed until the fitness that") for line in lines)


def test_notes_are_of_all_candidates_also_of_those_not_shown():
    """Of 121 candidates 20 and the baseline are shown; a seed of the last one failed, and its physics was unstable.

    All of their seeds differ by about as much: else human's, which differ little, would tell nothing of the others'.
    """
    rows = [ok("human", seed, 0.5 + 0.01 * seed) for seed in range(3)]
    noise = np.random.default_rng(0).normal(0.0, 0.01, (119, 3)).tolist()
    rows += [ok(f"c{k:03d}", seed, 0.9 - 0.005 * k + x) for k, own in enumerate(noise) for seed, x in enumerate(own)]
    rows += [ok("worst", 0, 0.01, unstable_resets=50, training_episodes=100), ok("worst", 1, 0.01)]
    rows += [Result("worst", 2, FAILED, fault=Fault("no"))]
    text = render_table(rank(rows), MEANING, 100, max_rows=20)
    assert "100 more in results.csv" in text
    assert "corrected for 120 candidates by Holm's method" in " ".join(text.split())
    assert "n/m seeds: the others failed" in text and "worst 50 %" in text
    several = render_table(rank(rows), MEANING, 100, tested="those of its run")
    assert "corrected for those of its run by Holm's method" in " ".join(several.split())


def test_unstable_physics_and_dropped_contacts_are_reported_of_the_worst():
    shares = {f"c{k}": dict(unstable_resets=10 + k, training_episodes=100) for k in range(8)}
    few = dict(rare=dict(unstable_resets=10, training_episodes=1000), unknown=dict(unstable_resets=70))
    text = physics(**shares, **few)
    assert "blew up: c7 17 %, c6 16 %, c5 15 %, c4 14 %, c3 13 % and 3 more\n" in text and "dropped" not in text
    assert "blew up" not in physics(**few)
    text = physics(few=dict(contact_overflows=3), none=dict(), many=dict(contact_overflows=400))
    assert "contacts were dropped: many 400 and few 3; do not trust their results" in text


def test_numbers_and_names_are_short():
    large = render_table(
        rank([Result("a", 0, "ok", 1234.56, 1169.56, 1299.56), Result("b", 0, "ok", -3.5, -4.0, -3.0)]), "m"
    )
    assert "1235 ± 65" in large and "-4 ±  " in large
    near = render_table(rank([ok("human", 0, 0.5), ok("a", 0, 0.4997), ok("b", 0, 0.4994)]), "m")
    assert "-0.000" not in near and "+0.000" in near and "-0.001" in near
    small = render_table(rank([ok("human", 0, 0.0), ok("a", 0, -1.72e-5), ok("b", 0, -6e-6)]), "m")
    assert " -1.72e-5 ± " in small and " -0.60e-5 ± " in small and "  0.00e-5 ± " in small
    assert [fixed(x, 1, "+") for x in (-0.04, 0.04, -0.06)] == ["+0.0", "+0.0", "-0.1"]
    assert [shorten("001_forward_velocity", n) for n in (20, 11)] == ["001_forward_velocity", "001_f…ocity"]
    assert [len(shorten("abcdefgh", n)) for n in range(8)] == list(range(8))


def test_bold_marks_the_best_only():
    plain, bold = (render_table(rank(SMALL), MEANING, 80, bold=b).splitlines() for b in (False, True))
    assert bold == [f"\033[1m{line}\033[0m" if k == 5 else line for k, line in enumerate(plain)] and "human" in plain[5]
    assert render_table([], "m").startswith("fitness: m\n") and render_failures(rank([ok("a", 0, 0.5)])) == ""
