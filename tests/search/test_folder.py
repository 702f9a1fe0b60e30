"""A search's folder: round trips and damaged files."""

import shutil
from pathlib import Path

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.shell import resume_command
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.search.archive import FAILED_AT_LOAD, Archive, Attempt, Proposal, write_archive
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.launch import resume
from envcoder_bench.search.llm import Usage
from envcoder_bench.search.report import SearchFacts, best_facts
from envcoder_bench.shaping.contract import Fault


def make(tmp_path, **files):
    return SearchFolder.create(tmp_path / "search", {"llm": "evolve", "overrides": ["a=b"]}, files)


@pytest.mark.slow
def test_folder_is_created_and_opened(tmp_path):
    made = SearchFolder.create(tmp_path / "search", {"llm": "x'y", "n": 3}, {"prompt/functions/a.md": "ü $x"})
    folder, config = SearchFolder.open(made.path)
    assert (config.llm, config.n) == ("x'y", 3)
    assert (folder.path / "prompt" / "functions" / "a.md").read_text(encoding="utf-8") == "ü $x"
    assert folder.read_archive() == Archive()
    with pytest.raises(UserError, match="already holds a search; use --resume"):
        make(tmp_path)


@pytest.mark.slow
def test_round_file_round_trips(tmp_path):
    folder = make(tmp_path)
    proposal = Proposal("r2_03", "# ü\n", ("r1_00", "human"), "how", left_out=("compute_goal",))
    lost = Proposal("r2_04", "", fault=Fault("why", kind="no code"), note="more", reply="Hm.")
    failed = [(lost, FAILED_AT_LOAD, Fault("bad", "r2_04.py", 1, "compute_reward", "raised", "mend it"))]
    round = Round(2, [proposal], failed, {"r2_03": Fault("was bad")}, Usage(3, 20, 10, None), "no more")
    assert folder.read_round(2) is None
    folder.write_round(round)
    assert folder.read_round(2) == round
    path = folder.round(2) / "round.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"round\.json is damaged .*: delete it to propose the round again"):
        folder.read_round(2)


@pytest.mark.slow
def test_best_is_written_to_a_file(tmp_path):
    folder = make(tmp_path)
    folder.write_best(Archive([Attempt("r1_00", 1, "bad", status=FAILED_AT_LOAD)]), {"task": "none"})
    assert not folder.best.exists()
    archive = Archive([Attempt("r1_00", 1, "good = 1\n", fitness=0.1, by_seed={0: 0.1})])
    write_archive(folder.archive, archive)
    meaning = "how far\nimport os; os.abort()\u2028" + "and wide " * 20
    facts = SearchFacts("Cartpole", fitness_meaning=meaning, final_note="clear of chance")
    folder.write_best(archive, best_facts(archive, "a search\n1/0", facts))
    *comments, source = folder.best.read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert source == "good = 1" and len(comments) > 4 and all(line.startswith("# ") for line in [*comments, "# "])
    assert comments[0] == "# task: Cartpole" and comments[-1] == "# final evaluation: clear of chance"
    assert comments[1].startswith("# candidate: r1_00 of the search a search 1/0, written in round 1")
    assert comments[2].startswith("# fitness: 0.100, mean of 1 seed: how far import os; os.abort()")
    exec(compile(folder.best.read_text(encoding="utf-8"), "best.py", "exec"))
    assert folder.read_archive() == archive
    folder.archive.write_text("[]")
    with pytest.raises(UserError, match=r"archive\.json: not a search's archive"):
        folder.read_archive()


@pytest.mark.slow
def test_unfinished_run_folder_is_removed(tmp_path):
    folder = make(tmp_path)
    run = folder.run(1)
    (run.path / "candidates" / "human").mkdir(parents=True)
    folder.clear_unfinished(run)
    assert not run.path.exists()
    run.path.mkdir()
    run.config.write_text("begun")
    folder.clear_unfinished(run)
    assert run.config.read_text() == "begun"
    folder.clear_unfinished(RunFolder(folder.final))  # there is none


def test_resume_command_has_a_short_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = SearchFolder(tmp_path / "searches" / "a")
    assert folder.command == resume_command(Path("searches/a"), "auto-shape")
    assert folder.command.endswith(" --resume searches/a")


@pytest.mark.parametrize(
    ("search", "overrides", "changed"),
    [
        ({"retries": 4}, [], {}),
        ({"retries": 4}, [], {"num_iters": 2}),
        ({}, ["retries=4"], {}),
    ],
)
def test_a_key_that_another_version_recorded_is_named_with_its_file(tmp_path, search, overrides, changed):
    config = {"llm": "evolve", "task": "Cartpole", "task_description": "Stay up.", "base_url": None}
    folder = SearchFolder(tmp_path)
    shutil.copytree(project_folder("cfg") / "prompt", tmp_path / "prompt")
    folder.config.write_text(to_yaml({**config, "search": {"num_iters": 1, **search}, "overrides": overrides}))
    with pytest.raises(UserError) as error:
        resume(folder.path, changed=changed)
    assert str(error.value).startswith(f"{folder.config}: unknown key 'retries'")
    assert str(error.value).endswith("; another version recorded it: remove it from config.yaml")
