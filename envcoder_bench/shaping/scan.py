"""Static analysis of candidate functions: whether they draw random numbers.

The answer is conservative; it covers the function and everything at the file's top level that it reaches. A wrong yes
costs only speed (the function runs with seeded generators and outside CUDA graphs).
"""

from __future__ import annotations

import ast
import functools
import threading
import warnings
from collections.abc import Callable, Container, Iterator

MAX_CHARACTERS = 100_000  # longer texts are not parsed; their check refuses them, too
_PARSING = threading.Lock()  # all threads of the process share the filters of warnings
# functions that draw from the group's stream (random_calls)
_FROM_STREAM = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "normal", "normal_", "uniform", "uniform_",
    "bernoulli", "bernoulli_", "multinomial", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_",
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "gumbel_softmax", "Dropout", "sample", "rsample",
    "distributions",
}  # fmt: skip
# functions that draw from a generator
_RANDOM = {
    "poisson", "binomial", "rrelu", "shuffle", "choice", "choices", "seed", "manual_seed", "manual_seed_all",
    "default_generator", "Generator", "RReLU", "Beta", "Binomial", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma",
    "InverseGamma", "LKJCholesky", "NegativeBinomial", "Poisson", "StudentT", "VonMises", "Wishart",
}  # fmt: skip
_OPAQUE = {
    "getattr", "eval", "exec", "compile", "globals", "locals", "vars", "__import__", "import_module",
}  # fmt: skip
_SAFE_MODULES = {
    "__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum", "envcoder_bench",
    "functools", "heapq", "isaacgym", "isaacgymenvs", "itertools", "logging", "math", "numbers", "numpy", "operator",
    "string", "textwrap", "time", "torch", "types", "typing", "typing_extensions", "warnings",
}  # fmt: skip
_SHARED_MODULES = {"torch", "math", "numpy", "random", "builtins"}  # whose attributes all candidates read
_SETTERS = {
    "set_default_dtype", "set_default_device", "set_default_tensor_type", "set_num_threads", "set_num_interop_threads",
    "set_flush_denormal", "use_deterministic_algorithms", "set_float32_matmul_precision",
}  # fmt: skip


class Scan:
    """Static analysis of the functions of one parsed file.

    Args:
        helpers: names of functions that draw from the group's stream.
        loaded: the modules imported once the file has been loaded; None: unknown.
    """

    def __init__(
        self, tree: ast.Module, helpers: frozenset[str] = frozenset(), loaded: Container[str] | None = None
    ) -> None:
        self.tree, self.helpers, self._loaded = tree, helpers, loaded
        self._walked: dict[ast.AST, list[ast.AST]] = {}
        self._suspected: dict[str, tuple[list[ast.AST], list[ast.Call], set[str]]] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        for statement in top_level(tree.body):
            for name in bound_names(statement):
                self.definitions.setdefault(name, []).append(statement)
        imports = (ast.Import, ast.ImportFrom)
        self.modules = {"torch", "math", "np"}  # available even if the file does not import them
        self.modules.update(name for name, nodes in self.definitions.items() if isinstance(nodes[-1], imports))

    @functools.cached_property
    def setter(self) -> tuple[int, str] | None:
        """Return the first change of torch, or of another shared module, for the whole process: (line, name)."""
        nodes = self._walk(self.tree)
        shared = {"torch", "Tensor", "math", "np"} - self.definitions.keys()
        for name in self.modules & self.definitions.keys():
            node = self.definitions[name][-1]
            paths = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            paths += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            shared.update(name for path in paths if path.split(".")[0] in _SHARED_MODULES)
        uses = [(x.lineno, x.attr) for x in nodes if isinstance(x, ast.Attribute) and x.attr in _SETTERS]
        uses += [(x.lineno, x.id) for x in nodes if isinstance(x, ast.Name) and x.id in _SETTERS]
        sets = [x for x in nodes if isinstance(x, ast.Attribute) and stored(x) and root_of(x) in shared]
        uses += [(x.lineno, ast.unparse(x)) for x in sets]
        return min(uses, default=None)

    @functools.cached_property
    def imported(self) -> set[str]:
        """Return the full names of all that the file imports, modules or not."""
        nodes = self._walk(self.tree)
        names = {alias.name for x in nodes if isinstance(x, ast.Import) for alias in x.names}
        for x in nodes:
            if isinstance(x, ast.ImportFrom) and x.module and not x.level:
                names |= {x.module, *(f"{x.module}.{alias.name}" for alias in x.names)}
        return names

    def line(self, name: str) -> int:
        """Return the line that defines a top-level name; 1 for an unknown name."""
        return self.definitions[name][-1].lineno if name in self.definitions else 1

    def key_line(self, name: str, key: str) -> int:
        """Return the line of a key in the dict that a top-level name is bound to, or else of the name."""
        for node in self._walk(self.definitions[name][-1]) if name in self.definitions else ():
            if isinstance(node, ast.Constant) and node.value == key:
                return node.lineno
        return self.line(name)

    def random_line(self, name: str) -> int | None:
        """Return the first line that may draw random numbers in the code that function ``name`` reaches."""
        return self._first_line(name, self._sounds_random)

    def draws(self, name: str) -> bool:
        """Return whether function ``name`` may draw random numbers, also by helpers."""
        return self._first_line(name, _sounds_random) is not None

    def generator_line(self, name: str) -> int | None:
        """Return the first line that may draw from a generator, by functions that random_calls does not cover."""
        return self._first_line(name, lambda word: word not in _FROM_STREAM and self._sounds_random(word))

    def _first_line(self, name: str, sounds_random: Callable[[str], bool]) -> int | None:
        suspects, calls, bound = self._suspects(name)
        plain = {id(x.func) for x in calls if self._is_plain(x, bound, sounds_random)}
        lines = [
            getattr(x, "lineno", 1) for x in suspects if id(x) not in plain and self._is_random(x, bound, sounds_random)
        ]
        return min(lines, default=None)

    def _suspects(self, name: str) -> tuple[list[ast.AST], list[ast.Call], set[str]]:
        """Return all that may draw by any measure where function ``name`` reaches, the calls there, and bound names.

        Cached: a file is loaded for each of its groups, and each of its functions is asked for several measures.
        """
        if name not in self._suspected:
            inside = [x for node in self._reached(name) for x in self._walk(node)]
            local = {x.id for x in inside if isinstance(x, ast.Name) and stored(x)}
            local.update(x.arg for x in inside if isinstance(x, ast.arg))
            bound = local | set(self.definitions)
            imports = (ast.Import, ast.ImportFrom)
            suspects = [x for x in inside if isinstance(x, imports) or self._is_random(x, bound, _sounds_random)]
            self._suspected[name] = suspects, [x for x in inside if isinstance(x, ast.Call)], bound
        return self._suspected[name]

    def _walk(self, node: ast.AST) -> list[ast.AST]:
        """Return all nodes within ``node``, cached; those of the file statement by statement."""
        if node not in self._walked:
            inside = (x for statement in self.tree.body for x in self._walk(statement))
            self._walked[node] = list(inside if node is self.tree else ast.walk(node))
        return self._walked[node]

    def _reached(self, name: str) -> list[ast.stmt]:
        if name not in self.definitions:  # not defined by a def or an assignment: search the whole file
            return list(self.tree.body)
        return self._reached_from({name})

    def _reached_from(self, names: set[str]) -> list[ast.stmt]:
        """Return the definitions of the names, and of the names these use."""
        reached: dict[int, ast.stmt] = {}
        todo = [node for name in names & set(self.definitions) for node in self.definitions[name]]
        while todo:
            node = todo.pop()
            if id(node) not in reached:
                reached[id(node)] = node
                # each name once: many statements may bind it and read it
                names_used = {x.id for x in self._walk(node) if isinstance(x, ast.Name)} - names
                names = names | names_used
                todo += [other for name in names_used & set(self.definitions) for other in self.definitions[name]]
        return list(reached.values())

    def _is_random(self, node: ast.AST, bound: set[str], sounds_random: Callable[[str], bool]) -> bool:
        if isinstance(node, ast.Attribute):
            return sounds_random(node.attr)
        if isinstance(node, ast.Name):
            return node.id not in bound and (node.id in _OPAQUE or sounds_random(node.id))
        if isinstance(node, ast.Import):
            return any(self._may_draw(alias.name, node, sounds_random) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            drawn = any(sounds_random(alias.name) for alias in node.names)
            return drawn or self._may_draw(node.module or "", node, sounds_random)
        return False

    def _may_draw(self, module: str, node: ast.stmt, sounds_random: Callable[[str], bool]) -> bool:
        """Return whether an import loads a module that may draw; an import that failed loads none."""
        root, *inner = module.split(".")
        if root in _SAFE_MODULES:
            return any(sounds_random(part) for part in inner)
        tried = any(node in nodes for nodes in self.definitions.values())  # the top level has been executed
        return not (tried and self._loaded is not None and root not in self._loaded)

    def _is_plain(self, node: ast.Call, bound: set[str], sounds_random: Callable[[str], bool]) -> bool:
        """Return whether this is ``vars(x)``, or ``getattr(x, name)`` of an object or of a name that does not draw."""
        root = root_of(node.args[0]) if node.args else ""
        if not (isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars") and root):
            return False
        name = node.args[1] if len(node.args) > 1 else None
        if isinstance(name, ast.Constant):
            return not sounds_random(str(name.value))
        return root in bound and root not in self.modules

    def _sounds_random(self, name: str) -> bool:
        return name not in self.helpers and _sounds_random(name)


def _sounds_random(name: str) -> bool:
    return name in _RANDOM or name in _FROM_STREAM or "rand" in name.lower()


@functools.lru_cache(maxsize=4)  # a file is loaded, and then looked up among the traced ones
def parse(text: str) -> ast.Module:
    """Return the syntax tree of a file, which must not be changed. Raises as ``ast.parse``, without its warnings."""
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compile warns of invalid escapes, with the name of the file
        return ast.parse(text)


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the file is loaded, including those within if, try, with and loops."""
    left = body[::-1]  # no recursion: a chain of thousands of elif parses
    while left:
        statement = left.pop()
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner: list[ast.AST] = []
            for child in ast.iter_child_nodes(statement):
                inner += child.body if isinstance(child, (ast.ExceptHandler, ast.match_case)) else [child]
            left += [x for x in reversed(inner) if isinstance(x, ast.stmt)]


def bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif not isinstance(statement, (ast.If, ast.Try)):  # their parts are statements of their own
        yield from (x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and stored(x))


def stored(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def root_of(node: ast.AST) -> str:
    """Return ``a`` of ``a.b[c].d``; an empty string if it is not a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
