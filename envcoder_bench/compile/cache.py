"""A cache on disk of programs and check results, so that a function is traced and checked once per code and task."""

import ast
import contextlib
import functools
import json
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import envcoder_bench
import mujoco_batches
from envcoder_bench.compile.program import Node, Output, Program, to_plain
from envcoder_bench.core.files import digest, write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.shaping.contract import CandidateFunction
from envcoder_bench.shaping.loading import helper_names
from envcoder_bench.shaping.scan import parse
from envcoder_bench.sources.registry import outside_tasks
from envcoder_bench.sources.sim_spec import task_files

# calls that make a file depend on more than its own text; such files are not cached
_READS = re.compile(
    r"\b(open|load\w*|from_?file|genfromtxt|memmap|hub|eval|exec|compile|__import__|import_module)\s*[.(]"
)
# modules whose versions are part of the key, or that come with this Python
_KNOWN_MODULES = {
    "__future__", "abc", "collections", "contextlib", "copy", "dataclasses", "enum", "envcoder_bench", "functools",
    "itertools", "logging", "math", "numbers", "numpy", "operator", "torch", "typing", "typing_extensions", "warnings",
}  # fmt: skip


class FunctionCache:
    """Programs and results of checks, by the text of the functions' files and everything that they depend on.

    The folder is ``ENVCODER_BENCH_CACHE``, or ``~/.cache/envcoder_bench``; if it is not writable, nothing is cached.

    Args:
        texts: texts of the candidate files, by file.
        constants: the task's constants, whose numbers become part of programs.
        seed: the seed with which modules are loaded.
    """

    def __init__(
        self, texts: Mapping[str, str], state: dict[str, Tensor], constants: dict[str, Tensor], seed: int
    ) -> None:
        self._texts = texts
        self._folder = cache_folder() / "programs"
        shapes = {key: (tuple(x.shape[1:]), str(x.dtype)) for key, x in sorted(state.items())}
        constant_values = {key: (str(x.dtype), x.tolist()) for key, x in sorted(constants.items())}
        versions = (torch.__version__, np.__version__, sys.version, torch.cuda.is_available())
        self._context = repr((versions, code_digest(), shapes, constant_values, seed))

    def load(self, function: CandidateFunction, *parts: object) -> Program | None:
        """Return the program of a function saved with equal ``parts``, or None."""
        try:
            plain = self.load_plain([function], *parts)
            return None if plain is None else _program(plain)
        except (ValueError, TypeError, KeyError, IndexError):  # the file is damaged
            return None

    def save(self, program: Program, function: CandidateFunction, *parts: object) -> None:
        """Save a program for later processes."""
        self.save_plain(to_plain(program), [function], *parts)

    def load_plain(self, functions: Sequence[CandidateFunction], *parts: object) -> Any:
        """Return the JSON value of functions saved with equal ``parts``, or None."""
        path = self._path(functions, *parts)
        try:
            return None if path is None else json.loads(read_packed(path))
        except (ValueError, RecursionError):  # the file is absent or damaged
            return None

    def save_plain(self, plain: object, functions: Sequence[CandidateFunction], *parts: object) -> None:
        """Save a JSON value for later processes."""
        path = self._path(functions, *parts)
        if path is not None:
            write_packed(path, json.dumps(plain).encode())

    def _path(self, functions: Sequence[CandidateFunction], *parts: object) -> Path | None:
        texts = [self._texts.get(function.file) for function in functions]
        if any(text is None or not is_self_contained(text) or _leaves_the_task(text) for text in texts):
            return None
        key = repr((self._context, texts, [function.type for function in functions], parts))
        return self._folder / f"{digest(key)}.z"


def _program(plain: dict[str, Any]) -> Program:
    nodes = [Node(op, kind, tuple(args), *rest) for op, kind, args, *rest in plain["nodes"]]
    return Program(nodes, {name: Output(*output) for name, output in plain["outputs"].items()})


def read_packed(path: Path, most: int = 0) -> bytes:
    """Return the content of a file in the cache, at most ``most`` bytes (0: all); empty if it is absent or damaged."""
    try:
        return zlib.decompressobj().decompress(path.read_bytes(), most)
    except (OSError, zlib.error):
        return b""


def write_packed(path: Path, content: bytes) -> None:
    """Write a file in the cache atomically, if that is possible."""
    with contextlib.suppress(OSError):
        write_shared(path, zlib.compress(content, 1))


@functools.cache
def is_self_contained(text: str) -> bool:
    """Return whether a file's functions depend only on its text, known modules and this package.

    A helper module beside the file may change while the text stays the same.
    """
    allowed = {*_KNOWN_MODULES, *("isaacgym", "isaacgymenvs") * bool(helper_names())}
    return not _READS.search(text) and all(name.split(".")[0] in allowed for name in _imported(text))


def _imported(text: str) -> Iterator[str]:
    """Yield the names of the modules that a text imports."""
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _leaves_the_task(text: str) -> bool:
    """Return whether a file imports from a task outside the package whose code depends on files not in the key."""
    for name, spec in outside_tasks().items():
        package = f"envcoder_bench.tasks.{name}"
        if package in text or f"import {name}" in text:
            for file in task_files(spec.folder):
                # relative imports are within the task
                code = re.sub(r"^(\s*from )\.", rf"\1{package}.", file.read_text("utf-8", "replace"), flags=re.M)
                if file.suffix == ".py" and not is_self_contained(code):
                    return True
    return False


def code_digest() -> str:
    """Return a digest of this package's code and of outside tasks, because candidates may import any of it."""
    return repr((package_code(), [(name, spec.digest) for name, spec in sorted(outside_tasks().items())]))


@functools.cache
def package_code() -> str:
    """Return a digest of the code of this package and of mujoco_batches, which has the helpers of candidates."""
    roots = Path(envcoder_bench.__file__).parent, Path(str(mujoco_batches.__file__)).parent
    files = [
        file for root in roots for file in sorted(root.rglob("*.py")) if file.relative_to(root).parts[0] != "tests"
    ]
    return digest(b"".join(file.read_bytes() for file in files))
