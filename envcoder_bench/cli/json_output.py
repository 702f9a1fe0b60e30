"""``--json``: one document on stdout, and messages and progress on stderr, an object on each line."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from envcoder_bench.serve.documents import Document

FLAG = "--json"


class JsonLines:
    """A text stream that writes each line of text as ``{"event": "message", "text": LINE}``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self.event("message", text=line.strip())
        return len(text)

    def event(self, event: str, **values: Any) -> None:
        """Write an event; numbers that are not known are null."""
        fields = {key: None if value != value else value for key, value in values.items()}
        self._stream.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")
        self._stream.flush()

    def flush(self) -> None:
        if self._begun.strip():
            self.write("\n")
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    @property
    def own_codes(self) -> JsonLines:
        """The stream for control codes, which has none."""
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class JsonOutput(JsonLines):
    """The stdout of a command with ``--json``: texts are messages on stderr, and ``document`` is printed at the end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.document: Document | None = None


@contextmanager
def json_output(out: TextIO, err: TextIO) -> Iterator[tuple[JsonOutput, JsonLines]]:
    """Yield the streams of a command with ``--json``; print its document at the end."""
    output, messages = JsonOutput(err), JsonLines(err)
    try:
        yield output, messages
    finally:
        output.flush()
        messages.flush()
        if output.document is not None:
            out.write(output.document.as_json() + "\n")
            out.flush()


def is_json() -> bool:
    """Return whether the command has ``--json``."""
    return isinstance(sys.stdout, JsonOutput)


def put(document: Callable[[], Document]) -> None:
    """With ``--json``, set the document of the command; one that follows it becomes its field of that kind."""
    if isinstance(sys.stdout, JsonOutput):
        latest, before = document(), sys.stdout.document
        nests = before is not None and latest.kind in {each.name for each in dataclasses.fields(before)}
        sys.stdout.document = dataclasses.replace(before, **{latest.kind: latest}) if nests and before else latest


def show(document: Callable[[], Document], text: Callable[[], str], own_codes: bool = False) -> None:
    """Print a text, or with ``--json`` a document.

    Args:
        own_codes: the text has control codes of this program, and none of others: see ``plain_text.own_codes``.
    """
    if is_json():
        put(document)
    else:
        from envcoder_bench.core import plain_text

        print(text(), end="", file=plain_text.own_codes(sys.stdout) if own_codes else sys.stdout)
