"""D3RB, the model selection with which ORSO divides a budget among reward functions, simulated over recorded curves.

Regret balancing (Pacchiano, Dann and Gentile, "Data-driven online model selection with regret guarantees", 2024), as in
ORSO (Zhang, Hong, Pacchiano and Agrawal, "ORSO: accelerating reward design via online reward selection and policy
optimization", 2025). Each step trains the candidate with the least balancing potential d * sqrt(n) to its next
evaluation, where n is the number of its evaluations and d its regret coefficient. d is doubled when the mean of the
candidate's evaluations is lower than d and the noise can explain.
"""

from __future__ import annotations

import math
from random import Random
from typing import Mapping, Sequence

FAILURE = 0.1  # probability with which a bound may fail, as in ORSO
LEAST_COEFFICIENT = 1.0  # of the regret, in units of ``scale``


def select(
    fitness: Mapping[str, Sequence[float]], iterations: Sequence[int], budget: float, scale: float, rng: Random
) -> tuple[str, dict[str, int]]:
    """Return the candidate that D3RB names, and the iteration to which each candidate was trained.

    Args:
        fitness: by candidate, the fitness at each of ``iterations``, which are increasing.
        budget: iterations of all candidates together, which the last step may exceed.
        scale: a difference of fitness that matters: the unit of the regret coefficients and of the bounds' widths.

    The candidate named is that with the best latest evaluation, which favours D3RB over ORSO's best of all: a candidate
    is judged by how it ends. Of equals it is the one that was trained longest.
    """
    names = list(fitness)
    counts, sums = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    coefficients = dict.fromkeys(names, scale * LEAST_COEFFICIENT)
    latest, reached = dict.fromkeys(names, -math.inf), dict.fromkeys(names, 0)

    def width(name: str) -> float:
        n = counts[name]
        return scale * math.sqrt(math.log(len(names) * max(1.0, math.log(n)) / FAILURE) / n)

    def mean(name: str) -> float:
        return sums[name] / counts[name]

    while sum(reached.values()) < budget:
        open_ = [name for name in names if counts[name] < len(iterations)]
        if not open_:
            break
        potentials = {name: coefficients[name] * math.sqrt(counts[name]) for name in open_}
        least = min(potentials.values())
        name = rng.choice([own for own in open_ if potentials[own] == least])
        at = counts[name]
        reached[name] = iterations[at]
        counts[name] += 1
        sums[name] += fitness[name][at]
        latest[name] = fitness[name][at]
        tried = [own for own in names if counts[own]]
        explained = mean(name) + coefficients[name] / math.sqrt(counts[name]) + width(name)
        if explained < max(mean(own) - width(own) for own in tried):
            coefficients[name] *= 2.0
    return max(names, key=lambda name: (latest[name], counts[name])), reached
