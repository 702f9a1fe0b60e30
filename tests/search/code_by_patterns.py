"""An oracle that extracts the candidate from ordinary replies with regular expressions; exponential for others."""

import re
import textwrap

_THOUGHTS = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
_FENCE = re.compile(r"[ \t]*(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^`]*")
_PYTHON = ("", "python", "python3", "py", "py3")
_COMPUTE = re.compile(r"^def[ \t]+(compute_\w+)[ \t]*\(", re.MULTILINE)
_DEFINED = re.compile(r"^(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_IMPORTED = re.compile(r"^(?:from[ \t]+\S+[ \t]+)?import[ \t]+([^#\n]+)", re.MULTILINE)
_TEXTS = re.compile(r"(\"\"\"|'''|\"|')(?:\\.|(?!\1).)*?\1|#[^\n]*", re.DOTALL)
_LOCAL = re.compile(r"^[ \t]+([\w, \t]+?)[ \t]*(?::[^=\n]+)?=(?!=)|^def[ \t]+\w+[ \t]*\(([^)]*)\)", re.MULTILINE)
_TOP_LEVEL = re.compile(r"import\s|from\s+\S+\s+import\s|def\s|class\s|@|#|[)\]}]|\"\"\"|'''|\w+\s*(?::[^=]+)?=(?!=)")


def extract_code(text, cut_off=False):
    text = _THOUGHTS.sub("", text.replace("\r\n", "\n"))
    blocks, fenced = _fenced_blocks(text, cut_off)
    if not fenced and not cut_off:
        blocks = [_bare(text)]
    chosen, functions = set(), set()
    for index in reversed(range(len(blocks))):
        new = set(_COMPUTE.findall(blocks[index])) - functions
        if new:
            chosen.add(index)
            functions |= new
    if not chosen:
        return None
    while True:
        code = "\n\n".join(blocks[index] for index in sorted(chosen))
        missing = _uses(code) - _defines(code)
        helpers = [i for i in range(len(blocks)) if i not in chosen and _defines(blocks[i]) & missing]
        if not helpers:
            return code + "\n"
        chosen.add(helpers[-1])


def _fenced_blocks(text, cut_off):
    blocks, lines = [], []
    marks, python, fenced = "", False, False

    def close():
        if python:
            blocks.append(textwrap.dedent("\n".join(lines)).strip("\n"))

    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if marks and found and not found["language"] and found["marks"].startswith(marks):
            close()
            marks = ""
        elif found and (not marks or found["language"]):
            if marks:
                close()
            marks, lines, fenced = found["marks"], [], True
            python = found["language"].lower().strip("{.}") in _PYTHON
        else:
            lines.append(line)
    if marks and not cut_off:
        close()
    return blocks, fenced


def _bare(text):
    lines = []
    for line in text.split("\n"):
        if _TOP_LEVEL.match(line) or (lines and (not line.strip() or line[0] in " \t")):
            lines.append(line)
        elif lines and _COMPUTE.search("\n".join(lines)):
            break
        else:
            lines = []
    return "\n".join(lines).strip("\n")


def _defines(code):
    names = {name for pair in _DEFINED.findall(code) for name in pair if name}
    for imported in _IMPORTED.findall(code):
        parts = [part.split(" as ")[-1].strip(" ()\t") for part in imported.split(",")]
        names |= {part.split(".")[0] for part in parts if part}
    return names


def _uses(code):
    code = _TEXTS.sub("", code)
    local = {name for pair in _LOCAL.findall(code) for part in pair for name in re.findall(r"\w+", part)}
    return set(re.findall(r"(?<![\w.])[^\W\d]\w*", code)) - local
