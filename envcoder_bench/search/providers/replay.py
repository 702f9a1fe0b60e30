"""``--llm replay:FILE``: replay a recorded transcript without network."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.providers.base import Reply, Request
from envcoder_bench.search.providers.transcript import (
    as_json,
    content_hash,
    different_keys,
    read_records,
    reply_of,
    request_of,
)


class ReplayProvider:
    """Answers requests from a transcript.

    A request is found by its content. If its prompt contains slightly different measurements, it is found by its label,
    provided that the system prompt is the same.

    Attributes:
        meta: the inputs of the recorded search.
        by_label: number of requests with other content that were found by their label.
    """

    recorded = True

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
            raise UserError(f"--llm replay:{path}: there is no reply in this transcript")
        self.meta: dict[str, Any] = records[0]["meta"]
        self.name: str = replies[0]["provider"]
        self.model: str = self.name.split("@")[0].split(":", 1)[-1]
        self.default_output_tokens: int = replies[0]["request"]["max_output_tokens"]  # complete_all fills it in
        self._system: str = replies[0]["request"]["system"]
        self.by_label = 0
        self._by_content: dict[str, Reply] = {}
        self._by_label: dict[tuple[str, int], tuple[Request, Reply]] = {}
        for record in replies:  # the last of several replies: after an error a resumed search repeats its requests
            request = request_of(record)
            self._by_content[record["hash"]] = reply_of(record)
            self._by_label[request.label, request.attempt] = request, reply_of(record)

    def check(self, meta: Mapping[str, Any], system: str | None = None) -> None:
        """Raise UserError if the transcript is of a search with other inputs.

        Args:
            meta: the inputs of this search.
            system: the system prompt of all requests; None to compare it with each request.
        """
        differences = different_keys(self.meta, as_json(meta), every=False)
        if differences:
            raise UserError(f"--llm replay:{self.path} is the transcript of another search: {differences}")
        if system is not None:
            self._check_system(self._system, system, "")

    def _check_system(self, there: str, here: str, where: str) -> None:
        if there != here:
            raise UserError(
                f"--llm replay:{self.path} was recorded with another system prompt{where}: "
                f"{_first_difference(there, here)}"
            )

    def complete(self, request: Request) -> Reply:
        """Return the recorded reply. Raises UserError if there is none, or if the system prompt is different."""
        reply = self._by_content.get(content_hash(request))
        if reply is not None:
            return reply
        recorded, reply = self._by_label.get((request.label, request.attempt), (None, None))
        who = request.label or "a request without a label"
        if recorded is None or reply is None or not request.label:
            known = sorted({label for label, _ in self._by_label if label}, key=_natural)
            ends = f"it holds {known[0]} to {known[-1]}" if known else "its requests have no labels"
            again = f" (asked again, time {request.attempt + 1})" if request.attempt else ""
            raise UserError(f"--llm replay:{self.path} has no reply for {who}{again}: {ends}")
        self._check_system(recorded.system, request.system, f" for {who}")
        self.by_label += 1
        return reply


def _natural(label: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", label))


def _first_difference(there: str, here: str) -> str:
    lines = (there.splitlines(), here.splitlines())
    for number in range(max(map(len, lines))):
        one, other = (side[number] if number < len(side) else "" for side in lines)
        if one != other:
            return f"line {number + 1} is {one[:80]!r} there and {other[:80]!r} here"
    return "their line ends differ"
