"""The picture of a sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.words import decimal_places, fixed, shorten
from envcoder_bench.report.figures import (
    BLACK,
    COLOURS,
    DARK,
    GREY,
    LIGHT,
    escape,
    new_figure,
    save_figure,
    show_message,
)
from envcoder_bench.report.terms.table import NAME_WIDTH
from envcoder_bench.results.effects import Study
from envcoder_bench.shaping.variants import label, short

MOST_PANELS = 6
PANEL, LABEL_CHARACTER = 2.7, 0.083  # widths of one of several panels and of a character of tick labels, inches


def plot_sweep(study: Study, path: Path, task: str) -> Path:
    """Draw fitness by the parameters of a sweep."""
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
