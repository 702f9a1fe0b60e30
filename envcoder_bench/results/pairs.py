"""Which of two candidates is better, how sure this is, and how many seeds would tell.

The console, the page, ``RunResult.difference`` and ``envcoder-bench compare RUN A B`` show the same ``Pair``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.words import counted, decimal_places, fixed, number
from envcoder_bench.results.fitness_model import Difference, FitnessModel, farthest, least_error, unseen_share
from envcoder_bench.results.last_quarter import LastQuarter
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.statistics import LEVEL, NAN, corrected, look_level, t_probability, t_quantile
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNTRAINED

BETTER, WORSE, CANNOT_TELL = "better", "worse", "cannot tell"
POWER = 0.8  # probability with which so many seeds tell a difference
MOST_SEEDS = 1000  # more are not counted


@dataclass(frozen=True)
class Pair:
    """A candidate, compared with another one.

    Attributes:
        mean, low, high: fitness of ``first`` minus that of ``second``, and its 95 % interval; NaN where unknown.
        p: two-sided p-value that the true difference is 0, as if the run had no other pair.
        corrected: the same, corrected for the ``tests`` of the family, which are the candidates of the run against the
            human baseline, or all pairs, and for looks at the run, see ``statistics.look_level``.
        seeds: number of seeds that both have.
        seeds_needed: number of seeds with which a true difference of ``mean`` is told with a probability of POWER;
            0 if it is told already, None if it is unknown or over MOST_SEEDS.
        reason: why the interval is missing; empty if it is not.
        extends: whether the run can be extended by seeds.
        within_unseen: whether outcomes that the seeds have not shown can explain the whole difference; ``p`` is then 1.
    """

    first: str
    second: str
    mean: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    corrected: float = NAN
    tests: int = 0
    seeds: int = 0
    seeds_needed: int | None = None
    reason: str = ""
    extends: bool = True
    within_unseen: bool = False

    @property
    def verdict(self) -> str:
        """BETTER, WORSE or CANNOT_TELL, of ``first``."""
        return CANNOT_TELL if not self.corrected < LEVEL else BETTER if self.mean > 0 else WORSE

    def __str__(self) -> str:
        return sentence(self)


class Pairs:
    """All pairs of candidates of a run.

    A pair with the human baseline is tested as the ranking marks it: corrected for the candidates. Any other pair is
    one of all pairs, as the letters of the ranking are.

    Args:
        model: of the candidates whose training is complete.
        missing: why further candidates cannot be compared, by name.
        looks: how often the run was tested, as of ``ranking.rank``.
        extends: whether the run can be extended by seeds.
        last_quarter: how well the ranks agree over the last quarter of the training; None if it is unknown.
    """

    def __init__(
        self,
        model: FitnessModel,
        missing: Mapping[str, str] | None = None,
        looks: int = 1,
        extends: bool = True,
        last_quarter: LastQuarter | None = None,
    ) -> None:
        self._extends, self.last_quarter = extends, last_quarter
        self.names = list(model.names)
        self.missing = dict(missing or {})
        self._index = {name: k for k, name in enumerate(self.names)}
        self._rows = [model.differences(name, self.names[k:]) for k, name in enumerate(self.names, 1)]
        p_values = [[difference.p for difference in row] for row in self._rows]
        self._all = _Family([p for row in p_values for p in row], looks)
        rest = [name for name in self.names if name not in BASELINES]
        human = [each.p for each in model.differences(rest, HUMAN)] if HUMAN in self._index else []
        self._human = dict.fromkeys(rest, _Family(human, looks))

    def named(self, first: str, second: str) -> Pair:
        """Return ``of`` two names that somebody typed. Raises UserError with near matches for an unknown one."""
        names = [*self.names, *self.missing]
        for name in (first, second):
            if name not in names:
                raise UserError(f"no candidate '{name}'{near_matches(name, names)}; there are {', '.join(names)}")
        if first == second:
            raise UserError(f"{first} is given twice: give two candidates")
        return self.of(first, second)

    def of(self, first: str, second: str) -> Pair:
        """Return a candidate compared with another one. Raises KeyError for a name that the run does not have."""
        for name in (first, second):
            if name in self.missing:
                return Pair(first, second, reason=f"{name} {self.missing[name]}")
        a, b = self._index[first], self._index[second]
        difference = self._rows[min(a, b)][abs(b - a) - 1]
        sign = 1.0 if a < b else -1.0
        low, high = (difference.low, difference.high) if a < b else (-difference.high, -difference.low)
        against = {first, second} - {HUMAN}
        family = self._human.get(against.pop(), self._all) if len(against) == 1 else self._all
        factor, corrected = family.of(difference.p)
        signed = replace(difference, mean=sign * difference.mean, low=low, high=high)
        return _pair(first, second, signed, corrected, family.tests, family.next_level / factor, self._extends)


def campaign_pair(
    model: FitnessModel, first: str, second: str, level: float, later: float | np.ndarray | None = None
) -> Pair:
    """Return a pair of a run that is one of many, whose other pairs are not known yet.

    Args:
        level: of this test; its p-value is scaled so that LEVEL decides.
        later: level of a test with more seeds, or levels with 2, 3 ... MOST_SEEDS; default ``level``.
    """
    difference = at_level(model.difference(first, second), level)
    p = min(1.0, difference.p * LEVEL / level) if level > 0 else NAN
    tests = round(LEVEL / level) if level > 0 else 0
    return _pair(first, second, difference, p, tests, level if later is None else later, False)


def at_level(difference: Difference, level: float) -> Difference:
    """Return a difference whose p-value allows for more unseen outcomes, as a test at a level far below LEVEL must.

    One of many candidates has only lucky seeds by chance. Allowed for at LEVEL, 16 % of campaigns that repeat their
    best one err in a simulation; at ``level`` itself, few gains are told. So it is their geometric mean.
    """
    if not (difference.error > 0 and level > 0):
        return difference
    share, of_one = (1.0 - x ** (1.0 / difference.worth) for x in (math.sqrt(level * LEVEL), LEVEL))
    unseen = difference.unseen * share / of_one
    told = float(least_error(np.abs(difference.mean), np.array(unseen))) / difference.error
    return replace(difference, p=2.0 * float(t_probability(difference.freedom, -told)), unseen=unseen)


def _pair(
    first: str,
    second: str,
    difference: Difference,
    corrected: float,
    tests: int,
    level: float | np.ndarray,
    extends: bool,
) -> Pair:
    """Return a pair; ``level`` is that of the test that more seeds would have."""
    return Pair(
        first,
        second,
        difference.mean,
        difference.low,
        difference.high,
        difference.p,
        corrected,
        tests,
        difference.seeds,
        0 if corrected < LEVEL else seeds_needed(difference, difference.mean, level),
        _unknown(difference),
        extends,
        difference.unseen > 0 and abs(difference.mean) <= difference.unseen,
    )


class _Family:
    """P-values that are corrected together, for their number and for looks, see ``statistics.corrected``.

    Attributes:
        next_level: of the tests at the next look, which an extension is.
    """

    def __init__(self, p_values: Sequence[float], looks: int = 1) -> None:
        self.next_level = look_level(looks + 1)
        values = np.array(p_values, dtype=float)
        self._sorted = np.sort(values[np.isfinite(values)])
        self._corrected = np.array(corrected(self._sorted, looks))
        self.tests = len(self._sorted)

    def of(self, p: float) -> tuple[int, float]:
        """Return Holm's factor of one of the p-values, and the corrected one."""
        if math.isnan(p):
            return 1, NAN
        position = int(np.searchsorted(self._sorted, p))
        return max(self.tests - position, 1), float(self._corrected[position])


def seeds_needed(difference: Difference, effect: float, level: float | np.ndarray = LEVEL) -> int | None:
    """Return the number of seeds with which a true effect is told from 0 with a probability of POWER.

    The test is that of ``difference``: its standard error falls with the root of the number of seeds, its degrees of
    freedom grow with it, and fewer outcomes can be unseen. None if nothing is known of the spread, or if more than
    MOST_SEEDS are needed.

    Args:
        effect: the true difference.
        level: of the test, two-sided; or levels with 2, 3 ... MOST_SEEDS seeds.
    """
    enough = abs(effect) >= _least_effects(difference, level)
    return int(enough.argmax()) + 2 if enough.any() else None


def least_effect(difference: Difference, seeds: int, level: float | np.ndarray = LEVEL) -> float:
    """Return the least true effect that is told with this number of seeds; NaN if nothing is known of the spread.

    Arguments as of ``seeds_needed``.
    """
    return float(_least_effects(difference, level)[: seeds - 1].min(initial=math.inf)) if seeds > 1 else NAN


def _least_effects(difference: Difference, level: float | np.ndarray) -> np.ndarray:
    """Return the least true effects that are told with 2, 3 ... MOST_SEEDS seeds; NaN if the spread is unknown."""
    seeds = np.arange(2, MOST_SEEDS + 1)
    if not (difference.seeds > 1 and difference.error > 0):
        return np.full(len(seeds), NAN)
    freedom = np.maximum(difference.freedom * (seeds - 1) / (difference.seeds - 1), 1.0)
    times = seeds / difference.seeds
    error = difference.error / np.sqrt(times)
    unseen = difference.unseen * unseen_share(difference.worth * times) / unseen_share(np.array(difference.worth))
    # a mean is told beyond the farthest from 0; it is beyond in POWER of the runs if the effect has that much more
    return farthest(t_quantile(freedom, 1 - level / 2) * error, unseen) + t_quantile(freedom, POWER) * error


def _unknown(difference: Difference) -> str:
    if not math.isnan(difference.low):
        return ""
    if difference.seeds < 2:
        return "one seed does not say how much seeds differ"
    return "their seeds do not differ, so that nothing is known of chance"


def sentence(pair: Pair) -> str:
    """Return a pair in words, e.g. ``a is better than b: +0.20 [+0.05, +0.35], p = 0.01 over 5 seeds``."""
    words = {BETTER: f"{pair.first} is better than {pair.second}", WORSE: f"{pair.first} is worse than {pair.second}"}
    verdict = words.get(pair.verdict, f"{pair.first} against {pair.second}: cannot tell")
    if math.isnan(pair.mean):
        return f"{verdict}: {pair.reason}" if pair.verdict in words else f"{verdict}; {pair.reason}"
    places = decimal_places([pair.mean, pair.low, pair.high])
    joint = ": " if pair.verdict in words else "; difference "
    text = f"{verdict}{joint}{fixed(pair.mean, places, '+')}"
    if pair.reason:
        return f"{text}; {pair.reason}"
    text += f" [{fixed(pair.low, places, '+')}, {fixed(pair.high, places, '+')}]"
    if pair.within_unseen:
        return f"{text}: {counted(pair.seeds, 'seed')} may not have shown outcomes that explain it"
    return f"{text}, {p_text(pair)} over {counted(pair.seeds, 'seed')}"


def p_text(pair: Pair) -> str:
    """Return ``p = 0.012``, with the one that is corrected for all tests, and all looks at the run."""
    alone, corrected = _p(pair.p), _p(pair.corrected)
    tests = f"{pair.tests:,} tests and " if pair.tests > 1 else ""
    return alone if alone == corrected else f"{alone} (corrected for {tests}all looks: {corrected})"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {number(p, 2)}"


def advice(pair: Pair, folder: str = "RUN") -> str:
    """Return how many seeds would tell, and the command that trains them; empty where that is told or unknown."""
    if pair.verdict != CANNOT_TELL or (math.isnan(pair.low) and pair.seeds > 1) or math.isnan(pair.mean):
        return ""
    if pair.seeds < 2:
        return more_seeds(3, folder, pair.extends)
    if pair.seeds_needed is None:
        return f"over {MOST_SEEDS:,} seeds would tell, if the difference is what it seems: take either"
    seeds = max(pair.seeds_needed, pair.seeds + 1)
    return (
        f"{seeds:,} seeds would tell, in {100 * POWER:.0f} % of runs, if the difference is what it seems:"
        f" {more_seeds(seeds, folder, pair.extends)}{', a further look, whose test is stricter' * pair.extends}"
    )


def more_seeds(seeds: int, folder: str, extends: bool = True) -> str:
    """Return how to train more seeds, as their total; a race cannot be extended."""
    return f"eval-shapers --extend {folder} --seeds {seeds}" if extends else f"a new run with --seeds {seeds}"


def run_pairs(
    model: FitnessModel,
    ranked: Sequence[Ranked],
    looks: int = 1,
    extends: bool = True,
    last_quarter: LastQuarter | None = None,
) -> Pairs:
    """Return the pairs of a ranking.

    Args:
        model: of the candidates whose training is complete.
        looks: how often the run was tested, as of ``ranking.rank``.
        extends: whether the ranking is of one run, which can be extended by seeds unless it is a race.
        last_quarter: how well the ranks agree over the last quarter of the training.
    """
    names = {*model.names}
    missing = {row.candidate: _missing(row) for row in ranked if row.candidate not in names}
    return Pairs(model, missing, looks, extends and not any(row.stopped_at for row in ranked), last_quarter)


def _missing(row: Ranked) -> str:
    if row.rank is None:
        return "has no fitness"
    if row.stopped_at:
        return f"was stopped by the race at iteration {row.stopped_at:,}"
    return "is the policy before training" if row.name == UNTRAINED else "has no row in results.csv"
