"""The pieces of a function's result: terms of a reward, parts of an observation, conditions of termination, entries."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from envcoder_bench.search.genome import Edit, Genome, unused

LONE, SUM, ENTRY, STACK, CAT = "lone", "sum", "entry", "stack", "cat"  # how a piece enters the result

_WRAPPERS = {"clamp", "clip", "clamp_min", "clamp_max", "relu", "nan_to_num", "tanh", "float", "squeeze"}
_JOIN = {"cat": CAT, "concat": CAT, "concatenate": CAT, "hstack": CAT, "stack": STACK}
_SKIPPED = {"torch", "state_dict", "math", "F", "self"}


@dataclass(frozen=True)
class Piece:
    """A part of a function's result.

    Attributes:
        node: the expression.
        how: LONE: the whole result; SUM: an operand of a sum or of ``|``; ENTRY: a value of a dict; STACK, CAT: an
            element of a list that is stacked or concatenated.
        holder: the operation, dict or list that contains it.
        label: name for messages.
    """

    node: ast.expr
    how: str
    holder: ast.expr | None
    label: str

    @property
    def subtracted(self) -> bool:
        """Whether it is the right operand of a subtraction."""
        return (
            isinstance(self.holder, ast.BinOp)
            and isinstance(self.holder.op, ast.Sub)
            and self.node is self.holder.right
        )


def pieces(genome: Genome, name: str) -> list[Piece]:
    """Return the pieces of a function's result, through names and common wrappers; empty without a return."""
    function = genome.function(name)
    last = function.body[-1] if function is not None else None
    if function is None or not isinstance(last, ast.Return) or last.value is None:
        return []
    value = last.value
    if isinstance(value, ast.Tuple) and value.elts:
        value = value.elts[0]  # with the components of the reward
    found = _below(genome, function, value, len(function.body) - 1)
    return found or [Piece(value, LONE, None, _label(genome, value))]


def _below(genome: Genome, function: ast.FunctionDef, node: ast.expr, line: int) -> list[Piece]:
    """Return the pieces of an expression in the ``line``-th statement of a function; empty if it has none."""

    def below(node: ast.expr, line: int = line) -> list[Piece]:
        return _below(genome, function, node, line)

    def several(inner: Sequence[list[Piece]]) -> list[Piece]:
        return max(inner, key=len, default=[])

    if isinstance(node, ast.Name):
        value, at = _assigned(function, node.id, line)
        return [] if value is None else below(value, at)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.BitOr)):
        sides = [node.left, node.right]
        if isinstance(node.op, ast.Sub) and all(_is_input(function, side) for side in sides):
            return []  # one quantity: an error, or progress
        # terms of a subtracted sum would have the opposite sign
        deep = [below(side) if side is node.left or not isinstance(node.op, ast.Sub) else [] for side in sides]
        leaves = [Piece(side, SUM, node, _label(genome, side)) for side in sides]
        return [piece for inner, leaf in zip(deep, leaves) for piece in (inner if len(inner) > 1 else [leaf])]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        return several([below(node.left), below(node.right)])
    if isinstance(node, ast.Dict):
        return _entries(node)
    if not isinstance(node, ast.Call):
        return []
    if callee(node) in _JOIN and node.args:
        holder = _assigned(function, node.args[0].id, line)[0] if isinstance(node.args[0], ast.Name) else node.args[0]
        how = _JOIN[callee(node)]
        elements = holder.elts if isinstance(holder, (ast.Tuple, ast.List)) else []
        return [Piece(x, how, holder, _label(genome, x)) for x in elements]
    if callee(node) == "where" and len(node.args) == 3:
        return several([below(node.args[1]), below(node.args[2])])  # the shorter branch is usually a special case
    if callee(node) == "sum" and node.args:
        return _summed(function, node.args[0], line)
    # x.f(...), or the module of torch.f(x, ...)
    receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return several([below(x) for x in [*receiver, *node.args[:1]]]) if callee(node) in _WRAPPERS else []


def _is_input(function: ast.FunctionDef, node: ast.expr) -> bool:
    """Return whether an expression is a parameter, or a key of the state, as it is."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id == "state_dict"
    steps = [statement for statement in function.body if not isinstance(statement, ast.Return)]
    return isinstance(node, ast.Name) and not any(node.id in writes(statement) for statement in steps)


def _summed(function: ast.FunctionDef, node: ast.AST, line: int) -> list[Piece]:
    """Return the entries of the dict in ``sum(components.values())``, or in a comprehension over it."""
    names = [
        x.value.id for x in ast.walk(node)
        if isinstance(x, ast.Attribute) and x.attr in ("values", "items") and isinstance(x.value, ast.Name)
    ]  # fmt: skip
    held, at = _assigned(function, names[0], line) if names else (None, line)
    if isinstance(held, ast.DictComp):
        return _summed(function, held.generators[0].iter, at)
    return _entries(held) if isinstance(held, ast.Dict) else []


def _entries(held: ast.Dict) -> list[Piece]:
    keys = [key.value if isinstance(key, ast.Constant) else None for key in held.keys]
    return [Piece(x, ENTRY, held, key) for key, x in zip(keys, held.values) if isinstance(key, str)]


def _assigned(function: ast.FunctionDef, name: str, line: int) -> tuple[ast.expr | None, int]:
    """Return a name's expression before the ``line``-th statement and the statement that assigns it, or None.

    The expression is None unless the statement is a simple assignment.
    """
    for at in range(line - 1, -1, -1):
        statement = function.body[at]
        if name in writes(statement):
            plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1
            is_plain = plain and isinstance(statement.targets[0], ast.Name)  # type: ignore[attr-defined]
            return (statement.value, at) if is_plain else (None, at)  # type: ignore[attr-defined]
    return None, -1


def writes(statement: ast.stmt) -> set[str]:
    """Return the names that a statement may bind, or whose objects it may change."""
    targets: list[ast.AST] = [statement]
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    return {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}


def callee(call: ast.AST) -> str:
    """Return ``f`` of ``a.b.f(...)`` and of ``f(...)``; empty if it is not a call."""
    f = call.func if isinstance(call, ast.Call) else None
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def _label(genome: Genome, node: ast.expr) -> str:
    """Return a label: the key of an element, else the first specific name or key in the expression."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    words = re.findall(r"[^\W\d]\w*(?![\w]|\s*\()", genome.text(node))
    return next((word for word in words if word not in _SKIPPED), "constant")


# changes


def dropped(genome: Genome, piece: Piece) -> list[Edit]:
    """Return the edits that remove a piece; empty if that is not possible."""
    holder = piece.holder
    if isinstance(holder, ast.BinOp):
        kept = holder.right if piece.node is holder.left else holder.left
        negative = kept is holder.right and isinstance(holder.op, ast.Sub)
        text = f"-{genome.operand(kept)}" if negative else genome.text(kept)
        return [] if is_number(kept) else [genome.replacement(holder, text)]
    if piece.how == LONE or len(_held(holder)) < 2:
        return []
    return [_rebuilt(genome, holder, [x for x in _held(holder) if x is not piece.node], [])]


def added(genome: Genome, beside: Piece, text: str, label: str) -> tuple[list[Edit], str]:
    """Return the edits that add the expression ``text`` next to ``beside``, and its label."""
    holder = beside.holder
    if isinstance(holder, ast.Dict):
        keys = {key.value for key in holder.keys if isinstance(key, ast.Constant)}
        label = unused(label, keys)
        return [_rebuilt(genome, holder, holder.values, [f'"{label}": {text}'])], label
    if isinstance(holder, (ast.Tuple, ast.List)):
        return [_rebuilt(genome, holder, holder.elts, [text])], label
    whole = holder if holder is not None else beside.node
    sign = "|" if isinstance(holder, ast.BinOp) and isinstance(holder.op, ast.BitOr) else "+"
    return [genome.replacement(whole, f"{genome.text(whole)} {sign} {text}")], label


def is_number(node: ast.AST) -> bool:
    """Return whether a node is a constant, perhaps with a sign."""
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _held(holder: ast.AST | None) -> list[ast.expr]:
    if isinstance(holder, ast.Dict):
        return holder.values
    return holder.elts if isinstance(holder, (ast.Tuple, ast.List)) else []


def _rebuilt(genome: Genome, holder: ast.expr | None, kept: Sequence[ast.expr], more: Sequence[str]) -> Edit:
    """Return the edit that keeps some elements of a dict or list and adds more."""
    assert isinstance(holder, (ast.Dict, ast.Tuple, ast.List))
    items = []
    for k, x in enumerate(_held(holder)):
        key = holder.keys[k] if isinstance(holder, ast.Dict) else None
        head = f"{genome.text(key)}: " if key is not None else "**" if isinstance(holder, ast.Dict) else ""
        items += [head + genome.operand(x)] if any(x is other for other in kept) else []
    items += more
    first = holder.elts[0] if not isinstance(holder, ast.Dict) else holder.keys[0] or holder.values[0]
    gap, lead, tail = ", ", "", "," * (len(items) == 1)
    if first.lineno > holder.lineno:  # one per line
        gap, lead, tail = (
            f"{comma}\n{' ' * column}"
            for comma, column in ((",", first.col_offset), ("", first.col_offset), (",", max(first.col_offset - 4, 0)))
        )
    opening, closing = {ast.Dict: "{}", ast.Tuple: "()", ast.List: "[]"}[type(holder)]
    return (*genome.span(holder), f"{opening}{lead}{gap.join(items)}{tail}{closing}")
