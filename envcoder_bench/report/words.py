"""Text for messages: numbers, counted nouns, lists, texts cut to a width, and errors without folders."""

import re
from collections.abc import Sequence

# absolute paths up to the last folder, but not a slash within a word (rad/s), alone (a / b) or in a URL (https://)
_QUOTED = r"(?<=['\"])~?/(?:[^/'\"\n]+/)+(?=[^/'\"\n]*['\"])"  # folders may have spaces
_BARE = r"(?<![\w.~/\\])~?/(?:[^\s/'\"<>|]+/)+"
_WINDOWS = r"(?<!\w)[A-Za-z]:\\(?:[^\s\\'\"<>|:]+\\)+"
_FOLDERS = re.compile(f"{_QUOTED}|{_BARE}|{_WINDOWS}")


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return ``1 round`` or ``1,200 rounds``; ``plural`` for nouns whose plural is irregular."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(x for x in (", ".join(words[:-1]), words[-1] if words else "") if x)


def cut(text: str, width: int) -> str:
    """Cut off the end of a text that has more than ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def without_folders(text: str) -> str:
    """Return a message with file names instead of paths, which differ between machines."""
    file, suffix, rest = text.partition(".py:")
    if suffix and file.startswith("/"):  # a path at the beginning may have folders with spaces
        text = file[file.rindex("/") + 1 :] + suffix + rest
    return _FOLDERS.sub("", text)


def fixed(value: float, decimals: int, sign: str = "") -> str:
    """Format a number with ``decimals`` digits after the point, without ``-0``."""
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"
