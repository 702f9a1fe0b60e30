"""Plots of a run: learning curves and the ranking."""

from __future__ import annotations

import io
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.curves import over_seeds
from envcoder_bench.report.ranking import Ranked
from envcoder_bench.report.results import SKIPPED
from envcoder_bench.report.table import decimal_places, fixed, half_width, numbers, shorten, split_place
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

if TYPE_CHECKING:
    import pandas as pd

# Okabe and Ito's colours without yellow and black, and two of Paul Tol's: distinguishable for colour-blind readers
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255")
BLACK, DARK, GREY, LIGHT = "#000000", "#404040", "#808080", "#C8C8C8"
BETTER, WORSE = COLOURS[0], COLOURS[1]
HIGHLIGHTED = 5  # candidates in colour if there are more candidates than colours
NAME_WIDTH = 28
REASON_WIDTH = 100
CAPTION_WIDTH = 140
MAX_ROWS = 60  # of the ranking; the rest is in results.csv
MAX_FAILED = 8  # failed candidates in the ranking
DPI = 150


def plot_learning_curves(
    curves: pd.DataFrame,
    ranked: Sequence[Ranked],
    path: str | Path,
    task: str,
    fitness_meaning: str,
    short_points: bool = False,
) -> Path:
    """Draw each candidate's fitness over env_steps: the mean over its seeds, and their range as a band.

    Args:
        curves: as ``read_curves`` returns it.
        ranked: the ranking; with more candidates than colours only the best and the baselines are coloured.
        path: the PNG file to write.
        task, fitness_meaning: for title and subtitle.
        short_points: whether points before the last one may be of the beginnings of episodes.
    """
    measured: Any = curves[curves["fitness"].notna()]
    known = set(measured["candidate"])
    drawn = [r for r in ranked if r.candidate in known]
    points = over_seeds(curves, "fitness")
    band = "; band: range of the seeds" if measured["seed"].nunique() > 1 else ""
    figure, (axes,), top = new_figure(10.0, 6.0, f"{task}: learning curves", f"fitness: {fitness_meaning}")
    styles = _styles(drawn)
    scale, unit = _step_unit(float(measured["env_steps"].max()) if drawn else 0.0)
    labels, bands = [], []
    for row in reversed(drawn):  # the best is drawn last, on top
        line: Any = points.loc[row.candidate]
        steps, mean = line.index.to_numpy() / scale, line["mean"].to_numpy()
        style = styles[row.candidate]
        marker = {"marker": "o", "markersize": 4} if len(steps) == 1 else {}
        axes.plot(steps, mean, **style, **marker, solid_capstyle="round")
        if row.stopped_at:
            axes.plot(steps[-1], mean[-1], "|", color=style["color"], markersize=7, zorder=style["zorder"])
        if row.rank is None:  # the candidate failed here
            axes.plot(steps[-1], mean[-1], "x", color=style["color"], markersize=7, zorder=style["zorder"])
        if style["color"] != LIGHT:
            axes.fill_between(steps, line["min"], line["max"], color=style["color"], alpha=0.13, linewidth=0, zorder=1)
            labels.append((row, steps[-1], float(mean[-1]), style["color"]))
            bands += [float(line["min"].min()), float(line["max"].max())]
    cut = False
    if drawn:
        low, high = _limits(points["mean"].to_numpy(), bands)
        cut = min(bands, default=low) < low or max(bands, default=high) > high
        axes.set_ylim(low, high)
        axes.set_xlim(0, 1.01 * float(measured["env_steps"].max()) / scale)
    else:
        show_message(axes, "no fitness was measured")
    axes.set_xlabel(f"environment steps of each candidate and seed{unit}{band}")
    axes.set_ylabel("fitness")
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    figure.subplots_adjust(left=0.075, right=0.97, bottom=0.145, top=top)
    make_room_left(figure, [axes])
    _label_ends(figure, axes, labels)
    others = sum(style["color"] == LIGHT for style in styles.values())
    notes = [f"grey: {others} other candidates"] if others else []
    notes += ["x: failed"] if any(r.rank is None for r in drawn) else []
    stopped = any(r.stopped_at for r in drawn)
    notes += ["|: stopped by the race"] if stopped else []
    if short_points and measured["env_steps"].nunique() > 1:
        notes.append(f"last point: whole episodes{', unless stopped' * stopped}")
    notes += ["bands that reach the frame are cut off"] if cut else []
    figure.text(0.02, 0.02, "   ".join(notes), fontsize=9, color=GREY, va="bottom")  # outside the axes, over no line
    return save_figure(figure, path)


def _limits(means: np.ndarray, bands: Sequence[float]) -> tuple[float, float]:
    """Return limits of the fitness axis that show all means, and the bands unless they are much wider."""
    if not np.ptp([*means, *bands]):
        return _around(float(means[0]))
    span = max(float(np.ptp(means)), 1e-3)
    low = max(min(means.min(), *bands), means.min() - span / 2)
    high = min(max(means.max(), *bands), means.max() + span / 2)
    margin = 0.05 * span
    return 0.0 if 0 <= low < means.max() / 2 else low - margin, high + margin


def plot_ranking(
    ranked: Sequence[Ranked],
    path: str | Path,
    task: str,
    fitness_meaning: str,
) -> Path:
    """Draw the ranking: a dot with its 95 % interval for each candidate, best on top, failed ones at the bottom."""
    best = [r for r in ranked if r.rank is not None]
    shown = [r for i, r in enumerate(best) if i < MAX_ROWS or r.baseline]
    without = [r for r in ranked if r.rank is None and r.status != SKIPPED]
    names = [_name(r) for r in shown]
    remarks = [(f"{len(best) - len(shown)} more", "in results.csv")] if len(shown) < len(best) else []
    remarks += [(_name(r), _reason(r)) for r in without[:MAX_FAILED]]
    if len(without) > MAX_FAILED:
        remarks.append((f"{len(without) - MAX_FAILED} more", "without fitness, see results.csv"))
    rows = max(len(names) + len(remarks), 1)
    height = 1.9 + (0.3 if rows <= 30 else 0.25) * max(rows, 4)
    figure, (axes,), top = new_figure(10.0, height, f"{task}: ranking", f"fitness: {fitness_meaning}")

    intervals = [(r.fitness, r.fitness_ci_low, r.fitness_ci_high) for r in shown]
    texts = numbers(intervals, decimal_places([r.fitness for r in shown]))
    limits, cut = _range(shown), False
    for y, row in enumerate(shown):
        colour, marker = _colour_and_marker(row)
        interval = (row.fitness_ci_low, row.fitness_ci_high)
        if not math.isnan(interval[0]):
            axes.plot(interval, (y, y), color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
            for end, limit, arrow in zip(interval, limits, "<>"):
                if not limits[0] <= end <= limits[1]:  # the interval is cut off
                    inside = 0.008 * (limits[1] - limits[0]) * (1 if arrow == "<" else -1)
                    axes.plot(limit + inside, y, arrow, color=colour, markersize=7, zorder=4)
                    cut = True
        axes.plot(row.fitness, y, marker, color=colour, markersize=6, zorder=4)
        axes.text(1.015, y, texts[y], transform=axes.get_yaxis_transform(), va="center", fontsize=10, color=colour)
        if row.candidate == HUMAN:
            axes.axvline(row.fitness, color=BLACK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1.5)
    for y, (_, text) in enumerate(remarks, len(shown)):
        axes.text(0.01, y, escape(text), transform=axes.get_yaxis_transform(), va="center", fontsize=9, color=GREY)
    if remarks:  # hide the grid behind their text
        axes.axhspan(len(shown) - 0.5, rows, facecolor="white", edgecolor="none", zorder=2)
        axes.axhline(len(shown) - 0.5, color=LIGHT, linewidth=0.8, zorder=2)
    if not shown and not remarks:
        show_message(axes, "no candidates")

    axes.set_yticks(range(len(names) + len(remarks)), [escape(n) for n in [*names, *(n for n, _ in remarks)]])
    for label, row in zip(axes.get_yticklabels(), shown):
        label.set_color(_colour_and_marker(row)[0])
        label.set_fontweight("bold" if row.candidate == HUMAN else "normal")
    for label in axes.get_yticklabels()[len(shown) :]:
        label.set_color(GREY)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlim(limits)
    axes.set_xlabel("fitness" if shown else "")
    if not shown:
        axes.set_xticks([])
    axes.grid(axis="x", color="#E8E8E8", linewidth=0.8)
    caption = _caption(shown, cut)
    bottom = 0.85 + 0.18 * caption.count("\n")
    figure.subplots_adjust(left=0.3, right=0.84, bottom=bottom / height, top=top)
    left = max((label.get_window_extent(renderer(figure)).width for label in axes.get_yticklabels()), default=0)
    figure.subplots_adjust(left=0.02 + (left / figure.dpi + 0.12) / figure.get_size_inches()[0])
    figure.text(0.02, 0.14 / height, caption, fontsize=9, color=GREY, va="bottom")
    return save_figure(figure, path)


def new_figure(
    width: float, height: float, title: str, subtitle: str, rows: int = 1, columns: int = 1
) -> tuple[Any, list[Any], float]:
    """Return a figure with title and subtitle, its axes, and the top of the axes as a fraction of the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)  # pyplot would have global state and look for a display
    lines = textwrap.wrap(subtitle, round(13 * width))[:3]
    figure.text(0.02, 1 - 0.16 / height, escape(title), fontsize=14, fontweight="bold", va="top")
    figure.text(0.02, 1 - 0.46 / height, escape("\n".join(lines)), fontsize=10, color=DARK, va="top", linespacing=1.3)
    panels: list[Any] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(GREY)
        axes.tick_params(color=GREY, labelsize=10)
        axes.xaxis.label.set_size(11)
        axes.yaxis.label.set_size(11)
    return figure, panels, 1 - (0.62 + 0.19 * len(lines)) / height


def make_room_left(figure: Any, panels: Sequence[Any], margin: float = 0.2) -> None:
    """Move the left edge of the axes so that labels and the widest tick label begin ``margin`` inches from the left."""
    missing = margin * figure.dpi - min(axes.yaxis.get_tightbbox(renderer(figure)).x0 for axes in panels)
    figure.subplots_adjust(left=figure.subplotpars.left + missing / figure.bbox.width)


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a figure as PNG, atomically."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_atomic(path, picture.getvalue())
    return Path(path)


def _styles(drawn: Sequence[Ranked]) -> dict[str, dict[str, Any]]:
    """Return the style of each candidate's line."""
    plain = [r.candidate for r in drawn if not r.baseline]
    coloured = len(COLOURS) if len(plain) <= len(COLOURS) else HIGHLIGHTED
    styles: dict[str, dict[str, Any]] = {
        HUMAN: {"color": BLACK, "linewidth": 3.0, "zorder": 4},
        UNSHAPED: {"color": GREY, "linewidth": 2.2, "linestyle": "--", "zorder": 3},
    }
    for i, name in enumerate(plain):
        styles[name] = (
            {"color": COLOURS[i], "linewidth": 2.0, "zorder": 5}
            if i < coloured
            else {"color": LIGHT, "linewidth": 0.9, "zorder": 2}
        )
    return styles


def _label_ends(figure: Any, axes: Any, labels: Sequence[tuple[Ranked, float, float, str]]) -> None:
    """Write each line's name right of the axes, as near to the line's end as the other labels allow.

    ``labels`` are (candidate, x, y, colour) in data units.
    """
    if not labels:
        return
    from matplotlib.text import Text
    from matplotlib.transforms import offset_copy

    inches = axes.get_window_extent().height / figure.dpi
    labels = sorted(labels, key=lambda label: label[2])
    low, high = axes.get_ylim()
    heights = spread([(y - low) / (high - low) for _, _, y, _ in labels], 0.19 / inches, 1.0)
    decimals = decimal_places([y for _, _, y, _ in labels])
    beside = offset_copy(axes.transData, fig=figure, x=22, units="points")
    texts = []
    for (row, x, y, colour), height in zip(labels, heights):
        # the ranking's: the last point of a candidate that a race stopped may be of shorter episodes
        end = " (failed)" if row.rank is None else f"  {fixed(row.fitness, decimals)}"
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
        texts.append(
            axes.annotate(
                escape(_name(row) + end),
                (x, y),
                (axes.get_xlim()[1], low + height * (high - low)),
                textcoords=beside,
                arrowprops={**line, "linestyle": ":" if row.rank is None or row.stopped_at else "-"},
                annotation_clip=False,
                va="center",
                fontsize=10,
                fontweight="bold" if row.candidate == HUMAN else "normal",
                color=colour,
            )
        )
    # the extent of the text alone, without the annotation's line
    widest = max(Text.get_window_extent(text, renderer(figure)).width for text in texts) / figure.dpi
    figure.subplots_adjust(right=1 - (widest + 0.45) / figure.get_size_inches()[0])


def spread(wanted: Sequence[float], gap: float, end: float) -> list[float]:
    """Move ascending positions as little as possible (least squares) to be ``gap`` apart, between 0 and ``end``.

    Isotonic regression of ``wanted[i] - i * gap`` by pooling adjacent violators.
    """
    pools: list[tuple[float, int]] = []  # mean, size
    for i, position in enumerate(wanted):
        mean, size = position - i * gap, 1
        while pools and pools[-1][0] >= mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    flat = [mean for mean, size in pools for _ in range(size)]
    room = max(end - (len(wanted) - 1) * gap, 0.0)
    return [min(max(x, 0.0), room) + i * gap for i, x in enumerate(flat)]


def _around(value: float) -> tuple[float, float]:
    """Return limits of an axis with a single value: as wide as the value, or from 0 to 1."""
    return (-0.05, 1.0) if value == 0 else (value - 0.5 * abs(value), value + 0.5 * abs(value))


def _range(shown: Sequence[Ranked]) -> tuple[float, float]:
    """Return limits of the fitness axis that show all means, and the intervals unless they are much wider."""
    if not shown:
        return 0.0, 1.0
    means = [r.fitness for r in shown]
    halves = [half_width(r.fitness, r.fitness_ci_low, r.fitness_ci_high) for r in shown]
    usual = float(np.median([x for x in halves if not math.isnan(x)] or [0.0]))
    if not np.ptp(means) and not any(x > 0 for x in halves):
        return _around(means[0])
    span = max(max(means) - min(means), 0.1 * max(abs(x) for x in means), 2 * usual, 1e-3)
    low = min(r.fitness_ci_low if not math.isnan(r.fitness_ci_low) else r.fitness for r in shown)
    high = max(r.fitness_ci_high if not math.isnan(r.fitness_ci_high) else r.fitness for r in shown)
    low, high = max(low, min(means) - span / 2), min(high, max(means) + span / 2)
    if min(means) >= 0 and low < max(means) / 2:
        low = 0.0
    return low - (0.03 * span if low else 0.0), high + 0.03 * span


def _colour_and_marker(row: Ranked) -> tuple[str, str]:
    """Return colour and marker of a candidate, by whether its difference to human is significant, if it was tested."""
    if row.candidate == HUMAN:
        return BLACK, "s"
    if row.candidate == UNSHAPED:
        return GREY, "D"
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
        parts.append("blue: above it, orange: below it, dark grey: not significant (paired t-test, Holm, 5 %)")
    raced = ["grey: stopped by the race, with the fitness then"] if any(r.stopped_at for r in shown) else []
    one_line = "   ".join(parts + raced)
    return one_line if len(one_line) <= CAPTION_WIDTH else "   ".join(parts[:1] + raced) + "\n" + "   ".join(parts[1:])


def _name(row: Ranked) -> str:
    return shorten(row.candidate, NAME_WIDTH) + (" (baseline)" if row.baseline else "")


def _reason(row: Ranked) -> str:
    place, message = split_place(row.error)
    line = place.rsplit(":", 1)[-1]  # the file's name is the candidate's
    text = ": ".join(x for x in (f"{row.status}, line {line}" if line.isdecimal() else row.status, message) if x)
    return text if len(text) <= REASON_WIDTH else text[: REASON_WIDTH - 1] + "…"


def escape(text: str) -> str:
    """Escape dollar signs, which begin a formula in matplotlib."""
    return text.replace("$", r"\$")


def show_message(axes: Any, message: str) -> None:
    """Write a message into empty axes."""
    axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", va="center", fontsize=12, color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])


def _step_unit(steps: float) -> tuple[float, str]:
    return (1e6, " (millions)") if steps >= 1e6 else (1e3, " (thousands)") if steps >= 1e4 else (1.0, "")


def renderer(figure: Any) -> Any:
    return figure.canvas.get_renderer()
