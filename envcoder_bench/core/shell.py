"""Words for the shell that the user works in: paths, commands and values to be pasted into it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def quoted(text: str) -> str:
    """A text as a value of Hydra's override grammar, whatever characters it has."""
    return "'" + text.replace("'", "\\'") + "'"


def invocation(name: str) -> str:
    """How to start a command from a shell as it is now, such as ``eval-shapers`` or ``python eval_shapers.py``."""
    module = name.replace("-", "_")
    given = Path(sys.argv[0])
    if given.name == f"{module}.py":
        return f"{_python()} {shlex.quote(sys.argv[0])}"
    for script in ([given] if given.name == name else []) + [Path(sys.executable).with_name(name)]:
        on_path = shutil.which(name)
        if on_path is not None and script.exists() and os.path.samefile(on_path, script):
            return name
        if script.exists():
            return shlex.quote(shown(script))
    return f"{_python()} -m envcoder_bench.{module}"


def resume_command(folder: Path, name: str = "eval-shapers") -> str:
    """What goes on with the run in ``folder``, to be pasted into the shell."""
    return f"{invocation(name)} --resume {shlex.quote(shown(folder))}"


def shown(path: Path) -> str:
    """A path as a person would write it: relative where it is below the working folder."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)


def _python() -> str:
    """This Python as the shell finds it."""
    for name in ("python", "python3"):
        found = shutil.which(name)
        if found is not None and os.path.abspath(found) == os.path.abspath(sys.executable):
            return name
    return shlex.quote(shown(Path(sys.executable)))
