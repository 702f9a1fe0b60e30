"""Folders of runs, searches and grids that are given in place of each other."""

from pathlib import Path

import pytest

from envcoder_bench.__main__ import main as envcoder_bench
from envcoder_bench.cli import auto_shape, eval_policies, eval_shapers
from envcoder_bench.core.folders import folder_kind, other_kind, project_folder, user_file
from envcoder_bench.run.fitness import read_file

CONFIGS = {
    "run": "task_source: null\ntask:\n  name: Cartpole\ncandidates:\n- name: a\n  file: a.py\n",
    "search": "llm: random\ntask: Cartpole\nsearch:\n  candidates: 3\n",
    "grid": "robot: spot\npolicies: {}\narenas: []\nsettings: {}\n",
}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, text in CONFIGS.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.yaml").write_text(text)
    return tmp_path


def test_kind_is_that_of_the_config(folders):
    assert [folder_kind(folders / kind) for kind in CONFIGS] == list(CONFIGS)
    (folders / "run" / "config.yaml").write_text("name: x\n")
    assert folder_kind(folders / "run") is folder_kind(folders / "missing") is None
    assert other_kind(folders / "missing", "run") is None


def test_shipped_functions_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "user_functions/fitness/cartpole_centre.py"
    assert user_file(name) == project_folder("user_functions") / "fitness" / "cartpole_centre.py"
    assert read_file(name).file == str(user_file(name))
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    assert user_file(name) == Path(name)
    assert user_file("user_functions/none.py") == Path("user_functions/none.py")
    assert user_file("fitness/cartpole_centre.py") == Path("fitness/cartpole_centre.py")


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        (eval_shapers.main, "--resume search", "search holds a search, not a run; its runs are search/final and "),
        (eval_shapers.main, "--resume grid", "grid holds a grid, not a run; "),
        (eval_shapers.main, "--extend search --seeds 3", "search holds a search, not a run; "),
        (envcoder_bench, "report search", "search holds a search, not a run; "),
        (envcoder_bench, "export grid --candidate a", "grid holds a grid, not a run; "),
        (auto_shape.main, "--resume run", "run holds a run, not a search; "),
        (eval_policies.main, "--resume run", "run holds a run, not a grid; "),
        (
            eval_policies.main,
            "--robot spot --terrains stairs --policies search",
            "--policies search: search holds a search, not a run; ",
        ),
        pytest.param(
            eval_policies.main,
            "--robot spot --terrains stairs --policies mine=run",
            "run is the folder of a run; give it without mine=",
            marks=pytest.mark.slow,  # policies are read in a process
        ),
        (eval_shapers.main, "--task Cartpole --output_dir grid", "already holds a grid; give a new folder"),
        (eval_shapers.main, "--task Cartpole --output_dir run", "already holds a run; use --resume, or give a new"),
    ],
)
def test_folder_of_another_kind_is_named_with_its_command(folders, capsys, command, words, told):
    assert command(words.split()) == 2
    message = capsys.readouterr().err
    assert told in message and "damaged" not in message
    if "not a" in told:
        assert "--resume" in message and message.rstrip().endswith("resumes it")
