"""Extract the candidate from a model's reply: its Markdown by lines, its Python by syntax trees."""

import re
import textwrap
from dataclasses import dataclass

from envcoder_bench.shaping.kinds import SECTION_TYPES
from envcoder_bench.shaping.source import MAX_CHARACTERS, Source, UnsupportedCode, loaded

MAX_CHARS = MAX_CHARACTERS  # longer replies are not read

# no pattern can match the same text in two ways, so that none needs more than linear time
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
_DICTS = "|".join(SECTION_TYPES)
_COMPUTE = re.compile(rf"^(?:def[ \t]+(?=compute_)|(?=(?:{_DICTS})[ \t]*=[ \t]*\{{))(\w+)", re.MULTILINE)
_TOP_LEVEL = re.compile(r"import\s|from\s+\S+\s+import\s|def\s|class\s|@|#|[)\]}]|\"\"\"|'''|\w+\s*(?::[^=]+)?=(?!=)")
_PYTHON = ("", "python", "python3", "py", "py3")


@dataclass(frozen=True)
class _Block:
    """A block of Python: its code, and the names that it defines and reads; of faulty code none are known."""

    code: str
    defines: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


def extract_code(text: str, cut_off: bool = False) -> str | None:
    """Return the source of the candidate in a reply; None if there is none or the reply exceeds MAX_CHARS.

    Fenced blocks with ``compute_*`` functions or dicts such as ``rewards`` are joined in their order, without earlier
    versions of the same. Other blocks are added if they define names that are read (imports, helpers). A reply without
    fences is searched for top-level Python.

    Args:
        cut_off: whether the reply was cut off, so that a block without an end is incomplete.
    """
    if len(text) > MAX_CHARS:
        return None
    text = _THOUGHTS.sub("", text.replace("\r\n", "\n"))
    codes, fenced = _fenced_blocks(text, cut_off)
    if not fenced and not cut_off:
        codes = [_bare(text)]
    # the last version of a function counts, so begin at the end
    chosen: list[int] = []
    functions: set[str] = set()
    for index in reversed(range(len(codes))):
        new = set(_COMPUTE.findall(codes[index])) - functions
        if new:
            chosen.append(index)
            functions |= new
    if not chosen:
        return None
    return "\n\n".join(codes[index] for index in sorted(_with_helpers(codes, chosen))) + "\n"


def ends_in_block(text: str) -> bool:
    """Return whether a reply ends inside its last block of code, whose closing fence is missing."""
    opened = ""
    for line in _THOUGHTS.sub("", text).splitlines():
        fence = _fence(line)
        if opened and fence and not fence[1] and fence[0].startswith(opened):
            opened = ""
        elif fence and (not opened or fence[1]):
            opened = fence[0]
    return bool(opened)


def other_functions(text: str) -> str:
    """Return what a reply without a candidate defines in place of ``compute_*`` functions, in words."""
    text = _THOUGHTS.sub("", text[:MAX_CHARS])
    method = re.search(r"^class (\w+)(?:(?!^\S).*\n)*?[ \t]+def (compute_\w+)\(", text, re.MULTILINE)
    if method is not None:
        return f"{method[2]} is a method of the class {method[1]}: write it at the top level of the file, without self"
    names = list(dict.fromkeys(re.findall(r"^def (\w+)\(", text, re.MULTILINE)))
    return f"it defines {', '.join(names[:5])}: the name must be one of those asked for" if names else ""


def _with_helpers(codes: list[str], chosen: list[int]) -> set[int]:
    """Return the chosen blocks, and for each missing name the last block that defines it."""
    if len(codes) == len(chosen):
        return set(chosen)
    blocks = [_read(code) for code in codes]
    last = {name: index for index, block in enumerate(blocks) for name in block.defines}
    taken, todo = set(chosen), list(chosen)
    defined = {name for index in chosen for name in blocks[index].defines}
    while todo:
        for name in sorted(blocks[todo.pop()].reads - defined):
            index = last.get(name)
            if index is not None and name not in defined:
                taken.add(index)
                todo.append(index)
                defined |= blocks[index].defines
    return taken


def _read(code: str) -> _Block:
    try:
        source = Source(code)
        return _Block(code, frozenset(source.definitions), frozenset(loaded(source)))
    except (UnsupportedCode, RecursionError):
        return _Block(code)


def _fenced_blocks(text: str, cut_off: bool) -> tuple[list[str], bool]:
    """Return the Python blocks of a text, and whether it has any fence."""
    blocks: list[str] = []
    lines: list[str] = []
    marks, python, fenced = "", False, False

    def close() -> None:
        if python:
            blocks.append(textwrap.dedent("\n".join(lines)).strip("\n"))

    # a fence of as many marks closes what it opened
    for line in text.split("\n"):
        fence = _fence(line)
        if marks and fence and not fence[1] and fence[0].startswith(marks):
            close()
            marks = ""
        elif fence and (not marks or fence[1]):  # a language opens a new block, even if an end is missing
            if marks:
                close()
            marks, lines, fenced = fence[0], [], True
            python = fence[1].lower().strip("{.}") in _PYTHON
        else:
            lines.append(line)
    # a reply that ends within a block is complete, unless the provider cut it off
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
