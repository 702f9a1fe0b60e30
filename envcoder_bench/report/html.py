"""Self-contained HTML pages without scripts, safe for untrusted text."""

from __future__ import annotations

import base64
import html
import unicodedata
from typing import Sequence

STYLE = """
html { font-size: 15px; }
body { font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.3rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.lead { font-size: 1.05rem; } .note { color: #606060; font-size: 0.9rem; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.9rem; } th { text-align: left; }
th, td { padding: 0.2rem 0.8rem 0.2rem 0; vertical-align: top; border-bottom: 1px solid #e4e4e4;
  overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.name { white-space: nowrap; } tr.strong td { font-weight: 600; }
pre { font: 12.5px/1.45 ui-monospace, monospace; background: #f7f7f7; padding: 0.8rem; overflow-x: auto; }
.added { background: #e3f2e3; } .removed { background: #fbe6e4; } .place { color: #606060; }
@media print { html { font-size: 11px; } body { max-width: none; margin: 0; }
  pre { white-space: pre-wrap; font-size: 9px; }
  h2 { break-after: avoid; } tr, img { break-inside: avoid; } }
"""
_INVISIBLE = ("Cc", "Cf", "Cs")  # Unicode categories: control, format, surrogate
# nothing is loaded and no script runs, whatever a text contains
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def text(value: object) -> str:
    """Return a value as escaped HTML, with invisible characters as in ``visible``."""
    return html.escape(visible(value))


def visible(value: object) -> str:
    """Replace invisible characters, and those that change the text's direction, by their codes."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE else _code(c) for c in str(value))


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def page(title: str, body: Sequence[str]) -> str:
    """Return a complete page; ``body`` is HTML, ``title`` plain text."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{text(title)}</title><style>{STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str], strong: int = -1) -> str:
    """Return a table of plain texts; ``kinds``: CSS classes of the columns, ``strong``: index of the bold row."""
    cells = [f'<th class="{kind}">{text(cell)}</th>' for cell, kind in zip(header, kinds)]
    lines = [f"<tr>{''.join(cells)}</tr>"] if any(header) else []
    for k, row in enumerate(rows):
        cells = [f'<td class="{kind}">{text(cell)}</td>' for cell, kind in zip(row, kinds)]
        lines.append(f"<tr{' class=strong' if k == strong else ''}>{''.join(cells)}</tr>")
    return "<table>" + "\n".join(lines) + "</table>"


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
