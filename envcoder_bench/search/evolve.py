"""An evolutionary proposer, which changes and combines the best candidates without a language model.

It has three operations: scale a number, add a term of the task's state to the reward, and take a function from another
candidate. Where a search has measured the effects of reward terms (``term_variants``), it scales whole terms as well,
those of large effects more often. It is the reference for language models. For a fair comparison it starts from the
baselines alone; users can give candidates for a better start. Without selection (``--llm random``) it is the reference
for evolution itself: the same changes, but of parents that are drawn with equal probability.
"""

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.results.rows import OK
from envcoder_bench.search.archive import Archive, Attempt, Proposal, proposal_name
from envcoder_bench.search.terms import Tendency, parsed, reward_terms, scaled, tendencies
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, REWARD, SHAPER_TYPES
from envcoder_bench.shaping.source import (
    ACTION_DIM,
    REWARD_FACTORS,
    Edit,
    Source,
    UnsupportedCode,
    shaping_source,
    unused,
)
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import Key

TOURNAMENT = 3  # parents are the best of this many drawn at random
ELITE = 0.25  # share of a round whose parent is the best so far
TAKEN = 0.4  # share of proposals with a function of another candidate
NEW_TERM = 0.1  # share of proposals whose reward gets a new term
OF_TERM = 0.5  # share of changes that scale a whole term of the reward, where effects of terms were measured
MEASURED_WAY = 0.8  # share of these in the direction in which fitness rose
MORE = 0.5  # probability of one more change, up to MAX_CHANGES
MAX_CHANGES = 4
TRIES = 200  # attempts to make a proposal that is not in the archive

Change = tuple[Source, str] | None  # the changed source and a description; None if the operation does not apply


class EvolveProposer:
    """Proposes variants of the best candidates so far, including the baselines.

    Parents are chosen by rank, so that the scale of the fitness does not matter. The same archive, round, count and
    seed give the same proposals. Apart from layout and comments, the code of a proposal differs from all others,
    attempts and baselines.
    """

    def __init__(
        self,
        shaper_types: Iterable[str] | None = None,
        starts: Mapping[str, str] | None = None,
        seed: int = 0,
        baselines: Sequence[str] = BASELINE_FILES,
        selection: bool = True,
        state: Mapping[str, Key] | None = None,
    ) -> None:
        """Create a proposer.

        Args:
            shaper_types: the functions to propose; None for all.
            starts: sources by name, which are the first proposals of the first round.
            seed: seed of the random choices.
            baselines: names of the baselines that are parents.
            selection: whether better candidates are more often parents; otherwise all that have a fitness are equally.
            state: keys of the task's state, of which rewards get new terms; None: rewards get none.

        Raises:
            UserError: if a start has code that cannot be changed.
        """
        self._types: tuple[str, ...] = tuple(shaper_types or SHAPER_TYPES)
        self._seed, self._baselines, self._selection = seed, tuple(baselines), selection
        self._quantities = quantities(state) if state else []
        self._starts: dict[str, Source] = {}
        for name, text in (starts or {}).items():
            try:
                source = shaping_source(text, self._types)
            except UnsupportedCode as error:
                raise UserError(f"evolve cannot start from {name}: {error}") from None
            if not source.shapers(self._types):
                raise UserError(f"evolve cannot start from {name}: it defines none of {', '.join(self._types)}")
            self._starts[name] = source

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Write ``count`` candidates, or fewer if no further new ones are found.

        Raises:
            UserError: if neither a baseline nor a start defines any of the functions to propose.
        """
        fingerprints = self._fingerprints(_all(archive))
        proposals: list[Proposal] = []
        # the first round begins with the user's own files
        for name, source in list(self._starts.items())[:count] if round == 1 else []:
            if source.fingerprint() not in fingerprints:
                fingerprints.add(source.fingerprint())
                proposal = proposal_name(round, len(proposals))
                text = source.with_docstring(f"{proposal}: a start of the search, {name}.")
                proposals.append(Proposal(proposal, text, (), f"start: {name}"))
        population, effects = self._population(archive), self._tendencies(archive)
        names = list(population)
        while len(proposals) < count:
            name = proposal_name(round, len(proposals))
            # some children of the best one alone
            elite = self._selection and len(proposals) < math.ceil(ELITE * count)
            parents = names[:1] if elite else names
            proposal = self._make(name, population, parents, fingerprints, self._rng(name), effects)
            if proposal is None:
                break
            proposals.append(proposal)
        return proposals

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, Fault]]) -> list[Proposal | None]:
        """Return another variant of the same parents for each failed proposal."""
        fingerprints = self._fingerprints([*_all(archive), *(proposal for proposal, _ in failures)])
        population, effects = self._population(archive), self._tendencies(archive)
        repaired = []
        for proposal, error in failures:
            parents = [name for name in proposal.parents[:1] if name in population] or list(population)
            rng = self._rng(f"{proposal.name} {proposal.source} {error}")
            repaired.append(self._make(proposal.name, population, parents, fingerprints, rng, effects))
        return repaired

    def _rng(self, label: str) -> Random:
        return Random(f"{self._seed} {label}")  # seeding with a string is deterministic over processes

    def _make(
        self,
        name: str,
        population: Mapping[str, Source],
        parents: Sequence[str],
        fingerprints: set[str],
        rng: Random,
        effects: Mapping[str, Tendency],
    ) -> Proposal | None:
        """Return a new variant of one of ``parents``, which are in order of rank; None if none is found."""
        everyone, drawn = list(population), TOURNAMENT if self._selection else 1
        for _ in range(TRIES):
            parent, other = (x[min(rng.randrange(len(x)) for _ in range(drawn))] for x in (parents, everyone))
            try:
                source, changes, used = self._vary(population, parent, other, rng, effects)
            except UnsupportedCode:
                continue
            if not changes or source.fingerprint() in fingerprints:
                continue
            fingerprints.add(source.fingerprint())
            origin = f"{' and '.join(used)}: {'; '.join(changes)}"
            return Proposal(name, source.with_docstring(f"{name}, evolved from {origin}."), used, origin)
        return None

    def _vary(
        self,
        population: Mapping[str, Source],
        parent: str,
        other: str,
        rng: Random,
        effects: Mapping[str, Tendency],
    ) -> tuple[Source, list[str], tuple[str, ...]]:
        """Return a changed copy of a parent, perhaps with a function of another, its changes, and its parents' names.

        Raises UnsupportedCode if a change cannot be applied.
        """
        source, changes, names = population[parent], [], (parent,)
        # first a function of another candidate, because what is taken may then be scaled
        if other != parent and rng.random() < TAKEN:
            change = take_function(source, population[other], other, self._types, rng)
            if change is None:
                return source, [], names
            source, changes, names = change[0], [change[1]], (parent, other)
        count = 0 if changes and rng.random() < 0.5 else 1
        while count and count < MAX_CHANGES and rng.random() < MORE:
            count += 1
        new_term = bool(self._quantities) and rng.random() < NEW_TERM
        for number in range(count):
            if new_term and number == 0:
                change = add_term(source, self._quantities, rng)
            elif effects and rng.random() < OF_TERM:
                change = scale_term(source, effects, rng)
            else:
                change = scale_number(source, self._types, rng)
            if change is not None:
                source = change[0]
                changes.append(change[1])
        source = source.edited(*_outdated_docstrings(source, population[parent]))
        return shaping_source(source.text, self._types), changes, names

    def _tendencies(self, archive: Archive) -> dict[str, Tendency]:
        return tendencies(archive) if self._selection else {}

    def _population(self, archive: Archive) -> dict[str, Source]:
        """Return possible parents with different code in the order of ``Archive.order``, unmeasured ones last."""
        order = {name: rank for rank, name in enumerate(archive.order())}
        measured = [
            a for a in archive.attempts if a.status == OK and a.fitness is not None and not math.isnan(a.fitness)
        ]
        baselines = [archive.baselines[name] for name in self._baselines if name in archive.baselines]
        ranked = sorted([*baselines, *measured], key=lambda a: order.get(a.name, len(order)))
        sources = {a.name: source for a in ranked if (source := self._source(a)) is not None}
        if not sources and not self._starts:
            raise UserError(
                f"evolve has nothing to change: neither baseline defines {' or '.join(self._types)};"
                " give it candidates to start from, or other --shaper_types"
            )
        sources.update(self._starts if not archive.attempts or not sources else {})
        first: dict[str, str] = {}
        for name, source in sources.items():
            first.setdefault(source.fingerprint(), name)
        return {name: sources[name] for name in first.values()}

    def _source(self, candidate: Attempt | Proposal) -> Source | None:
        """Return what can be changed of a candidate; None if there is nothing."""
        source = parsed(candidate, self._types)
        return source if source is not None and source.shapers(self._types) else None

    def _fingerprints(self, candidates: Sequence[Attempt | Proposal]) -> set[str]:
        return {source.fingerprint() for source in map(self._source, candidates) if source is not None}


def _all(archive: Archive) -> list[Attempt]:
    return [*archive.baselines.values(), *archive.attempts]


def _outdated_docstrings(source: Source, before: Source) -> Iterator[Edit]:
    """Yield the edits that remove the docstrings of functions that were changed."""
    for name, new in source.definitions.items():
        old, docstring = before.function(name), ast.get_docstring(new) if isinstance(new, ast.FunctionDef) else None
        if old is not None and docstring and docstring == ast.get_docstring(old) and ast.dump(new) != ast.dump(old):
            first, second = new.body[0], new.body[1]  # type: ignore[attr-defined]
            yield source.span(first)[0], source.span(second)[0], ""


# operation: scale a number

SPREADS = (0.2, 0.6, 0.6, 1.5)  # standard deviations of a factor's logarithm: mostly small steps, sometimes large
MIN_LOG_FACTOR = 0.25  # smaller changes make near copies, see shaping/copies.py
ZERO = 0.04  # probability that a number becomes zero
_SIZE_FUNCTIONS = {
    "range", "arange", "zeros", "ones", "full", "empty", "rand", "randn", "view", "reshape", "expand", "repeat",
    "unsqueeze", "permute", "transpose", "unflatten", "flatten", "tile", "chunk", "split", "narrow",
}  # fmt: skip


def scale_number(source: Source, types: Iterable[str], rng: Random) -> Change:
    """Scale a number of a function, or of a definition that it uses, by a log-normal factor.

    The reward has twice the weight of other functions. Of an action function, the result is also a number to scale.
    """
    shapers = source.shapers(types)
    if not shapers:
        return None
    name = rng.choice([*shapers, *[REWARD] * (REWARD in shapers)])
    result = _result(source, name)
    # the result of an action function is a number like those in it
    if name in ACTION_TYPES and result is not None and rng.random() < 0.5:
        factor = _factor(rng)
        start, end = source.span(result)
        return source.edited((start, start, f"{factor} * ("), (end, end, ")")), f"{factor:.3g} times {name}"
    definitions = {used: source.definitions[used] for used in source.reachable(shapers[name]) if used != ACTION_DIM}
    inside = {used: list(numbers(x)) for used, x in definitions.items() if not isinstance(x, ast.ClassDef)}
    # a definition first, so that one with many numbers is not chosen more often
    names = [used for used, constants in inside.items() if constants]
    if not names:
        return None
    used = rng.choice(names)
    node, is_int, may_be_zero = rng.choice(inside[used])
    before: Any = node.value
    if may_be_zero and rng.random() < ZERO:
        after = 0.0
    elif is_int:
        after = rng.choice([x for x in (before - 1, before + 1, 2 * before) if x > 0])
    else:
        after = _rounded(before * _factor(rng))
    return source.edited((*source.span(node), repr(after))), f"{before:.3g} to {after:.3g} in {used}"


def scale_term(source: Source, effects: Mapping[str, Tendency], rng: Random) -> Change:
    """Scale a whole term of the reward: the more often, the larger its effects, and mostly the way that they point to.

    A term of unknown effects counts as one of their mean.
    """
    terms = list(reward_terms(source))
    if not terms:
        return None
    mean = math.fsum(x.size for x in effects.values()) / len(effects) or 1.0
    name = rng.choices(terms, [effects[term].size if term in effects else mean for term in terms])[0]
    factor = _factor(rng)
    if name in effects and rng.random() < MEASURED_WAY and (factor > 1.0) != effects[name].up:
        factor = _rounded(1.0 / factor)
    return scaled(source, {name: factor}), f"{factor:.3g} times {name!r}"


def _factor(rng: Random) -> float:
    """Draw a log-normal factor with median 1, not too close to 1, rounded to three digits."""
    power, spread = 0.0, rng.choice(SPREADS)
    while abs(power) < MIN_LOG_FACTOR:
        power = rng.gauss(0.0, spread)
    return _rounded(math.exp(power))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


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
        elif isinstance(node, ast.Call) and _callee(node) in _SIZE_FUNCTIONS and child is not node.func:
            continue
        elif not (isinstance(node, ast.Subscript) and child is node.slice) and not isinstance(child, ast.JoinedStr):
            yield from numbers(child)


def _callee(call: ast.Call) -> str:
    """Return ``f`` of ``a.b.f(...)`` and of ``f(...)``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _result(source: Source, name: str) -> ast.expr | None:
    """Return the expression that a function returns at its end, of a pair the first; None without one."""
    function = source.function(name)
    last = function.body[-1] if function is not None else None
    value = last.value if isinstance(last, ast.Return) else None
    return value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value


# operation: take a function from another candidate


def take_function(source: Source, donor: Source, donor_name: str, types: Iterable[str], rng: Random) -> Change:
    """Take a function of the donor, with the helpers and constants that it uses."""

    def dumps(of: Source) -> dict[str, list[str]]:
        names = of.shapers(types)
        return {shaper: [ast.dump(of.definitions[name]) for name in needed] for shaper, needed in names.items()}

    before, donated = dumps(source), donor.shapers(types)
    names = [name for name, dump in dumps(donor).items() if before.get(name) != dump]
    if not names:
        return None
    name = rng.choice(names)
    # replace the other action function, and the constant and the dicts that a function goes with
    constant = ACTION_DIM if name in ACTION_TYPES else REWARD_FACTORS if name == REWARD else ""
    replaced = [*(ACTION_TYPES if name in ACTION_TYPES else [name]), constant]
    replaced += source.shapers([name]).get(name, [])
    replaced += [alias for alias, proper in ALIASES.items() if proper in replaced]
    roots = [*donated[name], *([constant] if constant in donor.definitions else [])]
    return source.without(replaced).joined(donor, roots), f"{name} of {donor_name}"


# operation: add a term of the state to the reward

# typical sizes by unit, SI; of other units 1
SIZES = {"m": 0.3, "rad": 0.5, "m/s": 1.0, "rad/s": 3.0, "N": 50.0, "N m": 10.0}
# keys with these words are constant: only distances from them vary
REFERENCES = re.compile(r"(?:^|_)(?:initial|init|default|basis|inv|gravity)_")
ROTATION = re.compile(r"quat|rot|orient", re.IGNORECASE)  # the key or the meaning of a quaternion has one of these
RIGID_UNIT = "m, -, m/s, rad/s"  # position 3, quaternion xyzw 4, linear and angular velocity 3 each
UTILS = ("quat_axis", "quat_diff_rad", "quat_rotate_inverse")
RESULTS = ("reward_buf", "reward_terms", "obs_buf", "critic_buf", "score")  # results of a task's terms, and its fitness
# terms of a number {x} of size {s}, and of a vector of such numbers
SCALARS = ("{x} / {s}", "-{x} / {s}", "-(({x} / {s}) ** 2)", "torch.exp(-(({x} / {s}) ** 2))", "torch.tanh({x} / {s})")
VECTORS = ("-torch.mean(({x} / {s}) ** 2, dim=-1)", "torch.exp(-torch.mean(({x} / {s}) ** 2, dim=-1))")
# every task has these: being alive, and the size of the actions, whose number of columns is the candidate's
COMMON = (
    ("alive", "torch.ones_like({progress_buf}).float()", "1.0 * {x}"),
    ("actions", "{actions}", VECTORS[0].replace("{s}", "1.0")),
)


@dataclass(frozen=True)
class Quantity:
    """A function of the state: a part of it, or how far two parts of it are apart.

    Attributes:
        name: an identifier.
        text: its expression, ``(n,)`` or ``(n, k)``; ``{KEY}`` stands for a key of the state.
        sizes: typical absolute values of its k columns; one for ``(n,)``. A term divides by them, so that it is of the
            order of 1; its numbers are scaled from there.
        vector: whether it is ``(n, k)``.
    """

    name: str
    text: str
    sizes: tuple[float, ...] = (1.0,)
    vector: bool = False

    @property
    def uniform(self) -> bool:
        """Whether all columns have one size, so that their mean square makes sense."""
        return self.vector and len(set(self.sizes)) == 1


def add_term(source: Source, all_quantities: Sequence[Quantity], rng: Random) -> Change:
    """Add a term of the task's state to the reward, which is computed in a helper function."""
    result, reward = _result(source, REWARD), source.function(REWARD)
    if result is None or reward is None:
        return None
    label, text = draw_term(all_quantities, rng)
    helper = unused(f"{label}_term", source.text)
    source = source.joined(Source(text.replace(REWARD, helper)), [helper])
    reward, result = source.function(REWARD), _result(source, REWARD)
    assert reward is not None and result is not None
    (start, end), weight = source.span(result), _factor(rng)
    opening, closing = ("", "") if isinstance(result, (ast.Name, ast.Call)) else ("(", ")")
    edits = [(start, start, opening), (end, end, f"{closing} + {weight} * {helper}(state_dict)")]
    # the function may read single keys of the state by name, and not the state
    arguments = [*reward.args.posonlyargs, *reward.args.args, *reward.args.kwonlyargs]
    if "state_dict" not in {argument.arg for argument in arguments}:
        parameters = source.text.encode().index(b"(", source.span(reward)[0]) + 1
        edits.append((parameters, parameters, "state_dict, " if arguments else "state_dict"))
    return source.edited(*edits), f"{weight:.3g} times {label!r} of the state"


def draw_term(all_quantities: Sequence[Quantity], rng: Random) -> tuple[str, str]:
    """Return the label and the text of a candidate whose reward is one term."""
    k = rng.randrange(len(all_quantities) + len(COMMON))
    if k >= len(all_quantities):
        return _candidate(*COMMON[k - len(all_quantities)])
    quantity = all_quantities[k]
    if quantity.uniform and rng.random() < 0.5:
        return _candidate(quantity.name, quantity.text, rng.choice(VECTORS).replace("{s}", str(quantity.sizes[0])))
    name, text, column = quantity.name, quantity.text, rng.randrange(len(quantity.sizes))
    if quantity.vector:
        text = f"({text})[:, {column}]" if " - " in text else f"{text}[:, {column}]"
        name = f"{name}_{column}"
    return _candidate(name, text, rng.choice(SCALARS).replace("{s}", str(quantity.sizes[column])))


def _candidate(name: str, text: str, term: str) -> tuple[str, str]:
    value = text.replace("{", 'state_dict["').replace("}", '"]')
    helpers = [helper for helper in UTILS if f"{helper}(" in value]
    name = re.sub(r"\W", "_", name)
    head = f"from envcoder_bench.torch_utils import {', '.join(helpers)}\n" if helpers else ""
    body = f"    {name} = {value}\n    return {term.replace('{x}', name)}\n"
    return name.lower(), f"{head}import torch\n\n\ndef {REWARD}(state_dict):\n{body}"


def quantities(state: Mapping[str, Key]) -> list[Quantity]:
    """Return the quantities of a state with these keys, shapes without the environment axis; only floats are used."""
    floats = {key: spec for key, spec in state.items() if spec.dtype.startswith("float") and math.prod(spec.shape)}
    floats = {key: spec for key, spec in floats.items() if key not in RESULTS and "wxyz" not in spec.meaning}
    specs = {key: _resolved(spec, state) for key, spec in floats.items()}
    all_quantities = [q for key, spec in specs.items() if not REFERENCES.search(key) for q in _of_key(key, spec)]
    for (a, spec), (b, other) in combinations(specs.items(), 2):
        constant = REFERENCES.search(a) and REFERENCES.search(b)
        if spec.shape == other.shape and spec.unit == other.unit != "" and len(spec.shape) < 2 and not constant:
            all_quantities.append(_apart(a, b, spec))
    return all_quantities


def _resolved(spec: Key, state: Mapping[str, Key]) -> Key:
    """Return a key with the unit of another one in place of ``as KEY``."""
    unit = spec.unit[3:] if spec.unit.startswith("as ") else ""
    return replace(spec, unit=state[unit].unit) if unit in state else spec


def _is_rotation(key: str, spec: Key) -> bool:
    return spec.shape == (4,) and spec.unit in ("-", "") and ROTATION.search(f"{key} {spec.meaning}") is not None


def _of_key(key: str, spec: Key) -> list[Quantity]:
    """Return the quantities of one key."""
    units, text = spec.unit.split(", "), f"{{{key}}}"
    size = SIZES.get(units[0], 1.0)
    if spec.shape == ():
        return [Quantity(key, text, (size,))]
    if _is_rotation(key, spec):
        return [Quantity(f"{key}_up", f"quat_axis({text}, 2)[:, 2]")]
    if spec.shape == (13,) and spec.unit == RIGID_UNIT:
        turned = f"{text}[:, 3:7]"
        return [
            Quantity(f"{key}_height", f"{text}[:, 2]", (SIZES["m"],)),
            Quantity(f"{key}_up", f"quat_axis({turned}, 2)[:, 2]"),
            Quantity(f"{key}_velocity", f"quat_rotate_inverse({turned}, {text}[:, 7:10])", 3 * (SIZES["m/s"],), True),
            Quantity(f"{key}_spin", f"quat_rotate_inverse({turned}, {text}[:, 10:13])", 3 * (SIZES["rad/s"],), True),
        ]
    if len(spec.shape) == 1:
        each = tuple(SIZES.get(unit, 1.0) for unit in units)
        return [Quantity(key, text, each if len(each) == spec.shape[0] else spec.shape[0] * (size,), True)]
    if len(spec.shape) == 2 and spec.shape[1] == 3:  # a vector for each body
        return [Quantity(f"{key}_norm", f"torch.norm({text}, dim=-1)", spec.shape[0] * (size,), True)]
    return []


def _apart(a: str, b: str, spec: Key) -> Quantity:
    """Return how far two keys of one shape and unit are apart."""
    name, size = f"{a}_to_{b}", SIZES.get(spec.unit.split(", ")[0], 1.0)
    if _is_rotation(a, spec):
        return Quantity(name, f"quat_diff_rad({{{a}}}, {{{b}}})", (SIZES["rad"],))
    if spec.shape == (13,) and spec.unit == RIGID_UNIT:
        return Quantity(name, f"{{{a}}}[:, 0:3] - {{{b}}}[:, 0:3]", 3 * (SIZES["m"],), True)
    return Quantity(name, f"{{{a}}} - {{{b}}}", math.prod(spec.shape) * (size,), spec.shape != ())
