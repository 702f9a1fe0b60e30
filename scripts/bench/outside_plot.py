"""The plot of docs/isaacgym.md: how the baselines of Isaac Gym tasks learn, beside those of the native tasks."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any, Sequence

from envcoder_bench.report.figures import GREY, new_figure, save_figure
from envcoder_bench.tasks.base import HUMAN

from .plots import GRID, PROCESSES, TOOL, draw, seeds_text
from .records import Record
from .task_tables import PUBLISHED, Points, counterpart, curves, is_outside, mean_fitness, measured

COLUMNS = 3


def plot_outside(records: Sequence[Record], images: Path) -> list[Path]:
    """Draw the curves of tasks outside this repository, a panel for each task and setting; returns the files."""
    native = curves([r for r in records if not is_outside(r)])
    panels = _by_title(curves([r for r in records if is_outside(r)]))
    if not panels:
        return []
    rows = -(-len(panels) // COLUMNS)
    height = 0.9 + 3.1 * rows
    about = "human baselines: mean of the seeds and 95 % interval; dashed line: published for Isaac Gym"
    figure, all_axes, top = new_figure(12.0, height, "Isaac Gym tasks on MuJoCo", about, rows, COLUMNS)
    for axes, title in zip(all_axes, panels):
        axes.set_title(title, loc="left", fontsize=9, color=GREY)
        _draw_panel(axes, panels[title], native)
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    for axes in all_axes[max(0, len(panels) - COLUMNS) : len(panels)]:
        axes.set_xlabel("env-steps of each policy, millions")
    for axes in all_axes[::COLUMNS]:
        axes.set_ylabel("fitness")
    spaces: dict[str, Any] = {"bottom": 0.55 / height, "top": top - 0.2 / height, "wspace": 0.16, "hspace": 0.35}
    figure.subplots_adjust(left=0.07, right=0.98, **spaces)
    return [save_figure(figure, images / "isaacgym_training.png")]


def _by_title(runs: Sequence[Points]) -> dict[str, list[Points]]:
    """Return the newest run of each number of seeds, of all machines, by the titles of panels in their order."""
    newest: dict[tuple[str, str], Points] = {}
    for points in sorted(runs, key=lambda points: points[0]["run"]):
        newest[_title(points[0]), seeds_text(points[0])] = points
    titles = sorted({title for title, _ in newest})
    return {title: [points for (own, _), points in newest.items() if own == title] for title in titles}


def _title(record: Record) -> str:
    """Return the task, the candidate unless it is the human baseline, and the changed settings of the task."""
    changed = [word.split(".")[-1] for word in record.get("overrides", ()) if word.startswith("task.")]
    own = [record["candidate"]] if record["candidate"] != HUMAN else []
    return ", ".join([record["task"], *own, *changed])


def _draw_panel(axes: Any, runs: Sequence[Points], native: Sequence[Points]) -> None:
    longest = max(runs, key=lambda points: points[-1]["env_steps"])
    shown = [*runs]
    for points, line in zip(runs, cycle(("-", "--", ":"))):
        draw(axes, points, "env_steps", 1e6, {"color": TOOL, "linestyle": line, "label": seeds_text(points[0])})
    beside = counterpart(longest, native)
    if beside is not None:
        limit = 1.05 * longest[-1]["env_steps"]
        shown.append([p for p in beside if p["env_steps"] <= limit] or beside[:1])
        draw(axes, shown[-1], "env_steps", 1e6, {"color": PROCESSES, "label": f"native, {seeds_text(beside[0])}"})
    means = [mean_fitness(p) for points in shown for p in points if measured(p["fitness"])]
    published = PUBLISHED.get(longest[0]["task"])
    if published is not None:
        axes.axhline(published, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        means.append(published)
    least, most = min(*means, 0.0), max(*means, 0.0)
    spread = (max(means) - least) or 1.0
    axes.set(ylim=(least - 0.05 * spread, most + 0.3 * spread))
    axes.set_xlim(left=0)
    axes.grid(**GRID)
    axes.legend(fontsize=8, edgecolor="none", framealpha=0.8, loc="upper left")
