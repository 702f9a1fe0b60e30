"""The candidate in a model's reply. It is scanned, in time linear in its length: unread code is not parsed here."""

from __future__ import annotations

import heapq
import re
import textwrap
from dataclasses import dataclass

MAX_CHARS = 1_000_000  # of a reply; a longer one is not looked at. The longest that models write has about half of it

# No pattern here can match the same text in two ways: each one fails or succeeds after a pass over what it is held to.
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
_COMPUTE = re.compile(r"^def[ \t]+(compute_\w+)[ \t]*\(", re.MULTILINE)
_DEFINED = re.compile(r"^(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_IMPORTED = re.compile(r"^(?:from[ \t]+\S+[ \t]+)?import[ \t]+([^#\n]+)", re.MULTILINE)
_TOP_LEVEL = re.compile(r"import\s|from\s+\S+\s+import\s|def\s|class\s|@|#|[)\]}]|\"\"\"|'''|\w+\s*(?::[^=]+)?=(?!=)")
_TEXT = re.compile(r"#|\"\"\"|'''|\"|'")  # where a comment or a string literal begins
_TEXT_ENDS = {  # and where it ends, escaped characters apart
    "#": re.compile(r"\n"),
    '"': re.compile(r'\\.|"|\n', re.DOTALL),
    "'": re.compile(r"\\.|'|\n", re.DOTALL),
    '"""': re.compile(r'\\.|"""', re.DOTALL),
    "'''": re.compile(r"\\.|'''", re.DOTALL),
}
_TARGETS = re.compile(r"[ \t]+[\w, \t]+")  # of an indented assignment
_PARAMETERS = re.compile(r"^def[ \t]+\w+[ \t]*\(", re.MULTILINE)
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_PYTHON = ("", "python", "python3", "py", "py3")


@dataclass(frozen=True)
class _Block:
    """A piece of Python: the names that its functions use and do not set themselves, and what it defines."""

    code: str
    uses: set[str]
    local: set[str]
    defines: set[str]


def extract_code(text: str, cut_off: bool = False) -> str | None:
    """The source of the candidate in a reply, or None where there is none, or the reply has over MAX_CHARS characters.

    Of several fenced blocks those with ``compute_*`` functions are joined, in their order, without earlier versions of
    the same functions; others join them where they define names that are used (imports, helpers). A reply
    without fences is searched for top-level Python.

    Args:
        cut_off: the reply ended in the middle, so that a block without an end is not whole.
    """
    if len(text) > MAX_CHARS:
        return None
    text = _THOUGHTS.sub("", text.replace("\r\n", "\n"))
    blocks, fenced = _fenced_blocks(text, cut_off)
    if not fenced and not cut_off:
        blocks = [_bare(text)]
    chosen: list[int] = []
    functions: set[str] = set()
    for index in reversed(range(len(blocks))):
        new = set(_COMPUTE.findall(blocks[index])) - functions
        if new:
            chosen.append(index)
            functions |= new
    if not chosen:
        return None
    return "\n\n".join(blocks[index] for index in sorted(_with_helpers(blocks, chosen))) + "\n"


def _with_helpers(blocks: list[str], chosen: list[int]) -> set[int]:
    """The chosen blocks, and of the others the last that defines a name which is missing, until none is."""
    read = [_read(block) for block in blocks]
    definers: dict[str, list[int]] = {}
    for index, block in enumerate(read):
        for name in block.defines:
            definers.setdefault(name, []).append(index)
    taken: set[int] = set()
    known: set[str] = set()  # defined or local
    met: set[str] = set()  # used by a block that is taken
    wanted: list[tuple[int, str]] = []  # blocks that define a missing name, the last one first
    todo = list(chosen)
    while todo:
        for index in todo:
            taken.add(index)
            known |= read[index].defines | read[index].local
        for name in {name for index in todo for name in read[index].uses} - met:
            met.add(name)
            for index in definers.get(name, ()):
                heapq.heappush(wanted, (-index, name))
        todo = []
        while wanted and not todo:
            index, name = heapq.heappop(wanted)
            if name not in known and -index not in taken:
                todo = [-index]
    return taken


def _fenced_blocks(text: str, cut_off: bool) -> tuple[list[str], bool]:
    """The Python blocks of a text, and whether there is any fence."""
    blocks: list[str] = []
    lines: list[str] = []
    marks, python, fenced = "", False, False

    def close() -> None:
        if python:
            blocks.append(textwrap.dedent("\n".join(lines)).strip("\n"))

    for line in text.split("\n"):
        found = _fence(line)
        if marks and found and not found[1] and found[0].startswith(marks):
            close()
            marks = ""
        elif found and (not marks or found[1]):  # a language opens the next block where an end was forgotten
            if marks:
                close()
            marks, lines, fenced = found[0], [], True
            python = found[1].lower().strip("{.}") in _PYTHON
        else:
            lines.append(line)
    if marks and not cut_off:
        close()
    return blocks, fenced


def _fence(line: str) -> tuple[str, str] | None:
    """The marks of a line that opens or closes a block, three backticks or tildes at least, and the language."""
    line = line.lstrip(" \t")
    rest = line.lstrip(line[:1]) if line[:1] in ("`", "~") else line
    count = len(line) - len(rest)
    if count < 3 or "`" in rest:
        return None
    rest = rest.lstrip(" \t")
    return line[:count], rest.split(None, 1)[0] if rest and not rest[0].isspace() else ""


def _bare(text: str) -> str:
    """The top-level Python of a text without fences, with what is indented below it."""
    lines: list[str] = []
    for line in text.split("\n"):
        if _TOP_LEVEL.match(line) or (lines and (not line.strip() or line[0] in " \t")):
            lines.append(line)
        elif lines and _COMPUTE.search("\n".join(lines)):
            break
        else:
            lines = []
    return "\n".join(lines).strip("\n")


def _read(code: str) -> _Block:
    bare = _without_texts(code)
    return _Block(code, set(_NAME.findall(bare)), _locals(bare), _defines(code))


def _defines(code: str) -> set[str]:
    """Names that a block defines or imports at its top level."""
    names = {name for pair in _DEFINED.findall(code) for name in pair if name}
    for imported in _IMPORTED.findall(code):
        parts = [part.split(" as ")[-1].strip(" ()\t") for part in imported.split(",")]
        names |= {part.split(".")[0] for part in parts if part}
    return names


def _without_texts(code: str) -> str:
    """The code without string literals and comments; one that has no end goes to the end of its line, or of all."""
    kept: list[str] = []
    position = 0
    while True:
        found = _TEXT.search(code, position)
        if found is None:
            return "".join([*kept, code[position:]])
        kept.append(code[position : found.start()])
        position = len(code)
        for end in _TEXT_ENDS[found.group()].finditer(code, found.end()):
            if not end.group().startswith("\\"):
                position = end.start() if end.group() == "\n" else end.end()
                break


def _locals(code: str) -> set[str]:
    """Names that are assigned to within functions, and their parameters."""
    names: set[str] = set()
    for line in code.split("\n"):
        found = _TARGETS.match(line)
        if found is None:
            continue
        rest = line[found.end() :]
        if rest.startswith(":") and not rest.startswith(":="):  # an annotation
            rest = rest[max(rest.find("="), 0) :]
        if rest.startswith("=") and not rest.startswith("=="):
            names.update(_WORD.findall(found.group()))
    found = _PARAMETERS.search(code)
    while found is not None:
        end = code.find(")", found.end())
        if end < 0:
            break
        names.update(_WORD.findall(code, found.end(), end))
        found = _PARAMETERS.search(code, end)
    return names
