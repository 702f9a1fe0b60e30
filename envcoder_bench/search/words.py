"""Numbers and nouns that agree, for messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 round``, ``1,200 rounds``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
