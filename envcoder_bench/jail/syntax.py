"""Check a file's syntax tree against lists of what untrusted code may say, before a line of it runs.

This is the first line, for clear reasons and against accidents. The wall is the process (``confine``).
"""

from __future__ import annotations

import ast
import builtins
import difflib
from typing import AbstractSet, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from envcoder_bench.jail.names import BUILTINS, CONTEXTS, DECORATORS, HINTS, METHODS, MODULES, STARS

MAX_CHARACTERS = 100_000
MAX_NODES = 20_000  # of the syntax tree
MAX_DEPTH = 60  # of nesting
# names that a file finds without importing them (loading.GIVEN)
GIVEN_MODULES = {"torch": "torch", "math": "math", "np": "numpy"}
GIVEN_NAMES = {"Tensor", "Dict", "List", "Optional", "Tuple"}

_STATEMENTS = (
    ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.For, ast.While, ast.If,
    ast.With, ast.Raise, ast.Try, ast.Assert, ast.Import, ast.ImportFrom, ast.Expr, ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Compare, ast.Call, ast.FormattedValue, ast.JoinedStr,
    ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice,
)  # fmt: skip
_PARTS = (
    ast.Module, ast.arguments, ast.arg, ast.keyword, ast.alias, ast.withitem, ast.comprehension, ast.ExceptHandler,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_OLD = tuple(getattr(ast, name) for name in ("Index", "ExtSlice") if hasattr(ast, name))  # Python 3.8's subscripts
_ALLOWED = (*_STATEMENTS, *_EXPRESSIONS, *_PARTS, *_OLD)
_FORBIDDEN = frozenset(dir(builtins)) - BUILTINS
_DUNDER = "names with two underscores in front are Python's own"
_WORDS = {
    ast.ClassDef: "defines a class", ast.Global: "uses global", ast.Nonlocal: "uses nonlocal",
    ast.AsyncFunctionDef: "uses async", ast.Await: "uses await", ast.Yield: "uses yield", ast.YieldFrom: "uses yield",
}  # fmt: skip


Libraries = Mapping[str, AbstractSet[str]]


class Refusal(NamedTuple):
    """What a file may not say, and where."""

    line: int
    column: int
    reason: str


def refusal(tree: ast.Module, libraries: Libraries) -> Optional[Refusal]:
    """The first thing in a file that untrusted code may not say; None: there is none.

    Args:
        libraries: modules of this package that files may import from, and which of their names.
    """
    size = _too_large(tree)
    if size is not None:
        return size
    found = sorted(_Reader(tree, libraries).refusals())
    return found[0] if found else None


def _too_large(tree: ast.Module) -> Optional[Refusal]:
    level: List[ast.AST] = [tree]
    count = 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_NODES:
            return Refusal(1, 0, f"is too large: its syntax tree has more than {MAX_NODES} nodes")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
    return Refusal(getattr(level[0], "lineno", 1), 0, f"is nested more than {MAX_DEPTH} levels deep")


class _Reader:
    """Reads one file.

    Attributes:
        modules: names that stand for modules, and which.
        known: names that stand for anything else.
    """

    def __init__(self, tree: ast.Module, libraries: Libraries) -> None:
        self._nodes = list(ast.walk(tree))
        self._bound: List[Tuple[int, str]] = []  # names that are given a meaning, and where
        self._names: Dict[str, AbstractSet[str]] = {**MODULES, **libraries}
        parts = [name.split(".") for name in libraries]
        self._packages = {".".join(own[:i]) for own in parts for i in range(1, len(own))}  # on the way to them
        self.modules: Dict[str, str] = dict(GIVEN_MODULES)
        self.known: Set[str] = {*GIVEN_NAMES, *BUILTINS}
        # parts of longer names, which are checked with the whole
        self._inside = {id(node.value) for node in self._nodes if isinstance(node, ast.Attribute)}

    def refusals(self) -> Iterator[Refusal]:
        for node in self._nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from self._imports(node)
            self._bound += _bound(node)
        self.known.update(name for _, name in self._bound)
        for line, name in self._bound:
            if name.startswith("__"):
                yield Refusal(line, 0, f"names {name}: {_DUNDER}")
            elif name in _FORBIDDEN:  # else a name that one function defines would let another use Python's own
                yield Refusal(line, 0, f"gives {name}, which is Python's own, another meaning: choose another name")
            elif name in self.modules:
                yield Refusal(line, 0, f"gives {name}, which stands for {self.modules[name]}, another meaning")
        for node in self._nodes:
            for reason in self._reasons(node):
                yield Refusal(getattr(node, "lineno", 1), getattr(node, "col_offset", 0), reason)

    def _imports(self, node: ast.AST) -> Iterator[Refusal]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                if alias.name not in self._names:
                    yield Refusal(node.lineno, 0, f"imports {alias.name}; {_importable()}")
                else:
                    yield from self._module(node.lineno, alias.asname or root, alias.name if alias.asname else root)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level or module not in self._names:
                yield Refusal(node.lineno, 0, f"imports from {'.' * node.level}{module}; {_importable()}")
                return
            for alias in node.names:
                name, path = alias.asname or alias.name, f"{module}.{alias.name}"
                if alias.name == "*":
                    if module not in STARS:
                        yield Refusal(node.lineno, 0, f"imports * from {module}: name what you use")
                    self.known.update(self._names[module])
                elif path in self._names and path != "torch.Tensor":
                    yield from self._module(node.lineno, name, path)
                elif not self._may(module, alias.name):
                    yield Refusal(node.lineno, 0, f"imports {path}, which untrusted code may not use{_hint(path)}")
                elif alias.asname is not None:
                    self._bound.append((node.lineno, name))
                else:
                    self.known.add(name)

    def _module(self, line: int, name: str, path: str) -> Iterator[Refusal]:
        """Let a name stand for a module, and for no other one."""
        if name in _FORBIDDEN or name.startswith("__") or self.modules.get(name, path) != path:
            yield Refusal(line, 0, f"gives {name} another meaning, that of {path}: choose another name")
        self.modules[name] = path

    def _may(self, module: str, name: str) -> bool:
        return name in self._names.get(module, ())

    def _reasons(self, node: ast.AST) -> Iterator[str]:
        if not isinstance(node, _ALLOWED):
            yield f"{_WORDS.get(type(node), f'uses {type(node).__name__}')}, which untrusted code may not"
        elif isinstance(node, ast.Name):
            if id(node) not in self._inside and node.id in self.modules:
                yield f"uses the module {node.id} as a value: name what you use of it"
            elif node.id not in self.known and node.id not in self.modules:
                yield f"uses {node.id}, which it does not define and untrusted code may not use{_hint(node.id)}"
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                yield f"changes .{node.attr} of an object, which untrusted code may not"
            elif id(node) not in self._inside:
                yield from self._path(node)
        elif isinstance(node, ast.keyword):
            if (node.arg or "").startswith("__"):
                yield f"names {node.arg}: {_DUNDER}"
        elif isinstance(node, ast.With):
            for item in node.items:
                if not isinstance(item.context_expr, ast.Call) or self._dotted(item.context_expr.func) not in CONTEXTS:
                    yield "uses with for anything but torch.no_grad()"
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if self._dotted(called) not in DECORATORS:
                    yield f"decorates {node.name} with something else than torch.jit.script"

    def _path(self, node: ast.Attribute) -> Iterator[str]:
        """Check ``a.b.c`` from its root on: the longest module, then one name of it, then methods."""
        names: List[str] = []
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            names.insert(0, root.attr)
            root = root.value
        module = self.modules.get(root.id) if isinstance(root, ast.Name) else None
        if module is not None:
            while names and f"{module}.{names[0]}" in (*self._names, *self._packages):
                module = f"{module}.{names.pop(0)}"
            if not names and module != "torch.Tensor":
                yield f"uses the module {module} as a value: name what you use of it"
            elif names and not self._may(module, names[0]):
                path = f"{module}.{names[0]}"
                hint = _hint(path) or _hint(names[0], self._names.get(module, ()))
                yield f"uses {path}, which untrusted code may not{hint}"
            names = names[1:]
        for name in names:
            if name not in METHODS:
                yield f"uses .{name}, which untrusted code may not{_hint(name, METHODS)}"

    def _dotted(self, node: ast.AST) -> str:
        """The full name of ``torch.no_grad`` or of what was imported by that name; an empty string for others."""
        if isinstance(node, ast.Attribute):
            parent = self._dotted(node.value)
            return f"{parent}.{node.attr}" if parent else ""
        if isinstance(node, ast.Name):
            return self.modules.get(node.id) or self._imported().get(node.id, "")
        return ""

    def _imported(self) -> Dict[str, str]:
        return {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in self._nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }


def _bound(node: ast.AST) -> Iterator[Tuple[int, str]]:
    """Names that a node gives a meaning, but for imports."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.lineno, node.id
    elif isinstance(node, ast.FunctionDef):
        yield node.lineno, node.name
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.lineno, node.name


def _importable() -> str:
    return "untrusted code may import torch, math, typing, numpy and isaacgym.torch_utils"


def _hint(name: str, known: Iterable[str] = ()) -> str:
    if name in HINTS:
        return f": {HINTS[name]}"
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""
