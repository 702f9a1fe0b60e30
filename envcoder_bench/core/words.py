"""Text for messages: numbers, counted nouns, lists, texts cut to a width, and names of files and pages."""

import math
import re
import textwrap
from collections.abc import Collection, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

# absolute paths up to the last folder, but not a slash within a word (rad/s), alone (a / b) or in a URL (https://)
_QUOTED = r"(?<=['\"])~?/(?:[^/'\"\n]+/)+(?=[^/'\"\n]*['\"])"  # folders may have spaces
_BARE = r"(?<![\w.~/\\])~?/(?:[^\s/'\"<>|]+/)+"
_WINDOWS = r"(?<!\w)[A-Za-z]:\\(?:[^\s\\'\"<>|:]+\\)+"
_MOST_DECIMALS = 5
_FOLDERS = re.compile(f"{_QUOTED}|{_BARE}|{_WINDOWS}")
_PAGE = re.compile(r"(?<![\w/.-])docs/\w+\.md\b")  # a page of the manual


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return ``1 round`` or ``1,200 rounds``; ``plural`` for nouns whose plural is irregular."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def join_words(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(x for x in (", ".join(words[:-1]), words[-1] if words else "") if x)


def join_some(words: Sequence[str], most: int = 4) -> str:
    """Return ``a, b and c``, or ``a, b, c and 5 more``: at most ``most`` parts."""
    if len(words) <= most:
        return join_words(words)
    return f"{', '.join(words[: most - 1])} and {len(words) - most + 1} more"


def cut(text: str, width: int) -> str:
    """Cut off the end of a text that has more than ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def without_folders(text: str) -> str:
    """Return a message with file names instead of paths, which differ between machines."""
    return _FOLDERS.sub("", text)


def with_addresses(text: str) -> str:
    """Return a text with the addresses of the pages that it names; in a checkout, the text itself."""
    address = _repository() if "docs/" in text else ""
    return _PAGE.sub(lambda page: f"{address}/blob/main/{page[0]}", text) if address else text


@cache
def _repository() -> str:
    """Return the repository's address from the metadata of a release; empty if it has none (scripts/release.py)."""
    try:
        urls = metadata("envcoder-bench").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    return next((url.partition(", ")[2] for url in urls if url.startswith("Repository, ")), "")


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = (), ruled: bool = True) -> list[str]:
    """Return lines with the cells of rows in columns, of which some are aligned to the right.

    With ``ruled``, the first row is a header with a rule below it.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = (x.rjust(w) if k in right else x.ljust(w) for k, (x, w) in enumerate(zip(row, widths)))
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]] if ruled else lines


def shorten(text: str, width: int) -> str:
    """Shorten a text in its middle, because names often differ in their first or last letters."""
    if len(text) <= width:
        return text
    if width < 2:
        return text[:width]
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def wrap(text: str, width: int, first: str = "", then: str = "  ") -> str:
    """Break a text into lines of at most ``width`` characters, but no words."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False, break_long_words=False
    )


# numbers: reports use these; assets/page.js has the rule of ``number``, too


def number(value: float, digits: int = 4, sign: str = "") -> str:
    """Format a number with at most so many significant digits: ``1.7e-5``, ``0.0312``, ``1,234,567``."""
    size = abs(value)
    if 0 < size < 1e-3 or 1e15 <= size < math.inf:
        mantissa, _, exponent = f"{value:{sign}.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if 10 ** (digits - 1) <= size < math.inf:
        return f"{value:{sign},.0f}"
    return f"{value + 0.0:{sign}.{digits}g}"  # adding 0.0 turns -0.0 into 0.0


def fixed(value: float, decimals: int, sign: str = "") -> str:
    """Format a number with ``decimals`` digits after the point, without ``-0``; with more than five as ``0.72e-5``.

    Numbers of the same ``decimals`` have the same exponent, so that they can be compared at a glance.
    """
    value = round(value, decimals) + 0.0
    if decimals <= _MOST_DECIMALS:
        return f"{value:{sign}.{decimals}f}"
    return f"{value * 10 ** (decimals - 2):{sign}.2f}e-{decimals - 2}"


def decimal_places(values: Sequence[float]) -> int:
    """Return the number of digits after the point of a fitness: three below 10, none from 1,000 on.

    If all values are below 0.01, the largest has three significant digits.
    """
    largest = max((abs(x) for x in values if not math.isnan(x)), default=0.0)
    if 1e-9 < largest < 0.01:
        return 2 - math.floor(math.log10(largest))
    return 3 if largest < 10 else 2 if largest < 100 else 1 if largest < 1000 else 0


def format_fitness(fitness: float) -> str:
    """Format the fitness of a single candidate, with the decimals that it needs."""
    return fixed(fitness, decimal_places([fitness]))


def si(value: float) -> str:
    """Format a number with three digits and k, M or G: ``1.23M``."""
    for unit in ("", "k", "M"):
        if abs(value) < 999.5:
            return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}{unit}" if unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.2f}G"


def duration(seconds: float) -> str:
    """Format a time as ``m:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
