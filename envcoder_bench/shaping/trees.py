"""Queries on the syntax tree of a file."""

import ast
import functools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


# nodes that only mark what an expression does, and the values of constants and names
_MARKS = {
    kind
    for base in (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
    for kind in base.__subclasses__()
}
_SKIPPED = {*_MARKS, str, bytes, int, float, complex, bool, type(None), type(...)}
_LEAVES = {ast.Name, ast.Constant, ast.alias, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal}


@functools.lru_cache(maxsize=4)  # a file is loaded, and then looked up among the traced ones
def parse(text: str) -> ast.Module:
    """Return the syntax tree of a file, which must not be changed. Raises as ``ast.parse``, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes; compile gives them with the name of the file
        return ast.parse(text)


def children(node: ast.AST) -> list[ast.AST]:
    """Return the direct children as ``ast.iter_child_nodes``, without marks such as ``Load`` and ``Add``."""
    if node.__class__ in _LEAVES:
        return []
    found: list[ast.AST] = []
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if value.__class__ is list:
            found += [x for x in value if x.__class__ not in _SKIPPED]
        elif value.__class__ not in _SKIPPED:
            found.append(value)
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """Return a node and all within it in the order of ``ast.walk``, without marks."""
    found = [node]
    for own in found:  # it grows
        found += children(own)
    return found


def run_at_load(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes that run when the file is loaded, without functions' bodies and ``if __name__ == "__main__"``."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from node.decorator_list
            yield from (x for x in (*node.args.defaults, *node.args.kw_defaults) if x is not None)
        elif isinstance(node, ast.ClassDef):
            bases = (x for x in node.bases if isinstance(x, ast.Call))  # other bases are not calls
            yield from (*node.decorator_list, *node.keywords, *bases)
            yield from run_at_load(node.body)
        elif isinstance(node, ast.If) and _is_main(node.test):
            yield from run_at_load(node.orelse)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ExceptHandler)):
            yield from run_at_load(ast.iter_child_nodes(node))
        else:
            yield node


def _is_main(test: ast.expr) -> bool:
    """Return whether this is ``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and name_of(test.left) == "__name__"


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the file is loaded, including those within if, try, with and loops."""
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for child in ast.iter_child_nodes(statement):
                inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
                yield from top_level([x for x in inner if isinstance(x, ast.stmt)])


def bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif not isinstance(statement, (ast.If, ast.Try)):  # their parts are statements of their own
        yield from (x.id for x in walk(statement) if isinstance(x, ast.Name) and stored(x))


def own_names(node: Function, inside: list[ast.AST]) -> set[str]:
    """Return the parameters and names that the function assigns; never empty, unlike that of code outside functions.

    ``inside`` are all nodes within it.
    """
    a = node.args
    parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
    assigned = {x.id for x in inside if isinstance(x, ast.Name) and stored(x)}
    shared = {name for x in inside if isinstance(x, ast.Global) for name in x.names}
    if any(isinstance(x, ast.Nonlocal) for x in inside):
        shared |= {name for x in _directly_in(node) if isinstance(x, ast.Nonlocal) for name in x.names}
    return ({x.arg for x in parameters} | assigned | {"<body>"}) - shared


def _directly_in(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without those of inner functions."""
    todo: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while todo:
        node = todo.pop()
        yield node
        todo += [] if isinstance(node, FUNCTIONS) else children(node)


def names_of(nodes: Iterable[ast.AST]) -> set[str]:
    return {x.id for node in nodes for x in walk(node) if isinstance(x, ast.Name)}


def calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == name


def stored(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def root_of(node: ast.AST) -> str:
    """Return ``a`` of ``a.b[c].d``; an empty string if it is not a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
