"""A new virtual environment with wheels built from folders; what they require comes from the present environment."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

_NO_INDEX = ("No matching distribution found", "Could not find a version")


def environment_with(folder: Path, *sources: Path) -> Path:
    """Build a wheel of each source, install them, and return the folder of the environment's programs.

    The packages of this environment are importable, but not what its editable installations name. Skips the test if
    pip cannot get the build's requirements.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = _run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder / "wheels"), *map(str, sources)], folder)
    if any(words in built.stderr for words in _NO_INDEX):
        pytest.skip("pip cannot get hatchling, which builds the wheels")
    assert built.returncode == 0, built.stderr
    venv.create(folder / "venv", with_pip=False)
    purelib = sysconfig.get_path("purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
    wheels = [str(wheel) for wheel in (folder / "wheels").glob("*.whl")]
    python = folder / "venv" / "bin" / "python"
    done = _run([*pip, "--python", str(python), "install", "--no-deps", *wheels], folder)
    assert done.returncode == 0, done.stderr
    # a path in a .pth file: .pth files of that folder, as of editable installations, are not read
    (Path(purelib) / "present.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def run_in(programs: Path, folder: Path, *words: str) -> str:
    """Run a program of the environment without this one's import path; return its output."""
    done = _run([str(programs / words[0]), *words[1:]], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
