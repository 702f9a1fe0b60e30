"""The budget of agents: a scripted client, the limits of its session, a stop, and what becomes of its rankings."""

import contextlib
import json
import os
import re
import secrets
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'envcoder-bench[mcp]': no mcp")
import anyio
import campaigns
from controllers import SWING_UP
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import find_task
from envcoder_bench.run.evaluate import evaluate
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.score import agent, leaderboard
from envcoder_bench.score.document import score_document
from envcoder_bench.score.folder import ScoreFolder
from envcoder_bench.score.page import score_page
from envcoder_bench.score.protocol import ScoredTask
from envcoder_bench.score.run import begin, run_score
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.prompt.prompts import load_templates
from envcoder_bench.search.providers.transcript import read_records
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import SearchSettings
from envcoder_bench.search.spec import SearchSpec

CARTPOLE = ScoredTask("Cartpole", "Cartpole", "balance the pole", "nothing")
WORDS = ("sim=mujoco_cpu", "device=cpu", "learning_iterations=7", "shaper_types=[compute_reward]")

TEXTS = load_templates()


class Scripted(threading.Thread):
    """An agent in a thread of this process, which reads its folder and talks to the server by HTTP."""

    def __init__(self, desk, script):
        super().__init__(daemon=True)
        self._desk, self._script, self.said, self.code = desk, script, [], None
        self.start()

    def run(self):
        self.files = {path.name: path.read_text() for path in self._desk.iterdir()}
        server = json.loads((self._desk / "mcp.json").read_text())["mcpServers"]["envcoder-bench"]

        async def talk():
            http = create_mcp_http_client(headers=server["headers"])
            async with http, Client(streamable_http_client(server["url"], http_client=http)) as client:
                self.tools = {tool.name for tool in (await client.list_tools()).tools}

                async def call(tool, **arguments):
                    (content,) = (await client.call_tool(tool, arguments)).content
                    self.said.append(json.loads(content.text))
                    return self.said[-1]

                await self._script(call)

        with contextlib.suppress(Exception):  # the server may end first
            anyio.run(talk)
        self.code = 0

    def poll(self):
        return self.code


def in_this_process(patch, script):
    """Let the agent be a thread, and jobs runs of this process."""

    def wait(self, job):
        campaign, seeds = self._campaign, (f"seed={job.seed}", f"seeds={job.seeds}")
        self._begin(job)
        words = [*seeds, f"learning_iterations={job.iterations}", "untrusted=true", *campaign.state.overrides]
        evaluate(campaign.state.task, campaign.files(job), overrides=words, output_dir=campaign.run(job))
        return 0

    patch.setattr("envcoder_bench.serve.jobs.Runner._wait", wait)
    patch.setattr(agent, "start_agent", lambda command, desk, *_: Scripted(desk, script))
    patch.setattr(agent, "end_agent", lambda *_: None)


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Returns a function that runs the session of a scripted agent, whose rankings have made-up fitness."""
    campaigns.fake_jobs(
        monkeypatch, lambda name, seeds: [{"good": 0.9, "bad": 0.1, "long": 0.95}.get(name, 0.5)] * seeds
    )
    monkeypatch.setattr(agent, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(agent.Tools, "_expected", lambda *_: None)
    monkeypatch.setattr(agent, "end_agent", lambda *_: None)

    def session(script):
        home = tmp_path / "score" / "agents" / "Cartpole" / "0"
        search = agent.AgentSearch(home, tmp_path / "search", "m", "agent", CARTPOLE, 20_000, WORDS)
        started = []
        monkeypatch.setattr(agent, "start_agent", lambda *args: started.append(Scripted(args[1], script)) or started[0])
        assert search._play(View())
        return search, started[0]

    return session


async def rank(call, names, **more):
    sources = {name: text if "def " in text else campaigns.source(text) for name, text in names.items()}
    answer = await call("rank", sources=sources, **more)
    if "job" in answer:
        await call("status", job=answer["job"], wait=50)


@pytest.mark.slow
def test_what_an_agent_ranked_becomes_a_search(searched):
    async def script(call):
        await rank(call, {"long": "exp"}, iterations=9)  # another length: it cannot be chosen
        await rank(call, {"bad": "sin", "good": "tan"}, seeds=2)
        await call("describe")
        await rank(call, {"copy": "tan"})

    search, client = searched(script)
    # it reads what a search tells its model, and nothing of where the score is
    inputs = SearchSpec(find_task("Cartpole"), "m", CARTPOLE.description, None, SearchSettings(), [*WORDS], TEXTS, {})
    assert client.files["DESCRIPTION.md"] == inputs.prompts(inputs.described()).system + "\n"
    assert "What is wanted: balance the pole" in client.files["DESCRIPTION.md"]
    assert "# The `human` baseline" in client.files["DESCRIPTION.md"]
    assert re.findall(r"^- `(compute_\w+)", client.files["DESCRIPTION.md"], re.MULTILINE) == ["compute_reward"]
    described = client.said[-2]
    assert described["functions"] == ["compute_reward"] and described["more"] == "DESCRIPTION.md"
    assert str(search.home.parents[2]) not in json.dumps(client.said)
    assert client.tools == {*agent.TOOLS_GIVEN} and "final" not in client.tools
    assert set(client.files) == {"TASK.md", "DESCRIPTION.md", "mcp.json"} and "60 minutes" in client.files["TASK.md"]
    assert "the same as good" in client.said[-1]["error"]["message"] and search.session.ended == agent.LEFT
    search._record()
    folder = SearchFolder(search.search)
    archive = folder.read_archive()
    assert {a.origin.split(",")[0]: (a.round, a.fitness, a.stopped_at) for a in archive.attempts} == {
        "bad": (1, pytest.approx(0.1), 0), "good": (1, pytest.approx(0.9), 0), "long": (2, pytest.approx(0.95), 9),
    }  # fmt: skip
    assert archive.best().origin.startswith("good") and archive.baselines["human"].fitness == pytest.approx(0.5)
    # all seeds are the session's, and no call is lost
    assert all(20_000 <= seed < 30_000 for attempt in archive.attempts for seed in attempt.by_seed)
    records, _ = read_records(folder.transcript)
    assert len(records) == 1 + search.session.calls == 1 + len(client.said) and "canary" in records[0]["meta"]
    assert {name for record in records for name in record.get("sources", ())} == {"long", "bad", "good"}
    assert folder.read_round(1).usage.requests == search.session.calls and search.session.tokens > 100


@pytest.mark.slow
@pytest.mark.parametrize("file", ["campaign/candidates/good.py", "transcript.jsonl"])
def test_a_file_that_an_agent_changes_is_noticed(searched, tmp_path, file):
    async def script(call):
        await rank(call, {"good": "tan"})
        path = tmp_path / "score" / "agents" / "Cartpole" / "0" / file
        path.write_text(path.read_text().replace("tan", "atan"))

    search, _ = searched(script)
    with pytest.raises(UserError, match=rf"{file} was changed while the agent worked: the search does not count"):
        search._record()
    assert not search.search.exists()


@pytest.mark.parametrize("complete", [0, 1, 2], ids=["no line", "the header", "two lines"])
def test_a_session_goes_on_after_a_kill_in_the_middle_of_a_line(searched, complete):
    async def script(call):
        await call("tasks")

    search, _ = searched(script)
    lines = search.transcript.read_bytes().splitlines(keepends=True)
    search.transcript.write_bytes(b"".join(lines[:complete]) + lines[0][:30])
    search.session.ended = ""
    search.save()
    search, _ = searched(script)
    search._refuse_changed()
    records, size = read_records(search.transcript)
    assert len(records) == max(complete, 1) + 1 and size == search.transcript.stat().st_size


def test_a_session_ends_with_its_tokens_or_its_time(searched, monkeypatch):
    async def script(call):
        for _ in range(50):
            await call("tasks")

    monkeypatch.setattr(agent, "AGENT_TOKENS", 300)
    search, _ = searched(script)
    assert search.session.ended == agent.TOKENS and 300 <= search.session.tokens < 800
    monkeypatch.setattr(agent, "AGENT_TOKENS", 10**6)
    monkeypatch.setattr(agent, "AGENT_MINUTES", search.session.seconds / 60)  # a resumed session counts on
    search.session.ended = ""
    search.save()
    search, _ = searched(script)
    assert search.session.ended == agent.TIME and search.session.starts == 2
    meter = agent._Meter(search, search.campaign)
    with pytest.raises(UserError, match="the time is over"):
        meter.before()


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"agent": ""}, "needs --agent COMMAND"),
        ({"agent": "no-such-command-here"}, "is not a command on this machine"),
        ({"agent": "'"}, "No closing quotation"),
        ({"agent": "true", "max_cost": 1.0}, "--max_cost is not for --budget agent"),
        ({"agent": "true", "model": "evolve"}, "evolve is not an agent"),
        ({"agent": "true", "model": "replay:searches/s1"}, "replay:searches/s1 is not an agent"),
        ({"agent": "true", "budget": "search"}, "--agent needs --budget agent"),
    ],
)
def test_an_agent_that_cannot_start_is_named(asked, part, tmp_path):
    words = {"model": "m", "track": "reward", "budget": "agent", "tasks": ("smoke",), "max_cost": None}
    with pytest.raises(UserError, match=part):
        begin(tmp_path / "score", **{**words, **asked})
    assert not any(tmp_path.iterdir())


TINY = (
    *("num_envs_per_candidate=4", "learning_iterations=1", "evaluation.num_envs=4", "evaluation.final_episodes=4"),
    *("evaluation.points=1", "sim=mujoco_cpu", "device=cpu", "train.params.config.horizon_length=4"),
    *("task.env.episodeLength=200", "validation_seeds=2", "seeds=2"),
)


@pytest.mark.slow
def test_an_agent_that_hands_in_a_controller_is_scored_after_a_stop_and_seen_by_what_training_adds(
    tmp_path, monkeypatch
):
    stop, scripts, seen = StopRequest(), [], []

    async def before(call):
        await rank(call, {"controller": SWING_UP, "plain": "sin"}, seeds=1)
        stop("the test")
        while True:  # until the server ends
            await call("status")

    async def after(call):
        seen.extend(job["status"] for job in (await call("status"))["jobs"])

    async def script(call):
        await scripts.pop(0)(call)

    in_this_process(monkeypatch, script)
    monkeypatch.setattr(secrets, "randbelow", lambda below: 5)
    asked = {"track": "all", "budget": "agent", "tasks": ("smoke",), "agent": "true", "overrides": TINY}
    folder, config = begin(tmp_path / "score", model="m", runs=1, **asked)
    scripts += [before, after]
    assert run_score(folder, config, View(stop=stop), lambda text: None) is None
    folder, config = ScoreFolder.open(folder.path)
    score = score_document(config, run_score(folder, config, View(), lambda text: None))
    (search,) = score.tasks[0].runs
    assert score.budget == "agent" and search.candidates == 2 and search.executable == 1.0 and seen == ["done"]
    assert search.winner == "r1_00" and len(search.fitness) == 2 and search.tokens > 100 and search.device_minutes > 0
    # the controller: its policy is as good before training as after it
    rows = open_run(folder.path / "final" / "CartpoleSwingup").rows
    untrained = [row.fitness for row in rows if row.candidate == "untrained"]
    mean, base = (sum(x) / len(x) for x in (search.fitness, untrained))
    assert search.before_training > base + 0.2 and search.before_training == pytest.approx(mean, abs=0.1)
    added = max(1 - (search.before_training - base) / (mean - base), 0)
    assert search.learned == pytest.approx(added) and added < 0.2
    page = score_page(score)
    assert "all (controller allowed)" in page and ">before training<" in page and ">learned<" in page
    # a leaderboard takes it, if a call has the winner
    folder.score.write_text(leaderboard.score_json(score))
    leaderboard.add(folder.path, tmp_path / "site")
    transcript = SearchFolder(folder.path / "searches" / "CartpoleSwingup" / "0").transcript
    transcript.write_text(transcript.read_text().replace("32.0 * angle", "31.0 * angle"))
    notes = folder.read_notes()
    folder.note(notes, transcript.parent)  # as somebody who edits the folder would
    with pytest.raises(UserError, match=r"has no reply with r1_00"):
        leaderboard.add(folder.path, tmp_path / "site")


def test_an_agent_knows_neither_the_score_nor_the_folder_of_its_task(tmp_path):
    (tmp_path / "score" / "unseen" / "UnseenAnt3").mkdir(parents=True)
    task = str(tmp_path / "score" / "unseen" / "UnseenAnt3")
    tools = agent.Tools(agent.Campaign(tmp_path / "campaign", agent.State(task=task)), tmp_path, "DESCRIPTION.md")
    assert tools.tasks()["task"] == "UnseenAnt3" and tools._task("UnseenAnt3") == tools._task("") == task
    with pytest.raises(UserError, match=r"this campaign is of UnseenAnt3") as error:
        tools._task("Ant")
    assert "score" not in error.value.advice
    search = agent.AgentSearch(tmp_path / "score" / "agents" / "T" / "0", tmp_path, "m", "a", CARTPOLE, 1, WORDS)
    answer = json.dumps({"error": {"file": f"{task}/human.py"}})
    search.home.mkdir(parents=True)
    assert json.loads(agent._Meter(search, search.campaign).after("check", {}, answer)) == {
        "error": {"file": "unseen/UnseenAnt3/human.py"}
    }


@pytest.mark.slow
def test_a_command_that_cannot_be_started_is_one_line(tmp_path):
    file = tmp_path / "agent.sh"
    with pytest.raises(UserError, match=r"--agent: \S+agent.sh cannot be started: No such file or directory$"):
        agent.start_agent(str(file), tmp_path, tmp_path / "log", "m")
    file.write_text("echo no first line\n")
    file.chmod(0o755)
    with pytest.raises(UserError, match=r"agent.sh cannot be started: Exec format error; a script begins with .*#!"):
        agent.start_agent(str(file), tmp_path, tmp_path / "log", "m")


@pytest.mark.slow
def test_the_command_runs_in_a_folder_of_its_own_and_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/here")
    monkeypatch.setenv("OLDPWD", "/here")
    monkeypatch.setenv("PATH", os.pathsep.join([f"{agent.PACKAGE.parent}/x", os.environ["PATH"], f"{sys.prefix}/bin"]))
    desk, file = tmp_path / "desk", tmp_path / "agent.sh"
    desk.mkdir()
    # the last one is in a session of its own, as what a killed score leaves
    words = "sleep 100 & one=$!; setsid sleep 100 & sleep 0.2"
    file.write_text(f'#!/bin/sh\n{words}\nenv >environ\necho "$1 $(pwd) [$PYTHONPATH] $one $!"\nwait\n')
    file.chmod(0o755)
    started = agent.start_agent(agent.agent_command("./agent.sh 'a b'"), desk, tmp_path / "log", "mark")
    until = time.monotonic() + 10
    while not (tmp_path / "log").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    environ = (desk / "environ").read_text()
    assert str(agent.PACKAGE.parent) not in environ and sys.prefix not in environ and "/here" not in environ
    assert len(agent._marked("mark")) == 3 and not agent._marked("mar")
    agent.end_agent("mark", started)
    said, *children = (tmp_path / "log").read_text().rsplit(" ", 2)
    assert said == f"a b {desk} []" and started.returncode == -signal.SIGTERM
    assert not agent._marked("mark")
    for child in map(int, children):  # those of init are gone, unless it has not read their end
        with contextlib.suppress(OSError):
            assert Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
