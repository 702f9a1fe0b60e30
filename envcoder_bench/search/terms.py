"""Where things are in a function's syntax tree: the terms of a reward, the parts of an observation, constants."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Iterator

_PASS_ON = {"clamp", "clip", "clamp_min", "clamp_max", "relu", "nan_to_num", "tanh", "float", "squeeze"}
_JOIN = {"cat": "cat", "concat": "cat", "concatenate": "cat", "hstack": "cat", "stack": "stack"}
_SHAPES = {
    "range", "arange", "zeros", "ones", "full", "empty", "rand", "randn", "view", "reshape", "expand", "repeat",
    "unsqueeze", "permute", "transpose", "unflatten", "flatten", "tile", "chunk", "split", "narrow",
}  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """A place in a syntax tree that holds an expression."""

    parent: ast.AST
    field: str
    index: int | None = None

    @property
    def node(self) -> Any:
        held = getattr(self.parent, self.field)
        return held if self.index is None else held[self.index]

    def put(self, node: ast.expr) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node

    @property
    def subtracted(self) -> bool:
        """Whether it is what a difference takes away."""
        return isinstance(self.parent, ast.BinOp) and isinstance(self.parent.op, ast.Sub) and self.field == "right"


@dataclass(frozen=True)
class Term:
    """One summand of a reward.

    Attributes:
        place: where it enters the sum: an operand, or an entry of a dict whose values are summed.
        value: what it is made of, which is elsewhere if ``place`` holds a name.
        label: what to call it.
    """

    place: Slot
    value: Slot
    label: str


@dataclass(frozen=True)
class Parts:
    """What an observation is put together from: ``kind`` is ``cat`` of ``(n, k)`` or ``stack`` of ``(n,)``."""

    kind: str
    holder: Any  # a tuple or list

    def slots(self) -> list[Slot]:
        return [Slot(self.holder, "elts", i) for i in range(len(self.holder.elts))]


def slots(node: ast.AST, parents: tuple[Slot, ...] = ()) -> Iterator[tuple[Slot, tuple[Slot, ...]]]:
    """Every place of an expression within ``node``, in the order of the text, with those that it is in."""
    for field, held in ast.iter_fields(node):
        for index, child in enumerate(held) if isinstance(held, list) else ((None, held),):
            if isinstance(child, ast.expr):
                slot = Slot(node, field, index)
                yield slot, parents
                yield from slots(child, (*parents, slot))
            elif isinstance(child, ast.AST) and not isinstance(child, ast.arguments):
                yield from slots(child, parents)


def slot_of(function: ast.AST, node: ast.AST) -> Slot | None:
    """Where a node is."""
    return next((slot for slot, _ in slots(function) if slot.node is node), None)


def constants(node: ast.AST) -> Iterator[tuple[Slot, bool, bool]]:
    """Numbers within ``node`` that may be scaled: not zeros, sizes, indices, exponents.

    Yields: where, whether it must stay an int, whether it may be zero.
    """
    for slot, parents in slots(node):
        number = slot.node
        if not isinstance(number, ast.Constant) or type(number.value) not in (int, float) or not number.value:
            continue
        nearest = next((s for s in reversed((*parents, slot)) if not _is_sign(s.parent)), slot)
        above = nearest.parent
        if any(_is_index_or_size(s) for s in (*parents, slot)):
            continue
        divides = isinstance(above, ast.BinOp) and nearest.field == "right" and isinstance(above.op, ast.Div)
        if isinstance(above, ast.BinOp) and isinstance(above.op, (ast.Pow, ast.Mod, ast.FloorDiv)):
            continue
        if isinstance(number.value, float) or divides or isinstance(above, ast.Compare):
            yield slot, False, not divides
        elif isinstance(above, ast.BinOp):
            yield slot, True, False


def _is_sign(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp)


def _is_index_or_size(slot: Slot) -> bool:
    if isinstance(slot.parent, ast.Subscript):
        return slot.field == "slice"
    return isinstance(slot.parent, ast.Call) and slot.field != "func" and callee(slot.parent) in _SHAPES


def callee(call: ast.AST) -> str:
    """``f`` of ``a.b.f(...)`` and of ``f(...)``; empty for what is no call."""
    f = call.func if isinstance(call, ast.Call) else None
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def argument(call: ast.Call) -> Slot | None:
    """What ``torch.f(x, ...)`` or ``x.f(...)`` is of."""
    f = call.func
    is_method = isinstance(f, ast.Attribute) and not (isinstance(f.value, ast.Name) and f.value.id in ("torch", "F"))
    if is_method and "functional" not in ast.dump(f):
        return Slot(f, "value")
    return Slot(call, "args", 0) if call.args else None


def terms(function: ast.FunctionDef) -> list[Term]:
    """The summands of what a reward function returns, as far as names and usual wrappers lead to a sum.

    A single one where there is no sum; none where the end of the function is no ``return``.
    """
    last = function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return []
    slot = Slot(last, "value")
    if isinstance(slot.node, ast.Tuple) and slot.node.elts:
        slot = Slot(slot.node, "elts", 0)
    found: list[Term] = []
    for term in _terms(function, slot, len(function.body) - 1):
        if all(term.place != other.place for other in found):
            found.append(term)
    return found


def _terms(function: ast.FunctionDef, slot: Slot, line: int) -> list[Term]:
    """Terms of the expression in ``slot``, which is in the ``line``-th statement of the function or before."""
    node = slot.node
    if isinstance(node, ast.Name):
        source, at = assigned(function, node.id, line)
        return _terms(function, source, at) if source else [_leaf(slot)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        return [t for side in ("left", "right") for t in _operand(function, Slot(node, side), line)]
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        entries = _entries(function, node.value.id, line)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return [Term(slot, entry.value, entry.label) for entry in entries if entry.label == key] or [_leaf(slot)]
    if isinstance(node, ast.Call) and callee(node) == "where" and len(node.args) == 3:
        branches = [_terms(function, Slot(node, "args", i), line) for i in (1, 2)]
        return max(branches, key=len)  # the other one is what holds in a special case
    if isinstance(node, ast.Call) and callee(node) == "sum" and len(node.args) == 1:
        return _values(function, node.args[0], line) or [_leaf(slot)]
    inner: list[Slot] = []
    if isinstance(node, ast.Call) and callee(node) in _PASS_ON:
        inner = [x for x in [argument(node)] if x]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        inner = [Slot(node, "left"), Slot(node, "right")]
    found = [below for below in (_terms(function, x, line) for x in inner) if len(below) > 1]
    return [term for below in found for term in below] or [_leaf(slot)]


def _operand(function: ast.FunctionDef, slot: Slot, line: int) -> list[Term]:
    below = _terms(function, slot, line)
    if len(below) > 1 and not slot.subtracted:
        return below
    # a sum that is subtracted is one term: what adds to it takes from the whole
    value = below[0].value if len(below) == 1 else slot
    return [Term(slot, value, slot.node.id if isinstance(slot.node, ast.Name) else below[0].label)]


def _values(function: ast.FunctionDef, node: ast.expr, line: int) -> list[Term]:
    """Entries of the dict in ``sum(components.values())``."""
    if isinstance(node, ast.Call) and callee(node) == "list" and node.args:
        node = node.args[0]
    is_values = isinstance(node, ast.Call) and callee(node) in ("values", "items")
    holder = node.func.value if is_values and isinstance(node.func, ast.Attribute) else None  # type: ignore[union-attr]
    return _entries(function, holder.id, line) if isinstance(holder, ast.Name) else []


def _entries(function: ast.FunctionDef, name: str, line: int) -> list[Term]:
    source, at = assigned(function, name, line)
    held = source.node if source else None
    if isinstance(held, ast.DictComp) and len(held.generators) == 1:
        return _values(function, held.generators[0].iter, at)
    if not isinstance(held, ast.Dict):
        return []
    entries = [Slot(held, "values", i) for i in range(len(held.keys))]
    return [
        Term(s, s, k.value)
        for s, k in zip(entries, held.keys)
        if isinstance(k, ast.Constant) and isinstance(k.value, str)
    ]


def assigned(function: ast.FunctionDef, name: str, line: int) -> tuple[Slot | None, int]:
    """What a name stands for in the ``line``-th statement, and in which one it was assigned; None if not plainly."""
    for at in range(line - 1, -1, -1):
        statement = function.body[at]
        if name in writes(statement):
            plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1
            simple = plain and isinstance(statement.targets[0], ast.Name)  # type: ignore[attr-defined]
            return (Slot(statement, "value"), at) if simple else (None, at)
    return None, -1


def writes(statement: ast.stmt) -> set[str]:
    """Names that a statement binds or whose object it may change."""
    names = {x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load)}
    for x in ast.walk(statement):
        changed = isinstance(x, (ast.Subscript, ast.Attribute)) and not isinstance(x.ctx, ast.Load)
        if changed or (isinstance(x, ast.Attribute) and isinstance(statement, ast.Expr)):
            while isinstance(x, (ast.Subscript, ast.Attribute)):
                x = x.value
            names |= {x.id} if isinstance(x, ast.Name) else set()
    return names


def _leaf(slot: Slot) -> Term:
    return Term(slot, slot, label_of(slot.node))


def label_of(node: ast.expr) -> str:
    """A short name for an expression: the first name or key in it that tells something."""
    for slot, _ in slots(ast.Expr(node)):
        x = slot.node
        if isinstance(x, ast.Constant) and isinstance(x.value, str) and x.value.isidentifier():
            return x.value
        called = isinstance(slot.parent, ast.Call) and slot.field == "func"
        if isinstance(x, ast.Name) and not called and x.id not in ("torch", "state_dict", "math", "F"):
            return x.id
    return "constant" if isinstance(node, (ast.Constant, ast.UnaryOp)) else "term"


def parts(function: ast.FunctionDef) -> Parts | None:
    """The tensors that an observation function joins, if that is how it ends."""
    last = function.body[-1]
    slot: Slot | None = Slot(last, "value") if isinstance(last, ast.Return) else None
    line = len(function.body) - 1
    while slot is not None:
        node = slot.node
        if isinstance(node, ast.Name):
            slot, line = assigned(function, node.id, line)
        elif isinstance(node, ast.Call) and callee(node) in _JOIN and node.args:
            holder = node.args[0]
            if isinstance(holder, ast.Name):
                source, _ = assigned(function, holder.id, line)
                holder = source.node if source else holder
            return Parts(_JOIN[callee(node)], holder) if isinstance(holder, (ast.Tuple, ast.List)) else None
        elif isinstance(node, ast.Call) and callee(node) in _PASS_ON:
            slot = argument(node)
        else:
            return None
    return None
