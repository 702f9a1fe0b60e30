"""The shrunken fitness of a search's candidates: its equations, what it ranks first, and how often it is right."""

import math
import random

import numpy as np
import pytest

from envcoder_bench.results.pairs import BETTER, CANNOT_TELL, WORSE
from envcoder_bench.search import archive as records
from envcoder_bench.search import merit
from envcoder_bench.search.archive import Archive, Attempt, write_archive
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.merit import Merits
from envcoder_bench.search.prompt.feedback import feedback
from envcoder_bench.search.screen import best_so_far

LUCK = {0: 0.043, 1: 0.095, 2: 0.247}  # of the human baseline, with the seeds of three rounds


def source(weight):
    return f'"""Weight {weight}."""\n\n\ndef compute_reward(pole_angle):\n    return 1.0 - {weight} * pole_angle\n'


def attempt(name, by_seed, **known):
    fitness = math.fsum(by_seed.values()) / len(by_seed)
    text = source(0.1 + 0.01 * int(name[3:]) + int(name[1]))
    return Attempt(name, int(name[1]), text, fitness=fitness, by_seed=by_seed, **known)


def baseline(name, by_seed, weight=0.5):
    fitness = math.fsum(by_seed.values()) / len(by_seed) if by_seed else None
    return Attempt(name, 0, source(weight), fitness=fitness, by_seed=by_seed)


def three_rounds():
    """A search as it was: human scored 0.043, 0.095 and 0.247 in its rounds, each with a seed of its own.

    One of the first round's candidates had beaten it by 0.163, and one of the third had it beaten by 0.0001.
    """
    above = {0: [0.163, -0.02, -0.03, 0.01], 1: [-0.05, -0.04, 0.02, -0.01], 2: [-0.1, 0.0001, -0.03, -0.06]}
    attempts = [
        attempt(f"r{seed + 1}_0{k}", {seed: LUCK[seed] + x}) for seed, xs in above.items() for k, x in enumerate(xs)
    ]
    baselines = {"human": baseline("human", LUCK), "unshaped": baseline("unshaped", dict.fromkeys(LUCK, 0.02), 0.6)}
    return Archive(attempts, baselines, seeds={1: (0,), 2: (1,), 3: (2,)})


@pytest.mark.slow
def test_easy_round_does_not_determine_the_best(tmp_path):
    archive = three_rounds()
    highest = max(archive.attempts, key=lambda a: a.fitness)
    assert highest.name == "r3_01" and highest.fitness == pytest.approx(0.2471)  # which ranking by fitness would choose
    assert archive.best().name == "r1_00"
    # parents, prompts, "best so far" and best.py follow
    assert EvolveProposer(["compute_reward"]).propose(archive, 4, 4)[0].parents[0] == "r1_00"
    assert feedback(archive, 50_000).split("## Candidates\n")[1].startswith("r1_00")
    assert best_so_far(archive).startswith(
        "best so far: r1_00, fitness 0.206\nexpected on new seeds is a fitness of 0.1"
    )
    folder = SearchFolder.create(tmp_path / "search", {"llm": "evolve"}, {})
    write_archive(folder.archive, archive)
    folder.write_best(archive, {})
    assert folder.best.read_text() == archive.by_name["r1_00"].source
    assert folder.read_archive() == archive


def results(rng, truth, seeds_of, noise=1.0, luck=0.5):
    """Simulated fitness by seed of names with a true one."""
    effects = {seed: rng.normal() * luck for seeds in seeds_of.values() for seed in seeds}
    return {
        name: {seed: float(truth[name] + effects[seed] + noise * rng.normal()) for seed in seeds_of[name]}
        for name in truth
    }


def test_estimates_are_those_of_generalized_least_squares(monkeypatch):
    """An oracle: with known variances, by the covariance matrix of all results."""
    share = 0.6, 0.3
    monkeypatch.setattr(merit, "SHARES", tuple(np.array([x]) for x in share))
    monkeypatch.setattr(merit, "EQUAL", 0.0)
    rng = np.random.default_rng(3)
    seeds_of = {"human": [0, 1, 2], "r1_00": [0, 2], "r1_01": [0], "r1_02": [0], "r2_00": [1, 2], "r2_01": [1]}
    fitness = results(rng, dict.fromkeys(seeds_of, 0.0), seeds_of)
    merits = Merits(fitness, {*seeds_of} - {"human"}, "human")
    # rows: fixed effects of human and of the mean of candidates; V = noise + candidates + seeds
    rows = [(name, seed) for name in fitness for seed in fitness[name]]
    y = np.array([fitness[name][seed] for name, seed in rows])
    fixed = np.array([[name == "human", name != "human"] for name, _ in rows], dtype=float)
    tau, rho = (x / (1 - x) for x in share)
    same = np.array([[tau * (a == b and a != "human") for b, _ in rows] for a, _ in rows])
    v = np.eye(len(rows)) + same + np.array([[rho * (a == b) for _, b in rows] for _, a in rows])
    inverse = np.linalg.inv(v)
    beta = np.linalg.solve(fixed.T @ inverse @ fixed, fixed.T @ inverse @ y)
    rest = inverse @ (y - fixed @ beta)
    for name in fitness:
        row = next(k for k, (own, _) in enumerate(rows) if own == name)
        expected = fixed[row] @ beta + same[row] @ rest
        assert merits.expected(name)[0] == pytest.approx(expected, abs=1e-9)
        assert merits.score(name) == pytest.approx(expected - beta[0], abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_shifts_of_seeds_do_not_change_the_best(seed):
    """A constant added to every fitness of one seed, baselines included, does not change who is ahead."""
    rng = random.Random(seed)
    seeds = range(6)
    luck, best = {s: rng.uniform(-5, 5) for s in seeds}, []
    for shift in (dict.fromkeys(seeds, 0.0), luck):
        values = random.Random(seed + 1)
        attempts = [attempt("r1_12", {s: 1.0 + values.random() + shift[s] for s in (0, 1)})]
        for k in range(12):
            own = sorted(values.sample(seeds, values.randint(1, 4)))
            attempts.append(attempt(f"r1_{k:02d}", {s: values.random() + shift[s] for s in own}))
        baselines = {
            name: baseline(name, {s: values.random() + shift[s] for s in seeds}) for name in ("human", "unshaped")
        }
        best.append(Archive(attempts, baselines).best().name)
    assert best == ["r1_12", "r1_12"]


def test_candidate_with_one_good_seed_does_not_beat_one_with_several():
    human = baseline("human", {s: 0.5 + 0.1 * (s % 2) for s in range(5)})
    poor = [attempt(f"r{1 + k % 3}_0{k}", {k % 3: 0.5 + 0.02 * k}) for k in range(6)]
    proved = attempt("r1_06", {0: 0.82, 1: 0.78, 2: 0.8})
    lucky = attempt("r3_07", {2: 0.82})
    archive = Archive([*poor, proved, lucky], {"human": human})
    assert archive.best() is proved and archive.merits().expected("r3_07")[0] < 0.8
    again = lucky.measured_again({3: 0.95, 4: 0.95})
    assert Archive([*poor, proved, again], {"human": human}).best() is again


def test_baseline_that_always_fails_says_nothing_of_the_spread():
    seeds = range(4)
    human = {s: 0.5 + 0.2 * (s % 2) for s in seeds}
    fitness = {"human": human, "r1_00": {0: 0.7}, "r1_01": {0: 0.4}, "r1_02": {0: 0.5}}
    own = {*fitness} - {"human"}
    alone = Merits(fitness, own, "human")
    beside = Merits({**fitness, "unshaped": dict.fromkeys(seeds, 0.0), "untrained": {0: 0.1, 1: -0.1}}, own, "human")
    for name in fitness:
        assert beside.expected(name) == pytest.approx(alone.expected(name))
    assert beside.pair("unshaped", "human").verdict != BETTER


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_intervals_hold_the_truth_and_few_equal_candidates_are_said_to_be_better(spread):
    rng = np.random.default_rng(5)
    held, better, count = [], 0, 10
    for _ in range(count):
        names = [f"r{r}_0{k}" for r in (1, 2, 3) for k in range(4)]
        seeds_of = {name: [int(name[1])] for name in names}
        seeds_of.update({"human": [1, 2, 3], "unshaped": [1, 2, 3], "r1_00": [1, 2, 3], "r2_00": [2, 3]})
        truth = {name: float(spread * rng.normal()) if name in names else 0.0 for name in seeds_of}
        merits = Merits(results(rng, truth, seeds_of), names, "human")
        pairs = [merits.pair(name, "human") for name in names]
        held += [pair.low <= truth[pair.first] <= pair.high for pair in pairs]
        better += any(pair.verdict == BETTER and truth[pair.first] <= 0 for pair in pairs)
    assert np.mean(held) > 0.93
    assert better / count <= 0.1  # 5 % and what 10 searches leave to chance


def test_difference_is_better_worse_or_cannot_be_told():
    def of(gap, seeds):
        noise = (0.0, 0.1, -0.1, 0.05)
        rows = {name: {s: x + noise[(s + k) % 4] for s in range(seeds)} for k, (name, x) in
                enumerate({"human": 0.5, "r1_00": 0.5 + gap, "r1_01": 0.4, "r1_02": 0.45}.items())}  # fmt: skip
        return Merits(rows, {*rows} - {"human"}, "human").pair("r1_00", "human")

    assert of(1.0, 4).verdict == BETTER and of(-1.0, 4).verdict == WORSE and of(0.02, 4).verdict == CANNOT_TELL
    alone = of(1.0, 1)
    assert alone.verdict == CANNOT_TELL and math.isnan(alone.low) and "no candidate has two seeds" in str(alone)


def test_fitness_ranks_without_baselines():
    poor = [attempt(f"r1_0{k}", {0: 0.2 + 0.01 * k}) for k in range(5)]
    proved, lucky = attempt("r1_05", {0: 0.8, 1: 0.81, 2: 0.8}), attempt("r1_06", {0: 0.85})
    assert Archive([*poor, lucky]).best() is lucky
    assert Archive([*poor, proved]).best() is proved
    bare = [Attempt("a", 1, "", fitness=0.1), Attempt("b", 1, "", fitness=0.3), Attempt("c", 1, "", fitness=math.nan)]
    assert [a.name for a in Archive(bare).ranked()] == ["b", "a"]
    equal = [attempt(f"r1_0{k}", {0: 0.1 + 0.2}) for k in range(9)]
    assert Archive(equal).ranked() == equal  # the earlier first
    assert Archive([Attempt("x", 1, "", status=records.FAILED)]).best() is None


def test_rewards_of_others_take_no_place_among_the_best():
    copies = [attempt(f"r1_0{k}", {0: 0.9 - 0.01 * k}, same_as="human") for k in range(5)]
    archive = Archive([*copies, attempt("r1_05", {0: 0.5}), attempt("r1_06", {0: 0.4})])
    assert [a.name for a in archive.leaders(5)] == ["r1_05", "r1_06"] and archive.best().name == "r1_05"
    assert Archive(copies).leaders(5) == [] and Archive(copies).best() is copies[0]
    assert len(archive.ranked()) == 7
