"""The terms of a reward that one function of a task adds up, as in most tasks of IsaacGymEnvs.

The task's line ``self.rew_buf[:], self.reset_buf[:] = compute_ant_reward(...)`` names the function. In it a line such
as ``total = a + b - scale * c`` has the terms, and lines such as ``total = torch.where(done, total + bonus, total)``
have further ones. A copy of the function, up to the last of these lines, returns them. The task's function stays as it
is.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

_REWARD, _TERMS = "rew_buf", "_terms_of_the_reward"
_DRAWS = re.compile(r"rand|normal_|bernoulli|multinomial|uniform_|exponential_|seed")
_SCALE = re.compile(r"scale|weight|coef|^w_", re.IGNORECASE)  # variables that do not name a term


@dataclass(frozen=True)
class Summands:
    """The terms of a reward.

    Attributes:
        namespace, function: the globals of the function that adds them, and its name.
        names: of the terms.
        compute: its copy, with the same parameters; returns the terms by name, with sign and scale.
        clipped: whether it clips their sum.
    """

    namespace: dict[str, Any]
    function: str
    names: tuple[str, ...]
    compute: Callable[..., dict[str, Any]]
    clipped: bool

    @contextlib.contextmanager
    def noted(self, note: Callable[[Callable[[], dict[str, Any]]], None]) -> Iterator[None]:
        """Call ``note`` at each call of the function inside the block, with what computes its terms."""
        original = self.namespace[self.function]

        def noting(*args: Any, **kwargs: Any) -> Any:
            # copies, because the function may write into its arguments
            note(lambda: self.compute(*_copied(list(args)), **_copied(kwargs)))
            return original(*args, **kwargs)

        self.namespace[self.function] = noting
        try:
            yield
        finally:
            self.namespace[self.function] = original


def find_summands(task: Any) -> Summands | None:
    """Return the terms of a task's reward; None if no function adds them up."""
    for method, file, tree, body in _classes(task):
        if body is None:
            return None
        if not any(_is_reward(x) for x in ast.walk(body)):
            continue
        # the reward comes from one function of the file, at one position of what it returns
        functions = {x.name: x for x in tree.body if isinstance(x, ast.FunctionDef)}
        sources: set[tuple[str, int]] = set()
        for line in ast.walk(body):
            if (
                isinstance(line, ast.Assign)
                and isinstance(line.value, ast.Call)
                and isinstance(line.value.func, ast.Name)
            ):
                targets = line.targets[0].elts if isinstance(line.targets[0], ast.Tuple) else line.targets
                positions = [k for k, x in enumerate(targets) if any(map(_is_reward, ast.walk(x)))]
                sources.update((line.value.func.id, k) for k in positions if line.value.func.id in functions)
        if len(sources) != 1 or any(map(_is_changed, ast.walk(body))):
            return None  # computed in another way, which overrides that of a base class
        ((name, position),) = sources
        return _summands(method.__globals__, file, functions[name], position)
    return None


def _classes(task: Any) -> Iterator[tuple[Any, Path, ast.Module, ast.ClassDef | None]]:
    """Yield a method of each of a task's classes, and its file with its tree and the class in it."""
    for cls in type(task).__mro__:
        methods = [x for x in vars(cls).values() if inspect.isfunction(x) and x.__module__ == cls.__module__]
        if methods:
            method = inspect.unwrap(methods[0])  # decorators are in other files
            file = Path(method.__code__.co_filename)
            tree = _tree_of(file.read_bytes()) if file.is_file() else ast.Module([], [])
            classes = (x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == cls.__name__)
            yield method, file, tree, next(classes, None)


@functools.lru_cache(maxsize=32)
def _tree_of(text: bytes) -> ast.Module:
    return ast.parse(text)


def clips_reward(task: Any) -> bool:
    """Return whether a task clips the reward that its methods add up; legged_gym's config says it."""
    config = getattr(getattr(getattr(task, "cfg", None), "rewards", None), "only_positive_rewards", None)
    if config is not None:
        return bool(config)
    return any(_clips_in(body) for *_, body in _classes(task) if body is not None)


@functools.lru_cache(maxsize=64)
def _clips_in(body: ast.ClassDef) -> bool:
    return any(_clips(x) and any(map(_is_reward, ast.walk(x))) for x in ast.walk(body))


def _clips(node: ast.AST) -> TypeGuard[ast.Call]:
    return any(_calls(node, name) for name in ("clip", "clamp", "clamp_min", "clamp_max", "clip_", "clamp_"))


def _copied(x: Any) -> Any:
    """Return a copy of tensors, numbers and containers of them. Raises TypeError for other objects."""
    if isinstance(x, Tensor):
        return x.clone()
    if isinstance(x, (list, tuple)):
        return type(x)(map(_copied, x))
    if isinstance(x, dict):
        return {key: _copied(value) for key, value in x.items()}
    if x is None or isinstance(x, (bool, int, float, str, torch.device)):
        return x
    raise TypeError(f"a {type(x).__name__}, which the function may change, cannot be copied")


def _is_reward(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == _REWARD


def _is_changed(node: ast.AST) -> bool:
    """Return whether a line changes a reward that a function has computed."""
    if isinstance(node, ast.AugAssign):
        return any(map(_is_reward, ast.walk(node.target)))
    if not isinstance(node, ast.Assign) or (isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)):
        return False
    written = any(_is_reward(x) for target in node.targets for x in ast.walk(target))
    return written and any(map(_is_reward, ast.walk(node.value)))


def _summands(namespace: dict[str, Any], file: Path, function: ast.FunctionDef, position: int) -> Summands | None:
    """Return the terms of the value at a position of what a function in a file returns."""
    last = function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    values = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    value = values[position] if position < len(values) else last
    if _calls(value, "detach") and isinstance(value.func, ast.Attribute):
        value = value.func.value
    if not isinstance(value, ast.Name):
        return None
    total = value.id
    if any(_may_not_run_twice(x) for x in ast.walk(function)):
        return None
    # the line that begins the sum, and whether each later line that changes it is understood
    first = max((k for k, line in enumerate(function.body) if _begins(line, total)), default=None)
    if first is None or not all(_is_understood(line, total) for line in function.body[first + 1 :]):
        return None
    local = {x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)} - {total}
    noting, body, needed = _Noting(total, local), function.body[:first], 0
    for line in function.body[first:]:
        before = len(noting.names)
        body += noting.lines(line)
        needed = len(body) if len(noting.names) > before else needed
    if len(noting.names) < 2:
        return None
    nothing = ", ".join(f"{name!r}: 0.0" for name in noting.names)  # the values of terms whose condition is not met
    body = [*ast.parse(f"{_TERMS} = {{{nothing}}}").body, *body[:needed], *ast.parse(f"return {_TERMS}").body]
    # without its decorator, torch.jit.script, and the annotations that it needs
    copied = copy.deepcopy(function)
    copied.decorator_list, copied.returns, copied.body = [], None, body
    for argument in (*copied.args.posonlyargs, *copied.args.args, *copied.args.kwonlyargs):
        argument.annotation = None
    scope: dict[str, Any] = {}
    code = ast.fix_missing_locations(ast.Module([copied], []))
    exec(compile(code, str(file), "exec"), namespace, scope)
    clipped = any(_clips(x) for line in function.body[first:] for x in ast.walk(line) if not _added(line, total))
    return Summands(namespace, function.name, tuple(noting.names), scope[function.name], clipped)


def _may_not_run_twice(node: ast.AST) -> bool:
    """Return whether a part of a function draws random numbers or writes what is not its own."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return isinstance(node, (ast.Global, ast.Nonlocal)) or _DRAWS.search(name) is not None


def _begins(line: ast.stmt, total: str) -> bool:
    return isinstance(line, ast.Assign) and _is(line.targets[0], total) and not _reads([line.value], total)


def _is_understood(line: ast.stmt, total: str) -> bool:
    """Return whether a line adds to a variable, bounds it, replaces it by something else in some states, or neither."""
    if isinstance(line, ast.If):
        return all(_is_understood(x, total) and not _begins(x, total) for x in (*line.body, *line.orelse))
    stored = [x for x in ast.walk(line) if isinstance(x, ast.Name) and x.id == total and isinstance(x.ctx, ast.Store)]
    into = [x for x in ast.walk(line) if isinstance(x, ast.Subscript) and isinstance(x.ctx, ast.Store)]
    called = [
        x for x in ast.walk(line) if isinstance(x, ast.Attribute) and _is(x.value, total) and x.attr.endswith("_")
    ]
    returned = [x for x in ast.walk(line) if isinstance(x, ast.Return) and x is not line]
    if called or returned or any(_reads([x.value], total) for x in into):
        return False
    if not stored or _added(line, total):
        return True
    if not isinstance(line, ast.Assign) or line.targets != stored or not isinstance(line.value, ast.Call):
        return False
    value = line.value
    if _clips(value):
        return _is(value.args[0], total) if value.args else False
    is_replaced = _calls(value, "where") and len(value.args) == 3 and _is(value.args[2], total)
    return is_replaced and not _uses(value.args[1], total)


def _uses(node: ast.AST, name: str) -> bool:
    """Return whether an expression depends on the values of a variable, not only on its shape as ``ones_like``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_like"):
        return any(_uses(x, name) for x in node.args[1:])
    return (isinstance(node, ast.Name) and node.id == name) or any(_uses(x, name) for x in ast.iter_child_nodes(node))


class _Noting:
    """Adds lines that note what each line adds to ``total``. Attributes: names, of the terms."""

    def __init__(self, total: str, local: set[str]) -> None:
        self._total, self._local = total, local
        self.names: list[str] = []

    def lines(self, line: ast.stmt) -> list[ast.stmt]:
        """Return a line, with those that note its terms before it."""
        if isinstance(line, ast.If):
            body, other = ([y for x in part for y in self.lines(x)] for part in (line.body, line.orelse))
            return [ast.If(line.test, body, other)]
        notes: list[ast.stmt] = []
        for term in _added(line, self._total):
            name = _name(term, self._local, self._total)
            taken = next(k for k in count(1) if (name if k == 1 else f"{name}_{k}") not in self.names)
            self.names.append(name if taken == 1 else f"{name}_{taken}")
            fresh = (
                "" if isinstance(term, (ast.BinOp, ast.UnaryOp, ast.Constant)) else "1.0 * "
            )  # not the variable itself
            notes += ast.parse(f"{_TERMS}[{self.names[-1]!r}] = {fresh}({ast.unparse(term)})").body
        return [*notes, line]


def _added(line: ast.stmt, total: str) -> list[ast.expr]:
    """Return what a line adds to a variable, or what it sums up in it; empty for another line."""
    if isinstance(line, ast.AugAssign) and isinstance(line.op, (ast.Add, ast.Sub)) and _is(line.target, total):
        return list(_leaves(line.value, isinstance(line.op, ast.Sub)))
    if not isinstance(line, ast.Assign) or len(line.targets) != 1 or not _is(line.targets[0], total):
        return []
    value, wrap = line.value, "{}"
    if _calls(value, "where") and len(value.args) == 3 and _is(value.args[2], total):
        # where(condition, total + bonus, total)
        zeros, condition = f"torch.zeros_like({total})", ast.unparse(value.args[0])
        value, wrap = value.args[1], f"torch.where({condition}, {zeros} + ({{}}), {zeros})"
    terms = [x for x in _leaves(value) if not _is(x, total)]
    others = len(list(_leaves(value))) - len(terms)
    if _reads(terms, total) or (others == 0) == _reads([line.value], total):  # clipped, or replaced in some states
        return []
    return [
        _parsed(wrap.format(ast.unparse(x))) for x in terms if not _calls(x, "zeros") and not _calls(x, "zeros_like")
    ]


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _calls(node: ast.AST, method: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _reads(nodes: list[ast.expr], name: str) -> bool:
    return any(isinstance(x, ast.Name) and x.id == name for node in nodes for x in ast.walk(node))


def _leaves(node: ast.expr, negative: bool = False) -> Iterator[ast.expr]:
    """Yield the summands of an expression, with their signs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _leaves(node.left, negative)
        yield from _leaves(node.right, negative ^ isinstance(node.op, ast.Sub))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from _leaves(node.operand, not negative)
    else:
        yield ast.UnaryOp(ast.USub(), node) if negative else node


def _name(term: ast.expr, local: set[str], total: str) -> str:
    """Return a name for a term: its first variable, else its first parameter that is not a scale."""
    where = term.args[1] if isinstance(term, ast.Call) and _reads([term], total) else term  # not the condition
    variables = [x.id for x in ast.walk(where) if isinstance(x, ast.Name) and x.id not in (total, "torch")]
    called = {x.func.id for x in ast.walk(where) if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)}
    variables = [name for name in variables if name not in called]
    named = [name for name in variables if not _SCALE.search(name)]
    return ([name for name in named if name in local] + named + variables + ["constant"])[0]
