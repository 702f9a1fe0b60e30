"""The transcript: no reply is paid twice, whenever the process dies; replays; budgets; Ctrl-C."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from fake_llm import CODE

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.providers.base import (
    BUDGET,
    ERROR,
    STOP,
    Message,
    ProviderError,
    Reply,
    Request,
    max_input_tokens,
)
from envcoder_bench.search.providers.budget import Budget, Price
from envcoder_bench.search.providers.choice import make_provider
from envcoder_bench.search.providers.complete import complete_all
from envcoder_bench.search.providers.transcript import ReplayProvider, Transcript, _first_difference, content_hash
from envcoder_bench.search.settings import compose_settings

META = {"task": "Anymal", "shaper_types": ("compute_reward",), "rounds": 3}


class Model:
    """A model in this process: answers with the question, and counts how often each was asked.

    ``faults`` says what happens first to a question: errors, or texts without code. ``tokens`` are of every reply.
    """

    name, model, default_output_tokens = "openai:m", "m", 50

    def __init__(self, faults=None, tokens=(10, 5)):
        self.faults = {question: list(events) for question, events in (faults or {}).items()}
        self.asked = []
        self.tokens = tokens
        self.lock = threading.Lock()

    def complete(self, request):
        question = request.messages[-1].text
        with self.lock:
            self.asked.append(content_hash(request))
            fault = self.faults[question].pop(0) if self.faults.get(question) else None
        if isinstance(fault, Exception):
            raise fault
        return Reply(CODE.format(question) if fault is None else fault, *self.tokens)


def questions(*texts, **fields):
    return [Request("s", (Message("user", text),), label=f"r1_{k:02d}", **fields) for k, text in enumerate(texts)]


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def test_hash_ignores_only_the_label(tmp_path):
    base = Request("s", (Message("user", "a"), Message("assistant", "b")), 1.0, 9, 0, 0, "r1_00")
    assert (
        content_hash(base) == content_hash(replace(base, label="r2_00")) == content_hash(replace(base, temperature=1))
    )
    others = [
        replace(base, system="t"),
        replace(base, messages=base.messages[:1]),
        replace(base, messages=(Message("user", "a"), Message("user", "b"))),
        replace(base, messages=(Message("user", "ab"), Message("assistant", ""))),
        replace(base, temperature=0.5),
        replace(base, temperature=None),
        replace(base, max_output_tokens=8),
        replace(base, sample=1),
        replace(base, attempt=1),
    ]
    assert len({content_hash(request) for request in [base, *others]}) == 1 + len(others)


def test_resumed_search_repeats_no_request(tmp_path):
    path = tmp_path / "transcript.jsonl"
    model = Model({"b": [ProviderError("odd", malformed=True)], "c": ["no code", "nor here"], "d": ["x"] * 3})
    transcript = Transcript(path, META)
    first = complete_all(model, questions("a", "b", "c", "d", "ü\ud800"), transcript)
    assert [reply.error for reply in first[:3]] == [""] * 3 and "asked 3 times" in first[3].error
    assert [reply.input_tokens for reply in first] == [10, 10, 30, 30, 10]
    content = path.read_bytes()
    again = Model()
    resumed = Transcript(path, META)
    assert complete_all(again, questions("a", "b", "c", "d", "ü\ud800"), resumed) == first
    assert again.asked == [] and path.read_bytes() == content
    assert resumed.spent == transcript.spent and resumed.spent.tokens == 15 * 9
    other = Model()  # the same words to another model are another request
    other.name = "openai:n"
    complete_all(other, questions("a"), resumed)
    assert len(other.asked) == 1


def test_transcript_of_another_search_is_refused(tmp_path):
    path = tmp_path / "transcript.jsonl"
    Transcript(path, META)
    with pytest.raises(UserError, match='extra is missing there and 1 here, task is "Anymal" there and "Ant" here'):
        Transcript(path, {**META, "task": "Ant", "extra": 1})
    for text in ("# notes\n", "no line end", "{}\n", "[1]\n", '{"type": "header", "format": 9, "meta": {}}\n'):
        path.write_text(text)
        with pytest.raises(UserError, match=r"transcript\.jsonl"):
            Transcript(path, META)
        assert path.read_text() == text
    with pytest.raises(UserError, match="cannot be written"):
        Transcript(tmp_path / "nowhere" / "t.jsonl", META)


def test_damaged_line_is_reported(tmp_path):
    path = tmp_path / "transcript.jsonl"
    complete_all(Model(), questions("a", "b"), Transcript(path, META), concurrency=1)
    parts = lines(path)
    deep = [b'{"type": "other", "a": %b}\n' % (b"[" * depth + b"]" * depth) for depth in (100, 900, 100_000)]
    for broken in (parts[1][:40] + b"\n", b"\n", b'{"type": "reply"}\n', b"\xff\n", *deep):
        path.write_bytes(b"".join([parts[0], broken, parts[2]]))
        for read in (lambda: Transcript(path, META), lambda: ReplayProvider(path)):
            with pytest.raises(UserError, match=r"transcript\.jsonl:2: .* delete the line"):
                read()


def test_full_disk_leaves_complete_lines(tmp_path, monkeypatch):
    path = tmp_path / "transcript.jsonl"
    transcript = Transcript(path, META)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    with pytest.raises(UserError, match="disk full"):
        complete_all(Model(), questions("a"), transcript)
    monkeypatch.undo()
    assert len(lines(path)) == 1 and path.read_bytes().endswith(b"\n")


def test_resume_repeats_errors_but_not_refusals(tmp_path):
    path = tmp_path / "transcript.jsonl"
    model = Model({"a": [ProviderError("down")]})
    (reply,) = complete_all(model, questions("a"), Transcript(path, META))
    assert (reply.finish, reply.error) == (ERROR, "down")
    again = Model()
    (reply,) = complete_all(again, questions("a"), Transcript(path, META))
    assert reply.finish == STOP and len(again.asked) == 1


def test_concurrency_is_limited(server, tmp_path):
    provider = make_provider("openai:m", server.root + "/v1")
    requests = questions(*map(str, range(12)))
    complete_all(provider, requests, Transcript(tmp_path / "t.jsonl", META), concurrency=3)
    assert 1 <= server.most_at_once <= 3 and len(server.bodies) == 12


def test_replies_are_in_order_and_reported_on_arrival(tmp_path):
    told = {}
    requests = questions("a", "b", "c")
    transcript = Transcript(tmp_path / "t.jsonl", META)
    replies = complete_all(Model(), requests, transcript, on_reply=told.__setitem__)
    assert ["sample a" in replies[0].text, "sample b" in replies[1].text, "sample c" in replies[2].text] == [True] * 3
    assert [told[k] for k in range(3)] == replies
    assert complete_all(Model(), [], transcript) == []


PRICES = {"m": Price(1e6, 2e6)}  # a dollar for a token of input, two for one of output


@pytest.mark.parametrize("seed", range(6))
def test_budgets_hold_with_concurrent_requests(seed, tmp_path):
    rng = random.Random(seed)

    class Spendthrift(Model):
        """Uses anything up to what it may, in varying time."""

        def complete(self, request):
            reply = super().complete(request)
            most = Budget(prices=PRICES).max_spending(self, request).tokens - request.max_output_tokens
            with self.lock:
                tokens = rng.randint(1, most), rng.randint(0, request.max_output_tokens)
                seconds = rng.random() * 0.003
            time.sleep(seconds)
            return replace(reply, input_tokens=tokens[0], output_tokens=tokens[1])

    faults = {str(k): [rng.choice(["no code", ProviderError("odd", malformed=True)])] for k in range(0, 60, 3)}
    limits = {"max_tokens": rng.randint(1, 3000)} if seed % 2 else {"max_cost": rng.randint(1, 4000)}
    budget = Budget(prices=PRICES, **limits)
    model = Spendthrift(faults)
    transcript = Transcript(tmp_path / "t.jsonl", META)
    replies = complete_all(model, questions(*map(str, range(60))), transcript, budget=budget, concurrency=16)
    spent = transcript.spent
    assert spent.tokens <= limits.get("max_tokens", 1e9) and spent.cost <= limits.get("max_cost", 1e9)
    assert len(replies) == 60 and budget.stopped.startswith("the next request could exceed --max_")
    stopped = [reply for reply in replies if reply.finish == BUDGET]
    assert stopped and all(reply.error == budget.stopped and reply.cost is None for reply in stopped)
    most = max(
        budget.max_spending(model, replace(r, max_output_tokens=50)).tokens for r in questions(*map(str, range(60)))
    )
    if "max_tokens" in limits:  # it went as far as it could: nothing that surely fitted was left out
        assert spent.tokens + most > limits["max_tokens"]
    asked = len(model.asked)
    later = Budget(prices=PRICES, **limits)
    resumed = Transcript(tmp_path / "t.jsonl", META)  # what was spent before counts
    complete_all(model, questions("one more"), resumed, budget=later)
    assert len(model.asked) == asked and later.stopped and resumed.spent == spent


def test_larger_budget_sends_refused_requests(tmp_path):
    path = tmp_path / "t.jsonl"
    (reply,) = complete_all(Model(), questions("a"), Transcript(path, META), budget=Budget(max_tokens=1))
    assert reply.finish == BUDGET
    (reply,) = complete_all(Model(), questions("a"), Transcript(path, META), budget=Budget(max_tokens=1000))
    assert reply.finish == STOP


def test_request_waits_for_reservations(tmp_path):
    model = Model()
    most = Budget().max_spending(model, questions("a")[0]).tokens
    budget = Budget(max_tokens=most + 15)  # two at once could exceed it, one after the other do not
    replies = complete_all(model, questions("a", "b"), Transcript(tmp_path / "t.jsonl", META), budget=budget)
    assert [reply.finish for reply in replies] == [STOP, STOP] and not budget.stopped


def test_costs_are_computed_for_known_models_only(tmp_path):
    transcript = Transcript(tmp_path / "t.jsonl", META)
    (reply,) = complete_all(Model(), questions("a"), transcript, budget=Budget(prices=PRICES))
    assert reply.cost == 10 * 1 + 5 * 2 == transcript.spent.cost
    (reply,) = complete_all(Model(), questions("b"), transcript, budget=Budget(prices={}))
    assert reply.cost is None and transcript.spent.cost == 20
    with pytest.raises(UserError, match=r"the price of m is unknown; add it to .*prices\.yaml"):
        complete_all(Model(), questions("c"), transcript, budget=Budget(max_cost=1, prices={}))
    for limits in ("max_tokens=0", "max_cost=0", "max_cost=.nan", "max_cost=-1.0"):
        with pytest.raises(UserError, match=f"{limits.split('=')[0]} must be .* got"):
            compose_settings([limits])


def record(tmp_path, **faults):
    path = tmp_path / "recorded" / "transcript.jsonl"
    path.parent.mkdir()
    requests = questions("a", "b", "c", "d", temperature=0.5)
    model = Model(faults)
    replies = complete_all(model, requests, Transcript(path, META), budget=Budget(prices=PRICES))
    return path, requests, replies


def test_replay_needs_no_model(tmp_path):
    path, requests, replies = record(tmp_path, b=["no code"], c=["x"] * 3, d=[ProviderError("down")])
    before = path.read_bytes()
    assert [reply.finish for reply in replies] == [STOP, STOP, STOP, ERROR]
    for source in (path, path.parent):
        provider = make_provider(f"replay:{source}")
        provider.check(META)
        transcript = Transcript(tmp_path / f"{source.name}.copy", META)
        played = complete_all(provider, requests, transcript, budget=Budget(prices={}))
        assert played == replies and provider.by_label == 0
        third = make_provider(f"replay:{transcript.path}")  # a replay's transcript is one that can be played
        assert complete_all(third, requests, Transcript(tmp_path / f"{source.name}.2", META)) == replies
    assert path.read_bytes() == before


def test_replay_uses_the_later_reply_after_an_error(tmp_path):
    path = tmp_path / "t.jsonl"
    down = Model({"a": [ProviderError("down")] * 9})
    complete_all(down, questions("a"), Transcript(path, META))
    replies = complete_all(Model(), questions("a"), Transcript(path, META))
    played = complete_all(ReplayProvider(path), questions("a"), Transcript(tmp_path / "u.jsonl", META))
    assert played == replies and played[0].finish == STOP
    other = [replace(request, messages=(Message("user", "b"),)) for request in questions("a")]
    assert complete_all(ReplayProvider(path), other, Transcript(tmp_path / "v.jsonl", META)) == replies


@pytest.mark.parametrize("seed", range(6))
def test_replay_of_a_stopped_search_stops(seed, tmp_path):
    rng = random.Random(seed)
    requests = questions(*map(str, range(12)))
    most = Budget(prices={}).max_spending(Model(), replace(requests[-1], max_output_tokens=50)).tokens
    limits = {"max_tokens": most + rng.randint(0, 100)}
    budget = Budget(prices={}, **limits)
    model = Model({str(k): ["no code"] for k in range(0, 12, 3)}, tokens=(rng.randint(1, 20), 5))
    recorded = complete_all(model, requests, Transcript(tmp_path / "t.jsonl", META), budget=budget)
    assert budget.stopped and BUDGET in [reply.finish for reply in recorded]
    free = Budget(prices={})
    provider = ReplayProvider(tmp_path / "t.jsonl")
    assert complete_all(provider, requests, Transcript(tmp_path / "u.jsonl", META), budget=free) == recorded
    assert free.stopped == budget.stopped
    limited = Budget(prices={}, **limits)  # costs come in another order, but what is lacking is not missed
    complete_all(provider, requests, Transcript(tmp_path / "v.jsonl", META), budget=limited)
    assert limited.stopped == budget.stopped


def test_replay_of_another_search_is_refused(tmp_path):
    path, requests, _ = record(tmp_path)
    provider = ReplayProvider(path)
    provider.check({"task": "Anymal", "rounds": 3, "version": "9"})
    with pytest.raises(
        UserError, match=r'another search: shaper_types is .*"compute_reward".* there and .* here, task is'
    ):
        provider.check({**META, "shaper_types": ["compute_torque"], "task": "Ant"})
    assert provider.check(META, "s") == ""
    assert provider.check(META, "s\nmore") == "line 2 is '' there and 'more' here"
    # of a long line, where the difference is
    told = _first_difference("a" * 200 + "b", "a" * 200 + "c")
    assert "aab' there and " in told and told.endswith("aac' here") and len(told) < 120
    transcript = Transcript(tmp_path / "t.jsonl", META)
    lacking = [replace(requests[0], messages=(Message("user", "new"),), label="r4_02")]
    with pytest.raises(UserError, match="no reply for r4_02: it holds r1_00 to r1_03"):
        complete_all(provider, lacking, transcript)
    with pytest.raises(UserError, match="no reply for a request without a label"):
        complete_all(provider, [replace(lacking[0], label="")], transcript)
    with pytest.raises(UserError, match=r"no reply for r1_00 \(asked again, time 2\)"):
        complete_all(provider, requests[:1], transcript, unusable=lambda reply: "I want another")


def test_different_prompt_is_found_by_label(tmp_path):
    path, requests, replies = record(tmp_path)
    provider = ReplayProvider(path)
    changed = [replace(request, messages=(Message("user", "0.12"),), sample=k) for k, request in enumerate(requests)]
    assert complete_all(provider, changed, Transcript(tmp_path / "t.jsonl", META)) == replies and provider.by_label == 4
    later = [replace(request, system="the prompt of a later version") for request in requests]
    assert complete_all(provider, later, Transcript(tmp_path / "u.jsonl", META)) == replies and provider.by_label == 8


def test_invalid_transcript_is_refused(tmp_path):
    for name, text in (("none", None), ("empty", ""), ("other", "x,y\n1,2\n")):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=name):
            make_provider(f"replay:{tmp_path / name}")
    Transcript(tmp_path / "bare", META)
    with pytest.raises(UserError, match="this transcript has no reply"):
        make_provider(f"replay:{tmp_path / 'bare'}")
    with pytest.raises(UserError, match="cannot be used with"):
        make_provider("replay:x", "http://localhost")


SEARCH = """
import signal, sys, threading
from pathlib import Path
from envcoder_bench.search.providers.base import Message, Reply, Request
from envcoder_bench.search.providers.complete import complete_all
from envcoder_bench.search.providers.transcript import Transcript

class Model:
    name, model, default_output_tokens = "openai:m", "m", 50

    def complete(self, request):
        if int(request.messages[0].text) % 2:
            threading.Event().wait()  # in flight for ever
        return Reply("def compute_reward(x):\\n    return x", 10, 5)

requests = [Request("s", (Message("user", str(k)),)) for k in range(6)]
signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background, it is ignored
try:
    complete_all(Model(), requests, Transcript(Path(sys.argv[1]), {}))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.smoke
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_received_replies_are_on_disk(how, tmp_path):
    path = tmp_path / "transcript.jsonl"
    search = subprocess.Popen([sys.executable, "-c", SEARCH, str(path)])
    deadline = time.monotonic() + 60
    while not path.exists() or sum(b'"reply"' in line for line in lines(path)) < 3:
        assert time.monotonic() < deadline and search.poll() is None
        time.sleep(0.02)
    search.send_signal(how)  # with requests in flight that nobody answers
    assert search.wait(30) == (130 if how == signal.SIGINT else -how)
    model = Model()
    requests = [Request("s", (Message("user", str(k)),)) for k in range(6)]
    replies = complete_all(model, requests, Transcript(path, {}))
    assert [reply.finish for reply in replies] == [STOP] * 6
    assert {request for request in model.asked} == {
        content_hash(replace(request, max_output_tokens=50)) for request in requests[1::2]
    }


def test_limits_that_allow_no_request_name_the_least_amount():
    (request,), prices = questions("a", max_output_tokens=1000), {"m": Price(10.0, 100.0)}
    tokens = max_input_tokens(request) + 1000
    for limit, least in (({"max_cost": 0.01}, r"\$0\.10\d"), ({"max_tokens": 900}, f"{tokens:,}")):
        with pytest.raises(UserError, match=rf"one request may (cost|need) {least}.* a reply of 1,000 \(--max_output"):
            Budget(**limit, prices=prices).check_amount(Model(), request)
    Budget(max_cost=0.2, max_tokens=tokens, prices=prices).check_amount(Model(), request)
