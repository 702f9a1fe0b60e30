"""Imports follow the list of layers; simulators and clients of language models are imported only in theirs."""

import ast
import functools
from pathlib import Path

import pytest

import envcoder_bench
import isaacgym_mujoco

PACKAGE = Path(envcoder_bench.__file__).parent
LAYERS = [
    *("cli", "tools", "search", "grid", "export", "adapters", "video", "run", "report", "results", "jail", "trainers"),
    *("env", "compile", "shaping", "tasks", "terrain", "sim", "compat", "core"),
]
ENGINES = {"sim", "compat"}
HOLDS = {
    **{"mujoco": ENGINES, "mujoco_warp": ENGINES},
    **{"openai": {"search"}, "anthropic": {"search"}, "ray": {"run"}, "av": {"video"}},
}
FOR_CANDIDATES = {"torch_utils"}  # at the top because candidates import it; it uses core alone
MODULES = sorted(PACKAGE.rglob("*.py"))
OTHER = Path(str(isaacgym_mujoco.__file__)).parent  # another distribution, below all layers
OTHERS_MODULES = sorted(path for path in OTHER.rglob("*.py") if path.relative_to(OTHER).parts[0] != "tests")
# its lower half, which is also what sim/ is made of, and what it imports of the package
OTHERS_LOWER = {"physics": {"physics", "compat", "process"}, "compat": {"compat", "process"}, "process": set()}


@functools.cache
def layer(name):
    """The layer of a module, or of what is imported from one, by its dotted name."""
    first = name.split(".")[1] if "." in name else ""
    if (PACKAGE / first).is_dir() and first:
        return first
    command = (PACKAGE / f"{first}.py").exists() and first not in FOR_CANDIDATES
    return "cli" if command else "core"  # the rest is the package's version


def imported(text):
    """What a module's text imports when it runs, with line numbers; blocks for type checkers do not run."""
    waiting = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                known = (PACKAGE.parent / inner.replace(".", "/")).with_suffix(".py").exists()
                yield inner if known or node.module == "envcoder_bench" else node.module, node.lineno
        waiting += ast.iter_child_nodes(node)


def faults(module, text):
    own = layer(module)
    for name, line in imported(text):
        top = name.split(".")[0]
        if top == "envcoder_bench":
            if LAYERS.index(own) > LAYERS.index(layer(name)):
                yield f"line {line}: {own} imports {name}, which is above it"
        elif own not in HOLDS.get(top, {own}):
            yield f"line {line}: {own} imports {top}"


def test_imports_follow_the_layers():
    wrong = {}
    for path in MODULES:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).replace(".__init__", "")
        wrong[module] = list(faults(module, path.read_text(encoding="utf-8")))
    assert len(wrong) > 100 and not {module: lines for module, lines in wrong.items() if lines}


@pytest.mark.parametrize("path", OTHERS_MODULES, ids=lambda path: str(path.relative_to(OTHER)))
def test_isaacgym_mujoco_needs_no_benchmark(path):
    own = path.relative_to(OTHER).with_suffix("").parts[0]
    for name, line in imported(path.read_text(encoding="utf-8")):
        parts = name.split(".")
        assert parts[0] != "envcoder_bench", f"line {line} imports {name}"
        if parts[0] == "isaacgym_mujoco" and own in OTHERS_LOWER:
            assert parts[1] in OTHERS_LOWER[own], f"line {line}: {own} imports {name}, which is above it"


@pytest.mark.parametrize(
    "module, text, count",
    [
        ("envcoder_bench.core.noise", "from envcoder_bench.env import dispatch", 1),
        ("envcoder_bench.core.noise", "import envcoder_bench.env.dispatch", 1),
        ("envcoder_bench.core.noise", "from envcoder_bench import eval_shapers", 1),
        ("envcoder_bench.core.noise", "def f():\n    from envcoder_bench.run.folder.run_folder import RunFolder", 1),
        ("envcoder_bench.core.noise", "from envcoder_bench import __version__, torch_utils", 0),
        ("envcoder_bench.env.dispatch", "from envcoder_bench.core import noise, stream\nimport torch", 0),
        ("envcoder_bench.env.dispatch", "import mujoco\nimport openai.types\nfrom mujoco.batch import Batch", 3),
        ("envcoder_bench.sim.mujoco_cpu", "import mujoco", 0),
        ("envcoder_bench.cli.eval_shapers", "from envcoder_bench.search import prompt", 0),
        ("envcoder_bench.run.folder.run_folder", "from envcoder_bench.cli.command_line import command", 1),
    ],
)
def test_layer_check_detects_faults(module, text, count):
    assert len(list(faults(module, text))) == count
