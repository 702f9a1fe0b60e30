"""What attempts are ranked by: differences to the baseline with the same seeds, one lucky seed apart."""

import math
import random

import pytest

from envcoder_bench.search import records
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.feedback import feedback
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.merit import beats, levels
from envcoder_bench.search.records import Archive, Attempt
from envcoder_bench.search.screen import standing

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


def test_a_lucky_round_does_not_make_the_best(tmp_path):
    archive = three_rounds()
    highest = max(archive.attempts, key=lambda a: a.fitness)
    assert highest.name == "r3_01" and highest.fitness == pytest.approx(0.2471)  # which ranking by fitness would choose
    assert archive.best().name == "r1_00"
    assert archive.merits()["r1_00"].mean == pytest.approx(0.163)
    assert archive.merits()["r3_01"].mean == pytest.approx(0.0001)
    # parents, prompts, "best so far" and best.py follow
    assert EvolveProposer(["compute_reward"]).propose(archive, 4, 4)[0].parents[0] == "r1_00"
    told = feedback(archive, 50_000)
    assert told.split("## The best so far\n")[1].startswith("r1_00, of round 1: fitness 0.206 ")
    assert "human: fitness 0.128 ± 0.26 over 3 seeds: 0.043 in round 1, 0.095 in round 2, 0.247 in round 3\n" in told
    assert standing(archive).startswith("best so far: r1_00, fitness 0.206; +0.163 against human")
    assert standing(archive).endswith("(r3_01 has 0.2471, but is only +0.0001 against human)")
    folder = SearchFolder.create(tmp_path / "search", {"llm": "evolve"}, {})
    folder.write_archive(archive)
    assert folder.best.read_text() == archive.find("r1_00").source
    assert folder.read_archive() == archive


def test_within_a_round_the_order_is_that_of_fitness():
    archive = three_rounds()
    for number in (1, 2, 3):
        own = archive.of_round(number)
        assert archive.ranked(own) == sorted(own, key=lambda a: -a.fitness)


@pytest.mark.parametrize("seed", range(20))
def test_the_luck_of_a_round_changes_nothing(seed):
    """What is added to everyone's fitness with a seed, the baselines' included, has no influence on the order."""
    rng = random.Random(seed)
    seeds = range(6)
    luck = {s: rng.uniform(-5, 5) for s in seeds}
    plain, shifted = [], []
    for shift, found in ((dict.fromkeys(seeds, 0.0), plain), (luck, shifted)):
        values = random.Random(seed + 1)
        attempts = []
        for k in range(12):
            own = sorted(values.sample(seeds, values.randint(1, 4)))
            attempts.append(attempt(f"r1_{k:02d}", {s: values.random() + shift[s] for s in own}))
        baselines = {
            name: baseline(name, {s: values.random() + shift[s] for s in seeds}) for name in ("human", "unshaped")
        }
        found += [a.name for a in Archive(attempts, baselines).ranked()]
    assert plain == shifted


def test_one_lucky_seed_does_not_beat_what_has_proved_itself():
    human = baseline("human", {s: 0.5 for s in range(5)})
    poor = [attempt(f"r1_0{k}", {0: 0.2}) for k in range(5)]
    proved = attempt("r1_05", {0: 0.8, 1: 0.8, 2: 0.8})
    lucky = attempt("r3_06", {2: 0.85})
    archive = Archive([*poor, proved, lucky], {"human": human})
    assert archive.best() is proved  # (3 x 0.3 - 0.3) / 4 against (0.35 - 0.3) / 2
    assert "(r3_06 is +0.35 against human, but on 1 seed only)" in standing(archive)
    again = lucky.measured_again({3: 0.95, 4: 0.95})
    assert Archive([*poor, proved, again], {"human": human}).best() is again


def test_an_unlucky_baseline_does_not_make_the_best():
    """As it was in a search on Cartpole: human had 1, 1 and 0.191, and all of the third round were near it."""
    human = baseline("human", {0: 1.0, 1: 1.0, 2: 0.191})
    champion = attempt("r1_00", {0: 0.21, 1: 0.21, 2: 0.191})  # trained again in every round
    second = [attempt("r2_00", {1: 0.1}), attempt("r2_01", {1: 0.15})]
    third = [attempt("r3_00", {2: 0.09}), attempt("r3_01", {2: 0.05})]
    archive = Archive([champion, *second, *third], {"human": human})
    assert archive.merits()["r3_00"].score > archive.merits()["r1_00"].score
    assert archive.best() is champion
    rival = "r3_00 is -0.101 against human, but r1_00 did 0.101 better with the same seeds"
    assert standing(archive).endswith(f" ({rival})")
    assert [a.name for a in archive.ranked()] == ["r1_00", "r3_00", "r3_01", "r2_01", "r2_00"]
    # one that beats it with the same seed takes its place; and one of another round is not held back by it
    better = attempt("r3_02", {2: 0.2})
    assert Archive([champion, *second, *third, better], {"human": human}).best() is better
    lucky = attempt("r2_02", {1: 0.9})
    names = [a.name for a in Archive([champion, *second, lucky, *third], {"human": human}).ranked()]
    assert names[:2] == ["r2_02", "r1_00"]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_before_what_beats_it_and_all_are_there(seed):
    rng = random.Random(seed)
    attempts = []
    for k in range(25):
        own = rng.sample(range(6), rng.choice([1, 1, 1, 2, 3, 6]))
        attempts.append(attempt(f"r1_{k:02d}", {s: rng.choice([0.1, 0.2, 0.3, rng.random()]) for s in own}))
    archive = Archive(attempts, {"human": baseline("human", {s: rng.random() for s in range(5)})})
    ranked = archive.ranked()
    assert sorted(a.name for a in ranked) == [a.name for a in attempts]
    for place, later in enumerate(ranked):
        assert not any(beats(later.by_seed, earlier.by_seed) for earlier in ranked[:place])
    # where neither holds the other back, the score decides: each one is the best of those that nothing left beats
    left = list(ranked)
    while left:
        free = [a for a in left if not any(beats(other.by_seed, a.by_seed) for other in left)]
        assert archive.merits()[left[0].name].rank == max(archive.merits()[a.name].rank for a in free)
        left.pop(0)


def test_of_equals_the_earlier_is_the_better():
    human = baseline("human", {0: 0.5, 1: 0.75})
    first, second, third = attempt("r1_00", {0: 0.75}), attempt("r1_01", {0: 0.75}), attempt("r2_00", {1: 1.0})
    assert Archive([first, second, third], {"human": human}).ranked() == [first, second, third]
    assert Archive([third, second, first], {"human": human}).ranked() == [third, second, first]


def test_the_reference_is_the_baseline_that_fills_in():
    baselines = {"human": baseline("human", {0: 0.1, 1: 0.9}), "unshaped": baseline("unshaped", {0: 0.9, 1: 0.1}, 0.6)}
    one, two = attempt("r1_00", {0: 0.5}), attempt("r2_00", {1: 0.5})
    assert Archive([one, two], baselines).best() is one
    assert Archive([one, two], baselines, "unshaped").best() is two


def test_where_the_reference_failed_the_other_baseline_stands_in():
    human, unshaped = {0: 0.5, 1: 0.7}, {0: 0.2, 1: 0.4, 2: 0.9}
    found = levels({"unshaped": unshaped, "human": human}, "human")
    assert found == {0: 0.5, 1: 0.7, 2: pytest.approx(0.9 + 0.3)}  # human is 0.3 above it elsewhere
    archive = Archive(
        [attempt("r1_00", {0: 0.6}), attempt("r3_00", {2: 1.1}), attempt("r3_01", {2: 1.25})],
        {"human": baseline("human", human), "unshaped": baseline("unshaped", unshaped, 0.6)},
    )
    assert [a.name for a in archive.ranked()] == ["r1_00", "r3_01", "r3_00"]
    # never measured: another one is the reference; it has no seed in common: only its own count
    assert levels({"human": {}, "unshaped": unshaped}, "human") == unshaped
    assert levels({"human": {0: 0.5}, "unshaped": {1: 0.1}}, "human") == {0: 0.5}
    assert levels({"human": {}, "unshaped": {}}, "human") == levels({}, "human") == {}


def test_what_no_baseline_can_be_compared_with_comes_last():
    human = baseline("human", {0: 0.5})
    poor, alone, better = attempt("r1_00", {0: 0.1}), attempt("r2_00", {1: 0.9}), attempt("r2_01", {1: 0.95})
    partly = attempt("r1_01", {0: 0.2, 1: 0.8})  # by the seed that human had, too
    archive = Archive([poor, alone, better, partly], {"human": human})
    assert archive.ranked() == [partly, poor, better, alone]
    assert not archive.merits()["r2_00"].paired


def test_without_baselines_fitness_ranks():
    poor = [attempt(f"r1_0{k}", {0: 0.2}) for k in range(5)]
    proved, lucky = attempt("r1_05", {0: 0.8, 1: 0.8, 2: 0.8}), attempt("r3_06", {2: 0.85})
    assert Archive([*poor, proved, lucky]).best() is proved
    assert Archive([*poor, lucky]).best() is lucky
    bare = [Attempt("a", 1, "", fitness=0.1), Attempt("b", 1, "", fitness=0.3), Attempt("c", 1, "", fitness=math.nan)]
    assert [a.name for a in Archive(bare).ranked()] == ["b", "a"]
    assert Archive([Attempt("x", 1, "", status=records.FAILED)]).best() is None


def test_a_failed_attempt_is_never_the_best():
    human = baseline("human", {0: 0.1})
    failed = Attempt("r1_00", 1, "", status=records.FAILED, by_seed={0: 0.9})
    good = attempt("r1_01", {0: 0.2})
    assert Archive([failed, good], {"human": human}).ranked() == [good]
