"""Changes to the terms of a reward. In place; each returns what it did, or None if it does not apply."""

from __future__ import annotations

import ast
import copy
from random import Random

from envcoder_bench.search import terms as where
from envcoder_bench.search.expressions import changed, factor, number, rounded, scale, shown, torch_call
from envcoder_bench.search.genome import Genome
from envcoder_bench.search.terms import Slot, Term


def reweight_term(genome: Genome, name: str, rng: Random) -> str | None:
    """Scale one of several terms of the reward."""
    function, found = _terms_of(genome, name)
    if function is None or len(found) < 2:  # the scale of all is normalized away
        return None
    term, weight = rng.choice(found), rounded(factor(rng))
    scale(term.value, weight)
    changed(function)
    return f"{shown(weight)} times the term {term.label!r}"


def drop_term(genome: Genome, name: str, rng: Random) -> str | None:
    """Remove one of several terms of the reward."""
    function, found = _terms_of(genome, name)
    if function is None or len(found) < 2:
        return None
    rng.shuffle(found)
    for term in found:
        others = [t for t in found if t is not term]
        if all(isinstance(t.value.node, ast.Constant) for t in others):
            continue  # what is left would be no tensor
        if _remove(function, term):
            changed(function)
            return f"without the term {term.label!r}"
    return None


def double_term(genome: Genome, name: str, rng: Random) -> str | None:
    """Add a copy of a term with another weight and shape."""
    function, found = _terms_of(genome, name)
    found = [term for term in found if _has_shape(term.value.node)]
    if function is None or not found:
        return None
    term = rng.choice(found)
    holder = Slot(ast.Expr(copy.deepcopy(term.place.node)), "value")
    if term.place.subtracted:
        scale(holder, -1.0)
    what = _reshape(Term(holder, holder, term.label), rng)
    scale(holder, rounded(0.5 * factor(rng)))
    label = add_term(genome, function, term, f"{term.label}_{what}", holder.node)
    changed(function)
    return f"a term {label!r} beside {term.label!r}"


def reshape_term(genome: Genome, name: str, rng: Random) -> str | None:
    """Change how a term grows."""
    function, found = _terms_of(genome, name)
    found = [term for term in found if _has_shape(term.value.node)]
    if function is None or not found:
        return None
    term = rng.choice(found)
    what = _reshape(term, rng)
    changed(function)
    return f"{what} of the term {term.label!r}"


def add_term(genome: Genome, function: ast.FunctionDef, beside: Term, label: str, node: ast.expr) -> str:
    """Add a term to a reward, where ``beside`` is; returns its label."""
    holder = beside.place.parent
    if isinstance(holder, ast.Dict):
        keys = {key.value for key in holder.keys if isinstance(key, ast.Constant)}
        name, count = label, 1
        while name in keys:
            count += 1
            name = f"{label}_{count}"
        holder.keys.append(ast.Constant(name))
        holder.values.append(node)
        return name
    slot = where.slot_of(function, holder) if isinstance(holder, ast.BinOp) else beside.place
    assert slot is not None
    sign: ast.operator = ast.Add()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.UnaryOp):
        sign, node = ast.Sub(), ast.BinOp(node.left.operand, ast.Mult(), node.right)  # a - 2 x, not a + -2 x
    slot.put(ast.BinOp(slot.node, sign, node))
    return label


def _terms_of(genome: Genome, name: str) -> tuple[ast.FunctionDef | None, list[Term]]:
    function = genome.function(name)
    return function, [] if function is None else where.terms(function)


def _remove(function: ast.FunctionDef, term: Term) -> bool:
    """Take a term out of its sum; False where that cannot be done."""
    holder, index = term.place.parent, term.place.index
    if isinstance(holder, ast.Dict) and index is not None:
        inside = [x for x in ast.walk(function) if isinstance(x, ast.Subscript)]
        if any(isinstance(x.slice, ast.Constant) and x.slice.value == term.label for x in inside):
            return False  # asked for by its name elsewhere
        del holder.keys[index], holder.values[index]
        return True
    if not isinstance(holder, ast.BinOp):
        return False
    kept: ast.expr = holder.left
    if term.place.field == "left":
        kept = ast.UnaryOp(ast.USub(), holder.right) if isinstance(holder.op, ast.Sub) else holder.right
    slot = where.slot_of(function, holder)
    if slot is not None:
        slot.put(kept)
    return slot is not None


def _has_shape(node: ast.expr) -> bool:
    """Whether a term has more than one or two values, as a constant and a condition have."""
    if isinstance(node, ast.UnaryOp):
        return _has_shape(node.operand)
    if isinstance(node, ast.Call):
        return where.callee(node) not in ("float", "where", "full_like", "ones_like")
    return not isinstance(node, ast.Constant)


def _reshape(term: Term, rng: Random) -> str:
    """Put a kernel around a term that keeps its direction; returns the kernel's name."""
    slot, above = term.value, term.place.parent
    costs = term.place.subtracted or _leads_with_minus(slot.node)
    name = rng.choice(("tanh", "asinh", "cube", "bonus") if costs else ("tanh", "asinh", "cube"))
    slot = term.place if name == "bonus" else slot
    scaled = ast.BinOp(slot.node, ast.Div(), number(rounded(factor(rng))))
    if name == "bonus":  # what is small earns, instead of that what is large costs
        slot.put(torch_call("exp", ast.UnaryOp(ast.USub(), torch_call("abs", scaled))))
        if isinstance(above, ast.BinOp) and term.place.subtracted:
            above.op = ast.Add()
    else:
        slot.put(ast.BinOp(scaled, ast.Pow(), ast.Constant(3)) if name == "cube" else torch_call(name, scaled))
    return name


def _leads_with_minus(node: ast.expr) -> bool:
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        node = node.left
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
