"""Pictures of effects: of terms and functions, and of sweeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.words import fixed, shorten
from envcoder_bench.report.figures import (
    BLACK,
    COLOURS,
    DARK,
    GREY,
    LIGHT,
    escape,
    make_room_left,
    new_figure,
    save_figure,
    show_message,
)
from envcoder_bench.report.terms.table import HEADS, NAME_WIDTH
from envcoder_bench.results.effects import Effect, Study
from envcoder_bench.results.ranking import decimal_places
from envcoder_bench.results.speed import SHARE
from envcoder_bench.shaping.variants import label, short

STYLES = {0.0: ("o", BLACK), 0.5: ("v", COLOURS[0]), 2.0: ("^", COLOURS[1])}
WITHOUT = ("s", BLACK)  # a function is left out
STRONG, MILD = 2.2, 1.2  # widths of intervals, where an effect differs from 0 and where not
MOST_PANELS = 6
MOST_AT_A_GLANCE = 14  # rows; with more, numbers are above, too
PANEL, LABEL_CHARACTER = 2.7, 0.083  # widths of one of several panels and of a character of tick labels, inches


def plot_study(study: Study, path: Path, task: str) -> Path:
    """Draw the effects of a candidate's changes."""
    return (_plot_sweep if study.is_sweep else _plot_terms)(study, path, task)


# terms


def _plot_terms(study: Study, path: Path, task: str) -> Path:
    functions = [effect for effect in study.effects if effect.function]
    rows: list[tuple[str, list[tuple[float, Effect]]]] = []  # name; offset and effect
    for term in study.terms:
        by_factor = study.of_term(term)
        offsets = np.linspace(-0.25, 0.25, len(by_factor)) if len(by_factor) > 1 else [0.0]
        rows.append((term, [(float(dy), effect) for dy, effect in zip(offsets, by_factor.values())]))
    rows += [(f"without {effect.function}", [(0.0, effect)]) for effect in functions]
    height = 2.2 + sum(0.52 if len(effects) > 1 else 0.3 for _, effects in rows) + 0.3
    has_speed = any(not math.isnan(effect.slower) for effect in study.effects)
    what = "fitness, and of the speed of learning," if has_speed else "fitness"
    subtitle = f"change of {what} by each change of {study.original}"
    title = f"{task}: the terms of {shorten(study.original, 40)}"
    figure, panels, top = new_figure(10.5, height, title, subtitle, columns=1 + has_speed)
    centres = _centres([len(effects) > 1 for _, effects in rows])
    _draw(panels[0], rows, centres, _fitness_of, "change of fitness")
    for axes in panels[1:]:
        _draw(axes, rows, centres, _speed_of, f"env-steps to {100 * SHARE:.0f} % of what it learns, relative")
        axes.set_yticks(centres, [""] * len(rows))
    panels[0].set_yticks(centres, [escape(shorten(name, NAME_WIDTH + 8)) for name, _ in rows])
    for tick, (_, effects) in zip(panels[0].get_yticklabels(), rows):
        is_sure = any(effect.significant for _, effect in effects)
        tick.set_color(BLACK if is_sure else GREY)
        tick.set_fontweight("bold" if is_sure else "normal")
    bottom = 1.05
    figure.subplots_adjust(left=0.3, right=0.97, bottom=bottom / height, top=top - 0.02, wspace=0.08)
    make_room_left(figure, panels[:1])
    _legend(figure, panels[0], bool(study.terms), bool(functions), height)
    figure.text(0.02, 0.12 / height, _caption(study), fontsize=9, color=GREY, va="bottom")
    return save_figure(figure, path)


def _centres(wide: Sequence[bool]) -> list[float]:
    """Return the positions of rows, of which wide ones hold three markers."""
    centres, at = [], 0.0
    for is_wide in wide:
        size = 1.0 if is_wide else 0.58
        centres.append(at + size / 2)
        at += size
    return centres


_Mark = tuple[float, float, float, bool]  # mean, ends, whether it differs from 0


def _fitness_of(effect: Effect) -> _Mark:
    return effect.effect, effect.ci_low, effect.ci_high, effect.significant


def _speed_of(effect: Effect) -> _Mark:
    if effect.seeds and not effect.reached and not math.isnan(effect.slower):
        return math.inf, math.nan, math.nan, effect.slower_significant
    return effect.slower, effect.slower_low, effect.slower_high, effect.slower_significant


def _draw(axes: Any, rows: Sequence[Any], centres: Sequence[float], pick: Any, label: str) -> None:
    is_ratio = pick is _speed_of
    marks = [pick(effect) for _, effects in rows for _, effect in effects]
    low, high = _ratio_limits(marks) if is_ratio else _limits(marks)
    for centre, (_, effects) in zip(centres, rows):
        for offset, effect in effects:
            marker, colour = STYLES.get(effect.factor, WITHOUT)
            mean, left, right, is_sure = pick(effect)
            y = centre + offset
            if math.isnan(mean):
                if effect.status and not is_ratio:
                    axes.text(0.02, y, effect.status, transform=axes.get_yaxis_transform(), va="center", fontsize=8,
                              color=GREY)  # fmt: skip
                continue
            face = colour if is_sure else "white"
            if math.isinf(mean):
                axes.plot(high, y, ">", color=colour, markerfacecolor=face, markersize=6, clip_on=False, zorder=4)
                axes.text(high, y, "never  ", ha="right", va="center", fontsize=8, color=colour)
                continue
            if not math.isnan(left):
                ends = max(left, low), min(right, high)
                axes.plot(ends, (y, y), color=colour, linewidth=STRONG if is_sure else MILD, zorder=3)
            x = min(max(mean, low), high)
            axes.plot(x, y, marker, color=colour, markerfacecolor=face, markersize=5.5, zorder=4, clip_on=False)
    for upper, (_, effects) in zip([*centres[1:]], rows):
        axes.axhline(upper - (0.5 if len(effects) > 1 else 0.29), color="#F0F0F0", linewidth=0.8, zorder=0)
    axes.axvline(1.0 if is_ratio else 0.0, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    if is_ratio:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xlim(low, high)
    axes.set_ylim(centres[-1] + 0.55, centres[0] - 0.55)
    axes.set_yticks(centres)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labeltop=len(rows) > MOST_AT_A_GLANCE)
    axes.grid(axis="x", color="#E8E8E8", linewidth=0.8)
    axes.set_xlabel(label)


def _limits(marks: Sequence[_Mark]) -> tuple[float, float]:
    """Return limits that show all means and 0, and intervals unless they are much wider."""
    means = [mean for mean, *_ in marks if math.isfinite(mean)] or [0.0]
    ends = [end for _, *interval, _ in marks for end in interval if math.isfinite(end)]
    low, high = min(0.0, *means), max(0.0, *means)
    span = max(high - low, 1e-6)
    halves = sorted((right - left) / 2 for _, left, right, _ in marks if math.isfinite(left))
    reach = max(0.3 * span, 2.5 * halves[len(halves) // 2] if halves else 0.0)
    left, right = max(min([low, *ends]), low - reach), min(max([high, *ends]), high + reach)
    margin = 0.05 * (right - left) or 1.0
    return left - margin, right + margin


def _ratio_limits(marks: Sequence[_Mark]) -> tuple[float, float]:
    means = [math.log2(mean) for mean, *_ in marks if math.isfinite(mean)] or [0.0]
    ends = [math.log2(end) for _, *interval, _ in marks for end in interval if math.isfinite(end) and end > 0]
    low, high = min(-1.0, *means), max(1.0, *means)
    low, high = max(min([low, *ends]), low - 2.0), min(max([high, *ends]), high + 2.0)
    return 2.0 ** (low - 0.1), 2.0 ** (high + 0.3)


def _legend(figure: Any, axes: Any, terms: bool, functions: bool, height: float) -> None:
    from matplotlib.lines import Line2D

    kinds = [(HEADS[factor], *style) for factor, style in STYLES.items()] if terms else []
    kinds += [("function left out", *WITHOUT)] if functions else []
    handles = [
        Line2D([], [], color=colour, marker=marker, linewidth=MILD, label=word) for word, marker, colour in kinds
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.01, 0.3 / height), ncols=4, frameon=False,
                  fontsize=9)  # fmt: skip


def _caption(study: Study) -> str:
    if not study.comparisons:
        return "one seed: no effect can be told from chance" if study.most_seeds == 1 else ""
    return (
        f"bars: 95 % interval over {study.most_seeds} seeds, paired; full markers and bold names: differs from 0 (5 %,"
        f" Holm, {study.comparisons} changes)"
    )


# sweeps


def _plot_sweep(study: Study, path: Path, task: str) -> Path:
    names = list(study.usual)[:MOST_PANELS]
    # a panel for each parameter, and of two a map, in which an interaction shows
    columns = len(names) + (len(study.usual) == 2)
    subtitle = f"fitness by {' and '.join(map(label, names))} of {study.original}"
    if len(study.usual) > 1:
        subtitle += "; grey: each point, line: the mean over the other values"
    width, height = max(3.6 * columns + 0.8, 7.0), 4.6
    title = f"{task}: sweep of {shorten(study.original, 32)}"
    figure, panels, top = new_figure(width, height, title, subtitle, columns=columns)
    points = [(dict(x.values), x.fitness, x.fitness_ci_low, x.fitness_ci_high) for x in study.effects]
    points.append((dict(study.usual), study.fitness, study.fitness_ci_low, study.fitness_ci_high))
    points = [point for point in points if not math.isnan(point[1])]
    if not points:
        show_message(panels[0], "no fitness")
        return save_figure(figure, path)
    for axes, name in zip(panels, names):
        _plot_parameter(axes, name, points, study, PANEL if columns > 1 else width - 1.0)
    if len(study.usual) == 2:
        _heat_map(figure, panels[-1], names, points, study)
    panels[0].set_ylabel("fitness")
    figure.subplots_adjust(
        left=0.75 / width,
        right=1 - (0.6 if len(study.usual) == 2 else 0.25) / width,
        bottom=0.95 / height,
        top=top - 0.03,
        wspace=0.9 / 3.6,
    )
    # the interval of one parameter alone: with several, a point is a single combination
    caption = "dashed: the original's value"
    if len(names) == 1 and any(not math.isnan(low) for _, _, low, _ in points):
        caption += f"   bars: 95 % interval over {study.most_seeds} seeds"
    figure.text(0.02, 0.12 / height, caption, fontsize=9, color=GREY, va="bottom")
    return save_figure(figure, path)


_Point = tuple[dict[str, float], float, float, float]  # values, fitness and its interval


def _plot_parameter(axes: Any, name: str, points: Sequence[_Point], study: Study, width: float) -> None:
    """Draw fitness against one parameter: values over a decade or more by their logarithm, others evenly apart."""
    values = sorted({point[0][name] for point in points})
    is_log = values[0] > 0 and values[-1] >= 10 * values[0]
    at = {value: math.log10(value) if is_log else float(k) for k, value in enumerate(values)}
    # all points: with intervals where they are of this parameter alone, else in grey
    if len(study.usual) == 1:
        for point_values, _, low, high in points:
            if not math.isnan(low):
                axes.plot([at[point_values[name]]] * 2, [low, high], color=COLOURS[0], linewidth=1.6, zorder=2)
    else:
        xs = [at[point_values[name]] for point_values, *_ in points]
        axes.plot(xs, [fitness for _, fitness, *_ in points], "o", color=LIGHT, markersize=4, zorder=1)
    # the mean over the values of the other parameters
    means = [
        float(np.mean([fitness for point_values, fitness, *_ in points if point_values[name] == value]))
        for value in values
    ]
    axes.plot([*at.values()], means, "o-", color=COLOURS[0], markersize=5.5, linewidth=1.6, zorder=3)
    if study.usual[name] in at:
        usual = at[study.usual[name]]
        axes.axvline(usual, color=BLACK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
    _value_ticks(axes.set_xticks, values, width, [*at.values()])
    margin = 0.08 * (at[values[-1]] - at[values[0]]) if is_log else 0.4
    axes.set_xlim(at[values[0]] - margin, at[values[-1]] + margin)
    axes.set_xlabel(_axis_label(name) + (" (logarithmic)" if is_log else ""))
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)


def _axis_label(name: str) -> str:
    """Return a name as it fits a panel: of a long one, the last part."""
    return escape(shorten(label(name) if len(label(name)) <= NAME_WIDTH else name.rpartition(".")[2], NAME_WIDTH + 4))


def _value_ticks(set_ticks: Any, values: Sequence[float], width: float, at: Sequence[float] = ()) -> None:
    """Label values at places from 0, or ``at``, as far as there is room along ``width`` inches."""
    at = at or range(len(values))
    labels, end = [], -math.inf
    for value, x in zip(values, at):
        middle = width * (x - at[0]) / ((at[-1] - at[0]) or 1)
        half = LABEL_CHARACTER * (len(short(value)) + 1) / 2
        fits = middle - half >= end
        labels.append(short(value) if fits else "")
        end = middle + half if fits else end
    set_ticks(at, labels)


def _heat_map(figure: Any, axes: Any, names: Sequence[str], points: Sequence[_Point], study: Study) -> None:
    """Draw fitness by two parameters; cells without a point stay white."""
    from matplotlib.patches import Rectangle

    columns, rows = (sorted({point[0][name] for point in points}) for name in names)
    table = np.full((len(rows), len(columns)), np.nan)
    for point_values, fitness, *_ in points:
        table[rows.index(point_values[names[1]]), columns.index(point_values[names[0]])] = fitness
    # the fitness in numbers where there is room
    image = axes.imshow(table, origin="lower", aspect="auto", cmap="cividis")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    decimals = decimal_places(table[np.isfinite(table)].tolist())
    if table.size <= 64:
        for (row, column), value in np.ndenumerate(table):
            if not math.isnan(value):
                axes.text(column, row, fixed(value, decimals), ha="center", va="center", fontsize=8,
                          color="white" if value < middle else BLACK)  # fmt: skip
    if study.usual[names[0]] in columns and study.usual[names[1]] in rows:
        corner = columns.index(study.usual[names[0]]) - 0.5, rows.index(study.usual[names[1]]) - 0.5
        for colour, style in (("white", "solid"), (BLACK, (0, (4, 3)))):  # seen on dark and on light
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=colour, linestyle=style, clip_on=False))
    _value_ticks(axes.set_xticks, columns, PANEL * (len(columns) - 1) / len(columns))
    # labels of a vertical axis have a line each
    _value_ticks(axes.set_yticks, rows, 100.0 if len(rows) <= 14 else 6.0)
    axes.set_xlabel(_axis_label(names[0]))
    axes.set_ylabel(_axis_label(names[1]))
    for side in axes.spines.values():
        side.set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.06, pad=0.03)
    bar.outline.set_edgecolor(GREY)
    bar.ax.tick_params(labelsize=8, color=DARK)
