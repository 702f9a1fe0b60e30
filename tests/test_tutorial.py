"""The commands of the tutorial and of the README run, one after the other, with small sizes."""

import shlex
import sys

import pytest
from doc_pages import ROOT, files_of, text_of

from envcoder_bench import __main__ as envcoder_bench
from envcoder_bench.cli import eval_shapers

sys.path.append(str(ROOT / "scripts"))

from follow_pages import steps

pytestmark = pytest.mark.slow

SMALL = {
    "--num_envs_per_candidate": "4",
    "--learning_iterations": "2",
    "--seeds": {"2": "1", "8": "1", "10": "1"},
}
QUICK = ("--sim", "mujoco_cpu", "--device", "cpu", "--video", "0", "task.env.episodeLength=20", "evaluation.points=1")
CALLED = ("compile_shapers=false",)
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
        words += [*QUICK[:4], *QUICK[6:], *EPISODES] if "--check" in words else [*QUICK, *EPISODES, *CALLED]
    return words


def follow(name, monkeypatch, folder, *more):
    """Save the files of a page, and run its commands that are this project's with ``more`` words; return these."""
    monkeypatch.chdir(folder)
    ran = []
    for step in steps(text_of(name)):
        words = shlex.split(step.text, comments=True) if step.kind == "run" else [""]
        if step.kind == "save":
            (folder / step.file).parent.mkdir(exist_ok=True)
            (folder / step.file).write_text(step.text, encoding="utf-8")
        elif words[0] in MAINS:
            command, *rest = small([*words, *more])
            assert MAINS[command](rest) == 0, step.text
            ran.append(words)
    return ran


def test_tutorial_runs(tmp_path, monkeypatch, capsys):
    assert len(follow("docs/tutorial.md", monkeypatch, tmp_path)) == 7
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("cart's position on the rail", "upright", "vs human", "gentle", "policy.onnx"):
        assert words in shown
    run = tmp_path / "runs" / "first"
    assert (run / "report.html").is_file()


def test_readme_commands_are_valid(tmp_path, monkeypatch, capsys):
    """They are checked, not run: the tutorial runs such commands."""
    assert len(follow("README.md", monkeypatch, tmp_path, "--check")) == 2
    assert "gentle" in capsys.readouterr().out


def test_readme_candidate_has_twelve_lines_and_is_that_of_the_tutorial():
    (candidate,) = files_of(text_of("README.md"))
    assert len(candidate.splitlines()) == 12 and candidate in files_of(text_of("docs/tutorial.md"))


def test_fitness_of_the_tutorial_is_the_shipped_one():
    shown = files_of(text_of("docs/tutorial.md"))[0].partition('"""\n')[2].strip()
    assert shown in text_of("user_functions/fitness/cartpole_centre.py")
