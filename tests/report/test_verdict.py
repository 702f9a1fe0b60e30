"""What a run decides, in the order of the console and of the page: winner, against the next, what to do, and hacks."""

from dataclasses import replace

from page_fakes import HtmlPage, fake_page
from test_table import ok

from envcoder_bench.report.certainty import half_step, verdict
from envcoder_bench.report.page.run import render_page
from envcoder_bench.results.pairs import run_pairs, sentence
from envcoder_bench.results.ranking import fitness_model, rank

NOISE = (0.0, 0.02, -0.01, 0.015)


def run_of(means, **facts):
    """Rows of four seeds; candidates differ more between seeds than this."""
    rows = [
        ok(name, seed, mean + x * (1 - 2 * (k % 2)) + 0.003 * k * seed, **facts.get(name, {}))
        for k, (name, mean) in enumerate(means.items())
        for seed, x in enumerate(NOISE)
    ]
    ranked = rank(rows)
    return ranked, run_pairs(fitness_model(rows), ranked)


def test_winner_is_compared_with_the_next_and_the_next_step_is_named():
    ranked, pairs = run_of({"human": 0.2, "a": 0.9, "b": 0.5})
    lines = verdict(ranked, pairs, "R")
    assert lines[0] == "a is the best with a probability of 95 %"
    assert lines[1] == sentence(pairs.of("a", "b")) and lines[1].startswith("a is better than b: +0.")
    assert lines[2] == "why: envcoder-bench compare R a b"
    ranked, pairs = run_of({"human": 0.2, "a": 0.9, "b": 0.87})
    lines = verdict(ranked, pairs, "R")
    assert "may be the best, too" in lines[0] and lines[1].startswith("a against b: cannot tell; difference +0.")
    assert "seeds would tell" in lines[2]


def test_what_unseen_outcomes_may_put_first_may_be_the_best():
    for second, hidden in ((0.7, True), (0.1, False)):
        means = {"human": 0.2, "a": 0.95, "b": second}
        rows = [ok(name, seed, mean + 0.01 * (seed % 2)) for name, mean in means.items() for seed in range(4)]
        ranked = rank(rows, bounds=(0.0, 1.0))
        lines = verdict(ranked, run_pairs(fitness_model(rows, (0.0, 1.0)), ranked), "R")
        may_be = ("a is first; 1 candidate (b) may be the best, too", "a is the best with a probability of 95 %")
        assert lines[0] == may_be[not hidden]
        assert ("4 seeds may not have shown outcomes that explain it" in lines[1]) == hidden


def test_one_seed_decides_nothing():
    rows = [ok(name, 0, x) for name, x in (("human", 0.2), ("a", 0.9), ("b", 0.5))]
    ranked = rank(rows)
    (line,) = verdict(ranked, run_pairs(fitness_model(rows), ranked), "R")
    assert line.startswith("one seed: ") and "--extend R --seeds 3" in line


def test_half_the_physics_step_is_named_also_where_nothing_is_lost():
    measured = {name: {"half_step_fitness": value} for name, value in (("a", 0.93), ("human", 0.19))}
    ranked, pairs = run_of({"human": 0.2, "a": 0.9}, **measured)
    (line,) = half_step(ranked)
    assert line.startswith("half the physics step: no candidate loses fitness; the lowest change is -0.0")
    assert line.endswith(", of human") and line in verdict(ranked, pairs)
    worse = [replace(row, hacked="with half the physics step its fitness is 0.100, not 0.900") for row in ranked]
    assert half_step(worse) == [] and "hacked? " in verdict(worse)[-1]
    assert half_step(run_of({"human": 0.2, "a": 0.9})[0]) == []


def test_page_begins_with_the_verdict_of_the_console():
    run = fake_page()
    page = HtmlPage(render_page(run))
    shown = "".join(page.text)
    lines = verdict(run.ranked, run.pairs, run.folder)
    places = [shown.index(line) for line in lines]
    assert places == sorted(places) and places[-1] < shown.index("Ranking")
    assert ("span", {"class": "flag"}) in page.tags  # which does not break at its hyphens
    # a run with variants compares them with their originals, and has no best
    terms = "".join(HtmlPage(render_page(replace(run, lead=["terms of m"], best=False, pairs=None))).text)
    assert "terms of m" in terms and "is the best" not in terms and "Probability that it is the best" not in terms
