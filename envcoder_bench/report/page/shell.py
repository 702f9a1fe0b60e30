"""What all pages have in common: the shell, the parts, escaped texts, and sources in colour.

A page is a Jinja template that extends ``report/page/shell.html``; templates are named by their paths in the package.
Everything that a template prints is escaped, except ``Markup``. The content security policy allows only the page's own
script, by its hash, and no request.
"""

import base64
import difflib
import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

import envcoder_bench
from envcoder_bench.core.plain_text import visible
from envcoder_bench.shaping.kinds import ALIASES
from envcoder_bench.shaping.source import Source, UnsupportedCode
from envcoder_bench.shaping.text import defined_kinds, definitions

PAGE = "report.html"
PACKAGE = Path(envcoder_bench.__file__).parent
MOST_LINES = 3000  # longer sources are cut on a page
_FLAG = re.compile(r"(?<!\S)--\w+")
_ASSETS = PACKAGE / "report" / "assets"


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        body: its content; without one the section is left out.
        first: on the page of a run, whether it is before the ranking; otherwise it is before the videos.
    """

    anchor: str
    title: str
    body: Markup
    first: bool = False


def render(
    template: str,
    title: str,
    lead: Sequence[str] = (),
    facts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    **values: Any,
) -> str:
    """Return a page as HTML.

    Args:
        template: a template that extends the shell and sets ``sections``.
        lead: the first paragraphs, as plain text.
        data: numbers of the charts; None for a page without a script.
    """
    script = ""
    if data is not None:
        parts = (_asset(name) for name in ("uplot.js", "pair.js", "page.js"))
        script = "\n".join(["/*", f"{_asset('uplot-LICENSE.txt')}*/", *parts])
    allowed = "'none'"
    if script:
        allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; media-src blob: data:;"
        " base-uri 'none'; form-action 'none'"
    )
    style = f"{_asset('uplot.css') if script else ''}\n{_asset('page.css')}"
    values |= {"title": title, "lead": lead, "facts": facts, "data": data}
    page = _environment().get_template(template)
    return page.render(values, policy=policy, style=Markup(style), script=Markup(script))


def macros(template: str) -> Any:
    """Return the macros of a template as functions that return ``Markup``."""
    return _environment().get_template(template).module


def parts() -> Any:
    """Return the parts that pages share: ``table``, ``fact_list``, ``picture``, ``notes``."""
    return macros("report/page/parts.html")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if hasattr(value, "__html__") else visible(value),
    )
    environment.globals["section"] = lambda anchor, title, body: Section(anchor, title, Markup(body.strip()))
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    environment.filters["whole_flags"] = lambda text: Markup(
        _FLAG.sub(r'<span class="flag">\g<0></span>', str(escape(visible(text))))
    )
    environment.filters["script_json"] = lambda value: Markup(script_json(value))
    return environment


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def plain_number(value: Any) -> float | None:
    """Return a number with five digits; None if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.5g}")


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it is in."""
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        plain = plain.replace(char, f"\\u{ord(char):04x}")
    return plain


def code(source: str, faults: Collection[int] = (), coloured: bool = True) -> Markup:
    """Return a Python source with numbered lines; ``faults`` are the numbers of lines to mark."""
    from pygments.lexers.python import PythonLexer
    from pygments.lexers.special import TextLexer

    lines = visible(source.rstrip("\n")).split("\n")
    more = len(lines) - MOST_LINES
    lexer = PythonLexer(stripnl=False) if coloured else TextLexer(stripnl=False)
    markup = _coloured(lines[:MOST_LINES], lexer, linenos="inline", hl_lines=list(faults))
    return markup + parts().notes([f"{more:,} more lines in the file"] if more > 0 else [])


def difference(lines: Sequence[str]) -> Markup:
    """Return a unified diff in colour, without the names of its files."""
    from pygments.lexers.diff import DiffLexer

    hunks = dropwhile(lambda line: not line.startswith("@@"), lines)
    return _coloured(list(map(visible, hunks)), DiffLexer(stripnl=False))


def _coloured(lines: Sequence[str], lexer: Any, **options: Any) -> Markup:
    """Return lines as ``<div class="code">``; Pygments escapes them."""
    from pygments import highlight
    from pygments.formatters.html import HtmlFormatter

    return Markup(highlight("\n".join(lines), lexer, HtmlFormatter(cssclass="code", **options)))


# differences between two candidates


MOST_COMPARED = 1000  # lines; the time of a comparison grows with their square


def changes(before: str, after: str) -> Markup | None:
    """Return the differences to the functions that ``after`` defines; None if ``before`` has none of them."""
    kinds = defined_kinds(before) & defined_kinds(after)
    if not kinds:
        return None
    if max(text.count("\n") for text in (before, after)) >= MOST_COMPARED:
        return parts().notes([f"They are not compared: one has {MOST_COMPARED:,} lines or more."])
    first, second = (
        [line for begin, end in _used(text, defined_kinds(after)) for line in [*text.split("\n")[begin - 1 : end], ""]]
        for text in (before, after)
    )
    lines = list(difflib.unified_diff([*map(str.rstrip, first)], [*map(str.rstrip, second)], lineterm=""))
    return difference(lines) if lines else parts().notes(["There are none."])


def function_lines(source: str) -> dict[str, list[tuple[int, int]]]:
    """Return the first and the last lines, from 1, of a file's functions and of what each uses, by kind of function."""
    if source.count("\n") >= MOST_LINES:
        return {}
    return {kind: _used(source, {kind}) for kind in sorted(defined_kinds(source))}


def _used(source: str, kinds: Collection[str]) -> list[tuple[int, int]]:
    """Return the lines of a file's functions of some kinds and of what they use; all lines if it does not parse."""
    try:
        return Source(source).lines(name for name in definitions(source).names if ALIASES.get(name, name) in kinds)
    except UnsupportedCode:
        return [(1, source.count("\n") + 1)]
