"""The picture of the learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envcoder_bench.core.words import decimal_places, fixed
from envcoder_bench.report.figures import (
    BLACK,
    COLOURS,
    GREY,
    LIGHT,
    candidate_label,
    escape,
    limits_around,
    make_room_left,
    new_figure,
    renderer,
    save_figure,
    show_message,
    spread,
)
from envcoder_bench.results.logs import over_seeds
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, UNTRAINED

if TYPE_CHECKING:
    import pandas as pd

HIGHLIGHTED = 5  # candidates in colour if there are more candidates than colours


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
        ranked: the ranking; with more candidates than colours only the best and the baselines are coloured.
        short_points: whether points before the last one may be of the beginnings of episodes.
    """
    measured: Any = curves[curves["fitness"].notna()]
    names = set(measured["candidate"])
    drawn = [r for r in ranked if r.candidate in names]
    points = over_seeds(curves, "fitness")
    band = "; band: range of the seeds" if measured["seed"].nunique() > 1 else ""
    figure, (axes,), top = new_figure(10.0, 6.0, f"{task}: learning curves", f"fitness: {fitness_meaning}")
    styles = _styles(drawn)
    scale, unit = _step_unit(float(measured["env_steps"].max()) if drawn else 0.0)
    labels, bands = [], []
    untrained = next((r for r in ranked if r.candidate == UNTRAINED and r.rank is not None), None)
    levels = [] if untrained is None else [untrained.fitness]
    # lines and bands
    for row in reversed(drawn):  # the best is drawn last, on top
        line: Any = points.loc[row.candidate]
        steps = line.index.to_numpy() / scale
        mean, least, most = (line[name].to_numpy() for name in ("mean", "min", "max"))
        style = styles[row.candidate]
        marker = {"marker": "o", "markersize": 4} if len(steps) == 1 else {}
        axes.plot(steps, mean, **style, **marker, solid_capstyle="round")
        if row.stopped_at:
            axes.plot(steps[-1], mean[-1], "|", color=style["color"], markersize=7, zorder=style["zorder"])
        if row.rank is None:  # the candidate failed here
            axes.plot(steps[-1], mean[-1], "x", color=style["color"], markersize=7, zorder=style["zorder"])
        if style["color"] != LIGHT:
            axes.fill_between(steps, least, most, color=style["color"], alpha=0.13, linewidth=0, zorder=1)
            labels.append((row, steps[-1], float(mean[-1]), style["color"]))
            bands += [float(least.min()), float(most.max())]
    # limits of the axes
    cut = False
    if drawn:
        low, high = _limits(np.array([*points["mean"], *levels]), bands)
        cut = min(bands, default=low) < low or max(bands, default=high) > high
        axes.set_ylim(low, high)
        axes.set_xlim(0, 1.01 * float(measured["env_steps"].max()) / scale)
        if untrained is not None:
            axes.axhline(untrained.fitness, color=GREY, linewidth=1.6, linestyle=(0, (1, 1.5)), zorder=1.5)
            labels.append((untrained, axes.get_xlim()[1], untrained.fitness, GREY))
    else:
        show_message(axes, "no fitness was measured")
    axes.set_xlabel(f"environment steps of each candidate and seed{unit}{band}")
    axes.set_ylabel("fitness")
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    figure.subplots_adjust(left=0.075, right=0.97, bottom=0.145, top=top)
    make_room_left(figure, [axes])
    _label_ends(figure, axes, labels)
    # notes
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
        return limits_around(float(means[0]))
    span = max(float(np.ptp(means)), 1e-3 * float(np.abs(means).max())) or 1e-3
    low = max(min(means.min(), *bands), means.min() - span / 2)
    high = min(max(means.max(), *bands), means.max() + span / 2)
    margin = 0.05 * span
    return 0.0 if 0 <= low < means.max() / 2 else low - margin, high + margin


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
    # names are beside the ends of their lines, moved apart where they would overlap
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
                escape(candidate_label(row) + end),
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


def _step_unit(steps: float) -> tuple[float, str]:
    return (1e6, " (millions)") if steps >= 1e6 else (1e3, " (thousands)") if steps >= 1e4 else (1.0, "")
