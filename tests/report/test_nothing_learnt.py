"""What a ranking says if no candidate is above the untrained policy."""

from test_table import ok

from envcoder_bench.report.certainty import LONGER, nothing_learnt
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import STOPPED, Result

EXTEND = "eval-shapers --extend RUN --learning_iterations N"


def ranked(level, **fitness):
    given = {"human": 0.15, "unshaped": 0.1, "untrained": level, **fitness}
    return rank([ok(name, seed, x) for name, x in given.items() for seed in range(2)])


def test_nothing_is_said_where_a_candidate_is_above_it_or_it_is_unknown():
    assert nothing_learnt(ranked(0.197, a=0.198, b=0.1)) == ""
    assert nothing_learnt(rank([ok("human", 0, 0.1), ok("a", 0, 0.05)])) == ""


def test_numbers_and_remedy_are_named_where_no_candidate_is_above_it():
    text = nothing_learnt(ranked(0.197, a=0.196, b=0.1))
    assert "no candidate is above untrained" in text and "0.197; the highest-ranked, a, has 0.196" in text
    assert EXTEND in text
    assert "no candidate is above" in nothing_learnt(ranked(0.196, a=0.196))


def test_first_candidate_of_a_race_may_be_below_one_that_was_stopped():
    rows = [ok("untrained", 0, 0.2), ok("human", 0, 0.3), ok("a", 0, 0.1)]
    text = nothing_learnt(rank([*rows, Result("b", 0, STOPPED, 0.4, stopped_at=2)]))
    assert "the highest-ranked candidate, a with 0.100, is not above untrained" in text
    assert LONGER in text and EXTEND not in text
