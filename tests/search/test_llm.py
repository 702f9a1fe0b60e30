"""Candidates from a model: samples, repairs and the budget."""

import threading
from dataclasses import replace

import pytest
from search_fakes import random_archive, source

from envcoder_bench.search.archive import Archive, Proposal
from envcoder_bench.search.llm import LLMProposer
from envcoder_bench.search.prompt.feedback import fastest, to_mend
from envcoder_bench.search.prompt.prompts import Prompts, load_templates
from envcoder_bench.search.providers.base import LENGTH, REFUSAL, Reply, max_input_tokens
from envcoder_bench.search.providers.budget import Budget
from envcoder_bench.search.providers.transcript import Transcript
from envcoder_bench.search.settings import SearchSettings
from envcoder_bench.shaping.contract import Fault


class Model:
    """Answers with what a function makes of the request; keeps all requests."""

    name, model, default_output_tokens = "fake:m", "m", 100

    def __init__(self, answer):
        self.answer, self.requests, self.lock = answer, [], threading.Lock()

    def complete(self, request):
        with self.lock:
            self.requests.append(request)
        text = self.answer(request)
        return text if isinstance(text, Reply) else Reply(text, 10, 5, 0.25)


def fenced(request):
    return f"Sure.\n```python\n{source(request.label)}```\n"


def proposer(answer, tmp_path, budget=None, starts=None, types=None, **options):
    model = Model(answer)
    tmp_path.mkdir(exist_ok=True)
    prompts = Prompts(load_templates(), "the system", 4, 20_000)
    transcript = Transcript(tmp_path / "transcript.jsonl", {})
    settings = SearchSettings(**options)
    return LLMProposer(model, transcript, budget or Budget(), prompts, settings, starts, types=types), model


def test_samples_of_a_round_differ_in_their_starting_point_alone(tmp_path):
    llm, model = proposer(fenced, tmp_path, temperature=0.7, max_output_tokens=77)
    archive = random_archive(1)
    proposals = llm.propose(archive, 3, 3)
    assert [p.name for p in proposals] == ["r3_00", "r3_01", "r3_02"]
    assert [p.source for p in proposals] == [source(p.name) for p in proposals]
    assert {p.parents for p in proposals} == {()}  # no docstring names one
    assert [p.origin for p in proposals] == ["m, sample 0", "m, sample 1", "m, sample 2"]
    assert {(r.system, r.temperature, r.max_output_tokens) for r in model.requests} == {("the system", 0.7, 77)}
    requests = sorted(model.requests, key=lambda r: r.sample)
    texts = [r.messages[0].text.split("Your starting point is ") for r in requests]
    assert len({shared for shared, _ in texts}) == 1
    assert texts[0][1].startswith(f"{archive.best().name}, the best so far")
    assert texts[1][1].startswith(f"{fastest(archive).name}, which learns fastest")
    assert texts[2][1].startswith(f"{to_mend(archive).name}, which could do better")
    assert sorted(r.sample for r in model.requests) == [0, 1, 2]
    assert (llm.usage.requests, llm.usage.input_tokens, llm.usage.output_tokens, llm.usage.cost) == (3, 30, 15, 0.75)


def test_last_round_asks_for_the_surest_change_and_no_new_idea(tmp_path):
    llm, model = proposer(fenced, tmp_path, concurrency=1)
    archive = random_archive(1)
    llm.propose(archive, 4, 4)  # of four
    told = {r.sample: r.messages[0].text for r in model.requests}
    assert all("This is the last round" in text for text in told.values())
    names = [archive.best().name, fastest(archive).name, to_mend(archive).name, archive.best().name]
    assert all(f"Your starting point is {name}:" in told[k] for k, name in enumerate(names))


def test_parents_are_those_that_the_docstring_names(tmp_path):
    def answer(request):
        return fenced(request).replace(f"Idea of {request.label}.", "Steeper (from: r1_00, r9_99).")

    llm, _ = proposer(answer, tmp_path)
    archive = random_archive(1)
    (one,) = llm.propose(archive, 3, 1)
    assert one.parents == ("r1_00",) and "r1_00" in archive.by_name


def test_reply_without_code_is_a_proposal_without_source(tmp_path):
    llm, model = proposer(lambda r: "I would rather not." if r.sample == 1 else fenced(r), tmp_path)
    proposals = llm.propose(Archive(), 1, 3)
    assert [bool(p.source) for p in proposals] == [True, False, True]
    lost = proposals[1]
    assert (str(lost.fault), lost.reply) == ("no compute_* function in the reply", "I would rather not.")
    assert lost.note == "it begins: I would rather not."
    assert llm.usage.input_tokens == 10 * len(model.requests) == 30  # the same prompt is not sent again


def test_reply_without_code_is_repaired_with_the_question_and_what_it_lacks(tmp_path):
    llm, model = proposer(lambda r: fenced(r) if "repair" in r.label else "I would rather not.", tmp_path)
    archive = random_archive(1)
    (lost,) = llm.propose(archive, 5, 1)
    (found,) = llm.repair(archive, [(lost, lost.fault)])
    assert found == replace(lost, source=source("r5_00 repair 1"), origin=found.origin, fault=None, note="", reply="")
    first, second = (request.messages[0].text for request in model.requests)
    assert second.startswith(first[:500]) and "Round 5 of 4" in second
    assert "in vain: no compute_* function in the reply. The answer began:\n\nI would rather not.\n" in second
    assert len("the system") + len(second) <= 20_000
    empty, _ = proposer(lambda r: "", tmp_path / "empty")
    (lost,) = empty.propose(archive, 5, 1)
    assert (lost.note, lost.reply) == ("it is empty", "(nothing)")


@pytest.mark.parametrize(
    ("reply", "error", "note"),
    [
        (
            Reply("", finish=REFUSAL, error="openai:m@http://me:1 declined: no"),
            "no reply",
            "declined: no (asked 3 times)",
        ),
        (Reply("", error="it has no choices"), "no reply", "it has no choices (asked 3 times)"),
        (Reply("x" * 100_001), "the reply has 100,001 characters, more than 100,000 (asked 3 times)", ""),
    ],
)
def test_errors_of_servers_are_notes_for_the_user(reply, error, note, tmp_path):
    llm, model = proposer(lambda r: reply, tmp_path)
    (lost,) = llm.propose(Archive(), 1, 1)
    assert (
        (lost.source, str(lost.fault), lost.reply) == ("", error, "") and note in lost.note and len(model.requests) == 3
    )


def test_reply_that_is_cut_off_is_repaired_and_not_sent_again(tmp_path):
    cut = Reply("Let me think.\n```python\nx = 1", finish=LENGTH, error="cut off: raise --max_output_tokens")
    llm, model = proposer(lambda r: fenced(r) if "repair" in r.label else cut, tmp_path)
    (lost,) = llm.propose(Archive(), 1, 1)
    assert lost.note == cut.error and len(model.requests) == 1
    (mended,) = llm.repair(Archive(), [(lost, lost.fault)])
    assert mended.source == source("r1_00 repair 1")
    assert "the reply was cut off inside its code block" in model.requests[1].messages[0].text


def test_reply_that_ends_in_its_block_is_told_so_if_its_file_fails(tmp_path):
    llm, model = proposer(lambda r: "```python\ndef compute_reward(x):\n    x.cla", tmp_path)
    (torn,) = llm.propose(Archive(), 1, 1)
    llm.repair(Archive(), [(torn, Fault("no attribute 'cla'", remedy="spell it"))])
    assert "no attribute 'cla'; the reply ended inside its code block" in model.requests[-1].messages[0].text


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "def calculate_reward(x):\n    return x",
            "it defines calculate_reward: the name must be one of those asked for",
        ),
        (
            "class Reward:\n    def f(self):\n        pass\n\n    def compute_reward(self, x):\n        return x",
            "compute_reward is a method of the class Reward: write it at the top level of the file, without self",
        ),
    ],
)
def test_other_functions_than_those_asked_for_are_named(code, told, tmp_path):
    llm, _ = proposer(lambda r: f"```python\n{code}\n```", tmp_path)
    (lost,) = llm.propose(Archive(), 1, 1)
    assert str(lost.fault) == f"no compute_* function in the reply; {told}"


def test_variant_of_a_term_is_not_sent_for_repair(tmp_path):
    llm, model = proposer(fenced, tmp_path)
    failed = [Proposal("r2_00", "bad"), Proposal("r2_01", "bad", ("r1_00",), term="cost", factor=0.5)]
    repaired = llm.repair(random_archive(0), [(p, Fault("an error")) for p in failed])
    assert repaired[0] is not None and repaired[1] is None and len(model.requests) == 1


def test_duplicate_is_repaired_with_what_there_is(tmp_path):
    llm, model = proposer(fenced, tmp_path)
    archive = random_archive(0)
    one, two = llm.propose(archive, 5, 2)
    llm.repair(archive, [(two, Fault("is the same as r5_00", kind="duplicate", twin="r5_00"))])
    told = model.requests[-1].messages[0].text
    assert told.startswith("A candidate of yours is the same as r5_00, so it is not trained:")
    assert "keep the idea" not in told and two.source.strip() in told
    tried = told[told.index("What there is already:") :].splitlines()
    assert f"{one.name}: not trained yet; Idea of r5_00." in tried and not any(two.name in line for line in tried)
    assert {line.split(":")[0].split(" ")[0] for line in tried} >= {a.name for a in archive.attempts}


def test_unsent_requests_give_no_proposal(tmp_path):
    llm, model = proposer(fenced, tmp_path)
    llm.propose(Archive(), 1, 1)
    most = max_input_tokens(model.requests[0]) + Model.default_output_tokens
    # each reply takes 15 tokens: a third request could exceed the limit, if it were as long as can be
    limited, model = proposer(fenced, tmp_path / "limited", Budget(max_tokens=most + 20), concurrency=1)
    assert [p.name for p in limited.propose(Archive(), 1, 9)] == ["r1_00", "r1_01"]
    assert len(model.requests) == limited.usage.requests == 2
    assert f"--max_tokens {most + 20}" in limited.stopped
    assert limited.spent.tokens == 30


def test_torchscript_decorators_are_removed(tmp_path):
    code = "SCALE = 2.0\n\n@torch.jit.script\ndef compute_reward(x):\n    return SCALE * x\n"
    llm, _ = proposer(lambda r: f"```python\n{code}```", tmp_path)
    (proposal,) = llm.propose(Archive(), 1, 1)
    assert proposal.source == code.replace("@torch.jit.script\n", "")
    imports = "from torch.jit import ignore, script, script as fast  # quick\n"
    code = f"{imports}\n@script\ndef f(x):\n    return x\n\n@fast  # too\ndef compute_reward(x):\n    return f(x)\n"
    llm, _ = proposer(lambda r: f"```python\n{code}```", tmp_path / "imported")
    (proposal,) = llm.propose(Archive(), 1, 1)
    assert proposal.source == code.replace("@script\n", "").replace("@fast  # too\n", "")
    other = code.replace(imports, "from mine import script\n")
    llm, _ = proposer(lambda r: f"```python\n{other}```", tmp_path / "other")
    assert llm.propose(Archive(), 1, 1)[0].source == other


BLIND = "def compute_observation(x):\n    return 0 * x\n\n\n"
REWARD = "def compute_reward(x):\n    return x\n"


def test_functions_outside_the_search_are_left_out_before_anything_sees_them(tmp_path):
    def answer(request):
        text = {"r1_00": BLIND + REWARD, "r1_01": BLIND, "r1_02": REWARD}.get(request.label, REWARD + BLIND)
        return f"```python\n{text}```"

    llm, _ = proposer(answer, tmp_path, types=["compute_reward"])
    both, blind, plain = llm.propose(Archive(), 1, 3)
    assert (both.source, both.left_out) == (REWARD, ("compute_observation",))
    assert (plain.source, plain.left_out) == (REWARD, ())
    assert (blind.source, str(blind.fault)) == ("", "no compute_reward in the reply, only compute_observation")
    (repaired,) = llm.repair(Archive(), [(plain, Fault("bad"))])
    assert (repaired.source, repaired.left_out) == (REWARD, ("compute_observation",))
    recorded = (tmp_path / "transcript.jsonl").read_text()
    assert recorded.count("def compute_observation") == 3  # replies as they came
    every, _ = proposer(answer, tmp_path)
    assert [p.source for p in every.propose(Archive(), 1, 2)] == [BLIND + REWARD, BLIND.rstrip() + "\n"]


def test_start_candidates_are_reduced_too(tmp_path):
    llm, _ = proposer(fenced, tmp_path, starts={"mine": BLIND + REWARD, "blind": BLIND}, types=["compute_reward"])
    mine, blind = llm.propose(Archive(), 1, 2)
    assert (mine.source, mine.left_out, mine.origin) == (REWARD, ("compute_observation",), "start: mine")
    assert (blind.source, blind.left_out) == (BLIND, ())  # its check says what it lacks


def test_lone_surrogates_are_handled(tmp_path):
    llm, _ = proposer(lambda r: "```python\n# \ud800\ndef compute_reward(x):\n    return x\n```", tmp_path)
    (proposal,) = llm.propose(Archive(), 1, 1)
    assert proposal.source == "# ?\ndef compute_reward(x):\n    return x\n"


def test_repairs_show_file_and_error_and_keep_name_and_parents(tmp_path):
    llm, model = proposer(lambda r: "no" if "hopeless" in r.messages[0].text else fenced(r), tmp_path)
    failed = [
        Proposal("r2_00", "a = 1\nb = hopeless\n", ("r1_00",), "m, sample 0"),
        Proposal("r2_01", "a = 1\nb = 2\n", ("r1_00",), "m, sample 1"),
        Proposal("r2_02", "x" * 30_000, ("r1_00",), "m, sample 2"),
    ]
    repaired = llm.repair(random_archive(0), [(p, Fault("bad", f"/a/{p.name}.py", 2)) for p in failed])
    assert [p and p.name for p in repaired] == ["r2_00", "r2_01", None]  # no code; mended; too long for a prompt
    assert (repaired[0].source, str(repaired[0].fault)) == ("", "no compute_* function in the reply")
    assert repaired[1] == Proposal("r2_01", source("r2_01 repair 1"), ("r1_00",), "m, sample 1, repaired")
    (asked,) = {r.messages[0].text for r in model.requests if r.label == "r2_01 repair 1"}
    assert "r2_01.py:2: bad\n    b = 2" in asked and "a = 1\nb = 2\n" in asked and "/a/" not in asked
    (again,) = llm.repair(random_archive(0), [(repaired[1], Fault("still bad"))])
    assert again.origin == "m, sample 1, repaired, repaired"
    assert model.requests[-1].label == "r2_01 repair 2"
    assert llm.repair(Archive(), []) == []


def test_equal_prompts_get_different_replies(tmp_path):
    llm, model = proposer(fenced, tmp_path)
    fault = Fault("is the same", kind="duplicate", twin="r1_00")
    failed = [(Proposal(name, "a = 1\n", (), "m"), fault) for name in ("r1_01", "r1_02")]
    one, two = llm.repair(Archive(), failed)
    assert (one.source, two.source) == (source("r1_01 repair 1"), source("r1_02 repair 1"))
    one, two = llm.repair(Archive(), failed)
    assert (one.source, two.source) == (source("r1_01 repair 2"), source("r1_02 repair 2"))
    assert len(model.requests) == 4
    again, model = proposer(fenced, tmp_path)  # resumed, the round is asked from its begin
    assert [p.source for p in again.repair(Archive(), failed)] == [source("r1_01 repair 1"), source("r1_02 repair 1")]
    assert not model.requests
