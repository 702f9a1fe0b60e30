"""The pendulum of docs/add_a_task.md in a folder of its own, for tests of users' tasks."""

import re
import sys
from pathlib import Path

import pytest

from envcoder_bench.sources import outside, registry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add_a_task.md"
BLOCKS = re.findall(r"```(?:xml|python|yaml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
SMALL = [
    *("--num_envs_per_candidate", "4", "--learning_iterations", "2", "--sim", "mujoco_cpu", "--device", "cpu"),
    *("evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1", "task.env.episodeLength=12"),
]


@pytest.fixture
def forgotten(monkeypatch, tmp_path):
    """Tasks that a test finds are forgotten at its end."""
    known = dict(registry._found)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path / "cache"))
    yield
    registry._by_address.clear()
    for name in set(registry._found) - set(known):
        del registry._found[name]
        outside.unmount(name)
    for module in [module for module in sys.modules if module.split(".")[0] == "pendulum"]:
        del sys.modules[module]


@pytest.fixture
def folder(tmp_path):
    """The page's pendulum, in a folder of its own."""
    for text in BLOCKS:
        path = tmp_path / re.search(r"[\w/]+\.\w+", text.splitlines()[0]).group()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "pendulum"


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
