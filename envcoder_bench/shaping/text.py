"""What a candidate file's text says before it is loaded: whether it is sound, and which functions it has.

The text may be untrusted: it is never executed. Files are read as UTF-8 whatever they declare: with a codec such as
utf-7 or unicode_escape, Python would run another text than an editor shows, and a codec such as rot13 raises. A
declared encoding is checked, never used.
"""

import ast
import codecs
import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.kinds import ALIASES, SHAPER_TYPES
from envcoder_bench.shaping.scan import MAX_CHARACTERS, bound_names, parse, top_level

MAX_BYTES = 1 << 20
_FAULTS = 8  # most faults of a text whose functions are looked up: each costs a parse

# a declaration in the comments of the first two lines, as Python and editors look for it (PEP 263)
_DECLARED = re.compile(r"coding[:=][ \t]*([-\w.]+)")
_SAME = ("utf-8", "utf-8-sig", "ascii")
_SAME_FOR_ASCII = ("iso8859-1", "iso8859-15", "cp1252")  # equal to UTF-8 for ASCII text
# control characters, line separators that Python does not treat as such, and bidirectional control characters
_MISLEADING = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)  # fmt: skip


def unreadable(source: str) -> Fault | None:
    """Return why a text is not a valid candidate file, or None. Takes time linear in its length."""
    if 4 * len(source) > MAX_BYTES and len(source.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return Fault(f"is larger than {MAX_BYTES >> 20} MiB", remedy="a candidate is a short file of functions")
    for number, line in enumerate(source.split("\n", 2)[:2], start=1):
        declared = _DECLARED.search(line.partition("#")[2])
        if declared is not None and not _may_declare(declared.group(1), source):
            remedy = "save the file as UTF-8 and remove the declaration"
            return Fault(f"declares the encoding {declared.group(1)[:40]}", line=number, remedy=remedy)
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as error:  # a lone surrogate
        line = source.count("\n", 0, error.start) + 1
        return Fault("is not UTF-8 text from here on", line=line, remedy="save the file as UTF-8")
    return None


def misleading(source: str) -> Fault | None:
    """Return a fault for the first character that makes editors show another text than the one that runs, or None."""
    match = _MISLEADING.search(source)
    if match is None:
        return None
    character = match.group()
    name = unicodedata.name(character, "a control character")
    message = f"has the character U+{ord(character):04X} ({name}), which hides what the code does"
    return Fault(message, line=source.count("\n", 0, match.start()) + 1, remedy="remove it")


def _may_declare(name: str, source: str) -> bool:
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return True  # words of a comment, not an encoding
    return codec in _SAME or (codec in _SAME_FOR_ASCII and source.isascii())


# the shaping functions: those that a file defines, imports or assigns at its top level


class Definitions(NamedTuple):
    """The shaping functions of a file.

    Attributes:
        names: by name in the file, in its order, the module that each is imported from; empty if it is not imported.
        whole: modules from which everything is imported, so that the names are unknown.
    """

    names: dict[str, str]
    whole: list[str]


@functools.lru_cache(maxsize=4096)  # loading, logs and pages ask for the same files
def definitions(source: str) -> Definitions:
    """Return the shaping functions of a file; of a text that is not Python, those before the first fault."""
    names: dict[str, str] = {}
    whole: list[str] = []
    body = [statement for statement in _body(source) if not _is_main(statement)]
    for statement in top_level(body):
        bound = dict.fromkeys(bound_names(statement), "")
        if isinstance(statement, ast.ImportFrom):
            bound = dict.fromkeys(bound, "." * statement.level + (statement.module or ""))
        for name, module in bound.items():
            if name == "*":
                whole.append(module)
            elif ALIASES.get(name, name) in SHAPER_TYPES:
                names[name] = module  # the last one counts
        if isinstance(statement, ast.Delete):
            names = {name: module for name, module in names.items() if name not in bound}
    return Definitions(names, whole)


def code_of(source: str) -> str:
    """Return what a text means to Python: without layout, comments and docstrings. Raises as ``scan.parse``."""
    tree = parse.__wrapped__(source)  # a tree of its own, because it is changed
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def defined_kinds(source: str) -> set[str]:
    """Return the kinds of shaping functions that a file defines, whatever their names in it."""
    return {ALIASES.get(name, name) for name in definitions(source).names}


def describe_definitions(defined: Definitions, names: Sequence[str]) -> str:
    """Return some of a file's shaping functions as text, with the modules of those that are imported."""
    words = [f"{name} (from {defined.names[name]})" if defined.names[name] else name for name in names]
    return ", ".join([*words, *(f"all of {module}" for module in defined.whole)])


def _body(source: str) -> list[ast.stmt]:
    """Return the top-level statements of a text before its first fault."""
    lines = source.partition("\0")[0].split("\n")
    for _ in range(_FAULTS if len(source) <= MAX_CHARACTERS else 1):
        try:
            return parse("\n".join(lines)).body
        except SyntaxError as error:
            del lines[min(error.lineno or 1, len(lines)) - 1 :]
        except (ValueError, RecursionError, MemoryError):  # a lone surrogate; code nested too deep
            break
    return []


def _is_main(statement: ast.stmt) -> bool:
    names = ast.walk(statement.test) if isinstance(statement, ast.If) else ()
    return any(isinstance(x, ast.Name) and x.id == "__name__" for x in names)
