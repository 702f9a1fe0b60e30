"""Parts of HTML pages, safe for untrusted text."""

import base64
import html
import unicodedata
from collections.abc import Mapping, Sequence

_INVISIBLE = ("Cc", "Cf", "Cs")  # Unicode categories: control, format, surrogate
_LAYOUT = {ord("\n"): None, ord("\t"): None}


def text(value: object) -> str:
    """Return a value as escaped HTML, with invisible characters as in ``visible``."""
    return html.escape(visible(value))


def visible(value: object) -> str:
    """Replace invisible characters, and those that change the text's direction, by their codes."""
    shown = str(value)
    if shown.translate(_LAYOUT).isprintable():  # nearly always, and far faster
        return shown
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE else _code(c) for c in shown)


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str], strong: int = -1) -> str:
    """Return a table of plain texts; ``kinds``: CSS classes of the columns, ``strong``: index of the bold row."""
    cells = [f'<th class="{kind}">{text(cell)}</th>' for cell, kind in zip(header, kinds)]
    lines = [f"<tr>{''.join(cells)}</tr>"] if any(header) else []
    for k, row in enumerate(rows):
        cells = [f'<td class="{kind}">{text(cell)}</td>' for cell, kind in zip(row, kinds)]
        lines.append(f"<tr{' class=strong' if k == strong else ''}>{''.join(cells)}</tr>")
    return "<table>" + "\n".join(lines) + "</table>"


def fact_list(facts: Mapping[str, str]) -> str:
    """Return facts by title as an HTML list, without empty ones."""
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in facts.items() if value)
    return f"<dl>{rows}</dl>"


def picture(png: bytes, description: str) -> str:
    """Return an embedded picture."""
    return f'<img alt="{text(description)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def difference(lines: Sequence[str]) -> str:
    """Return a unified diff with coloured lines."""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    marked = []
    for line in lines:
        kind = "place" if line.startswith(("+++", "---")) else kinds.get(line[:1], "")
        marked.append(f'<span class="{kind}">{text(line)}</span>' if kind else text(line))
    return "<pre>" + "\n".join(marked) + "</pre>"
