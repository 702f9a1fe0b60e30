"""Two candidates share a group if and only if they cannot be told apart."""

import itertools

import numpy as np

from envcoder_bench.results import fitness_model
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import Result
from envcoder_bench.results.statistics import LEVEL, corrected
from envcoder_bench.results.tie_groups import letters, tie_groups


def shares(groups, count):
    return np.array([[any(a in group and b in group for group in groups) for b in range(count)] for a in range(count)])


def test_groups_are_of_all_ties_and_of_nothing_else():
    rng = np.random.default_rng(0)
    for count, share in itertools.product((1, 2, 5, 12), (0.0, 0.3, 0.7, 1.0)):
        apart = np.triu(rng.random((count, count)) < share, 1)
        apart = apart | apart.T
        groups = tie_groups(apart)
        assert np.array_equal(shares(groups, count), ~apart), "each candidate shares a group with itself"
        assert not any(set(a) < set(b) for a, b in itertools.permutations(groups, 2))
    assert tie_groups(np.zeros((0, 0), dtype=bool)) == []


def test_groups_on_a_line_are_the_fewest():
    fitness = np.array([9.0, 8.5, 8.1, 7.4, 7.3, 5.0, 4.9, 4.2, 1.0])
    groups = tie_groups(np.abs(fitness[:, None] - fitness) > 1.0)
    assert groups == [[0, 1, 2], [2, 3, 4], [5, 6, 7], [8]]


def test_letters_are_short():
    assert [letters(x) for x in ((), (0,), (0, 2), (3, 4, 5), (3, 4, 5, 6), (25, 26), (701, 702))] == [
        "", "a", "ac", "def", "d-g", "z aa", "zz aaa",
    ]  # fmt: skip


def test_ties_are_those_of_all_pairs_by_holms_method(monkeypatch):
    """The fast way over many pairs at once gives what the differences give one by one; some seeds are missing."""
    monkeypatch.setattr(fitness_model, "MOST_PAIRS", 7)
    rng = np.random.default_rng(1)
    rows = [
        Result(f"c{k:02d}" if k else "human", seed, "ok", 0.9 - 0.05 * k + 0.04 * rng.standard_normal(), episodes=64)
        for k in range(12)
        for seed in range(4)
        if (k, seed) not in ((3, 1), (5, 0))
    ]
    rows += [
        Result("untrained", 0, "ok", 0.1),
        Result("bad", 0, "failed"),
        Result("raced", 0, "stopped", 0.5, stopped_at=3),
    ]
    ranked = rank(rows)
    groups = {row.candidate: set(row.tie_groups) for row in ranked}
    assert groups["untrained"] == groups["bad"] == groups["raced"] == set()
    names = [name for name, of_name in groups.items() if of_name]
    by_seed = {name: {row.seed: row.fitness for row in rows if row.candidate == name} for name in names}
    model = FitnessModel(by_seed, failed=0.1)
    pairs = list(itertools.combinations(names, 2))
    p_values = corrected([model.difference(a, b).p for a, b in pairs])
    assert len(names) == 12 and 0 < sum(p < LEVEL for p in p_values) < len(pairs)
    for (a, b), p in zip(pairs, p_values, strict=True):
        assert bool(groups[a] & groups[b]) == (not p < LEVEL), (a, b)
    one_seed = rank([row for row in rows if row.seed == 0])
    assert not any(row.tie_groups for row in one_seed), "nothing is known of the spread of seeds"
