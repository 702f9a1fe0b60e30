"""The server of ``envcoder-bench mcp``, as a client sees it: tools, errors of the protocol, HTTP, and a kill."""

import contextlib
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import campaigns
import pytest
from controllers import SWING_UP
from forked import Forked

from envcoder_bench.__main__ import main
from envcoder_bench.cli import eval_shapers
from envcoder_bench.cli.verbs import VERBS
from envcoder_bench.core.errors import UserError
from envcoder_bench.serve import jobs, server
from envcoder_bench.serve.campaign import Campaign, State
from envcoder_bench.serve.texts import LIMIT

pytest.importorskip("mcp", reason="pip install 'envcoder-bench[mcp]': no mcp")
import anyio
from mcp import Client
from mcp.server.stdio import stdio_server

TOOLS = [
    *("tasks", "describe", "check", "plan", "rank", "status", "result", "explain", "terms", "sweep", "policy", "final"),
]
SWINGUP = "CartpoleSwingup"
SMALL = [
    *("num_envs_per_candidate=4", "evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1"),
    *("train.params.config.horizon_length=4", "task.env.episodeLength=150"),
]


class Agent:
    """A scripted client, which counts what it gets."""

    def __init__(self, client):
        self._client, self.characters = client, 0

    async def __call__(self, tool, **arguments):
        answer = await self._client.call_tool(tool, arguments)
        (content,) = answer.content
        self.characters += len(content.text)
        assert len(content.text.encode()) <= LIMIT
        return content.text if answer.is_error else json.loads(content.text)


def talk(tools, script):
    """Let a client in this process talk to the server."""

    async def run():
        async with Client(server.make_server(tools)) as client:
            return await script(Agent(client))

    return anyio.run(run)


def test_the_tools_are_listed_with_few_words(tmp_path):
    async def run():
        async with Client(server.make_server(campaigns.tools_in(tmp_path / "a"))) as client:
            return (await client.list_tools()).tools

    tools = anyio.run(run)
    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.description for tool in tools)
    assert len(json.dumps([tool.model_dump(mode="json", exclude_none=True) for tool in tools])) < 7000


def test_a_hostile_client_gets_errors(tmp_path):
    (tmp_path / "secret.py").write_text("secret = 1\n")
    tools = campaigns.tools_in(tmp_path / "work")
    before = (tools.campaign.folder / "campaign.json").read_text()

    async def script(agent):
        return [
            await agent("rank", sources={"big": "#" * 10_000_000}),
            await agent("rank", files=["../secret.py"]),
            await agent("rank", sources={"../../x": "y = 1"}),
            await agent("rank", sources={"a": "y = 1"}, seeds="many"),
            await agent("rank", sources={"a": "y = 1"}, minutes=float(10**6)),
            await agent("rank", sources={"a": "y = 1"}, task="Ant"),
            await agent("result", job="j9"),
            await agent("status", job="../campaign"),
            await agent("explain", job="j1", candidate="../x"),
            await agent("nothing"),
            await agent("sweep", sources={"a": "y = 1"}, numbers={"--output_dir=/tmp/x a": [1]}),
        ]

    errors = talk(tools, script)
    assert all(isinstance(error, str) and "secret = 1" not in error for error in errors)
    assert json.loads(errors[0])["error"]["advice"].startswith("a file may have")
    assert (tools.campaign.folder / "campaign.json").read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {"secret.py", "work"}


def test_two_clients_share_the_campaign(tmp_path):
    """Both rank at once: no job is lost, no seed is given twice, and a name is taken once."""
    tools, errors = campaigns.tools_in(tmp_path / "work"), []

    async def rank(client, names):
        agent = Agent(client)
        for name, text in names.items():
            answer = await agent("rank", sources={name: campaigns.source(text)}, iterations=1)
            errors.extend([answer] if isinstance(answer, str) else [])

    async def run():
        app = server.make_server(tools)
        async with Client(app) as one, Client(app) as two, anyio.create_task_group() as both:
            both.start_soon(rank, one, {"a": "cos", "same": "tan"})
            both.start_soon(rank, two, {"b": "sin", "same": "exp"})

    anyio.run(run)
    jobs = tools.campaign.state.jobs
    assert sorted(name for job in jobs for name in job.candidates) == ["a", "b", "same"]
    assert len({job.name for job in jobs}) == 3 and sorted(job.seed for job in jobs) == [1, 4, 7]
    assert len(errors) == 1 and "another candidate was named same" in errors[0]


def test_a_fault_of_the_server_is_not_shown(tmp_path, monkeypatch):
    def tasks():
        return {}["/home/somebody"]

    tools = campaigns.tools_in(tmp_path / "a")
    monkeypatch.setattr(tools, "tasks", tasks)

    async def script(agent):
        return await agent("tasks")

    assert "somebody" not in talk(tools, script)


def test_two_servers_cannot_have_a_folder(tmp_path):
    from envcoder_bench.core.files import locked

    with locked(tmp_path, "campaign"), pytest.raises(UserError, match="another process"):
        server.serve(tmp_path, tmp_path, State())


def test_a_folder_keeps_its_task(tmp_path):
    Campaign(tmp_path / "a", State("Ant"))
    with pytest.raises(UserError, match="is a campaign of Ant"):
        server.serve(tmp_path / "a", tmp_path, State("Cartpole"))


@pytest.mark.parametrize(
    "words", [["mcp"], ["mcp", "x", "--task", "Cartpol"], ["mcp", "x", "--task", "Cartpole", "no=1"]]
)
def test_a_command_that_is_wrong_writes_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2 and not [*tmp_path.iterdir()]


def test_the_skill_is_installed(tmp_path, capsys):
    assert main(["mcp", "--install-skill", str(tmp_path / "skills")]) == 0
    text = (tmp_path / "skills" / "envcoder-bench" / "SKILL.md").read_text()
    assert text.startswith("---\nname: envcoder-bench\n") and "cannot tell" in text
    named = {word for word in TOOLS if f"`{word}`" in text}
    assert named >= {"describe", "check", "plan", "rank", "status", "result", "explain", "terms", "final"}


def test_the_config_of_the_page_starts_the_server(tmp_path):
    text = (Path(server.__file__).parents[2] / "docs" / "agents.md").read_text()
    config = json.loads(text.partition("```json\n")[2].partition("```")[0])["mcpServers"]["envcoder-bench"]
    verb, *words = config["args"]
    assert config["command"] == "envcoder-bench" and VERBS[verb].build_parser().parse_args(words).task == SWINGUP
    assert all(f"`{tool}`" in text for tool in TOOLS)


def post(port, token=None, body=b"{}"):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:  # it closed the connection before the whole body was sent
        return 413


@pytest.mark.slow
def test_http_needs_the_token(tmp_path):
    tools = campaigns.tools_in(tmp_path / "work")
    with server.served(tools, tmp_path) as (address, token):
        port = int(address.split(":")[2].split("/")[0])
        assert (tmp_path / "token").stat().st_mode & 0o77 == 0
        begin = {
            **{"jsonrpc": "2.0", "id": 1, "method": "initialize"},
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
        body = json.dumps(begin).encode()
        assert [post(port, None, body), post(port, "wrong", body), post(port, token, body)] == [401, 401, 200]
        assert post(port, token, b"#" * 10_000_000) == 413


@contextlib.contextmanager
def forked_server(*words):
    """A server in a fork, and its jobs in forks of it; yields its process and a client's transport."""
    (stdin, write), (read, stdout) = os.pipe(), os.pipe()

    def job(command, stdout, stderr, **_):
        assert command[:3] == [sys.executable, "-m", "envcoder_bench.eval_shapers"]
        return Forked(lambda: eval_shapers.main(command[3:]), stderr.name, stdout.name)

    def serve():
        os.setpgid(0, 0)  # its jobs are killed with it
        os.dup2(stdin, 0), os.dup2(stdout, 1)
        for pipe in (stdin, stdout, read, write):
            os.close(pipe)
        jobs.subprocess = SimpleNamespace(Popen=job, DEVNULL=None)
        return main(["mcp", *map(str, words)])

    process = Forked(serve)
    os.close(stdin), os.close(stdout)
    with open(read) as replies, contextlib.suppress(BrokenPipeError), open(write, "w") as requests:
        yield process, stdio_server(anyio.wrap_file(replies), anyio.wrap_file(requests))


@pytest.mark.slow
def test_an_agent_goes_from_a_task_to_final_though_all_is_killed(tmp_path):
    """Nothing is lost, and all answers together are at most 8,000 tokens, at four characters each."""
    folder = tmp_path / "campaign"
    words = [folder, "--task", SWINGUP, "--files", tmp_path, *SMALL]
    (tmp_path / "good.py").write_text(SWING_UP)

    async def begin(process, transport):
        async with Client(transport) as client:
            agent = Agent(client)
            facts = await agent("describe", task=SWINGUP)
            assert Path(facts["more"]).is_file() and facts["baselines"]["human"].endswith("human.py")
            checked = await agent("check", files=["good.py"], sources={"bad": "def compute_reward(:"})
            faults = {each["name"]: each.get("error") for each in checked["files"]}
            assert faults["good"] is None and faults["bad"]["line"] == 1
            planned = await agent("plan", candidates=1, seeds=8, iterations=1)
            assert planned["policies"] == 24 and 0 < planned["seconds_expected"][0] < planned["seconds_expected"][1]
            job = (await agent("rank", files=["good.py"], seeds=8, iterations=1, question="upright?"))["job"]
            run, until = Campaign(folder).run(Campaign(folder).job(job)), time.monotonic() + 60
            while not (run / "config.yaml").exists() and time.monotonic() < until:
                await anyio.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
            return agent.characters

    async def go_on(process, transport):
        async with Client(transport) as client:
            agent = Agent(client)
            result = await done(agent, "j1")
            assert result["question"] == "upright?" and result["ledger"] == "1 attempts, 24 policies"
            assert result["champion"] == {"name": "good", "kept": False}
            assert result["candidates"][0]["versus_human"]["verdict"] == "better"
            explained = await agent("explain", job="j1", candidate="good")
            assert len(explained["tenths"]["good"]) == 10
            assert (await agent("final"))["job"] == "j2"
            result = await done(agent, "j2")
            assert result["final"] == "best of 1: good is better than human, on seeds of its own"
            assert "one final evaluation for 18 attempts" in await agent("final")
            os.killpg(process.pid, signal.SIGKILL)
            return agent.characters

    async def done(agent, job):
        for _ in range(6):
            status = await agent("status", job=job, wait=50)
            if status["jobs"][0]["status"] in ("done", "failed"):
                break
        return await agent("result", job=job)

    characters = 0
    for talk in (begin, go_on):
        with forked_server(*words) as (process, transport):
            characters += anyio.run(talk, process, transport)
        process.wait(60)
    assert characters <= 4 * 8000, characters
