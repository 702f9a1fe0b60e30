"""Tables and pictures of terrain.py's records: how policies climb in training, and which tiles they cross."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

from envcoder_bench.report.figures import COLOURS, GREY, new_figure, save_figure

from .records import Record, latest
from .task_tables import is_outside

Column = Any  # a heading, and a function from a record to a text
LEVELS = 10  # columns of the table: the levels of the default grid


def crossings_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row for each policy and type of terrain."""
    found = latest([r for r in records if r["kind"] == "crossings"], "crossings", "task", "candidate", "sim")
    return [{**r, "type": kind, "tile": tile} for r in found for kind, tile in r["tiles"].items()]


def _share(row: Record, level: int) -> str:
    shares = row["tile"]["crossed"]
    return "" if level >= len(shares) or shares[level] is None else f"{100 * shares[level]:.0f}"


def _fell(row: Record) -> str:
    robots, fell = row["tile"]["robots"], row["tile"]["fell"]
    return f"{100 * sum(n * share for n, share in zip(robots, fell) if n) / max(sum(robots), 1):.0f}"


COLUMNS: dict[str, list[Column]] = {
    "crossings": [
        ("task, policy", lambda r: f"{r['task']}, {r['candidate']}"),
        ("terrain", lambda r: r["type"]),
        ("robots", lambda r: f"{sum(r['tile']['robots'])}"),
        *((f"level {k}" if k == 0 else f"{k}", lambda r, k=k: _share(r, k)) for k in range(LEVELS)),
        ("fell, %", _fell),
    ]
}
ROWS = {"crossings": crossings_rows}


def file_name(task: str) -> str:
    """Return the name of a task's picture."""
    return f"terrain_{task}.png"


def climbs(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return for each task the points of the latest training that recorded levels, in order."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record["kind"] == "learning" and "levels" in record and not is_outside(record):
            own = found.setdefault(record["task"], [])
            if own and own[-1]["run"] < record["run"]:
                own.clear()
            if not own or own[-1]["run"] == record["run"]:
                own.append(record)
    return {task: sorted(own, key=lambda r: r["point"]) for task, own in found.items()}


def crossings_beside(records: Sequence[Record], point: Record) -> list[Record]:
    """Return the rows of a training's policy, measured on the device of the training, where simulators differ."""
    keys = ("task", "candidate", "device")
    return [row for row in crossings_rows(records) if all(row[key] == point[key] for key in keys)]


def plot_terrain(records: Sequence[Record], images: Path) -> list[Path]:
    """Draw a picture for each task: levels over env-steps, and the share of robots that cross each level."""
    drawn = []
    for task, points in climbs(records).items():
        crossed = crossings_beside(records, points[0])
        about = (
            f"{points[0]['label']}, {points[0]['envs']:,} environments of each policy, {points[0]['candidate']};"
            " crossing: the latest policy at each level"
        )
        figure, panels, top = new_figure(12.0, 4.6, f"{task}: climbing", about, columns=2 if crossed else 1)
        kinds = list(points[0]["levels"])
        for colour, kind in zip(COLOURS, kinds):
            steps = [p["env_steps"] / 1e6 for p in points]
            means = [sum(own) / len(own) for own in (p["levels"][kind] for p in points)]
            panels[0].plot(steps, means, "-o", color=colour, markersize=4, label=kind)
        panels[0].set(xlabel="env-steps of each policy, millions", ylabel="mean level in training", ylim=(0, None))
        panels[0].legend(fontsize=9, edgecolor="none")
        if crossed:
            for row in crossed:
                colour = COLOURS[kinds.index(row["type"]) % len(COLOURS)]
                shares = row["tile"]["crossed"]
                at = [k for k, share in enumerate(shares) if share is not None]
                panels[1].plot(at, [100 * shares[k] for k in at], "-o", color=colour, markersize=4)
            panels[1].set(xlabel="level", ylabel="robots that cross, %", ylim=(-3, 103))
        for axes in panels:
            axes.grid(color="#E4E4E4", linewidth=0.8)
            axes.tick_params(colors=GREY)
        figure.subplots_adjust(left=0.07, right=0.98, bottom=0.13, top=top - 0.03, wspace=0.2)
        drawn.append(save_figure(figure, images / file_name(task)))
    return drawn
