"""What a run with variants says: the effect of each change on fitness and on the speed of learning.

An effect is a difference to the original, paired by seed, with the interval and the p-value of
``statistics.FitnessModel``, whose spread of seeds is pooled over the original and its variants. Marks hold for all
changes of an original together, and for all looks at the run: p-values are corrected, see ``statistics.corrected``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path

from envcoder_bench.core.files import write_atomic
from envcoder_bench.results.csv_log import table_text
from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.logs import Point
from envcoder_bench.results.pairs import seeds_needed
from envcoder_bench.results.rows import NAN, Result, fewest_episodes, whole_fitness
from envcoder_bench.results.speed import steps_until, target_fitness
from envcoder_bench.results.statistics import LEVEL, UNBOUNDED, Evaluation, corrected, look_level, mean_or_nan
from envcoder_bench.shaping.outputs import TOTAL
from envcoder_bench.shaping.variants import SWEEP, Variant, label, short
from envcoder_bench.tasks.base import UNTRAINED

NO_EFFECT = "no effect can be shown"
SIZE = 0.1  # of an effect that matters, as a share of the fitness' range, or of what the original learns


@dataclass(frozen=True)
class Effect:
    """A variant of a candidate, compared with it. Unknown numbers are NaN.

    Attributes:
        original, candidate: the names of the candidate and of its variant.
        term, factor, function, values: what was changed, as of ``Variant``.
        fitness, fitness_ci_low, fitness_ci_high: of the variant, with its 95 % interval.
        effect, ci_low, ci_high: its fitness minus the original's, with the 95 % interval.
        p: p-value that this is 0, corrected for all changes of the original.
        steps: mean env-steps of a seed until SHARE of what the original learns; of seeds that never have it, all.
        reached: number of seeds that have it.
        slower, slower_low, slower_high, slower_p: these env-steps over the original's, by seed, and as above; with
            seeds that never have it, slower_high is infinite.
        share: the share of the term in the original's reward at the end of the training, by mean sizes; NaN if the
            weight of one term is not one number.
        status: of the variant, where it has no fitness that can be compared; else empty.
    """

    original: str
    candidate: str
    term: str = ""
    factor: float = NAN
    function: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    fitness: float = NAN
    fitness_ci_low: float = NAN
    fitness_ci_high: float = NAN
    effect: float = NAN
    ci_low: float = NAN
    ci_high: float = NAN
    p: float = NAN
    seeds: int = 0
    steps: float = NAN
    reached: int = 0
    slower: float = NAN
    slower_low: float = NAN
    slower_high: float = NAN
    slower_p: float = NAN
    share: float = NAN
    status: str = ""

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    @property
    def slower_significant(self) -> bool:
        return self.slower_p < LEVEL

    @property
    def what(self) -> str:
        """The change in a few words."""
        if self.term:
            words = {0.0: f"without {self.term}", 0.5: f"half of {self.term}", 2.0: f"twice {self.term}"}
            return words.get(self.factor, f"{self.term} x {short(self.factor)}")
        if self.function:
            return f"without {self.function}"
        return ", ".join(f"{label(name)}={short(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class Study:
    """A candidate with all of its variants.

    Attributes:
        flag: TERMS or SWEEP.
        fitness, fitness_ci_low, fitness_ci_high, steps: of the original, as of Effect.
        target: the fitness whose env-steps are compared.
        has_learned: whether the original is better than the policy before training, as far as this is known.
        usual: of a sweep, the original's values.
        size: an effect that matters, see SIZE; NaN if it is not known.
        seeds_needed: number of seeds that show an effect of this size of any change, see ``pairs.seeds_needed``.
    """

    original: str
    flag: str
    effects: Sequence[Effect]
    fitness: float = NAN
    fitness_ci_low: float = NAN
    fitness_ci_high: float = NAN
    steps: float = NAN
    target: float = NAN
    has_learned: bool = True
    usual: Mapping[str, float] = field(default_factory=dict)
    size: float = NAN
    seeds_needed: int | None = None

    @property
    def is_sweep(self) -> bool:
        return self.flag == SWEEP

    @property
    def most_seeds(self) -> int:
        return max((effect.seeds for effect in self.effects), default=0)

    @property
    def comparisons(self) -> int:
        """Number of effects for which p-values are corrected."""
        return sum(not math.isnan(effect.p) for effect in self.effects)

    @property
    def terms(self) -> list[str]:
        """The names of the terms, in the order of the reward."""
        return list(dict.fromkeys(effect.term for effect in self.effects if effect.term))

    def of_term(self, term: str) -> dict[float, Effect]:
        """Return the effects of a term by factor."""
        return {effect.factor: effect for effect in self.effects if effect.term == term}


def studies(
    variants: Mapping[str, Variant],
    rows: Sequence[Result],
    evaluation: Evaluation | None = None,
    points: Sequence[Point] = (),
    bounds: tuple[float, float] = UNBOUNDED,
    looks: int = 1,
) -> list[Study]:
    """Compare variants with their originals.

    Args:
        variants: what the variants are, by name, in the order of the run.
        rows, evaluation, points, bounds, looks: as of ``ranking.rank``.
    """
    by_original: dict[str, dict[str, Variant]] = {}
    for name, variant in variants.items():
        by_original.setdefault(variant.original, {})[name] = variant
    return [_study(name, changed, rows, evaluation, points, bounds, looks) for name, changed in by_original.items()]


def _study(
    original: str,
    variants: Mapping[str, Variant],
    rows: Sequence[Result],
    evaluation: Evaluation | None,
    points: Sequence[Point],
    bounds: tuple[float, float],
    looks: int,
) -> Study:
    names = (original, *variants)
    fitness_of = whole_fitness(rows)
    whole = {name: fitness_of[name] for name in names if name in fitness_of}
    lost = {row.candidate: row for row in rows if not row.whole}
    compared = [name for name in variants if {name, original} <= whole.keys()]
    # fitness; the number of episodes is all that is known of those that are not on disk
    model = FitnessModel(whole, evaluation, bounds, fewest_episodes(rows))
    fitness, low, high = model.interval(original) if original in whole else (NAN, NAN, NAN)
    differences = _differences(model, compared, original, looks)
    # speed of learning
    before = mean_or_nan([row.fitness for row in rows if row.candidate == UNTRAINED and row.measured])
    target, reached = _reached(original, names, points, fitness, before)
    logs = {name: {seed: math.log(steps) for seed, (steps, _) in by_seed.items()} for name, by_seed in reached.items()}
    speeds = _differences(FitnessModel(logs), compared, original, looks)
    # all together
    shares = _shares(original, variants, points) if original in whole else {}
    effects = []
    for name, variant in variants.items():
        interval = model.interval(name) if name in whole else (NAN, NAN, NAN)
        speed, until = speeds.get(name, Difference()), reached.get(name, {}).values()
        arrived = sum(is_there for _, is_there in until)
        effects.append(
            Effect(
                original,
                name,
                variant.term,
                variant.factor if variant.term else NAN,
                variant.function,
                dict(variant.values),
                *interval,
                *astuple(differences.get(name, Difference()))[:5],
                steps=mean_or_nan([steps for steps, _ in until]),
                reached=arrived,
                slower=math.exp(speed.mean),
                slower_low=math.exp(speed.low),
                # how long seeds that never had it would take is unknown
                slower_high=math.exp(min(speed.high, 700.0)) * (1.0 if arrived == len(until) else math.inf),
                slower_p=speed.p,
                share=shares.get(variant.term, NAN),
                status="" if name in whole else _why_not(lost.get(name)),
            )
        )
    # how many seeds would show an effect that matters
    bounded = math.isfinite(bounds[1] - bounds[0])
    size = SIZE * (bounds[1] - bounds[0] if bounded else abs(fitness - before))
    tested = [difference for difference in differences.values() if not math.isnan(difference.p)]
    level = look_level(looks + 1) / max(len(tested), 1)  # further seeds are the next look
    needed = [seeds_needed(difference, size, level) for difference in tested]
    # what all variants of an original have in common
    first = next(iter(variants.values()))
    return Study(
        original,
        first.flag,
        effects,
        fitness,
        low,
        high,
        steps=mean_or_nan([steps for steps, _ in reached.get(original, {}).values()]),
        target=target,
        has_learned=not fitness <= before,  # also where one of them is not known
        usual=dict(first.usual),
        size=size,
        seeds_needed=None if None in needed else max(map(int, filter(None, needed)), default=None),
    )


def _why_not(row: Result | None) -> str:
    """Return why a variant has no fitness that can be compared, from a row of it."""
    if row is None:
        return "no fitness"
    return f"stopped at {row.stopped_at}" if row.stopped_at else row.status


def _differences(model: FitnessModel, names: Sequence[str], original: str, looks: int) -> dict[str, Difference]:
    """Return the differences to the original of the variants that the model has, with corrected p-values."""
    both = [name for name in names if {name, original} <= {*model.names}]
    pairs = dict(zip(both, model.differences(both, original) if both else []))
    p_values = corrected([difference.p for difference in pairs.values()], looks)
    return {name: replace(difference, p=p) for (name, difference), p in zip(pairs.items(), p_values)}


# speed of learning


_Reached = dict[str, dict[int, tuple[float, bool]]]  # by candidate and seed: env-steps, and whether it got there


def _reached(
    original: str, names: Sequence[str], points: Sequence[Point], fitness: float, before: float
) -> tuple[float, _Reached]:
    """Return the fitness whose env-steps are compared, and the env-steps of each candidate and seed until it.

    Args:
        fitness: of the original at the end.
        before: of the policy before training; NaN: the least one that the original had.
    """
    courses: dict[str, dict[int, list[tuple[int, float]]]] = {}
    for point in points:
        if point.candidate in names and point.env_steps and math.isfinite(point.fitness):
            by_seed = courses.setdefault(point.candidate, {})
            by_seed.setdefault(point.seed, []).append((point.env_steps, point.fitness))
    fitness_of_original = [value for course in courses.get(original, {}).values() for _, value in course]
    start = min(fitness_of_original, default=NAN) if math.isnan(before) else before
    target = target_fitness(start, fitness)
    if math.isnan(target):
        return NAN, {}
    return target, {
        name: {seed: steps_until(target, start, sorted(course)) for seed, course in by_seed.items()}
        for name, by_seed in courses.items()
    }


def _shares(original: str, variants: Mapping[str, Variant], points: Sequence[Point]) -> dict[str, float]:
    """Return each term's share of the original's reward at its last evaluation, by mean sizes over the seeds."""
    weights = {variant.term: variant.weight for variant in variants.values() if variant.term}
    if not all(weights.values()):  # what a term adds is not known
        return {}
    last: dict[int, Point] = {}
    for point in points:
        if point.candidate == original and point.components:
            last[point.seed] = max(last.get(point.seed, point), point, key=lambda one: one.iteration)
    means = {
        term: mean_or_nan([stats[0] for point in last.values() if (stats := point.components.get(term)) is not None])
        for term in weights
        if term != TOTAL
    }
    sizes = {term: abs(weights[term] * mean) for term, mean in means.items() if math.isfinite(mean)}
    total = math.fsum(sizes.values())
    return {term: size / total for term, size in sizes.items()} if total > 0 else {}


# the file


COLUMNS = tuple(field.name for field in fields(Effect))


def write_effects(path: Path, all_studies: Sequence[Study]) -> None:
    """Write a row for each variant, atomically."""
    effects = [effect for study in all_studies for effect in study.effects]
    rows = [{**vars(effect), "values": json.dumps(effect.values) if effect.values else ""} for effect in effects]
    write_atomic(path, table_text(COLUMNS, ([row[column] for column in COLUMNS] for row in rows)))
