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
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor

_REWARD = "rew_buf"
_SCALE = re.compile(r"scale|weight|coef|^w_", re.IGNORECASE)  # variables that do not name a term


@dataclass(frozen=True)
class Summands:
    """The terms of a reward.

    Attributes:
        namespace, function: the globals of the function that adds them, and its name.
        names: of the terms.
        compute: its copy, with the same parameters; returns the terms by name, with sign and scale.
    """

    namespace: dict[str, Any]
    function: str
    names: tuple[str, ...]
    compute: Callable[..., dict[str, Any]]

    @contextlib.contextmanager
    def noted(self, note: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Call ``note`` with the terms at each call of the function inside the block; with none if its copy raises."""
        original = self.namespace[self.function]

        def noting(*args: Any, **kwargs: Any) -> Any:
            # the function may write into its arguments
            copies = [x.clone() if isinstance(x, Tensor) else x for x in args]
            named = {key: x.clone() if isinstance(x, Tensor) else x for key, x in kwargs.items()}
            try:
                terms = self.compute(*copies, **named)
            except Exception:  # such as code for TorchScript alone
                terms = {}
            note(terms)
            return original(*args, **kwargs)

        self.namespace[self.function] = noting
        try:
            yield
        finally:
            self.namespace[self.function] = original


def find_summands(task: Any) -> Summands | None:
    """Return the terms of a task's reward; None if no function adds them up."""
    for cls in type(task).__mro__:
        methods = [x for x in vars(cls).values() if inspect.isfunction(x) and x.__module__ == cls.__module__]
        if not methods:
            continue
        file = Path(methods[0].__code__.co_filename)
        tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
        body = next((x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == cls.__name__), None)
        if body is None or not any(_is_reward(x) for x in ast.walk(body)):
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
        if len(sources) != 1:
            return None  # computed in another way, which overrides that of a base class
        ((name, position),) = sources
        return _summands(methods[0].__globals__, file, functions[name], position)
    return None


def _is_reward(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == _REWARD


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
    # lines that add to this variable, with what they add
    total, lines = value.id, dict[int, list[ast.expr]]()
    for k, line in enumerate(function.body):
        begins = isinstance(line, ast.Assign) and not _reads([line.value], total) and _is(line.targets[0], total)
        lines = {} if begins else lines
        terms = _added(line, total)
        if terms:
            lines[k] = terms
    if sum(map(len, lines.values())) < 2:
        return None
    local = {x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)} - {total}
    unused = "_terms_of_the_reward"
    body: list[ast.stmt] = [ast.parse(f"{unused} = {{}}").body[0]]
    names, counts = list[str](), Counter[str]()
    for k, line in enumerate(function.body[: max(lines) + 1]):
        for term in lines.get(k, []):
            name = _name(term, local, total)
            counts[name] += 1
            names.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
            body += ast.parse(f"{unused}[{names[-1]!r}] = {ast.unparse(term)}").body
        body.append(line)
    body += ast.parse(f"return {unused}").body
    # without its decorator, torch.jit.script, and the annotations that it needs
    copied = copy.deepcopy(function)
    copied.decorator_list, copied.returns, copied.body = [], None, body
    for argument in (*copied.args.posonlyargs, *copied.args.args, *copied.args.kwonlyargs):
        argument.annotation = None
    scope: dict[str, Any] = {}
    code = ast.fix_missing_locations(ast.Module([copied], []))
    exec(compile(code, str(file), "exec"), namespace, scope)
    return Summands(namespace, function.name, tuple(names), scope[function.name])


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
    """Return a name for a term: its first variable, else its first parameter that is no scale."""
    where = term.args[1] if isinstance(term, ast.Call) and _reads([term], total) else term  # not the condition
    variables = [x.id for x in ast.walk(where) if isinstance(x, ast.Name) and x.id not in (total, "torch")]
    called = {x.func.id for x in ast.walk(where) if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)}
    variables = [name for name in variables if name not in called]
    named = [name for name in variables if not _SCALE.search(name)]
    return ([name for name in named if name in local] + named + variables + ["constant"])[0]
