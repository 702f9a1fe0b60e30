"""What the pages of the manual say: their commands, and the files in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("eval-shapers", "auto-shape", "eval-policies", "envcoder-bench")
_NEEDS = re.compile(r"<!-- needs (?:a|an) [^>]*-->\n```bash\n.*?```", re.DOTALL)
_SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)


def text_of(name: str) -> str:
    """Return the text of a page, by its path in the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def joined(text: str) -> str:
    """Return a text whose lines that end with a backslash go on."""
    return re.sub(r"\\\n\s*", " ", text)


def shell_lines(text: str) -> list[str]:
    """Return the lines of the shell blocks of a page, without those that are marked ``<!-- needs a ... -->``."""
    blocks = _SHELL.findall(_NEEDS.sub("", text))
    return [line for block in blocks for line in joined(block).splitlines() if line.strip()]


def command_lines(text: str) -> list[list[str]]:
    """Return the words of every command of this project in a page, marked or not, without comments."""
    indented = [line[4:] for line in joined(text).splitlines() if line.startswith("    ")]
    lines = [*indented, *(line for block in _SHELL.findall(text) for line in joined(block).splitlines())]
    return [
        shlex.split(line, comments=True) for line in lines if line.startswith(tuple(f"{name} " for name in COMMANDS))
    ]


def files_of(text: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
