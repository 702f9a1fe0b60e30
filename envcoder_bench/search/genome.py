"""A candidate as its top-level definitions, so that functions can be taken out, changed and put together anew."""

from __future__ import annotations

import ast
import copy
import sys
import textwrap
from typing import Iterable, Sequence, Union

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.layout import WIDTH, to_source
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, SHAPER_TYPES

ACTION_DIM = "ACTION_DIM"
Import = Union[ast.Import, ast.ImportFrom]


class Unsuitable(ValueError):
    """A source that is no plain list of imports, definitions and constants."""


def require_unparse() -> None:
    """Raise UserError where this Python cannot turn a syntax tree into text."""
    if sys.version_info < (3, 9):
        raise UserError("evolve needs Python 3.9 or newer, for ast.unparse")


class Genome:
    """The functions of some shaper types in a source, with all that they need of it.

    Attributes:
        types: the shaper types that it may define.
        imports: import statements of one name each, by that name.
        definitions: functions, classes and constants by name, in their order; a statement that binds several names is
            there several times.
    """

    def __init__(self, source: str, types: Iterable[str]) -> None:
        """Parse ``source``; raises Unsuitable."""
        self.types = tuple(t for t in SHAPER_TYPES if t in set(types))
        self.imports: dict[str, Import] = {}
        self.definitions: dict[str, ast.stmt] = {}
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unsuitable(f"does not parse: {error}") from None
        for statement in tree.body:
            self._add(statement)
        for alias, name in ALIASES.items():
            function = self.definitions.pop(alias, None)
            if isinstance(function, ast.FunctionDef):
                function.name = name
                self.definitions[name] = function
        self.prune()

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return  # a docstring
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                one = copy.copy(statement)
                one.names = [alias]
                self.imports[alias.asname or alias.name.split(".")[0]] = one
        elif isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            if isinstance(statement, ast.FunctionDef):
                # as plain Python it computes the same, and may be changed to what TorchScript does not know
                statement.decorator_list = [d for d in statement.decorator_list if not _is_script(d)]
            self.definitions[statement.name] = statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            for name in _stored(statement):
                self.definitions[name] = statement
        else:
            raise Unsuitable(f"line {statement.lineno}: {type(statement).__name__} at the top level")

    def function(self, name: str) -> ast.FunctionDef | None:
        """The function of this name, if there is one."""
        found = self.definitions.get(name)
        return found if isinstance(found, ast.FunctionDef) else None

    def shapers(self) -> list[ast.FunctionDef]:
        """The functions of the shaper types, in the contract's order."""
        return [f for f in map(self.function, self.types) if f is not None]

    def copy(self) -> Genome:
        return copy.deepcopy(self)

    def reachable(self, roots: Iterable[str]) -> list[str]:
        """Names of definitions that ``roots`` and what they use stand for, in their order."""
        found: set[str] = set()
        todo = [name for name in roots if name in self.definitions]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                # a statement that binds several names is there as a whole
                todo += [other for other, s in self.definitions.items() if s is self.definitions[name]]
                todo += loaded(self.definitions[name]) & set(self.definitions)
        return [name for name in self.definitions if name in found]

    def prune(self) -> None:
        """Drop definitions that no function needs, and assignments within functions that nothing reads."""
        for definition in self.definitions.values():
            if isinstance(definition, ast.FunctionDef):
                drop_unread(definition)
        roots = [function.name for function in self.shapers()]
        if set(roots) & set(ACTION_TYPES):
            roots.append(ACTION_DIM)
        self.definitions = {name: self.definitions[name] for name in self.reachable(roots)}

    def take(self, donor: Genome, roots: Sequence[str], rename: dict[str, str]) -> None:
        """Add copies of the donor's definitions that ``roots`` need; what is called as something else here is renamed.

        Args:
            rename: new names for some of the donor's definitions.

        Raises:
            Unsuitable: both import different things under one name.
        """
        names = donor.reachable(roots)
        rename = {**rename}
        for name in names:
            if name in rename or name in roots or name not in self.definitions:
                continue
            if not same(self.definitions[name], donor.definitions[name]):
                rename[name] = self.free_name(name, set(names) | set(rename.values()))
        copies = copy.deepcopy({name: donor.definitions[name] for name in names})
        parameters = {x.arg for s in copies.values() for x in ast.walk(s) if isinstance(x, ast.arg)}
        if not parameters.isdisjoint(rename):
            raise Unsuitable("a parameter is called as a function that must be renamed")
        for name, statement in copies.items():
            _Renamer(rename).visit(statement)
            self.definitions[rename.get(name, name)] = statement
        for name in sorted(set().union(*(loaded(s) for s in copies.values())) & set(donor.imports)):
            mine = self.imports.setdefault(name, donor.imports[name])
            # the same helper may come from Isaac Gym's module or from ours
            if mine.names[0].name != donor.imports[name].names[0].name:
                raise Unsuitable(f"imports {name} differently")

    def free_name(self, wanted: str, taken: Iterable[str] = ()) -> str:
        """``wanted``, or with a number behind it, which nothing here is called."""
        used = {*taken, *self.imports, *self.definitions}
        for definition in self.definitions.values():
            used |= {x.id for x in ast.walk(definition) if isinstance(x, ast.Name)}
            used |= {x.arg for x in ast.walk(definition) if isinstance(x, ast.arg)}
        name, count = wanted, 1
        while name in used:
            count += 1
            name = f"{wanted}_{count}"
        return name

    def source(self, docstring: str) -> str:
        """The text of a candidate file that begins with ``docstring``."""
        statements: list[ast.stmt] = []
        for statement in self.definitions.values():
            if all(statement is not other for other in statements):
                statements.append(statement)
        statements.sort(key=_order)
        text, gap = _docstring(docstring) + _import_lines(self.imports, statements), "\n"
        for statement in statements:
            is_block = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
            text += ("\n\n" if is_block else gap) + to_source(statement) + "\n"
            gap = "\n\n" if is_block else ""
        return text

    def fingerprint(self) -> str:
        """The same for all sources that say the same, whatever their layout, comments and docstrings."""
        return "\n".join(sorted({name + ast.dump(_undocumented(s)) for name, s in self.definitions.items()}))


def same(a: ast.AST, b: ast.AST) -> bool:
    """Whether two pieces of code say the same."""
    return ast.dump(_undocumented(a)) == ast.dump(_undocumented(b))


def loaded(node: ast.AST) -> set[str]:
    """Names that are read within a node."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}


def drop_docstring(function: ast.FunctionDef) -> None:
    """Remove what a changed function said of itself."""
    if len(function.body) > 1 and ast.get_docstring(function) is not None:
        del function.body[0]


def drop_unread(function: ast.FunctionDef) -> None:
    """Remove the function's own assignments to names that it never reads."""
    while True:
        used = {x.id for x in ast.walk(function) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Store)}
        used |= {name for s in ast.walk(function) if isinstance(s, ast.AugAssign) for name in _stored(s)}
        kept = [s for s in function.body if not (_only_binds(s) and used.isdisjoint(_stored(s)))]
        if len(kept) == len(function.body):
            return
        function.body = kept


def _only_binds(statement: ast.stmt) -> bool:
    """Whether it assigns to names alone, not to parts of what they stand for."""
    if not isinstance(statement, ast.Assign):
        return False
    nodes = [node for target in statement.targets for node in ast.walk(target)]
    return all(isinstance(node, (ast.Name, ast.Tuple, ast.expr_context)) for node in nodes)


def _stored(statement: ast.stmt) -> list[str]:
    return [x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]


def _is_script(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "script"


def _order(statement: ast.stmt) -> int:
    """Shaper functions last, in the contract's order: what they use must be there before."""
    name = getattr(statement, "name", None)
    return 1 + SHAPER_TYPES.index(name) if name in SHAPER_TYPES else 0


def _undocumented(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        node = copy.copy(node)
        node.body = node.body[1:]
    return node


def _docstring(text: str) -> str:
    """A module's docstring; nothing within may end it."""
    plain = " ".join(text.replace("\\", "/").replace('"""', "'''").split()).rstrip('"')
    return '"""' + textwrap.fill(plain + '"""', WIDTH, initial_indent="   ", break_on_hyphens=False).lstrip() + "\n"


def _import_lines(imports: dict[str, Import], statements: Sequence[ast.stmt]) -> str:
    """Import lines of the names that statements use."""
    used: set[str] = set().union(*(loaded(s) for s in statements))
    return "".join(sorted(to_source(imports[name]) + "\n" for name in used & set(imports)))


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)
