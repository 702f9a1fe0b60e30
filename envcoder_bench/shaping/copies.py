"""Candidates that teach nothing new: copies of others, copies up to small changes of numbers, and constant rewards.
Functions without effect are named.

All of it is read from the text, in which layout, comments, docstrings and names of local variables do not count. In a
reward, the order of terms and factors does not count either. A function that a candidate lacks is that of the baseline,
as in training: a file with the baseline's reward is a copy of the baseline.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.kinds import (
    ACTION_TYPES,
    ALIASES,
    KINDS,
    OBSERVATION,
    REWARD,
    SECTION_TYPES,
    SHAPER_TYPES,
    near_type,
)
from envcoder_bench.shaping.source import Source, UnsupportedCode, shaping_source

NEAR = 0.2  # largest relative change of a number of a near copy
OTHER = "change what it computes, not only its numbers"
_SIZES = {"shape", "device", "dtype", "ndim"}  # attributes that say nothing of a tensor's values
_SIZE_CALLS = {"ones_like", "zeros_like", "full_like", "empty_like", "size", "new_zeros", "new_ones", "new_full", "len"}

_DISPLAYS = (ast.List, ast.Tuple)
_SEQUENCES = (*_DISPLAYS, ast.ListComp, ast.JoinedStr)  # their sums have an order
_MAKERS = {"list", "tuple", "sorted"}  # functions that return sequences
_NOT_READ = ("annotation", "returns", "type_comment", "ctx", "kind")  # fields

Plain = tuple[str, tuple[float, ...]]  # code without numbers, and these
Term = tuple[float, tuple[Plain, ...]]  # a summand: its coefficient and factors
Signature = dict[str, Plain]  # each function by its name


@dataclass(frozen=True)
class Known:
    """The signatures of candidates and baselines by name, the first of equals alone."""

    signatures: dict[str, Signature]
    baseline: Signature
    types: tuple[str, ...]

    @classmethod
    def of(cls, texts: Mapping[str, str], baseline: str = "", types: Sequence[str] | None = None) -> Known:
        """Read texts by name. ``baseline`` is the text that fills in missing functions."""
        asked = tuple(types or SHAPER_TYPES)
        signatures = cls({}, _signature(baseline, asked) or {}, asked)
        for name, text in texts.items():
            signatures.add(name, text)
        return signatures

    def add(self, name: str, text: str) -> None:
        """Add a candidate, with which later ones are compared; a text that cannot be read is left out."""
        signature = _signature(text, self.types)
        if signature is not None:
            self.signatures[name] = {**self.baseline, **signature}

    def fault(self, name: str, text: str) -> Fault | None:
        """Return why a candidate teaches nothing new; None if it may."""
        signature = _signature(text, self.types)
        if not signature:
            return None
        line = constant_reward(text)
        if line:
            message = "the reward is the same in every state, so that nothing but longer episodes can be learned"
            return Fault(message, f"{name}.py", line, REWARD, remedy="reward what the task asks for")
        whole = {**self.baseline, **signature}
        equal, near = None, None
        for other, earlier in self.signatures.items():
            if other != name and (apart := _apart(whole, earlier)) is not None and apart <= NEAR:
                equal, near = (equal or other, near) if apart == 0.0 else (equal, near or other)
        if equal is not None:
            return Fault(f"is the same as {equal}", kind="duplicate", remedy="write another", twin=equal)
        if near is not None:
            message = f"is the same as {near} but for numbers, which differ by {100 * NEAR:.0f} % at most"
            return Fault(message, kind="duplicate", remedy=OTHER, twin=near)
        return None


def differing(first: str, second: str, baseline: str, types: Sequence[str] | None = None) -> set[str]:
    """Return the functions in which two candidates differ, numbers included; all if one cannot be read."""
    asked = tuple(types or SHAPER_TYPES)
    of_baseline = _signature(baseline, asked) or {}
    signatures = [_signature(text, asked) for text in (first, second)]
    if None in signatures:
        return {*asked}
    one, other = ({**of_baseline, **(signature or {})} for signature in signatures)
    return {name for name in {**one, **other} if one.get(name) != other.get(name)}


def _apart(first: Signature, second: Signature) -> float | None:
    """Return the largest relative difference of two candidates' numbers; None if their code differs."""
    if {name: code for name, (code, _) in first.items()} != {name: code for name, (code, _) in second.items()}:
        return None
    pairs = (pair for name, (_, numbers) in first.items() for pair in zip(numbers, second[name][1]))
    return max((abs(a - b) / max(abs(a), abs(b)) for a, b in pairs if a != b), default=0.0)


def _signature(text: str, types: tuple[str, ...]) -> Signature | None:
    """Return the signature of each function that a text defines; None if it cannot be read."""
    try:
        return _read(text, types)
    except (UnsupportedCode, RecursionError, OverflowError):
        return None


@functools.lru_cache(maxsize=512)  # each candidate of a run is compared with many others
def _read(text: str, types: tuple[str, ...]) -> Signature:
    # what it raises is not kept: whether the stack is deep enough depends on the caller
    source = shaping_source(text, types)
    return {type_: _code(source, names, type_ == REWARD) for type_, names in source.shapers(types).items()}


def _code(source: Source, names: Sequence[str], is_reward: bool) -> Plain:
    reachable = {name: source.definitions[name] for name in sorted(source.reachable(names))}
    statements = {
        name: ast.parse(source.code(statement))
        for name, statement in reachable.items()
        if not isinstance(statement, (ast.Import, ast.ImportFrom))
    }
    named = not is_reward or any(_reads_entry(x) for statement in statements.values() for x in ast.walk(statement))
    lists = _list_names(statements.values())
    return _join("", [_join(name, [_Reader(named, is_reward, lists).plain(x)]) for name, x in statements.items()])


def _list_names(statements: Iterable[ast.AST]) -> set[str]:
    """Return the names that may be those of sequences, or of functions that return some, anywhere in the statements."""
    names, bound = set(_MAKERS), [pair for statement in statements for pair in _bound(statement)]
    for _ in bound:  # a name may be that of another's value, whatever their order
        names |= (found := {name for name, value in bound if _may_be_list(value, names)} - names)
        if not found:
            break
    return names


def _bound(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield names with the expressions that they are bound to; a function's are those that it returns."""
    for x in ast.walk(tree):
        if isinstance(x, ast.FunctionDef):
            yield from ((x.name, y.value) for y in ast.walk(x) if isinstance(y, ast.Return) and y.value)
        elif isinstance(x, ast.Assign):
            yield from (pair for target in x.targets for pair in _unpacked(target, x.value))
        elif isinstance(x, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and x.value is not None:
            yield from _unpacked(x.target, x.value)
        elif isinstance(x, (ast.For, ast.comprehension)) and isinstance(x.iter, _DISPLAYS):
            yield from (pair for value in x.iter.elts for pair in _unpacked(x.target, value))


def _unpacked(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Starred):
        yield from _unpacked(target.value, ast.List([]))
    elif isinstance(target, _DISPLAYS):
        values = value.elts if isinstance(value, _DISPLAYS) else [value for x in target.elts if _is_starred(x)]
        exact = len(target.elts) == len(values) and not any(map(_is_starred, values))
        for k, each in enumerate(target.elts):
            for part in values[k : k + 1] if exact else values:
                yield from _unpacked(each, part)


def _is_starred(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred)


def _may_be_list(node: ast.AST, names: Container[str]) -> bool:
    """Return whether an expression is a sequence, or a sum, product or choice of some; ``names`` are of others."""
    if isinstance(node, ast.BinOp):
        return _may_be_list(node.left, names) or _may_be_list(node.right, names)
    if isinstance(node, ast.IfExp):
        return _may_be_list(node.body, names) or _may_be_list(node.orelse, names)
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(node, _SEQUENCES) or (isinstance(name, ast.Name) and name.id in names)


def _reads_entry(node: ast.AST) -> bool:
    """Return whether an expression may read or set an entry of a dict by its name, other than of the state."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("get", "pop")
    if not isinstance(node, ast.Subscript) or getattr(node.value, "id", "") == "state_dict":
        return False
    index = node.slice
    return isinstance(index, ast.Name) or (isinstance(index, ast.Constant) and isinstance(index.value, str))


def _join(mark: str, parts: Sequence[Plain]) -> Plain:
    """Return what parts make together: their code in brackets, and all their numbers in order."""
    return f"{mark}({' '.join(code for code, _ in parts)})", tuple(x for _, numbers in parts for x in numbers)


class _Reader:
    """Reads code without its numbers, and the numbers in order; docstrings and local names do not count.

    Every expression of a reward is a sum of products, each with a coefficient, 1 where none is written. Their order
    does not count, and the coefficient of a sum is that of its terms: ``1.1 * (a + b)`` is near ``b + a``. Other
    functions are read as they are written, because they may add lists, and so are sums and products of lists.

    Args:
        named: whether names of entries in dicts count; those of the components of a reward do not.
        lists: names of lists.
    """

    def __init__(self, named: bool, is_reward: bool, lists: Container[str]) -> None:
        self._named, self._is_reward, self._lists = named, is_reward, lists
        self._locals: dict[str, str] = {}
        self._in_index = False

    def plain(self, node: Any) -> Plain:
        """Return the code of a node, a list of nodes, or another value of a field."""
        if isinstance(node, list):
            return _join("", [self.plain(x) for x in node])
        if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return self._fields(node)
        return self._sum(self._terms(node))

    def _sum(self, terms: Sequence[Term]) -> Plain:
        products = [_join("", sorted(factors)) for _, factors in terms]
        # terms of equal code are in the order of their inner numbers, which say more of them than coefficients do
        return _join("+", sorted((code, (*numbers, x)) for (x, _), (code, numbers) in zip(terms, products)))

    def _terms(self, node: ast.expr) -> list[Term]:
        """Return the terms of a sum: their coefficients and factors."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and not self._in_index:
            return [(float(node.value), ())]  # type: ignore[arg-type]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return [(-x, factors) for x, factors in self._terms(node.operand)]
        if not (isinstance(node, ast.BinOp) and self._is_reward) or _may_be_list(node, self._lists):
            return [(1.0, (self._fields(node),))]
        if isinstance(node.op, (ast.Add, ast.Sub)):
            sign = 1.0 if isinstance(node.op, ast.Add) else -1.0
            right = self._terms(node.right)
            return [*self._terms(node.left), *((sign * x, factors) for x, factors in right)]
        if isinstance(node.op, ast.Mult):
            return self._product(self._terms(node.left), self._terms(node.right))
        if isinstance(node.op, ast.Div):
            left, over = self._terms(node.left), self._terms(node.right)
            if len(over) > 1 or over[0][0] == 0.0:
                return self._product(left, [(1.0, (_join("1/", [self._sum(over)]),))])
            x, factors = over[0]
            return self._product(left, [(1.0 / x, tuple(_join("1/", [y]) for y in factors))])
        return [(1.0, (self._fields(node),))]

    def _product(self, left: list[Term], right: list[Term]) -> list[Term]:
        """Multiply; a sum is multiplied term by term with a number alone, and is a factor otherwise."""
        if len(right) > 1 and len(left) == 1:
            left, right = right, left
        if len(left) > 1 and (len(right) > 1 or right[0][1]):
            left = [(1.0, (self._sum(left),))]
        if len(right) > 1:
            right = [(1.0, (self._sum(right),))]
        ((by, more),) = right
        return [(x * by, (*factors, *more)) for x, factors in left]

    def _fields(self, node: Any) -> Plain:
        if isinstance(node, ast.FunctionDef):
            return self._function(node)
        if isinstance(node, ast.Name):
            return self._locals.get(node.id, node.id), ()
        if isinstance(node, ast.Subscript):  # an index is not a quantity: 5 and 6 are other joints
            value, outer, self._in_index = self.plain(node.value), self._in_index, True
            index = self.plain(node.slice)
            self._in_index = outer
            return _join("[]", [value, index])
        if isinstance(node, ast.Dict) and not self._named:
            keys = [("", ()) if isinstance(key, ast.Constant) else self.plain(key) for key in node.keys]
            return _join("Dict", [*keys, self.plain(node.values)])
        if not isinstance(node, ast.AST):
            return repr(node), ()
        fields = [self.plain(value) for name, value in ast.iter_fields(node) if name not in _NOT_READ]
        return _join(type(node).__name__, fields)

    def _function(self, node: ast.FunctionDef) -> Plain:
        body, outer = node.body[ast.get_docstring(node) is not None :], self._locals
        stored = (x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
        self._locals = {**outer, **{name: f"local{k}" for k, name in enumerate(dict.fromkeys(stored))}}
        read = _join(node.name, [self.plain(node.args), self.plain(body), self.plain(node.decorator_list)])
        self._locals = outer
        return read


def constant_reward(text: str) -> int:
    """Return the line of a reward that no value of the state has an effect on; 0 of any other."""
    try:
        reward = Source(text).function(REWARD)
    except UnsupportedCode:
        return 0
    return reward.lineno if reward is not None and _is_constant(reward, _parameters(reward)) else 0


def without_effect(text: str, file: str) -> list[Fault]:
    """Return notes on functions that have no effect: helpers that nothing calls, constants, and ignored actions."""
    try:
        source = Source(text)
    except UnsupportedCode:
        return []
    called = {ALIASES.get(name, name): name for name in source.definitions if ALIASES.get(name, name) in KINDS}
    used = {*source.using([]).definitions, *source.reachable([*called.values(), *SECTION_TYPES])}
    notes = [
        Fault(f"nothing calls it{near_type(name)}", file, statement.lineno, name, remedy="call it, or remove it")
        for name, statement in source.definitions.items()
        if isinstance(statement, ast.FunctionDef) and name not in used
    ]
    for kind, name in called.items():
        function = source.function(name)
        if function is None:
            continue
        if kind == OBSERVATION and _is_constant(function, _parameters(function)):
            notes.append(Fault("the observation is the same in every state", file, function.lineno, name))
        if kind in ACTION_TYPES and _is_constant(function, _parameters(function) & {"action", "actions"}):
            reads_all = function.args.vararg or function.args.kwarg
            message = "it does not read the action, so that the policy has no effect"
            notes += [] if reads_all else [Fault(message, file, function.lineno, name)]
    return notes


def _parameters(function: ast.FunctionDef) -> set[str]:
    args = function.args
    arguments = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {argument.arg for argument in arguments if argument is not None}


def _is_constant(function: ast.FunctionDef, names: Container[str]) -> bool:
    """Return whether a function returns something that depends neither on values of ``names`` nor on chance."""
    if any(isinstance(x, ast.Return) and x.value is None for x in ast.walk(function)):
        return False
    read = any(isinstance(x, ast.Name) and x.id in names for statement in function.body for x in _values(statement))
    return not read and not any("rand" in ast.dump(statement) for statement in function.body)


def _values(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes whose values count, not only their shapes; a product with 0 has no such values."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and any(map(_is_zero, (node.left, node.right))):
        return
    if isinstance(node, ast.Attribute) and node.attr in _SIZES:
        return
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _SIZE_CALLS:
            for argument in node.args[1:]:
                yield from _values(argument)
            return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _values(child)


def _is_zero(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0
