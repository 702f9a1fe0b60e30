"""Hooks of ProperDocs, which make pages that are written for a repository's browser fit the site.

- A page links to a file outside docs/ by its relative path. The site does not have it, and shows its name.
- A list may follow a line of text. The site's Markdown needs an empty line between them.
- A table or code may be wider than a phone: it scrolls by itself, and a shadow at its edge says so.
- A flag in a sentence does not break at its hyphens.
- Code has colours: ``css/site.css`` has those of Pygments, for both modes.
"""

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")
LIST = re.compile(r"^((?![-*|#<>\s]|\d+\. ).*\S)\n(?=[-*] )", re.MULTILINE)
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"<code>[^<\n]*</code>")  # a block's code ends with a line
FLAG = re.compile(r"(?<=[> ])--?[a-z]\w*")
# a shadow on each side, under a cover that scrolls with the table: it is seen where columns are out of sight
STYLE = """
.wide { overflow-x: auto; margin-bottom: 1rem; }
.wide, .codehilite pre { background:
  linear-gradient(to right, var(--bs-body-bg) 40%, transparent) left / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--bs-body-bg) 40%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to right, #888b, transparent) left / 1rem 100% no-repeat,
  linear-gradient(to left, #888b, transparent) right / 1rem 100% no-repeat; }
.wide > table { --bs-table-bg: transparent; margin-bottom: 0; }
.flag { white-space: nowrap; }
.bs-sidebar .nav-link { padding-inline: .5rem; overflow-wrap: anywhere; }
"""
LOG = logging.getLogger("mkdocs.plugins.site_hooks")  # a warning fails a strict build


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the text of a page for the site; warn of links to files that do not exist."""
    docs = Path(config["docs_dir"]).resolve()
    folder = (docs / page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        text, target = match[1], (folder / match[2]).resolve()
        if docs in target.parents:
            return match[0]
        if not target.exists():
            LOG.warning("%s links to %s, which does not exist", page.file.src_uri, match[2])
        path = target.relative_to(ROOT).as_posix()
        return f"`{path}`" if path.endswith(text.strip("`/")) else f"{text} (`{path}`)"

    parts = FENCE.split(markdown)  # code is at odd positions
    return "".join(part if k % 2 else LIST.sub(r"\1\n\n", LINK.sub(replaced, part)) for k, part in enumerate(parts))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Return the HTML of a page with each table in a box that scrolls, and flags that stay on a line."""
    html = INLINE_CODE.sub(lambda code: FLAG.sub(r'<span class="flag">\g<0></span>', code[0]), html)
    return re.sub(r"<table>.*?</table>", r'<div class="wide" tabindex="0">\g<0></div>', html, flags=re.DOTALL)


def on_post_build(config: Any) -> None:
    """Write the style of the site, and the colours of code for the light and the dark mode."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs("[data-bs-theme=light] .codehilite")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .codehilite")
    path = Path(config["site_dir"]) / "css" / "site.css"
    path.write_text(f"{STYLE}{light}\n{dark}\n", encoding="utf-8")
