"""Extract the candidate from a model's reply, in linear time, and without parsing the untrusted code."""

import heapq
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 1_000_000  # longer replies are ignored; models write at most about half of it

# no pattern can match the same text in two ways, so that none needs more than linear time
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
_COMPUTE = re.compile(r"^def[ \t]+(compute_\w+)[ \t]*\(", re.MULTILINE)
_DEFINED = re.compile(r"^(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_IMPORTED = re.compile(r"^(?:from[ \t]+\S+[ \t]+)?import[ \t]+([^#\n]+)", re.MULTILINE)
_FROM_JIT = re.compile(r"^from[ \t]+torch\.jit[ \t]+import[ \t]+([^#\n]+)", re.MULTILINE)
_TOP_LEVEL = re.compile(r"import\s|from\s+\S+\s+import\s|def\s|class\s|@|#|[)\]}]|\"\"\"|'''|\w+\s*(?::[^=]+)?=(?!=)")
_TEXT = re.compile(r"#|\"\"\"|'''|\"|'")  # the beginning of a comment or a string literal
_TEXT_ENDS = {  # its end, or an escaped character
    "#": re.compile(r"\n"),
    '"': re.compile(r'\\.|"|\n', re.DOTALL),
    "'": re.compile(r"\\.|'|\n", re.DOTALL),
    '"""': re.compile(r'\\.|"""', re.DOTALL),
    "'''": re.compile(r"\\.|'''", re.DOTALL),
}
_NOT_LINE_END = re.compile(r"[^\n]")
_TARGETS = re.compile(r"[ \t]+[\w, \t]+")  # of an indented assignment
_PARAMETERS = re.compile(r"^def[ \t]+\w+[ \t]*\(", re.MULTILINE)
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_PYTHON = ("", "python", "python3", "py", "py3")


@dataclass(frozen=True)
class _Block:
    """A block of Python: its code, the names that it uses, its local names, and the names that it defines."""

    code: str
    uses: set[str]
    local: set[str]
    defines: set[str]


def extract_code(text: str, cut_off: bool = False) -> str | None:
    """Return the source of the candidate in a reply; None if there is none or the reply exceeds MAX_CHARS.

    Fenced blocks with ``compute_*`` functions are joined in their order, without earlier versions of the same
    functions. Other blocks are added if they define names that are used (imports, helpers). A reply without fences is
    searched for top-level Python.

    Args:
        text: the reply.
        cut_off: whether the reply was cut off, so that a block without an end is incomplete.
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


_DECORATOR = re.compile(r"^[ \t]*@([\w.]+)[ \t]*(?:#.*)?\n", re.MULTILINE)


def without_script(source: str) -> str:
    """Remove the decorators ``@torch.jit.script``, also by a name that is imported from ``torch.jit``."""
    names = {"jit.script", "torch.jit.script"}
    for imported in _FROM_JIT.findall(source):
        parts = [part.split() for part in imported.strip("() \t").split(",")]
        names.update(part[-1] for part in parts if part and part[0] == "script")
    return _DECORATOR.sub(lambda found: "" if found[1] in names else found[0], source)


def _with_helpers(blocks: list[str], chosen: list[int]) -> set[int]:
    """Return the chosen blocks, and for each missing name the last block that defines it."""
    read = [_read(block) for block in blocks]
    definers: dict[str, list[int]] = {}
    for index, block in enumerate(read):
        for name in block.defines:
            definers.setdefault(name, []).append(index)
    taken: set[int] = set()
    known: set[str] = set()  # defined or local
    met: set[str] = set()  # used by a taken block
    wanted: list[tuple[int, str]] = []  # heap of blocks that define a missing name, the last one first
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
    """Return the Python blocks of a text, and whether it has any fence."""
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
        elif found and (not marks or found[1]):  # a language opens a new block, even if an end is missing
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
    """Return marks and language of a fence, which has at least three backticks or tildes; None for other lines."""
    line = line.lstrip(" \t")
    rest = line.lstrip(line[:1]) if line[:1] in ("`", "~") else line
    count = len(line) - len(rest)
    if count < 3 or "`" in rest:
        return None
    rest = rest.lstrip(" \t")
    return line[:count], rest.split(None, 1)[0] if rest and not rest[0].isspace() else ""


def _bare(text: str) -> str:
    """Return the top-level Python of a text without fences, with the indented lines below it."""
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
    """Return the names that a block defines or imports at its top level."""
    names = {name for pair in _DEFINED.findall(code) for name in pair if name}
    for imported in _IMPORTED.findall(code):
        parts = [part.split(" as ")[-1].strip(" ()\t") for part in imported.split(",")]
        names |= {part.split(".")[0] for part in parts if part}
    return names


def _without_texts(code: str) -> str:
    """Remove string literals and comments; unterminated ones extend to the end of the line or of the code."""
    kept: list[str] = []
    position = 0
    for start, end in texts(code):
        kept.append(code[position:start])
        position = end
    return "".join([*kept, code[position:]])


def masked(code: str) -> str:
    """Replace comments and string literals, but for the first character of a literal, by blanks; keep all line ends."""
    kept: list[str] = []
    position = 0
    for start, end in texts(code):
        first = "" if code[start] == "#" else code[start]
        kept += [code[position:start], first, _NOT_LINE_END.sub(" ", code[start + len(first) : end])]
        position = end
    return "".join([*kept, code[position:]])


def texts(code: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each string literal and comment."""
    position = 0
    while True:
        found = _TEXT.search(code, position)
        if found is None:
            return
        position = len(code)
        for end in _TEXT_ENDS[found.group()].finditer(code, found.end()):
            if not end.group().startswith("\\"):
                position = end.start() if end.group() == "\n" else end.end()
                break
        yield found.start(), position


def _locals(code: str) -> set[str]:
    """Return the local names and parameters of functions."""
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
