"""Python sources as HTML: numbered lines, coloured words, and lines with a fault marked.

The text is scanned with one regular expression, not parsed: it may be anything.
"""

import keyword
import re
from collections.abc import Collection

from envcoder_bench.report.html import text

MOST_LINES = 3000  # of a source on a page
_WORDS = "|".join(sorted(keyword.kwlist))
_TOKENS = re.compile(
    r"(?P<s>(?:\b[rRbBfFuU]{1,2})?(?:\"\"\"[\s\S]*?(?:\"\"\"|\Z)|'''[\s\S]*?(?:'''|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?))"
    r"|(?P<c>#[^\n]*)"
    r"|(?P<d>(?<=def )[^\W\d]\w*|(?<=class )[^\W\d]\w*)"
    rf"|(?P<k>\b(?:{_WORDS})\b)"
    r"|(?P<n>\b\d[\w.]*)"
)


def code(source: str, faults: Collection[int] = ()) -> str:
    """Return a source as a ``<pre>``; ``faults`` are the numbers of lines to mark."""
    lines = _coloured(source.strip("\n")).split("\n")
    skipped = len(source) - len(source.lstrip("\n"))
    more = len(lines) - MOST_LINES
    marked = []
    for number, line in enumerate(lines[:MOST_LINES], 1):
        kind = "l fault" if number + skipped in faults else "l"
        marked.append(f'<span class="{kind}">{line or " "}</span>')
    rest = f'<p class="note">{more:,} more lines in the file</p>' if more > 0 else ""
    return f'<pre class="code">{"".join(marked)}</pre>{rest}'


def _coloured(source: str) -> str:
    """Escape a source and wrap its tokens in spans, none of which goes over the end of a line."""
    parts, end = [], 0
    for token in _TOKENS.finditer(source):
        parts.append(text(source[end : token.start()]))
        lines = token.group().split("\n")
        parts.append("\n".join(f'<span class="{token.lastgroup}">{text(line)}</span>' for line in lines))
        end = token.end()
    return "".join([*parts, text(source[end:])])
