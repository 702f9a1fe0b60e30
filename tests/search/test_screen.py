"""Messages of a search for the terminal."""

import math

import pytest

from envcoder_bench.results.ranking import Ranked
from envcoder_bench.search import screen
from envcoder_bench.search.archive import FAILED_AT_LOAD, NO_CODE, Archive, Attempt, Proposal
from envcoder_bench.search.folder import Round
from envcoder_bench.search.llm import Usage
from envcoder_bench.search.providers.budget import Spent
from envcoder_bench.shaping.contract import Fault


def test_candidates_are_listed_with_status():
    left_out = ("compute_goal", "compute_torque")
    ready = [Proposal("r1_00", '"""r1_00, stay up."""\n', left_out=left_out)]
    ready += [Proposal("r1_01", "x = 1\n", origin="m, sample 1, repaired")]
    failed = [
        (Proposal("r1_02", "a = 1\nb = 2\n"), FAILED_AT_LOAD, Fault("wrong", "/a/r1_02.py", 2, "compute_reward")),
        (Proposal("r1_03", "", note="m: 500"), NO_CODE, Fault("no reply")),
    ]
    shown = screen.candidates(Round(1, ready, failed, {"r1_01": Fault("bad", "r1_01.py", 1)})).splitlines()
    assert shown == [
        "  r1_00    ready     stay up.",
        "                     without compute_goal and compute_torque: not in --shaper_types",
        "  r1_01    repaired  m, sample 1, repaired",
        "                     was: r1_01.py:1: bad",
        "  r1_02    failed    r1_02.py:2: in compute_reward: wrong",
        "                     > b = 2",
        "  r1_03    no code   no reply (m: 500)",
        "2 ready (1 repaired), 1 failed, 1 without code",
    ]
    assert screen.candidates(Round(1)) == "0 ready"


def test_spending_of_round_and_search_is_shown():
    told = screen.spending(Usage(3, 1200, 34, 0.5), Spent(99_000, 1.25))
    assert told == "3 replies, 1,200 tokens in and 34 out, $0.50; so far 99,000 tokens, $1.25"
    told = screen.spending(Usage(1, 10, 20, None), Spent(30, 0.0))
    assert told == "1 reply, 10 tokens in and 20 out, price unknown; so far 30 tokens"
    told = screen.spending(Usage(1, 1, 1, None), Spent(1, 0.0))
    assert told == "1 reply, 1 token in and 1 out, price unknown; so far 1 token"
    assert screen.spending(Usage(), Spent()) == ""


def test_best_so_far_says_what_is_expected_of_it():
    """Of twelve equal candidates one is 0.1 above the others with its seeds."""
    values = [[0.3 + 0.1 * math.sin(5 * k), 0.3 + 0.1 * math.sin(7 * k + 1)] for k in range(12)]
    attempts = [
        Attempt(f"r1_{k:02d}", 1, "", fitness=sum(own) / 2, by_seed=dict(enumerate(own)))
        for k, own in enumerate(values)
    ]
    human = {"human": Attempt("human", 0, "", fitness=0.3, by_seed={0: 0.25, 1: 0.35})}
    archive = Archive(attempts, human)
    best, (first, second) = archive.best(), screen.best_so_far(archive).splitlines()
    assert best is not None and best.fitness is not None
    mean, low, high = archive.merits().expected(best.name)
    assert low < 0.3 < mean < best.fitness - 0.02 and mean < high
    assert first == f"best so far: {best.name}, fitness {best.fitness:.4g}, mean of 2 seeds"
    assert second.startswith(f"expected on new seeds is a fitness of {mean:.4g} [")
    assert f"; {best.name} against human: cannot tell; difference " in second
    # one lucky seed
    late = [Attempt(f"r2_0{k}", 2, "", fitness=x, by_seed={2: x}) for k, x in enumerate((0.42, 0.3, 0.31))]
    told = screen.best_so_far(Archive([*attempts, *late], human))
    assert told.startswith("best so far: r1_") and "r2_00 has 0.42 on 1 seed, but 0.3" in told
    single = [Attempt(f"r1_{k:02d}", 1, "", fitness=own[0], by_seed={0: own[0]}) for k, own in enumerate(values)]
    assert "how surely is unknown: no candidate has two seeds" in screen.best_so_far(Archive(single))
    assert screen.best_so_far(Archive([], human)) == "no candidate has a fitness yet"


def row(name, versus=(math.nan, math.nan, math.nan), rank=1, faults=()):
    mean, low, high = versus
    numbers = dict(vs_human=mean, vs_human_ci_low=low, vs_human_ci_high=high)
    return Ranked(rank, name, "ok", 0.5, seeds=(5, 6) if rank else (), faults=faults, **numbers)


@pytest.mark.parametrize(
    ("best", "human", "told"),
    [
        (
            row("a", (0.2, 0.1, 0.3)),
            row("human"),
            "a is better than human: +0.2 [+0.1, +0.3] over 2 new seeds",
        ),
        (
            row("a", (0.2, -0.1, 0.3)),
            row("human"),
            "a against human: cannot tell; difference +0.2 [-0.1, +0.3] over 2 new seeds",
        ),
        (row("a", (-0.2, -0.3, -0.1)), row("human"), "a is worse than human: -0.2 [-0.3, -0.1] over 2 new seeds"),
        (row("a", (0.2, math.nan, math.nan)), row("human"), "too few for a confidence interval"),
        (row("a"), row("human", rank=None), "the human baseline has none to compare it with"),
        (
            row("a", rank=None, faults=(Fault("bad", "/b/a.py"),)),
            row("human"),
            "a has no fitness in the final evaluation: a.py: bad",
        ),
    ],
)
def test_verdict_compares_the_best_with_human(best, human, told):
    assert told in screen.verdict([human, best], "a")
