"""Source text of a syntax tree, in lines that a person can read."""

from __future__ import annotations

import ast
import re
from typing import Iterator

WIDTH = 100
_STRING = re.compile(r"""("(?:[^"\\]|\\.)*")|'([^'"\\]*)'""")
_OPERATORS = ((" | ",), (" & ",), (" + ", " - "), (" * ", " / "))  # those that bind least first
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def to_source(statement: ast.stmt) -> str:
    """The text of one statement, with lines beyond WIDTH broken at their outermost brackets and operators.

    Comments are not part of a syntax tree, and are lost. Needs Python 3.9 (``ast.unparse``).
    """
    lines: list[str] = []
    in_docstring = False
    for line in ast.unparse(statement).splitlines():  # novermin
        quotes = line.count('"""')
        if in_docstring or quotes:
            lines.append(line)
            in_docstring ^= quotes % 2 == 1
        else:
            text = _STRING.sub(lambda match: match.group(1) or f'"{match.group(2)}"', line.lstrip())
            lines += _wrap(text, len(line) - len(line.lstrip()))
    return "\n".join(lines)


def _wrap(text: str, indent: int, within: bool = False) -> list[str]:
    """Break a line; ``within`` brackets it may also be broken before any operator."""
    prefix, value = ("", text) if within else _split_prefix(text)
    if prefix and value.startswith("(") and _group(value) == (0, len(value) - 1):
        bare = value[1:-1]  # a tuple needs its parentheses only over several lines
        if len(_split(bare, (",",))) > 1 and indent + len(prefix + bare) <= WIDTH:
            return [" " * indent + prefix + bare]
    if indent + len(text) <= WIDTH:
        return [" " * indent + text]
    group = _group(text)
    if within or prefix:
        for operators in _OPERATORS:
            terms = _split(value, operators)
            tight = operators == _OPERATORS[-1]  # products are broken only where their last brackets do not help
            if len(terms) > 1 and not (tight and group and indent + group[0] < WIDTH):
                inner = indent if within else indent + 4
                lines = [line for term in terms for line in _wrap(term, inner, within=True)]
                return lines if within else [" " * indent + prefix + "(", *lines, " " * indent + ")"]
    if group is None:
        return [" " * indent + text]
    start, end = group
    body = text[start + 1 : end]
    parts = [part.strip() for part in _split(body, (",",))]
    lines = [" " * indent + text[: start + 1]]
    if len(parts) == 1:
        lines += _wrap(body, indent + 4, within=True)
    else:
        for part in parts:
            comma = "" if part.startswith("*") else ","
            broken = _wrap(part.rstrip(",").rstrip(), indent + 4, within=True)
            lines += [*broken[:-1], broken[-1] + comma]
    return [*lines, " " * indent + text[end:]]


def _split_prefix(text: str) -> tuple[str, str]:
    """``x = `` or ``return `` and what follows it."""
    if text.startswith("return "):
        return "return ", text[7:]
    for position, char, depth in _scan(text):
        if depth == 0 and char == "=" and text[position - 1 : position + 2] == " = ":
            return text[: position + 2], text[position + 2 :]
    return "", text


def _split(text: str, separators: tuple[str, ...]) -> list[str]:
    """Cut at separators outside of brackets and strings: a comma stays with what is before it, an operator after."""
    cuts = [0]
    for position, _, depth in _scan(text):
        if depth == 0 and position:
            for separator in separators:
                if text.startswith(separator, position):
                    cuts.append(position + 1)
    parts = [text[a:b].strip() for a, b in zip(cuts, [*cuts[1:], len(text)])]
    return [part for part in parts if part]


def _group(text: str) -> tuple[int, int] | None:
    """Where the last outermost pair of brackets that holds something opens and closes; of a ``def`` the first."""
    found, start = None, 0
    for position, char, depth in _scan(text):
        if char in _PAIRS and depth == 1:
            start = position
        elif char in _PAIRS.values() and depth == 0 and position > start + 1:
            found = (start, position)
            if text.startswith("def "):
                break
    return found


def _scan(text: str) -> Iterator[tuple[int, str, int]]:
    """Every character outside of strings with the depth of brackets after it."""
    depth, quote, position = 0, "", 0
    while position < len(text):
        char = text[position]
        if quote:
            position += char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in _PAIRS) - (char in _PAIRS.values())
            yield position, char, depth
        position += 1
