"""Published rewards: they are fetched by name, held against their digests, and scored as one winner of each task."""

import hashlib
import io
import urllib.error
from dataclasses import replace

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.score import published
from envcoder_bench.score.folder import Notes, ScoreFolder
from envcoder_bench.score.protocol import TASKS
from envcoder_bench.score.run import begin, tasks_of
from envcoder_bench.score.unseen import UNSEEN_TASKS

# as a task's module of IsaacGymEnvs
MODULE = """import numpy as np
from isaacgym.gymtorch import *
from isaacgymenvs.tasks.base.vec_task import VecTask


class AntGPT(VecTask):
    def compute_reward(self, actions):
        self.rew_buf[:] = compute_reward(self.root_states)


import torch
@torch.jit.script
def compute_reward(root_states: torch.Tensor) -> torch.Tensor:
    return root_states[:, 7]
"""
ASKED = {"track": "reward", "budget": "one-shot", "base_url": None, "max_cost": None}


@pytest.fixture
def method(tmp_path, monkeypatch):
    """The folder of a checkout of a method ``other`` with one file."""
    digest = hashlib.sha256(MODULE.encode()).hexdigest()
    monkeypatch.setitem(
        published.METHODS, "other", published.Published("who/what", "c0", {"Ant": ("a/ant.py", digest)})
    )
    (tmp_path / "repo" / "a").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "ant.py").write_text(MODULE)
    return tmp_path / "repo"


@pytest.mark.slow
def test_the_reward_alone_is_taken_of_a_checkout_and_kept(method, tmp_path):
    model = f"replay:other@{method}"
    asked = {**ASKED, "model": model, "tasks": ("Ant", "AnymalTurn", "unseen")}
    folder, config = begin(tmp_path / "score", **asked)
    notes = Notes(dict.fromkeys(UNSEEN_TASKS, 3))
    assert [task.name for task in tasks_of(folder, config, notes)] == ["Ant", "UnseenAnt3"]
    assert (
        config.model == "replay:other"
        and config.searches == 0
        and config.candidate == "other"
        and "published" in config.changes[0]
    )
    (method / "a" / "ant.py").unlink()  # a score that goes on needs neither network nor checkout
    folder, config = ScoreFolder.open(folder.path)
    text = published.reward_of(config.model, TASKS["Ant"], folder.published("Ant"))
    assert text.startswith("from isaacgym.torch_utils import *\n") and "class" not in text and "gymtorch" not in text
    assert text.rstrip().endswith("return root_states[:, 7]")
    folder.published("Ant").write_text(MODULE.replace("7", "8"))
    with pytest.raises(UserError, match=r"is not the file that replay:other has published: its SHA-256 is"):
        published.reward_of(config.model, TASKS["Ant"], folder.published("Ant"))


def test_a_file_that_cannot_be_had_is_one_line(method, tmp_path, monkeypatch):
    def refuse(address, timeout):
        assert address == "https://raw.githubusercontent.com/who/what/c0/a/ant.py"
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(published.urllib.request, "urlopen", refuse)
    for model, part in (
        ("replay:other", r"^--llm replay:other: https://\S+ cannot be fetched: no route to host; .*@FOLDER"),
        (f"replay:other@{tmp_path}", r"ant\.py cannot be read: No such file.*must be a checkout of https://github"),
    ):
        with pytest.raises(UserError, match=part) as error:
            begin(tmp_path / "score", **ASKED, model=model, tasks=("Ant",))
        assert "\n" not in str(error.value)
    monkeypatch.setattr(published.urllib.request, "urlopen", lambda address, timeout: io.BytesIO(b"404"))
    with pytest.raises(UserError, match="is not the file that"):
        begin(tmp_path / "score", **ASKED, model="replay:other", tasks=("Ant",))
    with pytest.raises(UserError, match="has no reward for these tasks: give --tasks Ant"):
        begin(tmp_path / "score", **ASKED, model="replay:other", tasks=("smoke",))
    assert not (tmp_path / "score").exists()


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        ({"budget": "agent", "agent": "no-such-program", "max_cost": 5.0}, "--budget, --agent, --max_cost"),
        ({"budget": "search", "runs": 2}, "--budget, --runs"),
        ({"base_url": "http://localhost"}, "--base_url"),
    ],
)
def test_what_only_a_search_has_is_refused(more, flags, method, tmp_path):
    with pytest.raises(UserError, match=f"^--llm replay:other.* makes no search .*: leave out {flags}$"):
        begin(tmp_path / "score", **{**ASKED, **more}, model=f"replay:other@{method}", tasks=("Ant",))
    assert not (tmp_path / "score").exists()


def test_a_score_that_was_cut_in_its_making_is_not_one(method, tmp_path, monkeypatch):
    def cut(self, task):
        raise KeyboardInterrupt

    monkeypatch.setattr(ScoreFolder, "published", cut)
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "score", **ASKED, model=f"replay:other@{method}", tasks=("Ant",))
    with pytest.raises(UserError, match="it is not the folder of a score"):
        ScoreFolder.open(tmp_path / "score")


def test_a_goal_of_its_own_has_no_published_reward():
    assert [name for name, task in TASKS.items() if published.has_reward("replay:eureka", task)] == ["Ant"]
    unseen = replace(TASKS["Ant"], address="unseen/UnseenAnymal1", base="Anymal")
    assert published.has_reward("replay:rf-agent", unseen)
    assert not published.has_reward("replay:rf-agent", replace(unseen, goal=TASKS["AnymalTurn"].goal))
