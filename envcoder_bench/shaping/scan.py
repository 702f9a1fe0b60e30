"""Static analysis of candidate functions: whether they draw random numbers, and whether they are stateful.

Both answers are conservative; they cover the function and everything at the file's top level that it reaches. A wrong
yes costs only speed (the function runs with seeded generators and outside CUDA graphs).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from envcoder_bench.shaping.trees import (
    FUNCTIONS,
    Function,
    bound_names,
    calls,
    children,
    name_of,
    names_of,
    own_names,
    root_of,
    run_at_load,
    stored,
    top_level,
    walk,
)

# drawn from the group's stream (random_calls)
_FROM_STREAM = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "normal", "normal_", "uniform", "uniform_",
    "bernoulli", "bernoulli_", "multinomial", "exponential_", "geometric_", "cauchy_", "log_normal_", "random_",
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "gumbel_softmax", "Dropout", "sample", "rsample",
    "distributions",
}  # fmt: skip
# drawn from a generator
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
_CHANGERS = {
    "append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "popitem", "clear", "update",
    "setdefault", "add", "discard", "sort", "reverse", "copy_", "__setitem__", "send",
}  # fmt: skip
# with these, objects may be created without naming the class; members of other bases, such as Enum, are created with it
_MAKERS = {"eval", "exec", "compile", "globals", "locals", "__import__", "__init_subclass__", "__set_name__"}
_PLAIN_BASES = {"object", "ABC", "Generic", "NamedTuple", "Protocol"}
_PLAIN_DECORATORS = {"dataclass", "final", "runtime_checkable", "total_ordering", "script"}
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
        self._memories: dict[ast.AST, list[int]] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        for statement in top_level(tree.body):
            for name in bound_names(statement):
                self.definitions.setdefault(name, []).append(statement)
        imports = (ast.Import, ast.ImportFrom)
        self.modules = {"torch", "math", "np"}  # available even if the file does not import them
        self.modules.update(name for name, nodes in self.definitions.items() if isinstance(nodes[-1], imports))
        self._variables = {  # and classes, which have attributes
            name for name, nodes in self.definitions.items() if not isinstance(nodes[-1], (*imports, *FUNCTIONS))
        }
        self._at_load = self._reached_from(names_of(run_at_load(tree.body)))
        self._opaque = any(name_of(x) in _MAKERS or getattr(x, "name", "") in _MAKERS for x in self._walk(tree))
        self._shared = {name for node in self._walk(tree) for name in self._shared_attributes(node)}

    def setter(self) -> tuple[int, str] | None:
        """The first use of a function that changes torch for the whole process: (line, name)."""
        inside = self._walk(self.tree)
        found = [(x.lineno, x.attr) for x in inside if isinstance(x, ast.Attribute) and x.attr in _SETTERS]
        found += [(x.lineno, x.id) for x in inside if isinstance(x, ast.Name) and x.id in _SETTERS]
        return min(found, default=None)

    def line(self, name: str) -> int:
        """Return the line that defines a top-level name; 1 if there is none."""
        return self.definitions[name][-1].lineno if name in self.definitions else 1

    def random_line(self, name: str) -> int | None:
        """Return the first line that may draw random numbers in the code that function ``name`` reaches."""
        return self._first_line(name, self._sounds_random)

    def generator_line(self, name: str) -> int | None:
        """Return the first line that may draw from a generator, by functions that random_calls does not cover."""
        return self._first_line(name, lambda word: word not in _FROM_STREAM and self._sounds_random(word))

    def _first_line(self, name: str, sounds_random: Callable[[str], bool]) -> int | None:
        reached = self._reached(name)
        inside = [x for node in reached for x in self._walk(node)]
        local = {x.id for x in inside if isinstance(x, ast.Name) and stored(x)}
        local.update(x.arg for x in inside if isinstance(x, ast.arg))
        known = local | set(self.definitions)
        plain = {id(x.func) for x in inside if isinstance(x, ast.Call) and self._is_plain(x, known, sounds_random)}
        lines = [
            getattr(x, "lineno", 1) for x in inside if id(x) not in plain and self._is_random(x, known, sounds_random)
        ]
        return min(lines, default=None)

    def stateful_line(self, name: str) -> int | None:
        """Return the first line that may store something for the next call, in the code that ``name`` reaches."""
        reached = self._reached(name)
        for node in reached:
            if node not in self._memories:
                own = name in self.definitions and self._is_made_by_calls(node)
                self._memories[node] = list(self._memory(node, _Scope(set(), own)))
        return min((line for node in reached for line in self._memories[node]), default=None)

    def _is_made_by_calls(self, node: ast.stmt) -> bool:
        """Return whether no code that runs at load time creates objects of a class, or calls a function."""
        if self._opaque or node in self._at_load:
            return False
        if not isinstance(node, ast.ClassDef):
            return True
        if node.keywords or {name_of(getattr(x, "func", x)) for x in node.decorator_list} - _PLAIN_DECORATORS:
            return False
        bases = {name_of(getattr(x, "value", x) if isinstance(x, ast.Subscript) else x) for x in node.bases}
        own = [self.definitions[name][-1] for name in bases & set(self.definitions)]
        classes = {x.name for x in own if isinstance(x, ast.ClassDef) and x is not node and self._is_made_by_calls(x)}
        return not bases - classes - _PLAIN_BASES

    def _walk(self, node: ast.AST) -> list[ast.AST]:
        """Return all nodes within ``node``, cached; those of the file statement by statement."""
        if node not in self._walked:
            parts = [self._walk(own) for own in self.tree.body] if node is self.tree else [walk(node)]
            self._walked[node] = [x for part in parts for x in part]
        return self._walked[node]

    def _reached(self, name: str) -> list[ast.stmt]:
        if name not in self.definitions:  # not defined by a def or an assignment: search the whole file
            return list(self.tree.body)
        return self._reached_from({name})

    def _reached_from(self, names: set[str]) -> list[ast.stmt]:
        """Return the definitions of the names, and of the names these use."""
        reached: list[ast.stmt] = []
        todo = [node for name in names & set(self.definitions) for node in self.definitions[name]]
        while todo:
            node = todo.pop()
            if node not in reached:
                reached.append(node)
                found = {x.id for x in self._walk(node) if isinstance(x, ast.Name)}
                todo += [other for known in found & set(self.definitions) for other in self.definitions[known]]
        return reached

    def _is_random(self, node: ast.AST, known: set[str], sounds_random: Callable[[str], bool]) -> bool:
        if isinstance(node, ast.Attribute):
            return sounds_random(node.attr)
        if isinstance(node, ast.Name):
            return node.id not in known and (node.id in _OPAQUE or sounds_random(node.id))
        if isinstance(node, ast.Import):
            return any(self._may_draw(alias.name, node, sounds_random) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            drawn = any(sounds_random(alias.name) for alias in node.names)
            return drawn or self._may_draw(node.module or "", node, sounds_random)
        return False

    def _may_draw(self, module: str, node: ast.stmt, sounds_random: Callable[[str], bool]) -> bool:
        """Return whether an import loads a module that may draw; a module that is not loaded failed to import."""
        root, *inner = module.split(".")
        if root in _SAFE_MODULES:
            return any(sounds_random(part) for part in inner)
        tried = any(node in nodes for nodes in self.definitions.values())  # at the top level, which has been executed
        return not (tried and self._loaded is not None and root not in self._loaded)

    def _is_plain(self, node: ast.Call, known: set[str], sounds_random: Callable[[str], bool]) -> bool:
        """Return whether this is ``vars(x)``, or ``getattr(x, name)`` of an object or of a name that does not draw."""
        root = root_of(node.args[0]) if node.args else ""
        if not (isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars") and root):
            return False
        name = node.args[1] if len(node.args) > 1 else None
        if isinstance(name, ast.Constant):
            return not sounds_random(str(name.value))
        return root in known and root not in self.modules

    def _sounds_random(self, name: str) -> bool:
        return name not in self.helpers and (name in _RANDOM or name in _FROM_STREAM or "rand" in name.lower())

    def _memory(self, node: ast.AST, scope: _Scope) -> Iterator[int]:
        """Yield lines within ``node`` that write to objects that outlive the call, all but the function's own names."""
        todo = [(node, scope.in_class)]
        own = scope.own
        while todo:
            node, in_class = todo.pop()
            if node.__class__ in (ast.Name, ast.Constant):  # half of all nodes
                continue
            if isinstance(node, FUNCTIONS):
                yield from self._memory_of_function(node, scope._replace(in_class=in_class))
                continue
            stores = own and isinstance(node, (ast.Attribute, ast.Subscript)) and stored(node)
            if isinstance(node, ast.Global) or (isinstance(node, ast.Nonlocal) and not set(node.names) <= own):
                yield node.lineno
            elif stores and not self._is_own(node, own):
                yield node.lineno  # type: ignore[attr-defined]
            elif own and isinstance(node, ast.Call):
                callee = node.func
                if isinstance(callee, ast.Attribute) and _changes(callee.attr):
                    root = root_of(callee)
                    if root and root not in self.modules and not self._is_own(callee, own):
                        yield node.lineno
                elif name_of(callee) in ("next", "setattr") and node.args and root_of(node.args[0]) not in own:
                    yield node.lineno
            todo += [(child, isinstance(node, ast.ClassDef)) for child in children(node)]

    def _memory_of_function(self, node: Function, scope: _Scope) -> Iterator[int]:
        decorators = [name_of(x) for decorator in getattr(node, "decorator_list", []) for x in walk(decorator)]
        kept = {"cache", "lru_cache"} | (set() if scope.in_class and scope.per_call else {"cached_property"})
        if kept & set(decorators):
            yield node.lineno
        defaults = [*node.args.defaults, *node.args.kw_defaults]  # created once and shared by all calls
        yield from (x.lineno for x in defaults if isinstance(x, (ast.List, ast.Dict, ast.Set)))
        own = own_names(node, self._walk(node)) - self._aliases(node)
        if scope.per_call:  # the variables of an inner function end with the call of the outer one
            own |= scope.own
        made = getattr(node, "name", "") in ("__init__", "__post_init__")
        if scope.in_class and ("classmethod" in decorators or not (made or scope.per_call)):
            own -= {x.arg for x in [*node.args.posonlyargs, *node.args.args][:1]}
        for child in node.body if isinstance(node.body, list) else [node.body]:
            yield from self._memory(child, _Scope(own, scope.per_call))

    def _is_own(self, node: ast.AST, own: set[str]) -> bool:
        """Return whether in a write to ``a.b[c].d`` ``a`` is the function's own and ``b`` not a shared attribute."""
        attributes: set[str] = set()
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
            attributes.update([node.attr] if isinstance(node, ast.Attribute) else [])
        return isinstance(node, ast.Name) and node.id in own and not attributes & self._shared

    def _aliases(self, function: Function) -> set[str]:
        """Return the names that a function binds to variables and classes of the file, or to parts of them."""
        found: set[str] = set()
        for node in self._walk(function):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and self._is_variable(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {name for target in targets for name in names_of([target])}
            elif isinstance(node, (ast.For, ast.comprehension)) and names_of([node.iter]) & self._variables:
                found |= names_of([node.target])
        return found

    def _is_variable(self, node: ast.AST | None) -> bool:
        """Return whether an expression is a variable or class of the file, or a part of one."""
        if isinstance(node, ast.IfExp):
            return self._is_variable(node.body) or self._is_variable(node.orelse)
        return root_of(node) in self._variables if node is not None else False

    def _shared_attributes(self, node: ast.AST) -> Iterator[str]:
        """Yield attributes that objects of a class share, or that refer to variables of the file, and are mutable."""
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
                if value is not None and not isinstance(value, ast.Constant) and not _is_made_anew(value):
                    yield from bound_names(statement)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and self._is_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.attr for target in targets if isinstance(target, ast.Attribute))


class _Scope(NamedTuple):
    """The scope of a statement.

    Attributes:
        own: local names of the function around it, whose objects end with the call; empty outside of functions.
        per_call: whether no code that runs at load time names the top-level definition around it, so that its objects
            and inner functions are created by calls, and end with them.
    """

    own: set[str]
    per_call: bool
    in_class: bool = False


def _is_made_anew(value: ast.AST) -> bool:
    """Return whether this is ``field(default_factory=...)``, which creates a value per object."""
    return calls(value, "field") and any(x.arg == "default_factory" for x in value.keywords)  # type: ignore[attr-defined]


def _changes(method: str) -> bool:
    return method in _CHANGERS or (method.endswith("_") and not method.endswith("__"))
