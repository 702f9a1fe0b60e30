"""A candidate's text with its syntax tree. Changes edit the text, so that layout and comments are kept."""

from __future__ import annotations

import ast
import copy
import itertools
import re
import textwrap
from collections.abc import Container, Iterable, Sequence

from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, SHAPER_TYPES

ACTION_DIM = "ACTION_DIM"
Edit = tuple[int, int, str]  # first and end byte, replacement

_WIDTH = 100  # of the docstring
_IMPORTS = (ast.Import, ast.ImportFrom)
_BINDING = (*_IMPORTS, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Starred)


class UnsupportedCode(ValueError):
    """A source has other top-level statements than imports, definitions and constants, or a change is not possible."""


class Genome:
    """The functions of some shaper types in a source, with everything that they use. Immutable.

    Attributes:
        types: the shaper types that it may define.
        source: its text.
        definitions: top-level statements, including imports, by the names that they bind.
    """

    def __init__(self, source: str, types: Iterable[str], prune: bool = True) -> None:
        """Parse ``source``; if ``prune``, drop what no function of ``types`` uses. Raises UnsupportedCode."""
        self.types = tuple(t for t in SHAPER_TYPES if t in set(types))
        self._parse(source)
        if prune:
            self._parse(self._apply(self._normalizing_edits()))
        while prune:
            edits = [self._lines(statement) for statement in self._unused()]
            if not edits:
                break
            self._parse(self._apply(edits))

    def _parse(self, source: str) -> None:
        self.source, self._bytes = source, source.encode("utf-8", "replace")
        try:
            self._tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
            raise UnsupportedCode(f"does not parse: {reason}") from None
        self._rows = self._bytes.splitlines(keepends=True)
        self._starts = [0]
        for row in self._rows:
            self._starts.append(self._starts[-1] + len(row))
        self.definitions: dict[str, ast.stmt] = {}
        for statement in self._tree.body:
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not isinstance(statement, _BINDING) and not is_docstring:
                raise UnsupportedCode(f"line {statement.lineno}: {type(statement).__name__} at the top level")
            self.definitions.update(dict.fromkeys(_bound(statement), statement))

    # queries

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return first and end byte of a node, without parentheses around it."""
        x: ast.expr = node  # type: ignore[assignment]
        start, end = self._starts[x.lineno - 1] + x.col_offset, self._starts[(x.end_lineno or 0) - 1]
        return start, end + (x.end_col_offset or 0)

    def text(self, node: ast.AST) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def operand(self, node: ast.expr) -> str:
        """Return the text of an expression, in parentheses if an operator beside it requires them."""
        return self.text(node) if isinstance(node, _ATOMS) else f"({self.text(node)})"

    def block(self, statements: Iterable[ast.stmt]) -> str:
        """Return the lines of statements without their indentation. Raises UnsupportedCode."""
        spans = [self._lines(statement) for statement in statements]
        return textwrap.dedent("".join(self._bytes[start:end].decode() for start, end, _ in spans))

    def function(self, name: str) -> ast.FunctionDef | None:
        """Return the function of this name; None if there is none."""
        found = self.definitions.get(name)
        return found if isinstance(found, ast.FunctionDef) else None

    def shapers(self) -> list[ast.FunctionDef]:
        """Return the functions of the shaper types, in the contract's order."""
        return [f for f in map(self.function, self.types) if f is not None]

    def _named(self) -> list[str]:
        """Return the names of shaper types, also of functions that are imported or assigned, which are only kept."""
        return [name for name in self.definitions if ALIASES.get(name, name) in self.types]

    def reachable(self, roots: Iterable[str]) -> list[str]:
        """Return the names of all definitions that ``roots`` use, directly or indirectly, in their order."""
        found: set[str] = set()
        todo = [name for name in roots if name in self.definitions]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                # a statement that binds several names is used as a whole
                todo += (loaded(self.definitions[name]) | {*_bound(self.definitions[name])}) & set(self.definitions)
        return [name for name in self.definitions if name in found]

    def fingerprint(self) -> str:
        """Return a text that is equal for sources that differ only in layout, comments, docstrings and other imports.

        Imports of the functions themselves count.
        """
        dumps = {name + _dump(s) for name, s in self.definitions.items() if not isinstance(s, _IMPORTS)}
        imported = [name for name in self._named() if isinstance(self.definitions[name], _IMPORTS)]
        dumps |= {f"{name} {_origin(name, self.definitions[name])}" for name in imported}
        return "\n".join(sorted(dumps))

    def with_docstring(self, docstring: str) -> str:
        """Return the text of a candidate file that begins with ``docstring``."""
        plain = " ".join(docstring.replace("\\", "/").replace('"""', "'''").split()).rstrip('"')
        title = textwrap.fill(plain + '"""', _WIDTH, initial_indent="   ", break_on_hyphens=False).lstrip()
        old = [self._lines(s) for s in self._tree.body if isinstance(s, ast.Expr)]
        rest = re.sub(r"\n{4,}", "\n\n\n", self._apply(old).strip("\n"))
        return f'"""{title}\n\n{rest}\n'

    # changes

    def replacement(self, node: ast.expr, text: str) -> Edit:
        """Return the edit that replaces an expression, with parentheses if required."""
        start, end = self.span(node)
        around = self._bytes[:start].rstrip()[-1:] + self._bytes[end:].lstrip()[:1]
        plain = around == b"()" or isinstance(ast.parse(f"({text})", mode="eval").body, _ATOMS)
        return start, end, text if plain else f"({text})"

    def edited(self, *edits: Edit) -> Genome:
        """Return a copy with the edits applied. Raises UnsupportedCode if the result is not valid."""
        return Genome(self._apply(edits), self.types, prune=False)

    def pruned(self, before: Genome) -> Genome:
        """Return a copy without unused definitions and without docstrings of changed functions.

        ``before`` is the genome before the changes. Raises UnsupportedCode.
        """
        edits: list[Edit] = []
        for name, mine in self.definitions.items():
            old = before.function(name)
            if isinstance(mine, ast.FunctionDef) and old is not None and _dump(mine) != _dump(old):
                docstring = ast.get_docstring(mine)
                edits += [self._lines(mine.body[0])] if docstring and docstring == ast.get_docstring(old) else []
        return Genome(self._apply(edits), self.types)

    def without(self, names: Iterable[str]) -> Genome:
        """Return a copy without some definitions. Raises UnsupportedCode."""
        left = set(names) & set(self.definitions)
        edits = []
        for statement in {id(self.definitions[name]): self.definitions[name] for name in left}.values():
            edit, kept = self._lines(statement), [name for name in _bound(statement) if name not in left]
            edits.append((*edit[:2], _imports_of(statement, kept) if kept else ""))
        return self.edited(*edits)

    def joined(self, donor: Genome, roots: Sequence[str]) -> Genome:
        """Return a copy with the donor's definitions ``roots`` and all that they use, renamed where names clash.

        Raises:
            UnsupportedCode: if the name of an import clashes, or a name cannot be changed.
        """
        clash = [
            name for name in donor.reachable(roots)
            if name in self.definitions and not _same(name, self.definitions[name], donor.definitions[name])
        ]  # fmt: skip
        used = set(re.findall(r"\w+", self.source + donor.source))
        renames = {name: unused(name, used) for name in clash}
        if any(isinstance(source.definitions[name], _IMPORTS) for name in clash for source in (self, donor)):
            raise UnsupportedCode(f"{', '.join(clash)}: imported by one, and something else for the other")
        donor = donor.edited(*(edit for name, new in renames.items() for edit in donor._renamed(name, new)))
        roots = [renames.get(root, root) for root in roots]
        needed = set(donor.reachable(roots)) - set(self.definitions)
        new = [statement for statement in donor._tree.body if needed & {*_bound(statement)}]
        imports = donor.block(s for s in new if isinstance(s, _IMPORTS))
        others = "".join(f"\n\n{donor.block([s])}" for s in new if not isinstance(s, _IMPORTS))
        first = next((s for s in self._tree.body if not isinstance(s, ast.Expr)), None)
        top = self._lines(first)[0] if first else len(self._bytes)
        imports += "\n\n" if imports and not isinstance(first, _IMPORTS) else ""
        return self.edited((top, top, imports), (len(self._bytes), len(self._bytes), f"\n{others}"))

    def _apply(self, edits: Iterable[Edit]) -> str:
        text = self._bytes
        for start, end, new in sorted(set(edits), reverse=True):
            text = text[:start] + new.encode() + text[end:]
        return text.decode()

    def _lines(self, statement: ast.stmt) -> Edit:
        """Return the edit that removes a statement with its decorators and the comment above it."""
        first = min([statement.lineno, *(x.lineno for x in getattr(statement, "decorator_list", []))])
        while first > 1 and self._rows[first - 2].lstrip().startswith(b"#"):
            first -= 1
        end = self._starts[statement.end_lineno or first]
        head = self._rows[statement.lineno - 1][: statement.col_offset].strip()
        if head or self._bytes[self.span(statement)[1] : end].strip()[:1] not in (b"", b"#"):
            raise UnsupportedCode(f"line {statement.lineno}: several statements in a line")
        return self._starts[first - 1], end, ""

    def _renamed(self, name: str, new: str) -> list[Edit]:
        edits: list[Edit] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.arg) and node.arg == name:
                raise UnsupportedCode(f"{name} is a parameter, too")
            if isinstance(node, ast.Name) and node.id == name:
                edits.append((*self.span(node), new))
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                start = self._bytes.index(name.encode(), self.span(node)[0] + len("def"))
                edits.append((start, start + len(name.encode()), new))
        if any(self._bytes[start:end] != name.encode() for start, end, _ in edits):  # within an f-string
            raise UnsupportedCode(f"{name} cannot be renamed")
        return edits

    def _normalizing_edits(self) -> list[Edit]:
        """Return the edits that replace aliases by the names of functions and remove TorchScript decorators."""
        edits: list[Edit] = []
        for alias, name in ALIASES.items():
            edits += self._renamed(alias, name) if self.function(alias) and name not in self.definitions else []
        for statement in self._tree.body:
            for decorator in getattr(statement, "decorator_list", []):
                # it computes the same without, and changes may use code that TorchScript does not support
                if isinstance(decorator, ast.Attribute) and decorator.attr == "script":
                    start, end = self.span(decorator)
                    edits.append((self._bytes.rindex(b"@", 0, start), end, ""))
        return edits

    def _unused(self) -> list[ast.stmt]:
        """Return unused definitions, and assignments within functions to names that are never read."""
        roots = self._named()
        roots += [ACTION_DIM] if set(roots) & set(ACTION_TYPES) else []
        needed = {id(self.definitions[name]) for name in self.reachable(roots)}
        found = [s for s in self._tree.body if _bound(s) and id(s) not in needed]
        for function in self._tree.body:
            if isinstance(function, ast.FunctionDef) and id(function) in needed:
                read = {
                    x.id for x in ast.walk(function) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Store)
                }
                read |= {name for s in ast.walk(function) if isinstance(s, ast.AugAssign) for name in _bound(s)}
                found += [s for s in function.body if _only_binds(s) and read.isdisjoint(_bound(s))]
        return found


def unused(name: str, used: Container[str]) -> str:
    """Return a name, numbered if it is in use (within a text, or among names)."""
    if name not in used:
        return name
    return next(new for k in itertools.count(2) if (new := f"{name}_{k}") not in used)


def loaded(node: ast.AST) -> set[str]:
    """Return the names that are read within a node."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}


def _bound(statement: ast.AST) -> list[str]:
    """Return the names that a statement binds."""
    if isinstance(statement, _IMPORTS):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    return [x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]


def _imports_of(statement: ast.stmt, names: Sequence[str]) -> str:
    """Return an import of some of the names that a statement imports. Raises UnsupportedCode if it is none."""
    if not isinstance(statement, _IMPORTS):
        raise UnsupportedCode(f"line {statement.lineno}: several names are bound at once")
    kept = [x for x in statement.names if (x.asname or x.name.split(".")[0]) in names]
    what = ", ".join(f"{x.name} as {x.asname}" if x.asname else x.name for x in kept)
    if isinstance(statement, ast.Import):
        return f"import {what}\n"
    return f"from {'.' * statement.level}{statement.module or ''} import {what}\n"


def _origin(name: str, statement: ast.stmt) -> str:
    """Return from where an import gets a name."""
    own = [x.name for x in getattr(statement, "names", []) if (x.asname or x.name.split(".")[0]) == name]
    return f"{getattr(statement, 'module', '')} {own}"


def _only_binds(statement: ast.stmt) -> bool:
    """Return whether a statement only assigns to names, not to elements or attributes."""
    if not isinstance(statement, ast.Assign):
        return False
    nodes = [node for target in statement.targets for node in ast.walk(target)]
    return all(isinstance(node, (ast.Name, ast.Tuple, ast.expr_context)) for node in nodes)


def _same(name: str, a: ast.stmt, b: ast.stmt) -> bool:
    """Return whether two definitions of a name are equal; a helper may be imported from Isaac Gym or this package."""
    if isinstance(a, _IMPORTS) and isinstance(b, _IMPORTS):
        if ALIASES.get(name, name) in SHAPER_TYPES:
            return _origin(name, a) == _origin(name, b)
        imported = [[x.name for x in s.names if (x.asname or x.name.split(".")[0]) == name] for s in (a, b)]
        return imported[0] == imported[1]
    return _dump(a) == _dump(b)


def _dump(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        node = copy.copy(node)
        node.body = node.body[1:]
    return ast.dump(node)
