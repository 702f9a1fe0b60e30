"""``envcoder_bench.Evaluator``: gathered calls, cached and paired scores, feedback; with made-up and real runs."""

import importlib.util
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client
from pathlib import Path
from types import SimpleNamespace

import pytest

import envcoder_bench
from envcoder_bench.core.errors import UserError
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.serve import evaluator as module
from envcoder_bench.shaping.contract import Fault

REWARD = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle) + {}\n"
SMALL = {"num_envs_per_candidate": 8, "learning_iterations": 1, "device": "cpu"}


def worth(source):
    return len(source) / 1000


@pytest.fixture
def runs(monkeypatch):
    """Made-up runs: their candidates by name, and overrides."""
    made = []

    def evaluate(task, candidates, overrides, output_dir):
        made.append((candidates, overrides))
        if any("nothing" in source for source in candidates.values()):
            raise UserError("there is nothing to evaluate")
        rows = [
            Ranked(None, name, "failed", faults=(Fault("raised", "p.py", 2),)) if "raise" in source
            else Ranked(1, name, "ok", worth(source), seeds=(0,))
            for name, source in candidates.items()
        ]  # fmt: skip
        rows += [Ranked(2, "human", "ok", 0.1, seeds=(0,))] if "baselines=false" not in overrides else []
        time.sleep(0.02)
        return SimpleNamespace(folder=output_dir, ranked=rows, evaluations=list)

    monkeypatch.setattr(module.run, "evaluate", evaluate)
    return made


def test_forty_programs_of_a_coder_take_few_runs(runs, tmp_path):
    """A coder that writes ten programs at a time: scores are those of one by one, and a text is evaluated once."""
    evaluator = envcoder_bench.Evaluator("Cartpole", gather=0.2, folder=tmp_path, **SMALL)
    programs, scores = [REWARD.format("1" * (k + 1)) for k in range(40)], []
    with ThreadPoolExecutor(10) as pool:
        for first in range(0, 40, 10):
            scores += pool.map(evaluator.evaluate, programs[first : first + 10])
    assert len(runs) == evaluator.runs <= 5
    assert [each.score for each in scores] == [worth(program) for program in programs]
    assert evaluator.evaluate(programs[3]) == scores[3] and evaluator.runs == len(runs)
    assert ["baselines=false" in words for _, words in runs] == [False, *[True] * (len(runs) - 1)]
    assert all("untrusted=true" in words for _, words in runs)
    assert scores[39].feedback.startswith("fitness 0.108 over 1 seed; human has 0.1 with the same seeds")


def test_a_program_that_fails_has_the_least_fitness_and_its_fault(runs, tmp_path):
    evaluator = envcoder_bench.Evaluator("Cartpole", gather=0.1, folder=tmp_path, **SMALL)
    with ThreadPoolExecutor(3) as pool:
        good, bad, empty = pool.map(evaluator.evaluate, ["x = 1", "raise", "nothing"])
    assert good.score == worth("x = 1")
    assert (bad.score, bad.feedback) == (0.0, "p.py:2: raised")
    assert (empty.score, empty.feedback) == (0.0, "there is nothing to evaluate")


def test_an_error_of_the_machine_reaches_all_who_wait_and_is_not_kept(runs, tmp_path, monkeypatch):
    evaluator = envcoder_bench.Evaluator("Cartpole", gather=0.1, folder=tmp_path, **SMALL)
    good = module.run.evaluate
    monkeypatch.setattr(module.run, "evaluate", lambda *a, **k: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        evaluator.evaluate("x = 1")
    monkeypatch.setattr(module.run, "evaluate", good)
    assert evaluator.evaluate("x = 1").score == worth("x = 1")


def test_most_programs_in_a_run(runs, tmp_path):
    evaluator = envcoder_bench.Evaluator("Cartpole", gather=0.3, most=2, folder=tmp_path, **SMALL)
    threads = [threading.Thread(target=evaluator.evaluate, args=(f"x = {k}",)) for k in range(5)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert [len(candidates) for candidates, _ in runs] == [2, 2, 1]


def test_other_processes_ask_at_a_socket(runs, tmp_path, monkeypatch):
    """As the examples do; those that ask together are one run, and one that leaves disturbs nobody."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    from program_score import score

    evaluator = envcoder_bench.Evaluator("Cartpole", gather=0.3, folder=tmp_path, **SMALL)
    address = evaluator.listen()
    assert Path(address).parent.stat().st_mode & 0o77 == 0
    Client(address).close()
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda text: score(address, text), ["x = 1", "x = 10", "raise", "x = é"])]
    assert [fitness for fitness, _ in answers] == [worth("x = 1"), worth("x = 10"), 0.0, worth("x = é")]
    assert answers[2][1] == "p.py:2: raised" and evaluator.runs == 1


def test_bad_input_is_an_error_at_once():
    with pytest.raises(UserError):
        envcoder_bench.Evaluator("Cartpol")
    with pytest.raises(UserError):
        envcoder_bench.Evaluator("Cartpole", overrides=["nothing=1"])


@pytest.mark.slow
def test_gathered_scores_are_those_of_one_by_one(tmp_path):
    programs = [REWARD.format(k) for k in range(3)]
    quick = ["num_envs=4", "final_episodes=4", "points=1"]
    more = {**SMALL, "overrides": ["task.env.episodeLength=40", *(f"evaluation.{word}" for word in quick)]}
    gathered = envcoder_bench.Evaluator("Cartpole", gather=0.5, folder=tmp_path / "gathered", **more)
    with ThreadPoolExecutor(3) as pool:
        together = [*pool.map(gathered.evaluate, programs)]
    alone = envcoder_bench.Evaluator("Cartpole", gather=0.0, folder=tmp_path / "alone", **more)
    assert [alone.evaluate(program).score for program in programs[1:]] == [score for score, _ in together[1:]]
    assert (gathered.runs, alone.runs) == (1, 2) and all(math.isfinite(score) for score, _ in together)


def test_gepa_improves_a_file_with_a_fake_model(runs, tmp_path):
    pytest.importorskip("gepa", reason="pip install gepa")
    path = Path(__file__).parents[2] / "examples" / "gepa_search.py"
    spec = importlib.util.spec_from_file_location("gepa_search", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    prompts = []

    def model(prompt):
        prompts.append(str(prompt))
        return f"```\n{example.SEED}{'#' * len(prompts)}\n```"

    best, scores = example.search("Cartpole", model, 6, folder=tmp_path / "runs", **SMALL)
    assert "human has 0.1 with the same seeds" in prompts[0]  # the feedback reaches the model
    assert best.startswith(example.SEED.strip()) and max(scores) == worth(best) > worth(example.SEED)
