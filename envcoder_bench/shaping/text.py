"""What is read from a candidate file's text before any parser does: whether it is sound, and which functions it has.

The text may be untrusted, so that it is scanned for characters and tokens, neither parsed nor executed. Files are read
as UTF-8 whatever they declare: with a codec such as utf-7 or unicode_escape, Python would run another text than an
editor shows, and a codec such as rot13 raises. A declared encoding is checked, never used.
"""

import codecs
import functools
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envcoder_bench.shaping.kinds import ALIASES, SHAPER_TYPES

MAX_BYTES = 1 << 20

# a declaration in the comments of the first two lines, as Python and editors look for it (PEP 263)
_DECLARED = re.compile(r"coding[:=][ \t]*([-\w.]+)")
_SAME = ("utf-8", "utf-8-sig", "ascii")
_SAME_FOR_ASCII = ("iso8859-1", "iso8859-15", "cp1252")  # equal to UTF-8 for ASCII text
# control characters, line separators that Python does not treat as such, and bidirectional control characters
_MISLEADING = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)  # fmt: skip


class TextFault(NamedTuple):
    """A fault of a text, and its line."""

    message: str
    line: int | None


def unreadable(source: str) -> TextFault | None:
    """Return why a text is not a valid candidate file, or None. Takes time linear in its length."""
    if 4 * len(source) > MAX_BYTES and len(source.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return TextFault(f"is larger than {MAX_BYTES >> 20} MiB: a candidate is a short file of functions", None)
    for number, line in enumerate(source.split("\n", 2)[:2], start=1):
        declared = _DECLARED.search(line.partition("#")[2])
        if declared is not None and not _may_declare(declared.group(1), source):
            name = declared.group(1)[:40]
            return TextFault(f"declares the encoding {name}: save the file as UTF-8 and remove the declaration", number)
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as error:  # a lone surrogate
        line = source.count("\n", 0, error.start) + 1
        return TextFault("is no UTF-8 text from here on: save the file as UTF-8", line)
    return None


def misleading(source: str) -> TextFault | None:
    """Return a fault for the first character that makes editors show another text than the one that runs, or None."""
    match = _MISLEADING.search(source)
    if match is None:
        return None
    character = match.group()
    name = unicodedata.name(character, "a control character")
    message = f"has the character U+{ord(character):04X} ({name}), which hides what the code does: remove it"
    return TextFault(message, source.count("\n", 0, match.start()) + 1)


def _may_declare(name: str, source: str) -> bool:
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return True  # not an encoding, but words of a comment
    return codec in _SAME or (codec in _SAME_FOR_ASCII and source.isascii())


# the shaping functions: those that a file defines, imports or assigns at its top level

_DEFINED = ("def", "class", "async")
_BLOCKS = ("if", "elif", "else", "try", "except", "finally", "with", "for", "while")
_SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
_FAULTS = (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError)  # of a text that is not Python


class Definitions(NamedTuple):
    """The shaping functions of a file.

    Attributes:
        names: by their names in the file, in its order, the module that each is imported from; empty if there is none.
        whole: modules from which everything is imported, so that the names are not known.
    """

    names: dict[str, str]
    whole: list[str]


@functools.lru_cache(maxsize=4096)  # loading, logs and pages ask for the same files
def definitions(source: str) -> Definitions:
    """Return the shaping functions of a file; of a text that is not Python, those before the first fault."""
    names: dict[str, str] = {}
    whole: list[str] = []
    for words in _statements(source):
        for name in words[1:] if words[0] == "del" else ():
            names.pop(name, None)
        for name, module in _bound(words):
            if name == "*":
                whole.append(module)
            elif ALIASES.get(name, name) in SHAPER_TYPES:
                names[name] = module  # the last one counts
    return Definitions(names, whole)


def defined_types(source: str) -> list[str]:
    """Return the shaping functions of a file, with the names in it."""
    return list(definitions(source).names)


def shown_definitions(defined: Definitions, names: Sequence[str]) -> str:
    """Return some of a file's shaping functions as text, with the modules of those that are imported."""
    shown = [f"{name} (from {defined.names[name]})" if defined.names[name] else name for name in names]
    return ", ".join([*shown, *(f"all of {module}" for module in defined.whole)])


def _statements(source: str) -> Iterator[list[str]]:
    """Yield the words of each statement that runs when the file is loaded; of functions and classes only the head."""
    words: list[str] = []
    last: list[str] = []  # the line before
    level = 0
    inside = 0  # the level of the function or class in which the line is; 0: none
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.INDENT:
                level += 1
                inside = inside or (level if last and (last[0] in _DEFINED or _is_main(last)) else 0)
            elif token.type == tokenize.DEDENT:
                inside = 0 if inside == level else inside
                level -= 1
            elif token.type == tokenize.NEWLINE:
                if words and not inside:
                    yield from _in_line(words)
                last, words = words or last, []
            elif token.type not in _SKIPPED:
                words.append(token.string)
    except _FAULTS:
        return


def _is_main(words: Sequence[str]) -> bool:
    return words[0] == "if" and "__name__" in words


def _in_line(words: list[str]) -> Iterator[list[str]]:
    """Yield the statements of a line: several with ``;``, or those behind the ``:`` of a block."""
    if words[0] in _DEFINED:
        yield words
        return
    if words[0] in _BLOCKS:
        if _is_main(words):
            return
        header = _split(words, ":", most=1)
        words = header[1] if len(header) > 1 else []
    yield from (statement for statement in _split(words, ";") if statement)


def _bound(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that a statement binds, and for an import the module; ``*`` for all of its names."""
    if words[0] in _DEFINED:
        yield from ((name, "") for name in words[1:3] if name != "def" and name.isidentifier())
    elif words[0] == "import":
        yield from ((name, module) for module, name in _imported(words[1:]))
    elif words[0] == "from" and "import" in words:
        at = words.index("import")
        yield from ((name, "".join(words[1:at])) for _, name in _imported(words[at + 1 :]))
    else:
        for target in _split(words, "=")[:-1]:
            target = _split(target, ":", most=1)[0]  # without its annotation
            if not {".", "["} & set(target[1:]):
                yield from ((name, "") for name in target)


def _imported(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what is imported, and the name that it gets."""
    for one in _split([word for word in words if word not in ("(", ")")], ","):
        if one:
            what = one[: one.index("as")] if "as" in one else one
            yield "".join(what), one[-1] if "as" in one else one[0]


def _split(words: Sequence[str], separator: str, most: int | None = None) -> list[list[str]]:
    """Split words at a separator outside of brackets, at most ``most`` times; in time linear in their number."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if word == separator and depth == 0 and (most is None or len(parts) <= most):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
