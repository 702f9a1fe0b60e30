"""The pictures of the pages: speed over the number of candidates, and learning curves of baselines."""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

from bench.records import Record, latest
from matplotlib.ticker import EngFormatter, LogLocator
from studies.analysis import known

from envcoder_bench.report.figures import COLOURS, GREY, new_figure, save_figure
from envcoder_bench.results.statistics import mean_interval
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

from .learning_tables import TARGETS, UNITS, Points, bounds, curves, mean_fitness, name

TOOL, PROCESSES = COLOURS[:2]
SINCE = "2026-11-22"  # ANYmal has longer physics steps; records of earlier days are only in the tables
FEWEST = 3  # numbers of candidates of a machine that make a curve
GRID: dict[str, Any] = {"color": "#E4E4E4", "linewidth": 0.8}


def plot_scaling(records: list[Record], path: Path) -> Path | None:
    """Draw env-steps/s over candidates, a panel per machine: physics, this tool, a process per candidate.

    Machines with few measurements are left out, if there are others. None if nothing was measured.
    """
    rows = _rows(records)
    if not rows:
        return None
    labels = [label for label in _labels(rows) if len(_of(rows, label)) >= FEWEST] or _labels(rows)
    labels = sorted(labels, key=lambda label: -max(row["physics"] for row in _of(rows, label)))
    about = "ANYmal C; simulation, candidate functions and PPO included; percentages are of the physics alone"
    figure, panels, top = new_figure(6.5 * len(labels), 4.9, "Training speed", about, columns=len(labels))
    for axes, label in zip(panels, labels):
        label_rows = _of(rows, label)
        envs = label_rows[0]["envs"]
        counts = [row["candidates"] for row in label_rows]
        axes.set_title(f"{label}, {envs} environments per candidate", loc="left", fontsize=10, color=GREY)
        physics = [row["physics"] for row in label_rows]
        axes.plot(counts, physics, "--o", color=GREY, markersize=4, label="physics alone")
        training = [row["training"] for row in label_rows]
        axes.plot(counts, training, "-o", color=TOOL, linewidth=2.6, zorder=4, label="EnvCoderBench")
        processes = [r for r in latest(records, "processes", "envs", "processes") if r["label"] == label]
        processes = [r for r in processes if r["envs"] == envs]
        totals = {r["processes"]: r["total"] for r in processes}
        for x, y, row in zip(counts, training, label_rows):
            below = y > 0.6 * row["physics"] or totals.get(x, 0.0) > y  # the label avoids the other curves
            offset: Any = {"xytext": (0, -16 if below else 9), "textcoords": "offset points", "ha": "center"}
            axes.annotate(f"{y / row['physics']:.0%}", (x, y), color=TOOL, fontsize=9, zorder=5, **offset)
        rates = physics + training + [r["total"] for r in processes]
        if processes:
            xs, ys = [r["processes"] for r in processes], [r["total"] for r in processes]
            style: Any = {"color": PROCESSES, "label": f"a process each, {xs[-1]} at a time"}
            axes.plot(xs, ys, "-s", markersize=5, **style)
            axes.plot((xs[-1], counts[-1]), (ys[-1], ys[-1]), ":", color=PROCESSES)
        axes.set(xscale="log", yscale="log", xlabel="candidates", ylabel="env-steps/s")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(EngFormatter())
        axes.minorticks_off()
        axes.set_ylim(0.6 * min(rates), 1.5 * max(rates))
        axes.grid(**GRID)
        axes.legend(fontsize=9, edgecolor="none")
    figure.subplots_adjust(left=0.95 / figure.get_figwidth(), right=0.98, bottom=0.12, top=top - 0.06, wspace=0.23)
    return save_figure(figure, path)


def _rows(records: list[Record]) -> list[Record]:
    """Return the latest scaling records of each machine, for its most common number of environments per candidate."""
    rows = [row for row in latest(records, "scaling", "envs", "candidates") if row["date"] >= SINCE]
    usual = {label: Counter(r["envs"] for r in _of(rows, label)).most_common(1)[0][0] for label in _labels(rows)}
    return [row for row in rows if row["envs"] == usual[row["label"]]]


def _of(rows: Sequence[Record], label: str) -> list[Record]:
    return [row for row in rows if row["label"] == label]


def _labels(rows: Sequence[Record]) -> list[str]:
    return sorted({row["label"] for row in rows})


# how the baselines learn, over env-steps and over time


def pictures(records: Sequence[Record]) -> dict[str, list[Points]]:
    """Return the curves of each task's plot: those from a GPU if there are any, and of the task's own physics.

    Of trainings that differ only in the machine or the day, the longest is taken.
    """
    by_task: dict[str, list[Points]] = {}
    for points in curves(records):
        if not any(override.startswith("task.sim.") for override in points[0].get("overrides", ())):
            by_task.setdefault(points[0]["task"], []).append(points)
    for task, task_curves in by_task.items():
        task_curves = [points for points in task_curves if points[0]["device"] == "cuda"] or task_curves
        task_curves = sorted(task_curves, key=lambda points: points[-1]["env_steps"])
        facts = [(name(points[0]), *itemgetter("seeds", "envs", "policies")(points[0])) for points in task_curves]
        by_task[task] = list(dict(zip(facts, task_curves)).values())
    return by_task


def file_name(task: str) -> str:
    return f"{task.lower()}_training.png"


def plot_learning(records: Sequence[Record], images: Path) -> list[Path]:
    """Draw a picture for each task; returns the files."""
    return [_plot(task, task_curves, images / file_name(task)) for task, task_curves in pictures(records).items()]


def _plot(task: str, task_curves: list[Points], path: Path) -> Path:
    machines = ", ".join(_labels([points[0] for points in task_curves]))
    about = f"{machines}; mean of the seeds and 95 % interval; fitness: {UNITS.get(task, '')}"
    columns = min(2, len(task_curves))  # columns of the legend below the panels
    legend = 0.25 * -(-len(task_curves) // columns)  # inches
    figure, panels, top = new_figure(11.0, 4.2 + legend, f"{task}: how the baselines learn", about, columns=2)
    target, within = TARGETS.get(task, (None, None))
    task_curves = sorted(task_curves, key=lambda points: points[0]["policies"])
    longest = max(points[-1]["seconds"] for points in task_curves)
    unit, scale = ("minutes", 60.0) if longest > 180 else ("seconds", 1.0)
    spans = (("env_steps", 1e6, "env-steps of each policy, millions"), ("seconds", scale, f"{unit} of training"))
    for axes, (key, scale, label) in zip(panels, spans):
        for points, look in zip(task_curves, _looks(task_curves)):
            draw(axes, points, key, scale, look)
        axes.set(xlabel=label, ylim=_limits(task_curves, target))
        axes.set_xlim(left=0)
        axes.grid(**GRID)
        if target is not None:
            axes.axhline(target, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            if key == "seconds" and within is not None and within <= longest:
                axes.plot(within / scale, target, "*", color=GREY, markersize=11, zorder=1, clip_on=False)
    panels[0].set_ylabel("fitness")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=9, edgecolor="none", loc="lower center", ncols=columns)
    figure.subplots_adjust(left=0.07, right=0.97, bottom=(0.65 + legend) / (4.2 + legend), top=top, wspace=0.14)
    return save_figure(figure, path)


def _limits(task_curves: list[Points], target: float | None) -> tuple[float, float]:
    """Return limits of the fitness axis that show all means; intervals of few seeds may be cut off."""
    means = [mean_fitness(p) for points in task_curves for p in points if known(p["fitness"])]
    top = max([*means, target or 0.0]) or 1.0
    return min([*means, 0.0]) - 0.05 * top, 1.15 * top


def _looks(task_curves: list[Points]) -> list[dict[str, Any]]:
    """Return colour, line style and label of each curve: a colour for each name, a line style for each training."""
    others = sorted({name(points[0]) for points in task_curves} - {HUMAN, UNSHAPED})
    colors = {HUMAN: TOOL, UNSHAPED: PROCESSES, **dict(zip(others, cycle(COLOURS[2:])))}
    lines = {key: cycle(("-", "--", ":", "-.")) for key in colors}
    several = [key for key in colors if sum(name(points[0]) == key for points in task_curves) > 1]
    looks = []
    for first in (points[0] for points in task_curves):
        key = name(first)
        label = f"{key}, {first['seeds']} seed{'s' * (first['seeds'] != 1)} x {first['envs']:,}"
        label += f" ({first['policies']} policies at once)" if key in several else ""
        looks.append({"color": colors[key], "linestyle": next(lines[key]), "label": label})
    return looks


def draw(axes: Any, points: Points, key: str, scale: float, look: dict[str, Any]) -> None:
    x = [p[key] / scale for p in points]
    intervals = [mean_interval(known(p["fitness"]), bounds(p["task"])) for p in points]
    axes.plot(x, [mean_fitness(p) for p in points], linewidth=2.2, **look)
    if points[0]["seeds"] > 2:  # the interval of two seeds is wider than the plot
        low, high = [interval[1] for interval in intervals], [interval[2] for interval in intervals]
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def plot_sides(rows: Sequence[Record], images: Path) -> list[Path]:
    """Draw reward and fitness of ours and of mjlab's runner over env-steps, a picture for each task of mjlab."""
    drawn = []
    for task in dict.fromkeys(row["task"] for row in rows):
        task_rows = [row for row in rows if row["task"] == task]
        seeds, envs = task_rows[0]["seeds"], task_rows[0]["envs"]
        about = f"{_labels(task_rows)[0]}; {seeds} seeds x {envs:,}; means and 95 % intervals"
        figure, panels, top = new_figure(11.0, 4.0, f"{task}: EnvCoderBench and mjlab's runner", about, columns=2)
        for axes, what in zip(panels, ("reward", "fitness")):
            for row, color, label in zip(task_rows, (TOOL, PROCESSES), ("EnvCoderBench", "mjlab's runner")):
                x = [steps / 1e6 for steps in row["env_steps"]]
                intervals = [mean_interval(point) for point in row[what]]
                axes.plot(x, [i[0] for i in intervals], color=color, linewidth=2.2, label=label)
                low, high = [i[1] for i in intervals], [i[2] for i in intervals]
                axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
            axes.set(xlabel="env-steps of each policy, millions", ylabel=f"{what}, mean of a step")
            axes.set_xlim(left=0)
            axes.grid(**GRID)
        panels[0].legend(fontsize=9, edgecolor="none")
        figure.subplots_adjust(left=0.07, right=0.98, bottom=0.14, top=top, wspace=0.2)
        drawn.append(save_figure(figure, images / file_name(task)))
    return drawn
