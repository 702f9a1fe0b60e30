"""Pictures of a grid."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.grid.tables import pairs_of, summarize
from envcoder_bench.report.figures import COLOURS, DARK, GREY, LIGHT, save_figure
from envcoder_bench.results.statistics import mean_interval
from envcoder_bench.terrain.arenas import Arena

PICTURES = {
    "completion.png": "Completion rates",
    "progress.png": "Progress",
    "falls.png": "Where robots fell",
    "stability.png": "Stability by zone",
}


def draw_pictures(rows: Sequence[dict[str, Any]], arenas: Sequence[Arena], folder: Path) -> list[Path]:
    """Draw all PICTURES; return their files."""
    draw = {"completion.png": _completion, "progress.png": _progress, "falls.png": _falls, "stability.png": _stability}
    return [save_figure(draw[name](rows, arenas), folder / name) for name in PICTURES]


def _new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _policies(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the colour of each policy."""
    names = list(dict.fromkeys(row["policy"] for row in rows))
    return {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=LIGHT, linewidth=0.5)
    axes.set_axisbelow(True)


def _columns(colours: dict[str, str], width: float) -> int:
    """Return the columns of a legend that fit into ``width`` inches."""
    longest = max(map(len, colours), default=0)
    return max(1, min(4, len(colours), int(width / (0.09 * longest + 0.6))))


def _legend(owner: Any, colours: dict[str, str], width: float, **where: Any) -> None:
    """Add a legend above axes, or to a figure."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    owner.legend(handles=handles, frameon=False, ncol=_columns(colours, width), **where)


def _bar_figure(colours: dict[str, str], arenas: Sequence[Arena], note: str) -> tuple[Any, Any]:
    """Return a figure and its axes, with a group of bars for each arena and room for the legend above."""
    width = max(7.0, 1.6 * len(arenas) + 1.5)
    lines = -(-len(colours) // _columns(colours, width - 1.0))
    figure = _new_figure(width, 3.4 + 0.22 * lines)
    axes = figure.subplots()
    axes.set_xticks(range(len(arenas)), [arena.name for arena in arenas])
    axes.set_xlabel(note, fontsize=8, color=GREY)
    _plain(axes)
    _legend(axes, colours, width - 1.0, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return figure, axes


def _bars(colours: dict[str, str], arenas: Sequence[Arena]) -> Iterator[tuple[tuple[str, str], str, float, float]]:
    """Yield policy and arena, colour, position and width of each bar of ``_bar_figure``."""
    width = min(0.8 / len(colours), 0.3)
    for column, (policy, colour) in enumerate(colours.items()):
        for k, arena in enumerate(arenas):
            yield (policy, arena.name), colour, k + (column - 0.5 * (len(colours) - 1)) * width, width


def _completion(rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours = _policies(rows)
    figure, axes = _bar_figure(colours, arenas, "bars: 95 % intervals by Wilson")
    summary = {(row["policy"], row["environment"]): row for row in summarize(rows)}
    for pair, colour, x, width in _bars(colours, arenas):
        if pair not in summary:
            continue
        rate, low, high = (100.0 * summary[pair][f"completion_rate{end}"] for end in ("", "_low", "_high"))
        axes.bar(x, rate, 0.9 * width, color=colour, edgecolor=colour, linewidth=2, clip_on=False)  # a line at 0
        ends = [[max(0.0, rate - low)], [max(0.0, high - rate)]]
        axes.errorbar(x, rate, ends, color=DARK, capsize=3, linewidth=1)
        axes.text(x, high + 1.5, f"{rate:.0f}", ha="center", va="bottom", fontsize=8, color=DARK)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("episodes completed [%]")
    return figure


def _progress(rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours, pairs = _policies(rows), pairs_of(rows)
    note = "boxes: quartiles; whiskers: 1.5 times their distance at most"
    figure, axes = _bar_figure(colours, arenas, note)
    for pair, colour, x, width in _bars(colours, arenas):
        values = [row["progress"] for row in pairs.get(pair, [])]
        if not values:
            continue
        axes.boxplot(
            [values], positions=[x], widths=0.85 * width, patch_artist=True, manage_ticks=False,
            # a box without height shows only the colour of its edge
            boxprops={"facecolor": colour, "alpha": 0.55, "edgecolor": colour, "linewidth": 3},
            medianprops={"color": DARK, "linewidth": 1},
            whiskerprops={"color": colour}, capprops={"color": colour},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_ylabel("progress: greatest x [m]")
    return figure


def _falls(rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours, pairs = _policies(rows), pairs_of(rows)
    figure = _new_figure(9.0, 2.3 * len(arenas) + 0.6)
    grid = figure.subplots(len(arenas), 1, squeeze=False)[:, 0]
    for axes, arena in zip(grid, arenas):
        # zones in turn, and the middle of the arena
        for k in range(0, len(arena.zones), 2):
            axes.axvspan(arena.starts[k], arena.starts[k + 1], color=LIGHT, alpha=0.25, linewidth=0)
        axes.axhline(0.5 * arena.width, color=LIGHT, linewidth=0.8)
        counts = []
        # where each policy's robots ended
        for policy, colour in colours.items():
            episodes = pairs.get((policy, arena.name), [])
            for key, marker in (("fall_detected", "o"), ("flip_detected", "x")):
                places = np.array([row["fall_location"] for row in episodes if row[key]], dtype=float).reshape(-1, 2)
                style: dict[str, Any] = {"color": colour, "alpha": 0.6, "s": 14, "marker": marker, "linewidth": 1}
                axes.scatter(places[:, 0], places[:, 1], **style)
            down = sum(row["fall_detected"] or row["flip_detected"] for row in episodes)
            counts.append(f"{policy} {down} of {len(episodes)}")
        axes.set_xlim(-1.0, arena.length + 1.0)
        axes.set_ylim(0, arena.width)
        title = textwrap.fill(f"{arena.name}: {', '.join(counts)}", 125)  # the figure has room for 125 characters
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_ylabel("y [m]")
        axes.spines[["top", "right"]].set_visible(False)
    grid[-1].set_xlabel("x [m]; circles: falls, crosses: flips; zones are shaded in turn")
    _legend(figure, colours, figure.get_size_inches()[0], loc="outside upper right")
    return figure


def _stability(rows: Sequence[dict[str, Any]], arenas: Sequence[Arena]) -> Any:
    colours, pairs = _policies(rows), pairs_of(rows)
    columns = min(2, len(arenas))
    lines = -(-len(arenas) // columns)
    figure = _new_figure(4.6 * columns, 2.6 * lines + 0.5)
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    # the last row may have unused axes
    for axes in grid[len(arenas) :]:
        axes.set_visible(False)
    for axes, arena in zip(grid, arenas):
        for policy, colour in colours.items():
            episodes = pairs.get((policy, arena.name), [])
            # mean and interval over the episodes that reached the zone
            by_zone = zip(*(row["zone_stability"] for row in episodes))
            intervals = [mean_interval([x for x in values if x is not None]) for values in by_zone]
            points = [(k, *interval) for k, interval in enumerate(intervals, 1) if not np.isnan(interval[0])]
            zones, means, lows, highs = np.array(points, dtype=float).reshape(-1, 4).T
            axes.errorbar(
                zones,
                means,
                (means - lows, highs - means),
                color=colour,
                marker="o",
                markersize=4,
                capsize=3,
                linewidth=1.2,
            )
        axes.set_title(arena.name, fontsize=9, loc="left")
        axes.set_xticks(range(1, len(arena.zones) + 1))
        axes.set_xlim(0.7, len(arena.zones) + 0.3)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("stability score")
        _plain(axes)
    for axes in grid[max(0, len(arenas) - columns) : len(arenas)]:
        axes.set_xlabel("zone; smaller is steadier; bars: 95 % intervals")
    _legend(figure, colours, figure.get_size_inches()[0], loc="outside upper right")
    return figure
