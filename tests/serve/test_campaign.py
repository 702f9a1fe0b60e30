"""Campaigns of agents: the champion, the ledger, the budget, the seeds and the queue, with made-up runs."""

import json
import os

import campaigns
import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.serve import intake, jobs
from envcoder_bench.serve.campaign import FILE, FINAL_SEED, Campaign, State
from envcoder_bench.serve.texts import LIMIT, short_json
from envcoder_bench.tasks.base import HUMAN

GOOD = {"good": 0.6, "better": 0.75}


def fitness(name, seeds):
    return [0.2 + GOOD.get(name, 0.0) + 0.01 * (k % 2) + 0.003 * len(name) for k in range(seeds)]


@pytest.fixture
def tools(tmp_path, monkeypatch):
    campaigns.fake_jobs(monkeypatch, fitness)
    tools = campaigns.tools_in(tmp_path / "work")
    tools.runner.start()
    yield tools
    tools.runner.stop()


def ranked(tools, *names, **more):
    job = tools.rank([], {name: campaigns.source(name) for name in names}, **more)["job"]
    assert tools.status(job, wait=20)["jobs"][0]["status"] == "done"
    return tools.result(job)


@pytest.mark.slow
def test_a_campaign_from_candidates_to_final(tools):
    """The champion changes only with *better*; final seeds are those of no other job; the ledger counts all."""
    first = ranked(tools, "plain", "good", seeds=12, question="which?")
    assert first["champion"] == {"name": "good", "kept": False} and first["question"] == "which?"
    rows = {row["name"]: row for row in first["candidates"]}
    assert rows["good"]["versus_human"]["verdict"] == "better" and "versus_champion" not in rows["good"]
    assert rows["plain"]["versus_human"]["verdict"] == "cannot tell"
    second = ranked(tools, "plain", seeds=12)  # again, against another champion
    assert second["champion"] == {"name": "good", "kept": True}
    assert second["candidates"][0]["versus_champion"]["verdict"] == "worse"
    explained = tools.explain("j1", "good", "plain")
    assert explained["verdict"] == "better" and "compute_reward" in explained["functions"]
    job = tools.final(seeds=12)["job"]
    assert tools.status(job, wait=20)["jobs"][0]["status"] == "done"
    result = tools.result(job)
    assert result["final"] == "best of 3: good is better than human, on seeds of its own"
    assert result["ledger"] == "3 attempts, 96 policies"  # (3 + 3 + 2) * 12; made-up runs have no unshaped
    seeds = [range(job.seed, job.seed + job.seeds) for job in tools.campaign.state.jobs]
    assert len({seed for each in seeds for seed in each}) == sum(map(len, seeds))
    assert [each.start >= FINAL_SEED for each in seeds] == [False, False, True]
    with pytest.raises(UserError, match="one final evaluation for 18 attempts; rank 18 more"):
        tools.final()


@pytest.mark.slow
def test_queued_jobs_meet_the_champion_of_their_start(tools):
    """Both are queued at once: the second one must beat the champion that the first one made."""
    names = [tools.rank([], {name: campaigns.source(name)}, seeds=12)["job"] for name in ("better", "good")]
    for name in names:
        tools.status(name, wait=20)
    assert tools.campaign.state.champion == "better" and tools.campaign.job(names[1]).champion == "better"


def test_without_a_gain_there_is_no_final(tmp_path):
    with pytest.raises(UserError, match="no champion"):
        campaigns.tools_in(tmp_path / "a").campaign.add("final", ["human"], 3, 1)


def test_the_budget_and_the_seeds_have_limits(tmp_path):
    campaign = campaigns.tools_in(tmp_path / "a", budget=10.0).campaign
    campaign.add("rank", ["a"], 3, 5).seconds = 11.0
    with pytest.raises(UserError, match="used up"):
        campaign.add("rank", ["b"], 3, 5)
    with pytest.raises(UserError, match="seeds must be 1 to 50"):
        campaign.add("rank", ["b"], 51, 5)


def test_the_state_survives(tmp_path):
    campaign = campaigns.tools_in(tmp_path / "a").campaign
    campaign.add("rank", ["a", "b"], 3, 5, question="why?")
    again = Campaign(campaign.folder, State("Ant"))
    assert again.state == campaign.state and again.state.task == "Cartpole" and again.attempts == 2
    (campaign.folder / FILE).write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        Campaign(campaign.folder)


def test_a_job_is_begun_once_and_then_resumed(tmp_path):
    campaign = campaigns.tools_in(tmp_path / "a", overrides=["num_envs_per_candidate=8"]).campaign
    job = campaign.add("sweep", ["a"], 3, 5, sweep=["tilt=0,1"])
    words = jobs.command_line(campaign, job)
    assert {"--untrusted", "--json", "--sweep=tilt=0,1", "num_envs_per_candidate=8"} <= {*words}
    assert words[words.index("--candidates") + 1 :][:1] == [str(campaign.source("a"))]
    campaign.run(job).mkdir(parents=True)
    (campaign.run(job) / "config.yaml").touch()
    assert jobs.command_line(campaign, job)[4:6] == ["--resume", str(campaign.run(job))]


def test_a_process_of_an_earlier_server_is_known_by_its_folder(tmp_path):
    campaign = campaigns.tools_in(tmp_path / "a").campaign
    runner = jobs.Runner(campaign, lambda job: None)
    job = campaign.add("rank", ["a"], 3, 5)
    job.status, job.pid = "running", os.getpid()  # another process that has its number now
    assert not runner._is_alive(job)


@pytest.mark.slow
def test_the_seeds_of_rankings_of_one_candidate_count_together(tools):
    """Those of other iterations, and those against another champion, do not."""
    first = ranked(tools, "plain", "good", seeds=3)
    versus = {row["name"]: row["versus_human"] for row in first["candidates"]}
    assert versus["good"]["verdict"] == "cannot tell" and first["champion"]["name"] == HUMAN
    ranked(tools, "good", seeds=3, iterations=2)
    assert 0 < versus["good"]["more_seeds"] < 30
    again = ranked(tools, "good", seeds=30)
    row = again["candidates"][0]
    assert again["champion"] == {"name": "good", "kept": False} and row["versus_human"]["verdict"] == "better"
    assert row["versus_human"]["seeds"] == 3 + row["seeds"] == 33
    assert again["ledger"].startswith("4 attempts") and tools.campaign.candidates == 2
    third = ranked(tools, "plain", seeds=3)["candidates"][0]
    assert third["versus_champion"]["seeds"] == 3 and third["versus_human"]["seeds"] == 6


# what comes in


def test_files_are_read_from_the_folder_alone(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir(), outside.mkdir()
    (root / "a.py").write_text("x = 1\n"), (outside / "b.py").write_text("secret = 1\n")
    (root / "link.py").symlink_to(outside / "b.py"), (root / "folder").symlink_to(outside)
    (root / "big.py").write_bytes(b"#" * 10_000_000), (root / "pipe.py").mkdir()
    assert intake.read_files(root, ["a.py"], {"b": "y"}) == {"a": "x = 1\n", "b": "y"}
    for file in ("../outside/b.py", str(outside / "b.py"), "link.py", "folder/b.py", "pipe.py", "a.txt", "none.py"):
        with pytest.raises(UserError) as error:
            intake.read_files(root, [file], {})
        assert "secret" not in str(error.value)
    for sources in ({}, {"big": "#" * 10_000_000}, {"../x": ""}, {"human": ""}, {"a": "", "A": ""}):
        with pytest.raises(UserError):
            intake.read_files(root, [], sources)
    with pytest.raises(UserError, match=r"10,000,000 bytes"):
        intake.read_files(root, ["big.py"], {})


def test_copies_are_refused(tmp_path):
    """Also near copies, constants and copies of a baseline; a candidate itself may be ranked again."""
    campaign = campaigns.tools_in(tmp_path / "a").campaign
    text = "def compute_reward(x):\n    return 0.5 * x\n"
    intake.keep(campaign, {"a": text})
    texts = {
        "a": text.replace("0.5", "5.0"),
        "layout": "# Comment.\ndef compute_reward( x ):\n    return 0.5*x\n",
        "near": text.replace("0.5", "0.51"),
        "far": text.replace("0.5", "5.0"),
        "constant": "def compute_reward(x):\n    return torch.ones_like(x)\n",
        "base": "def compute_reward(y):\n    return y\n",
    }
    faults = intake.copies(campaign, texts, {"human": "def compute_reward(y):\n    return y\n"})
    assert [*faults] == ["a", "layout", "near", "constant", "base"]
    assert [faults[name].twin for name in ("a", "layout", "near", "base")] == ["a", "a", "a", "human"]
    assert all(fault.remedy and fault.file == f"{name}.py" for name, fault in faults.items())
    assert not intake.copies(campaign, {"a": text}, {})


def test_answers_are_short(tmp_path):
    rows = [{"name": f"c{k}", "fitness": 0.123456 + k, "notes": ["x" * 300]} for k in range(40)]
    text = short_json({"job": "j1", "candidates": rows, "x": float("nan"), "more": "path"})
    answer = json.loads(text)
    assert len(text.encode()) <= LIMIT and answer["left_out"] + len(answer["candidates"]) == 40
    assert answer["candidates"][0]["fitness"] == 0.123 and answer["x"] is None and answer["more"] == "path"
    paths = {"human": f"/{'x' * 150}/human.py"}
    keys = [f"key_{k}" for k in range(400)]
    many = json.loads(short_json({"state": keys, "fitness": "y " * 150, "baselines": paths}))
    assert many["baselines"] == paths and len(many["fitness"]) > 290 and len(many["state"]) + many["left_out"] == 400
    assert len(short_json({"a": "é" * 5000}).encode()) <= LIMIT
    assert json.loads(short_json({"a": "short"})) == {"a": "short"}


def test_a_candidate_that_is_refused_is_not_kept(tmp_path):
    tools = campaigns.tools_in(tmp_path / "a", budget=10.0)
    job = tools.campaign.add("rank", ["a"], 3, 5)
    job.seconds, job.policies, job.status = 9.0, 9, "done"
    with pytest.raises(UserError, match="1 s of the budget are left; take fewer"):
        tools.rank([], {"b": campaigns.source("b")}, iterations=1000)
    job.seconds = 11.0
    with pytest.raises(UserError):
        tools.terms([], {"b": campaigns.source("b")}, 3, 1)
    assert not [*(tools.campaign.folder / "candidates").iterdir()] and len(tools.campaign.state.jobs) == 1


def test_other_tasks_and_numbers_are_refused(tmp_path):
    tools = campaigns.tools_in(tmp_path / "a")
    for call in (
        lambda: tools.check([], {"a": "x"}, task="Ant"),
        lambda: tools.sweep({"seed": [1.0]}, [], {"a": "x"}),
        lambda: tools.sweep({"a=1 b": [1.0]}, [], {"a": "x"}),
        lambda: tools.result("j1"),
    ):
        with pytest.raises(UserError):
            call()
    free = campaigns.tools_in(tmp_path / "b", task="")
    for task in ("", "Nothing", str(tmp_path), "os:path"):
        with pytest.raises(UserError):
            free.check([], {"a": "x"}, task=task)


@pytest.mark.slow
def test_a_candidate_that_writes_outside_is_refused(tmp_path):
    """What comes in is unread: it is parsed and run in a confined process."""
    tools, out = campaigns.tools_in(tmp_path / "a"), tmp_path / "written"
    reward = "def compute_reward(pole_angle):\n    {}\n    return torch.cos(pole_angle)\n"
    texts = {
        "opens": f"open({str(out)!r}, 'w').write('x')\n" + reward.format("pass"),
        "later": reward.format(f"open({str(out)!r}, 'w').write('x')"),
        "imports": f"import pathlib\npathlib.Path({str(out)!r}).touch()\n" + reward.format("pass"),
        "saves": reward.format(f"torch.save(pole_angle, {str(out)!r})"),
        "numpy": "import numpy as np\n" + reward.format(f"np.save({str(out)!r}, np.zeros(1))"),
    }
    answers = tools.check([], texts)
    assert not [*tmp_path.glob("written*")]
    assert {row["name"] for row in answers["files"] if row["ok"] is False} == {*texts}, answers
