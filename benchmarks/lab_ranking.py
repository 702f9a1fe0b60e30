"""Keep the ranking of Unitree-Go2-Velocity without each reward term as a record, and draw its curves by seed.

    python benchmarks/lab_ranking.py RUN KEY=VALUE ...

``RUN`` is the folder of a complete run whose candidates are called ``without_TERM``. The values say how it was made, as
``machine=``, ``date=`` and ``command=``. ``measurements/lab_ranking.json`` has the fitness of each evaluation, by
candidate and seed, and ``images/unitree_go2_terms.png`` draws it.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from envcoder_bench.report.figures import BLACK, COLOURS, LIGHT, new_figure, save_figure

HERE = Path(__file__).parent
RECORD, PICTURE = HERE / "measurements" / "lab_ranking.json", HERE / "images" / "unitree_go2_terms.png"
OTHERS = ("human", "unshaped")
COLOURED = 3  # candidates that are drawn in colours: those with the lowest fitness


def main() -> None:
    folder, facts = Path(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:])
    record: dict[str, Any] = {**facts, "candidates": {}}
    points = list(csv.DictReader((folder / "points.csv").open()))
    for point in points:
        seeds = record["candidates"].setdefault(point["candidate"], {})
        values = seeds.setdefault(point["seed"], {})
        values[point["env_steps"]] = round(float(point["fitness"]), 4)
    RECORD.write_text(json.dumps(record) + "\n")
    draw(record)
    print(*map(row, ranked(record)), sep="\n")


def ranked(record: dict[str, Any]) -> list[tuple[str, list[float], list[float]]]:
    """Return the candidates with the fitness of their seeds in the evaluation before the last and in the last."""
    rows = []
    for name, seeds in record["candidates"].items():
        by_seed = [list(points.values()) for points in seeds.values()]
        rows.append((name, [values[-2] for values in by_seed], [values[-1] for values in by_seed]))
    return sorted(rows, key=lambda row: -mean(row[2]))


def row(ranked: tuple[str, list[float], list[float]]) -> str:
    """Return a candidate's row of the table on the page."""
    name, before, last = ranked
    cells = [f"{mean(last):.2f}", *(f"{value:.2f}" for value in last), *(f"{value:.2f}" for value in before)]
    return f"| {name.removeprefix('without_')} | " + " | ".join(cells) + " |"


def draw(record: dict[str, Any]) -> None:
    """Draw the fitness of the candidates over env-steps."""
    lowest = [name for name, _, _ in ranked(record) if name not in OTHERS][-COLOURED:]
    colours = {"human": BLACK, **dict(zip(lowest, COLOURS))}
    seeds = list(record["candidates"]["human"])
    title = "unitree_rl_lab's Unitree-Go2-Velocity without each reward term"
    about = f"{record['machine']}; fitness: tracking of commands up to 1 m/s; the last points are of full episodes"
    figure, panels, top = new_figure(13.0, 4.8, title, about, columns=len(seeds))
    for axes, seed in zip(panels, seeds):
        for name, curves in record["candidates"].items():
            if name != "unshaped":
                look: Any = {"color": colours.get(name, LIGHT), "linewidth": 2.0 if name in colours else 1.0}
                label = name.replace("_", " ", 1) if name in colours else "_"
                xs = [int(steps) / 1e6 for steps in curves[seed]]
                axes.plot(xs, list(curves[seed].values()), label=label, zorder=2 + (name in colours), **look)
        axes.set_title(f"seed {seed}", loc="left", fontsize=10)
        axes.set(ylim=(0.0, 1.0), xlabel="env-steps of each policy, millions")
    panels[0].set_ylabel("fitness")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=9, edgecolor="none", loc="lower center", ncols=len(labels))
    figure.subplots_adjust(left=0.05, right=0.98, bottom=0.21, top=top - 0.04, wspace=0.12)
    save_figure(figure, PICTURE)


if __name__ == "__main__":
    main()
