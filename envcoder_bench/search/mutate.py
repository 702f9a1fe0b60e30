"""Changes to one genome. Each makes its change in place and returns what it did, or None if it does not apply."""

from __future__ import annotations

import ast
import copy
import math
from random import Random
from typing import Callable, Mapping, Optional, Sequence

from envcoder_bench.search import terms as where
from envcoder_bench.search.expressions import changed, factor, number, rounded, shown, times, torch_call
from envcoder_bench.search.genome import ACTION_DIM, Genome
from envcoder_bench.search.mutate_reward import double_term, drop_term, reshape_term, reweight_term
from envcoder_bench.search.terms import Slot
from envcoder_bench.shaping.kinds import (
    ACTION_TYPES,
    DOF_TARGET,
    GOAL,
    INITIAL_STATE,
    OBSERVATION,
    REWARD,
    TERMINAL,
    TORQUE,
)

Mutation = Callable[[Genome, str, Random], Optional[str]]
ZERO = 0.04  # how often a constant becomes zero


def mutate(genome: Genome, rng: Random) -> str | None:
    """Change one of the functions, each as often as another, the reward twice."""
    names = [function.name for function in genome.shapers()]
    if not names:
        return None
    name = rng.choice(names + [REWARD] * (REWARD in names))
    mutations = MUTATIONS.get(name, [(scale_constant, 1.0)])
    mutation = rng.choices([x for x, _ in mutations], [weight for _, weight in mutations])[0]
    return mutation(genome, name, rng)


def scale_constant(genome: Genome, name: str, rng: Random) -> str | None:
    """Scale a number of a function, or of what it uses, by a log-normal factor; its sign stays."""
    found = {}
    for used in genome.reachable([name]):
        definition = genome.definitions[used]
        if used != ACTION_DIM and isinstance(definition, (ast.FunctionDef, ast.Assign, ast.AnnAssign)):
            found[used] = list(where.constants(definition))
    names = [used for used, inside in found.items() if inside]
    if not names:
        return None
    used = rng.choice(names)
    slot, is_int, may_be_zero = rng.choice(found[used])
    before = slot.node.value
    after = 0.0 if may_be_zero and rng.random() < ZERO else _step(before, rng) if is_int else before * factor(rng)
    slot.put(number(after))
    changed(genome.definitions[used])
    return f"{shown(before)} to {shown(slot.node.value)} in {used}"


def drop_part(genome: Genome, name: str, rng: Random) -> str | None:
    """Remove one of several parts of the observation."""
    function = genome.function(name)
    found = None if function is None else where.parts(function)
    if function is None or found is None or len(found.holder.elts) < 2:
        return None
    dropped = found.holder.elts.pop(rng.randrange(len(found.holder.elts)))
    changed(function)
    return f"observation without {where.label_of(dropped)!r}"


def add_part(genome: Genome, name: str, rng: Random) -> str | None:
    """Add a function of a part to the observation."""
    function = genome.function(name)
    found = None if function is None else where.parts(function)
    if function is None or found is None:
        return None
    part = rng.choice(found.slots()).node
    kernel = rng.choice(("sin", "cos", "square", "abs", "tanh"))
    found.holder.elts.append(torch_call(kernel, copy.deepcopy(part)))
    changed(function)
    return f"observation with {kernel} of {where.label_of(part)!r}"


def scale_input(genome: Genome, name: str, rng: Random) -> str | None:
    """Put a factor on what has none: actions, bounds of a terminal condition, random ranges."""
    function = genome.function(name)
    found = [] if function is None else _unscaled(function)
    if function is None or not found:
        return None
    slot, what = rng.choice(found)
    weight = rounded(factor(rng))
    slot.put(times(weight, slot.node))
    changed(function)
    return f"{shown(weight)} times {what} in {function.name}"


def drop_condition(genome: Genome, name: str, rng: Random) -> str | None:
    """Remove one of several conditions that end an episode."""
    function = genome.function(name)
    if function is None:
        return None
    found = [s for s, _ in where.slots(function) if isinstance(s.node, ast.BinOp) and isinstance(s.node.op, ast.BitOr)]
    if not found:
        return None
    slot = rng.choice(found)
    dropped, kept = rng.sample([slot.node.left, slot.node.right], 2)
    slot.put(kept)
    changed(function)
    return f"no end for {where.label_of(dropped)!r}"


def drop_entry(genome: Genome, name: str, rng: Random) -> str | None:
    """Leave a part of initial state or goal to the task's default."""
    function = genome.function(name)
    last = function.body[-1] if function is not None else None
    entries = last.value if isinstance(last, ast.Return) else None
    if function is None or not isinstance(entries, ast.Dict) or len(entries.keys) < 2:
        return None
    index = rng.randrange(len(entries.keys))
    key = entries.keys.pop(index)
    entries.values.pop(index)
    changed(function)
    return f"{ast.literal_eval(key)!r} as the task has it, in {function.name}" if key else None


def _step(value: int, rng: Random) -> int:
    """A near int of the same sign, not zero."""
    size = abs(value)
    return int(math.copysign(rng.choice([x for x in (size - 1, size + 1, 2 * size) if x > 0]), value))


def _unscaled(function: ast.FunctionDef) -> list[tuple[Slot, str]]:
    """What of a function a factor makes sense on."""
    found = []
    for slot, parents in where.slots(function):
        node = slot.node
        above = slot.parent
        if isinstance(above, ast.BinOp) and isinstance(above.left, ast.Constant):
            continue  # has one
        if function.name in ACTION_TYPES and isinstance(node, ast.Name) and node.id in ("action", "actions"):
            is_like = any(isinstance(x.parent, ast.Call) and "like" in where.callee(x.parent) for x in (*parents, slot))
            if not is_like and not isinstance(above, (ast.Attribute, ast.Subscript)):
                found.append((slot, f"the {node.id}"))
        elif function.name == TERMINAL and isinstance(above, ast.Compare) and slot.field == "comparators":
            if not isinstance(node, ast.Constant):
                found.append((slot, f"the bound of {where.label_of(above.left)!r}"))
        elif function.name in (INITIAL_STATE, GOAL) and where.callee(node) == "torch_rand_float":
            found.append((slot, "a random number"))
    return found


_OF_ACTIONS: Sequence[tuple[Mutation, float]] = ((scale_constant, 1.5), (scale_input, 1.5))
_OF_EPISODES: Sequence[tuple[Mutation, float]] = ((scale_constant, 2.0), (scale_input, 1.0), (drop_entry, 0.5))
# for each function what can be done to it, and how often; what does not apply is passed over
MUTATIONS: Mapping[str, Sequence[tuple[Mutation, float]]] = {
    REWARD: (
        (scale_constant, 2.0),
        (reweight_term, 2.0),
        (drop_term, 1.5),
        (double_term, 0.7),
        (reshape_term, 1.5),
    ),
    OBSERVATION: ((scale_constant, 1.0), (drop_part, 1.5), (add_part, 0.7)),
    TORQUE: _OF_ACTIONS,
    DOF_TARGET: _OF_ACTIONS,
    INITIAL_STATE: _OF_EPISODES,
    GOAL: _OF_EPISODES,
    TERMINAL: ((scale_constant, 1.5), (scale_input, 1.5), (drop_condition, 0.5)),
}
