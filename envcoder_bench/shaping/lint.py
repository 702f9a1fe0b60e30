"""Remarks on a reward from its values on many states: what a person would want to know before training with it.

Terms that are constant, that hardly count, or that cancel show on any states. Others show on trajectories of two
policies of which one is clearly fitter: a reward that prefers the less fit one, or neither; one that is hardly ever
positive where episodes end early; one that pays for standing still; and one that does not follow the fitness, from
state to state, or as velocities change. Episodes are the samples, and the k-th episodes of all policies have the same
random numbers. A preference is one that at least ``SHARE`` of the pairs have, and that has a probability of at most
``CHANCE`` without any (a sign test).
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

SMALL = 0.01  # of the sizes of all terms together
OPPOSED = 0.02  # what is left of two terms that cancel, of their sizes
SHARE, CHANCE = 0.75, 0.001
PEAK = 0.9  # of the states of an episode
# how much of a term, and of all terms, the robot's motion must cost to be called a price
LEAST_PRICE, LEAST_PART = 0.25, 0.05
MOVES = 0.3  # of the usual speed, in states in which the robot moves
STILL = -0.4  # concordance of speed and fitness of episodes, of a policy that learns to stand still
CONSTANT = re.compile("alive|health|surviv|living|bias|const", re.IGNORECASE)  # names of terms that are meant to be
RARE = 0.1  # of the control steps of an episode, or of pairs of states
NEITHER = 0.1  # of the pairs of episodes, or less, have a higher return with the fitter policy
FOLLOWS = 0.25  # concordance of reward and fitness
PAIRS = 20_000
FACTORS = (1.0, 0.0, 0.1, -0.1, -1.0)  # of all velocities; the second is standing still


@dataclass(frozen=True)
class Played:
    """What a reward says of one policy's episodes, arrays ``(times, episodes)``.

    Attributes:
        weight: the number of control steps that each state stands for.
        fitness: ``(episodes,)``.
        speed: of the robot and of what it moves, relative to the usual one of the fitter policy.
        reward: on each state.
    """

    name: str
    weight: np.ndarray
    fitness: np.ndarray
    speed: np.ndarray
    reward: np.ndarray

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of values ``(times, episodes)`` over each episode."""
        return (values * self.weight).sum(axis=0) / np.maximum(self.weight.sum(axis=0), 1e-9)


def mostly(smaller: np.ndarray, larger: np.ndarray) -> bool:
    """Return whether ``smaller`` is below ``larger`` in more episodes than chance explains."""
    count, wins = len(smaller), int((smaller < larger).sum())
    chance = sum(math.comb(count, k) for k in range(wins, count + 1)) / 2.0**count
    return wins >= SHARE * count and chance <= CHANCE


def concordance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the share of pairs in which both rise together, less that of the others (Goodman and Kruskal's gamma)."""
    signs = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
    return float(signs.sum() / max(np.abs(signs).sum(), 1.0))


def opposed(fit: Played, unfit: Played) -> list[str]:
    """Return a line if a reward prefers the policy that is less fit."""
    low, high = ((played.reward * played.weight).sum(axis=0) for played in (fit, unfit))
    if not mostly(low, high):
        return [*_hardly_positive(fit, unfit), *_prefers_neither(fit, unfit, low, high)]
    return [
        f"the reward opposes the fitness: it is higher for the {unfit.name} policy, in {(low < high).sum()} of"
        f" {len(low)} episodes, with a return of {high.mean():.3g} against {low.mean():.3g} of the {fit.name} baseline,"
        f" whose fitness is {fit.fitness.mean():.3g} against {unfit.fitness.mean():.3g}"
    ]


def _hardly_positive(fit: Played, unfit: Played) -> list[str]:
    """Return a line if a reward costs in nearly all steps of a task whose episodes can end early."""
    ends = any(played.weight[-1].any() for played in (fit, unfit))  # the last time is that of an early end
    share, mean = float(fit.mean(fit.reward > 0).mean()), float(fit.mean(fit.reward).mean())
    if not ends or share > RARE or mean >= 0:
        return []
    return [
        f"the reward is positive in {100 * share:.0f} % of the steps of the {fit.name} baseline, and {mean:.3g} on"
        " average: an episode that ends early has a higher return"
    ]


def _prefers_neither(fit: Played, unfit: Played, low: np.ndarray, high: np.ndarray) -> list[str]:
    """Return a line if a reward pays in many states, and its returns ``low`` and ``high`` are alike."""
    share = float(np.mean(low > high))
    if share > NEITHER or min(played.mean(played.reward != 0).mean() for played in (fit, unfit)) < RARE:
        return []
    return [
        f"the reward does not prefer the fitter policy: the {fit.name} baseline has a higher return than the"
        f" {unfit.name} policy in {(low > high).sum()} of {len(low)} episodes"
    ]


def unrelated(played: Sequence[Played], fitness: Sequence[np.ndarray]) -> list[str]:
    """Return a line if a reward does not follow the fitness from state to state.

    Args:
        played: policies, which count alike.
        fitness: of each state of each policy, ``(times, episodes)``.
    """
    chance = np.concatenate([(policy.weight / max(policy.weight.sum(), 1e-9)).ravel() for policy in played])
    reward, true = (np.concatenate([x.ravel() for x in xs]) for xs in ([policy.reward for policy in played], fitness))
    first, second = np.random.default_rng(0).choice(len(reward), (2, PAIRS), p=chance / chance.sum())
    rises, gains = reward[first] - reward[second], true[first] - true[second]
    gains = np.where(np.abs(gains) > 0.1 * np.std(true[chance > 0]), gains, 0.0)
    agrees = np.sign(rises) * np.sign(gains)
    informed = (agrees != 0).sum()
    if informed < RARE**2 * max((gains != 0).sum(), 1) or agrees.sum() >= FOLLOWS * informed:
        return []
    return [
        "the reward hardly follows the fitness: of two states that policies met, the one with the higher fitness has"
        f" the higher reward in {100 * (agrees > 0).sum() / informed:.0f} % of the pairs"
    ]


def unmoved(fit: Played, rewards: Sequence[np.ndarray], fitness: Sequence[np.ndarray]) -> list[str]:
    """Return a line if a reward does not follow the fitness as all velocities are multiplied by ``FACTORS``.

    Args:
        rewards, fitness: on the states of ``fit`` with each of these factors, ``(times, episodes)``.
    """
    seen = fit.weight > 0
    pairs = [*itertools.combinations(range(len(FACTORS)), 2)]
    rises, gains = (np.concatenate([(x[a] - x[b])[seen] for a, b in pairs]) for x in (rewards, fitness))
    depends = np.abs(gains) > 0.1 * np.std(np.concatenate([x[seen] for x in fitness]))
    if depends.mean() < RARE:  # the fitness is of positions
        return []
    agrees = float((np.sign(rises) * np.sign(gains))[depends].mean())
    if agrees >= FOLLOWS:
        return []
    return [
        "the reward hardly follows the fitness as velocities change: with all of them smaller, or reversed, in the"
        f" states of the {fit.name} baseline's episodes, reward and fitness rise and fall together in"
        f" {100 * (rises * gains > 0)[depends].mean():.0f} % of the pairs"
    ]


def still_remarks(
    fit: Played, unfit: Played, rewards: Sequence[np.ndarray], terms: Mapping[str, Sequence[np.ndarray]]
) -> list[str]:
    """Return a line for each term, else for the reward, that is largest when the robot stands still.

    That is intended where the fitter policy, or its own fitter episodes, move less. So is a penalty on motion,
    as long as it does not make the whole reward so.

    Args:
        rewards: on the states of ``fit`` with all velocities multiplied by each of ``FACTORS``, ``(times, episodes)``.
        terms: the same, for what each term adds to the reward; empty if that is not known.
    """
    speed = fit.mean(fit.speed)
    if not mostly(unfit.mean(unfit.speed), speed) or concordance(speed, fit.fitness) < STILL:
        return []
    # a robot that already stands has no motion to remove
    fit = replace(fit, weight=fit.weight * (fit.speed > MOVES))

    def overall(values: np.ndarray) -> float:
        return float((values * fit.weight).sum() / max(fit.weight.sum(), 1e-9))

    # terms that pay for standing, and enough to count
    total = sum(overall(np.abs(values[0])) for values in terms.values())
    remarks = []
    for name, values in terms.items():
        moving, still = (overall(x) for x in values[:2])
        pays = still > 0 and still - moving >= max(LEAST_PRICE * still, LEAST_PART * total)
        if pays and _peaks(fit, values):
            remarks.append(
                f"the term {name} is largest when the robot stands still: with all velocities set to 0 in the states of"
                f" the {fit.name} baseline's episodes it is {still:.3g} instead of {moving:.3g}"
            )
    # the whole reward, whatever its terms are
    moving, still = (overall(x) for x in rewards[:2])
    if still - moving >= LEAST_PRICE * max(overall(np.abs(rewards[0])), abs(still)) and _peaks(fit, rewards):
        remarks.append(
            f"the reward is largest when the robot stands still: with all velocities set to 0 in the states of the"
            f" {fit.name} baseline's episodes it is {still:.3g} instead of {moving:.3g}"
        )
    return remarks


def _peaks(fit: Played, values: Sequence[np.ndarray]) -> bool:
    """Return whether values are largest without velocities, in most states of most episodes."""
    moving, still, *others = values
    peak = (still > moving) & np.all([still >= x for x in others], axis=0)
    shares = fit.mean(peak)[fit.weight.any(axis=0)] + 1e-9
    return mostly(np.full(len(shares), PEAK), shares)


def term_remarks(weights: Mapping[str, float | None], terms: Mapping[str, np.ndarray], where: str) -> list[str]:
    """Return a line for each term that is constant, that hardly counts, or that another term cancels.

    Args:
        weights: the terms, and their weights in the reward; only those with one are looked at.
        terms: values ``(states,)``. Terms that are always 0 are left out: the states may not reach them.
        where: the states, in words.

    Terms that are constant by their names, such as ``alive``, are not named for it.
    """
    # what each term adds; those that are always 0 may be for states that were not reached
    parts = {name: x * np.asarray(terms[name], np.float64) for name, x in weights.items() if x is not None}
    parts = {name: part for name, part in parts.items() if part.any() and np.isfinite(part).all()}
    if not parts:
        return []
    total = np.sum([np.abs(part) for part in parts.values()], axis=0)
    count = f"in all {len(total):,} states of {where}"
    remarks = []
    for name, part in parts.items():
        if np.ptp(part) <= 1e-6 * np.abs(part).max():
            if CONSTANT.search(name):
                continue
            remarks.append(f"the term {name} is {part[0]:.4g} {count}: a constant rewards only longer episodes")
            continue
        share = float((np.abs(part) / np.maximum(total, 1e-30)).max())
        if len(parts) > 1 and share < SMALL:
            remarks.append(f"the term {name} is at most {100 * share:.2g} % of what is added {count}")
    # pairs whose sum nearly vanishes
    for (name, part), (other, opposite) in itertools.combinations(parts.items(), 2):
        left = np.abs(part + opposite).max() / max(np.abs(part).max(), np.abs(opposite).max())
        if left < OPPOSED and np.ptp(part) > 0:
            remarks.append(f"the terms {name} and {other} cancel each other {count}")
    return remarks
