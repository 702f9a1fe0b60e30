"""Promise 6: a killed run resumes and ends bitwise as if uninterrupted."""

import signal

import pytest
from helpers import (
    BREAKS_MIDWAY,
    CARTPOLE_QUICK,
    assert_same_policies,
    assert_same_tables,
    contents,
    fork_process,
    run,
    stop_at,
    stopped_when,
    write_candidates,
)

from envcoder_bench.cli import eval_shapers
from envcoder_bench.run.folder.run_folder import RunFolder

pytestmark = pytest.mark.slow

CANDIDATES = {
    "cosine": """
def compute_reward(pole_angle, progress_buf, actions):
    c = torch.cos(pole_angle)
    return c - 0.01 * progress_buf - 0.1 * actions[:, 0], {"cosine": c}
""",
    "breaks_midway": BREAKS_MIDWAY,
}
ITERATIONS = 8
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 8, "--learning_iterations", ITERATIONS, "checkpoint_minutes=0",
    "compile_shapers=false",
]  # fmt: skip


def _words(tmp_path):
    return [*WORDS, "--candidates", *write_candidates(tmp_path / "files", CANDIDATES)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    return run(folder / "run", *_words(folder))


def _has_reached(output, iteration):
    """Return whether curves.csv shows an iteration."""
    curves = output / "curves.csv"
    return curves.exists() and f"\n{iteration},".encode() in curves.read_bytes()


def _assert_ended_alike(output, uninterrupted):
    assert eval_shapers.main(["--resume", str(output)]) == 0
    assert_same_tables(output, uninterrupted)
    assert_same_policies(output, uninterrupted, 3)
    assert not (output / "checkpoint.pth").exists()


def _assert_left_alone_while_another_process_works_on_it(output, capsys):
    before = contents(output)
    with RunFolder(output).locked():
        assert eval_shapers.main(["--resume", str(output)]) == 2
    assert f"{output}: another process is executing this run" in capsys.readouterr().err
    assert contents(output) == before


def test_killed_process_resumes_to_the_uninterrupted_result(tmp_path, uninterrupted, capsys):
    output = tmp_path / "run"
    process = fork_process(_words(tmp_path), output)
    assert stop_at(process, lambda: _has_reached(output, 1), signal.SIGKILL)[0] == -signal.SIGKILL
    assert not (output / "summary.json").exists()
    # what the user does to the file meanwhile does not matter: the run has its own copy
    (tmp_path / "files" / "cosine.py").write_text("this is no Python", encoding="utf-8")
    _assert_left_alone_while_another_process_works_on_it(output, capsys)
    _assert_ended_alike(output, uninterrupted)  # the killed process's lock does not stand in the way


def test_ctrl_c_saves_a_checkpoint_that_resumes_to_the_same_result(tmp_path, uninterrupted, capsys):
    output = tmp_path / "run"
    words = [word if word != "checkpoint_minutes=0" else "checkpoint_minutes=60" for word in _words(tmp_path)]
    with stopped_when(lambda: _has_reached(output, 5), signal.SIGINT):  # after an evaluation
        run(output, *words, expect=130)
    told = capsys.readouterr().err
    assert "report " in told and told.splitlines()[-1].startswith("stopped after iteration ")
    assert (output / "checkpoint.pth").exists()
    _assert_ended_alike(output, uninterrupted)
    log = (output / "run.log").read_text(encoding="utf-8")
    assert ", by SIGINT\n" in log and "goes on: rows done: 1, groups left: 4\n" in log
    assert "wave 1 of 1 goes on from iteration" in log
