"""Changes to one genome by what another has. In place; each returns what it did, or None if it does not apply."""

from __future__ import annotations

import ast
import copy
import re
from random import Random
from typing import Callable, Optional, Sequence

from envcoder_bench.search import terms as where
from envcoder_bench.search.expressions import factor, number, rounded, scale
from envcoder_bench.search.genome import ACTION_DIM, Genome, drop_docstring, loaded, same
from envcoder_bench.search.mutate_reward import add_term
from envcoder_bench.search.terms import Slot
from envcoder_bench.shaping.kinds import ACTION_TYPES, OBSERVATION, REWARD

STATE = "state_dict"
Recombination = Callable[[Genome, Genome, str, Random], Optional[str]]


def take_function(genome: Genome, donor: Genome, donor_name: str, rng: Random) -> str | None:
    """Take a whole function of the donor's, with the helpers and constants that it uses."""
    found = []
    for name in donor.types:
        mine, other = genome.function(name), donor.function(name)
        if other is not None and (mine is None or not same(mine, other)):
            found.append(name)
    if not found:
        return None
    name = rng.choice(found)
    roots = [name]
    replaced = [name]
    if name in ACTION_TYPES:
        replaced = [*ACTION_TYPES, ACTION_DIM]  # one action function, and the width of its own
        roots += [ACTION_DIM] if ACTION_DIM in donor.definitions else []
    for old in replaced:
        genome.definitions.pop(old, None)
    genome.take(donor, roots, {})
    return f"{name} of {donor_name}"


def graft_term(genome: Genome, donor: Genome, donor_name: str, rng: Random) -> str | None:
    """Add one term of the donor's reward, as a function of its own."""
    function, other = genome.function(REWARD), donor.function(REWARD)
    if function is None or other is None or same(function, other):
        return None
    mine = where.terms(function)
    theirs = [term for term in where.terms(other) if not isinstance(term.value.node, ast.Constant)]
    if not mine or not theirs:
        return None
    term = rng.choice(theirs)
    call = _graft(genome, function, donor, other, term.value, f"{_identifier(term.label)}_term", donor_name)
    if call is None:
        return None
    holder = Slot(ast.Expr(call), "value")
    if term.place.subtracted:
        scale(holder, -1.0)
    if rng.random() < 0.5:
        scale(holder, rounded(factor(rng)))
    tensors = [t for t in mine if not isinstance(t.place.node, ast.Constant)]
    label = add_term(genome, function, rng.choice(tensors or mine), term.label, holder.node)
    drop_docstring(function)
    return f"the term {label!r} of {donor_name}"


def graft_part(genome: Genome, donor: Genome, donor_name: str, rng: Random) -> str | None:
    """Add one part of the donor's observation, as a function of its own."""
    function, other = genome.function(OBSERVATION), donor.function(OBSERVATION)
    if function is None or other is None or same(function, other):
        return None
    mine, theirs = where.parts(function), where.parts(other)
    if mine is None or theirs is None or (mine.kind, theirs.kind) == ("stack", "cat"):
        return None
    own = {ast.dump(part) for part in mine.holder.elts}
    new = [slot for slot in theirs.slots() if ast.dump(slot.node) not in own and not isinstance(slot.node, ast.Starred)]
    if not new:
        return None
    slot = rng.choice(new)
    label = where.label_of(slot.node)
    part = _graft(genome, function, donor, other, slot, f"{_identifier(label)}_part", donor_name)
    if part is None:
        return None
    if (mine.kind, theirs.kind) == ("cat", "stack"):
        part = ast.Call(ast.Attribute(part, "unsqueeze", ast.Load()), [number(-1)], [])
    mine.holder.elts.append(part)
    drop_docstring(function)
    return f"observation with {label!r} of {donor_name}"


RECOMBINATIONS: Sequence[tuple[Recombination, float]] = ((take_function, 2.0), (graft_term, 1.5), (graft_part, 1.0))


def _graft(
    genome: Genome, host: ast.FunctionDef, donor: Genome, other: ast.FunctionDef, slot: Slot, name: str, origin: str
) -> ast.expr | None:
    """Make a helper of an expression in the donor's function ``other``; returns the host's call of it, or None."""
    statements = _slice(other, slot.node)
    if statements is None or STATE in set().union(*map(where.writes, host.body)):
        return None
    name = genome.free_name(name, donor.definitions)
    helper: ast.FunctionDef = ast.parse(f"def {name}({STATE}):\n    'From {other.name} of {origin}.'").body[0]  # type: ignore
    body = [*copy.deepcopy(statements), ast.Return(copy.deepcopy(slot.node))]
    read = set().union(*map(loaded, body)) - {STATE}
    helper.body += [_from_state(*own) for own in _parameters(other) if own[0] in read] + body
    with_helper = donor.copy()
    with_helper.definitions[name] = helper
    genome.take(with_helper, [name], {})
    if STATE not in {parameter for parameter, _ in _parameters(host)}:
        host.args.args.insert(0, ast.arg(STATE))
    return ast.Call(ast.Name(name, ast.Load()), [ast.Name(STATE, ast.Load())], [])


def _slice(function: ast.FunctionDef, node: ast.expr) -> list[ast.stmt] | None:
    """The statements of a function that the value of ``node`` depends on; None if it is in no plain statement."""
    at = next(k for k, s in enumerate(function.body) if any(x is node for x in ast.walk(s)))
    if not isinstance(function.body[at], (ast.Assign, ast.AnnAssign, ast.Return)):
        return None
    needed, found = loaded(node), []
    for statement in reversed(function.body[:at]):
        if where.writes(statement) & needed:
            found.append(statement)
            needed |= loaded(statement)
    return found[::-1]


def _parameters(function: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
    """Names and defaults."""
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)
    return [(x.arg, default) for x, default in (*zip(positional, defaults), *zip(a.kwonlyargs, a.kw_defaults))]


def _from_state(parameter: str, default: ast.expr | None) -> ast.stmt:
    """The assignment that binds a parameter as a call of its function would."""
    key = {"action": "actions"}.get(parameter, parameter)
    text = f"{parameter} = {STATE}[{key!r}]" if default is None else f"{parameter} = {STATE}.get({key!r}, None)"
    assignment = ast.parse(text).body[0]
    if default is not None:
        assignment.value.args[1] = copy.deepcopy(default)  # type: ignore[attr-defined]
    return assignment


def _identifier(label: str) -> str:
    name = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_").lower()
    return name if name[:1].isalpha() else f"a_{name}"
