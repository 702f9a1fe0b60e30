"""Check a file's syntax tree before a line of it runs: its size, and names that reach into the interpreter.

This is for clear reasons and against accidents. The wall is the process (``confine``).
"""

from __future__ import annotations

import ast
from typing import Iterator, NamedTuple

from envcoder_bench.jail.names import hint, is_refused
from envcoder_bench.shaping.loading import GIVEN

MAX_CHARACTERS = 100_000
MAX_NODES = 20_000  # of the syntax tree
MAX_DEPTH = 60  # of nesting


class Refusal(NamedTuple):
    """What a file may not say, and where."""

    line: int
    column: int
    reason: str


def refusal(tree: ast.Module) -> Refusal | None:
    """The first thing in a file that untrusted code may not say; None: there is none."""
    size = _too_large(tree)
    return size if size is not None else min(_refusals(tree), default=None)


def _too_large(tree: ast.Module) -> Refusal | None:
    level: list[ast.AST] = [tree]
    count = 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_NODES:
            return Refusal(1, 0, f"is too large: its syntax tree has more than {MAX_NODES} nodes")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
    return Refusal(getattr(level[0], "lineno", 1), 0, f"is nested more than {MAX_DEPTH} levels deep")


def _refusals(tree: ast.Module) -> Iterator[Refusal]:
    placed = list(_placed(tree))
    nodes = [node for node, _, _ in placed]
    foreign = _foreign(nodes)
    # x.__class__.__name__ says what type(x).__name__ does
    told = {id(x.value) for x in nodes if isinstance(x, ast.Attribute) and x.attr in ("__name__", "__qualname__")}
    for node, line, column in placed:
        for name in _refused_names(node):
            if name != "__class__" or id(node) not in told:
                yield Refusal(line, column, f"uses {name}, which untrusted code may not{hint(name)}")
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _root(node) in foreign:
            what = f"{_root(node)} (.{node.attr})"
            yield Refusal(line, column, f"changes {what}, which untrusted code may not: define one of your own")


def _placed(tree: ast.Module) -> Iterator[tuple[ast.AST, int, int]]:
    """All nodes with their lines and columns; those without are where their parents are."""
    todo: list[tuple[ast.AST, int, int]] = [(tree, 1, 0)]
    while todo:
        node, line, column = todo.pop()
        line, column = getattr(node, "lineno", line), getattr(node, "col_offset", column)
        yield node, line, column
        todo += [(child, line, column) for child in ast.iter_child_nodes(node)]


def _refused_names(node: ast.AST) -> Iterator[str]:
    """Names in one node that a file may not use; of a string, the whole of it."""
    for field, value in ast.iter_fields(node):
        names = [x for x in (value if isinstance(value, list) else [value]) if isinstance(x, str)]
        # the rest are names of variables and functions, for which only the interpreter's own are not free
        attributes = field in ("attr", "kwd_attrs")
        yield from (name for name in names if is_refused(name) and (attributes or name[:2] == "__"))


def _foreign(nodes: list[ast.AST]) -> set[str]:
    """Names that stand for modules, or for classes and functions of modules."""
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return imported | (set(GIVEN) - stored)


def _root(node: ast.AST) -> str:
    """``a`` of ``a.b[c].d``; an empty string where that is no name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
