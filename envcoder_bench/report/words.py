"""Texts for messages: numbers and nouns that agree, and errors without folders."""

from __future__ import annotations

import re

# absolute paths up to the last folder; a slash within a word (rad/s), alone (a / b) or of an address (https://) is none
_QUOTED = r"(?<=['\"])~?/(?:[^/'\"\n]+/)+(?=[^/'\"\n]*['\"])"  # its folders may have spaces
_BARE = r"(?<![\w.~/\\])~?/(?:[^\s/'\"<>|]+/)+"
_WINDOWS = r"(?<!\w)[A-Za-z]:\\(?:[^\s\\'\"<>|:]+\\)+"
_FOLDERS = re.compile(f"{_QUOTED}|{_BARE}|{_WINDOWS}")


def counted(number: float, noun: str, plural: str = "") -> str:
    """``1 round``, ``1,200 rounds``; ``plural`` where an s does not do."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def without_folders(text: str) -> str:
    """A message with the names of files alone: folders say nothing to a model, and differ between machines."""
    file, suffix, rest = text.partition(".py:")
    if suffix and file.startswith("/"):  # the message begins with a place, whose folders may have spaces
        text = file[file.rindex("/") + 1 :] + suffix + rest
    return _FOLDERS.sub("", text)
