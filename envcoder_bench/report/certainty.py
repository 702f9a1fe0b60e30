"""Sentences on how sure a ranking is: the verdict, ties, lost seeds, a single seed, and nothing learned."""

import math
from collections.abc import Sequence

import numpy as np

from envcoder_bench.core.words import counted, decimal_places, fixed, join_some
from envcoder_bench.results.fitness_model import unseen_share
from envcoder_bench.results.hacks import HALF_STEP
from envcoder_bench.results.last_quarter import LastQuarter
from envcoder_bench.results.pairs import Pairs, advice, more_seeds, sentence
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.tasks.base import UNTRAINED

LONGER = "a new run with more --learning_iterations"  # races and searches cannot be extended


def verdict(ranked: Sequence[Ranked], pairs: Pairs | None = None, folder: str = "RUN") -> list[str]:
    """Return what the run decides: the first place, the first two rows compared, what to do next, and hacks.

    Args:
        pairs: the differences of all pairs; None for none.
        folder: the run's folder, for commands.
    """
    lines = first_place(ranked)
    measured = [row for row in ranked if row.rank is not None and row.name != UNTRAINED]
    several = one_seed(ranked, folder)
    if pairs is not None and len(measured) > 1 and not several:
        pair = pairs.of(measured[0].candidate, measured[1].candidate)
        lines.append(sentence(pair))
        # what to do next: more seeds, or to look why
        why = f"why: envcoder-bench compare {folder} {pair.first} {pair.second}"
        lines.append(advice(pair, folder) or why)
    held = [] if pairs is None else long_enough(pairs.last_quarter, ranked, folder)
    return [*lines, *new_seeds(ranked), *several, *held, *hacked(ranked), *half_step(ranked)]


def first_place(ranked: Sequence[Ranked]) -> list[str]:
    """Return what is known of the first place; empty without candidates that can be compared."""
    first = [row for row in ranked if row.rank == 1]
    if not first or sum(row.rank is not None for row in ranked) < 2:
        return []
    contenders = [row for row in ranked if row.contender]
    rivals = [row.candidate for row in contenders if row.rank != 1]
    also = f"{counted(len(rivals), 'candidate')} ({join_some(rivals)}) may be the best" if rivals else ""
    if len(first) > 1:
        shared = f"{join_some([row.candidate for row in first])} share the first place: nothing tells which is the best"
        return [f"{shared}; {also}, too" if rivals else shared]
    leader = first[0]
    if not contenders:
        return []
    of = " of those that lost no seed" if any(row.lost_seeds for row in ranked) else ""
    if not rivals:
        return [f"{leader.candidate} is the best{of} with a probability of 95 %"]
    return [f"{leader.candidate} is first{of}; {also}{', too' if leader.contender else ''}"]


def new_seeds(ranked: Sequence[Ranked]) -> list[str]:
    """Return what new seeds of the first candidate are expected to have: it is first because of its luck, too."""
    leader = next((row for row in ranked if row.rank == 1), None)
    if leader is None or math.isnan(leader.expected):
        return []
    decimals = decimal_places([row.fitness for row in ranked if row.rank is not None])
    mean, low, high, fitness = (
        fixed(x, decimals) for x in (leader.expected, leader.expected_ci_low, leader.expected_ci_high, leader.fitness)
    )
    luck = f", not {fitness}: the first of several is first by luck, too" if mean != fitness else ""
    return [f"on new seeds {leader.candidate} is expected to have {mean} [{low}, {high}]{luck}"]


def long_enough(held: LastQuarter | None, ranked: Sequence[Ranked], folder: str = "RUN") -> list[str]:
    """Return that the training was too short for the ranks; empty if it is not seen, or if nothing is learned."""
    if held is None or held.enough or nothing_learnt(ranked):
        return []
    correlation = f"Spearman's correlation {held.agreement:.2f} between iterations {held.begin:,} and {held.end:,}"
    changes = f"ranks still change over the last quarter of the training ({correlation})"
    if held.at_ceiling > 0.5:
        return [f"{changes}: most candidates are at the ceiling of the fitness"]
    return [f"{changes}: train longer, {_longer(ranked, folder)}"]


def unseen(ranked: Sequence[Ranked]) -> list[str]:
    """Return what the seeds do not tell of outcomes that they have not shown; empty without intervals over seeds."""
    tested = [row for row in ranked if row.interval_over == "seeds" and not math.isnan(row.vs_human_ci_low)]
    if not tested:
        return []
    shares = [row.unseen for row in tested if not math.isnan(row.unseen)]
    seeds = counted(min(len(row.seeds) for row in tested), "seed")
    few = seeds == "2 seeds" and len(tested) > 1
    groups = ["2 seeds do not show whether some candidates' seeds move together"] * few
    if not shares:
        return [
            f"{seeds} do not show an outcome that other seeds have, such as a seed that does not learn; the fitness has"
            f" no bounds and the run no row {UNTRAINED}, so nothing here allows for it",
            *groups,
        ]
    independent_share = float(unseen_share(np.array(min(len(row.seeds) for row in tested))))
    alike = ", as far as the candidates are alike in this" if max(shares) < independent_share - 0.001 else ""
    return [
        f"{seeds} may not have shown an outcome that up to {100 * max(shares):.0f} % of seeds have, such as a seed that"
        f" does not learn: intervals and marks allow for it{alike}; if the fitness has no bounds, not for a seed above"
        " all of the run",
        *groups,
    ]


def one_seed(ranked: Sequence[Ranked], folder: str = "RUN") -> list[str]:
    """Return what a run of a single seed does not tell, and the command that does; empty for several seeds."""
    seeds = {seed for row in ranked for seed in row.seeds}
    if len(seeds) != 1 or any(row.interval_over == "seeds" for row in ranked):
        return []
    return [
        "one seed: how much seeds differ is unknown, so differences have no interval and no mark, and the first place"
        f" no probability; {more_seeds(3, folder, not any(row.stopped_at for row in ranked))} has two more. Decide on"
        " the number of seeds now: each later extension makes the tests stricter"
    ]


def ties(ranked: Sequence[Ranked]) -> list[str]:
    """Return how candidates of equal fitness are ranked; empty without."""
    if all(math.isnan(row.steps_to_tie) for row in ranked):
        return []
    return ["steps to tie: env-steps of a seed until the fitness that candidates share; fewer rank first"]


def lost_seeds(ranked: Sequence[Ranked]) -> list[str]:
    """Return how candidates rank that lost a seed; empty without."""
    if not any(row.rank is not None and row.lost_seeds for row in ranked):
        return []
    return ["n/m seeds: the others failed; the numbers are of those that finished, and rank behind all that lost none"]


def hacked(ranked: Sequence[Ranked]) -> list[str]:
    """Return which candidates seem to exploit their reward, and why; empty without."""
    marked = [f"{row.candidate} ({row.hacked})" for row in ranked if row.hacked]
    return [f"hacked? {join_some(marked)}"] if marked else []


def half_step(ranked: Sequence[Ranked]) -> list[str]:
    """Return what half the physics step says, if it was measured and no candidate is marked for it."""
    changes = {row.candidate: row.half_step_fitness - row.fitness for row in ranked if row.rank is not None}
    measured = {name: change for name, change in changes.items() if not math.isnan(change)}
    if not measured or any(HALF_STEP in row.hacked for row in ranked):  # ``hacked`` says it
        return []
    name = min(measured, key=lambda each: measured[each])
    digits = decimal_places([row.fitness for row in ranked])
    lowest = f"the lowest change is {fixed(measured[name], digits, '+')}, of {name}"
    if max(len(row.seeds) for row in ranked) < 2:
        return [f"half the physics step: {lowest}; one seed is not judged"]
    return [f"half the physics step: no candidate loses fitness; {lowest}"]


def nothing_learnt(ranked: Sequence[Ranked], remedy: str = "", folder: str = "RUN") -> str:
    """Return what the means say if the first candidate is not above the untrained policy, else an empty string.

    Args:
        ranked: a run's ranking; without candidates the sentence is about its baselines.
        remedy: how to train longer; by default ``--extend``, or LONGER for a race.
    """
    measured = [row for row in ranked if row.rank is not None]
    untrained = next((row for row in measured if row.candidate == UNTRAINED), None)
    trained = [row for row in measured if row is not untrained]
    candidates = [row for row in trained if not row.baseline] or trained
    if untrained is None or not candidates or candidates[0].fitness > untrained.fitness:
        return ""
    first = candidates[0]
    decimals = decimal_places([first.fitness, untrained.fitness])
    has, level = (fixed(row.fitness, decimals) for row in (first, untrained))
    what = "baseline" if first.baseline else "candidate"
    before = f"{UNTRAINED}, the policy before training, which has {level}"
    if any(row.fitness > untrained.fitness for row in candidates):
        finding = f"the highest-ranked {what}, {first.candidate} with {has}, is not above {before}"
    else:
        finding = f"no {what} is above {before}; the highest-ranked, {first.candidate}, has {has}"
    remedy = remedy or _longer(ranked, folder)
    return f"nothing has been learned yet: {finding}. Train longer ({remedy}), or try another shaping."


def _longer(ranked: Sequence[Ranked], folder: str) -> str:
    """Return how to train longer; a race cannot be extended."""
    extend = f"eval-shapers --extend {folder} --learning_iterations N"
    return LONGER if any(row.stopped_at for row in ranked) else extend
