"""Find how a reward is made of the components that its function returns, from their values on many states.

Four forms are recognised: a sum with weights, such a sum that is clipped, the exponential of such a sum, and a product
of powers. A few fixed values, such as the price of a fall, may override each. The form is compared with every
state; a reward of another form is not divided.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

SUM, PRODUCT, EXPONENTIAL = "sum", "product", "exponential"
TOLERANCE = 4e-6  # relative to the sum of the sizes of the addends: single precision, a few dozen operations
MOST_OVERRIDES = 4  # different values that replace the sum
LEAST_SHARE = 0.05  # share of the states on which the form itself, not its bounds or overrides, must hold
MOST_SUBSETS = 200  # subsets of components that depend on each other
_Form = tuple[str, np.ndarray, float]  # SUM, PRODUCT or EXPONENTIAL, weights, offset


class NotDivisible(ValueError):
    """A reward is not made of its components in one of the four forms; the message completes "it ..."."""


@dataclass(frozen=True)
class Combination:
    """A reward as a function of its components: ``clamp(sum of weight * component + offset) + component``, the
    exponential of such a sum, or a product of ``component ** weight`` and ``exp(offset)``.

    Attributes:
        form: SUM, PRODUCT or EXPONENTIAL.
        weights: by component; 0 if the reward does not use it.
        offset: a number that is added to a sum, also in an exponent, or to the logarithm of a product.
        low, high: bounds to which a sum is clipped; None without a bound.
        overrides: values that replace the sum in some states.
        unseen: components that were 0 in all states, so that their weight of 1 was not seen.
        after: a component that is added to the bounded sum, as legged_gym's price of a fall; None without such.
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
        """Describe the combination in a few words."""
        if self.form == PRODUCT:
            words = ["the product of its terms"] + [f"times {math.exp(self.offset):g}"] * (self.offset != 0.0)
        else:
            plain = all(weight in (0.0, 1.0) for weight in self.weights.values())
            words = ["the sum of its terms" if plain else "a weighted sum of its terms"]
            words = ["one of its components"] if plain and len(self.used) == 1 < len(self.weights) else words
            words[0] += f" and {self.offset:g}" if self.offset else ""
            words[0] = f"the exponential of {words[0]}" if self.form == EXPONENTIAL else words[0]
        words += [] if self.low is None else [f"at least {self.low:g}"]
        words += [] if self.high is None else [f"at most {self.high:g}"]
        words += [] if self.after is None else [f"to which {self.after} is added"]
        if self.overrides:
            words.append(f"{' or '.join(f'{x:g}' for x in self.overrides)} in some states")
        return ", ".join(words)


def find_combination(reward: np.ndarray, terms: Mapping[str, np.ndarray]) -> Combination:
    """Return how ``terms`` make up ``reward``, arrays ``(states,)`` of single precision.

    Raises:
        NotDivisible: none of the forms gives the reward in all states.
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
    # a component may be the reward itself, beside those that make it up
    itself = np.flatnonzero((np.abs(table.T - reward) <= 1e-6 * np.abs(reward)).all(axis=1))
    itself = itself if np.delete(table, itself, axis=1).any() else itself[:0]
    others = [name for k, name in enumerate(names) if k not in itself]
    # the first form that holds in all states; a bounded sum with a component is preferred to a sum with overrides
    parts = np.delete(table, itself, axis=1)
    whole = _held(_forms(reward, parts), reward, parts)
    if whole is None or whole[0].overrides:
        whole = _sum_and_one(reward, parts, others) or whole
    if whole is None and not np.ptp(reward):
        raise NotDivisible(f"is constant, {reward[0]:g} in all states: what its components add to it is not seen")
    if whole is None and len(itself):
        # a component is the reward itself, and the others may be metrics: it is the only term
        others, whole = [names[itself[0]]], (Combination(SUM, {}), np.ones(1))
    if whole is None:
        dependent = [names[k] for k in _dependent(table)[0]]
        also = f"; {' and '.join(dependent)} depend on each other" if dependent else ""
        forms = "the sum, a weighted sum, the exponential of a sum or the product"
        raise NotDivisible(f"is not {forms} of its components{also}")
    how, weights = whole
    by_name = {**dict.fromkeys(names, 0.0), **dict(zip(others, map(float, weights)))}
    never = [name for name, column in zip(names, table.T) if not column.any()]
    unseen = tuple(name for name in never if by_name[name] and how.form != PRODUCT)
    return replace(how, weights=by_name, unseen=unseen)


def _held(
    forms: Iterator[_Form], reward: np.ndarray, table: np.ndarray, size: np.ndarray | float = 0.0
) -> tuple[Combination, np.ndarray] | None:
    """Return the first form that equals the reward in all states, with its weights.

    Forms without overrides come first: with few different rewards, overrides can stand for anything. ``size`` is the
    size of an addend that ``table`` lacks; rounding grows with it.
    """
    with_overrides = None
    for form, weights, offset in forms:
        if not weights.any():  # a number by itself combines nothing
            continue
        with np.errstate(all="ignore"):
            if form == PRODUCT:
                total = np.prod(table**weights, axis=1) * math.exp(offset)
                scale = np.abs(total) * (1.0 + np.abs(weights).sum())
            else:
                total, scale = table @ weights + offset, np.abs(table) @ np.abs(weights) + abs(offset) + size
            if form == EXPONENTIAL:
                total, scale = np.exp(total), np.exp(total) * (1.0 + scale)
            held = _hold(reward, total, scale)
        if held is not None and (form == SUM or (held.low, held.high) == (None, None)):
            combination = replace(held, form=form, offset=float(offset))
            if not held.overrides:
                return combination, weights
            with_overrides = with_overrides or (combination, weights)
    return with_overrides


def _sum_and_one(reward: np.ndarray, table: np.ndarray, names: list[str]) -> tuple[Combination, np.ndarray] | None:
    """Return the form and the weights of a bounded sum plus one component, if the reward has this form."""
    for k, column in enumerate(table.T) if len(names) > 1 else ():
        if _constant(column):  # it would only move the bounds, and other weights would make up for it
            continue
        others, rest = np.delete(table, k, axis=1), reward - column
        sums = (form for form in _forms(rest, others) if form[0] == SUM)
        whole = _held(sums, rest, others, np.abs(column)) if column.any() else None
        if whole is not None and not whole[0].overrides and (whole[0].low, whole[0].high) != (None, None):
            return replace(whole[0], after=names[k]), np.insert(whole[1], k, 1.0)
    return None


def _forms(reward: np.ndarray, table: np.ndarray) -> Iterator[_Form]:
    """Yield forms to try. Those without a fit come first: fitted ones are close to them if components vary little."""
    count = table.shape[1]
    yield SUM, np.ones(count), 0.0
    for k in range(count) if count > 1 else ():  # a component may be the total
        yield SUM, np.where(np.arange(count) == k, 0.0, 1.0), 0.0
    is_product = (table >= 0).all() and (reward >= 0).any()
    if is_product:
        yield PRODUCT, np.ones(count), 0.0
    # a bound or an override gives many states the same reward, which does not depend on the weights
    _, where, counts = np.unique(reward, return_inverse=True, return_counts=True)
    usual = counts[where] <= max(2, 0.002 * len(reward))
    rows = usual if usual.sum() > 4 * (count + 1) else np.ones(len(reward), bool)
    for weights, offset in _fits(reward[rows], table[rows], count):
        yield SUM, weights, _rounded(offset)
    positive = rows & (reward > 0)
    if is_product and (rows := positive & (table > 0).all(axis=1)).sum() > 4 * (count + 1):
        for weights, offset in _fits(np.log(reward[rows]), np.log(table[rows]), count):
            yield PRODUCT, weights, math.log(_rounded(math.exp(offset)))
    if positive.sum() > 4 * (count + 1):
        for weights, offset in _fits(np.log(reward[positive]), table[positive], count):
            yield EXPONENTIAL, weights, _rounded(offset)


def _fits(reward: np.ndarray, table: np.ndarray, count: int) -> Iterator[tuple[np.ndarray, float]]:
    """Yield weights and offsets by least squares.

    If components depend on each other, some get the weight 0: plain sums of the most terms come first, then sums of
    the fewest. The weights of several constants cannot be separated, so that only a plain sum may have them.
    """
    dependent, excess = _dependent(table)
    only_plain = sum(_constant(table[:, k]) for k in dependent) > 1
    subsets = itertools.islice(itertools.combinations(reversed(dependent), excess), MOST_SUBSETS)
    masks = [np.isin(np.arange(count), subset) for subset in subsets]
    for with_offset in (False, True):
        fits = []
        for left_out in masks:
            solution = _least_squares(reward, np.where(left_out, 0.0, table), with_offset)
            if solution is not None:
                weights, offset = solution
                fits.append((np.where(left_out, 0.0, weights), offset))
        plain = [(weights**2 == weights).all() for weights, _ in fits]  # weights of 0 and 1
        order = sorted(range(len(fits)), key=lambda k: (-1 if plain[k] else 1) * np.count_nonzero(fits[k][0]))
        yield from (fits[k] for k in order if plain[k] or not only_plain)


def _least_squares(reward: np.ndarray, table: np.ndarray, with_offset: bool) -> tuple[np.ndarray, float] | None:
    """Return the rounded weights; None if they are not unique. Components that are always 0 keep a weight of 1."""
    seen = table.any(axis=0)
    columns = [table[:, seen], np.ones((len(table), 1))] if with_offset else [table[:, seen]]
    # rounding is relative: a reward of a thousand says little about a term of 1
    weight = 1.0 / np.maximum(np.abs(reward) + np.median(np.abs(reward)), 1e-30)
    target, matrix = reward * weight, np.concatenate(columns, axis=1) * weight[:, None]
    scale = np.sqrt((matrix**2).mean(axis=0))
    if not matrix.shape[1] or np.linalg.matrix_rank(matrix / scale, tol=1e-4 * np.sqrt(len(matrix))) < matrix.shape[1]:
        return None
    # a bound or an override replaces the form in some states: fit the half with the smallest errors again
    rows = np.ones(len(reward), bool)
    for _ in range(6):
        solution = np.linalg.lstsq(matrix[rows] / scale, target[rows], rcond=None)[0] / scale
        error = np.abs(target - matrix @ solution)
        nearer = error <= np.median(error)
        if np.linalg.matrix_rank(matrix[nearer] / scale, tol=1e-4 * np.sqrt(nearer.sum())) < matrix.shape[1]:
            break
        rows = nearer
    # a component that adds next to nothing is not in the reward
    size = np.abs(solution) * scale
    solution[size < 1e-5 * size.sum()] = 0.0
    weights = np.ones(table.shape[1])
    weights[seen] = [_rounded(x) for x in solution[: seen.sum()]]
    return weights, float(solution[-1]) if with_offset else 0.0


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
    form_itself = reward[fits]
    limits: dict[str, float | None] = {"low": None, "high": None}
    for name, beyond in (("low", total < reward - margin), ("high", total > reward + margin)):
        values, counts = np.unique(reward[beyond], return_counts=True)
        if not len(values):
            continue
        bound = values[np.argmax(counts)]
        # a bound holds everywhere: no reward may lie beyond it
        inside = reward[fits] >= bound - margin[fits] if name == "low" else reward[fits] <= bound + margin[fits]
        sees_both = bool((total[fits] != bound).any())
        if inside.all() and sees_both and counts.max() > 1:
            limits[name] = float(bound)
            fits = fits | (beyond & (reward == bound))
    if limits["low"] is not None and limits["low"] == limits["high"]:
        return None
    overrides, counts = np.unique(reward[~fits], return_counts=True)
    # a value of a single state is an override only if a person may have written it
    if any(count == 1 and abs(float(f"{x:.4g}") - x) > 1e-6 * abs(x) for x, count in zip(overrides, counts)):
        return None
    if len(overrides) > MOST_OVERRIDES or (len(overrides) and (~fits).sum() > (1 - LEAST_SHARE) * len(fits)):
        return None
    # where the reward is an override, factors change nothing
    if np.isin(form_itself, overrides).all():
        return None
    return Combination(SUM, {}, 0.0, limits["low"], limits["high"], tuple(map(float, overrides)))


def _constant(column: np.ndarray) -> bool:
    return bool(np.ptp(column) <= 1e-6 * np.abs(column).max())


def _dependent(table: np.ndarray) -> tuple[list[int], int]:
    """Return the columns that depend on each other, without those of zeros, and how many of them are redundant."""
    scale = np.sqrt((table**2).mean(axis=0))
    seen = np.flatnonzero(scale > 0)
    if not len(seen):
        return [], 0
    _, sizes, rows = np.linalg.svd(table[:, seen] / scale[seen] / np.sqrt(len(table)), full_matrices=False)
    null = rows[sizes <= 1e-4]
    return [int(k) for k, parts in zip(seen, null.T) if (np.abs(parts) > 1e-3).any()], len(null)
