"""Small expressions to put into syntax trees."""

from __future__ import annotations

import ast
import math
from random import Random

from envcoder_bench.search.genome import drop_docstring
from envcoder_bench.search.terms import Slot

SPREADS = (0.2, 0.6, 0.6, 1.5)  # standard deviations of a factor's logarithm: fine steps, and now and then a leap
LEAST = 0.05  # of that logarithm


def factor(rng: Random) -> float:
    """A log-normal factor with the median 1, and not too near to it to make a difference."""
    power, spread = 0.0, rng.choice(SPREADS)
    while abs(power) < LEAST:
        power = rng.gauss(0.0, spread)
    return math.exp(power)


def rounded(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")


def shown(value: float) -> str:
    """A number as the descriptions of changes have it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def number(value: float) -> ast.expr:
    """A literal, floats to three digits; negative ones as Python's own parser makes them."""
    literal = ast.Constant(abs(rounded(value) if isinstance(value, float) else value))
    return ast.UnaryOp(ast.USub(), literal) if value < 0 else literal


def torch_call(name: str, *args: ast.expr) -> ast.Call:
    """``torch.name(...)``."""
    return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load()), list(args), [])


def times(weight: float, node: ast.expr) -> ast.BinOp:
    """A number times an expression."""
    return ast.BinOp(number(weight), ast.Mult(), node)


def scale(slot: Slot, weight: float) -> None:
    """Multiply the expression: its leading constant if it has one, so that factors do not pile up."""
    leading = slot
    while True:
        node = leading.node
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            leading = Slot(node, "left")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            leading = Slot(node, "operand")
        else:
            break
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        leading.put(number(float(node.value * weight)))
    else:
        slot.put(times(weight, slot.node))


def changed(definition: ast.AST) -> None:
    """Drop what a changed function says of itself: it speaks of what was."""
    if isinstance(definition, ast.FunctionDef):
        drop_docstring(definition)
