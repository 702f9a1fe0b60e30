"""Where in the episodes two candidates differ. ``assets/pair.js`` has the rule, too."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from envcoder_bench.core.words import number

EARLY, LATE = 0.1, 0.9  # shares of the difference between which most of it arises
WHOLE = 0.7  # share of the episode that counts as all of it


def where(recorded: Mapping[str, Any] | None, first: str, second: str) -> str:
    """Return when in the episode the difference of two candidates arises, and whose episodes end early.

    Args:
        recorded: what ``charts.step_fitness`` returns.
    """
    both = [recorded["of"].get(name) for name in (first, second)] if recorded else []
    if recorded is None or None in both or both[0]["time"] != both[1]["time"]:
        return ""
    ends = np.array(recorded["times"][both[0]["time"]])
    fitness = [{seed: np.array(values, dtype=float) for seed, values in of["fitness"].items()} for of in both]
    common = [seed for seed in fitness[0] if seed in fitness[1]]
    if common:
        gap = np.mean([fitness[0][seed] - fitness[1][seed] for seed in common], axis=0)
    else:
        gap = np.mean([*fitness[0].values()], axis=0) - np.mean([*fitness[1].values()], axis=0)
    so_far = np.cumsum(np.nan_to_num(gap) * np.diff(ends, prepend=0.0))
    words = []
    if so_far[-1]:
        below = [np.flatnonzero(so_far / so_far[-1] < share) for share in (EARLY, LATE)]
        begin, end = (int(places[-1]) + 1 if len(places) else 0 for places in below)
        if end - begin > WHOLE * len(gap):
            words.append("The difference arises over the whole episode.")
        else:
            start = ends[begin - 1] if begin else 0.0
            words.append(f"Most of the difference, 80 %, arises from {number(start, 3)} s to {number(ends[end], 3)} s.")
    for name, of in zip((first, second), both):
        lasting = [of["active"][seed][-1] if seed in of["active"] else 1.0 for seed in of["fitness"]]
        share = 100 * (1 - float(np.mean(lasting)))
        if share >= 0.5:
            words.append(f"{number(share, 2)} % of the episodes of {name} end early.")
    return " ".join(words)
