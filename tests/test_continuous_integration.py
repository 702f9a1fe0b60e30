"""What .ci/run covers: packages that tests may lack are installed there, and adapters that the README names are run."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path for folder in ("tests", "benchmarks/tests", "packages") for path in (ROOT / folder).rglob("test_*.py")]
PRESENT = {"resource", "envcoder_bench"}  # of Python on Linux; of this folder


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")


def locked(*files: str) -> set[str]:
    """Return the distributions that requirement files pin."""
    return {name for file in files for name in re.findall(r"^([a-z][\w.-]*)==", text_of(file), re.MULTILINE)}


FIRST = locked("requirements.txt", "requirements-torch.txt", "requirements-test.txt")
SECOND = locked("requirements-mjlab.txt")
THIRD = locked("requirements-isaaclab.txt")
(THIRD_COMMANDS,) = re.findall(r"^test-isaaclab:.*\n((?:\t.*\n)+)", text_of("Makefile"), re.MULTILINE)
(SECOND_COMMAND,) = re.findall(r"^test-mjlab:.*\n\t(.*)", text_of("Makefile"), re.MULTILINE)


@functools.cache
def installed() -> dict[str, list[str]]:
    """Return the distributions by their modules; those of rsl_rl and pxr may be missing."""
    return {"rsl_rl": ["rsl-rl-lib"], "pxr": ["usd-core"], **packages_distributions()}


def skips(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each distribution without which tests of a file are skipped, with the test, or with "" for the file."""
    text = path.read_text(encoding="utf-8")
    for part in ast.parse(text).body if "importorskip(" in text else ():
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
                module = ast.literal_eval(node.args[0]).partition(".")[0]
                if module not in PRESENT:
                    distribution = installed().get(module, [module])[0].lower().replace("_", "-")
                    yield distribution, part.name if isinstance(part, ast.FunctionDef) else ""


def runs_in_ci(path: Path, distribution: str, test: str) -> bool:
    """Return whether .ci/run runs a test, or a file, where a distribution is installed."""
    if distribution in FIRST:
        return True
    name = path.relative_to(ROOT).as_posix()
    if distribution in THIRD and any(name.startswith(f"{word}/") for word in THIRD_COMMANDS.split()):
        return True
    selected = any(f"{name}/".startswith(f"{word}/") for word in SECOND_COMMAND.split())
    (words,) = re.findall(r'-k "([\w ]+)"', SECOND_COMMAND)
    return distribution in SECOND and selected and any(word in f"{name}::{test}" for word in words.split(" or "))


def test_what_tests_may_lack_is_installed_in_ci() -> None:
    for path in FILES:
        for distribution, test in skips(path):
            assert runs_in_ci(path, distribution, test), f"{path}: {test or 'all'}: lock {distribution} (make lock)"


def test_no_test_of_mjlab_is_skipped_in_ci() -> None:
    assert re.search(r"^make test-mjlab\b", text_of(".ci/run"), re.MULTILINE)
    words = SECOND_COMMAND.split()
    assert words[0].startswith("$(VENV)-mjlab/") and "--no-skips" in words
    assert {"mjlab", "rsl-rl-lib"} <= SECOND - FIRST


def test_version_of_mjlab_is_the_same_everywhere() -> None:
    (version,) = re.findall(r"^mjlab==([\d.]+)", text_of("requirements-mjlab.txt"), re.MULTILINE)
    for name in ("Makefile", "docs/mjlab.md", "envcoder_bench/sources/mjlab_tasks/source.py"):
        assert set(re.findall(r"mjlab==(\d[\d.]*\d)", text_of(name))) == {version}, name
    assert f"mjlab {version} itself pins" in text_of("pyproject.toml")


def test_environments_of_ci_get_no_cuda_build_of_torch_from_their_locks() -> None:
    for name in locked("requirements.txt", "requirements-test.txt", "requirements-mjlab.txt"):
        assert not re.match(r"torch$|torchvision$|nvidia-|cuda-", name), name


def test_adapters_that_the_readme_names_run_in_ci() -> None:
    """An address in the README, such as mjlab:NAME, is also in a file of tests of which .ci/run skips nothing."""
    adapters = set(re.findall(r"--task (\w+):", text_of("README.md")))
    assert adapters
    for adapter in adapters:
        files = [path for path in FILES if f'"{adapter}:' in path.read_text(encoding="utf-8")]
        run = [path for path in files if all(runs_in_ci(path, *each) for each in skips(path))]
        assert run, f"{adapter}: is in the README, and in no test of .ci/run"


def test_files_that_conftest_names_exist() -> None:
    """Else a file of another name is begun last, or its pictures are one pixel and its checks of them hold always."""
    names = re.findall(r'"(test_\w+\.py)"', text_of("tests/conftest.py"))
    assert len(names) > 20 and set(names) <= {path.name for path in FILES}


@pytest.mark.slow
def test_skips_fail_where_nothing_may_be_skipped(tmp_path: Path) -> None:
    skip = 'pytest.importorskip("no_such_package")'
    bodies = {"file": f"{skip}\n\n\ndef test_it(): ...\n", "test": f"\n\ndef test_it():\n    {skip}\n"}
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    hooks = re.findall(r"^def pytest_addoption.*?(?=^def pytest_collection_modifyitems)", conftest, re.DOTALL | re.M)
    (tmp_path / "conftest.py").write_text("import pytest\n\n\n" + hooks[0])
    for where, body in bodies.items():
        (tmp_path / f"test_{where}.py").write_text("import pytest\n\n" + body)
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # their imports take longer than the tests
    plain, strict = (
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, *more], capture_output=True, text=True, cwd=tmp_path, env=env
        )
        for more in ([], ["--no-skips"])
    )
    assert "2 skipped" in plain.stdout and plain.returncode == 0, plain.stdout
    assert "1 failed, 1 error" in strict.stdout and strict.returncode == 1, strict.stdout
    assert strict.stdout.count("with --no-skips") >= 2 and "no_such_package" in strict.stdout
