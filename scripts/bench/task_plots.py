"""The pictures of docs/results.md: how the baselines of each task learn, over env-steps and over time."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from envcoder_bench.report.ranking import mean_interval
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

from .plots import DPI, MUTED, PHYSICS, PROCESSES, TOOL, style
from .records import Record
from .task_tables import FRACTIONS, TARGETS, UNITS, Points, curves, mean_fitness, measured, name

WIDTH, HEIGHT = 11.0, 4.4
OTHERS = (PHYSICS, "#009e73", "#cc79a7")  # colours of what is no baseline


def pictures(records: Sequence[Record]) -> dict[str, list[Points]]:
    """For each task the curves of its picture: those from a GPU, where there are any."""
    by_task: dict[str, list[Points]] = {}
    for points in curves(records):
        by_task.setdefault(points[0]["task"], []).append(points)
    for task, own in by_task.items():
        by_task[task] = [points for points in own if points[0]["device"] == "cuda"] or own
    return by_task


def file_name(task: str) -> str:
    return f"{task.lower()}_training.png"


def plot_learning(records: Sequence[Record], images: Path) -> list[Path]:
    """Draw a picture for each task; returns the files."""
    paths = []
    for task, own in pictures(records).items():
        paths.append(images / file_name(task))
        _plot(task, own, paths[-1])
    return paths


def _plot(task: str, own: list[Points], path: Path) -> None:
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)  # no pyplot: nothing global, and no display is looked for
    figure.text(0.02, 0.93, f"{task}: how the baselines learn", fontsize=14, fontweight="bold")
    what = f"{own[0][0]['label']}; mean of the seeds and 95 % interval; fitness: {UNITS.get(task, '')}"
    figure.text(0.02, 0.87, what, fontsize=10, color=MUTED)
    target, within = TARGETS.get(task, (None, None))
    own = sorted(own, key=lambda points: points[0]["policies"])
    for place, (key, scale, label) in enumerate((("env_steps", 1e6, "env-steps of each policy, millions"), _time(own))):
        axes: Any = figure.add_subplot(1, 2, place + 1)
        style(axes, "")
        for points, look in zip(own, _looks(own)):
            _draw(axes, points, key, scale, look)
        axes.set_xlim(left=0)
        axes.set_ylim(*_limits(own, target))
        axes.set_xlabel(label)
        if target is not None:
            axes.axhline(target, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            if key == "seconds" and within is not None and within <= max(points[-1]["seconds"] for points in own):
                axes.plot(within / scale, target, "*", color=MUTED, markersize=11, zorder=1, clip_on=False)
        if place == 0:
            axes.set_ylabel("fitness")
            axes.legend(fontsize=9, edgecolor="none", framealpha=0.8, loc="upper left")
    figure.subplots_adjust(left=0.07, right=0.97, bottom=0.13, top=0.84, wspace=0.14)
    figure.savefig(path)


def _time(own: list[Points]) -> tuple[str, float, str]:
    """The axis of time; the star on it is the target."""
    minutes = max(points[-1]["seconds"] for points in own) > 180
    unit = "minutes" if minutes else "seconds"
    return "seconds", 60.0 if minutes else 1.0, f"{unit} of training, of all policies of a run"


def _limits(own: list[Points], target: float | None) -> tuple[float, float]:
    """Of the fitness: all means, and room around them; an interval of few seeds may reach far beyond."""
    means = [mean_fitness(p) for points in own for p in points if measured(p["fitness"])]
    top = max([*means, target or 0.0]) or 1.0
    return min([*means, 0.0]) - 0.05 * top, (1.1 + 0.09 * len(own)) * top  # the legend stands above


def _looks(own: list[Points]) -> list[dict[str, Any]]:
    """Colour, line and label of each curve: a colour for each name, lines for the trainings of one."""
    others = sorted({name(points[0]) for points in own} - {HUMAN, UNSHAPED})
    colors = {HUMAN: TOOL, UNSHAPED: PROCESSES, **dict(zip(others, cycle(OTHERS)))}
    lines = {key: cycle(("-", "--", ":")) for key in colors}
    several = [key for key in colors if sum(name(points[0]) == key for points in own) > 1]
    looks = []
    for first in (points[0] for points in own):
        key = name(first)
        label = f"{key}, {first['seeds']} seeds x {first['envs']:,}"
        label += f" ({first['policies']} policies at once)" if key in several else ""
        looks.append({"color": colors[key], "linestyle": next(lines[key]), "label": label})
    return looks


def _draw(axes: Any, points: Points, key: str, scale: float, look: dict[str, Any]) -> None:
    x = [p[key] / scale for p in points]
    bounds = [mean_interval(measured(p["fitness"])) for p in points]
    axes.plot(x, [mean_fitness(p) for p in points], linewidth=2.2, **look)
    if points[0]["seeds"] > 2:  # of two seeds the interval is wider than the picture
        low, high = [b[1] for b in bounds], [b[2] for b in bounds]
        if points[0]["task"] in FRACTIONS:
            low, high = [max(x, 0.0) for x in low], [min(x, 1.0) for x in high]
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
