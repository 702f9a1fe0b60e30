"""A language model in this process, with OpenAI's and Anthropic's protocols: what the SDKs send never leaves it."""

import functools
import json
import ssl
import sys
import threading
import time
from collections import Counter, deque
from unittest.mock import patch

from envcoder_bench.search.providers import sdk

CODE = "```python\ndef compute_reward(state_dict):\n    return state_dict['root_states'][:, 2]  # sample {}\n```"


_ssl_context = functools.cache(ssl.create_default_context)  # 50 ms for each client of the SDKs


class FakeLLM:
    """Answers by ``script``, in order of arrival, and properly when that is used up.

    Attributes:
        root: the address at which it answers, as does any other while it is installed.
        bodies: every request, as parsed JSON with the path under "path" and the headers under "headers".
        script: what to do with the next requests: functions of this module's kind.
        counts: requests by their question.
        most_at_once: most requests in flight at any moment.
        waits: seconds that the SDKs would have waited.
    """

    root = "http://fake.invalid"

    def __init__(self, input_tokens=100, output_tokens=20):
        self.script, self.bodies, self.counts, self.waits = deque(), [], Counter(), []
        self.at_once = self.most_at_once = 0
        self.input_tokens, self.output_tokens = input_tokens, output_tokens
        self.open = threading.Event()  # held(): closed until a test opens it
        self.lock = threading.Lock()
        self.http = None
        self._sleep = time.sleep
        self._patches = [patch.object(sdk, "http_client", self._client), patch("time.sleep", self._wait)]
        self._patches += [patch("ssl.create_default_context", _ssl_context)]
        self._make_client = sdk.http_client

    def __enter__(self):
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *error):
        self.open.set()
        for each in self._patches:
            each.stop()

    def _client(self, *arguments):
        client = self._make_client(*arguments)
        self.http = sys.modules[type(client).__mro__[1].__module__.split(".")[0]]
        client._transport, client._mounts = self.http.MockTransport(self._handle), {}
        return client

    def _wait(self, seconds):
        if sys._getframe(1).f_globals["__name__"].endswith("._base_client"):  # of an SDK
            self.waits.append(seconds)
        else:
            self._sleep(seconds)

    def _handle(self, request):
        body = json.loads(request.content)
        body.update(path=request.url.path, headers={name.lower(): value for name, value in request.headers.items()})
        with self.lock:
            self.bodies.append(body)
            self.counts[content(body)] += 1
            act = self.script.popleft() if self.script else answer()
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return act(self, body)
        finally:
            with self.lock:
                self.at_once -= 1


def content(body):
    """The last user turn: tests ask each question with words of its own."""
    return body["messages"][-1]["content"]


def raw(data, code=200, content_type="application/json", headers=()):
    def act(llm, body):
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        return llm.http.Response(code, headers=[("content-type", content_type), *headers], content=text)

    return act


def answer(text=None, finish="stop", refusal=None, drop=()):
    """A proper reply; ``finish`` in OpenAI's words, translated for Anthropic."""

    def act(llm, body):
        reply = message(llm, body, CODE.format(content(body)) if text is None else text, finish, refusal)
        return raw({key: value for key, value in reply.items() if key not in drop})(llm, body)

    return act


def message(llm, body, text, finish, refusal=None):
    if body["path"].endswith("/chat/completions"):
        counts = {"prompt_tokens": llm.input_tokens, "completion_tokens": llm.output_tokens}
        choice = {"role": "assistant", "content": text, "refusal": refusal}
        choices = [{"index": 0, "message": choice, "finish_reason": finish}]
        reply = {"id": "c1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": choices}
        return {**reply, "usage": {**counts, "total_tokens": 0}}
    reason = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}[finish]
    counts = {"input_tokens": llm.input_tokens - 40, "output_tokens": llm.output_tokens}
    counts.update(cache_creation_input_tokens=30, cache_read_input_tokens=10)
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": text}] if text else []
    reply = {"id": "m1", "type": "message", "role": "assistant", "model": body["model"], "content": blocks}
    return {**reply, "stop_reason": reason, "stop_sequence": None, "usage": counts}


def status(number, text="no luck", headers=(), **details):
    """An error; ``details`` go into its body: OpenAI's code and param."""
    return raw({"type": "error", "error": {"type": "some_error", "message": text, **details}}, number, headers=headers)


def truncated(llm, body):
    """Half of a reply."""
    whole = json.dumps(message(llm, body, "text", "stop")).encode()
    return raw(whole[: len(whole) // 2])(llm, body)


def no_connection(llm, body):
    raise llm.http.ConnectError("Connection refused: nobody listens")


def unreachable(llm, body):
    raise llm.http.ConnectTimeout("timed out")


def silent(llm, body):
    """No byte within the time limit."""
    raise llm.http.ReadTimeout("timed out")


def drip(llm, body):
    """A byte now and then, without end."""

    def stream():
        while not llm.open.wait(0.005):
            yield b" "

    return llm.http.Response(200, headers={"content-type": "application/json"}, content=stream())


def held(llm, body):
    """A proper reply as soon as the test opens the gate."""
    llm.open.wait()
    return answer()(llm, body)
