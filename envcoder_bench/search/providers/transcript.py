"""transcript.jsonl: every request and reply of a search, also used as a cache, so that no reply is paid twice.

One JSON object a line::

    {"type": "header", "format": 1, "version": "0.1.0", "meta": {"task": "Anymal", ...}}
    {"type": "reply", "time": "...", "label": "r1_00", "provider": "openai:gpt-4.1", "hash": "...",
     "request": {"system": "...", "messages": [{"role": "user", "text": "..."}], "temperature": 1.0,
                 "max_output_tokens": 4096, "sample": 0, "attempt": 0},
     "reply": {"text": "...", "input_tokens": 1234, "output_tokens": 567, "cost": 0.007, "finish": "stop", "error": ""}}

If the writer is killed, the last line may be incomplete; it is skipped. ``--llm replay:FILE`` plays a transcript.
"""

import json
import os
import re
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envcoder_bench import __version__
from envcoder_bench.core.bounded import parse_json
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import digest, no_links
from envcoder_bench.search.providers.base import BUDGET, ERROR, Message, Reply, Request
from envcoder_bench.search.providers.budget import Spent

_FORMAT = 1

Key = tuple[str, str]  # the provider's name and the request's hash


def content_hash(request: Request) -> str:
    """Return a hash of everything in a request but its label."""
    return digest(json.dumps(_content(request), sort_keys=True, ensure_ascii=True))


def _content(request: Request) -> dict[str, Any]:
    content = asdict(request)
    del content["label"]
    if request.temperature is not None:
        content["temperature"] = float(request.temperature)  # 1 and 1.0 must have the same hash
    return content


class Transcript:
    """A search's transcript; thread-safe.

    Attributes:
        meta: the inputs of the search, in JSON's types.
    """

    def __init__(self, path: Path, meta: Mapping[str, Any]) -> None:
        """Open or create a transcript.

        Raises:
            UserError: if the file cannot be read or written, is damaged, or is of a search with another ``meta``.
        """
        self.path = Path(path)
        self.meta = as_json(meta)
        self._lock = threading.Lock()
        self._replies: dict[Key, Reply] = {}
        self._spent = Spent()
        records: list[dict[str, Any]] = []
        size = 0
        if self.path.exists():
            records, size = read_records(self.path)
        if records:
            differences = different_keys(records[0]["meta"], self.meta, every=True)
            if differences:
                raise UserError(f"{self.path} is of another search: {differences}")
        try:
            self._file = no_links(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            weakref.finalize(self, os.close, self._file)
            os.ftruncate(self._file, size)  # remove an incomplete last line
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from error
        if not records:
            self._append({"type": "header", "format": _FORMAT, "version": __version__, "meta": self.meta})
        for record in records:
            if record["type"] == "reply":
                self._remember((record["provider"], record["hash"]), reply_of(record))

    @property
    def spent(self) -> Spent:
        """Tokens and dollars of all replies."""
        with self._lock:
            return self._spent

    def key(self, provider: str, request: Request) -> Key:
        return provider, content_hash(request)

    def find(self, key: Key) -> Reply | None:
        """Return the reply to a request; None if there is none, or if the request failed or was not sent."""
        with self._lock:
            return self._replies.get(key)

    def add(self, key: Key, request: Request, reply: Reply) -> None:
        """Append a reply; it is on disk when this returns. Raises UserError if it cannot be written."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"time": now, "label": request.label, "provider": key[0], "hash": key[1]}
        with self._lock:
            self._append({"type": "reply", **who, "request": _content(request), "reply": asdict(reply)})
            self._remember(key, reply)

    def _remember(self, key: Key, reply: Reply) -> None:
        self._spent = self._spent.plus(Spent(reply.input_tokens + reply.output_tokens, reply.cost or 0.0))
        if reply.finish not in (ERROR, BUDGET):
            self._replies[key] = reply

    def _append(self, record: dict[str, Any]) -> None:
        line = f"{json.dumps(record, ensure_ascii=True)}\n".encode("ascii")
        try:
            size = os.fstat(self._file).st_size
            if os.write(self._file, line) != len(line):
                os.ftruncate(self._file, size)
                raise OSError(0, "a record was written only in part; is the disk full?")
            os.fsync(self._file)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from error


def read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read the complete lines of a transcript.

    Returns:
        The records, the header first (empty if the header is incomplete), and their size in bytes.

    Raises:
        UserError: if the file cannot be read or is not a transcript of this format.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    # a killed search may leave an incomplete line
    size = content.rfind(b"\n") + 1
    records: list[dict[str, Any]] = []
    for number, line in enumerate(content[:size].splitlines(), 1):
        try:
            record = parse_json(line)
            _check(record, first=number == 1)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}:{number}: not a record of a transcript ({error}); delete the line") from error
        records.append(record)
    if not records and content.strip() and not b'{"type": "header"'.startswith(content[:17]):
        raise UserError(f"{path} is not a transcript: it has no header")
    return records, size


def _check(record: Any, first: bool) -> None:
    """Raise ValueError, KeyError or TypeError if a record is invalid."""
    if first and (record["type"] != "header" or not isinstance(record["meta"], dict)):
        raise ValueError("the first line must be a header")
    if first and record["format"] != _FORMAT:
        raise ValueError(f"its format is {record['format']}, and this version reads {_FORMAT}")
    if record["type"] == "reply":
        reply_of(record)
        request_of(record)
        if not all(isinstance(record[name], str) for name in ("label", "provider", "hash")):
            raise TypeError("label, provider and hash are texts")


def reply_of(record: Mapping[str, Any]) -> Reply:
    return Reply(**record["reply"])


def request_of(record: Mapping[str, Any]) -> Request:
    content = dict(record["request"])
    content["messages"] = tuple(Message(**message) for message in content["messages"])
    return Request(**content, label=record["label"])


def as_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Convert to JSON's types: tuples become lists."""
    return json.loads(json.dumps(dict(meta)))


def different_keys(there: Mapping[str, Any], here: Mapping[str, Any], every: bool) -> str:
    """Describe the differences of two metas: ``task is "Ant" there and "Anymal" here``; empty if they agree.

    Args:
        there, here: the recorded meta and that of this search.
        every: whether to compare also keys that only one of them has.
    """
    keys = sorted({*there, *here} if every else set(there) & set(here))
    differing = [key for key in keys if key not in there or key not in here or there[key] != here[key]]
    return ", ".join(f"{key} is {_short(there, key)} there and {_short(here, key)} here" for key in differing)


def _short(meta: Mapping[str, Any], key: str) -> str:
    text = json.dumps(meta[key], ensure_ascii=False) if key in meta else "missing"
    return text if len(text) <= 80 else text[:77] + "..."


class ReplayProvider:
    """Answers requests from a transcript.

    A request is found by its content, or else by its label: the prompts of another version, and of a search with other
    measurements, differ.

    Attributes:
        meta: the inputs of the recorded search.
        by_label: number of requests with other content that were found by their label.
    """

    def __init__(self, path: Path) -> None:
        """Read a transcript, or the ``transcript.jsonl`` of a search's folder.

        Raises:
            UserError: if it does not exist, is damaged, or has no reply.
        """
        self.path = path / "transcript.jsonl" if path.is_dir() else path
        try:
            records, _ = read_records(self.path)
        except UserError as error:
            raise UserError(f"--llm replay:{path}: {error}") from error
        replies = [record for record in records if record["type"] == "reply"]
        if not replies:
            raise UserError(f"--llm replay:{path}: this transcript has no reply")
        self.meta: dict[str, Any] = records[0]["meta"]
        self.name: str = replies[0]["provider"]
        self.model: str = self.name.split("@")[0].split(":", 1)[-1]
        self.default_output_tokens: int = replies[0]["request"]["max_output_tokens"]  # complete_all fills it in
        self._system: str = replies[0]["request"]["system"]
        self.by_label = 0
        self._by_content: dict[str, Reply] = {}
        self._by_label: dict[tuple[str, int], Reply] = {}
        for record in replies:  # the last of several replies: after an error a resumed search repeats its requests
            request = request_of(record)
            self._by_content[record["hash"]] = reply_of(record)
            self._by_label[request.label, request.attempt] = reply_of(record)

    def check(self, meta: Mapping[str, Any], system: str = "") -> str:
        """Return how the system prompt differs from the recorded one, in one line; empty if it does not.

        Args:
            meta: the inputs of this search.
            system: its system prompt.

        Raises:
            UserError: if the transcript is of a search with other inputs.
        """
        differences = different_keys(self.meta, as_json(meta), every=False)
        if differences:
            raise UserError(f"--llm replay:{self.path} is the transcript of another search: {differences}")
        return "" if system == self._system else _first_difference(self._system, system)

    def complete(self, request: Request) -> Reply:
        """Return the recorded reply. Raises UserError if there is none."""
        reply = self._by_content.get(content_hash(request))
        if reply is not None:
            return reply
        reply = self._by_label.get((request.label, request.attempt))
        who = request.label or "a request without a label"
        if reply is None or not request.label:
            labels = sorted({label for label, _ in self._by_label if label}, key=_natural)
            ends = f"it holds {labels[0]} to {labels[-1]}" if labels else "its requests have no labels"
            again = f" (asked again, time {request.attempt + 1})" if request.attempt else ""
            raise UserError(f"--llm replay:{self.path} has no reply for {who}{again}: {ends}")
        self.by_label += 1
        return reply


def _natural(label: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", label))


def _first_difference(there: str, here: str) -> str:
    lines = (there.splitlines(), here.splitlines())
    for number in range(max(map(len, lines))):
        line, other_line = (side[number] if number < len(side) else "" for side in lines)
        if line != other_line:
            equal = [a == b for a, b in zip(line, other_line)] + [False]
            start = max(0, equal.index(False) - 30)
            theirs, ours = (f"{'...' * bool(start)}{x[start : start + 80]}" for x in (line, other_line))
            return f"line {number + 1} is {theirs!r} there and {ours!r} here"
    return "their line ends differ"
