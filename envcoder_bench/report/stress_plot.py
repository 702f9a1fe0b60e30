"""The stress of a run on its page: a picture with a panel for each axis of the grid, the tables, and sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from envcoder_bench.core.words import shorten
from envcoder_bench.report.figures import COLOURS, DARK, GREY, NAME_WIDTH, escape, new_figure, png_bytes
from envcoder_bench.report.page import shell
from envcoder_bench.report.page.shell import Section
from envcoder_bench.report.stress import command_rows, missing, motion_rows, physics_rows, sentences, stress_rows
from envcoder_bench.results.stress import Stress

MOST_LINES = len(COLOURS)  # candidates in the picture, the best by their worst decile
COLUMNS = 3


def stress_sections(stress: Stress | None, fitness_order: Sequence[str], task: str) -> list[Section]:
    """Return the page's section on stress; none if it was not measured."""
    if stress is None or not stress.rows:
        return []
    parts, rows = shell.parts(), stress.summaries
    body = Markup(parts.picture(plot_axes(stress, task), "fitness along each axis of the stress grid"))
    header, *lines = stress_rows(rows)
    body += parts.table(header, lines, ["", *["number"] * (len(header) - 2), ""])
    if rows[0].motion:
        header, *lines = motion_rows(rows)
        body += Markup("<h3>Motion</h3>") + parts.table(header, lines, ["", *["number"] * (len(header) - 1)])
    if stress.commands:
        header, *lines = command_rows(stress, rows)
        numbers = ["number"] * (len(header) - 2)
        body += Markup("<h3>Commands of velocity</h3>") + parts.table(header, lines, ["", "", *numbers])
    if any(row.physics for row in stress.rows):
        header, *lines = physics_rows(stress, rows)
        numbers = ["number"] * (len(header) - 1)
        body += Markup("<h3>Fitness in other physics</h3>") + parts.table(header, lines, ["", *numbers])
    body += parts.notes([*sentences(stress, fitness_order), *missing(stress, {})])
    return [Section("stress-section", "Under stress", body)]


def plot_axes(stress: Stress, task: str) -> bytes:
    """Draw the fitness of each candidate in the quarters of each axis, as PNG."""
    axes, summaries = stress.settings.grid.axes, stress.summaries[:MOST_LINES]
    lines = -(-len(axes) // COLUMNS)
    height = 1.6 + 2.0 * lines
    settings = stress.settings
    subtitle = f"mean fitness in each quarter of an axis; all axes vary at once, {settings.draws} draws"
    figure, panels, top = new_figure(10.5, height, f"{task} under stress", subtitle, lines, COLUMNS)
    for panel, axis in zip(panels, axes):
        for colour, each in zip(COLOURS, summaries):
            quarters = stress.quarters(each.candidate, axis.name)
            middles = [0.5 * (low + high) for low, high, _, _ in quarters]
            label = escape(shorten(each.candidate, NAME_WIDTH))
            panel.plot(middles, [fitness for _, _, fitness, _ in quarters], "o-", color=colour, label=label, ms=4)
        if axis.nominal is not None:
            panel.axvline(axis.nominal, color=GREY, lw=0.8, ls=":")
        unit = f", {axis.unit}" if axis.unit not in ("", "x") else ""
        panel.set_xlabel(f"{axis.name}{unit}", color=DARK)
        panel.set_xlim(axis.low, axis.high)
    for panel in panels[len(axes) :]:
        panel.set_visible(False)
    values = [x for each in summaries for axis in axes for _, _, x, _ in stress.quarters(each.candidate, axis.name)]
    finite = np.array([x for x in values if np.isfinite(x)])
    room = 0.05 * max(float(np.ptp(finite)), 1e-6) if len(finite) else 1.0
    for panel in panels[: len(axes)]:
        if len(finite):
            panel.set_ylim(finite.min() - room, finite.max() + room)
    figure.subplots_adjust(left=0.07, right=0.98, bottom=0.95 / height, top=top - 0.02, wspace=0.25, hspace=0.55)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, fontsize=9)
    return png_bytes(figure)
