"""What the Makefile and the Dockerfile install is locked, and so is what builds it."""

import re
import tomllib
from pathlib import Path

import pytest

from envcoder_bench.cli import auto_shape, eval_shapers
from envcoder_bench.sources.registry import find_spec

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements-build.txt", "requirements.txt", "requirements-test.txt")


def locked(file):
    """The locked versions by package."""
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))


def test_what_builds_the_packages_is_locked():
    for folder in (ROOT, ROOT / "packages" / "isaacgym_mujoco"):
        needed = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
        assert {re.split(r"[<>=~!]", name)[0] for name in needed} <= set(locked("requirements-build.txt"))
    # what hatchling asks for to install them editable, and what builds packages without a wheel
    assert {"editables", "setuptools"} <= set(locked("requirements-build.txt"))


def test_locks_agree():
    build, *others = map(locked, LOCKS)
    shared = [(version, other[name]) for name, version in build.items() for other in others if name in other]
    assert shared and all(one == another for one, another in shared)


def test_what_is_built_is_built_with_what_is_locked():
    for file in ("Makefile", "Dockerfile"):
        text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
        for name, value in re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE):
            text = text.replace(f"$({name})", value)
        commands = [command for line in text.splitlines() for command in line.split("&&") if "pip install" in command]
        builds = [command for command in commands if re.search("packages/isaacgym_mujoco|-r requirements.txt", command)]
        assert len(builds) == 2 and all("--no-build-isolation" in command for command in builds)


@pytest.mark.parametrize("command", [auto_shape, eval_shapers])
def test_demonstrations_have_valid_flags(command):
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    name = command.__name__.rpartition(".")[2].replace("_", "-")
    (line,) = re.findall(rf"^\t\$\(BIN\)/{name} (.*)$", text, re.MULTILINE)
    args = command.build_parser().parse(line.split())
    assert find_spec(args.task) and args.seeds > 1
