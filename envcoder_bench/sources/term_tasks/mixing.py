"""Numbers that the object of a term keeps over environments, such as a level that follows from a mean.

Groups that share such an object would not be independent. It is read from the code of its methods.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeGuard

from torch import Tensor


@dataclass(frozen=True)
class _Store:
    """An attribute of ``self`` that a method sets.

    Attributes:
        reads: the attributes of ``self`` that the new value follows from; None if it may follow from anything.
        always: whether each call sets it.
    """

    name: str
    reads: frozenset[str] | None
    always: bool


def mixing_number(term: Any) -> str | None:
    """Return the name of a number that a term's object keeps and sets by what its environments did; None without one.

    A number is one of Python, or a tensor without axes. Counters of calls, and flags that code sets, are the same for
    all groups.
    """
    numbers = {
        name: x
        for name, x in getattr(term, "__dict__", {}).items()
        if isinstance(x, (int, float)) or (isinstance(x, Tensor) and not x.dim())
    }
    methods = [x for cls in type(term).__mro__ for x in vars(cls).values() if isinstance(x, FunctionType)]
    for method in methods if numbers else ():
        for store in _stores(method):
            alike = store.reads is not None and store.reads <= {*numbers, "cfg"}
            if store.name in numbers and not (alike and (store.always or isinstance(numbers[store.name], bool))):
                return store.name
    return None


@functools.lru_cache(maxsize=4096)
def _stores(method: FunctionType) -> tuple[_Store, ...]:
    if method.__name__ == "__init__":
        return ()
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    if not isinstance(tree, ast.FunctionDef) or not tree.args.args:
        return ()
    return tuple(_in(tree.body, tree.args.args[0].arg, True))


def _in(statements: list[ast.stmt], own: str, always: bool) -> Iterator[_Store]:
    for node in statements:
        targets, value = [], None
        match node:
            case ast.Assign():
                targets, value = node.targets, node.value
            case ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
                targets, value = [node.target], node.value
        for part in (x for target in targets for x in ast.walk(target)):
            if _is_attribute(part, own) and isinstance(part.ctx, ast.Store) and value is not None:
                yield _Store(part.attr, _reads(value, own), always)
        inner = always and not isinstance(node, (ast.If, ast.For, ast.While, ast.Match, ast.Try))
        for blocks in (getattr(node, key, []) for key in ("body", "orelse", "finalbody", "handlers", "cases")):
            yield from _in([x for x in blocks if isinstance(x, ast.stmt)], own, inner)
            for part in blocks:
                if not isinstance(part, ast.stmt):  # a handler, or a case
                    yield from _in(part.body, own, inner)


def _reads(value: ast.expr, own: str) -> frozenset[str] | None:
    nodes = list(ast.walk(value))
    if any(isinstance(x, ast.Call) or (isinstance(x, ast.Name) and x.id != own) for x in nodes):
        return None
    return frozenset(x.attr for x in nodes if _is_attribute(x, own))


def _is_attribute(node: ast.AST, own: str) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own
