"""Several replies to one request: transcript, budgets and replays."""

import os
import random
import threading
from dataclasses import replace

import pytest
from fake_llm import CODE, answer, no_connection, status
from search_fakes import cuts

from envcoder_bench.search.providers.base import BUDGET, STOP, Message, ProviderError, Reply, Request
from envcoder_bench.search.providers.budget import Budget, Price
from envcoder_bench.search.providers.choice import make_provider
from envcoder_bench.search.providers.complete import complete_all
from envcoder_bench.search.providers.transcript import ReplayProvider, Transcript, content_hash, read_records

META = {"task": "Anymal"}
PRICES = {"m": Price(1e6, 2e6)}  # a dollar for a token of input, two for one of output


def samples(count, text="Make it run", **fields):
    return [
        Request("s", (Message("user", text),), sample=k, label=f"r1_{k:02d}", max_output_tokens=50, **fields)
        for k in range(count)
    ]


def texts(count):
    return [CODE.format(f"choice {k}") for k in range(count)]


def complete(provider, requests, path, **options):
    transcript = path if isinstance(path, Transcript) else Transcript(path, META)
    return complete_all(provider, requests, transcript, **options)


@pytest.fixture
def several(server):
    server.max_replies = 128
    return server


def openai(server):
    return make_provider("openai:m", server.root + "/v1")


class Model:
    """A model in this process that gives up to ``most`` replies to a request; ``faults`` come first."""

    name, model, default_output_tokens = "openai:m", "m", 50

    def __init__(self, most=4, faults=(), tokens=lambda: (10, 5)):
        self.max_replies, self.faults, self.tokens = most, list(faults), tokens
        self.counts, self.asked, self.lock = [], [], threading.Lock()

    def complete(self, request, count=1):
        with self.lock:
            self.counts.append(count)
            if self.faults:
                fault = self.faults.pop(0)
                if fault is not None:
                    raise fault
            own = [replace(request, sample=request.sample + k) for k in range(count)]
            self.asked += [content_hash(r) for r in own]
            return [Reply(CODE.format(r.sample), *self.tokens()) for r in own]


@pytest.mark.slow
def test_choices_of_one_request_are_samples(several, tmp_path):
    several.script.append(answer(texts(5)))
    transcript = Transcript(tmp_path / "t.jsonl", META)
    told = {}
    replies = complete(openai(several), samples(5, temperature=0.7), transcript, on_reply=told.__setitem__)
    (body,) = several.bodies
    assert body["n"] == 5 and body["max_tokens"] == 50 and body["temperature"] == 0.7
    assert [reply.text for reply in replies] == texts(5) and [told[k] for k in range(5)] == replies
    # the prompt is paid once: the parts add up to what was counted, 100 and 5 x 20
    assert [(r.input_tokens, r.output_tokens) for r in replies] == [(20, 20)] * 5
    assert transcript.spent.tokens == 200
    records = read_records(transcript.path)[0][1:]
    assert [(r["label"], r["request"]["sample"]) for r in records] == [(f"r1_{k:02d}", k) for k in range(5)]


def test_replies_per_request_limits_the_samples_of_a_request(several, tmp_path):
    complete(openai(several), samples(5), tmp_path / "t.jsonl", replies_per_request=2)
    assert [body.get("n") for body in several.bodies] == [2, 2, None]
    several.bodies.clear()
    complete(openai(several), samples(3), tmp_path / "u.jsonl", replies_per_request=1)
    assert [body.get("n") for body in several.bodies] == [None] * 3


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, "'n' must be 1"),
        status(400, "n > 1 is not supported by this model", param="n", code="unsupported_value"),
        status(422, "n: Extra inputs are not permitted"),
        status(400, "Only one completion choice is allowed"),
    ],
)
def test_server_that_refuses_n_is_asked_without(refusal, several, tmp_path):
    several.script.append(refusal)
    provider = openai(several)
    replies = complete(provider, samples(4), tmp_path / "t.jsonl")
    assert [r.finish for r in replies] == [STOP] * 4
    assert [body.get("n") for body in several.bodies] == [4, *[None] * 4]
    complete(provider, samples(3, "other"), tmp_path / "t.jsonl")
    assert not any("n" in body for body in several.bodies[5:])


@pytest.mark.parametrize(("most", "asked"), [(1, [6, *[None] * 5]), (2, [6, 2, 2]), (4, [6, 2]), (5, [6, None])])
def test_server_with_fewer_replies_is_asked_again(most, asked, server, tmp_path):
    server.max_replies = most
    transcript = Transcript(tmp_path / "t.jsonl", META)
    provider = openai(server)
    replies = complete(provider, samples(6), transcript)
    assert [r.finish for r in replies] == [STOP] * 6
    assert [body.get("n") for body in server.bodies] == asked
    assert transcript.spent.tokens == 100 * len(asked) + 20 * 6
    complete(provider, samples(6, "other"), transcript)  # it is known by now
    assert all(body.get("n", 1) <= most for body in server.bodies[len(asked) :])


def test_unusable_samples_are_requested_again(several, tmp_path):
    several.script.append(answer([CODE.format(0), "I would rather not.", CODE.format(2)]))
    replies = complete(openai(several), samples(3), tmp_path / "t.jsonl")
    assert [r.error for r in replies] == [""] * 3 and [body.get("n") for body in several.bodies] == [3, None]
    records = read_records(tmp_path / "t.jsonl")[0][1:]
    assert [(r["request"]["sample"], r["request"]["attempt"]) for r in records] == [(0, 0), (1, 0), (2, 0), (1, 1)]


def test_truncated_choices_report_limit_and_flag(several, tmp_path):
    several.script.append(answer(["```python\ndef compute_reward("] * 2, "length"))
    several.script.extend([answer("```python\n", "length")] * 4)
    replies = complete(openai(several), samples(2), tmp_path / "t.jsonl")
    first = read_records(tmp_path / "t.jsonl")[0][1]["reply"]["error"]
    assert first.startswith("the reply was cut off after 50 tokens: raise --max_output_tokens")
    assert all(
        "after 20 tokens: raise --max_output_tokens" in r.error for r in replies
    )  # of the one that was asked last


@pytest.mark.parametrize("fault", [status(500), status(429, "Request too large: limit 30000"), no_connection])
def test_number_of_samples_is_halved_after_a_failure(fault, several, tmp_path):
    several.script.append(fault)
    lines = []
    replies = complete(make_provider("openai:m", several.root, notify=lines.append), samples(8), tmp_path / "t.jsonl")
    assert [r.finish for r in replies] == [STOP] * 8
    assert [body.get("n") for body in several.bodies] == [8, 4, 4]
    assert len(lines) == (fault is not no_connection) and several.waits == []


def test_server_that_fails_with_n_is_asked_without(several, tmp_path):
    several.script.extend([status(500)] * 3)
    complete(openai(several), samples(8), tmp_path / "t.jsonl")
    assert [body.get("n") for body in several.bodies] == [8, 4, 2, *[None] * 8]


@pytest.mark.slow
def test_truncated_transcript_repeats_only_lost_requests(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # thousands of them
    path = tmp_path / "t.jsonl"
    requests = samples(5)
    first = complete(Model(), requests, path)
    whole = path.read_bytes()
    for size in cuts(whole):
        path.write_bytes(whole[:size])
        known = [record["hash"] for record in read_records(path)[0] if record["type"] == "reply"]
        model = Model()
        transcript = Transcript(path, META)
        assert complete(model, requests, transcript) == first, size
        assert not set(known) & set(model.asked) and len(model.asked) == 5 - len(known), size
        left = 5 - len(known)
        assert model.counts == ([] if not left else [left] if left < 5 else [4, 1]), size
        assert transcript.spent.tokens == 15 * 5


def test_replay_of_several_replies_gives_the_same_replies(several, tmp_path):
    path = tmp_path / "t.jsonl"
    several.script.append(answer([CODE.format(0), "no code", CODE.format(2)]))
    recorded = complete(openai(several), samples(3), path)
    played = complete(ReplayProvider(path), samples(3), tmp_path / "u.jsonl")
    assert played == recorded
    before = [record["reply"] for record in read_records(path)[0][1:]]
    after = [record["reply"] for record in read_records(tmp_path / "u.jsonl")[0][1:]]
    assert sorted(map(str, before)) == sorted(map(str, after))


@pytest.mark.parametrize("seed", range(6))
def test_budgets_hold_and_are_used_with_several_replies(seed, tmp_path):
    rng = random.Random(seed)
    limits = {"max_tokens": rng.randint(100, 4000)} if seed % 2 else {"max_cost": rng.randint(100, 6000)}
    budget = Budget(prices=PRICES, **limits)
    faults = [rng.choice([None, None, ProviderError("down")]) for _ in range(10)]
    model = Model(rng.randint(2, 9), faults, tokens=lambda: (rng.randint(0, 5), rng.randint(0, 50)))
    transcript = Transcript(tmp_path / "t.jsonl", META)
    requests = [r for text in "abcdef" for r in samples(12, text)]
    replies = complete(model, requests, transcript, budget=budget, concurrency=5, replies_per_request=7)
    spent = transcript.spent
    assert spent.tokens <= limits.get("max_tokens", 1e9) and spent.cost <= limits.get("max_cost", 1e9)
    most = budget.max_spending(model, requests[0])
    if any(reply.finish == BUDGET for reply in replies):
        assert spent.tokens + most.tokens > limits.get("max_tokens", 1e9) or spent.cost + most.cost > limits.get(
            "max_cost", 1e9
        )
    else:
        assert len(set(model.asked)) == 72


def test_number_of_replies_is_reduced_to_fit_the_budget(tmp_path):
    model = Model(most=8)
    one = Budget().max_spending(model, samples(1)[0]).tokens
    budget = Budget(max_tokens=one + 2 * 50)
    replies = complete(model, samples(8), tmp_path / "t.jsonl", budget=budget, concurrency=1)
    # three fit; they spend 45 tokens, which leave room for two, and these 30; then there is room for one at a time
    assert model.counts == [3, 2, 1, 1] and len(model.asked) == 7
    assert [reply.finish for reply in replies] == [STOP] * 7 + [BUDGET]


def test_broken_reply_to_several_samples_is_paid_once(tmp_path):
    model = Model(4, faults=[ProviderError("cannot be read", malformed=True)])
    sent = []
    replies = complete(model, samples(4), tmp_path / "t.jsonl", concurrency=1, on_request=lambda: sent.append(None))
    assert model.counts == [4, 1, 1, 1, 1] and all(reply.finish == STOP for reply in replies)
    assert len(sent) == 5
