"""What the source of a function tells without running it: does it draw random numbers, does it keep a memory.

Both questions are answered conservatively, for the function and everything at the file's top level that it reaches.
A wrong yes costs speed alone (the function is run with seeded generators and outside CUDA graphs).
"""
from __future__ import annotations

import ast
from typing import Callable, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple, Union

# drawn from the group's stream (random_calls)
_FROM_STREAM = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "normal", "normal_", "uniform", "uniform_",
    "bernoulli", "bernoulli_", "multinomial", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_",
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "gumbel_softmax", "Dropout",
}  # fmt: skip
# drawn from a generator
_RANDOM = {
    "poisson", "binomial", "rrelu", "sample", "rsample", "shuffle", "choice", "choices", "seed", "manual_seed",
    "manual_seed_all", "default_generator", "Generator", "RReLU",
}  # fmt: skip
_OPAQUE = {
    "getattr", "eval", "exec", "compile", "globals", "locals", "vars", "__import__", "import_module",
}  # fmt: skip
_SAFE_MODULES = {
    "__future__", "abc", "collections", "dataclasses", "enum", "envcoder_bench", "functools", "isaacgym",
    "isaacgymenvs", "itertools", "math", "numpy", "operator", "torch", "typing", "typing_extensions",
}  # fmt: skip
_CHANGERS = {
    "append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "popitem", "clear", "update",
    "setdefault", "add", "discard", "sort", "reverse", "copy_", "__setitem__", "send",
}  # fmt: skip
_SETTERS = {
    "set_default_dtype", "set_default_device", "set_default_tensor_type", "set_num_threads", "set_num_interop_threads",
    "set_flush_denormal", "use_deterministic_algorithms", "set_float32_matmul_precision",
}  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]


class Scan:
    """Questions about the functions of one parsed file; ``helpers`` are names that draw from the group's stream."""

    def __init__(self, tree: ast.Module, helpers: FrozenSet[str] = frozenset()) -> None:
        self.tree, self.helpers = tree, helpers
        self._walked: Dict[ast.AST, List[ast.AST]] = {}
        self._memories: Dict[ast.AST, List[int]] = {}
        self.definitions: Dict[str, List[ast.stmt]] = {}
        for statement in _top_level(tree.body):
            for name in _bound_names(statement):
                self.definitions.setdefault(name, []).append(statement)
        imports = (ast.Import, ast.ImportFrom)
        self.modules = {"torch", "math", "np"}  # given, also if the file does not import them
        self.modules.update(name for name, nodes in self.definitions.items() if isinstance(nodes[-1], imports))

    def setter(self) -> Optional[Tuple[int, str]]:
        """The first use of a function that changes torch for the whole process: (line, name)."""
        inside = [x for statement in self.tree.body for x in self._walk(statement)]
        found = [(x.lineno, x.attr) for x in inside if isinstance(x, ast.Attribute) and x.attr in _SETTERS]
        found += [(x.lineno, x.id) for x in inside if isinstance(x, ast.Name) and x.id in _SETTERS]
        return min(found, default=None)

    def line(self, name: str) -> int:
        """The line that defines a top-level name; 1 if none is to be seen."""
        return self.definitions[name][-1].lineno if name in self.definitions else 1

    def random_line(self, name: str) -> Optional[int]:
        """The first line that may draw random numbers, among all that function ``name`` reaches."""
        return self._first_line(name, self._sounds_random)

    def generator_line(self, name: str) -> Optional[int]:
        """The first line that may draw them from a generator: what random_calls cannot draw from the stream."""
        return self._first_line(name, lambda word: word not in _FROM_STREAM and self._sounds_random(word))

    def _first_line(self, name: str, sounds_random: Callable[[str], bool]) -> Optional[int]:
        reached = self._reached(name)
        inside = [x for node in reached for x in self._walk(node)]
        local = {x.id for x in inside if isinstance(x, ast.Name) and _stored(x)}
        local.update(x.arg for x in inside if isinstance(x, ast.arg))
        known = local | set(self.definitions)
        lines = [getattr(x, "lineno", 1) for x in inside if self._is_random(x, known, sounds_random)]
        return min(lines, default=None)

    def memory_line(self, name: str) -> Optional[int]:
        """The first line that may keep something for the next call, among all that function ``name`` reaches."""
        reached = self._reached(name)
        for node in reached:
            if node not in self._memories:
                self._memories[node] = list(self._memory(node, set(), False))
        return min((line for node in reached for line in self._memories[node]), default=None)

    def _walk(self, node: ast.AST) -> List[ast.AST]:
        """All nodes within ``node``, found once."""
        if node not in self._walked:
            self._walked[node] = list(ast.walk(node))
        return self._walked[node]

    def _reached(self, name: str) -> List[ast.stmt]:
        if name not in self.definitions:  # defined by other means than a def or an assignment: look everywhere
            return list(self.tree.body)
        reached: List[ast.stmt] = []
        todo = list(self.definitions[name])
        while todo:
            node = todo.pop()
            if node not in reached:
                reached.append(node)
                names = {x.id for x in self._walk(node) if isinstance(x, ast.Name)}
                todo += [other for known in names & set(self.definitions) for other in self.definitions[known]]
        return reached

    def _is_random(self, node: ast.AST, known: Set[str], sounds_random: Callable[[str], bool]) -> bool:
        if isinstance(node, ast.Attribute):
            return sounds_random(node.attr)
        if isinstance(node, ast.Name):
            return node.id in _OPAQUE or (node.id not in known and sounds_random(node.id))
        if isinstance(node, ast.Import):
            return any(not _safe_module(alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            return not _safe_module(node.module or "") or any(sounds_random(a.name) for a in node.names)
        return False

    def _sounds_random(self, name: str) -> bool:
        return name not in self.helpers and (name in _RANDOM or name in _FROM_STREAM or "rand" in name.lower())

    def _memory(self, node: ast.AST, own: Set[str], in_class: bool) -> Iterator[int]:
        """Lines within ``node`` that write to what outlives the call: anything but the function's ``own`` names."""
        todo = [(node, in_class)]
        while todo:
            node, in_class = todo.pop()
            if isinstance(node, _FUNCTIONS):
                yield from self._memory_of_function(node, in_class)
                continue
            stores = own and isinstance(node, (ast.Attribute, ast.Subscript)) and _stored(node)
            if isinstance(node, (ast.Global, ast.Nonlocal)) or (stores and _root(node) not in own):
                yield node.lineno  # type: ignore[attr-defined]
            elif own and isinstance(node, ast.Call):
                callee = node.func
                if isinstance(callee, ast.Attribute) and _changes(callee.attr):
                    root = _root(callee)
                    if root and root not in own and root not in self.modules:
                        yield node.lineno
                elif _name(callee) in ("next", "setattr") and node.args and _root(node.args[0]) not in own:
                    yield node.lineno
            todo += [(child, isinstance(node, ast.ClassDef)) for child in ast.iter_child_nodes(node)]

    def _memory_of_function(self, node: Function, in_class: bool) -> Iterator[int]:
        caches = [x for decorator in getattr(node, "decorator_list", []) for x in ast.walk(decorator)]
        yield from (node.lineno for x in caches if _name(x) in ("cache", "lru_cache", "cached_property"))
        defaults = [*node.args.defaults, *node.args.kw_defaults]  # made once, shared by all calls
        yield from (x.lineno for x in defaults if isinstance(x, (ast.List, ast.Dict, ast.Set)))
        own = _own_names(node, self._walk(node))
        if in_class and getattr(node, "name", "") != "__init__":
            own.discard("self")
        for child in node.body if isinstance(node.body, list) else [node.body]:
            yield from self._memory(child, own, in_class=False)


def _top_level(body: List[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the file is loaded, those within if, try, with and loops included."""
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for child in ast.iter_child_nodes(statement):
                inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
                yield from _top_level([x for x in inner if isinstance(x, ast.stmt)])


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    elif not isinstance(statement, (ast.If, ast.Try)):  # their parts are statements of their own
        yield from (x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and _stored(x))


def _own_names(node: Function, inside: List[ast.AST]) -> Set[str]:
    """Parameters and names that the function itself assigns; never empty, so that it tells a body from a file.

    ``inside`` are all nodes within it.
    """
    a = node.args
    parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
    assigned = {x.id for x in inside if isinstance(x, ast.Name) and _stored(x)}
    shared = {name for x in inside if isinstance(x, (ast.Global, ast.Nonlocal)) for name in x.names}
    return ({x.arg for x in parameters} | assigned | {"<body>"}) - shared


def _stored(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def _root(node: ast.AST) -> str:
    """``a`` of ``a.b[c].d``; an empty string where that is no name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _changes(method: str) -> bool:
    return method in _CHANGERS or (method.endswith("_") and not method.endswith("__"))


def _safe_module(name: str) -> bool:
    parts = name.split(".")
    return parts[0] in _SAFE_MODULES and not {"random", "distributions"} & set(parts)
