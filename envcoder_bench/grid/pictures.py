"""Pictures of a grid."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.files import write_atomic
from envcoder_bench.grid.tables import pairs_of, summarize
from envcoder_bench.report.figures import COLOURS, DARK, DPI, GREY, LIGHT
from envcoder_bench.terrain.arenas import Arena

PICTURES = {
    "completion.png": "Completion rates",
    "progress.png": "Progress",
    "falls.png": "Where robots fell",
    "stability.png": "Stability by zone",
}


def draw_pictures(rows: Sequence[dict[str, Any]], arenas: Sequence[Arena], folder: Path) -> list[Path]:
    """Draw all PICTURES; return their files."""
    from matplotlib.figure import Figure

    draw = {"completion.png": _completion, "progress.png": _progress, "falls.png": _falls, "stability.png": _stability}
    paths = []
    for name in PICTURES:
        figure = draw[name](Figure, rows, arenas)
        content = io.BytesIO()
        figure.savefig(content, dpi=DPI, format="png")
        write_atomic(folder / name, content.getvalue())
        paths.append(folder / name)
    return paths


def _policies(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the colour of each policy."""
    names = list(dict.fromkeys(row["policy"] for row in rows))
    return {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}


def _grouped(count: int) -> np.ndarray:
    """Return offsets of ``count`` bars in a group."""
    width = min(0.8 / count, 0.3)
    return (np.arange(count) - 0.5 * (count - 1)) * width


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=LIGHT, linewidth=0.5)
    axes.set_axisbelow(True)


def _columns(colours: dict[str, str], width: float) -> int:
    """Return the columns of a legend that fit into ``width`` inches."""
    longest = max(map(len, colours), default=0)
    return max(1, min(4, len(colours), int(width / (0.09 * longest + 0.6))))


def _by_arena(figure_class: Any, colours: dict[str, str], arenas: int) -> Any:
    """Return a figure with a group of bars for each arena, with room for the legend above."""
    width = max(7.0, 1.6 * arenas + 1.5)
    lines = -(-len(colours) // _columns(colours, width - 1.0))
    return figure_class(figsize=(width, 3.4 + 0.22 * lines), layout="constrained")


def _legend(axes: Any, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    columns = _columns(colours, axes.figure.get_size_inches()[0] - 1.0)
    axes.legend(handles=handles, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=columns)


def _completion(figure_class: Any, rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours, names = _policies(rows), [arena.name for arena in arenas]
    figure = _by_arena(figure_class, colours, len(names))
    axes = figure.subplots()
    offsets = _grouped(len(colours))
    table = {(row["policy"], row["environment"]): row for row in summarize(rows)}
    width = 0.9 * min(0.8 / len(colours), 0.3)
    for offset, (policy, colour) in zip(offsets, colours.items()):
        for k, name in enumerate(names):
            row = table.get((policy, name))
            if row is None:
                continue
            rate, low, high = (100.0 * row[f"completion_rate{end}"] for end in ("", "_low", "_high"))
            axes.bar(k + offset, rate, width, color=colour, edgecolor=colour, linewidth=2, clip_on=False)  # a line at 0
            axes.errorbar(
                k + offset, rate, [[max(0.0, rate - low)], [max(0.0, high - rate)]], color=DARK, capsize=3, linewidth=1
            )
            axes.text(k + offset, high + 1.5, f"{rate:.0f}", ha="center", va="bottom", fontsize=8, color=DARK)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("episodes completed [%]")
    axes.set_xlabel("bars: 95 % intervals by Wilson", fontsize=8, color=GREY)
    _plain(axes)
    _legend(axes, colours)
    return figure


def _progress(figure_class: Any, rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours, names, pairs = _policies(rows), [arena.name for arena in arenas], pairs_of(rows)
    figure = _by_arena(figure_class, colours, len(names))
    axes = figure.subplots()
    width = 0.85 * min(0.8 / len(colours), 0.3)
    for offset, (policy, colour) in zip(_grouped(len(colours)), colours.items()):
        for k, name in enumerate(names):
            values = [row["progress"] for row in pairs.get((policy, name), [])]
            if not values:
                continue
            axes.boxplot(
                [values], positions=[k + offset], widths=width, patch_artist=True, manage_ticks=False,
                # the edge shows the colour of a box without height
                boxprops={"facecolor": colour, "alpha": 0.55, "edgecolor": colour, "linewidth": 3},
                medianprops={"color": DARK, "linewidth": 1},
                whiskerprops={"color": colour}, capprops={"color": colour},
                flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
            )  # fmt: skip
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("progress: greatest x [m]")
    axes.set_xlabel("boxes: quartiles; whiskers: 1.5 times their distance at most", fontsize=8, color=GREY)
    _plain(axes)
    _legend(axes, colours)
    return figure


def _falls(figure_class: Any, rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours = _policies(rows)
    figure = figure_class(figsize=(9.0, 2.3 * len(arenas) + 0.6), layout="constrained")
    grid = figure.subplots(len(arenas), 1, squeeze=False)[:, 0]
    for axes, arena in zip(grid, arenas):
        for k in range(0, len(arena.zones), 2):
            axes.axvspan(arena.starts[k], arena.starts[k + 1], color=LIGHT, alpha=0.25, linewidth=0)
        axes.axhline(0.5 * arena.width, color=LIGHT, linewidth=0.8)
        counts = []
        for policy, colour in colours.items():
            own = [row for row in rows if row["policy"] == policy and row["environment"] == arena.name]
            for key, marker in (("fall_detected", "o"), ("flip_detected", "x")):
                places = np.array([row["fall_location"] for row in own if row[key]], dtype=float).reshape(-1, 2)
                style: dict[str, Any] = {"color": colour, "alpha": 0.6, "s": 14, "marker": marker, "linewidth": 1}
                axes.scatter(places[:, 0], places[:, 1], **style)
            down = sum(row["fall_detected"] or row["flip_detected"] for row in own)
            counts.append(f"{policy} {down} of {len(own)}")
        axes.set_xlim(-1.0, arena.length + 1.0)
        axes.set_ylim(0, arena.width)
        title = textwrap.fill(f"{arena.name}: {', '.join(counts)}", 125)  # what fits into the figure's width
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_ylabel("y [m]")
        axes.spines[["top", "right"]].set_visible(False)
    grid[-1].set_xlabel("x [m]; circles: falls, crosses: flips; zones are shaded in turn")
    _legend_above(figure, colours)
    return figure


def _legend_above(figure: Any, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    columns = _columns(colours, figure.get_size_inches()[0])
    figure.legend(handles=handles, frameon=False, loc="outside upper right", ncol=columns)


def _stability(figure_class: Any, rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours, pairs = _policies(rows), pairs_of(rows)
    columns = min(2, len(arenas))
    lines = -(-len(arenas) // columns)
    figure = figure_class(figsize=(4.6 * columns, 2.6 * lines + 0.5), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in grid[len(arenas) :]:
        axes.set_visible(False)
    for axes, arena in zip(grid, arenas):
        for policy, colour in colours.items():
            own = pairs.get((policy, arena.name), [])
            zones, means, spreads = [], [], []
            for k in range(len(arena.zones)):
                values = [row["zone_stability"][k] for row in own if row["zone_stability"][k] is not None]
                if values:
                    zones.append(k + 1)
                    means.append(float(np.mean(values)))
                    spreads.append(float(np.std(values)) / len(values) ** 0.5)
            axes.errorbar(zones, means, spreads, color=colour, marker="o", markersize=4, capsize=3, linewidth=1.2)
        axes.set_title(arena.name, fontsize=9, loc="left")
        axes.set_xticks(range(1, len(arena.zones) + 1))
        axes.set_xlim(0.7, len(arena.zones) + 0.3)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("stability score")
        _plain(axes)
    for axes in grid[max(0, len(arenas) - columns) : len(arenas)]:
        axes.set_xlabel("zone; smaller is steadier; bars: standard errors")
    _legend_above(figure, colours)
    return figure
