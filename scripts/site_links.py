"""A hook of ProperDocs: names of files outside docs/, which the site does not have, stand in place of links to them.

A page links to such a file by its relative path, which works where the repository is browsed.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")
LOG = logging.getLogger("mkdocs.plugins.site_links")  # a warning fails a strict build


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace links that leave docs/ by text and the path; warn where there is no such file."""
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

    return LINK.sub(replaced, markdown)
