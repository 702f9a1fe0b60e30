"""The list of runs: task, date, best, status; damaged folders are listed, too."""

import json
import time

import pytest
from filelock import FileLock

from envcoder_bench.__main__ import main
from envcoder_bench.results.logs import Point
from envcoder_bench.results.ranking import rank, summary, write_summary
from envcoder_bench.results.rows import RUNNING, Result, write_results
from envcoder_bench.run.folder.checkpoint import FORMAT
from envcoder_bench.tools.listing import find_runs, read_run, render_runs

ROWS = [Result("human", 0, fitness=0.9), Result("a", 0, fitness=0.25), Result("b", 0, fitness=0.5)]


def make_run(path, begun="2026-01-31T12:34:56+0000", rows=ROWS, complete=True):
    path.mkdir(parents=True)
    config = "task:\n  name: Cartpole\n"
    (path / "config.yaml").write_text(config)
    record = {"format": FORMAT, "begun": begun, "software": [], "config": config}
    record.update(sources={}, fitness={}, before=[], files={})
    (path / "run.json").write_text(json.dumps(record))
    if rows:
        write_results(path / "results.csv", rows)
    if complete:
        write_summary(path / "summary.json", summary(rank(rows), {"task": "Cartpole"}, {}))
    return path


def test_best_candidate_is_not_a_baseline(tmp_path):
    run = read_run(make_run(tmp_path / "r"))
    assert (run.task, run.date, run.best, run.fitness) == ("Cartpole", "2026-01-31 12:34:56", "b", 0.5)
    assert run.status == "complete"


def test_best_candidate_is_that_of_the_printed_ranking(tmp_path):
    """Two of equal fitness are told apart by points.csv, which the list does not read."""
    rows = [Result(name, 0, "ok", 0.5, episodes=8, env_steps=100) for name in ("a", "b")]
    path = make_run(tmp_path / "r", rows=rows)
    points = [Point("a", 0, 2, 200, 0.5, 9.0, {}), Point("b", 0, 1, 100, 0.5, 9.0, {})]
    ranked = rank(rows, points=points)
    assert ranked[0].candidate == "b"
    write_summary(path / "summary.json", summary(ranked, {"task": "Cartpole"}, {}))
    assert read_run(path).best == "b"


def test_runs_are_found_recursively_and_sorted_by_date(tmp_path):
    make_run(tmp_path / "later", "2026-03-01T00:00:00+0000")
    make_run(tmp_path / "search" / "rounds" / "1" / "run", "2026-02-01T00:00:00+0000")
    make_run(tmp_path / "first", "2026-01-01T00:00:00+0000")
    make_run(tmp_path / "a second later", "2026-01-01T00:00:01+0000")
    (tmp_path / "other").mkdir()
    found = find_runs([tmp_path, tmp_path / "first"])
    assert [run.path.name for run in found] == ["first", "a second later", "run", "later"]


def test_config_whose_aliases_multiply_is_damage(tmp_path):
    lines = [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10 if k else ['x'] * 10)}]" for k in range(10)]
    path = make_run(tmp_path / "r")
    record = json.loads((path / "run.json").read_text())
    for config in ("\n".join([*lines, "task: {name: *a9}"]), "a: &a {b: *a}\ntask: *a"):
        (path / "run.json").write_text(json.dumps({**record, "config": config}))
        began = time.process_time()
        text = render_runs([read_run(path)])
        assert "damaged (its aliases stand for more than 100,000 values)" in text and len(text) < 2000
        assert time.process_time() - began < 5


def test_run_without_a_summary_is_stopped_or_in_progress(tmp_path):
    path = make_run(tmp_path / "r", rows=[Result("a", 0, RUNNING, fitness=0.25)], complete=False)
    assert (read_run(path).status, read_run(path).best) == ("stopped", "a")
    with FileLock(path / ".lock"):
        assert read_run(path).status == "in progress"
    assert read_run(path).status == "stopped"


@pytest.mark.parametrize(
    "file, text, status",
    [
        ("run.json", "{", "damaged (run.json is damaged ("),
        ("run.json", json.dumps({"format": FORMAT + 1}), f"run.json has format {FORMAT + 1}"),
        ("summary.json", None, "damaged (results.csv: its end is missing)"),
        ("summary.json", "{}", "damaged (summary.json: not the summary of a run"),
    ],
)
def test_damage_is_listed_as_status(file, text, status, tmp_path):
    path = make_run(tmp_path / "r")
    (path / "results.csv").write_text("candidate")
    if text is None:
        (path / file).unlink()
    else:
        (path / file).write_text(text)
    assert status in read_run(path).status
    assert status in render_runs([read_run(path)])


def test_run_without_its_record_is_listed_as_damaged(tmp_path):
    path = make_run(tmp_path / "r")
    (path / "run.json").unlink()
    (path / "candidates").mkdir()
    (run,) = find_runs([tmp_path])
    assert run.status.startswith("damaged (run.json cannot be read") and run.date[:4] == str(time.localtime().tm_year)


def test_list_command_prints_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "r")
    assert main(["list"]) == 0
    header, rule, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["runs/r", "Cartpole", "2026-01-31", "12:34", "b", "0.500", "complete"]
    assert header.index("status") == row.index("complete") and set(rule) == {"-"}
    (tmp_path / "empty").mkdir()
    assert main(["list", "empty"]) == 0
    assert capsys.readouterr().out == "no runs found\n"
