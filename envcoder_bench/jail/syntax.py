"""Check a file's syntax tree before it runs: its size, and names that give access to the interpreter.

This gives clear messages and prevents accidents. Security comes from the confined process (``confine``).
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from envcoder_bench.jail.names import hint, is_refused
from envcoder_bench.shaping.loading import GIVEN

MAX_CHARACTERS = 100_000
MAX_NODES = 20_000  # of the syntax tree
MAX_DEPTH = 60  # of nesting


class Violation(NamedTuple):
    """Code that an untrusted file may not contain, and its place."""

    line: int
    column: int
    reason: str


def find_violation(tree: ast.Module) -> Violation | None:
    """Return the first violation of a file; None if there is none."""
    return _check_size(tree) or min(_violations(tree), default=None)


def _check_size(tree: ast.Module) -> Violation | None:
    level: list[ast.AST] = [tree]
    count = 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_NODES:
            return Violation(1, 0, f"is too large: its syntax tree has more than {MAX_NODES} nodes")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
    return Violation(getattr(level[0], "lineno", 1), 0, f"is nested more than {MAX_DEPTH} levels deep")


def _violations(tree: ast.Module) -> Iterator[Violation]:
    located = list(_locate(tree))
    nodes = [node for node, _, _ in located]
    imported = _imported_names(nodes)
    # x.__class__.__name__ is as harmless as type(x).__name__
    named = {id(x.value) for x in nodes if isinstance(x, ast.Attribute) and x.attr in ("__name__", "__qualname__")}
    for node, line, column in located:
        for name in _refused_names(node):
            if name != "__class__" or id(node) not in named:
                yield Violation(line, column, f"uses {name}, which untrusted code may not{hint(name)}")
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _root(node) in imported:
            what = f"{_root(node)} (.{node.attr})"
            yield Violation(line, column, f"changes {what}, which untrusted code may not: define one of your own")


def _locate(tree: ast.Module) -> Iterator[tuple[ast.AST, int, int]]:
    """Yield all nodes with their lines and columns; nodes without a place have their parent's."""
    todo: list[tuple[ast.AST, int, int]] = [(tree, 1, 0)]
    while todo:
        node, line, column = todo.pop()
        line, column = getattr(node, "lineno", line), getattr(node, "col_offset", column)
        yield node, line, column
        todo += [(child, line, column) for child in ast.iter_child_nodes(node)]


def _refused_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in one node that a file may not use; strings count as names."""
    for field, value in ast.iter_fields(node):
        names = [x for x in (value if isinstance(value, list) else [value]) if isinstance(x, str)]
        # the others are names of variables and functions, of which only special names are refused
        attributes = field in ("attr", "kwd_attrs")
        yield from (name for name in names if is_refused(name) and (attributes or name[:2] == "__"))


def _imported_names(nodes: list[ast.AST]) -> set[str]:
    """Return the names of modules, and of classes and functions of modules."""
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return imported | (set(GIVEN) - stored)


def _root(node: ast.AST) -> str:
    """Return ``a`` of ``a.b[c].d``; an empty string if it is not a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
