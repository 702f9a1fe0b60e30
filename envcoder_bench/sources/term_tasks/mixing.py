"""Numbers that the object of a term keeps over environments, such as a level that follows from a mean.

Groups that share such an object would not be independent. It is read from the code of its methods: what they set by an
assignment, with or without an index, and by methods such as ``lerp_`` and ``append``. Not found is what other code sets
for them, ``setattr``, and what an object that the term's object holds keeps.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeGuard

from torch import Tensor

_ADDING = ("append", "appendleft", "extend", "insert", "setdefault", "update")  # methods of lists and dicts
_REDUCING = ("all", "amax", "amin", "any", "item", "max", "mean", "median", "min", "norm", "std", "sum", "tolist")
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass(frozen=True)
class _Store:
    """An attribute of ``self`` that a method sets.

    Attributes:
        reads: the attributes of ``self`` that this follows from; None if it may follow from anything.
        reduces: whether the new value is one number of several environments.
    """

    name: str
    reads: frozenset[str] | None
    reduces: bool


def mixing_number(term: Any) -> str | None:
    """Return the name of a number that a term's object keeps and sets by what its environments did; None without one.

    A number is one of Python, or a tensor with one element; dicts and lists may have some. Where nothing is yet, a
    value is one that is reduced to a number. Counters of calls, and flags that these set, are the same for all groups.
    """
    attributes = getattr(term, "__dict__", {})
    numbers = {name for name, x in attributes.items() if _has_number(x)}
    empty = {name for name, x in attributes.items() if x is None or (isinstance(x, (dict, list, deque)) and not x)}
    methods = [x for cls in type(term).__mro__ for x in vars(cls).values() if isinstance(x, FunctionType)]
    for store in (store for method in methods for store in _stores(method)):
        is_alike = store.reads is not None and store.reads <= {*numbers, *empty, "cfg"}
        if (store.name in numbers and not is_alike) or (store.name in empty and store.reduces):
            return store.name
    return None


def _has_number(x: Any) -> bool:
    if isinstance(x, (dict, list, tuple, deque)):
        return any(map(_has_number, x.values() if isinstance(x, dict) else x))
    return isinstance(x, (int, float)) or (isinstance(x, Tensor) and x.numel() == 1)


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
    return tuple(_in(tree.body, tree.args.args[0].arg, [], set()))


def _in(statements: Sequence[ast.AST], own: str, tests: list[ast.AST], reduced: set[str]) -> Iterator[_Store]:
    """Yield what statements set.

    Args:
        own: the name of ``self``.
        tests: what decides whether they run.
        reduced: the local names of numbers, to which more are added.
    """
    for node in statements:
        inner = tests + [getattr(node, key) for key in ("test", "iter", "subject") if hasattr(node, key)]
        blocks = [getattr(node, key, []) for key in ("body", "orelse", "finalbody", "handlers", "cases")]
        for value, targets in _sets(node) if not any(blocks) else ():
            reduces = any(_reduces(x, reduced) for x in value)
            for target in targets:
                if _is_attribute(target, own):
                    yield _Store(target.attr, _reads([*value, *tests], own), reduces)
                elif isinstance(target, ast.Name) and reduces:
                    reduced.add(target.id)
        if isinstance(node, ast.Try):
            inner = [*tests, node]  # a line may raise for what any environment did
        for block in blocks:
            yield from _in(block, own, inner, reduced)
        if len(inner) > len(tests) and any(isinstance(x, _LEAVING) for x in ast.walk(node)):
            tests = inner  # of what follows


def _sets(node: ast.AST) -> Iterator[tuple[list[ast.expr], list[ast.expr]]]:
    """Yield values, and what a statement without others in it sets by them."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield [value], [_root(x) for target in targets for x in _parts(target)]
        case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            yield [value], [_root(target)]
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Attribute(value=target, attr=name)) if name in _ADDING or (
                name.endswith("_") and not name.startswith("_")
            ):
                yield [*call.args, *(x.value for x in call.keywords)], [_root(target)]


def _parts(target: ast.expr) -> list[ast.expr]:
    return [y for x in target.elts for y in _parts(x)] if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _root(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _reduces(value: ast.AST, reduced: set[str]) -> bool:
    """Return whether an expression has a number of all environments, such as ``x.mean()`` or ``torch.mean(x)``."""
    for node in ast.walk(value):
        match node:
            case ast.Name(id=name) if name in reduced:
                return True
            case ast.Call(func=ast.Attribute(value=holder, attr=name), args=args, keywords=[]) if name in _REDUCING:
                if len(args) == (isinstance(holder, ast.Name) and holder.id == "torch"):
                    return True
    return False


def _reads(values: Sequence[ast.AST], own: str) -> frozenset[str] | None:
    nodes = [x for value in values for x in ast.walk(value)]
    if any(isinstance(x, (ast.Call, ast.Try)) or (isinstance(x, ast.Name) and x.id != own) for x in nodes):
        return None
    return frozenset(x.attr for x in nodes if _is_attribute(x, own))


def _is_attribute(node: ast.AST, own: str) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own
