"""Paths, commands and values as text that can be pasted into the user's shell."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def quoted(text: str) -> str:
    """Quote a text as a value of Hydra's override grammar."""
    return "'" + text.replace("'", "\\'") + "'"


def invocation(name: str) -> str:
    """Return how a command is started from this shell, such as ``eval-shapers`` or ``python eval_shapers.py``."""
    module = name.replace("-", "_")
    program = Path(sys.argv[0])
    if program.name == f"{module}.py":
        return f"{_python()} {shlex.quote(sys.argv[0])}"
    for script in ([program] if program.name == name else []) + [Path(sys.executable).with_name(name)]:
        on_path = shutil.which(name)
        if on_path is not None and script.exists() and os.path.samefile(on_path, script):
            return name
        if script.exists():
            return shlex.quote(display_path(script))
    package = "envcoder_bench"  # envcoder-bench is the package's own __main__
    return f"{_python()} -m {package if module == package else f'{package}.{module}'}"


def resume_command(folder: Path, name: str = "eval-shapers") -> str:
    """Return the command, which may have a verb, that resumes the run in ``folder``."""
    command, *verb = name.split(" ")
    return " ".join([invocation(command), *verb, "--resume", shlex.quote(display_path(folder))])


def page_command(folder: Path) -> str:
    """Return the command that writes the page of the run in ``folder``."""
    return f"{invocation('envcoder-bench')} report {shlex.quote(display_path(folder))}"


def resume_call(folder: Path) -> str:
    """Return the call that resumes the run in ``folder`` from Python."""
    return f"envcoder_bench.resume({display_path(folder)!r})"


def display_path(path: Path) -> str:
    """Return a path as text, relative if it is below the working folder."""
    path, here = Path(os.path.abspath(path)), Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)


def _python() -> str:
    """Return the command for this Python interpreter in the user's shell."""
    for name in ("python", "python3"):
        path = shutil.which(name)
        if path is not None and os.path.abspath(path) == os.path.abspath(sys.executable):
            return name
    return shlex.quote(display_path(Path(sys.executable)))
