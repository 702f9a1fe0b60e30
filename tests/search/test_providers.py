"""The real SDKs on a transport in this process, including faults."""

import http.server
import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_llm import answer, no_connection, raw, silent, status, unreachable

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.providers import sdk
from envcoder_bench.search.providers.base import ERROR, LENGTH, REFUSAL, STOP, Message, Request
from envcoder_bench.search.providers.budget import price_of, read_prices
from envcoder_bench.search.providers.choice import kind_of, make_provider
from envcoder_bench.search.providers.complete import complete_all
from envcoder_bench.search.providers.sdk import check_base_url, hiding
from envcoder_bench.search.providers.transcript import Transcript, read_records

MODELS = ("openai:m", "anthropic:m")
LOGIN = raw(b"<html>\n<head><title>Sign in &amp; go on</title></head></html>", 200, "text/html; charset=utf-8")
REQUEST = Request("You write rewards.", (Message("user", "Make it run"),), temperature=0.7, label="r1_00")
both = pytest.mark.parametrize("llm", MODELS)


def make(llm, server, timeout=20.0, notify=print):
    return make_provider(llm, server.root + ("/v1" if llm.startswith("openai") else ""), timeout, notify)


def ask(provider, tmp_path, requests=(REQUEST,), **options):
    """Replies, and the records of the transcript."""
    transcript = Transcript(tmp_path / "transcript.jsonl", {})
    return complete_all(provider, requests, transcript, **options), read_records(transcript.path)[0][1:]


@both
def test_reply_has_text_and_token_counts(llm, server):
    reply = make(llm, server).complete(REQUEST)
    assert "def compute_reward" in reply.text and "hm" not in reply.text
    assert (reply.input_tokens, reply.output_tokens, reply.finish, reply.error) == (100, 20, STOP, "")
    (body,) = server.bodies
    assert (body["model"], body["temperature"]) == ("m", 0.7) and body["max_tokens"] > 0
    system, user = ({"role": "system", "content": REQUEST.system}, {"role": "user", "content": "Make it run"})
    cached = [{"type": "text", "text": REQUEST.system, "cache_control": {"type": "ephemeral"}}]
    if llm == "openai:m":
        assert body["path"] == "/v1/chat/completions" and body["messages"] == [system, user]
    else:
        assert body["path"] == "/v1/messages" and body["messages"] == [user] and body["system"] == cached


@both
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (status(429), "429: no luck"),
        (status(500), "500: no luck"),
        (status(529, "overloaded"), "529: overloaded"),
        (status(408), "408: no luck"),
        (raw(b"<html><title>Bad gateway</title></html>", 502, "text/html"), 'a web page ("Bad gateway")'),
        (no_connection, ""),
        (silent, ""),
    ],
)
def test_failures_are_sent_again_and_told(llm, fault, message, server, tmp_path):
    server.script.extend([fault, fault])
    lines = []
    (reply,), records = ask(make(llm, server, notify=lines.append), tmp_path)
    assert reply.finish == STOP and reply.error == "" and len(server.bodies) == 3
    assert [record["type"] for record in records] == ["reply"]
    assert all(line.startswith(f"{llm}@{server.root}") and "\n" not in line for line in lines)
    failures, again = [line for line in lines if "sent again" not in line], [line for line in lines if "again" in line]
    assert len(failures) == 2 * bool(message) and all(message in line for line in failures)
    assert [line.split(": ")[-1] for line in again] == ["sent again, 1 of 6", "sent again, 2 of 6"]
    assert len(server.waits) == 2 and 0 < server.waits[0] <= 1 and server.waits[1] <= 2


@both
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (no_connection, "Connection refused: nobody listens; is the server running? (tried 7 times)"),
        (silent, "no reply within 20 s (--reply_timeout) (tried 7 times)"),
        (unreachable, "within 10 s: check --base_url, the network and the proxy (tried 7 times)"),
    ],
)
def test_server_that_does_not_answer_is_an_error_reply(llm, fault, message, server, tmp_path):
    server.script.extend([fault] * 7)
    (reply,), _ = ask(make(llm, server), tmp_path)
    assert reply.finish == ERROR and message in reply.error and len(server.bodies) == 7


@both
def test_silent_server_is_given_up_after_three_time_limits(llm, server, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sdk, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(act, seconds):
        def wait(*arguments):
            now[0] += seconds
            return act(*arguments)

        return wait

    server.script.extend([slow(status(500), 900), *[slow(silent, 601)] * 6])
    (reply,), _ = ask(make(llm, server, 600.0), tmp_path)
    assert "no reply within 600 s (--reply_timeout) (tried 4 times)" in reply.error and len(server.bodies) == 4


@both
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "upstream is gone"}},
        {"choices": None, "content": None},
        {"choices": None, "content": 3},
        {"choices": [None], "content": [None]},
        {"choices": [{}], "content": [{"type": "text"}]},
        {"choices": [{"message": {"content": [1]}, "finish_reason": "stop"}], "content": {"type": "text"}},
        {"choices": "x", "content": [["text"]]},
        [],
        None,
        "text",
    ],
)
def test_incomplete_replies_are_asked_for_again(llm, body, server, tmp_path):
    server.script.append(raw(body))
    (reply,), records = ask(make(llm, server), tmp_path)
    assert reply.finish == STOP and len(server.bodies) == 2 and len(records) == 1
    server.script.extend([raw(body)] * 9)
    (reply,), _ = ask(make(llm, server), tmp_path, [replace(REQUEST, sample=1)])
    assert reply.finish == ERROR and "cannot be read" in reply.error and len(server.bodies) == 5


@both
@pytest.mark.parametrize("counts", [None, {}, {"prompt_tokens": "7", "input_tokens": -7, "output_tokens": None}])
def test_missing_token_counts_are_upper_bounds(llm, counts, server):
    choice = {"message": {"content": "12345", "role": "assistant"}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": counts, "content": [{"type": "text", "text": "12345"}]}
    server.script.append(raw({**body, "stop_reason": "end_turn"}))
    reply = make(llm, server).complete(REQUEST)
    assert len("You write rewards.Make it run") <= reply.input_tokens <= 200 and reply.output_tokens == 5


@both
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b'{"choices": [{"mess', "it is not JSON, and begins: "),
        (b"busy" * 90, "it is not JSON, and begins: " + "busy" * 24 + "b..."),
        (b'{"choices": %b, "content": %b}' % ((b"[" * 200_000 + b"]" * 200_000,) * 2), "cannot be read"),
    ],
)
def test_replies_that_are_not_json_are_asked_for_again(llm, data, message, server, tmp_path):
    server.script.extend([raw(data)] * 3)
    lines = []
    (reply,), _ = ask(make(llm, server, notify=lines.append), tmp_path)
    assert reply.finish == ERROR and message in reply.error and "\n" not in reply.error and len(server.bodies) == 3
    assert lines == [f"{reply.error} (its tokens are not counted)"] * 3


@both
def test_servers_say_how_long_to_wait(llm, server, tmp_path):
    server.script.extend([status(429, headers=[("retry-after", "17")]), status(503, headers=[("retry-after", "soon")])])
    lines = []
    (reply,), _ = ask(make(llm, server, notify=lines.append), tmp_path)
    assert reply.finish == STOP and server.waits[0] == 17 and server.waits[1] <= 2
    assert lines[0].endswith("429: no luck (retry after 17 s)") and lines[2].endswith("(retry after soon)")
    server.script.append(status(500, headers=[("x-should-retry", "false"), ("retry-after", "300")]))
    (reply,), _ = ask(make(llm, server), tmp_path, [replace(REQUEST, sample=1)])
    assert reply.error.endswith("500: no luck (retry after 300 s)") and len(server.waits) == 2


@both
def test_persistent_failure_is_an_error_reply(llm, server, tmp_path):
    server.script.extend([status(500, "out of order")] * 7)
    requests = [REQUEST, Request("", (Message("user", "b"),), label="r1_01")]
    replies, records = ask(make(llm, server), tmp_path, requests, concurrency=1)
    assert [reply.finish for reply in replies] == [ERROR, STOP]
    assert "out of order (tried 7 times)" in replies[0].error and len(server.bodies) == 8
    assert [record["reply"]["finish"] for record in records] == [ERROR, STOP]


@both
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (status(401, "Incorrect API key provided"), "the key was not accepted .Incorrect API key"),
        (status(404, "The model m does not exist"), "no such model or address .The model m does not exist"),
        (status(403, "not in your country"), "403: not in your country"),
        (status(400, "messages: wrong"), "400: messages: wrong"),
        (status(429, "You exceeded your quota", [("x-should-retry", "false")], code="insufficient_quota"), "no credit"),
        (raw(b"go away", 401), "the key was not accepted .*go away"),
        (LOGIN, r'a web page \("Sign in & go on"\) instead of a model.s reply: check the address \(--base_url'),
        (raw(b"<!DOCTYPE html>\n<p>Welcome", 200), "a web page instead .*whether it requires a login or a proxy"),
        (raw(b"<html><title>No</title>", 403, "text/html"), r'403: a web page \("No"\)'),
    ],
)
def test_permanent_error_ends_the_search(llm, fault, message, server, tmp_path):
    if llm == "anthropic:m" and "credit" in message:
        fault, message = status(400, "Your credit balance is too low"), "credit balance is too low"
    server.script.extend([fault] * 10)
    requests = [Request("", (Message("user", str(k)),)) for k in range(10)]
    with pytest.raises(UserError, match=message):
        ask(make(llm, server), tmp_path, requests, concurrency=1)
    assert len(server.bodies) == 1


@both
@pytest.mark.parametrize(
    ("message", "flag"),
    [
        ("Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3.0", "--temperature"),
        ("temperature: range: 0..1", "--temperature"),
        ("max_tokens is too large: 50000. This model supports at most 4096 completion tokens", "--max_output_tokens"),
        ("'max_tokens' exceeds the limit, 4096 output tokens", "--max_output_tokens"),
        ("the model m does not exist", "--llm"),
    ],
)
def test_permanent_error_names_its_flag(llm, message, flag, server, tmp_path):
    server.script.extend([status(400, message)] * 9)
    with pytest.raises(UserError, match=rf"does not accept the request: 400: .* \(see {flag}\)$"):
        ask(make(llm, server), tmp_path)
    assert len(server.bodies) == 1


@both
def test_key_that_a_server_echoes_is_hidden(llm, server, tmp_path, monkeypatch):
    monkeypatch.setenv(f"{llm.split(':')[0].upper()}_API_KEY", "sk-abcdefgh")
    echo = "x" * 280 + " key SK-abcdefgh"
    page = raw(f"<html><title>{echo[250:]}</title></html>".encode(), 200, "text/html")
    server.script.extend([status(500, echo), raw(echo.encode()), answer(f"def compute_reward(x): x\n{echo}")])
    server.script.extend([status(401, echo), page])
    texts = []
    provider = make(llm, server, notify=texts.append)
    ask(provider, tmp_path)
    texts += [(tmp_path / "transcript.jsonl").read_text(), provider.name]
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            ask(provider, tmp_path, [replace(REQUEST, sample=1)])
        texts.append(str(caught.value))
    assert all("abcdefgh" not in text for text in texts) and "[hidden]" in texts[0] + texts[2]


def test_placeholder_keys_are_not_hidden():
    assert hiding("EMPTY")("an EMPTY list") == "an EMPTY list"


@pytest.mark.parametrize("login", ["a:b", "a:p@ss", "geheim"])
def test_address_with_a_password_is_refused_without_repeating_it(login):
    with pytest.raises(UserError, match=r"--base_url http://\.\.\.@h:1/v1: leave out user name and password") as caught:
        check_base_url(f"http://{login}@h:1/v1")
    assert login not in str(caught.value)
    for url in (f"{login}@h/v1", f"http://{login}@h:x/v1"):
        with pytest.raises(UserError, match="leave out user name and password") as caught:
            check_base_url(url)
        assert login not in str(caught.value)
    for url in ("http://h:1/v1?x=a@b", "https://[::1]:80/v1", ""):
        assert check_base_url(url) == url


@pytest.mark.parametrize("address", ["[::1/v1", "localhost:abc/v1", "/v1", "h:99999/v1", "h:0", "h..h/v1", "a b/v1"])
def test_address_that_is_not_one_has_a_remedy(address, server, monkeypatch):
    address = f"http://{address}"
    for llm in MODELS:
        with pytest.raises(UserError, match=f"--base_url {re.escape(address)}: write an address such as http://local"):
            make_provider(llm, address)
        monkeypatch.setenv(variable := f"{llm.split(':')[0].upper()}_BASE_URL", address)
        with pytest.raises(UserError, match=rf"^{variable} \(read because --base_url is not given\) http"):
            make_provider(llm)


@both
def test_too_long_prompt_is_not_sent_again(llm, server, tmp_path):
    server.script.append(status(400, "prompt is too long: 300000 tokens", code="context_length_exceeded"))
    (reply,), _ = ask(make(llm, server), tmp_path)
    assert reply.finish == ERROR and "too long" in reply.error and len(server.bodies) == 1


@both
def test_unusable_replies_are_requested_again(llm, server, tmp_path):
    server.script.extend([answer("I cannot help.", "content_filter"), answer("Let me think.")])
    server.script.append(answer("def f(): 1", "length"))
    (reply,), records = ask(make(llm, server), tmp_path)
    assert reply.finish == LENGTH
    assert reply.error.startswith("the reply was cut off after 20 tokens: raise --max_output_tokens, or lower")
    assert reply.error.endswith(" (asked 3 times)")
    assert (reply.input_tokens, reply.output_tokens) == (300, 60)
    assert [record["reply"]["finish"] for record in records] == [REFUSAL, STOP, LENGTH]
    assert [record["request"]["attempt"] for record in records] == [0, 1, 2]
    server.script.append(answer("Once more", "content_filter"))
    (reply,), _ = ask(make(llm, server), tmp_path, [Request("", (Message("user", "other"),))])
    assert reply.finish == STOP and "compute_reward" in reply.text and reply.input_tokens == 200


def test_openai_refusals_are_recognized(server):
    server.script.append(answer(None, refusal="I will not"))
    reply = make("openai:m", server).complete(REQUEST)
    assert reply.finish == REFUSAL and "I will not" in reply.error
    server.script.append(status(400, "flagged", code="content_filter"))
    assert make("openai:m", server).complete(REQUEST).finish == REFUSAL


def test_content_may_be_a_list_of_parts_or_nothing(server):
    parts = [{"type": "reasoning", "id": "r"}, {"type": "text", "text": "def compute_reward(x):\n"}, "    return x"]
    for content, text in ((parts, "def compute_reward(x):\n    return x"), (None, "")):
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": content}}
        server.script.append(raw({"choices": [choice]}))
        reply = make("openai:m", server).complete(REQUEST)
        assert (reply.text, reply.finish) == (text, STOP)


def test_reply_without_choices_is_named_and_its_tokens_count(server, tmp_path):
    server.script.extend([raw({"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": 7}})] * 3)
    (reply,), records = ask(make("openai:m", server), tmp_path)
    assert "sent a reply without any choice (asked 3 times)" in reply.error
    assert (reply.input_tokens, reply.output_tokens) == (210, 21) and [r["type"] for r in records] == ["reply"] * 3


@pytest.mark.parametrize("model", ["o1", "o4-mini-2025-04-16", "gpt-6.2-sol"])
def test_reasoning_models_get_their_own_parameters(model, server):
    make(f"openai:{model}", server).complete(REQUEST)
    (body,) = server.bodies
    assert "temperature" not in body and "max_tokens" not in body and body["max_completion_tokens"] >= 16384


def test_temperature_without_effect_is_warned_of_once(server, caplog):
    for llm in ("openai:o3-mini", *MODELS):
        provider = make(llm, server)
        if not llm.endswith("o3-mini"):
            server.script.append(status(400, "`temperature` is deprecated for this model."))
        for temperature in (0.7, 0.7, 0.7, None):
            provider.complete(replace(REQUEST, temperature=temperature))
        assert [f"{provider.name} does not support --temperature: 0.7 has no effect"] == [
            line for line in caplog.messages if "--temperature" in line
        ]
        assert "temperature" not in server.bodies[-1] and "temperature" not in server.bodies[-2]
        caplog.clear()


def test_openai_models_get_max_completion_tokens_and_temperature(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-1\n")
    make_provider("gpt-4o").complete(REQUEST)
    (body,) = server.bodies
    assert body["max_completion_tokens"] == 4096 and "max_tokens" not in body and body["temperature"] == 0.7
    assert body["headers"]["authorization"] == "Bearer sk-1" and body["headers"]["host"] == "api.openai.com"


def test_rejected_token_limit_parameter_is_renamed(server):
    provider = make("openai:m", server)
    server.script.append(status(400, "Unsupported parameter: 'max_tokens' is not supported."))
    provider.complete(REQUEST)
    provider.complete(REQUEST)
    names = [[name for name in body if name.startswith("max_")] for body in server.bodies]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]
    server.script.extend([status(400, "Unsupported parameters: 'max_tokens', 'max_completion_tokens'")] * 9)
    with pytest.raises(UserError, match="does not take max_completion_tokens, max_tokens"):
        provider.complete(REQUEST)


@pytest.mark.parametrize(
    ("llm", "kind"),
    [
        *[(llm, "openai") for llm in ("gpt-4-turbo-preview", "o1", "o4-mini", "GPT-4o", "chatgpt-4o-latest")],
        ("openai:Qwen/Qwen3-8B:free", "openai"),
        *[(llm, "anthropic") for llm in ("claude-opus-5-5", "Claude-Opus-5", "anthropic:x")],
        *[("replay:runs/a:b.jsonl", "replay"), ("evolve", "evolve")],
    ],
)
def test_kind_of_maps_llm_names_to_providers(llm, kind):
    assert kind_of(llm) == kind


@pytest.mark.parametrize(
    ("llm", "hint"),
    [("gtp-4o", "gpt-4o"), ("claud-opus-5", "claude-opus-5"), ("evolv", "evolve"), ("GTP-4o", "gpt-4o")]
    + [(llm, "--llm") for llm in ("", "gpt-", "openai:", "replay:", "oops", "o", "llama3", "evolve:x")],
)
def test_unknown_model_has_near_matches(llm, hint):
    with pytest.raises(UserError, match=hint) as caught:
        kind_of(llm)
    assert "\n" not in str(caught.value) and "openai:NAME" in str(caught.value)


@pytest.mark.parametrize(("llm", "variable"), [("gpt-4o", "OPENAI_API_KEY"), ("claude-opus-5", "ANTHROPIC_API_KEY")])
def test_missing_key_is_reported_before_requests(llm, variable, server, monkeypatch):
    for value in (None, "", "  "):
        if value is not None:
            monkeypatch.setenv(variable, value)
        with pytest.raises(UserError, match=f"{variable} is not set"):
            make_provider(llm)
    monkeypatch.setenv(variable, "sk-\u2026")
    with pytest.raises(UserError, match="copy the key again"):
        make_provider(llm)
    with pytest.raises(UserError, match="--base_url localhost"):
        make_provider(llm, "localhost:11434")
    assert server.bodies == []


def test_base_url_is_read_from_the_variables_of_the_sdks(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1/")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.root)
    for llm in MODELS:
        provider = make_provider(llm)
        provider.complete(REQUEST)
        assert provider.name.startswith(f"{llm}@{server.root}")
    assert {body["headers"]["host"] for body in server.bodies} == {"fake.invalid"}


@pytest.mark.parametrize(("llm", "package"), [("gpt-4o", "openai"), ("claude-opus-5", "anthropic")])
def test_missing_sdk_has_a_remedy(llm, package, server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"pip install --upgrade {package}"):
        make_provider(llm)


@pytest.mark.smoke
def test_choosing_a_provider_imports_no_sdk():
    code = """
import sys
from envcoder_bench.search.providers import budget, choice, code, complete, transcript
choice.kind_of("gpt-4o")
print([name for name in ("openai", "anthropic", "httpx", "httpx2", "torch") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_dated_versions_have_the_price_of_their_model():
    prices = read_prices()
    assert price_of("gpt-4o-2024-11-20", prices) is prices["gpt-4o"]
    assert price_of("claude-haiku-4-5-20251001", prices) is prices["claude-haiku-4-5"]
    assert price_of("gpt-4-turbo-preview", prices) is prices["gpt-4-turbo"]
    for unknown in ("gpt-5.9", "claude-opus-5-9", "gpt-4o-realtime", "llama3"):
        assert price_of(unknown, prices) is None
    assert all(price.output >= price.input > 0 for price in prices.values())


@pytest.mark.parametrize("text", ["models: 3", "[]", "models: {m: 3}", "models: {m: {input: -1, output: 2}}", "{"])
def test_invalid_price_file_is_reported(text, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"prices\.yaml"):
        read_prices(path)


class Proxy(http.server.BaseHTTPRequestHandler):
    """A proxy that answers in the server's place, and keeps the addresses that it was asked for."""

    asked: list[str] = []  # noqa: RUF012  of the class, which is constructed for each request

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.asked.append(self.path)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        body = json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Print nothing."""


@pytest.mark.slow
def test_requests_go_through_the_proxy_of_the_environment(monkeypatch):
    server = http.server.HTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{server.server_port}")
    try:
        model = make_provider("openai:some", "http://model.invalid/v1", 10.0, print)
        assert model.complete(REQUEST).text == "hello"
    finally:
        server.shutdown()
        server.server_close()
    assert Proxy.asked == ["http://model.invalid/v1/chat/completions"]


def test_proxy_that_cannot_be_used_is_named_without_its_password(monkeypatch):
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HTTP_PROXY", "ftp://user:geheim@proxy.example:1")
    with pytest.raises(UserError, match=r"^the proxy of HTTP_PROXY cannot be used: ") as caught:
        make_provider("openai:some", "http://model.invalid/v1", 10.0, print)
    assert "geheim" not in str(caught.value)
    for proxy in ("http://user:geheim/@proxy.example", "http://proxy.example:99999", "proxy.example:0"):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        with pytest.raises(
            UserError, match=r"cannot be used: write an address such as http://proxy.example:3128"
        ) as caught:
            make_provider("openai:some", "http://model.invalid/v1", 10.0, print)
        assert "geheim" not in str(caught.value)
    # one that no request would use stops nothing
    make_provider("openai:some", "https://model.invalid/v1", 10.0, print)
    monkeypatch.setenv("NO_PROXY", "model.invalid")
    make_provider("openai:some", "http://model.invalid/v1", 10.0, print)
    monkeypatch.setenv("ALL_PROXY", "proxy.example:0")
    monkeypatch.delenv("HTTP_PROXY")
    with pytest.raises(UserError, match=r"^the proxy of ALL_PROXY cannot be used: "):
        make_provider("openai:some", "http://other.invalid/v1", 10.0, print)
