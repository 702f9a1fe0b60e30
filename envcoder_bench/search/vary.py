"""Mutations and recombinations of candidates: scale numbers, drop or weight pieces, take pieces or functions of others.

Each change returns the changed genome and a description, or None if it does not apply.
"""

import ast
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from envcoder_bench.search.genome import ACTION_DIM, Genome, loaded, unused
from envcoder_bench.search.pieces import (
    CAT,
    ENTRY,
    LONE,
    STACK,
    Piece,
    added,
    callee,
    dropped,
    is_number,
    pieces,
    writes,
)
from envcoder_bench.search.terms import Quantity, draw
from envcoder_bench.shaping.kinds import (
    ACTION_TYPES,
    ALIASES,
    DOF_TARGET,
    GOAL,
    INITIAL_STATE,
    OBSERVATION,
    REWARD,
    TERMINAL,
    TORQUE,
)

Change = tuple[Genome, str] | None
Mutation = Callable[[Genome, str, Random], Change]
Recombination = Callable[[Genome, Genome, str, Random], Change]

SPREADS = (0.2, 0.6, 0.6, 1.5)  # standard deviations of a factor's logarithm: mostly small steps, sometimes large
MIN_LOG_FACTOR = 0.05
ZERO = 0.04  # probability that a number becomes zero
STATE = "state_dict"
_SIZE_FUNCTIONS = {
    "range", "arange", "zeros", "ones", "full", "empty", "rand", "randn", "view", "reshape", "expand", "repeat",
    "unsqueeze", "permute", "transpose", "unflatten", "flatten", "tile", "chunk", "split", "narrow",
}  # fmt: skip


def mutate(genome: Genome, rng: Random) -> Change:
    """Change one of the functions, chosen at random; the reward has twice the weight."""
    names = [function.name for function in genome.shapers()]
    if not names:
        return None
    name = rng.choice(names + [REWARD] * (REWARD in names))
    mutations = MUTATIONS.get(name, [(scale_number, 1.0)])
    mutation = rng.choices([x for x, _ in mutations], [weight for _, weight in mutations])[0]
    return mutation(genome, name, rng)


def add_term(genome: Genome, quantities: Sequence[Quantity], rng: Random) -> Change:
    """Add a term of the task's state to the reward, which is computed in a helper function."""
    return graft(genome, Genome(draw(quantities, rng), [REWARD]), "the state", rng)


def recombine(genome: Genome, donor: Genome, donor_name: str, rng: Random) -> Change:
    """Take a function or a piece of another candidate."""
    recombination = rng.choices([x for x, _ in RECOMBINATIONS], [weight for _, weight in RECOMBINATIONS])[0]
    return recombination(genome, donor, donor_name, rng)


def factor(rng: Random) -> float:
    """Draw a log-normal factor with median 1, not too close to 1, rounded to three digits."""
    power, spread = 0.0, rng.choice(SPREADS)
    while abs(power) < MIN_LOG_FACTOR:
        power = rng.gauss(0.0, spread)
    return _rounded(math.exp(power))


def scale_number(genome: Genome, name: str, rng: Random) -> Change:
    """Scale a number of a function, or of a definition that it uses, by a log-normal factor."""
    definitions = {used: genome.definitions[used] for used in genome.reachable([name]) if used != ACTION_DIM}
    found = {used: list(numbers(x)) for used, x in definitions.items() if not isinstance(x, ast.ClassDef)}
    names = [used for used, inside in found.items() if inside]
    if not names:
        return None
    used = rng.choice(names)
    node, is_int, may_be_zero = rng.choice(found[used])
    before: Any = node.value
    if may_be_zero and rng.random() < ZERO:
        after = 0.0
    elif is_int:
        after = rng.choice([x for x in (before - 1, before + 1, 2 * before) if x > 0])
    else:
        after = _rounded(before * factor(rng))
    return genome.edited((*genome.span(node), repr(after))), f"{before:.3g} to {after:.3g} in {used}"


def numbers(node: ast.AST, above: ast.AST | None = None) -> Iterator[tuple[ast.Constant, bool, bool]]:
    """Yield the numbers within ``node`` that may be scaled, which excludes zeros, sizes, indices and exponents.

    Yields:
        The constant, whether it must stay an int, and whether it may become zero.
    """
    above = above or node
    for child in ast.iter_child_nodes(node):
        is_operand = isinstance(above, ast.BinOp) and child is not above.left
        if isinstance(child, ast.UnaryOp):
            yield from numbers(child, above)
        elif isinstance(child, ast.Constant) and type(child.value) in (int, float) and child.value:
            divides = is_operand and isinstance(above.op, ast.Div)  # type: ignore[attr-defined]
            if isinstance(above, ast.BinOp) and isinstance(above.op, (ast.Pow, ast.Mod, ast.FloorDiv)):
                continue
            if isinstance(child.value, float) or divides or isinstance(above, ast.Compare):
                yield child, False, not divides
            elif isinstance(above, ast.BinOp):
                yield child, True, False
        elif isinstance(node, ast.Call) and callee(node) in _SIZE_FUNCTIONS and child is not node.func:
            continue
        elif not (isinstance(node, ast.Subscript) and child is node.slice) and not isinstance(child, ast.JoinedStr):
            yield from numbers(child)


def reweight(genome: Genome, name: str, rng: Random) -> Change:
    """Scale one of several pieces."""
    found = pieces(genome, name)
    if len(found) < 2:  # PPO normalizes the scale of the whole
        return None
    piece, weight = rng.choice(found), factor(rng)
    text = _scaled(genome, piece.node, weight)
    return genome.edited((*genome.span(piece.node), text)), f"{weight:.3g} times {piece.label!r}"


def drop(genome: Genome, name: str, rng: Random) -> Change:
    """Remove one of several pieces."""
    found = pieces(genome, name)
    if len(found) < 2:
        return None
    piece = rng.choice(found)
    texts = [x.value for x in ast.walk(genome.definitions[name]) if isinstance(x, ast.Constant)]
    if piece.how == ENTRY and texts.count(piece.label) > 1:
        return None  # its key is used elsewhere
    edits = dropped(genome, piece)
    return (genome.edited(*edits), f"{name} without {piece.label!r}") if edits else None


def scale_input(genome: Genome, name: str, rng: Random) -> Change:
    """Multiply actions, or the bound of a condition, by a factor."""
    found: list[ast.expr] = []
    for above in ast.walk(genome.definitions[name]):
        passive = isinstance(above, (ast.Attribute, ast.Subscript)) or "like" in callee(above)
        scaled = isinstance(above, ast.BinOp) and isinstance(above.left, ast.Constant)
        for node in ast.iter_child_nodes(above):
            is_action = (
                isinstance(node, ast.Name) and node.id in ("action", "actions") and isinstance(node.ctx, ast.Load)
            )
            is_bound = isinstance(above, ast.Compare) and node in above.comparators and not is_number(node)
            if is_bound if name == TERMINAL else is_action and not passive and not scaled:
                found.append(node)  # type: ignore[arg-type]
    if not found:
        return None
    node, weight = rng.choice(found), factor(rng)
    text = _scaled(genome, node, weight)
    return genome.edited(genome.replacement(node, text)), f"{weight:.3g} times {genome.text(node)} in {name}"


def take_function(genome: Genome, donor: Genome, donor_name: str, rng: Random) -> Change:
    """Take a function of the donor, with the helpers and constants that it uses."""
    found = [name for name in donor.types if donor.function(name) and not _equal(genome, donor, name)]
    if not found:
        return None
    name = rng.choice(found)
    # replace the other action function and its width, too
    replaced = [*ACTION_TYPES, ACTION_DIM] if name in ACTION_TYPES else [name]
    replaced += [alias for alias, own in ALIASES.items() if own in replaced]
    roots = [name, *(x for x in (ACTION_DIM,) if x in replaced and x in donor.definitions)]
    return genome.without(replaced).joined(donor, roots), f"{name} of {donor_name}"


def graft(genome: Genome, donor: Genome, donor_name: str, rng: Random) -> Change:
    """Add a piece of the donor's function, computed in a helper function."""
    names = [x for x in donor.types if genome.function(x) and donor.function(x) and not _equal(genome, donor, x)]
    names = [x for x in names if x not in ACTION_TYPES]
    if not names:
        return None
    name = rng.choice(names)
    theirs = [piece for piece in pieces(donor, name) if not is_number(piece.node)]
    mine = [piece for piece in pieces(genome, name) if not is_number(piece.node)]
    if not mine or not theirs:
        return None
    piece, beside = rng.choice(theirs), rng.choice(mine)
    joins = {beside.how, piece.how} & {CAT, STACK}
    known = name in (INITIAL_STATE, GOAL) and piece.label in [own.label for own in mine]
    if known or (name in (INITIAL_STATE, GOAL) and (beside.how, piece.how) != (ENTRY, ENTRY)):
        return None
    if name == OBSERVATION and (LONE in (beside.how, piece.how) or (beside.how, piece.how) == (STACK, CAT)):
        return None
    result = _with_helper(genome, donor, name, piece, donor_name)
    if result is None:
        return None
    genome, call = result
    text = f"{call}.unsqueeze(-1)" if len(joins) == 2 else call
    if name == REWARD:
        weight = factor(rng) if rng.random() < 0.5 else 1.0
        text = f"{-weight if piece.subtracted else weight} * {call}" if weight != 1.0 or piece.subtracted else call
    host = next(own for own in pieces(genome, name) if own.label == beside.label)
    edits, label = added(genome, host, text, piece.label)
    return genome.edited(*edits), f"{name} with {label!r} of {donor_name}"


def _with_helper(genome: Genome, donor: Genome, name: str, piece: Piece, donor_name: str) -> tuple[Genome, str] | None:
    """Return the genome with a helper that computes a piece of the donor, and its call; None if not possible."""
    other, host = donor.definitions[name], genome.definitions[name]
    assert isinstance(other, ast.FunctionDef) and isinstance(host, ast.FunctionDef)
    at = next(k for k, s in enumerate(other.body) if any(x is piece.node for x in ast.walk(s)))
    if not isinstance(other.body[at], (ast.Assign, ast.AnnAssign, ast.Return)):
        return None
    if any(STATE in writes(s) for s in host.body if not isinstance(s, ast.Return)):
        return None
    needed, steps = loaded(piece.node), []
    for statement in reversed(other.body[:at]):
        if writes(statement) & needed:
            steps.insert(0, statement)
            needed |= loaded(statement)
    inputs = "".join(_from_state(donor, *own) for own in _parameters(other) if own[0] in needed - {STATE})
    body = inputs + donor.block(steps) + f"return ({donor.text(piece.node)})\n"
    label = f"{piece.label}_{'part' if name == OBSERVATION else 'term'}".lower()
    helper = unused(label, genome.source + donor.source)
    about = f'"""From {name} of {donor_name}."""\n'
    text = f"\n\ndef {helper}({STATE}):\n{textwrap.indent(about + body, '    ')}"
    end = len(donor.source.encode())
    joined = genome.joined(donor.edited((end, end, text)), [helper])
    host = joined.function(name)
    assert host is not None
    if STATE not in {parameter for parameter, _ in _parameters(host)}:
        start = joined.source.encode().index(b"(", joined.span(host)[0]) + 1
        joined = joined.edited((start, start, f"{STATE}, " if _parameters(host) else STATE))
    return joined, f"{helper}({STATE})"


def _parameters(function: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
    """Return a function's parameters with their defaults."""
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)
    return [(x.arg, default) for x, default in (*zip(positional, defaults), *zip(a.kwonlyargs, a.kw_defaults))]


def _from_state(donor: Genome, parameter: str, default: ast.expr | None) -> str:
    """Return the assignment that binds a parameter as a call of its function would."""
    key = {"action": "actions"}.get(parameter, parameter)
    if default is None:
        return f"{parameter} = {STATE}[{key!r}]\n"
    return f"{parameter} = {STATE}.get({key!r}, {donor.text(default)})\n"


def _equal(genome: Genome, donor: Genome, name: str) -> bool:
    mine, other = genome.function(name), donor.function(name)
    return mine is not None and other is not None and ast.dump(mine) == ast.dump(other)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _scaled(genome: Genome, node: ast.expr, weight: float) -> str:
    """Return the text of an expression times a number; a leading number is changed instead of adding a factor."""
    leading = node
    while isinstance(leading, (ast.BinOp, ast.UnaryOp)):
        if isinstance(leading, ast.BinOp) and not isinstance(leading.op, (ast.Mult, ast.Div)):
            break
        leading = leading.left if isinstance(leading, ast.BinOp) else leading.operand
    if not isinstance(leading, ast.Constant) or not isinstance(leading.value, (int, float)):
        return f"{weight} * {genome.operand(node)}"
    (start, _), (first, last) = genome.span(node), genome.span(leading)
    text = genome.text(node).encode()
    return (text[: first - start] + repr(_rounded(leading.value * weight)).encode() + text[last - start :]).decode()


_OF_ACTIONS: Sequence[tuple[Mutation, float]] = ((scale_number, 1.5), (scale_input, 1.5))
_OF_EPISODES: Sequence[tuple[Mutation, float]] = ((scale_number, 2.0), (drop, 0.5))
# mutations of each function with their weights
MUTATIONS: Mapping[str, Sequence[tuple[Mutation, float]]] = {
    REWARD: ((scale_number, 2.0), (reweight, 2.0), (drop, 1.5)),
    OBSERVATION: ((scale_number, 1.0), (drop, 1.5)),
    TORQUE: _OF_ACTIONS,
    DOF_TARGET: _OF_ACTIONS,
    INITIAL_STATE: _OF_EPISODES,
    GOAL: _OF_EPISODES,
    TERMINAL: ((scale_number, 1.5), (scale_input, 1.5), (drop, 0.5)),
}
RECOMBINATIONS: Sequence[tuple[Recombination, float]] = ((take_function, 2.0), (graft, 2.5))
