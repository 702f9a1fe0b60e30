"""Imports follow the list of layers; simulators and clients of language models are imported only in theirs."""

import ast
import functools
from pathlib import Path

import pytest

import envcoder_bench
import isaacgym_mujoco
import mujoco_batches

PACKAGE = Path(envcoder_bench.__file__).parent
LAYERS = [
    *("cli", "score", "serve", "tools", "search", "grid", "stress", "export", "adapters", "video", "run", "report"),
    *("results", "jail"),
    *("trainers", "env", "compile", "shaping", "sources", "tasks", "terrain", "sim", "compat", "core"),
]
ENGINES = {"sim", "compat"}
HOLDS = {
    **{"mujoco": ENGINES, "mujoco_warp": ENGINES},
    **{"openai": {"search"}, "anthropic": {"search"}, "ray": {"run"}, "av": {"video"}},
}
FOR_CANDIDATES = {"torch_utils"}  # at the top because candidates import it; it uses core alone
MODULES = sorted(PACKAGE.rglob("*.py"))
FILES = {*MODULES}
# other distributions, below all layers
FACE, GROUND = (Path(str(package.__file__)).parent for package in (isaacgym_mujoco, mujoco_batches))
FACES = ("isaacgym_mujoco", "isaaclab_mujoco")
PACKAGES_MODULES = [path for path in sorted(FACE.parent.rglob("*.py")) if "tests" not in path.parts]
# the rooms of the ground, which sim/ is made of, too, and what each imports of the others
GROUND_ROOMS = {
    "engine": {"engine", "assets", "scene", "physics", "compat", "process"},
    "assets": {"assets", "scene", "compat"},
    "scene": {"scene"},
    "physics": {"physics", "compat", "process"},
    "compat": {"compat", "process"},
    "process": set(),
}
FACES_USERS = {face: PACKAGE / "sources" / face.replace("mujoco", "tasks") for face in FACES}  # which import them


@functools.cache
def layer(name):
    """The layer of a module, or of what is imported from one, by its dotted name."""
    first = name.split(".")[1] if "." in name else ""
    if (PACKAGE / first).is_dir() and first:
        return first
    command = (PACKAGE / f"{first}.py").exists() and first not in FOR_CANDIDATES
    return "cli" if command else "core"  # the rest is the package's version


STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)  # what statements are in


@functools.cache
def imported(text):
    """What a module's text imports when it runs, with line numbers; blocks for type checkers do not run."""
    return [*_imported(text)]


def _imported(text):
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
                is_module = PACKAGE.parent / f"{inner.replace('.', '/')}.py" in FILES or node.module == "envcoder_bench"
                yield inner if is_module else node.module, node.lineno
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS)]


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


@pytest.mark.parametrize("path", PACKAGES_MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_packages_need_nothing_above_them(path):
    names = [*imported(path.read_text(encoding="utf-8"))]
    assert not [name for name, _ in names if name.startswith("envcoder_bench")]
    if path.is_relative_to(GROUND):
        assert not [name for name, _ in names if name.startswith(FACES)]
        room = path.relative_to(GROUND).with_suffix("").parts[0]
        for name, line in names:
            package, _, inner = name.partition(".")
            if package == "mujoco_batches" and room in GROUND_ROOMS:
                below = inner.split(".")[0] in GROUND_ROOMS[room]
                assert below, f"line {line}: {room} imports {name}, which is above it"


def test_a_face_is_imported_by_its_source_of_tasks_alone():
    for face, user in FACES_USERS.items():
        others = [path for path in MODULES if not path.is_relative_to(user)]
        assert 100 < len(others) < len(MODULES)
        for path in others:
            assert not [name for name, _ in imported(path.read_text(encoding="utf-8")) if name.startswith(face)], path


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
