"""How the components that a reward function returns make up its reward, found from their values on many states.

Three forms are recognised: a sum with weights, such a sum that is clipped, and a product of powers. Each may be
overridden by a few fixed values, such as the price of a fall. The form is held against every state; a reward that is
none of these is not divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

SUM, PRODUCT = "sum", "product"
TOLERANCE = 2e-5  # of the sum of the sizes of what is added: single precision, a few dozen operations
MOST_OVERRIDES = 4  # different values that replace the sum
LEAST_SHARE = 0.05  # of the states on which the form itself, not its bounds or overrides, must hold


class NotDivisible(ValueError):
    """A reward is not made of its components in a form that is known; the message completes "it ..."."""


@dataclass(frozen=True)
class Combination:
    """A reward as a function of its components: ``clamp(sum of weight * component + offset) + component``, or a product
    of ``component ** weight``.

    Attributes:
        form: SUM or PRODUCT.
        weights: by component; 0 for one that the reward does not use.
        offset: what is added to a sum.
        low, high: bounds to which a sum is clipped; None for no bound.
        overrides: values that replace the sum in some states.
        unseen: components that were 0 in all states, so that their weight of 1 was not seen.
        after: the component that is added to the bounded sum, as legged_gym's price of a fall; None without one.
    """

    form: str
    weights: Mapping[str, float]
    offset: float = 0.0
    low: float | None = None
    high: float | None = None
    overrides: tuple[float, ...] = ()
    unseen: tuple[str, ...] = ()
    after: str | None = None

    @property
    def used(self) -> list[str]:
        """The components that the reward uses."""
        return [name for name, weight in self.weights.items() if weight != 0.0]

    def __str__(self) -> str:
        """Describe it in a few words."""
        if self.form == PRODUCT:
            words = ["the product of its terms"]
        else:
            plain = all(weight in (0.0, 1.0) for weight in self.weights.values())
            words = ["the sum of its terms" if plain else "a weighted sum of its terms"]
        words += [f"and {self.offset:g}"] if self.offset else []
        words += [] if self.low is None else [f"at least {self.low:g}"]
        words += [] if self.high is None else [f"at most {self.high:g}"]
        words += [] if self.after is None else [f"to which {self.after} is added"]
        if self.overrides:
            words.append(f"{' or '.join(f'{x:g}' for x in self.overrides)} in some states")
        return ", ".join(words)


def find_combination(reward: np.ndarray, terms: Mapping[str, np.ndarray]) -> Combination:
    """Return how ``terms`` make up ``reward``, arrays ``(states,)`` of single precision.

    Raises:
        NotDivisible: no known form gives the reward in all states.
    """
    names = list(terms)
    if not names:
        raise NotDivisible("returns no components: return (reward, {name: component})")
    table = np.stack([np.asarray(terms[name], np.float64) for name in names], axis=1)
    reward = np.asarray(reward, np.float64)
    finite = np.isfinite(reward) & np.isfinite(table).all(axis=1)
    reward, table = reward[finite], table[finite]
    if len(reward) < 4 * (len(names) + 1):
        raise NotDivisible("has a finite reward in too few states to see how its components make it up")
    # a sum, a bounded sum and one component, a product: the first that holds in all states
    whole = _sum(reward, table)
    if whole is None or whole[0].overrides:
        whole = _sum_and_one(reward, table, names) or whole
    if whole is not None:
        return _named(whole[0], names, whole[1], table)
    product = _product(reward, table)
    if product is not None:
        held, exponents = product
        return _named(replace(held, form=PRODUCT), names, exponents, table)
    dependent = _dependent(table, names)
    also = f"; {' and '.join(dependent)} depend on each other" if dependent else ""
    raise NotDivisible(f"is not the sum, a weighted sum or the product of its components{also}")


def _sum(
    reward: np.ndarray, table: np.ndarray, size: np.ndarray | float = 0.0
) -> tuple[Combination, np.ndarray] | None:
    """Return the form and the weights of a sum, if the reward is one; ``size`` is that of what was taken off it."""
    for weights, offset in _sums(reward, table):
        total = table @ weights + offset
        held = _hold(reward, total, np.abs(table) @ np.abs(weights) + abs(offset) + size)
        if held is not None:
            return replace(held, offset=float(offset)), weights
    return None


def _sum_and_one(reward: np.ndarray, table: np.ndarray, names: list[str]) -> tuple[Combination, np.ndarray] | None:
    """Return the form and the weights of a bounded sum to which one component is added, if the reward is one."""
    for k, column in enumerate(table.T) if len(names) > 1 else ():
        rest = _sum(reward - column, np.delete(table, k, axis=1), np.abs(column)) if column.any() else None
        if rest is not None and not rest[0].overrides and (rest[0].low, rest[0].high) != (None, None):
            return replace(rest[0], after=names[k]), np.insert(rest[1], k, 1.0)
    return None


def _named(held: Combination, names: list[str], weights: np.ndarray, table: np.ndarray) -> Combination:
    by_name = {name: float(weight) for name, weight in zip(names, weights)}
    unseen = tuple(name for name, column in zip(names, table.T) if not column.any() and held.form == SUM)
    return replace(held, weights=by_name, unseen=unseen)


def _sums(reward: np.ndarray, table: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Yield weights and offsets to try: all 1, all but one (a component may be the total), then by least squares."""
    count = table.shape[1]
    yield np.ones(count), 0.0
    for k in range(count) if count > 1 else ():
        yield np.where(np.arange(count) == k, 0.0, 1.0), 0.0
    # a bound or an override gives many states the same reward: they say nothing of the weights
    _, where, counts = np.unique(reward, return_inverse=True, return_counts=True)
    usual = counts[where] <= max(2, 0.002 * len(reward))
    rows = usual if usual.sum() > 4 * (count + 1) else np.ones(len(reward), bool)
    for with_offset in (False, True):
        solved = _least_squares(reward[rows], table[rows], with_offset)
        if solved is not None:
            yield solved


def _least_squares(reward: np.ndarray, table: np.ndarray, with_offset: bool) -> tuple[np.ndarray, float] | None:
    """Return the weights, rounded; None if they are not unique. Components that are always 0 keep a weight of 1."""
    seen = table.any(axis=0)
    columns = [table[:, seen], np.ones((len(table), 1))] if with_offset else [table[:, seen]]
    matrix = np.concatenate(columns, axis=1)
    scale = np.sqrt((matrix**2).mean(axis=0))
    if not matrix.shape[1] or np.linalg.matrix_rank(matrix / scale, tol=1e-4 * np.sqrt(len(matrix))) < matrix.shape[1]:
        return None
    # of the few states that an override or a bound replaces nothing is to be fitted: the nearer half is fitted again
    rows = np.ones(len(reward), bool)
    for _ in range(6):
        solution = np.linalg.lstsq(matrix[rows] / scale, reward[rows], rcond=None)[0] / scale
        error = np.abs(reward - matrix @ solution)
        nearer = error <= np.median(error)
        if np.linalg.matrix_rank(matrix[nearer] / scale, tol=1e-4 * np.sqrt(nearer.sum())) < matrix.shape[1]:
            break
        rows = nearer
    weights = np.ones(table.shape[1])
    weights[seen] = [_rounded(x) for x in solution[: seen.sum()]]
    # what adds next to nothing is not in the reward
    size = np.abs(weights) * np.sqrt((table**2).mean(axis=0))
    weights[seen & (size < 1e-5 * size.sum())] = 0.0
    return weights, _rounded(solution[-1]) if with_offset else 0.0


def _rounded(value: float) -> float:
    """Return the number with the fewest digits that is equal in single precision, as a person wrote it."""
    for digits in range(1, 7):
        short = float(f"{value:.{digits}g}")
        if abs(short - value) <= 3e-6 * abs(value):
            return short
    return float(f"{value:.7g}")


def _hold(reward: np.ndarray, total: np.ndarray, size: np.ndarray) -> Combination | None:
    """Return bounds and overrides with which ``total`` is the reward in all states; None if there are none."""
    margin = TOLERANCE * size + 1e-7 * np.abs(reward) + 1e-12
    fits = np.abs(reward - total) <= margin
    if fits.sum() < max(4, LEAST_SHARE * len(reward)):
        return None
    limits: dict[str, float | None] = {"low": None, "high": None}
    for name, beyond in (("low", total < reward - margin), ("high", total > reward + margin)):
        values, counts = np.unique(reward[beyond], return_counts=True)
        if not len(values):
            continue
        bound = values[np.argmax(counts)]
        # a bound holds everywhere: nothing that is held to it lies beyond
        inside = reward[fits] >= bound - margin[fits] if name == "low" else reward[fits] <= bound + margin[fits]
        sees_both = bool((total[fits] != bound).any())
        if inside.all() and sees_both and counts.max() > 1:
            limits[name] = float(bound)
            fits = fits | (beyond & (reward == bound))
    if limits["low"] is not None and limits["low"] == limits["high"]:
        return None
    overrides = np.unique(reward[~fits])
    if len(overrides) > MOST_OVERRIDES or (len(overrides) and (~fits).sum() > (1 - LEAST_SHARE) * len(fits)):
        return None
    return Combination(SUM, {}, 0.0, limits["low"], limits["high"], tuple(map(float, overrides)))


def _product(reward: np.ndarray, table: np.ndarray) -> tuple[Combination, np.ndarray] | None:
    """Return overrides and exponents if the reward is a product of positive components."""
    if (table < 0).any() or (reward < 0).all():
        return None
    candidates = [np.ones(table.shape[1])]
    positive = (table > 0).all(axis=1) & (reward > 0)
    if positive.sum() > 4 * (table.shape[1] + 1):
        solved = _least_squares(np.log(reward[positive]), np.log(table[positive]), with_offset=False)
        candidates += [] if solved is None else [solved[0]]
    for exponents in candidates:
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.prod(table**exponents, axis=1)
        if not np.isfinite(total).all():
            continue
        # rounding of each factor counts as often as its power says
        held = _hold(reward, total, np.abs(total) * (1 + np.abs(exponents).sum()))
        if held is not None and held.low is None and held.high is None:
            return held, exponents
    return None


def _dependent(table: np.ndarray, names: list[str]) -> list[str]:
    """Return the components of one linear dependence; empty if they are independent."""
    scale = np.sqrt((table**2).mean(axis=0))
    seen = scale > 0
    _, sizes, rows = np.linalg.svd(table[:, seen] / scale[seen] / np.sqrt(len(table)), full_matrices=False)
    if not len(sizes) or sizes[-1] > 1e-4:
        return []
    kept = [name for name, one in zip(names, seen) if one]
    return [name for name, part in zip(kept, rows[-1]) if abs(part) > 1e-3]
