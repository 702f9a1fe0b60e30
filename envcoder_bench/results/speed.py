"""Speed of learning: the env-steps of a seed until a fitness. assets/page.js has the rule of ``steps_until``, too."""

import math
from collections.abc import Sequence

SHARE = 0.9  # env-steps are compared at this share of what is learned


def target_fitness(before: float, fitness: float) -> float:
    """Return the fitness at SHARE of what a candidate has learned; NaN if this is nothing."""
    target = before + SHARE * (fitness - before)
    return target if target > before else math.nan


def steps_until(target: float, before: float, course: Sequence[tuple[int, float]]) -> tuple[float, bool]:
    """Return the env-steps at which a course of evaluations first reaches ``target``, by linear interpolation, and
    True; or all of its env-steps and False.

    Args:
        before: the fitness before training; NaN if it is unknown.
        course: env-steps and fitness of each evaluation, ascending.
    """
    steps, fitness = 0, before
    for later, value in course:
        if value >= target:
            part = (target - fitness) / (value - fitness) if value > fitness else 1.0
            return max(steps + part * (later - steps), 1.0), True
        steps, fitness = later, value
    return float(steps), False
