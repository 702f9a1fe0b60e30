"""Replies that are odd: each is a candidate that is checked, or one that failed; the search goes on, and resumes."""

from dataclasses import replace

import pytest
from odd_files import TEXTS, reward
from test_llm import proposer

from envcoder_bench.results.rows import Result
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search import llm as llm_module
from envcoder_bench.search import screen
from envcoder_bench.search.archive import Archive, Attempt, read_archive, write_archive
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.prompt.feedback import feedback
from envcoder_bench.search.rounds import Checker, check_and_repair, record_round
from envcoder_bench.search.terms import term_variants
from envcoder_bench.shaping.contract import Fault

TYPES = ("compute_reward",)
REPLIES = {
    **{name: f"```python\n{text}\n```" for name, text in TEXTS.items()},
    "bare text of surrogates": "\ud800 \x1b[2J\0",
    "only a fence": "```",
    "fences in fences": "````\n```python\n" * 200,
    "thoughts without an end": "<think>" * 500,
    "half a fence": "```python\n" + reward(),
}


@pytest.fixture
def archive():
    baselines = {name: Attempt(name, 0, reward(), fitness=0.1, by_seed={1: 0.1}) for name in ("human", "unshaped")}
    return Archive([], baselines)


def recorded(archive, number, proposals, path):
    """The archive after a round in which every proposal with a source was trained, as a resumed search reads it."""
    ready = [p for p in proposals if p.source]
    failed = [(p, "no_code", p.fault) for p in proposals if not p.source]
    rows = [Result(p.name, 1, fitness=0.2, episode_length=3.0) for p in ready]
    write_archive(path, record_round(archive, Round(number, ready, failed, {}), rows))
    return read_archive(path)


@pytest.mark.parametrize("name", REPLIES)
def test_an_odd_reply_is_one_candidate_and_what_follows_reads_it(name, archive, tmp_path):
    llm, _ = proposer(lambda request: REPLIES[name], tmp_path, types=TYPES)
    proposals = llm.propose(archive, 1, 1)
    assert len(proposals) == 1 and (proposals[0].source or proposals[0].fault)
    assert proposer(lambda request: "", tmp_path, types=TYPES)[0].propose(archive, 1, 1) == proposals  # as resumed
    llm.repair(archive, [(proposals[0], Fault("it \x1b[2J fails", "odd.py", 1))])
    archive = recorded(archive, 1, proposals, tmp_path / "archive.json")
    assert feedback(archive, 5_000).encode()
    term_variants(archive, 2, 3, 3, TYPES)
    assert EvolveProposer(TYPES).propose(archive, 2, 3)


def test_an_error_in_reading_a_reply_is_that_replys(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(llm_module, "reduced", lambda *_: [][1])
    llm, _ = proposer(lambda request: "```python\n" + reward() + "```", tmp_path)
    proposals = llm.propose(archive, 1, 2)
    assert {str(p.fault) for p in proposals} == {"cannot be read: IndexError: list index out of range"}
    assert all(p.reply and not p.source for p in proposals)  # so that it is repaired


@pytest.mark.slow
def test_a_round_of_odd_replies_is_checked_in_the_jail(archive, tmp_path):
    replies = [*REPLIES.values()][::4]
    llm, _ = proposer(lambda request: replies[request.sample % len(replies)], tmp_path / "log", types=TYPES)
    folder = SearchFolder.create(tmp_path / "search", {"llm": "odd"}, {})
    cfg = compose_config("Cartpole", ["num_envs_per_candidate=2", "sim=mujoco_cpu", "device=cpu", "untrusted=true"])
    good = replace(llm.propose(archive, 2, 1)[0], source=reward("torch.cos(x[:, 0])"))
    proposals = [*llm.propose(archive, 1, len(replies)), good]
    round = check_and_repair(1, proposals, llm, archive, Checker(folder, RunSpec.of(cfg), archive), 0)
    assert good.name in {p.name for p in round.ready} and len(round.failed) > 3
    assert all(str(fault).isprintable() for _, _, fault in round.failed)
    folder.write_round(round)
    assert folder.read_round(1) == round and screen.candidates(round)
