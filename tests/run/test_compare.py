"""Comparisons of runs: against numbers computed by hand and by pandas, from folders with made-up results."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from envcoder_bench.__main__ import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.results.rows import Result, read_results, write_results
from envcoder_bench.run.folder.run_folder import CandidateSource, RunFolder
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tools.compare import compare, comparison_page, render

SOURCE = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"


def made(path, fitness, seed=0, task="Cartpole", sources=None, overrides=()):
    """A run folder with ``fitness``: by candidate, of each seed; None for a failed one."""
    seeds = max(map(len, fitness.values()))
    cfg = resolve(task, ["sim=mujoco_cpu", "device=cpu", f"seeds={seeds}", f"seed={seed}", *overrides]).config
    texts = {name: (sources or {}).get(name, SOURCE) for name in fitness}
    folder = RunFolder.create(
        path, RunSpec.of(cfg, [CandidateSource(name, f"{name}.py", text) for name, text in texts.items()])
    )
    rows = [
        Result(name, seed + k, "failed", fault=Fault("broken </script>")) if value is None
        else Result(name, seed + k, "ok", value, value - 0.1, value + 0.1, episodes=8, env_steps=100)
        for name, values in fitness.items() for k, value in enumerate(values)
    ]  # fmt: skip
    write_results(folder.results, rows)
    return path


@pytest.fixture
def two(tmp_path):
    first = {"human": [0.5, 0.6], "a": [0.7, 0.9], "b": [0.1, 0.2], "bad": [None, None], "c": [0.0, 0.1]}
    second = {"human": [0.5, 0.7], "a": [0.9, 1.0], "b": [0.0, 0.3], "bad": [0.4, 0.4], "own": [0.3, 0.3]}
    changed = {"a": SOURCE.replace("cos", "sin")}
    return (
        made(tmp_path / "one", first),
        made(tmp_path / "two", second, sources=changed, overrides=["learning_iterations=7"]),
    )


@pytest.mark.slow
def test_comparison_has_ranking_differences_correlations_and_settings(two):
    found = compare(two)
    assert [row.candidate for row in found.ranked][:3] == ["two: a", "one: a", "two: human"]
    assert [row.rank for row in found.ranked] == [1, 2, 3, 4, 5, 6, 7, 7, 9, None]
    shared = {own.name: own for own in found.shared}
    assert list(shared) == ["a", "human", "b"]  # best first; one failed in the first run
    assert shared["a"].differences["two"].mean == pytest.approx(0.15) and shared["a"].other_source == ("two",)
    assert found.correlations == {"two": (pytest.approx(1.0), 3)}
    assert found.settings == {"learning_iterations": ["500", "7"]}
    text = render(found, 100)
    assert re.search(r"\na +0\.800 \[0\.\d+, \d\.\d+\] +\+0\.150 (±|\[).* \*\n", text)
    assert "the file of this name is another one" in text and "learning_iterations: 500 | 7" in text
    assert "Spearman's correlation +1.00 over 3 candidates" in text


def complete(folder):
    """Let a run be complete, with the meaning of its fitness that a run would write."""
    (folder / "summary.json").write_text(json.dumps({"fitness_meaning": "Uprightness.", "ranking": []}))
    return folder


@pytest.mark.slow
def test_runs_that_differ_in_their_seeds_are_one_run(tmp_path):
    """Candidates of equal files are pooled, and a lucky one of an easy seed is not ahead of a good one."""
    own = {name: f"{SOURCE}# {name}\n" for name in ("lucky", "good", "b")}
    # human says that seed 3 adds 0.3 to all; 'renamed' is the file of b, and 'b' of the second run is another one
    first = {"human": [0.3, 0.32, 0.31], "good": [0.5, 0.52, 0.51], "b": [0.2, 0.2, 0.22]}
    second = {"human": [0.6], "lucky": [0.61], "renamed": [0.52], "b": [0.1]}
    one = made(tmp_path / "one", first, sources=own)
    two = made(tmp_path / "two", second, seed=3, sources={**own, "renamed": own["b"], "b": SOURCE})
    found = compare([complete(one), complete(two)])
    assert [row.candidate for row in found.ranked] == ["good", "lucky", "human", "b", "two: b"]
    rows = {row.candidate: row for row in found.ranked}
    assert rows["human"].seeds == rows["b"].seeds == (0, 1, 2, 3) and rows["human"].baseline
    assert rows["good"].vs_human == pytest.approx(0.2) and rows["lucky"].fitness > rows["good"].fitness
    text = render(found, 110)
    assert "pooled over runs, which differ in their seeds alone: human and b (two: renamed)" in " ".join(text.split())
    assert comparison_page(found).count('class="candidate"') == 5
    # nothing is pooled of runs of other lengths, nor of one that is not complete
    made(tmp_path / "long", second, seed=3, sources=own, overrides=["learning_iterations=7"])
    (two / "summary.json").unlink()
    for other in (complete(tmp_path / "long"), two):
        (one / "summary.json").unlink(missing_ok=True)
        if other is not two:
            complete(one)
        assert not compare([one, other]).pooled


@pytest.mark.slow
def test_only_whole_trainings_are_compared(tmp_path):
    """A race stopped b of the second run, and the third run is not complete."""
    fitness = {"human": [0.5, 0.6], "a": [0.7, 0.9], "b": [0.1, 0.2], "c": [0.3, 0.3]}
    other = ["num_envs_per_candidate=8"]
    folders = [made(tmp_path / x, fitness, overrides=other * (x == "raced")) for x in ("one", "raced", "unfinished")]
    for folder in folders[:2]:
        (folder / "summary.json").write_text(json.dumps({"fitness_meaning": "Uprightness.", "ranking": []}))
    rows = read_results(folders[1] / "results.csv")
    high = [replace(row, fitness=1.0, stopped_at=2, status="stopped") if row.candidate == "b" else row for row in rows]
    write_results(folders[1] / "results.csv", high)
    found = compare(folders[:2])
    assert {own.name for own in found.shared} == {"human", "a", "c"}
    assert found.correlations == {"raced": (pytest.approx(1.0), 3)}
    assert [row.candidate for row in found.ranked][-1] == "raced: b"  # its fitness is the highest, of a short training
    assert "not complete" not in render(found, 100)
    (folders[2] / "summary.json").unlink(missing_ok=True)
    text = render(compare([folders[0], folders[1]]), 100)
    assert "raced: human (baseline)" in text
    with pytest.raises(UserError, match="measure different fitness"):
        compare([folders[0], folders[2]])  # by its config, an unfinished run has the task's own meaning
    (folders[0] / "summary.json").unlink()
    text = render(compare([folders[0], folders[2]]), 100)
    assert "unfinished is not complete: its fitness is that of its last evaluation, after 100 env-steps" in text


@pytest.mark.slow
def test_complete_run_without_its_results_is_refused(two, tmp_path, capsys, monkeypatch):
    """A page without candidates would replace the one that is there."""
    (two[0] / "results.csv").unlink()
    with pytest.raises(UserError, match="no candidate has a fitness yet"):
        compare(two)
    (two[0] / "summary.json").write_text(json.dumps({"fitness_meaning": "Uprightness.", "ranking": []}))
    (two[0] / "report.html").write_text("before")
    monkeypatch.chdir(tmp_path)
    for words in (["compare", "one", "two"], ["report", "one", "--video", "0"]):
        assert main(words) == 2
        assert "results.csv is missing, and the run is complete: restore it" in capsys.readouterr().err
    assert (two[0] / "report.html").read_text() == "before"


@pytest.mark.slow
def test_fitness_files_with_other_code_are_refused(tmp_path):
    """Their docstrings are equal."""
    code = '"""Share upright."""\n\ndef compute_fitness(pole_angle):\n    return (pole_angle.abs() < {}).float()\n'
    folders = []
    for name, limit, note in (("one", 0.5, ""), ("same", 0.5, "# half a radian\n"), ("other", 0.05, "")):
        file = tmp_path / f"{name}.py"
        file.write_text(note + code.format(limit))
        folders.append(made(tmp_path / name, {"human": [0.5], "a": [0.4]}, overrides=[f"fitness={file}"]))
        (folders[-1] / "fitness.py").write_text(file.read_text())
    assert compare(folders[:2]).shared
    with pytest.raises(UserError, match=r"copies of the --fitness file have other code, see .*other/fitness\.py"):
        compare([folders[0], folders[2]])


@pytest.mark.slow
def test_comparison_page_lists_all_candidates_and_escapes_texts(two):
    page = comparison_page(compare(two))
    assert "broken &lt;/script&gt;" in page and "broken </script>" not in page
    assert "Differences to one: a" in page and page.count('class="candidate"') == 10
    assert all(f"<h2>{title}</h2>" in page for title in ("Ranking", "In several runs", "Different settings"))


@pytest.mark.slow
def test_compare_command_writes_a_page_unless_output_is_none(two, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "one", "two"]) == 0
    assert capsys.readouterr().out.endswith("\ncompare.html\n") and (tmp_path / "compare.html").is_file()
    (tmp_path / "compare.html").unlink()
    assert main(["compare", "one", "two", "one/../two/", "--output", "none"]) == 2
    assert main(["compare", "one", "two", "--output", "none"]) == 0
    assert not list(tmp_path.glob("*.html"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["compare", "../one", "../two"]) == 0  # the page is beside the first run
    assert (tmp_path / "compare.html").is_file() and not list(Path.cwd().iterdir())


@pytest.mark.slow
def test_incomparable_runs_are_refused(two, tmp_path):
    def refused(other, message):
        with pytest.raises(UserError, match=message):
            compare([two[0], *other])

    (tmp_path / "here").mkdir()
    made(tmp_path / "ant", {"human": [1.0]}, task="Ant")
    made(tmp_path / "failed", {"human": [None]})
    made(tmp_path / "other", {"human": [1.0]})
    (tmp_path / "other" / "summary.json").write_text('{"fitness_meaning": "Stillness."}')
    refused([], "at least two")
    refused([tmp_path / "nowhere"], "it is not the folder of a run: no such folder")
    refused([tmp_path / "here"], "no config.yaml")
    refused([tmp_path / "ant"], "different tasks cannot be compared: Cartpole in .*one, Ant in .*ant")
    refused([tmp_path / "failed"], "no candidate has a fitness yet")
    refused([tmp_path / "other"], "measure different fitness: .*; Stillness")
    refused([tmp_path / "." / "one"], "is given twice")


CALM = f"{SOURCE}\n\ndef compute_terminal(pole_angle):\n    return pole_angle > 1\n"


@pytest.mark.slow
def test_one_command_answers_what_one_asks_of_two_candidates(tmp_path, capsys):
    """Which of two, how sure, how many seeds, why, and was it hacked: of a recorded run, whose code is not executed."""
    few = {"human": [0.5, 0.55, 0.45, 0.5], "a": [0.9, 0.93, 0.85, 0.92], "b": [0.6, 0.65, 0.54, 0.61]}
    fitness = {name: 2 * values for name, values in few.items()}
    run = made(tmp_path / "run", fitness, sources={"a": CALM})
    rows = [replace(row, hacked="fitness fell") if row.candidate == "b" else row for row in
            read_results(run / "results.csv")]  # fmt: skip
    write_results(run / "results.csv", rows)
    # they differ from 2 s to 3 s, and half of human's episodes end
    steps = [
        f"9,90,{name},{seed},{50 * k},{k}.0,{0.5 + (k == 3) * (name == 'a')},{1 - (k == 10) * (name == 'human') / 2}"
        for name in ("human", "a")
        for seed in range(8)
        for k in range(1, 11)
    ]
    header = "iteration,env_steps,candidate,seed,step,seconds,fitness,active"
    (run / "step_fitness.csv").write_text("\n".join([header, *steps, ""]))

    def asked(*names, code=0):
        assert main(["compare", str(run), *names]) == code
        out = capsys.readouterr()
        return " ".join((out.out + out.err).split())

    better, equal, other = asked("a", "human"), asked("human", "b"), asked("human", "a")
    # which of two, and how sure
    assert re.match(r"a is better than human: \+0\.400 \[\+0\.\d+, \+0\.\d+\], p . 0\.0\d+.* over 8 seeds", better)
    assert other.startswith("human is worse than a: -0.400 [-0.")
    assert "each seed +0.400 (seed 0), +0.380 (seed 1), +0.400 (seed 2), +0.420 (seed 3)" in better
    # how many seeds
    assert re.match(r"human against b: cannot tell; difference -0\.100 \[-0\.", equal)
    assert re.search(r"\d+ seeds would tell, .*: eval-shapers --extend .*run --seeds \d+", equal)
    assert "seeds would tell" not in better
    # why
    assert "Most of the difference, 80 %, arises from 2 s to 3 s. 50 % of the episodes of human end early." in better
    assert "both define compute_reward; only a defines compute_terminal" in better
    # was it hacked
    assert "hacked? a: no sign; human: no sign; half the physics step was not measured" in better
    assert "hacked? human: no sign; b: fitness fell" in equal
    # bad names
    assert "no candidate 'humann' (did you mean human?); there are" in asked("a", "humann", code=2)
    assert "--output is the page of several runs" in asked("a", "human", "--output", "x.html", code=2)
