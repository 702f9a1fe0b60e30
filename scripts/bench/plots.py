"""The pictures of docs/benchmarks.md: env-steps/s and memory against the number of candidates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, List, Sequence, Tuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator

from .records import Record, latest

# as in the ranking's pictures: Okabe and Ito's colours, which colour-blind readers tell apart
TOOL, PROCESSES, PHYSICS = "#0072B2", "#D55E00", "#606060"
GRID, MUTED, DPI = "#E4E4E4", "#606060", 150
PANEL = 6.5  # inches, the names of the lines included
Series = List[Tuple[float, float]]


def plot_scaling(records: list[Record], path: Path) -> None:
    """Draw env-steps/s over candidates, a panel per machine: physics, this tool, a process per candidate."""
    rows = _rows(records)
    labels = sorted({row["label"] for row in rows}, key=lambda label: -max(r["physics"] for r in _of(rows, label)))
    width = PANEL * len(labels)
    figure = _figure(width, 4.9, "Training speed over the number of candidates")
    what = "ANYmal C; simulation, candidate functions and PPO included"
    what += "\n" if len(labels) == 1 else "; "
    figure.text(0.25 / width, 0.915, f"{what}percentages are of the physics alone", fontsize=10, color=MUTED, va="top")
    for i, label in enumerate(labels):
        axes: Any = figure.add_subplot(1, len(labels), i + 1)
        own = _of(rows, label)
        most = max(row["candidates"] for row in own)
        style(axes, f"{label}, {own[0]['envs']} environments per candidate")
        tool: Series = [(row["candidates"], row["training"]) for row in own]
        physics: Series = [(row["candidates"], row["physics"]) for row in own]
        axes.plot(*zip(*physics), "--", color=PHYSICS, linewidth=1.6, marker="o", markersize=4)
        axes.plot(*zip(*tool), color=TOOL, linewidth=2.6, marker="o", markersize=6, zorder=4)
        for row in own:
            text = f"{row['training'] / row['physics']:.0%}"
            place = {"xytext": (0, -16), "textcoords": "offset points", "ha": "center", "zorder": 5}
            note = axes.annotate(text, (row["candidates"], row["training"]), color=TOOL, fontsize=9, **place)
            note.set_path_effects([withStroke(linewidth=3, foreground="white")])
        ends = [(physics[-1][1], PHYSICS, "physics alone"), (tool[-1][1], TOOL, "EnvCoderBench")]
        alone = [r for r in latest(records, "processes", "envs", "processes") if r["label"] == label]
        separate: Series = [(r["processes"], r["total"]) for r in alone if r["envs"] == own[0]["envs"]]
        if separate:
            count, rate = separate[-1]
            axes.plot(*zip(*separate), color=PROCESSES, linewidth=2, marker="s", markersize=5)
            axes.plot((count, most), (rate, rate), ":", color=PROCESSES, linewidth=2)
            ends.append((rate, PROCESSES, f"a process each,\n{count} at a time"))
        axes.set_yscale("log")
        values = [y for _, y in [*tool, *physics, *separate]]
        axes.set_ylim(0.6 * min(values), 1.5 * max(values))
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.set_ylabel("env-steps/s")
        axes.yaxis.set_major_formatter(FuncFormatter(_si))
        axes.set_xscale("log")
        axes.set_xticks([x for x, _ in tool], [f"{x:,}" for x, _ in tool])
        axes.set_xlabel("candidates")
        axes.minorticks_off()
        _label_ends(axes, most, ends)
        axes.set_position(((PANEL * i + 0.8) / width, 0.12, 4.0 / width, 0.65))
    figure.savefig(path)


def plot_memory(records: list[Record], path: Path) -> bool:
    """Draw GPU memory over candidates; False if nothing was measured on a GPU."""
    rows = [row for row in _rows(records) if row["device"] == "cuda"]
    if not rows:
        return False
    figure = _figure(6.8, 4.6, "GPU memory over the number of candidates")
    axes: Any = figure.add_subplot()
    own = _of(rows, rows[0]["label"])
    style(axes, f"{own[0]['label']}, ANYmal C, {own[0]['envs']} environments per candidate; all of the process")
    points = [(row["candidates"], row["memory_gib"]) for row in own]
    axes.plot(*zip(*points), color=TOOL, linewidth=2.6, marker="o", markersize=6)
    for x, y in (point for point in points if point[0] >= 0.2 * points[-1][0]):
        axes.annotate(f"{x:,}: {y:.1f} GiB", (x, y), xytext=(-4, 8), textcoords="offset points", ha="right", color=TOOL)
    axes.set_ylim(0, 1.15 * max(y for _, y in points))
    axes.set_xlim(0, 1.05 * points[-1][0])
    axes.set_ylabel("GiB")
    axes.set_xlabel("candidates")
    figure.subplots_adjust(left=0.1, right=0.96, bottom=0.13, top=0.82)
    figure.savefig(path)
    return True


def _rows(records: list[Record]) -> list[Record]:
    """The latest scaling records, of each machine those with its most usual number of environments per candidate."""
    rows = latest(records, "scaling", "envs", "candidates")
    usual = {label: Counter(r["envs"] for r in _of(rows, label)).most_common(1)[0][0] for label in _labels(rows)}
    return [row for row in rows if row["envs"] == usual[row["label"]]]


def _of(rows: Sequence[Record], label: str) -> list[Record]:
    return [row for row in rows if row["label"] == label]


def _labels(rows: Sequence[Record]) -> list[str]:
    return sorted({row["label"] for row in rows})


def _figure(width: float, height: float, title: str) -> Any:
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)  # no pyplot: nothing global, and no display is looked for
    figure.text(0.25 / width, 0.94, title, fontsize=14, fontweight="bold")
    return figure


def style(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=MUTED)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, color=MUTED)


def _label_ends(axes: Any, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Name the lines at their right ends, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    gap = (high / low) ** 0.08  # a line of text and some, on the logarithmic axis
    y = 0.0
    for value, colour, text in sorted(ends):
        y = max(value, y * gap)
        axes.annotate(
            text, (x, y), xytext=(10, 0), textcoords="offset points", va="center", color=colour, fontsize=9.5,
            fontweight="bold" if colour == TOOL else "normal", annotation_clip=False,
        )  # fmt: skip


def _si(value: float, _: Any = None) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"
