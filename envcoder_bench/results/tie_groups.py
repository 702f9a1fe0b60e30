"""Groups of candidates that cannot be told apart, as letters behind their names: a compact letter display.

Two candidates share a letter if and only if they cannot be told apart (Piepho, 2004: An algorithm for a letter-based
representation of all-pairwise comparisons). "Cannot be told apart" is not transitive, so a candidate may have several
letters.
"""

from collections.abc import Sequence

import numpy as np


def tie_groups(told_apart: np.ndarray) -> list[list[int]]:
    """Return groups, none of whose members is told apart from another, such that each pair of ties is in one.

    A pair that is in no group yet, the farthest of the first candidate that has one, is extended by all that fit. Of
    candidates on a line these are the fewest groups that there can be.

    Args:
        told_apart: ``(n, n)`` bool, symmetric; groups are sorted by their members.
    """
    count, groups = len(told_apart), []
    covered = np.array(told_apart, dtype=bool)
    for first in range(count):
        while not covered[first].all():
            group = sorted({first, int(np.flatnonzero(~covered[first])[-1])})
            for other in range(count):
                if other not in group and not told_apart[other, group].any():
                    group.append(other)
            covered[np.ix_(group, group)] = True
            groups.append(sorted(group))
    return sorted(groups)


def letters(groups: Sequence[int]) -> str:
    """Return a candidate's groups, counted from 0, as letters: ``ab``; ``c-h`` for four or more in a row."""
    if len(groups) > 3 and groups[-1] - groups[0] == len(groups) - 1:
        return f"{_letter(groups[0])}-{_letter(groups[-1])}"
    return (" " if max(groups, default=0) >= 26 else "").join(map(_letter, groups))


def _letter(k: int) -> str:
    """Return a to z, then aa, ab and so on, as columns of a spreadsheet."""
    return (_letter(k // 26 - 1) if k >= 26 else "") + chr(ord("a") + k % 26)
