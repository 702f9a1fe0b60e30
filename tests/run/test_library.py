"""Runs from Python: evaluate() returns what the command writes, prints nothing, and restores all settings."""

import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import (
    CANDIDATES,
    CARTPOLE_QUICK,
    COSINE,
    SETTINGS,
    TABLES,
    TINY,
    TINY_WORDS,
    assert_same_policies,
    contents,
    run,
    write_candidates,
)

import envcoder_bench
from envcoder_bench import Reporter, RunResult, StopRequest, UserError, evaluate, resume
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import read_candidates
from envcoder_bench.tasks.base import UNTRAINED

TEXTS = {
    "cosine": CANDIDATES["cosine"],
    # numbers of generators that are those of the whole process
    "noisy": """
import numpy, random
def compute_reward(pole_angle):
    return torch.cos(pole_angle) + 0.1 * torch.normal(0.0, torch.ones_like(pole_angle))
def compute_initial_state(state_dict):
    start = 0.1 * torch.randn_like(state_dict["dof_pos"]) + 0.01 * (random.random() + numpy.random.rand())
    return {"dof_pos": start}
""",
    "breaks": "def compute_reward(pole_angel):\n    return pole_angel\n",
}
POLICIES = 4 * 3  # policy.pth and both seeds' of the two baselines, cosine and noisy
COMPILED = [word for word in TINY_WORDS if "compile" not in word]
WORDS = [*CARTPOLE_QUICK, "--num_envs_per_candidate", 4, "--learning_iterations", 3, "--seeds", 2, *COMPILED]


def cartpole(output, texts=TEXTS, **more):
    settings = {**SETTINGS, **TINY, "compile_shapers": True, "learning_iterations": 3, **more}
    return evaluate("Cartpole", texts, output_dir=output, **settings)


def files(folder):
    """The tables, without the folder that candidates of the command stand in."""
    return {name: (folder / name).read_text().replace(f"{folder.parent / 'files'}/", "") for name in TABLES}


def in_thread(work):
    """Run in another thread; returns a function that waits for the end and gives the result."""
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()

    def join():
        thread.join(300)
        assert done, "the thread failed, or is not done"
        return done[0]

    return join


@pytest.fixture(scope="module")
def of_command(tmp_path_factory):
    """The same run by the command."""
    folder = tmp_path_factory.mktemp("command")
    return run(folder / "run", *WORDS, "--candidates", *write_candidates(folder / "files", TEXTS))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return cartpole(tmp_path_factory.mktemp("library") / "run", seeds=2)


@pytest.mark.slow
def test_evaluate_gives_the_results_of_the_command(result, of_command):
    assert files(result.folder) == files(of_command)
    assert_same_policies(result.folder, of_command, POLICIES)


@pytest.mark.slow
def test_run_result_equals_the_files(result):
    assert isinstance(result, RunResult) and result.complete and result.trained and result.stopped_by is None
    summary = json.loads((result.folder / "summary.json").read_text())
    assert result.summary == summary and result.fitness_meaning == summary["fitness_meaning"]
    read = pd.read_csv(result.folder / "results.csv", dtype={"candidate": str})
    assert read.pop("reason").isna().all() and read.pop("hacked").isna().all()
    texts = {"error": "", "fault": "", "ended": ""}  # empty in the file
    own = result.results.drop(columns=["reason", "hacked"]).fillna(texts)
    pd.testing.assert_frame_equal(own, read.fillna(texts), check_dtype=False)
    ranking = result.ranking
    assert list(ranking["candidate"]) == [row["candidate"] for row in summary["ranking"]]
    assert [None if pd.isna(x) else int(x) for x in ranking["rank"]] == [row["rank"] for row in summary["ranking"]]
    assert list(ranking["baseline"]) == [row["baseline"] for row in summary["ranking"]]
    for name, frame in (("curves", result.curves), ("components", result.components), ("points", result.points)):
        pd.testing.assert_frame_equal(frame, pd.read_csv(result.folder / f"{name}.csv", dtype={"candidate": str}))
        assert set(frame["seed"]) == {0, 1}
    assert {(point.candidate, point.seed) for point in result.evaluations()} == set(result.policies)
    trained = ("human", "unshaped", "cosine", "noisy")
    assert set(result.policies) == {(name, seed) for name in trained for seed in (0, 1)}
    assert all(path.name == f"policy_seed_{seed}.pth" for (_, seed), path in result.policies.items())
    assert list(result.failed) == ["breaks"] and "parameter 'pole_angel' is not a key" in result.failed["breaks"]
    assert result.succeeded and "cosine" in result.table() and str(result) == result.table()
    assert "rows=" not in repr(result)


@pytest.mark.slow
def test_resume_of_a_complete_run_reads_it_without_training(result):
    before = contents(result.folder)
    again = resume(str(result.folder))
    assert again.complete and not again.trained
    pd.testing.assert_frame_equal(again.ranking, result.ranking)
    assert contents(result.folder) == before


# what it leaves alone


def surroundings():
    """What a run might change of its process."""
    return {
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "torch": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": [x.tolist() if isinstance(x, np.ndarray) else x for x in np.random.get_state()],
        "print": repr(torch.tensor([1e-9, 123.456789])),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "streams": (sys.stdout, sys.stderr),
        "warnings": (list(warnings.filters), warnings.showwarning, warnings.formatwarning),
        "logging": (list(logging.getLogger("envcoder_bench").handlers), logging.getLogger("envcoder_bench").level),
        "collector": gc.isenabled(),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }


@pytest.mark.slow
def test_evaluate_prints_nothing_and_restores_process_state(tmp_path, capfd):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(7)
    gc.disable()  # which the tests otherwise have not
    try:
        before = surroundings()
        made = cartpole(tmp_path / "run", seed=3, learning_iterations=1)
        after = surroundings()
    finally:
        gc.enable()
        torch.set_num_threads(threads)
    assert made.complete
    assert {name: value for name, value in after.items() if value != before[name]} == {}
    assert capfd.readouterr() == ("", "")


class Heard(Reporter):
    """Remembers what it hears, and can wait for an iteration."""

    def __init__(self, wait_at=None):
        self.heard, self.wait_at = [], wait_at
        self.reached, self.go_on = threading.Event(), threading.Event()

    def run_began(self, folder):
        self.heard.append(("run", folder))

    def wave_began(self, *given):
        self.heard.append(("wave", given))

    def iteration_done(self, iteration, env_steps, best):
        self.heard.append((iteration, env_steps, best and best[0]))
        if iteration == self.wait_at:
            self.reached.set()
            assert self.go_on.wait(300)

    def wave_ended(self):
        self.heard.append("end")


@pytest.mark.slow
def test_reporter_receives_run_wave_iterations_and_end(tmp_path):
    heard = Heard()
    cartpole(tmp_path / "run", {"cosine": TEXTS["cosine"]}, baselines=False, reporter=heard)
    run_began, wave, *iterations, end = heard.heard
    assert (run_began, wave, end) == (("run", tmp_path / "run"), ("wave", (1, 1, 0, 3)), "end")
    assert gc.isenabled()
    assert iterations == [(k, k * 4 * 4, None if k == 1 else "cosine") for k in (1, 2, 3)]


# threads


@pytest.mark.slow
def test_run_stopped_by_another_thread_resumes_to_the_same_result(tmp_path, of_command):
    heard, stop = Heard(wait_at=2), StopRequest()
    join = in_thread(lambda: cartpole(tmp_path / "run", seeds=2, reporter=heard, stop=stop))
    assert heard.reached.wait(300)
    stop("enough")
    stop("a second request changes nothing")
    heard.go_on.set()
    stopped = join()
    assert (stopped.complete, stopped.stopped_by, stopped.stopped_at) == (False, "enough", "after iteration 2 of 3")
    assert (stopped.folder / "checkpoint.pth").is_file() and stopped.summary == {}
    untrained = stopped.results["candidate"] == UNTRAINED
    assert set(stopped.results[untrained]["status"]) == {"ok"}
    assert set(stopped.results[~untrained]["status"]) == {"running", "failed at load"} and list(stopped.failed) == [
        "breaks"
    ]
    assert stopped.policies == {}
    ended = in_thread(lambda: resume(stopped.folder))()
    assert ended.complete and ended.trained and not (stopped.folder / "checkpoint.pth").exists()
    assert files(ended.folder) == files(of_command)
    assert_same_policies(ended.folder, of_command, POLICIES)


@pytest.mark.slow
def test_stop_request_before_the_start_stops_before_the_first_iteration(tmp_path):
    stop = StopRequest()
    stop(signal.SIGTERM)
    stopped = cartpole(tmp_path / "run", {"cosine": TEXTS["cosine"]}, stop=stop, baselines=False)
    assert (stopped.complete, stopped.stopped_by) == (False, signal.SIGTERM)
    assert stopped.stopped_at == "before the first iteration" and len(stopped.results) == 0 and stopped.curves.empty
    assert str(stopped) == f"stopped before the first iteration; envcoder_bench.resume('{tmp_path / 'run'}')"
    assert resume(stopped.folder).complete


@pytest.mark.slow
def test_concurrent_runs_give_the_results_of_single_runs(tmp_path, of_command):
    """The first run waits in the middle of its training while the second trains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = Heard(wait_at=1), Heard(wait_at=2)
        join_first = in_thread(lambda: cartpole(tmp_path / "first", seeds=2, reporter=first))
        assert first.reached.wait(300)
        join_second = in_thread(lambda: cartpole(tmp_path / "second", seeds=2, reporter=second))
        assert second.reached.wait(300)  # it neither waits for the first, nor for its end
        first.go_on.set()
        second.go_on.set()
        ended = join_first(), join_second()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    for result in ended:
        assert files(result.folder) == files(of_command)


# what it is given


def test_candidates_are_files_folders_or_texts(tmp_path):
    (file,) = write_candidates(tmp_path / "files", {"cosine": COSINE})
    for candidates in (file, str(file), [file], file.parent, {"cosine": COSINE}):
        (source,) = read_candidates("Cartpole", candidates)
        assert (source.name, source.source) == ("cosine", COSINE)


@pytest.mark.slow
def test_keyword_arguments_are_keys_of_the_config(tmp_path):
    made = cartpole(
        tmp_path / "run", TEXTS, candidate_idx=[0], shaper_types=["compute_reward", "compute_done"],
        baselines=False, seeds=np.int64(1), max_memory="4GiB", learning_iterations=1, num_envs=6,
        overrides=["evaluation.num_envs=2", "evaluation.final_episodes=2", "train.params.network.mlp.units=[8,4]"],
    )  # fmt: skip
    cfg, sources = RunFolder(made.folder).read()
    assert [source.name for source in sources] == ["cosine"] and not cfg.baselines and cfg.max_memory == "4GiB"
    assert list(cfg.shaper_types) == ["compute_reward", "compute_terminal"] and cfg.num_envs_per_candidate == 6
    assert list(cfg.train.params.network.mlp.units) == [8, 4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(task="Cartpol"), r"unknown task 'Cartpol' \(did you mean Cartpole or CartpoleSwingup\?\)"),
        (dict(sedes=3), r"unknown key 'sedes' \(did you mean"),
        (dict(seeds=object()), "seeds must be a number, a text, a list or a mapping, got object"),
        (dict(overrides={"train.params.config.gamma": 2}), "config.gamma: must be a number from 0 to 1, got 2"),
        (dict(candidates={}), "names none"),
        (dict(candidates={"good": 3}), r"candidates by name are texts, .* got \{str: int\}"),
        (dict(candidates={"a/b": "x = 1"}), "rename it"),
        (dict(candidates={"human": "x = 1"}), "has a baseline's name"),
        (dict(output_dir="{taken}"), "is not empty"),
    ],
)
def test_bad_input_raises_user_error_and_writes_no_files(tmp_path, monkeypatch, capfd, given, message):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    monkeypatch.chdir(tmp_path)  # runs/ would come to be here
    if given.get("output_dir"):
        given = {"output_dir": str(taken)}
    with pytest.raises(UserError, match=message):
        evaluate(**{"task": "Cartpole", "candidates": {"good": COSINE}, "sim": "mujoco_cpu", "device": "cpu", **given})
    assert [path.name for path in tmp_path.iterdir()] == ["taken"] and capfd.readouterr() == ("", "")


def test_package_exports_only_the_public_names():
    assert set(envcoder_bench.__all__) == set(envcoder_bench._WHERE)
    assert all(getattr(envcoder_bench, name) is not None for name in envcoder_bench.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'"):
        _ = envcoder_bench.evaluat
    with pytest.raises(UserError, match="it is not the folder of a run"):
        resume("nowhere")


@pytest.mark.slow
def test_example_of_the_python_page_runs(tmp_path, monkeypatch, capsys):
    page = (Path(envcoder_bench.__file__).resolve().parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    block = page.partition("```python\n")[2].partition("```")[0]
    assert block.count("learning_iterations=10)") == 1
    block = block.replace("learning_iterations=10)", f"learning_iterations=1, overrides={SETTINGS})")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "python.md", "exec"), {"__name__": "page"})
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("human", "unshaped", "calm", "vs_human"))
    assert [path.name.startswith("Cartpole_") for path in (tmp_path / "runs").iterdir()] == [True]
