"""The ranking on the page of a run: a table that can be sorted and filtered, with a picture of each interval."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envcoder_bench.core.words import counted, decimal_places, fixed, number
from envcoder_bench.report.certainty import first_place, hacked, lost_seeds, one_seed, ties, unseen
from envcoder_bench.report.page.charts import colours
from envcoder_bench.results.metrics import METRICS, is_known
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.tie_groups import letters
from envcoder_bench.tasks.base import HUMAN

# title: kind, order of the first click; a column that is empty is left out
COLUMNS = {
    "#": ("number", "ascending"),
    "candidate": ("text", "ascending"),
    "score": ("number", "descending"),
    "fitness": ("number", "descending"),
    "95 % interval": ("", ""),
    "vs human": ("number", "descending"),
    "letters": ("number", "ascending"),
    "best": ("number", "descending"),
    "on new seeds": ("number", "descending"),
    "steps to tie": ("number", "ascending"),
    "steps to fitness": ("number", "ascending"),
    **{metric.title: ("number", metric.order) for metric in METRICS.values() if metric.title},
    "status": ("text", "ascending"),
}


class Cell(NamedTuple):
    """A cell of the table: the value by which it is sorted, its text, and its CSS class."""

    value: Any
    text: str
    kind: str = ""


def ranking_values(
    ranked: Sequence[Ranked],
    anchors: Mapping[str, str],
    scores: Mapping[str, float],
    folder: str,
    target: float | None,
) -> dict[str, Any]:
    """Return what ``ranking.html`` needs.

    Args:
        anchors: the HTML id of each candidate's section, by its name.
        scores: by which a search ranks its candidates, by name.
        target: the fitness to which the page's script writes the env-steps of each candidate; None for no such column.
    """
    palette, decimals, axis = colours(ranked), fitness_decimals(ranked), Axis(ranked)
    rows = [
        {
            "row": row,
            "anchor": anchors[row.candidate],
            "colour": palette[row.candidate],
            "cells": _cells(row, decimals, axis, scores.get(row.candidate), target is not None),
        }
        for row in ranked
    ]
    used = {title for row in rows for title, cell in row["cells"].items() if cell} | {"candidate", "status"}
    for name, metric in METRICS.items():
        if metric.if_different and len({value for row in ranked if is_known(value := getattr(row, name))}) < 2:
            used.discard(metric.title)  # the details have it
    if _alike(ranked):
        used.discard("letters")
    columns = [(title, *column) for title, column in COLUMNS.items() if title in used]
    notes = " ".join(f"{note}." for note in _notes(ranked, axis, bool(scores), folder, target is not None))
    return {"columns": columns, "rows": rows, "axis": axis, "notes": notes, "target": target}


def fitness_decimals(ranked: Sequence[Ranked]) -> int:
    """Return the number of decimal places in which the fitness is shown."""
    return decimal_places([row.fitness for row in ranked if row.rank is not None])


def _cells(row: Ranked, decimals: int, axis: "Axis", score: float | None, speed: bool) -> dict[str, Any]:
    """Return the cells by column; None where nothing is known."""

    def cell(value: float | None, text: str, kind: str = "") -> Cell | None:
        return None if value is None or math.isnan(value) else Cell(value, text, kind)

    sign = "" if not row.significant else "better" if row.vs_human > 0 else "worse"
    difference = fixed(row.vs_human, decimals, "+") if math.isfinite(row.vs_human) else ""
    measured = row.rank is not None
    return {
        "#": cell(row.rank, str(row.rank)),
        "score": None if score is None else cell(score, fixed(score, decimals)),
        "fitness": cell(row.fitness, fixed(row.fitness, decimals)) if measured else None,
        "95 % interval": axis.picture(row) if measured and not math.isnan(row.fitness_ci_low) else None,
        "vs human": cell(row.vs_human, difference, sign),
        "letters": cell(row.tie_groups[0], letters(row.tie_groups), "letters") if row.tie_groups else None,
        "best": cell(row.p_best, f"{row.p_best:.0%}"),
        "on new seeds": cell(row.expected, fixed(row.expected, decimals)) if not math.isnan(row.expected) else None,
        "steps to tie": cell(row.steps_to_tie, f"{row.steps_to_tie:,.0f}"),
        "steps to fitness": Cell("", "", "until") if speed and measured else None,
        **{metric.title: _metric_cell(row, name) for name, metric in METRICS.items() if metric.title},
    }


def _metric_cell(row: Ranked, name: str) -> Cell | None:
    value = getattr(row, name)
    return Cell(value, METRICS[name].text(value)) if is_known(value) else None


class Axis:
    """The common scale of the intervals, in pixels.

    Attributes:
        human: position of the human baseline; None without one.
    """

    width, height = 200, 18

    def __init__(self, ranked: Sequence[Ranked]) -> None:
        measured = [row for row in ranked if row.rank is not None]
        means = [row.fitness for row in measured]
        ends = [x for row in measured for x in (row.fitness_ci_low, row.fitness_ci_high) if not math.isnan(x)]
        low, high = (min(means), max(means)) if means else (0.0, 1.0)
        # a wide interval of a bad candidate does not squeeze the rest
        reach = 0.75 * max(high - low, 1e-9 + 0.05 * abs(high))
        self._least = max(min([low, *ends]), low - reach)
        self._most = min(max([high, *ends]), high + reach)
        self.human = next((self._pixel(row.fitness) for row in measured if row.name == HUMAN), None)

    def _pixel(self, x: float) -> float:
        share = (x - self._least) / ((self._most - self._least) or 1.0)
        return round(4 + (self.width - 8) * min(max(share, 0.0), 1.0), 1)

    def picture(self, row: Ranked) -> dict[str, Any]:
        """Return the pixels of an interval, and its title."""
        ends = row.fitness_ci_low, row.fitness_ci_high
        title = f"{number(row.fitness, 5)}, {number(ends[0], 5)} to {number(ends[1], 5)}"
        return {"low": self._pixel(ends[0]), "high": self._pixel(ends[1]), "mean": self._pixel(row.fitness),
                "title": title}  # fmt: skip


def _notes(ranked: Sequence[Ranked], axis: Axis, scores: bool, folder: str, speed: bool) -> list[str]:
    """Return what the columns mean, and how sure the ranking is."""
    over = {row.interval_over for row in ranked}
    of = "seeds, their spread pooled over the candidates" if "seeds" in over else "the episodes of one seed"
    notes = [f"the line of a fitness is its 95 % interval over {of}"] if over - {""} else []
    notes += ["the dashed line is the human baseline"] if axis.human is not None else []
    if scores:
        notes += [
            "score, by which a search ranks: the mean difference to the baseline, without the effects of seeds on that"
            " baseline, and with the median candidate as one more seed, so that one good seed is not enough"
        ]
    if any(math.isfinite(row.vs_human) for row in ranked):
        notes += ["vs human: mean difference to the human baseline with the same seeds"]
    if any(row.significant for row in ranked):
        tested = sum(math.isfinite(row.vs_human_p) for row in ranked)
        test = f"moderated t-test, 5 % over all looks{_corrected(tested, 'candidate')}"
        notes += [f"it is coloured where it differs from 0 ({test})"]
    compared = sum(bool(row.tie_groups) for row in ranked)
    if compared > 1:
        tests = f"(moderated t-tests, 5 % over all looks{_corrected(compared * (compared - 1) // 2, 'pair')})"
        notes += [
            f"no two candidates can be told apart if all pairs are tested {tests}"
            if _alike(ranked)
            else f"candidates that share a letter cannot be told apart if all pairs are tested {tests}; click a letter"
            " to see which"
        ]
    if any(math.isfinite(row.p_best) for row in ranked):
        notes += ["best: probability that it is the best"]
    if any(math.isfinite(row.expected) for row in ranked):
        notes += ["on new seeds: fitness to be expected there, as candidates are first by luck, too"]
    if speed:
        notes += [
            "steps to a fitness: mean env-steps of a seed until it, which you choose above; at first 90 % of what the"
            " human baseline learns, or else the best candidate; >: some seeds never have it"
        ]
    notes += unseen(ranked) + one_seed(ranked, folder) + ties(ranked) + lost_seeds(ranked) + hacked(ranked)
    return [f"{note[0].upper()}{note[1:]}" for note in notes] + first_place(ranked)  # which begins with a name


def _alike(ranked: Sequence[Ranked]) -> bool:
    """Return whether all candidates share the same letters, which then say nothing."""
    return len({row.tie_groups for row in ranked if row.tie_groups}) < 2


def _corrected(tests: int, noun: str) -> str:
    return f", corrected for {counted(tests, noun)} by Holm's method" if tests > 1 else ""
