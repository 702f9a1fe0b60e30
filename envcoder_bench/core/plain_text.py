"""Printing of untrusted texts, such as those of candidates, models and other people's folders.

A terminal obeys control characters, and a line break can begin a false row.
"""

import unicodedata
from typing import TextIO

_LAYOUT = {ord("\n"): None, ord("\t"): None}
_SPACE = "Zs"  # the Unicode category


def visible(value: object) -> str:
    """Replace invisible characters, and those that change the text's direction, by their codes.

    Line breaks and tabs stay.
    """
    text = str(value)
    if text.translate(_LAYOUT).isprintable():  # the usual case, which this test makes fast
        return text
    return "".join(c if c in "\n\t" or c.isprintable() or unicodedata.category(c) == _SPACE else _code(c) for c in text)


def one_line(value: object, limit: int = 0) -> str:
    """Return a ``visible`` text without line breaks and tabs, of at most ``limit`` characters; 0: of any length."""
    text = str(value).replace("\t", " ")
    lines = text.splitlines()
    if len(lines) > 1 or text != "".join(lines):
        text = " ".join(filter(None, map(str.strip, lines)))
    text = visible(text)
    return text if not limit or len(text) <= limit else text[: limit - 3] + "..."


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def own_codes(stream: TextIO) -> TextIO:
    """Return the stream for control codes of this program, such as those of a progress bar.

    The standard streams of a command print all other texts as ``visible`` ones.
    """
    return getattr(stream, "own_codes", stream)
