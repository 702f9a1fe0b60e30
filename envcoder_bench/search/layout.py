"""Source text of a syntax tree, in lines that a person can read."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import List, Tuple

WIDTH = 100
_KEYWORDS = ("if", "else", "for", "and", "or")
Breaks = List[Tuple[int, int]]  # (depth of brackets, column) behind commas and before operators


def to_source(statement: ast.stmt) -> str:
    """The text of one statement, with lines beyond WIDTH broken within their outermost brackets.

    Comments are not part of a syntax tree, and are lost. Needs Python 3.9 (``ast.unparse``).
    """
    text = ast.unparse(statement)  # novermin
    lines = text.splitlines()
    breaks: list[Breaks] = [[] for _ in lines]
    values: dict[int, int] = {}  # by line, where the value of an assignment or a return begins
    depth = f_strings = 0
    for kind, string, (row, column), *_ in tokenize.generate_tokens(io.StringIO(text).readline):
        depth -= kind == tokenize.OP and string in ")]}"
        f_strings -= tokenize.tok_name[kind] == "FSTRING_END"
        begins = (kind == tokenize.OP and string not in "([{") or string in _KEYWORDS
        if column and not f_strings and lines[row - 1][:column].endswith(" " if begins else ", "):
            breaks[row - 1].append((depth, column))
        if not depth and (string == "return" or (kind == tokenize.OP and string.endswith("="))):
            values.setdefault(row - 1, column + len(string) + 1)
        f_strings += tokenize.tok_name[kind] == "FSTRING_START"
        depth += kind == tokenize.OP and string in "([{"
    return "\n".join(_broken(line, breaks[row], values.get(row)) for row, line in enumerate(lines))


def _broken(line: str, breaks: Breaks, value: int | None) -> str:
    """Break one line; an operation that is no bracket gets some."""
    if len(line) <= WIDTH:
        return line
    outermost = [column for depth, column in breaks if not depth and value is not None and column > value]
    if outermost:
        line = f"{line[:value]}({line[value:]})"
        breaks = [(depth, column + 1) for depth, column in breaks if column in outermost or depth]
    else:
        breaks = [(depth, column) for depth, column in breaks if depth]
    indent = " " * (len(line) - len(line.lstrip()) + (8 if line.endswith(":") else 4))
    lines, start = [], 0
    while start + WIDTH - len(indent) < len(line):
        room = start + (WIDTH - len(indent) if start else WIDTH)
        fitting = [(-depth, line[column - 2] == ",", column) for depth, column in breaks if start < column <= room + 1]
        if not fitting:
            break
        column = max(fitting)[-1]  # outermost, behind a comma, far to the right
        lines.append(line[start:column].rstrip())
        start = column
    return f"\n{indent}".join([*lines, line[start:]])
