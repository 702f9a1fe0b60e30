"""Addresses of the manual's pages, which messages name by their paths in the repository."""

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

_PAGE = re.compile(r"(?<![\w/.-])docs/\w+\.md\b")


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
