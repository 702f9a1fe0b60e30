"""Run folders of other people: looking at one executes no code of it, obeys no text in it and follows no link."""

import json
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
from hostile import ROW, SCRIPT, escapes, false_rows
from page_fakes import HtmlPage
from test_compare import made

from envcoder_bench.__main__ import main
from envcoder_bench.cli.eval_shapers import main as eval_shapers
from envcoder_bench.core.errors import UserError
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.video.page import read_videos
from envcoder_bench.video.recording import Recording

pytestmark = pytest.mark.slow
RED, FALSE = "\x1b[2J\x1b[31m", f"\x1b[1Ax\n{ROW}\n"


def recorded(folder, change):
    """Change the config of a run, as it is and as it was recorded."""
    record = json.loads((folder / "run.json").read_text())
    before = record["config"]
    record["config"] = change(before)
    assert record["config"] != before
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(record["config"])


@pytest.fixture
def foreign(tmp_path):
    """A complete run whose candidates, task, trainer and fitness file write a file where they are executed."""
    marker = tmp_path / "executed"
    execute = f"open({str(marker)!r}, 'w').close()\n"
    code = f'"""Uprightness."""\n{execute}def compute_fitness(pole_angle):\n    return pole_angle\n'
    task = tmp_path / "runs" / "foreign" / "task"
    folder = made(tmp_path / "runs" / "foreign", {"human": [0.5, 0.6], "a": [0.7, 0.9]})
    (folder / "summary.json").write_text(json.dumps({"fitness_meaning": "Uprightness.", "ranking": []}))
    (folder / "fitness.py").write_text(code)
    for file in (*(folder / "candidates").glob("*/source.py"), task / "task.py", task / "__init__.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(execute + (file.read_text() if file.exists() else ""))
    (task / "task.yaml").write_text("name: Cartpole\n")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "sources": {}}))
    recorded(folder, lambda text: text.replace("task_source: null", f"task_source: {task}"))
    return folder, marker


@pytest.mark.parametrize("place", ["task_source", "name of the task", "fitness", "incomplete", "old"])
def test_looking_at_a_run_executes_nothing(foreign, place, tmp_path, capsys):
    folder, marker = foreign
    if place == "name of the task":
        name = f"  name: {folder / 'task'}"
        recorded(
            folder, lambda text: text.replace("task_source: ", "task_source: null # ").replace("  name: Cartpole", name)
        )
    if place == "fitness":
        recorded(folder, lambda text: text.replace("\nfitness: null", "\nfitness: mine.py"))
    if place in ("incomplete", "old"):
        (folder / "summary.json").unlink()
    if place == "old":
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({key: x for key, x in record.items() if key != "fitness"}))
    other = shutil.copytree(folder, folder.parent / "other")
    looks = [["list", str(folder.parent)], ["compare", str(folder), str(other)], ["report", str(folder)]]
    for words in looks:
        assert main(words) == 0, words
        assert not marker.exists(), words
    assert "one: 0." not in capsys.readouterr().out and (folder / "report.html").is_file()
    assert main(["report", str(folder), "--video", "1"]) in (0, 2)
    assert "executes the code" in capsys.readouterr().err
    if place != "fitness":
        assert marker.exists()


def test_texts_of_a_run_are_not_obeyed(tmp_path, capsys):
    folder = made(tmp_path / "runs" / "one", {"human": [0.5, 0.6], "a": [0.7, 0.9], "b": [None, None]})
    other = shutil.copytree(folder, tmp_path / "runs" / f"two{RED}")
    for path in (folder, other):
        hostile = f"{RED} {SCRIPT} {FALSE}"
        fault = json.dumps({**dict.fromkeys(("message", "file", "function", "remedy"), hostile), "line": 3})
        table = pd.read_csv(path / "results.csv", dtype=str, keep_default_na=False)
        failed = table["status"] == "failed"
        table.loc[failed, "error"], table.loc[failed, "fault"] = hostile, fault
        table.loc[table["candidate"] == "a", "candidate"] = f"a{FALSE}"
        table.to_csv(path / "results.csv", index=False)
        meaning = {"fitness_meaning": f"Uprightness. {RED}{SCRIPT}{FALSE}", "ranking": [], "wall_time": 3.0}
        (path / "summary.json").write_text(json.dumps(meaning))
        record = json.loads((path / "run.json").read_text())
        record["software"][0].update(device=f"{RED}{SCRIPT}{FALSE}", torch=f"{path.name}{RED}")
        record["begun"] = f"{RED}{FALSE}"
        (path / "run.json").write_text(json.dumps(record))
        quoted = json.dumps(f"{path.name}{RED}{SCRIPT}{FALSE}")
        recorded(path, lambda text, quoted=quoted: text.replace("group: null", f"group: {quoted}"))
    for words in (["list", str(folder.parent)], ["compare", str(folder), str(other)], ["report", str(other)]):
        assert main(words) == 0
        for text in capsys.readouterr():
            assert not escapes(text) and not false_rows(text), words
    for page in (folder.parent / "compare.html", other / "report.html"):
        text = page.read_text(encoding="utf-8")
        assert not escapes(text) and len(HtmlPage(text).scripts) == 2
    # a damaged table, and a ranking of strangers
    ranking = [{"rank": 1, "candidate": f"x{FALSE}", "baseline": False, "fitness": 0.5, "errors": [f"{RED}{FALSE}"]}]
    (folder / "summary.json").write_text(json.dumps({"fitness_meaning": FALSE, "ranking": ranking}))
    (folder / "results.csv").write_text(f"{RED}{FALSE}")
    assert eval_shapers(["--resume", str(folder)]) == 2 and main(["list", str(folder.parent)]) == 0
    for text in capsys.readouterr():
        assert not escapes(text) and not false_rows(text)


@pytest.mark.parametrize("name", ["../../../secret", "a/b", f"a{RED}", f"a{FALSE}", ".hidden"])
def test_names_of_candidates_are_those_of_files(name, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "source.py").write_text("secret = 1\n")
    folder = made(tmp_path / "runs" / "one", {"human": [0.5], "a": [0.7]})
    recorded(folder, lambda text: text.replace("name: a\n", f"name: {json.dumps(name)}\n"))
    with pytest.raises(UserError, match=r"the run is damaged: the candidate .*: a candidate's name consists of"):
        open_run(folder)


@pytest.mark.parametrize("change", [{"original": "no"}, {"flag": "--terms"}, {"term": FALSE}, {}, None])
def test_note_of_variants_that_the_run_did_not_make_is_refused(change, tmp_path):
    folder = made(tmp_path / "one", {"human": [0.5], "a": [0.7], "a.x": [0.6]})
    note = {"original": "a", "flag": "--terms", "term": "x", "factor": 0.5, **(change or {})}
    if change is not None:
        note = {key: x for key, x in note.items() if change or key != "original"}
    (folder / "variants.json").write_text(json.dumps({"a.x": {**note, "function": "compute_goal"} if change else note}))
    if change is None:
        assert open_run(folder).sources["a.x"].variant is not None
        return
    with pytest.raises(UserError, match=r"the run is damaged: .*variants\.json: "):
        open_run(folder)


def test_files_of_a_run_are_not_those_elsewhere(tmp_path):
    folder = made(tmp_path / "one", {"human": [0.5], "a": [0.7]})
    (folder / "summary.json").write_text(json.dumps({"fitness_meaning": "Uprightness.", "ranking": []}))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in (".report.html.tmp", "report.html", ".compare.html.tmp"):
        (folder / name).symlink_to(precious)
    (tmp_path / ".compare.html.tmp").symlink_to(precious)
    other = shutil.copytree(folder, tmp_path / "other", symlinks=True)
    assert main(["report", str(folder)]) == 0 and main(["compare", str(folder), str(other)]) == 0
    assert precious.read_text() == "mine"
    assert not (folder / "report.html").is_symlink() and not (folder / ".report.html.tmp").is_symlink()


def test_videos_are_those_of_candidates(tmp_path, monkeypatch, caplog):
    """Their names are those of files."""
    videos = tmp_path / "run" / "videos"
    videos.mkdir(parents=True)
    (videos / "videos.json").write_text('{"seconds": 1.0, "note": ""}')
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    run = SimpleNamespace(folder=SimpleNamespace(path=tmp_path / "run"))
    for content in (b"", b"PK\x03\x04"):
        (videos / "recording.npz").write_bytes(content)
        assert read_videos(run) is None

    hostile = SimpleNamespace(episodes=[SimpleNamespace(name="../../secret")])
    monkeypatch.setattr(Recording, "load", lambda path: hostile)
    assert read_videos(run) is None and "a candidate's name consists of" in caplog.text
