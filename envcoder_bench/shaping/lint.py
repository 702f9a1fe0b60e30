"""Remarks on the terms of a reward, from their values on the states of short rollouts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from envcoder_bench.shaping.combination import PRODUCT, Combination

SMALL = 0.01  # of the sizes of all terms together
OPPOSED = 0.02  # what is left of two terms that cancel, of their sizes


def term_remarks(how: Combination, terms: Mapping[str, np.ndarray]) -> list[str]:
    """Return a line for each term that is constant, that hardly counts, or that another term cancels.

    Args:
        how: how the terms make up the reward; those of a product are not looked at.
        terms: values ``(states,)``. Terms that are always 0 are left out: the rollouts may not reach them.
    """
    if how.form == PRODUCT:
        return []
    parts = {name: how.weights[name] * np.asarray(terms[name], np.float64) for name in how.used}
    parts = {name: part for name, part in parts.items() if part.any() and np.isfinite(part).all()}
    if not parts:
        return []
    total = np.sum([np.abs(part) for part in parts.values()], axis=0)
    count = f"in all {len(total):,} states of short rollouts"
    remarks = []
    for name, part in parts.items():
        if np.ptp(part) <= 1e-6 * np.abs(part).max():
            remarks.append(f"the term {name} is {part[0]:.4g} {count}: a constant rewards only longer episodes")
            continue
        share = float((np.abs(part) / np.maximum(total, 1e-30)).max())
        if len(parts) > 1 and share < SMALL:
            remarks.append(f"the term {name} is at most {100 * share:.2g} % of what is added {count}")
    for (name, part), (other, opposite) in itertools.combinations(parts.items(), 2):
        left = np.abs(part + opposite).max() / max(np.abs(part).max(), np.abs(opposite).max())
        if left < OPPOSED and np.ptp(part) > 0:
            remarks.append(f"the terms {name} and {other} cancel each other {count}")
    return remarks
