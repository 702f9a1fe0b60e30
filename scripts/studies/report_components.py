"""The report on components of shaping: a table and a picture."""

from __future__ import annotations

import math
from pathlib import Path

from bench.records import Record
from bench.task_tables import bounds

from envcoder_bench.report.figures import GREY, new_figure, save_figure
from envcoder_bench.report.statistics import mean_interval
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

from . import analysis
from .analysis import known
from .components import COMPONENTS, NOTHING, TASKS, variants
from .report_words import origins, shown, steps, table

HEAT_MAP = "study_components.png"


def components(records: list[Record]) -> list[str]:
    tasks = longest_components(records)
    if not tasks:
        return []
    rows = []
    for task, points in tasks.items():
        last = points[-1]
        shares = analysis.ratios(last)
        for name in [HUMAN, *(f"no_{x}" for x in COMPONENTS), NOTHING, UNSHAPED]:
            if name in last["fitness"]:
                own = mean_interval(known(last["fitness"][name]), bounds(task))
                rows.append([task, _title(name), shown(own), shown(shares[name]) if name in shares else "failed"])
            elif name in last.get("failed", {}):
                rows.append([task, _title(name), "failed", ""])
    size = {task: own[-1] for task, own in tasks.items()}
    sizes = "; ".join(
        f"{task}: {r['seeds']} seeds x {r['envs']:,} environments, {steps(r['env_steps'])} env-steps each"
        for task, r in size.items()
    )
    head = ["task", "shaping", "fitness [95 % interval]", "share of the complete [95 % interval]"]
    picture = ["", f"![what each component of shaping is worth](images/{HEAT_MAP})"]
    return [*origins(list(tasks.values())), f"{sizes}.", "", *table(head, rows), *picture]


def longest_components(records: list[Record]) -> dict[str, list[Record]]:
    """Return the longest training of each task, the study's tasks first."""
    found = analysis.longest(analysis.trainings(records, "components"))
    return {task: found[task] for task in sorted(found, key=lambda task: ([*TASKS, task].index(task), task))}


def _title(name: str) -> str:
    if name.startswith("no_"):
        return f"without its {name[3:].replace('_', ' ')}"
    return {HUMAN: "complete (human)", NOTHING: "nothing, raw torques", UNSHAPED: "`unshaped.py`"}.get(name, name)


def plot_components(tasks: dict[str, list[Record]], path: Path) -> Path:
    """Draw tasks by components: the fitness without a component as a share of the complete shaping's."""
    columns = [*(f"no_{name}" for name in COMPONENTS), NOTHING]
    shares = {task: analysis.ratios(points[-1]) for task, points in tasks.items()}
    same = {task: [name for name, text in variants(task).items() if text is None] for task in tasks}
    cells = [[own[name][0] if name in own else math.nan for name in columns] for own in shares.values()]
    about = "fitness as a share of the complete human shaping's; mean of the seeds; =: the task's own is the same"
    figure, (axes,), top = new_figure(10.0, 1.7 + 0.55 * len(tasks), "What each component of shaping is worth", about)
    axes.imshow(cells, cmap="RdBu", vmin=0.0, vmax=2.0, aspect="auto")
    for y, task in enumerate(tasks):
        for x, name in enumerate(columns):
            value = cells[y][x]
            lost = "" if name in shares[task] else "failed"  # empty where the complete shaping's fitness is 0
            text = "=" if name in same[task] else lost if math.isnan(value) else f"{value:.2f}"
            color = "white" if not math.isnan(value) and not 0.3 < value < 1.7 else "black"
            axes.text(x, y, text, ha="center", va="center", fontsize=11, color=GREY if text == "=" else color)
    names = [name.replace("no_", "without\n", 1).replace("_", " ") for name in columns]
    axes.set_xticks(range(len(columns)), names)
    axes.set_yticks(range(len(tasks)), list(tasks))
    axes.tick_params(length=0)
    figure.subplots_adjust(left=0.15, right=0.98, bottom=0.55 / figure.get_figheight(), top=top)
    return save_figure(figure, path)
