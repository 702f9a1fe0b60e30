"""The row ``untrained``: the initial policy, evaluated before the first iteration."""

import json

import pytest
from helpers import (
    CARTPOLE_QUICK,
    COSINE,
    TABLES,
    TINY_WORDS,
    Killed,
    assert_same_policies,
    assert_same_tables,
    results,
    run,
    write_candidates,
)

from envcoder_bench import UserError, extend, resume
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.results.logs import read_episodes
from envcoder_bench.results.rows import FAILED, read_results
from envcoder_bench.run import lint
from envcoder_bench.run.folder.checkpoint import load_checkpoint
from envcoder_bench.run.folder.policies import load_policy, open_run
from envcoder_bench.run.train import executor
from envcoder_bench.run.train import rows as rows_module
from envcoder_bench.run.train.rows import due_in
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.workers import worker
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tasks.base import UNTRAINED

WORDS = [*CARTPOLE_QUICK, "--num_envs_per_candidate", 4, "--learning_iterations", 3, "--seeds", 2, *TINY_WORDS]
FROZEN = [f"train.params.config.{x}" for x in ("learning_rate=0.0", "lr_schedule=null", "normalize_input=false")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_candidates(tmp_path_factory.mktemp("files"), {"cosine": COSINE})


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run", *WORDS, "--candidates", *files)


def own_rows(folder):
    return [row for row in read_results(folder / "results.csv") if row.candidate == UNTRAINED]


def assert_same(folder, whole):
    assert_same_tables(folder, whole, (*TABLES, "episodes.csv", "step_fitness.csv"))
    assert_same_policies(folder, whole, len(list(whole.rglob("*.pth"))))


def test_due_are_the_seeds_of_the_human_baseline_in_the_wave_without_a_row():
    wave = [("human", 0), ("human", 1), ("unshaped", 0), ("cosine", 2)]
    assert due_in(wave, []) == [("human", 0), ("human", 1)]
    assert due_in(wave, [("human", 0), (UNTRAINED, 1)]) == [("human", 0)]


@pytest.mark.slow
def test_there_is_a_row_for_each_seed_in_results_and_ranking_and_no_policy(whole):
    rows = own_rows(whole)
    assert [(row.seed, row.status, row.episodes, row.env_steps) for row in rows] == [(0, "ok", 6, 0), (1, "ok", 6, 0)]
    assert list(dict.fromkeys(results(whole).index)) == ["human", "unshaped", UNTRAINED, "cosine"]
    episodes = read_episodes(whole / "episodes.csv")[0]
    for row in rows:
        assert sum(episodes[UNTRAINED, row.seed]) / 6 == pytest.approx(row.fitness)
    (ranked,) = (x for x in json.loads((whole / "summary.json").read_text())["ranking"] if x["candidate"] == UNTRAINED)
    assert ranked["baseline"] and ranked["rank"] and ranked["seeds"] == [0, 1] and ranked["vs_human_p"] is None
    assert not (whole / "candidates" / UNTRAINED).exists()
    # the states of the first seed's episodes, with the same fitness
    kept, final = lint.read(whole / "trajectories.npz"), {**read_episodes(whole / "episodes.csv")}
    played = {**final[max(final)], **final[0]}
    assert set(kept) == {"human", "unshaped", UNTRAINED}
    assert all(list(one.fitness) == pytest.approx(played[name, 0][: len(one.fitness)]) for name, one in kept.items())
    opened = open_run(whole)
    assert opened.best() == "cosine"
    with pytest.raises(UserError, match="before the first iteration: it has no file"):
        load_policy(opened, UNTRAINED)
    page = (whole / "report.html").read_text()
    assert "untrained" in page and "before the first iteration" in page


@pytest.mark.slow
def test_it_is_what_human_scores_if_training_changes_nothing(files, tmp_path):
    folder = run(tmp_path / "run", *WORDS, *FROZEN, "--candidates", *files)
    rows = results(folder)[["seed", "fitness", "fitness_ci_low", "fitness_ci_high", "episodes", "episode_length"]]
    assert rows.loc[UNTRAINED].to_numpy().tolist() == rows.loc["human"].to_numpy().tolist()
    assert len(set(rows.loc[UNTRAINED]["fitness"])) == 2  # each seed has a policy of its own


@pytest.mark.slow
def test_it_changes_no_bit_of_a_training(files, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(executor, "due_in", lambda wave, done: [])
    folder = run(tmp_path / "run", *WORDS, "--candidates", *files)
    assert own_rows(folder) == []
    for name in TABLES:
        lines = (whole / name).read_text().splitlines()
        assert (folder / name).read_text().splitlines() == [x for x in lines if not x.startswith(UNTRAINED)]
    assert_same_policies(folder, whole, len(list(whole.rglob("*.pth"))))


@pytest.mark.slow
def test_run_killed_between_its_evaluation_and_its_record_resumes_to_the_same_rows(files, whole, tmp_path, monkeypatch):
    def die(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(worker, "UntrainedEvaluated", die)
        with pytest.raises(Killed):
            main([*map(str, WORDS), "--candidates", *map(str, files), "--output_dir", str(tmp_path / "run")])
    assert resume(tmp_path / "run").complete
    assert_same(tmp_path / "run", whole)


@pytest.mark.slow
def test_run_with_a_checkpoint_keeps_it(files, whole, tmp_path, monkeypatch):
    """The run is killed in its last iteration."""
    iterate = Session.iterate

    def die_at_last(self):
        if self.iteration == 2:
            raise Killed
        iterate(self)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "iterate", die_at_last)
        words = [*map(str, WORDS), "checkpoint_minutes=0", "--candidates", *map(str, files)]
        with pytest.raises(Killed):
            main([*words, "--output_dir", str(tmp_path / "run")])
    saved = load_checkpoint(tmp_path / "run" / "checkpoint.pth")
    assert [(row.candidate, row.seed) for row in saved.results] == [(UNTRAINED, 0), (UNTRAINED, 1)]
    monkeypatch.setattr(worker, "evaluate_untrained", None)  # it is not called
    assert resume(tmp_path / "run").complete
    assert_same(tmp_path / "run", whole)


@pytest.mark.slow
def test_extension_keeps_it_and_evaluates_new_seeds_only(files, whole, tmp_path, monkeypatch):
    small = run(tmp_path / "run", *WORDS, "--candidates", *files, "--seeds", 1, "--learning_iterations", 2)
    seeds = []
    evaluate = worker.evaluate_untrained
    monkeypatch.setattr(
        worker, "evaluate_untrained", lambda *args: seeds.append([g.seed for g in args[1]]) or evaluate(*args)
    )
    assert extend(small, seeds=2).complete and seeds == [[1]]
    assert extend(small, learning_iterations=3).complete and seeds == [[1]]
    assert own_rows(small) == own_rows(whole)
    assert read_episodes(small / "episodes.csv")[0] == read_episodes(whole / "episodes.csv")[0]


@pytest.mark.slow
def test_its_failure_costs_no_other_row(files, whole, tmp_path, monkeypatch):
    play = rows_module.run_episodes

    def failing(env, *args, **named):
        env.dispatch.fail(0, Fault("raised on purpose", "human.py"))
        return play(env, *args, **named)

    monkeypatch.setattr(rows_module, "run_episodes", failing)
    folder = run(tmp_path / "run", *WORDS, "--candidates", *files)
    failed, other = own_rows(folder)
    assert failed.status == FAILED and "raised on purpose" in failed.error and not failed.measured
    assert other == own_rows(whole)[1]
    assert results(folder).drop(UNTRAINED).equals(results(whole).drop(UNTRAINED))


@pytest.mark.slow
def test_candidate_of_this_name_is_refused(tmp_path, capsys):
    (path,) = write_candidates(tmp_path, {UNTRAINED: COSINE})
    run(tmp_path / "run", *WORDS, "--candidates", path, expect=2)
    assert "untrained.py has a baseline's name" in capsys.readouterr().err
