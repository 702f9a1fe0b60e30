"""Check, repair and record a round's candidates."""

from dataclasses import replace

import pytest

from envcoder_bench.results.logs import Point
from envcoder_bench.results.rows import FAILED as ROW_FAILED
from envcoder_bench.results.rows import STOPPED, Result
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search import screen
from envcoder_bench.search.archive import (
    FAILED,
    FAILED_AT_LOAD,
    NO_CODE,
    OK,
    Archive,
    Attempt,
    Proposal,
    read_archive,
    write_archive,
)
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.prompt.feedback import feedback, history_line, summary
from envcoder_bench.search.rounds import Checker, check_and_repair, record_again, record_round
from envcoder_bench.shaping.contract import Fault


class Checks:
    """A checker for which sources that begin with "bad" are wrong."""

    def __init__(self):
        self.checked = []

    def faults(self, proposals):
        self.checked.append([p.name for p in proposals])
        return {p.name: Fault(f"{p.source}!") for p in proposals if p.source.startswith("bad")}


class Mender:
    """Mends "bad 2" to "bad 1", that to "good", and gives "bad" up."""

    def __init__(self):
        self.told = []

    def repair(self, archive, failures):
        self.told.append([(p.name, str(fault)) for p, fault in failures])
        better = {"bad 2": "bad 1", "bad 1": "good"}
        return [Proposal(p.name, better[p.source]) if p.source in better else None for p, _ in failures]


PROPOSALS = [
    Proposal("r1_00", "fine"),
    Proposal("r1_01", "bad 1"),
    Proposal("r1_02", "bad 2"),
    Proposal("r1_03", "bad"),
    Proposal("r1_04", "", fault=Fault("declined")),
]


@pytest.mark.parametrize(
    ("repairs", "ready", "left"),
    [
        (0, {"r1_00": "fine"}, {"r1_01": "bad 1!", "r1_02": "bad 2!", "r1_03": "bad!"}),
        (1, {"r1_00": "fine", "r1_01": "good"}, {"r1_02": "bad 1!", "r1_03": "bad!"}),
        (2, {"r1_00": "fine", "r1_01": "good", "r1_02": "good"}, {"r1_03": "bad!"}),
        (9, {"r1_00": "fine", "r1_01": "good", "r1_02": "good"}, {"r1_03": "bad!"}),
    ],
)
def test_repairs_are_limited_to_the_given_number(repairs, ready, left):
    checks, mender = Checks(), Mender()
    round = check_and_repair(1, PROPOSALS, mender, Archive(), checks, repairs)
    assert {p.name: p.source for p in round.ready} == ready
    assert {p.name: str(fault) for p, status, fault in round.failed if status == FAILED_AT_LOAD} == left
    assert [(p.name, str(fault)) for p, status, fault in round.failed if status == NO_CODE] == [("r1_04", "declined")]
    first = {"r1_01": "bad 1!", "r1_02": "bad 2!"}
    assert round.repaired == {name: Fault(text) for name, text in first.items() if name in ready}
    assert checks.checked[0] == ["r1_00", "r1_01", "r1_02", "r1_03"]
    if repairs:
        assert checks.checked[1] == ["r1_01", "r1_02"]
        assert mender.told[0] == [("r1_01", "bad 1!"), ("r1_02", "bad 2!"), ("r1_03", "bad!")]
    assert len(mender.told) == min(repairs, 3)


def test_replies_without_code_are_repaired_and_failed_repairs_are_noted():
    class Model:
        def repair(self, archive, failures):
            sources = {"r1_01": "good", "r1_02": "", "r1_03": ""}
            notes = {"r1_02": ("no reply", "openai:m: 500: down"), "r1_03": ("nothing", "")}
            told = {p.name: notes.get(p.name, ("", "")) for p, _ in failures}
            return [
                Proposal(name, sources[name], fault=Fault(text) if text else None, note=note)
                for name, (text, note) in told.items()
            ]

    proposals = [
        Proposal("r1_00", "", fault=Fault("no reply"), note="openai:m: 429: wait"),
        *(Proposal(f"r1_0{k}", "", fault=Fault("no function"), reply="Hm.") for k in (1, 3)),
        Proposal("r1_02", "bad"),
    ]
    round = check_and_repair(1, proposals, Model(), Archive(), Checks(), 3)
    assert [p.source for p in round.ready] == ["good"] and round.repaired == {"r1_01": Fault("no function")}
    archive = record_round(Archive(), replace(round, ready=[]))
    lost = {a.name: (a.status, str(a.fault), a.reason) for a in archive.attempts}
    assert lost == {
        "r1_00": (NO_CODE, "no reply", "no reply (openai:m: 429: wait)"),
        "r1_02": (FAILED_AT_LOAD, "bad!", "bad! (its repair failed: no reply (openai:m: 500: down))"),
        "r1_03": (NO_CODE, "no function", "no function (its repair failed: nothing)"),
    }
    told = feedback(archive, 9000)
    assert "r1_00 was not trained: no reply\n" in told and "openai" not in told and "repair" not in told
    shown = screen.candidates(round)
    assert all(text in shown for text in ("no reply (openai:m: 429: wait)", "openai:m: 500: down"))


def test_results_of_a_run_are_recorded():
    best = Attempt("r1_00", 1, "best", fitness=0.75, by_seed={0: 0.5, 1: 1.0}, episode_length=10.0)
    other = Attempt("r1_01", 1, "other", fitness=0.1, by_seed={0: 0.1, 1: 0.1})
    before = Archive([best, other], {"human": Attempt("human", 0, "h", fitness=0.2, by_seed={0: 0.2, 1: 0.2})})
    rows = [
        *(Result("human", seed, fitness=0.5, episode_length=5.0) for seed in (2, 3)),
        *(Result("r1_00", seed, fitness=0.25, episode_length=20.0) for seed in (2, 3)),
        *(Result("r2_00", seed, fitness=seed / 10, episode_length=30.0 + seed) for seed in (2, 3)),
        Result("r2_01", 2, fitness=0.9, episode_length=30.0),
        Result("r2_01", 3, ROW_FAILED, fault=Fault("NaN", "/a/b/r2_01.py", 3, "compute_reward")),
        *(Result("r2_02", seed, FAILED_AT_LOAD, fault=Fault("no")) for seed in (2, 3)),
        *(Result(name, seed, fitness=0.1, episode_length=1.0) for name in ("r2_11", "r2_100") for seed in (2, 3)),
    ]
    point = Point("r2_00", 2, 5, 100, 0.25, 6.0, {"total reward": (1.0, 0.5, 2.0)})
    ready = [Proposal(name, name, ("r1_00",), "made") for name in ("r2_100", "r2_11", "r2_00", "r2_01", "r2_02")]
    after = record_round(before, Round(2, ready, [(Proposal("r2_03", ""), NO_CODE, Fault("declined"))]), rows, [point])
    order = ["r1_00", "r1_01", "r2_00", "r2_01", "r2_02", "r2_03", "r2_11", "r2_100"]
    assert [a.name for a in after.attempts] == order
    assert after.by_name["r2_11"].points == ()
    assert after.by_name["r1_00"].by_seed == {0: 0.5, 1: 1.0, 2: 0.25, 3: 0.25}
    assert after.by_name["r1_00"].fitness == pytest.approx(0.5)
    assert after.by_name["r1_01"] == other
    assert after.by_name["human"].fitness == pytest.approx(0.35)
    first = after.by_name["r2_00"]
    assert (first.round, first.status, first.fitness, first.episode_length) == (2, OK, pytest.approx(0.25), 32.5)
    assert (first.parents, first.origin, first.points) == (("r1_00",), "made", (point,))
    # one seed that fails makes a candidate that cannot be relied on
    assert (after.by_name["r2_01"].status, after.by_name["r2_01"].fitness) == (FAILED, None)
    assert after.by_name["r2_01"].fault == Fault("NaN", "r2_01.py", 3, "compute_reward")
    assert after.by_name["r2_02"].status == FAILED_AT_LOAD
    assert (after.by_name["r2_03"].status, after.by_name["r2_03"].fault) == (NO_CODE, Fault("declined"))
    assert after.best().name == "r1_00"
    assert before.attempts == [best, other]


def test_attempts_stopped_by_a_race_rank_last_and_are_no_reference():
    human = Attempt("human", 0, "h", fitness=0.2, by_seed={0: 0.2})
    best = Attempt("r1_00", 1, "best", fitness=0.75, by_seed={0: 0.75})
    rows = [
        Result("human", 1, fitness=0.2, episode_length=1.0),
        Result("r1_00", 1, STOPPED, fitness=0.3, episode_length=1.0, stopped_at=40, reason="rank 4 of 5"),
        Result("r2_00", 1, fitness=0.4, episode_length=1.0),
        Result("r2_01", 1, STOPPED, fitness=0.5, episode_length=1.0, stopped_at=40, reason="rank 5 of 5"),
    ]
    round = Round(2, [Proposal(name, name) for name in ("r2_00", "r2_01")], [])
    after = record_round(Archive([best], {"human": human}), round, rows)
    assert after.by_name["r1_00"] == best  # what it reached in a whole training stays
    assert (after.by_name["r2_01"].stopped_at, after.by_name["r2_01"].fitness) == (40, 0.5)
    assert after.by_name["r2_01"].outcome == "stopped at 40" and after.by_name["r2_00"].outcome == "ok"
    assert after.order() == ["r1_00", "r2_00", "human", "r2_01"]
    assert "r2_01" not in after.merits().names  # a shorter training says nothing of the others
    assert "when stopped at iteration 40" in history_line(after.by_name["r2_01"], after)
    assert "stopped at iteration 40" in summary(after.by_name["r2_01"], after)


def test_results_that_are_recorded_again_count_once():
    proposals = [Proposal("r1_00", "one"), Proposal("r1_01", "two")]
    rows = [Result("r1_00", 1, fitness=0.5, episode_length=9.0, ended="3 falls")]
    rows += [Result("r1_01", 1, fitness=0.4, stopped_at=2)]
    archive = record_round(Archive(), Round(1, proposals, [], {}), rows)
    validation = [Result("r1_00", seed, fitness=0.7, episode_length=7.0, ended="2 falls") for seed in (2, 3)]
    once = record_again(archive, validation)
    best, raced = once.attempts
    assert best.by_seed == {1: 0.5, 2: 0.7, 3: 0.7} and best.ended == "7 falls" and raced == archive.attempts[1]
    assert record_again(once, validation) == once


@pytest.mark.slow
def test_checker_errors_have_no_folders(tmp_path):
    folder = SearchFolder.create(tmp_path / "a search", {"llm": "evolve"}, {})
    cfg = compose_config("Cartpole", ["num_envs_per_candidate=2", "sim=mujoco_cpu", "device=cpu", "untrusted=true"])
    proposals = [
        Proposal("r1_00", "# x\n" * 30_000),
        Proposal("r1_01", "def compute_reward(:"),
        Proposal("r1_02", "x = 1"),
    ]
    faults = Checker(folder, RunSpec.of(cfg), Archive()).faults(proposals)
    assert str(faults["r1_00"]) == "r1_00.py: has more than 100000 characters"
    assert (faults["r1_01"].place, faults["r1_02"].place) == ("r1_01.py:1", "r1_02.py")
    assert not any(str(tmp_path) in str(fault) for fault in faults.values())


def test_failed_baseline_keeps_earlier_results():
    human = Attempt("human", 0, "h", fitness=0.2, by_seed={0: 0.2})
    archive = Archive([], {"human": human, "unshaped": Attempt("unshaped", 0, "u")}, "unshaped", {1: (0,)})
    rows = [
        Result("human", 1, ROW_FAILED, fault=Fault("NaN", "/x/human.py", 3, "compute_reward")),
        Result("human", 2, fitness=0.4, episode_length=7.0),
        Result("unshaped", 1, ROW_FAILED, fault=Fault("no")), Result("unshaped", 2, ROW_FAILED, fault=Fault("no")),
        *(Result("r2_00", seed, fitness=0.5, fitness_ci_low=0.4, fitness_ci_high=0.6) for seed in (1, 2)),
    ]  # fmt: skip
    after = record_round(archive, Round(2, [Proposal("r2_00", "x")]), rows)
    assert after.baselines["human"].by_seed == {0: 0.2, 2: 0.4} and after.baselines["human"].status == OK
    assert (after.baselines["unshaped"].status, after.baselines["unshaped"].fault) == (FAILED, Fault("no"))
    assert (after.reference, after.seeds) == ("unshaped", {1: (0,), 2: (1, 2)})
    rows = [
        *(Result(name, 3, fitness=0.6) for name in ("human", "unshaped")),
        Result("r3_00", 3, fitness=0.5, fitness_ci_low=0.45, fitness_ci_high=0.55),
    ]
    again = record_round(after, Round(3, [Proposal("r3_00", "x")]), rows)
    assert again.baselines["unshaped"].status == OK and again.baselines["unshaped"].by_seed == {3: 0.6}
    assert (
        again.interval(again.by_name["r3_00"], again.model()) == (0.45, 0.55)
        and again.by_name["r2_00"].over_episodes is None
    )


def test_untrained_policy_is_compared_but_is_neither_a_parent_nor_an_anchor(tmp_path):
    archive = Archive(baselines={name: Attempt(name, 0, "x = 1") for name in ("human", "unshaped")})
    for number, level in ((1, 0.2), (2, 0.6)):
        fitness = {"human": level, "unshaped": level - 0.1, "untrained": 0.9, f"r{number}_00": level + 0.1}
        rows = [Result(name, number, fitness=x, episode_length=5.0) for name, x in fitness.items()]
        archive = record_round(archive, Round(number, [Proposal(f"r{number}_00", "y = 1")], []), rows)
    assert archive.untrained.by_seed == {1: 0.9, 2: 0.9} and set(archive.baselines) == {"human", "unshaped"}
    without = replace(archive, untrained=None)
    names = without.merits().names
    assert [archive.merits().score(name) for name in names] == [without.merits().score(name) for name in names]
    assert archive.order()[0] == "untrained" and archive.best().name in ("r1_00", "r2_00")
    write_archive(tmp_path / "archive.json", archive)
    assert read_archive(tmp_path / "archive.json").untrained == archive.untrained
    assert "untrained (the policy before training): 0.9" in feedback(archive, 10_000)
    assert "nothing has been learned yet" in screen.best_so_far(archive)
