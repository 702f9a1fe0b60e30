"""The effects of a candidate's reward terms: variants of the best as proposals of a round, and what they have shown.

A term is a component that ``compute_reward`` returns by name. A variant has one of them left out, halved or doubled
where the function computes it. Variants are candidates of the search like any other: one that is better becomes the
best. The best is trained in every round, so that variants are compared with it by seed.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from envcoder_bench.results.effects import Effect, studies
from envcoder_bench.results.rows import OK, Result
from envcoder_bench.results.statistics import half_width
from envcoder_bench.search.archive import Archive, Attempt, Proposal, difference, proposal_name
from envcoder_bench.shaping.kinds import REWARD, SHAPER_TYPES
from envcoder_bench.shaping.source import Edit, Source, UnsupportedCode, shaping_source
from envcoder_bench.shaping.variants import FACTORS, TERMS, Variant

LEFT_OUT = 0.25  # the factor whose logarithm stands for that of 0


# the text of a reward


def reward_terms(source: Source) -> dict[str, ast.expr]:
    """Return the expressions of a reward's components by name, if a factor changes reward and component alike.

    A component qualifies as a value in a dict that the reward is computed from, or as a variable that both the dict and
    the reward use. Components of any other form, and those whose factor is 0, are not returned.
    """
    reward = source.function(REWARD)
    last = reward.body[-1] if reward is not None else None
    pair = last.value if isinstance(last, ast.Return) else None
    if reward is None or not isinstance(pair, ast.Tuple) or len(pair.elts) != 2:
        return {}
    names = [x for x in ast.walk(reward) if isinstance(x, ast.Name)]
    stores, loads = (Counter(x.id for x in names if isinstance(x.ctx, kind)) for kind in (ast.Store, ast.Load))
    # variables with one assignment: a factor there changes every use alike
    assigned = {
        statement.targets[0].id: statement.value
        for statement in reward.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        if len(statement.targets) == 1 and stores[statement.targets[0].id] == 1
    }
    # the dict of components, also behind a name
    total, components = pair.elts
    is_read = isinstance(components, ast.Name) and loads[components.id] > 1  # the reward reads it
    if isinstance(components, ast.Name):
        components = assigned.get(components.id, components)
    # keep the components that the reward is computed from; others are only returned beside it
    terms = {}
    for key, value in zip(components.keys, components.values) if isinstance(components, ast.Dict) else ():
        if isinstance(value, ast.Name) and value.id != getattr(total, "id", ""):
            is_used, value = is_read or loads[value.id] > 1, assigned.get(value.id)
        else:
            is_used = is_read
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_used and value is not None:
            terms[key.value] = value
    return {name: value for name, value in terms.items() if getattr(_weight(value), "value", 1.0) != 0.0}


def _weight(value: ast.expr) -> ast.Constant | None:
    """Return the number with which a product begins; None if it begins with none."""
    while isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        value = value.left
    value = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
    return value if isinstance(value, ast.Constant) and type(value.value) in (int, float) else None


def scaled(source: Source, factors: Mapping[str, float]) -> Source:
    """Return a copy with some of ``reward_terms`` multiplied by factors. Raises UnsupportedCode if it is not valid."""
    terms, edits = reward_terms(source), list[Edit]()
    for name, factor in factors.items():
        weight, (start, end) = _weight(terms[name]), source.span(terms[name])
        if weight is None:
            edits += [(start, start, f"{factor!r} * ("), (end, end, ")")]
        else:
            edits.append((*source.span(weight), repr(float(f"{weight.value * factor:.6g}"))))  # type: ignore[operator]
    return source.edited(*edits)


# variants


def term_variants(
    archive: Archive, round: int, count: int, most: int, types: Iterable[str] | None = None
) -> list[Proposal]:
    """Return variants of the best attempt that were not tried yet, the terms with the greatest shares first.

    Args:
        count: candidates of the round; variants have the last names of it.
        most: variants; there are fewer, perhaps none, where the best has too few terms.
    """
    best, types = archive.best(), tuple(types or SHAPER_TYPES)
    source = None if best is None else parsed(best, types)
    if best is None or source is None:
        return []
    # the terms of the trained policy, by the size of their means
    last = max((point.iteration for point in best.points), default=0)
    means = [point.components for point in best.points if point.iteration == last]
    sizes = {name: sum(abs(x[name][0]) for x in means if name in x) for name in reward_terms(source)}
    terms = sorted(sizes, key=lambda name: -sizes[name])
    tried = {reward.fingerprint() for a in archive.attempts if (reward := parsed(a, types)) is not None}
    # each term once, with different factors, then each with another
    changes = [
        (term, FACTORS[(k + turn) % len(FACTORS)]) for turn in range(len(FACTORS)) for k, term in enumerate(terms)
    ]
    try:
        new = [(term, factor, scaled(source, {term: factor})) for term, factor in changes]
    except UnsupportedCode:
        return []
    new = [change for change in new if change[2].fingerprint() not in tried][: min(most, count)]
    proposals = []
    for k, (term, factor, variant) in enumerate(new, count - len(new)):
        name, what = proposal_name(round, k), f"{best.name}: {Effect(best.name, '', term, factor).what}"
        text = variant.with_docstring(f"{name}, a variant of {what}.")
        proposals.append(Proposal(name, text, (best.name,), what, term=term, factor=factor))
    return proposals


def parsed(candidate: Attempt | Proposal, types: Iterable[str]) -> Source | None:
    """Return what shapes of a candidate; None if it has code that cannot be changed."""
    try:
        return shaping_source(candidate.source, types)
    except UnsupportedCode:
        return None


# what they have shown


def effects_text(attempt: Attempt, archive: Archive) -> str:
    """Return a line for each term of an attempt with the effects of its variants; empty without any."""
    variants = [a for a, _ in _compared(archive) if a.parents == (attempt.name,)]
    seeds = [(a.name, seed, x) for a in (attempt, *variants) for seed, x in a.by_seed.items()]
    rows = [Result(name, seed, fitness=x, episodes=archive.episodes) for name, seed, x in seeds]
    by_name = {a.name: Variant(attempt.name, TERMS, a.term, a.factor) for a in variants}
    lines = []
    for study in studies(by_name, rows, bounds=archive.bounds):
        lines = ["Its fitness changes with its reward's terms, measured with the same seeds (!: differs from 0, 5 %):"]
        for term in study.terms:
            effects = sorted(study.of_term(term).values(), key=lambda effect: effect.factor)
            lines.append(f"{term}: {', '.join(map(_effect_text, effects))}")
    return "\n".join(lines)


def _effect_text(effect: Effect) -> str:
    change = {0.0: "left out", 0.5: "halved", 2.0: "doubled"}.get(effect.factor, f"times {effect.factor:.3g}")
    half = half_width(effect.effect, effect.ci_low, effect.ci_high)
    interval = " (one seed)" if effect.seeds < 2 else "" if math.isnan(half) else f" ± {half:.2g}"
    return f"{change} {effect.effect:+.3g}{interval}{' !' * effect.significant}"


@dataclass(frozen=True)
class Tendency:
    """What all variants with another weight of a term, of whatever candidates, say of it.

    Attributes:
        size: mean size of their effects on fitness.
        up: whether fitness rises with the weight, as a whole.
    """

    size: float
    up: bool


def tendencies(archive: Archive) -> dict[str, Tendency]:
    """Return the tendency of each term of which a variant was compared with its original."""
    effects: dict[str, list[tuple[float, float]]] = {}
    for variant, gap in _compared(archive):
        effects.setdefault(variant.term, []).append((math.log(max(variant.factor, LEFT_OUT)), gap))
    return {
        term: Tendency(math.fsum(abs(gap) for _, gap in pairs) / len(pairs), sum(x * gap for x, gap in pairs) > 0)
        for term, pairs in effects.items()
    }


def _compared(archive: Archive) -> Iterator[tuple[Attempt, float]]:
    """Yield the variants that share a seed with their original, and the difference in fitness."""
    attempts = {a.name: a for a in archive.attempts}
    for variant in archive.attempts:
        if variant.term and variant.status == OK and not variant.stopped_at:
            gap = difference(variant, attempts[variant.parents[0]])
            if gap is not None:
                yield variant, gap
