"""The ranking on the page of a run: a table that can be sorted and filtered, with a picture of each interval."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envcoder_bench.core.words import counted, decimal_places, fixed
from envcoder_bench.report.certainty import lost_seeds, ties
from envcoder_bench.report.page.charts import colours
from envcoder_bench.report.page.intervals import Axis, Interval
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
    "vs human": ("number", "descending"),
    "95 % interval": ("", ""),
    "best": ("number", "descending"),
    "new seeds": ("number", "descending"),
    "letters": ("number", "ascending"),
    "steps to tie": ("number", "ascending"),
    "steps to fitness": ("number", "ascending"),
    "status": ("text", "ascending"),
    **{metric.title: ("number", metric.order) for metric in METRICS.values() if metric.title},
}


class Cell(NamedTuple):
    """A cell of the table: the value by which it is sorted, its text, its CSS class, and a second, smaller text."""

    value: Any
    text: str
    kind: str = ""
    more: str = ""


def ranking_values(
    ranked: Sequence[Ranked],
    anchors: Mapping[str, str],
    scores: Mapping[str, float],
    target: float | None,
    best: bool = True,
) -> dict[str, Any]:
    """Return what ``ranking.html`` needs.

    Args:
        anchors: the HTML id of each candidate's section, by its name.
        scores: by which a search ranks its candidates, by name.
        target: the fitness to which the page's script writes the env-steps of each candidate; None for no such column.
        best: whether the run has a best candidate; with variants it compares these with their originals only.
    """
    palette, decimals = colours(ranked), fitness_decimals(ranked)
    measured = [row for row in ranked if row.rank is not None]
    human = next((row.fitness for row in measured if row.name == HUMAN), None)
    axis = Axis([_interval(row) for row in measured], human)
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
    if not best or not _letters_say_something(ranked):
        used.discard("letters")
    if not best:
        used.discard("best")
    help_texts = _help(ranked, axis)
    columns = [(title, *column, help_texts.get(title, "")) for title, column in COLUMNS.items() if title in used]
    notes = [f"{note[0].upper()}{note[1:]}." for note in [*ties(ranked), *lost_seeds(ranked)]]
    return {"columns": columns, "rows": rows, "axis": axis, "notes": notes, "target": target}


def fitness_decimals(ranked: Sequence[Ranked]) -> int:
    """Return the number of decimal places in which the fitness is shown."""
    return decimal_places([row.fitness for row in ranked if row.rank is not None])


def _cells(row: Ranked, decimals: int, axis: Axis, score: float | None, speed: bool) -> dict[str, Any]:
    """Return the cells by column; None where nothing is known."""

    def cell(value: float | None, text: str, kind: str = "", more: str = "") -> Cell | None:
        return None if value is None or math.isnan(value) else Cell(value, text, kind, more)

    def ends(low: float, high: float, sign: str = "") -> str:
        has_ends = not math.isnan(low) and not math.isnan(high)
        return f"{fixed(low, decimals, sign)} to {fixed(high, decimals, sign)}" if has_ends else ""

    sign = "" if not row.significant else "better" if row.vs_human > 0 else "worse"
    difference = fixed(row.vs_human, decimals, "+") if math.isfinite(row.vs_human) else ""
    measured = row.rank is not None
    return {
        "#": cell(row.rank, str(row.rank)),
        "score": None if score is None else cell(score, fixed(score, decimals)),
        "fitness": cell(row.fitness, fixed(row.fitness, decimals), "", ends(row.fitness_ci_low, row.fitness_ci_high))
        if measured
        else None,
        "95 % interval": axis.picture(_interval(row)) if measured and not math.isnan(row.fitness_ci_low) else None,
        "vs human": cell(row.vs_human, difference, sign, ends(row.vs_human_ci_low, row.vs_human_ci_high, "+")),
        "letters": cell(row.tie_groups[0], letters(row.tie_groups), "letters") if row.tie_groups else None,
        "new seeds": cell(
            row.expected,
            fixed(row.expected, decimals) if math.isfinite(row.expected) else "",
            "",
            ends(row.expected_ci_low, row.expected_ci_high),
        ),
        "best": cell(row.fitness, "may be", "word") if row.contender else None,
        "steps to tie": cell(row.steps_to_tie, f"{row.steps_to_tie:,.0f}"),
        "steps to fitness": Cell("", "", "until") if speed and measured else None,
        **{metric.title: _metric_cell(row, name) for name, metric in METRICS.items() if metric.title},
    }


def _interval(row: Ranked) -> Interval:
    return row.fitness, row.fitness_ci_low, row.fitness_ci_high


def _metric_cell(row: Ranked, name: str) -> Cell | None:
    value = getattr(row, name)
    return Cell(value, METRICS[name].text(value)) if is_known(value) else None


def _help(ranked: Sequence[Ranked], axis: Axis) -> dict[str, str]:
    """Return what the columns mean, by title."""
    over = {row.interval_over for row in ranked}
    of = "seeds, their spread pooled over the candidates" if "seeds" in over else "the episodes of one seed"
    interval = f"with its 95 % interval over {of}" if over - {""} else ""
    human = "; dashed: the human baseline" if axis.mark is not None else ""
    tested = sum(math.isfinite(row.vs_human_p) for row in ranked)
    compared = sum(bool(row.tie_groups) for row in ranked)
    pairs = _corrected(compared * (compared - 1) // 2, "pair")
    return {
        "score": "By which a search ranks: the mean difference to the baseline, without the effects of seeds on that"
        " baseline, and with the median candidate as one more seed, so that one good seed is not enough.",
        "fitness": f"Mean over the seeds{', ' * bool(interval)}{interval}.",
        "95 % interval": f"Dot: fitness; line: its 95 % interval{human}.",
        "vs human": "Mean difference to the human baseline with the same seeds, with its 95 % interval. Coloured where"
        f" it differs from 0 (moderated t-test, 5 %{_corrected(tested, 'candidate')}).",
        "best": "Those that may be the best hold it with a probability of 95 %.",
        "new seeds": "Fitness to be expected on new seeds: of many, the first is so by the luck of its seeds, too.",
        "letters": "Candidates that share a letter cannot be told apart if all pairs are tested (moderated t-tests,"
        f" 5 %{pairs}). Click a letter to see which.",
        "steps to tie": "Env-steps of a seed until the fitness that candidates share; fewer rank first.",
        "steps to fitness": "Mean env-steps of a seed until a fitness, which you choose above; at first 90 % of what"
        " the human baseline learns, or else the best candidate. >: some seeds never have it.",
        "steps": "Mean length of an evaluation episode, control steps.",
        "shaped return": "Mean return of the candidate's own reward at the end of the training.",
        "status": "n/m seeds: the others failed.",
    }


def _letters_say_something(ranked: Sequence[Ranked]) -> bool:
    """Return whether some candidates share a letter and others do not."""
    groups = [{*row.tie_groups} for row in ranked if row.tie_groups]
    shared = [bool(a & b) for k, a in enumerate(groups) for b in groups[:k]]
    return any(shared) and not all(shared)


def _corrected(tests: int, noun: str) -> str:
    return f", corrected for {counted(tests, noun)} by Holm's method" if tests > 1 else ""
