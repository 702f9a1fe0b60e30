"""A race stops candidates at rungs; what it does not stop comes out as in a run without a race, to the last bit."""

import json
import weakref

import pandas as pd
import pytest
import torch
from helpers import (
    BREAKS_MIDWAY,
    CARTPOLE_QUICK,
    FIVE_ACTIONS,
    TINY_WORDS,
    WIDE,
    assert_same_policies,
    assert_same_tables,
    assert_same_weights,
    refused,
    run,
    write_candidates,
)

from envcoder_bench import resume
from envcoder_bench.cli import eval_shapers
from envcoder_bench.compile import building
from envcoder_bench.results.logs import read_episodes
from envcoder_bench.results.rows import STOPPED, read_results
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.hooks import Reporter
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, split
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train import executor, rungs
from envcoder_bench.run.train.rungs import decide
from envcoder_bench.run.workers import worker
from envcoder_bench.tasks.base import BASELINES, UNTRAINED
from envcoder_bench.video.page import write_page

ITERATIONS, RUNGS = 5, [2, 4]
REWARD = "def compute_reward(pole_angle, actions):\n    return {}\n"
CANDIDATES = {
    "angle": REWARD.format("torch.cos(pole_angle)"),
    "backwards": REWARD.format("-torch.cos(pole_angle)"),
    "breaks_midway": BREAKS_MIDWAY.replace("25", "2"),  # before its first evaluation
    "five_actions": FIVE_ACTIONS,
    "lazy": REWARD.format("-actions[:, 0].abs()"),
    "square": REWARD.format("1.0 - pole_angle.square()"),
    "wide": WIDE,
}
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 8, "--learning_iterations", ITERATIONS, "--seeds", 2,
    f"evaluation.points={ITERATIONS}", "evaluation.num_envs=4", "evaluation.final_episodes=4",
    f"race.rungs={RUNGS}".replace(" ", ""), *TINY_WORDS,
]  # fmt: skip
RACE = ["--race", "race.keep=0.6"]
LOGS = ("curves.csv", "components.csv", "points.csv", "episodes.csv", "step_fitness.csv")


@pytest.fixture(scope="module", autouse=True)
def learned():
    """So short a training is noise, by which nobody would be stopped: take the ranks for what they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rungs, "learned", lambda *_: True)
        yield


def words(folder, *more):
    files = write_candidates(folder / "files", CANDIDATES)
    return [str(word) for word in (*WORDS, "--candidates", *files, *more)]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    return run(folder / "run", *words(folder, "evaluation.record=true"))


@pytest.fixture(scope="module")
def in_waves(full):
    """A limit with which the run begins in several waves."""
    cfg, sources = RunFolder(full).read()
    groups, _ = prepare(RunSpec.of(cfg, sources))
    planner = MemoryPlanner(RunSpec.of(cfg))
    return ["--max_memory", f"{max(planner.plan(wave).needed for wave in split(groups, 3))}B"]


@pytest.fixture(scope="module")
def raced(tmp_path_factory, in_waves):
    folder = tmp_path_factory.mktemp("raced")
    return run(folder / "run", *words(folder, *RACE, *in_waves))


def rows(folder):
    return {(row.candidate, row.seed): row for row in read_results(folder / "results.csv")}


def log_rows(folder, name):
    table = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
    return {key: own.values.tolist() for key, own in table.groupby(["candidate", "seed"])}


def assert_alike(output, expected):
    """All files of two races are equal, but for times."""
    assert_same_tables(output, expected, ("results.csv", *LOGS))
    assert_same_policies(output, expected, len(list(expected.rglob("*.pth"))))
    first, second = (json.loads((each / "summary.json").read_text()) for each in (output, expected))
    assert first["race"] == second["race"] and first["env_steps"] == second["env_steps"]


@pytest.mark.slow
def test_survivors_are_bitwise_equal_to_a_run_without_a_race(full, raced):
    whole, own = rows(full), rows(raced)
    assert own.keys() == whole.keys()
    stopped = {row.candidate: row.stopped_at for row in own.values() if row.status == STOPPED}
    assert sorted(stopped.values()) == [2, 2, 4]  # 7 candidates, of which one fails: 4 of 6, then 3 of 4
    assert all(row.status == STOPPED for row in own.values() if row.candidate in stopped)  # both seeds
    assert not {"human", "unshaped"} & set(stopped)
    for key, row in own.items():
        model = f"candidates/{key[0]}/policy_seed_{key[1]}.pth"
        if key[0] == "breaks_midway":
            assert (row.status, row.error) == ("failed", whole[key].error.replace(str(full.parent), str(raced.parent)))
        elif key[0] not in stopped:
            assert row == whole[key]
            if key[0] != UNTRAINED:
                assert_same_weights(*(torch.load(each / model, weights_only=False)["model"] for each in (full, raced)))
        else:
            assert row.env_steps == stopped[key[0]] * whole[key].env_steps / ITERATIONS
            assert torch.load(raced / model, weights_only=False)["epoch"] == stopped[key[0]]
    for name in LOGS:
        expected, found = log_rows(full, name), log_rows(raced, name)
        for (candidate, seed), cells in found.items():
            end = stopped.get(candidate, ITERATIONS)
            if name == "step_fitness.csv":  # a race's evaluations compare candidates, the others' but the last do not
                assert int(cells[-1][0]) == (0 if candidate == UNTRAINED else end)
                assert candidate in stopped or cells[-len(expected[candidate, seed]) :] == expected[candidate, seed]
            else:
                assert cells == [x for x in expected[candidate, seed] if int(x[0]) <= end], name


@pytest.mark.slow
def test_short_points_change_the_curves_only(tmp_path):
    """A race plays full episodes where it compares; its curves are those of a run without a race."""
    short = ["evaluation.point_steps=6", "--seeds", 1, "--no_baselines"]
    short += ["--candidate_idx", 0, 1, 4, 5]
    whole = run(tmp_path / "whole", *words(tmp_path, *short))
    own = run(tmp_path / "race", *words(tmp_path, *RACE, *short))
    recorded = run(tmp_path / "recorded", *words(tmp_path, *RACE, *short, "evaluation.record=true"))
    stopped = {key: row.stopped_at for key, row in rows(own).items() if row.status == STOPPED}
    assert stopped and stopped == {key: row.stopped_at for key, row in rows(recorded).items() if row.stopped_at}
    for key, row in rows(own).items():
        assert row == rows(recorded)[key]
        assert key in stopped or row == rows(whole)[key]
    for name in ("curves.csv", "components.csv", "points.csv"):
        expected, found = log_rows(whole, name), log_rows(own, name)
        for (candidate, seed), cells in found.items():
            end = stopped.get((candidate, int(seed)), ITERATIONS)
            assert cells == [x for x in expected[candidate, seed] if int(x[0]) <= end], name
    assert log_rows(own, "points.csv") != log_rows(recorded, "points.csv")  # full episodes
    compared = [1, *RUNGS, ITERATIONS]
    for key, cells in log_rows(recorded, "episodes.csv").items():
        at = [0] if key[0] == UNTRAINED else compared
        assert log_rows(own, "episodes.csv")[key] == [x for x in cells if int(x[0]) in at]


@pytest.mark.slow
def test_survivors_are_run_by_the_kernels_of_all_candidates(tmp_path, monkeypatch):
    """Nothing is compiled at a rung, and compiled survivors are bitwise those of a run without a race.

    A session is freed before that of the survivors is opened.
    """
    opened: list[weakref.ref] = []
    original = worker.Session

    def opening(*given):
        assert all(own() is None for own in opened)
        session = original(*given)
        opened.append(weakref.ref(session))
        return session

    more = ["--seeds", 1, "--no_baselines", "compile_shapers=true"]
    whole = run(tmp_path / "whole", *words(tmp_path, *more))
    monkeypatch.setattr(worker, "Session", opening)
    monkeypatch.setattr(building, "build", lambda codes, target: pytest.fail("compiled again"))
    own = run(tmp_path / "race", *words(tmp_path, *RACE, *more))
    found = [key for key, row in rows(own).items() if row.status == "ok"]
    assert (len(found), len(opened)) == (3, 3)
    for key in found:
        assert rows(own)[key] == rows(whole)[key]
        path = f"candidates/{key[0]}/policy.pth"
        assert_same_weights(*(torch.load(each / path, weights_only=False)["model"] for each in (own, whole)))


@pytest.mark.slow
def test_race_reports_every_candidate(full, raced, capsys):
    assert eval_shapers.main(["--resume", str(raced)]) == 0
    told = capsys.readouterr().out
    assert "stopped at 2" in told and "below all that went on" in told
    ranking = json.loads((raced / "summary.json").read_text())["ranking"]
    order = [row["stopped_at"] or ITERATIONS for row in ranking if row["rank"] is not None]
    assert order == sorted(order, reverse=True) and set(order) == {ITERATIONS, 4, 2}
    at_2 = [row for row in ranking if row["stopped_at"] == 2]
    assert [row["reason"] for row in at_2] == [f"rank {k} of 6: beyond the best 4 of 6" for k in (5, 6)]
    assert all(row["vs_human"] is None and row["status"] == "stopped at 2" for row in at_2)
    assert at_2[0]["fitness"] >= at_2[1]["fitness"]
    race = json.loads((raced / "summary.json").read_text())["race"]
    assert race["alive"] == [7, 5, 4] and race["rungs"] == RUNGS  # one fails later, or has failed
    assert "7, 5, 4 candidates, " in write_page(raced, 0).read_text(encoding="utf-8")
    assert race["env_steps_share"] == pytest.approx((2 * 2 * 2 + 1 * 2 * 4 + 5 * 2 * 5) / (8 * 2 * 5), abs=1e-4)
    assert not (raced / "jobs").exists() and not (raced / "checkpoint.pth").exists()
    log = (raced / "run.log").read_text()
    assert "3 waves, of up to 6 groups" in log
    assert "rung 1 of 3, iteration 2: 4 of 6 candidates go on" in log
    # a replay of the run without a race stops the same
    history = read_episodes(full / "episodes.csv")
    alive = [name for name in dict.fromkeys(name for name, _ in history[ITERATIONS]) if name not in BASELINES]
    replayed = {}
    for rung in RUNGS:
        past = {iteration: own for iteration, own in history.items() if iteration <= rung}
        for stop in decide(0.6, past, alive, ITERATIONS, len(RUNGS)):
            replayed[stop.candidate] = rung
            alive.remove(stop.candidate)
    stopped = {row.candidate: row.stopped_at for row in rows(raced).values() if row.status == STOPPED}
    assert replayed == stopped


class Crash(Exception):
    """As if the process was killed."""


class CrashesAfter(Reporter):
    """Crashes after so many iterations of all waves together."""

    def __init__(self, count):
        self.left = count

    def iteration_done(self, iteration, env_steps, best):
        self.left -= 1
        if self.left == 0:
            raise Crash


@pytest.mark.slow
def test_race_killed_at_a_decision_and_on_the_way_to_the_next_resumes_to_the_same_result(
    tmp_path, raced, in_waves, monkeypatch
):
    """A process killed during or right after a decision must not decide again among the survivors.

    Three waves train to the first rung, then two to the second, of which the first is killed between the two.
    """
    decide, calls = executor.Executor._decide, []

    def killed(self, rung, *rest):
        calls.append(rung)
        if len(calls) == 1:
            monkeypatch.setattr(RunFolder, "write_checkpoint", lambda *_: (_ for _ in ()).throw(Crash()))
        decide(self, rung, *rest)
        raise Crash

    output = tmp_path / "run"
    monkeypatch.setattr(executor.Executor, "_decide", killed)
    with pytest.raises(Crash):
        words_of_run = words(tmp_path, *RACE, *in_waves, "checkpoint_minutes=0")
        eval_shapers.main([*words_of_run, "--output_dir", str(output)])
    monkeypatch.undo()
    monkeypatch.setattr(executor.Executor, "_decide", killed)
    with pytest.raises(Crash):
        resume(output)
    assert calls == [RUNGS[0]] * 2
    monkeypatch.undo()
    with pytest.raises(Crash):
        resume(output, reporter=CrashesAfter(2))
    saved = RunFolder(output).load_checkpoint()
    assert any(job.iteration == 3 for job in saved.jobs)
    assert resume(output).complete
    assert_alike(output, raced)


@pytest.mark.slow
def test_race_with_too_few_candidates_trains_all(tmp_path, capsys):
    output = run(tmp_path / "run", *words(tmp_path, *RACE, "--candidate_idx", 0, 1, 3, "--seeds", 1, "--no_baselines"))
    assert "a race needs at least 4 candidates, and there are 3: all are trained to the end" in capsys.readouterr().err
    assert {row.status for row in rows(output).values()} == {"ok"}
    assert "race" not in json.loads((output / "summary.json").read_text())


@pytest.mark.parametrize(
    "more, message",
    [
        (["race.rungs=[4,2]"], "race.rungs must be increasing"),
        (["race.rungs=[2,5]"], "race.rungs: 5 is not below learning_iterations=5"),
        (["race.rungs=5"], "race.rungs must be a list"),
        (["race.keep=1.1"], "race.keep must be a number above 0 and at most 1"),
        (["race.keep=0"], "race.keep must be a number above 0 and at most 1"),
        (["race.rule=best"], "race.rule"),
        (["--isolate", "process"], "--isolate"),
        (["--profile"], "--profile"),
        (["train.params.algo.name=test_session:RandomSearch"], "RandomSearch cannot"),
    ],
)
def test_bad_race_settings_are_refused(tmp_path, capsys, more, message):
    words_of_run = [*words(tmp_path, "--race", *more), "--output_dir", tmp_path / "run"]
    assert message in refused(eval_shapers.main, words_of_run, capsys)
    assert not (tmp_path / "run").exists()
