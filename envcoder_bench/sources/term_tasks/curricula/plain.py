"""Which curricula are plain: functions that do nothing but set numbers in configs of commands and terms.

The groups of a block can share its commands and terms only if a curriculum changes nothing else, and a call can be left
out only if it is known to do nothing. Both are read from the code: what is not known is called, for a group alone.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

COUNTER = "common_step_counter"
_READING = {"get_term", "get_term_cfg"}  # of managers
_OF_TORCH = {
    *("abs", "all", "any", "as_tensor", "clamp", "clip", "exp", "full", "lerp", "logical_and", "max", "maximum"),
    *("mean", "min", "minimum", "norm", "ones", "sqrt", "square", "stack", "sum", "tensor", "where", "zeros"),
}
_PURE = {"abs", "amax", "amin", "clamp", "clip", "float", "item", "max", "mean", "min", "norm", "sum", "tolist"}
_BUILTINS = {"abs": abs, "float": float, "int": int, "len": len, "list": list, "max": max, "min": min, "tuple": tuple}
_CONFIG, _TERM, _VALUE = "config", "term", "value"  # what an expression is: a config of a term, a term, or else


class _Unknown(Exception):
    """Raised by code whose effects are not known."""


@dataclass(frozen=True)
class Plain:
    """What is known of a plain curriculum.

    Attributes:
        period: expression of the steps between two calls that may set something; None: each call may.
        env: the name of the function's first argument.
        defaults: the default values of its arguments.
    """

    period: types.CodeType | None
    env: str
    defaults: Mapping[str, Any]

    def may_act(self, steps: int, env: Any, params: Mapping[str, Any]) -> bool:
        """Return whether a call may set something when the counter of steps is ``steps``."""
        if self.period is None:
            return True
        period = eval(self.period, {}, {**self.defaults, **params, self.env: env})
        return not (isinstance(period, (int, float)) and period > 0) or steps % period == 0


@functools.lru_cache(maxsize=256)
def plain(function: Callable[..., Any]) -> Plain | None:
    """Return what is known of a curriculum's function; None if it may do anything else than set numbers of configs."""
    try:
        if not isinstance(function, types.FunctionType) or function.__closure__ or hasattr(function, "__wrapped__"):
            return None
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list or not tree.args.args:
            return None
        return _Reader(function, tree).read()
    except (_Unknown, OSError, TypeError, SyntaxError, ValueError):
        return None


class _Reader:
    """Reads the code of a function. Raises _Unknown where its effects are not known."""

    def __init__(self, function: types.FunctionType, tree: ast.FunctionDef) -> None:
        self._function, self._tree = function, tree
        parameters = inspect.signature(function).parameters
        self._env = next(iter(parameters))
        self._kinds = dict.fromkeys(parameters, _VALUE)  # of arguments and local names
        self._periods: set[str] = set()
        self._always = False  # whether something is set outside of ``if counter % period == 0``
        self._defaults = {key: x.default for key, x in parameters.items() if x.default is not x.empty}

    def read(self) -> Plain:
        for statement in self._tree.body:
            self._statement(statement, None)
        period = None
        if not self._always and len(self._periods) == 1:
            period = compile(ast.parse(self._periods.pop(), mode="eval"), self._function.__name__, "eval")
        return Plain(period, self._env, self._defaults)

    def _statement(self, node: ast.stmt, period: str | None) -> None:
        match node:
            case ast.Pass() | ast.Return(value=None) | ast.Expr(value=ast.Constant()):
                pass
            case ast.Return(value=value) if value is not None:
                self._kind(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._name(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self._name(name, value)
            case ast.Assign(targets=[target], value=value):
                self._sets(target, value, period)
            case ast.AugAssign(target=ast.Attribute() | ast.Subscript() as target, value=value):
                self._sets(target, value, period)
            case ast.If():
                self._kind(node.test)
                inner = self._period(node.test) if period is None else period
                for statement in node.body:
                    self._statement(statement, inner)
                for statement in node.orelse:
                    self._statement(statement, period)
            case _:
                raise _Unknown

    def _name(self, name: str, value: ast.expr) -> None:
        """Note what a local name is, which is the same in all branches."""
        if self._kinds.setdefault(name, kind := self._kind(value)) != kind:
            raise _Unknown

    def _sets(self, target: ast.expr, value: ast.expr, period: str | None) -> None:
        """Note that a number of a config is set."""
        self._kind(value)
        if not isinstance(target, (ast.Attribute, ast.Subscript)) or self._kind(target.value) != _CONFIG:
            raise _Unknown
        if isinstance(target, ast.Attribute) and target.attr == "func":
            raise _Unknown
        if period is None:
            self._always = True
        else:
            self._periods.add(period)

    def _period(self, test: ast.expr) -> str | None:
        """Return the text of ``period`` in ``env.common_step_counter % period == 0``."""
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        for part in parts:
            match part:
                case ast.Compare(
                    left=ast.BinOp(left=ast.Attribute(value=ast.Name(id=name), attr=attribute), op=ast.Mod(), right=x),
                    ops=[ast.Eq()],
                    comparators=[ast.Constant(value=0)],
                ) if name == self._env and attribute == COUNTER and self._is_fixed(x):
                    return ast.unparse(x)
        return None

    def _is_fixed(self, node: ast.expr) -> bool:
        """Return whether an expression is the same for all groups of a block, and calls nothing.

        It reads arguments, and attributes of the environment itself: what these hold may be of a group.
        """
        attributes = [x for x in ast.walk(node) if isinstance(x, ast.Attribute)]
        if any(not isinstance(x.value, ast.Name) or x.value.id != self._env for x in attributes):
            return False
        names = [x.id for x in ast.walk(node) if isinstance(x, ast.Name)]
        allowed = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.operator, ast.expr_context)
        arguments = {arg.arg for arg in (*self._tree.args.args, *self._tree.args.kwonlyargs)}
        assigned = {x.id for x in ast.walk(self._tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        return all(isinstance(x, allowed) for x in ast.walk(node)) and set(names) <= arguments - assigned

    def _kind(self, node: ast.expr) -> str:
        """Return what an expression is, which must have no effect."""
        match node:
            case ast.Constant():
                return _VALUE
            case ast.Name(id=name):
                return self._kinds[name] if name in self._kinds else self._global(name)
            case ast.Attribute(value=value, attr=attribute):
                kind = self._kind(value)
                if attribute == "func":
                    return _VALUE
                return _CONFIG if kind == _CONFIG or (kind == _TERM and attribute == "cfg") else _VALUE
            case ast.Subscript(value=value, slice=index):
                self._kind(index)
                return self._kind(value)
            case ast.Call():
                return self._call(node)
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.BoolOp()
                | ast.Compare()
                | ast.IfExp()
                | ast.Tuple()
                | ast.List()
                | ast.Dict()
                | ast.Slice()
                | ast.JoinedStr()
                | ast.FormattedValue()
            ):
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._kind(child)
                return _VALUE
        raise _Unknown

    def _call(self, node: ast.Call) -> str:
        for value in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._kind(value)
        match node.func:
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if "torch" not in self._kinds and self._global(
                "torch"
            ):
                if name not in _OF_TORCH or any(keyword.arg in (None, "out") for keyword in node.keywords):
                    raise _Unknown
                return _VALUE
            case ast.Attribute(value=ast.Name(id="math")) if "math" not in self._kinds and self._global("math"):
                return _VALUE
            case ast.Attribute(value=value, attr=name) if name in _READING:
                self._kind(value)
                return _CONFIG if name == "get_term_cfg" else _TERM
            case ast.Attribute(value=value, attr=name) if name in _PURE:
                self._kind(value)
                return _VALUE
            case ast.Name(id=name) if name in _BUILTINS and name not in self._kinds:
                if self._function.__globals__.get(name, _BUILTINS[name]) is _BUILTINS[name]:
                    return _VALUE
        raise _Unknown

    def _global(self, name: str) -> str:
        """Return what a global name is: a constant, or torch or math."""
        value = self._function.__globals__.get(name)
        if value is torch or value is math or isinstance(value, (int, float, str)):
            return _VALUE
        raise _Unknown
