"""The commands of the tutorial and of the README run, one after the other, with small sizes."""

import shlex
import shutil

import pytest
from doc_pages import ROOT, files_of, shell_lines, text_of

from envcoder_bench import __main__ as envcoder_bench
from envcoder_bench.cli import eval_shapers

pytestmark = pytest.mark.slow

SMALL = {
    "--num_envs_per_candidate": "4",
    "--learning_iterations": "2",
    "--seeds": {"3": "1", "5": "1", "8": "2"},
}
QUICK = ("--sim", "mujoco_cpu", "--device", "cpu", "--video", "0", "task.env.episodeLength=20", "evaluation.points=1")
EPISODES = ("evaluation.num_envs=2", "evaluation.final_episodes=2")
MAINS = {"eval-shapers": eval_shapers.main, "envcoder-bench": envcoder_bench.main}


def small(words):
    """Return the words of a command with small sizes."""
    words = list(words)
    for flag, value in SMALL.items():
        if flag in words:
            k = words.index(flag) + 1
            words[k] = value if isinstance(value, str) else value[words[k]]
    if words[0] == "eval-shapers" and not {"--extend", "--describe"} & set(words):
        words += [*QUICK[:4], *QUICK[6:], *EPISODES] if "--check" in words else [*QUICK, *EPISODES]
    return words


def run_page(name, monkeypatch, folder):
    """Run the shell lines of a page that are this project's commands; return them."""
    monkeypatch.chdir(folder)
    shutil.copytree(ROOT / "user_functions", folder / "user_functions")
    ran = []
    for line in shell_lines(text_of(name)):
        words = shlex.split(line, comments=True)
        if words[0] in MAINS:
            command, *rest = small(words)
            assert MAINS[command](rest) == 0, line
            ran.append(words)
    return ran


def write_mine(name, folder):
    """Write the candidates of a page into ``mine/``; return their names."""
    (folder / "mine").mkdir()
    written = []
    for text in files_of(text_of(name)):
        file = "fitness" if "compute_fitness" in text else "gentle" if "compute_torque" in text else "centre"
        if file != "fitness":
            (folder / "mine" / f"{file}.py").write_text(text, encoding="utf-8")
        written.append(file)
    return written


def test_tutorial_runs(tmp_path, monkeypatch, capsys):
    assert write_mine("docs/tutorial.md", tmp_path) == ["fitness", "centre", "gentle"]
    ran = run_page("docs/tutorial.md", monkeypatch, tmp_path)
    assert len(ran) == 6
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("cart's position on the rail", "upright", "vs human", "gentle", "policy.onnx"):
        assert words in shown
    run = tmp_path / "runs" / "first"
    for file in ("report.html", "status.html", "learning_curves.png"):
        assert (run / file).is_file()


def test_readme_commands_run(tmp_path, monkeypatch, capsys):
    assert write_mine("README.md", tmp_path) == ["gentle"]
    assert len(run_page("README.md", monkeypatch, tmp_path)) == 2
    assert "gentle" in capsys.readouterr().out


def test_readme_candidate_has_twelve_lines_and_is_that_of_the_tutorial():
    (candidate,) = files_of(text_of("README.md"))
    assert len(candidate.splitlines()) == 12 and candidate in files_of(text_of("docs/tutorial.md"))


def test_fitness_of_the_tutorial_is_the_shipped_one():
    shown = files_of(text_of("docs/tutorial.md"))[0].partition('"""\n')[2].strip()
    assert shown in text_of("user_functions/fitness/cartpole_centre.py")
