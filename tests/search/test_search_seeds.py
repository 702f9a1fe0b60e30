"""The number of seeds of a search: chosen once, the same in all rounds, kept when it resumes."""

import json

import pytest
from omegaconf import OmegaConf

from envcoder_bench.cli import auto_shape
from envcoder_bench.run.lint import Verdict
from envcoder_bench.search import launch, loop
from envcoder_bench.search.archive import read_archive
from envcoder_bench.search.loop import Search
from envcoder_bench.search.prompt.feedback import block

pytestmark = pytest.mark.slow

WORDS = [
    "--task", "Cartpole", "--llm", "evolve", "--shaper_types", "compute_reward", "--num_iters", "2",
    "--shapers_per_iter", "2", "--num_envs_per_candidate", "4", "--learning_iterations", "1", "--final_seeds", "2",
    "--device", "cpu", "evaluation.num_envs=4", "evaluation.final_episodes=4", "evaluation.points=1",
    "task.env.episodeLength=12", "final_episodes=4", "compile_shapers=false", "train.params.config.horizon_length=4",
]  # fmt: skip


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    monkeypatch.setattr(launch, "UNTRUSTED", "untrusted=false")  # the jail's process takes seconds to start


def search(*words, expect=0):
    assert auto_shape.main([*map(str, words)]) == expect


def used(run):
    """The seeds of each candidate and baseline of a run."""
    found = {}
    for row in json.loads((run / "summary.json").read_text())["ranking"]:
        found[row["candidate"]] = row["seeds"]
    return found


def test_all_rounds_of_a_search_take_the_number_that_it_began_with(tmp_path, chooses, capsys, monkeypatch):
    folder = tmp_path / "search"
    chooses(2)
    with monkeypatch.context() as stopping:
        stopping.setattr(Search, "_finish", lambda search: search._ended())
        stopping.setattr(loop, "judge_run", lambda *_: {})  # on the few states of 12 steps, rewards are alike
        search(*WORDS, "--num_iters", 1, "--output_dir", folder)
    shown = " ".join("".join(capsys.readouterr()).split())
    # two candidates, two baselines and the best two so far
    assert shown.count("2 seeds for each candidate (seeds=auto: 12 groups of 4 environments take 1.") == 1
    assert shown.count("(seeds=auto") == 1
    assert OmegaConf.load(folder / "config.yaml").overrides[-1] == "seeds=2"
    chooses(3)
    monkeypatch.setattr(loop, "judge_run", lambda folder, spec, names: {name: Verdict(["it pays"]) for name in names})
    search("--resume", folder, "--num_iters", 2)
    assert "(seeds=auto" not in "".join(capsys.readouterr())
    for number, expected in ((1, [0, 1]), (2, [2, 3])):
        run = folder / "rounds" / str(number) / "run"
        assert OmegaConf.load(run / "config.yaml").seeds == 2
        found = used(run)
        assert {"human", "unshaped"} < set(found)
        assert all(own == expected for own in found.values())
    # what the lint says of a reward that has trained is kept for the prompts
    archive = read_archive(folder / "archive.json")
    assert {attempt.round: attempt.remarks for attempt in archive.attempts} == {1: (), 2: ("it pays",)}
    assert all("\nremark: it pays\n" in block(attempt, archive) for attempt in archive.of_round(2))
    again = used(folder / "validation")
    assert len(again) == 4 and all(own == [*range(20_000, 20_005)] for own in again.values())  # without baselines
    final = used(folder / "final")
    assert len(final) == 4 and all(own == [20_005, 20_006] for own in final.values())
