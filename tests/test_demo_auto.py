"""The demonstration of a search: its flags are valid, and the files that it names exist."""

import importlib.util
import sys

import pytest

from envcoder_bench.core.folders import project_folder

pytestmark = pytest.mark.slow

SMALL = (
    "--num_iters 1 --shapers_per_iter 2 --num_envs_per_candidate 2 --learning_iterations 1 --seeds 1 --final_seeds 1"
    " task.env.episodeLength=20 evaluation.num_envs=4 evaluation.final_episodes=4 final_episodes=4"
)


def test_small_demo_writes_a_report(tmp_path, monkeypatch, capsys):
    path = project_folder("scripts") / "demo_auto.py"
    spec = importlib.util.spec_from_file_location("demo_auto", path)
    demo_auto = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo_auto", demo_auto)
    spec.loader.exec_module(demo_auto)
    monkeypatch.chdir(tmp_path)
    assert demo_auto.demo(SMALL.split()) == 0
    (folder,) = (tmp_path / "searches").iterdir()
    assert (folder / "report.html").is_file() and (folder / "best.py").is_file()
    assert f"Open {folder.relative_to(tmp_path) / 'report.html'}" in capsys.readouterr().out
