"""A local server with OpenAI's chat completions and Anthropic's messages protocols, and faults on demand."""

import json
import socket
import struct
import threading
import time
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CODE = "```python\ndef compute_reward(state_dict):\n    return state_dict['root_states'][:, 2]  # sample {}\n```"


class LLMServer:
    """Answers by ``script``, in order of arrival, and properly when that is used up.

    Attributes:
        bodies: every request, as parsed JSON with the path under "path" and the headers under "headers".
        script: what to do with the next requests: functions of this module's kind.
        most_at_once: most requests in flight at any moment.
        max_replies: choices that a reply has at most, where OpenAI's ``n`` asks for several.
    """

    def __init__(self, input_tokens=100, output_tokens=20, max_replies=1):
        self.script = deque()
        self.bodies = []
        self.counts = Counter()
        self.at_once = self.most_at_once = 0
        self.input_tokens, self.output_tokens, self.max_replies = input_tokens, output_tokens, max_replies
        self.open = threading.Event()  # held(): closed until a test opens it
        self.lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                owner._handle(self)

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

            def handle_error(self, request, client_address):
                pass  # clients that hang up are part of the tests

        self.http = Server(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self.open.set()
        self.http.shutdown()
        self.http.server_close()

    def _handle(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        body.update(path=handler.path, headers={name.lower(): value for name, value in handler.headers.items()})
        with self.lock:
            self.bodies.append(body)
            self.counts[content(body)] += 1
            act = self.script.popleft() if self.script else answer()
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            act(self, handler, body)
        finally:
            with self.lock:
                self.at_once -= 1


def content(body):
    """The last user turn: tests ask each question with words of its own."""
    return body["messages"][-1]["content"]


def send(handler, status, data, headers=(), content_type="application/json"):
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(raw)))
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(raw)


def answer(text=None, finish="stop", refusal=None, usage=True, drop=()):
    """A proper reply; ``finish`` in OpenAI's words, translated for Anthropic. A list of texts: those of its choices."""

    def act(server, handler, body):
        said = CODE.format(content(body)) if text is None else text
        send(
            handler,
            200,
            {k: v for k, v in message(server, body, said, finish, refusal, usage).items() if k not in drop},
        )

    return act


def message(server, body, text, finish, refusal=None, usage=True):
    if body["path"].endswith("/chat/completions"):
        texts = text if isinstance(text, list) else [text] * min(body.get("n", 1), server.max_replies)
        output_tokens = server.output_tokens * len(texts)
        counts = {"prompt_tokens": server.input_tokens, "completion_tokens": output_tokens, "total_tokens": 0}
        choices = [
            {"index": k, "message": {"role": "assistant", "content": x, "refusal": refusal}, "finish_reason": finish}
            for k, x in enumerate(texts)
        ]
        reply = {"id": "c1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": choices}
        return {**reply, "usage": counts} if usage else reply
    reason = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}[finish]
    counts = {"input_tokens": server.input_tokens - 40, "output_tokens": server.output_tokens}
    counts.update(cache_creation_input_tokens=30, cache_read_input_tokens=10)
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": text}] if text else []
    reply = {"id": "m1", "type": "message", "role": "assistant", "model": body["model"], "content": blocks}
    return {**reply, "stop_reason": reason, "stop_sequence": None, "usage": counts}


def status(number, text="no luck", headers=(), **details):
    """An error; ``details`` go into its body: OpenAI's code and param."""

    def act(server, handler, body):
        send(handler, number, {"type": "error", "error": {"type": "some_error", "message": text, **details}}, headers)

    return act


def raw(data, code=200, content_type="application/json"):
    def act(server, handler, body):
        send(handler, code, data, content_type=content_type)

    return act


def truncated(server, handler, body):
    """Half of a reply, whose length is given as that half's."""
    whole = json.dumps(message(server, body, "text", "stop")).encode()
    send(handler, 200, whole[: len(whole) // 2])


def cut_connection(server, handler, body):
    """Fewer bytes than promised, and the end of the connection."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": ')
    handler.close_connection = True


def reset(server, handler, body):
    """A connection reset instead of a reply."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.close(handler.connection.detach())


def drip(server, handler, body):
    """A byte now and then, until the client hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not server.open.is_set():
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def silent(server, handler, body):
    """No byte until the test is over."""
    server.open.wait()


def held(server, handler, body):
    """A proper reply as soon as the test opens the gate."""
    server.open.wait()
    answer()(server, handler, body)
