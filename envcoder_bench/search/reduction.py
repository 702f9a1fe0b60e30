"""Reduce a model's file to the functions that a search asks for, in linear time, and without parsing untrusted code."""

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from envcoder_bench.search.providers.code import masked, texts
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, SHAPER_TYPES

_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")
_DEFINITION = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_ASSIGNMENT = re.compile(r"(\w+)[ \t]*(?::[^=\n]+)?=(?!=)(?![ \t]*\w+[ \t]*=(?!=))")  # to one name
_IMPORT = re.compile(r"(?:from[ \t]+(?!__future__)\S+[ \t]+)?import[ \t]+([^*]+)")
_F_STRING = re.compile(r"[fF][rR]?\Z")
_CONTINUES = (" ", "\t", ")", "]", "}")


@dataclass
class _Statement:
    """A top-level statement with the comment and the blank lines above it.

    Attributes:
        text, bare: its text, and the same with blanks in place of comments and string literals.
        names: names that it binds; empty if it does anything else, so that it is always kept.
        imports: of an import, its beginning, ``import `` or ``from X import ``, and its parts, such as ``a as b``.
    """

    text: str
    bare: str
    names: tuple[str, ...]
    imports: tuple[str, tuple[str, ...]] | None = None

    def below(self, gap: str) -> str:
        """Return its text with blank lines above it: its own, or ``gap`` if they are fewer."""
        text = self.text.lstrip("\n")
        return max(self.text[: len(self.text) - len(text)], gap, key=len) + text


def reduced(source: str, types: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return a file without the shaping functions of other types and what only they use, and the functions' names.

    A function that one of ``types`` calls is kept as a helper of another name, also if it is imported.

    Args:
        source: the text of the file; it is unchanged if all its shaping functions are of ``types``.
        types: the shaper types of the search; None for all.
    """
    bare = masked(source)
    words = set(_WORD.findall(bare))
    named = [name for name in (*SHAPER_TYPES, *ALIASES) if name in words]
    others = tuple(name for name in named if types is not None and ALIASES.get(name, name) not in types)
    if types is None or not others:
        return source, ()
    roots = {*types, *(alias for alias, name in ALIASES.items() if name in types)}
    roots |= {"ACTION_DIM"} if roots & set(ACTION_TYPES) else set()
    if roots.isdisjoint(words):
        return "", others
    statements = _statements(source, bare)
    kept = _used(statements, roots)
    plain = [statements[k] for k in kept if statements[k].imports is None]
    used = {word for one in plain for word in (*_WORD.findall(one.bare), *_in_f_strings(one.text))}
    new = {name: _free(name, source) for name in others}
    chosen, gap = [""], ""  # the widest gap since the last kept statement
    for index, statement in enumerate(statements):
        own = _without(statement, new, used) if index in kept else None
        text = (own or statement).below(gap)
        gap = "" if own else text[: len(text) - len(text.lstrip("\n"))]
        chosen += [text] if own else []
    return "".join(chosen).strip("\n") + "\n", others


def _statements(source: str, bare: str) -> list[_Statement]:
    """Return the top-level statements, whose texts join to the whole file."""
    starts: list[int] = []
    depth, decorated, continued = 0, False, False
    inside = _lines_in_literals(source)
    lines, blank = ([f"{line}\n" for line in text.split("\n")] for text in (source, bare))
    for number, line in enumerate(blank):
        begins = depth <= 0 and not continued and bool(line.strip()) and not line.startswith(_CONTINUES)
        if begins and not decorated:
            first = number
            while first > 0 and lines[first - 1].startswith("#") and first - 1 not in inside:
                first -= 1
            while first > 0 and not lines[first - 1].strip():
                first -= 1
            starts.append(first)
        decorated = line.startswith("@") if begins else decorated
        depth += sum(line.count(mark) for mark in "([{") - sum(line.count(mark) for mark in ")]}")
        continued = line.rstrip("\r\n").endswith("\\")
    ends = [*starts[1:], len(lines)]
    head = [_Statement("".join(lines[: starts[0]]), "", ())] if starts else []
    return head + [_statement("".join(lines[a:b]), "".join(blank[a:b])) for a, b in zip(starts, ends)]


def _lines_in_literals(source: str) -> set[int]:
    """Return the numbers of the lines that begin within a string literal, from 0."""
    found: set[int] = set()
    number, at = 0, 0
    for start, end in texts(source):
        number += source.count("\n", at, start)
        count, at = source.count("\n", start, end), end
        found.update(range(number + 1, number + count + 1))
        number += count
    return found


def _statement(text: str, bare: str) -> _Statement:
    found = _DEFINITION.search(bare)
    if found:
        return _Statement(text, bare, (found[1],))
    code = bare.lstrip()  # without the comment above
    if ";" in code:
        return _Statement(text, bare, ())
    found = _ASSIGNMENT.match(code)
    if found and not keyword.iskeyword(found[1]):
        return _Statement(text, bare, (found[1],))
    found = _IMPORT.match(code)
    if found is None:
        return _Statement(text, bare, ())
    parts = tuple(" ".join(part.strip(" ()\t\r\n\\").split()) for part in found[1].split(","))
    parts = tuple(part for part in parts if part)
    return _Statement(text, bare, tuple(map(_bound_name, parts)), (code[: found.start(1)], parts))


def _bound_name(part: str) -> str:
    """Return the name that a part of an import binds, such as ``a as b``."""
    return part.split(" as ")[-1].split(".")[0]


def _used(statements: Sequence[_Statement], roots: set[str]) -> set[int]:
    """Return the indices of the statements that bind ``roots`` or no name, and of all that they use."""
    binders: dict[str, list[int]] = {}
    for index, statement in enumerate(statements):
        for name in statement.names:
            binders.setdefault(name, []).append(index)
    todo = [k for k, statement in enumerate(statements) if not statement.names or not roots.isdisjoint(statement.names)]
    taken = set(todo)
    while todo:
        statement = statements[todo.pop()]
        words = set(_WORD.findall(statement.bare)) | _in_f_strings(statement.text)
        new = {index for word in words for index in binders.pop(word, ())} - taken
        taken |= new
        todo += new
    return taken


def _in_f_strings(text: str) -> set[str]:
    """Return the words in f-strings, some of which may be names."""
    found = [text[start:end] for start, end in texts(text) if _F_STRING.search(text[max(start - 2, 0) : start])]
    return {word for literal in found for word in _WORD.findall(literal)}


def _free(name: str, source: str) -> str:
    """Return a name like this one that a text does not have, and that is no shaping function."""
    while name in source:
        name = f"_{name}"
    return name


def _without(statement: _Statement, new: Mapping[str, str], used: set[str]) -> _Statement | None:
    """Return a statement with other names in place of the keys of ``new``; None if nothing is left.

    Imports of functions that are not ``used`` are left out.
    """
    if statement.imports is None or not set(statement.names) & set(new):
        return replace(statement, text=_renamed(statement, new))
    head, parts = statement.imports
    chosen = []
    for part in parts:
        name = _bound_name(part)
        if name not in new:
            chosen.append(part)
        elif name in used:
            chosen.append(f"{part.split(' as ')[0]} as {new[name]}")
    if not chosen:
        return None
    above = statement.text[: len(statement.bare) - len(statement.bare.lstrip())]
    return replace(statement, text=f"{above}{head.strip()} {', '.join(chosen)}\n")


def _renamed(statement: _Statement, new: Mapping[str, str]) -> str:
    if statement.imports is not None:
        return statement.text  # it binds another name
    parts, at = [], 0
    for found in _WORD.finditer(statement.bare):
        if found.group() in new:
            parts += [statement.text[at : found.start()], new[found.group()]]
            at = found.end()
    return "".join([*parts, statement.text[at:]])
