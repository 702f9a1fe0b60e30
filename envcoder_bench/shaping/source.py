"""The text of a candidate with its syntax tree: read, reduced and edited.

Changes edit the text, so that layout and comments survive. Python's parser executes nothing; it reads texts that it
cannot parse, or that are too long or too deep, no further than to their fault.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import re
import textwrap
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, REWARD, SECTION_TYPES, SHAPER_TYPES
from envcoder_bench.shaping.scan import MAX_CHARACTERS, parse

ACTION_DIM = "ACTION_DIM"
REWARD_FACTORS = "REWARD_FACTORS"  # factors on the terms of a file's reward
MAX_DEPTH = 200  # levels of a syntax tree: to walk over a level takes several of Python's 1,000 frames
MAX_NUMBER = 10**300  # largest integer: a larger one, times a factor, does not fit a float
Edit = tuple[int, int, str]  # first and end byte, replacement

_WIDTH = 100  # characters in a line of the docstring
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_BASELINE = re.compile(r"envcoder_bench\.tasks\.\w+\.(human|unshaped)")
_OTHER_NAMES = {**ALIASES, **SECTION_TYPES}
_IMPORTS = (ast.Import, ast.ImportFrom)
_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HEAD = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")


class UnsupportedCode(ValueError):
    """A text cannot be parsed, or a change of it is not possible."""


class Source:
    """A Python text with its syntax tree. Immutable.

    Attributes:
        body: its top-level statements.
        definitions: the last top-level statement that binds each name.
    """

    def __init__(self, text: str) -> None:
        """Parse ``text``. Raises UnsupportedCode."""
        self.text, self._bytes = text, text.encode("utf-8", "replace")
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError(f"it has more than {MAX_CHARACTERS} characters")
            self._tree = parse(text)
            _refuse_extremes(self._tree)
            self.body = self._tree.body
            self._binders: dict[str, list[ast.stmt]] = {}
            for statement in self.body:
                for name in bound(statement):
                    self._binders.setdefault(name, []).append(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
            raise UnsupportedCode(f"does not parse: {reason}") from None
        self.definitions = {name: statements[-1] for name, statements in self._binders.items()}
        self._rows = self._bytes.splitlines(keepends=True)
        self._starts = [0, *itertools.accumulate(map(len, self._rows))]
        # the last row before the lines that a statement shares with others, by statement
        self._ends: dict[int, int] = {}
        last = before = 0
        for statement in self.body:
            before = last if statement.lineno > last else before
            last = max(last, statement.end_lineno or 0)
            self._ends[id(statement)] = before

    # queries

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return first and end byte of a node, without parentheses around it."""
        x: ast.expr = node  # type: ignore[assignment]
        start, end = self._starts[x.lineno - 1] + x.col_offset, self._starts[(x.end_lineno or 0) - 1]
        return start, end + (x.end_col_offset or 0)

    def code(self, node: ast.AST) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def function(self, name: str) -> ast.FunctionDef | None:
        """Return the top-level function of this name, or None."""
        statement = self.definitions.get(name)
        return statement if isinstance(statement, ast.FunctionDef) else None

    def section(self, name: str) -> ast.Dict | None:
        """Return the dict that patches a section of a task's config, such as ``rewards``, or None."""
        value = getattr(self.definitions.get(name), "value", None)
        return value if name in SECTION_TYPES and isinstance(value, ast.Dict) else None

    def shapers(self, types: Iterable[str]) -> dict[str, list[str]]:
        """Return the names that define each shaper type, a function and dicts, in the contract's order."""
        names = {type_: [type_] * (self.function(type_) is not None) for type_ in SHAPER_TYPES if type_ in set(types)}
        for name, type_ in SECTION_TYPES.items():
            if type_ in names and self.section(name) is not None:
                names[type_].append(name)
        return {type_: definitions for type_, definitions in names.items() if definitions}

    def reachable(self, roots: Iterable[str]) -> list[str]:
        """Return the names of all definitions that ``roots`` use, directly or indirectly, in their order."""
        needed = self._needed(statement for root in roots for statement in self._binders.get(root, ()))
        return [name for name, statement in self.definitions.items() if id(statement) in needed]

    def lines(self, roots: Iterable[str]) -> list[tuple[int, int]]:
        """Return the first and the last line, from 1, of ``roots`` and of each definition that they use.

        Comments and decorators directly above count; imports do not, except of ``roots``.
        """
        roots = set(roots)
        needed = self._needed(statement for root in roots for statement in self._binders.get(root, ()))
        return [
            (self._first_row(s) + 1, s.end_lineno or 0) for s in self.body
            if id(s) in needed and (not isinstance(s, _IMPORTS) or roots & {*bound(s)})
        ]  # fmt: skip

    def _needed(self, statements: Iterable[ast.stmt]) -> set[int]:
        """Return the ids of statements and of all that they use."""
        todo, needed, names = list(statements), set(), set()
        while todo:
            statement = todo.pop()
            if id(statement) not in needed:
                needed.add(id(statement))
                new = _read(statement) - names  # each name once: many statements may bind it and read it
                names |= new
                todo += [binder for name in new for binder in self._binders.get(name, ())]
        return needed

    def fingerprint(self) -> str:
        """Return a text that is equal for sources that differ only in layout, comments, docstrings and other imports.

        Imports of shaping functions count.
        """
        dumps = {f"{name}{_dump(s)}" for name, s in self.definitions.items() if not isinstance(s, _IMPORTS)}
        dumps |= {
            f"{name} {_origin(name, s)}"
            for name, s in self.definitions.items()
            if isinstance(s, _IMPORTS) and ALIASES.get(name, name) in SHAPER_TYPES
        }
        return "\n".join(sorted(dumps))

    # changes

    def edited(self, *edits: Edit) -> Source:
        """Return a copy with the edits applied. Raises UnsupportedCode if the result is not valid."""
        parts, at = [], 0
        for start, end, new in sorted(set(edits)):
            parts += [self._bytes[at:start], new.encode()]
            at = end
        return Source(b"".join([*parts, self._bytes[at:]]).decode())

    def using(self, roots: Iterable[str]) -> Source:
        """Return a copy with the definitions ``roots``, what they use, and all statements that are not definitions."""
        needed = self._needed(
            [s for s in self.body if not _is_definition(s)] + [s for root in roots for s in self._binders.get(root, ())]
        )
        return Source(self._without({id(s) for s in self.body} - needed))

    def without(self, names: Iterable[str]) -> Source:
        """Return a copy without some definitions. Raises UnsupportedCode if one statement binds others, too."""
        left_out, removed, edits = set(names), set(), []
        for statement in self.body:
            kept = [name for name in bound(statement) if name not in left_out]
            if len(kept) == len(bound(statement)):
                continue
            if not kept:
                removed.add(id(statement))
            elif isinstance(statement, _IMPORTS):
                edits.append((*self.span(statement), _import_of(statement, {name: name for name in kept})))
            else:
                raise UnsupportedCode(f"line {statement.lineno}: several names are bound at once")
        return Source(self._without(removed)) if not edits else self.edited(*edits).without(left_out)

    def renamed(self, names: Mapping[str, str]) -> Source:
        """Return a copy in which top-level definitions have other names.

        Raises:
            UnsupportedCode: if a name is also a parameter, or is used where it cannot be changed.
        """
        edits: list[Edit] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.arg) and node.arg in names:
                raise UnsupportedCode(f"{node.arg} is a parameter, too")
            if isinstance(node, (ast.Global, ast.Nonlocal)) and not names.keys().isdisjoint(node.names):
                raise UnsupportedCode(f"{', '.join(node.names)}: assigned within a function")
            if isinstance(node, ast.Name) and node.id in names:
                edits.append((*self.span(node), names[node.id]))
                if not _is_name(self.code(node), node.id):  # Python 3.11 gives wrong positions in f-strings
                    raise UnsupportedCode(f"{node.id} cannot be renamed")
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name in names:
                head = _HEAD.match(self.code(node))
                if head is None or not _is_name(head[1], node.name):  # a line break by a backslash
                    raise UnsupportedCode(f"{node.name} cannot be renamed")
                before, name = (head.string[:end].encode() for end in (head.start(1), head.end(1)))
                start = self.span(node)[0]
                edits.append((start + len(before), start + len(name), names[node.name]))
            elif isinstance(node, _IMPORTS) and not names.keys().isdisjoint(bound(node)):
                edits.append((*self.span(node), _import_of(node, {n: names.get(n, n) for n in bound(node)})))
        return self.edited(*edits)

    def joined(self, donor: Source, roots: Sequence[str]) -> Source:
        """Return a copy with the donor's definitions ``roots`` and all that they use, renamed where names clash.

        Raises:
            UnsupportedCode: if the name of an import clashes, or a name cannot be changed.
        """
        clash = [
            name for name in donor.reachable(roots)
            if name in self.definitions and not _same(name, self.definitions[name], donor.definitions[name])
        ]  # fmt: skip
        if any(isinstance(source.definitions[name], _IMPORTS) for name in clash for source in (self, donor)):
            raise UnsupportedCode(f"{', '.join(clash)}: imported by one, and something else for the other")
        used = set(re.findall(r"\w+", self.text + donor.text))
        renames = {name: unused(name, used) for name in clash}
        donor = donor.renamed(renames)
        roots = [renames.get(root, root) for root in roots]
        needed = set(donor.reachable(roots)) - set(self.definitions)
        new = [s for s in donor.body if needed & {*bound(s)}]
        code, from_others = [s for s in new if not isinstance(s, _IMPORTS)], [s for s in new if isinstance(s, _IMPORTS)]
        others = "".join(f"\n\n{donor._block(s)}" for s in code)
        needed &= {*roots, *_read(ast.Module(code, []))}  # import only names that are used
        names = dict(zip(needed, needed))
        imports = "".join(f"{_import_of(s, names)}\n" for s in from_others if needed & {*bound(s)})
        # imports come first, everything else last
        first = next((s for s in self.body if not isinstance(s, ast.Expr)), None)
        top = self._starts[self._first_row(first)] if first else len(self._bytes)
        imports += "\n\n" if imports and not isinstance(first, _IMPORTS) else ""
        return self.edited((top, top, imports), (len(self._bytes), len(self._bytes), others))

    def without_decorators(self) -> Source:
        """Return a copy without ``@torch.jit.script``, also by a name that is imported from ``torch.jit``."""
        names = {"torch.jit.script", "jit.script"}
        for node in self.body:
            if isinstance(node, ast.ImportFrom) and node.module == "torch.jit":
                names |= {alias.asname or alias.name for alias in node.names if alias.name == "script"}
        edits: list[Edit] = []
        for node in ast.walk(self._tree):
            for decorator in getattr(node, "decorator_list", []):
                if isinstance(decorator, (ast.Name, ast.Attribute)) and self.code(decorator) in names:
                    edits.append((self._starts[decorator.lineno - 1], self._starts[decorator.end_lineno or 0], ""))
        return self.edited(*edits) if edits else self

    def with_docstring(self, docstring: str) -> str:
        """Return the text of a file that begins with ``docstring``."""
        plain = " ".join(docstring.replace("\\", "/").replace('"""', "'''").split()).rstrip('"')
        title = textwrap.fill(plain + '"""', _WIDTH, initial_indent="   ", break_on_hyphens=False).lstrip()
        old = {id(s) for s in self.body if isinstance(s, ast.Expr)}
        return f'"""{title}\n\n{self._without(old)}'

    def _first_row(self, statement: ast.stmt) -> int:
        """Return the index of a statement's first row, decorators and the comment directly above it included."""
        row = min([statement.lineno, *(x.lineno for x in getattr(statement, "decorator_list", []))]) - 1
        while row > self._ends.get(id(statement), 0) and self._rows[row - 1].lstrip().startswith(b"#"):
            row -= 1
        return row

    def _block(self, statement: ast.stmt) -> str:
        """Return the rows of a statement."""
        return b"".join(self._rows[self._first_row(statement) : statement.end_lineno]).decode()

    def _without(self, removed: Container[int]) -> str:
        """Return the text without the statements of these ids, and with the widest of the gaps around them.

        Statements in one line stay if one of them does.
        """
        parts: list[bytes] = []
        at = gap = 0  # rows until here are done; blank lines before the next part
        for _, group in itertools.groupby(self.body, key=lambda statement: self._ends[id(statement)]):
            statements = list(group)
            first, end = self._first_row(statements[0]), max(s.end_lineno or 0 for s in statements)
            between = self._rows[at:first]
            if any(row.strip() for row in between):  # a comment of its own
                parts += between
                gap = 0
            else:
                gap = max(gap, len(between))
            if any(id(statement) not in removed for statement in statements):
                parts += [b"\n"] * gap + self._rows[first:end]
                gap = 0
            at = end
        text = b"".join([*parts, *self._rows[at:]]).decode().strip("\n")
        return f"{text}\n" if text else ""


def _refuse_extremes(tree: ast.Module) -> None:
    """Raise SyntaxError for code that parses, but that is too deep, or has too large numbers, for what reads it."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        for node in level:
            if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > MAX_NUMBER:
                raise SyntaxError("a whole number has more than 300 digits", ("", node.lineno, 0, ""))
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        line = next((node.lineno for node in level if isinstance(node, (ast.expr, ast.stmt))), None)
        raise SyntaxError(f"code is nested more than {MAX_DEPTH} deep, as by a sum of so many terms", ("", line, 0, ""))


def _is_name(code: str, name: str) -> bool:
    """Return whether code is a name; Python takes letters of another width or style as the plain ones (NFKC)."""
    return unicodedata.normalize("NFKC", code) == name


def bound(statement: ast.AST) -> list[str]:
    """Return the names that a statement binds where it stands."""
    if isinstance(statement, _IMPORTS):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return [statement.name]
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    nodes = [x for target in targets if isinstance(target, ast.expr) for x in ast.walk(target)]
    names = [x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
    blocks = (x for x in ast.iter_child_nodes(statement) if isinstance(x, _BLOCKS))
    return names + [name for block in blocks for name in bound(block)]


def _is_definition(statement: ast.stmt) -> bool:
    """Return whether a statement only binds names, so that it can be left out where they are not used."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module != "__future__" and statement.names[0].name != "*"
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        nodes = (node for target in targets for node in ast.walk(target))
        return all(isinstance(node, (ast.Name, ast.Tuple, ast.expr_context)) for node in nodes)
    return isinstance(statement, (*_FUNCTIONS, ast.ClassDef, ast.Import))


def _read(node: ast.AST) -> set[str]:
    """Return the names that are read within a node."""
    names = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Store)}
    return names | {name for x in ast.walk(node) if isinstance(x, ast.AugAssign) for name in bound(x)}


def loaded(source: Source) -> set[str]:
    """Return the names that a file reads, without those that are local to its functions."""
    local = {x.arg for x in ast.walk(source._tree) if isinstance(x, ast.arg)}
    local |= {x.id for x in ast.walk(source._tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    return _read(source._tree) - local


def unused(name: str, used: Container[str]) -> str:
    """Return a name, numbered if it is in use (within a text, or among names)."""
    if name not in used:
        return name
    return next(new for k in itertools.count(2) if (new := f"{name}_{k}") not in used)


def _import_of(statement: ast.Import | ast.ImportFrom, names: Mapping[str, str]) -> str:
    """Return an import statement with other names: ``names`` maps old to new ones, and leaves out the rest."""
    parts = []
    for x in statement.names:
        old = x.asname or x.name.split(".")[0]
        new = names.get(old)
        if new is not None:
            parts.append(x.name if new == old and x.asname is None else f"{x.name} as {new}")
    head = "" if isinstance(statement, ast.Import) else f"from {'.' * statement.level}{statement.module or ''} "
    return f"{head}import {', '.join(parts)}"


def _origin(name: str, statement: ast.stmt) -> str:
    """Return the module and the name from which an import gets ``name``."""
    names = [x.name for x in getattr(statement, "names", []) if (x.asname or x.name.split(".")[0]) == name]
    return f"{getattr(statement, 'module', '')} {names}"


def _same(name: str, a: ast.stmt, b: ast.stmt) -> bool:
    """Return whether two definitions of a name are equal; a helper may be imported from Isaac Gym or this package."""
    if isinstance(a, _IMPORTS) and isinstance(b, _IMPORTS):
        ends = [_origin(name, s).rpartition(" [")[2] for s in (a, b)]
        return _origin(name, a) == _origin(name, b) if ALIASES.get(name, name) in SHAPER_TYPES else ends[0] == ends[1]
    return _dump(a) == _dump(b)


def _dump(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        node = copy.copy(node)
        node.body = node.body[1:]
    return ast.dump(node)


@functools.lru_cache(maxsize=32)  # each run reads its baselines
def inlined(text: str) -> str:
    """Return a file in which imports from shipped baselines are replaced by the functions and what they use.

    An import with other names, or of a name that the file binds again, stays. A file that does not parse is returned as
    it is: its check says why.
    """
    if not _BASELINE.search(text):
        return text
    try:
        source = Source(text)
        for statement in source.body:
            if not isinstance(statement, ast.ImportFrom):
                continue
            donor = _shipped(statement.module or "")
            if donor is None:
                continue
            names = [x.name for x in statement.names]
            plain = all(x.asname in (None, x.name) and x.name in donor.definitions for x in statement.names)
            if plain and all(len(source._binders[name]) == 1 for name in names):
                source = source.without(names).joined(donor, names)
        return source.text
    except (UnsupportedCode, RecursionError):
        return text


@functools.cache
def _shipped(module: str) -> Source | None:
    """Return a shipped baseline as one file, by its module's name; None for other modules."""
    match = _BASELINE.fullmatch(module)
    path = _PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    return Source(inlined(path.read_text(encoding="utf-8"))) if match and path.is_file() else None


def _roots(types: Iterable[str], source: Source) -> list[str]:
    """Return the names that functions of these types, and the dicts and constants beside them, may have in a file."""
    types = set(types)
    names = [*types, *(name for name, type_ in _OTHER_NAMES.items() if type_ in types)]
    acts = types & set(ACTION_TYPES) & set(source.definitions) or "*" in source.definitions
    scales = REWARD in types and REWARD_FACTORS in source.definitions
    return names + [ACTION_DIM] * bool(acts) + [REWARD_FACTORS] * scales


def shaping_source(text: str, types: Iterable[str]) -> Source:
    """Return the functions of shaper types in a trusted file, by their proper names, with everything that they use.

    Functions of shipped baselines that it imports are its own.
    TorchScript's decorators are removed: it computes the same without, and a change may use code that it lacks.

    Raises:
        UnsupportedCode: for other top-level statements than imports, definitions and constants.
    """
    source = Source(inlined(text))
    for statement in source.body:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (docstring or _is_definition(statement) or isinstance(statement, ast.ImportFrom)):
            raise UnsupportedCode(f"line {statement.lineno}: {type(statement).__name__} at the top level")
    aliases = {a: n for a, n in ALIASES.items() if source.function(a) and n not in source.definitions}
    source = source.renamed(aliases).without_decorators()
    return source.using(_roots(types, source))


def reduced(text: str, types: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return a file without the shaping functions of other types and what only they use, and the functions' names.

    A function that one of ``types`` calls is kept as a helper of another name, also if it is imported. A file that does
    not parse is returned as it is: its check says why.

    Args:
        text: the text of the file; it is unchanged if all its shaping functions are of ``types``.
        types: the shaper types of the search; None for all.
    """
    try:
        source = Source(text)
        others = tuple(
            name for name in (*SHAPER_TYPES, *_OTHER_NAMES)
            if name in source.definitions and types is not None and _OTHER_NAMES.get(name, name) not in types
            and (name not in SECTION_TYPES or source.section(name) is not None)
        )  # fmt: skip
        if not others or types is None:
            return text, ()
        roots = _roots(types, source)
        if not {*roots, "*"} & (set(source.definitions) - {ACTION_DIM}):
            return "", others
        source = source.using(roots)
        read = _read(ast.Module(source.body, []))
        # imports keep only names that are used
        source = source.without(
            name for name in others
            if name not in read and isinstance(source.definitions.get(name), _IMPORTS)
        )  # fmt: skip
        left = [name for name in others if name in source.definitions]
        return source.renamed({name: _free(name, text) for name in left}).text, others
    except (UnsupportedCode, RecursionError):
        return text, ()


def _free(name: str, text: str) -> str:
    """Return the name with so many underscores before it that the text does not contain it."""
    longest = max(map(len, re.findall(rf"(?<!_)_*{name}", text)), default=len(name))
    return "_" * (longest - len(name) + 1) + name


def without_script(text: str) -> str:
    """Return a file without TorchScript's decorators; one that does not parse as it is."""
    try:
        return Source(text).without_decorators().text
    except (UnsupportedCode, RecursionError):
        return text
