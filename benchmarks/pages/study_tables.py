"""The report on cheap rankings: how far they agree with a reference."""

from __future__ import annotations

import math
from typing import Sequence

from bench.records import Record

from . import analysis
from .analysis import ENOUGH, TOPS, Agreement
from .report_words import origins, steps, table

WORTH = (1, 5)  # of so many of the first, the table of ranks has what the best is worth


def ranks(records: list[Record]) -> list[str]:
    runs = analysis.trainings(records, "ranks")
    lines: list[str] = []
    for task in dict.fromkeys(own[-1]["task"] for own in runs):
        own = [x for x in runs if x[-1]["task"] == task]
        references = [x for x in own if x[-1]["role"] == "reference"]
        cheap = [x for x in own if x[-1]["role"] == "cheap"]
        if not references or not cheap:
            continue
        points = max(references, key=lambda x: x[-1]["candidates"] * x[-1]["seeds"] * x[-1]["env_steps"])
        reference = points[-1]
        cheap = [x for x in cheap if x[-1]["candidates"] == reference["candidates"]]
        found = agreements([*cheap, points], reference)
        if cheap:
            lines += [*origins([*cheap, [reference]]), *_task_ranks(task, found, reference), ""]
    return lines[:-1]


def agreements(cheap: Sequence[list[Record]], reference: Record) -> list[Agreement]:
    """Return the agreement of all evaluations of each training by number of seeds; of the reference only for one."""
    found = [
        analysis.agreement(point, reference, seeds)
        for points in cheap
        for point in points
        for seeds in ([1] if point["role"] == "reference" else range(1, point["seeds"] + 1))
        if point["role"] != "reference" or point["seeds"] > 1
    ]
    return sorted(found, key=lambda own: own.env_steps)


def _task_ranks(task: str, found: Sequence[Agreement], reference: Record) -> list[str]:
    size = f"{reference['seeds']} seeds x {reference['envs']:,} environments x {reference['iteration']} iterations"
    agree = analysis.reliability(reference)
    among = "" if math.isnan(agree) else f"; two of its seeds agree by {agree:.2f}"
    text = f"{task}, {found[0].candidates} candidates; the reference: {size}, seeds of its own{among}."
    true = max(analysis.means(reference, range(reference["seeds"])).values())
    text += f" Its best has fitness {true:.2f}."
    best = analysis.cheapest(found)
    if best is None:
        top = max(found, key=lambda own: own.spearman)
        verdict = f"No setting reaches {ENOUGH}; the highest is {top.spearman:.2f}: {_setting(top)}."
    else:
        verdict = f"The cheapest with {ENOUGH} is {_setting(best)}: {best.spearman:.2f}."
    rows = [
        [f"{own.envs:,}", f"{own.iteration:,}", f"{own.seeds}", steps(own.env_steps), f"{own.spearman:.2f}"]
        + [f"{own.tops[top]:.0%}" for top in TOPS]
        + [f"{own.worth[top]:.2f}" for top in WORTH]
        for own in found
    ]
    head = ["environments", "iterations", "seeds", "env-steps of each candidate", "Spearman"]
    head += [f"true best in the first {top}" for top in TOPS]
    head += [f"reference fitness of the {'first' if top == 1 else f'best of the first {top}'}" for top in WORTH]
    return [text, verdict, "", *table(head, rows)]


def _setting(own: Agreement) -> str:
    return f"{own.seeds} seed{'s' * (own.seeds > 1)} x {own.envs:,} environments x {own.iteration:,} iterations"
