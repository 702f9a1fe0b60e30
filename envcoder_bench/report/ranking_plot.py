"""The pictures of the ranking, and of a race."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.words import cut, decimal_places, shorten
from envcoder_bench.report.figures import (
    BETTER,
    BLACK,
    DARK,
    GREY,
    LIGHT,
    NAME_WIDTH,
    WORSE,
    candidate_label,
    escape,
    limits_around,
    new_figure,
    renderer,
    save_figure,
    show_message,
)
from envcoder_bench.report.table import numbers
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.rows import SKIPPED, Result
from envcoder_bench.results.statistics import half_width
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, UNTRAINED

REASON_WIDTH = 100
CAPTION_WIDTH = 140
MAX_ROWS = 60  # the rest of the ranking is in results.csv
MAX_FAILED = 8  # failed candidates in the ranking
NAMED_ROWS = 70  # a race of more candidates names only those that were never stopped
MOST_HEIGHT = 18.0  # inches, of a race


def plot_ranking(
    ranked: Sequence[Ranked],
    path: str | Path,
    task: str,
    fitness_meaning: str,
) -> Path:
    """Draw the ranking: a dot with its 95 % interval for each candidate, best on top, failed ones at the bottom."""
    best = [r for r in ranked if r.rank is not None]
    drawn = [r for i, r in enumerate(best) if i < MAX_ROWS or r.baseline]
    without = [r for r in ranked if r.rank is None and r.status != SKIPPED]
    names = [candidate_label(r) for r in drawn]
    remarks = [(f"{len(best) - len(drawn)} more", "in results.csv")] if len(drawn) < len(best) else []
    remarks += [(candidate_label(r), _reason(r)) for r in without[:MAX_FAILED]]
    if len(without) > MAX_FAILED:
        remarks.append((f"{len(without) - MAX_FAILED} more", "without fitness, see results.csv"))
    rows = max(len(names) + len(remarks), 1)
    height = 1.9 + (0.3 if rows <= 30 else 0.25) * max(rows, 4)
    figure, (axes,), top = new_figure(10.0, height, f"{task}: ranking", f"fitness: {fitness_meaning}")

    # dots and intervals
    intervals = [(r.fitness, r.fitness_ci_low, r.fitness_ci_high) for r in drawn]
    texts = numbers(intervals, decimal_places([r.fitness for r in drawn]))
    limits = _range(drawn)
    cut = any([_draw_row(axes, y, row, texts[y], limits) for y, row in enumerate(drawn)])
    # rows without a fitness
    for y, (_, text) in enumerate(remarks, len(drawn)):
        axes.text(0.01, y, escape(text), transform=axes.get_yaxis_transform(), va="center", fontsize=9, color=GREY)
    if remarks:  # hide the grid behind their text
        axes.axhspan(len(drawn) - 0.5, rows, facecolor="white", edgecolor="none", zorder=2)
        axes.axhline(len(drawn) - 0.5, color=LIGHT, linewidth=0.8, zorder=2)
    if not drawn and not remarks:
        show_message(axes, "no candidates")

    # names
    axes.set_yticks(range(len(names) + len(remarks)), [escape(n) for n in [*names, *(n for n, _ in remarks)]])
    for label, row in zip(axes.get_yticklabels(), drawn):
        label.set_color(_colour_and_marker(row)[0])
        label.set_fontweight("bold" if row.candidate == HUMAN else "normal")
    for label in axes.get_yticklabels()[len(drawn) :]:
        label.set_color(GREY)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(limits)
    axes.set_xlabel("fitness" if drawn else "")
    if not drawn:
        axes.set_xticks([])
    axes.grid(axis="x", color="#E8E8E8", linewidth=0.8)
    # margins as wide as the names
    caption = _caption(drawn, cut)
    bottom = 0.85 + 0.18 * caption.count("\n")
    figure.subplots_adjust(left=0.3, right=0.84, bottom=bottom / height, top=top)
    left = max((label.get_window_extent(renderer(figure)).width for label in axes.get_yticklabels()), default=0)
    figure.subplots_adjust(left=0.02 + (left / figure.dpi + 0.12) / figure.get_size_inches()[0])
    figure.text(0.02, 0.14 / height, caption, fontsize=9, color=GREY, va="bottom")
    return save_figure(figure, path)


def _draw_row(axes: Any, y: int, row: Ranked, text: str, limits: tuple[float, float]) -> bool:
    """Draw the dot and the interval of a candidate; return whether the interval is cut off at a limit."""
    colour, marker = _colour_and_marker(row)
    interval, cut = (row.fitness_ci_low, row.fitness_ci_high), False
    if not math.isnan(interval[0]):
        axes.plot(interval, (y, y), color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
        for end, limit, arrow in zip(interval, limits, "<>"):
            if not limits[0] <= end <= limits[1]:
                inside = 0.008 * (limits[1] - limits[0]) * (1 if arrow == "<" else -1)
                axes.plot(limit + inside, y, arrow, color=colour, markersize=7, zorder=4)
                cut = True
    axes.plot(row.fitness, y, marker, color=colour, markersize=6, zorder=4)
    axes.text(1.015, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=10, color=colour)
    if row.candidate == HUMAN:
        axes.axvline(row.fitness, color=BLACK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1.5)
    if row.candidate == UNTRAINED:
        axes.axvline(row.fitness, color=GREY, linewidth=1.2, linestyle=(0, (1, 2)), zorder=1.5)
    return cut


def _range(shown: Sequence[Ranked]) -> tuple[float, float]:
    """Return limits of the fitness axis that show all means, and the intervals unless they are much wider."""
    if not shown:
        return 0.0, 1.0
    means = [r.fitness for r in shown]
    halves = [half_width(r.fitness, r.fitness_ci_low, r.fitness_ci_high) for r in shown]
    usual = float(np.median([x for x in halves if not math.isnan(x)] or [0.0]))
    if not np.ptp(means) and not any(x > 0 for x in halves):
        return limits_around(means[0])
    span = max(max(means) - min(means), 0.1 * max(abs(x) for x in means), 2 * usual) or 1e-3
    low = min(r.fitness_ci_low if not math.isnan(r.fitness_ci_low) else r.fitness for r in shown)
    high = max(r.fitness_ci_high if not math.isnan(r.fitness_ci_high) else r.fitness for r in shown)
    low, high = max(low, min(means) - span), min(high, max(means) + span)
    if min(means) >= 0 and low < max(means) / 2:
        low = 0.0
    return low - (0.03 * span if low else 0.0), high + 0.03 * span


def _colour_and_marker(row: Ranked) -> tuple[str, str]:
    """Return colour and marker of a candidate, by whether its difference to human is significant, if it was tested."""
    if row.candidate == HUMAN:
        return BLACK, "s"
    if row.candidate == UNSHAPED:
        return GREY, "D"
    if row.candidate == UNTRAINED:
        return GREY, "^"
    if row.stopped_at:
        return GREY, "|"
    if math.isnan(row.vs_human_p):
        return DARK, "o"
    return (DARK if not row.significant else BETTER if row.vs_human > 0 else WORSE), "o"


def _caption(shown: Sequence[Ranked], cut: bool) -> str:
    over = {r.interval_over for r in shown}
    what = [text for x, text in (("seeds", "seeds"), ("episodes", "the episodes of one seed")) if x in over]
    parts = [f"bars: 95 % interval over {' or '.join(what)}{', arrow: cut off' if cut else ''}"] if what else []
    if any(r.candidate == HUMAN for r in shown):
        parts.append("dashed line: human baseline")
    if any(not math.isnan(r.vs_human_p) for r in shown):
        parts.append("blue: above it, orange: below it, dark grey: not significant (moderated t-test, Holm, 5 %)")
    if any(r.candidate == UNTRAINED for r in shown):
        parts.append("dotted line: untrained")
    raced = ["grey: stopped by the race, with the fitness then"] if any(r.stopped_at for r in shown) else []
    one_line = "   ".join(parts + raced)
    return one_line if len(one_line) <= CAPTION_WIDTH else "   ".join(parts[:1] + raced) + "\n" + "   ".join(parts[1:])


def _reason(row: Ranked) -> str:
    if row.fault is None:
        return row.status
    line = f", line {row.fault.line}" if row.fault.line else ""  # the file's name is the candidate's
    return cut(f"{row.status}{line}: {row.fault.text}", REASON_WIDTH)


def plot_race(
    rows: Sequence[Result],
    ranked: Sequence[Ranked],
    path: str | Path,
    task: str,
    rungs: Sequence[int],
    iterations: int,
    alive: Sequence[int],
    env_steps_share: float,
) -> Path:
    """Draw a bar for each candidate, best on top, up to the iteration at which it was stopped or failed."""
    # a bar ends at the iteration of its env-steps; seeds of one candidate may end at different ones
    per_iteration = max((row.env_steps for row in rows), default=1) / iterations
    ends: dict[str, float] = {}
    for row in rows:
        if row.env_steps:
            ends[row.candidate] = max(ends.get(row.candidate, 0.0), row.env_steps / per_iteration)
    drawn = [r for r in ranked if r.candidate in ends]
    height = 1.9 + max(4, min(0.22 * len(drawn), MOST_HEIGHT - 1.9))
    title = f"{env_steps_share:.0%} of the env-steps of a run without a race"
    figure, (axes,), top = new_figure(10.0, height, f"{task}: race", title)
    # where there are many candidates, only those that trained to the end have a name
    labels = []
    for y, row in enumerate(drawn):
        failed = row.rank is None
        colour = WORSE if failed else LIGHT if row.stopped_at else DARK if row.baseline else BETTER
        axes.barh(y, ends[row.candidate], height=0.72, color=colour, linewidth=0, zorder=2)
        if len(drawn) <= NAMED_ROWS or not (row.stopped_at or failed):
            labels.append((y, shorten(row.candidate, NAME_WIDTH) + (" (baseline)" if row.baseline else "")))
    # rungs, and how many trained between them
    for rung in rungs:
        axes.axvline(rung, color=BLACK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=3)
    begin = 0
    for end, count in zip((*rungs, iterations), alive):
        axes.text((begin + end) / 2, -0.9, f"{count} alive", ha="center", va="bottom", fontsize=9, color=GREY)
        begin = end
    axes.set_yticks([y for y, _ in labels], [escape(name) for _, name in labels], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(drawn) - 0.4, -2.2)
    axes.set_xlim(0, iterations)
    axes.set_xlabel("iteration (dashed: rungs)")
    figure.subplots_adjust(left=0.3, right=0.97, bottom=0.85 / height, top=top)
    caption = "blue: trained to the end   light grey: stopped   dark grey: baselines   orange: failed"
    figure.text(0.02, 0.14 / height, caption, fontsize=9, color=GREY, va="bottom")
    return save_figure(figure, path)
