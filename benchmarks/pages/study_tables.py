"""Tables of the studies: what each component of shaping is worth, and cheap rankings."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.records import Record
from bench.tables import markdown
from studies import analysis
from studies.analysis import ENOUGH, TOPS, Agreement, known
from studies.components import COMPONENTS, NOTHING, TASKS, variants

from envcoder_bench.report.figures import GREY, new_figure, save_figure
from envcoder_bench.results.statistics import Interval, mean_interval
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

from .learning_tables import bounds

HEAT_MAP = "study_components.png"
WORTH = (1, 5)  # the table of ranks has the true fitness of the best among so many first candidates
AGREES = 0.8  # Spearman's correlation with a longer training
LEAST_STEPS = 1e6  # env-steps that a candidate needs for a setting of one seed to be in the table of ranks


def components(records: list[Record]) -> list[str]:
    tasks = longest_components(records)
    names = [HUMAN, *(f"no_{x}" for x in COMPONENTS), NOTHING, UNSHAPED]
    rows = []
    for task, points in tasks.items():
        last = points[-1]
        cells = [last["fitness"].get(name) for name in names]
        shares = ["" if cell is None else shown(mean_interval(known(cell), bounds(task))) or "failed" for cell in cells]
        rows.append([f"{task}, {last['seeds']} x {last['envs']:,}, {steps(last['env_steps'])}", *shares])
    head = ["task, seeds x environments, env-steps", *map(_title, names)]
    picture = ["", f"![what each component of shaping is worth](images/{HEAT_MAP})"]
    return [*origins(list(tasks.values())), *markdown(head, rows), *picture] if rows else []


def longest_components(records: list[Record]) -> dict[str, list[Record]]:
    """Return the longest training of each task, the study's tasks first."""
    by_task = analysis.longest(analysis.trainings(records, "components"))
    return {task: by_task[task] for task in sorted(by_task, key=lambda task: ([*TASKS, task].index(task), task))}


def _title(name: str) -> str:
    if name.startswith("no_"):
        return f"without its {name[3:].replace('_', ' ')}"
    return {HUMAN: "complete", NOTHING: "nothing", UNSHAPED: "`unshaped.py`"}[name]


def plot_components(tasks: dict[str, list[Record]], path: Path) -> Path:
    """Draw tasks by components: the fitness without a component as a share of the complete shaping's."""
    columns = [*(f"no_{name}" for name in COMPONENTS), NOTHING]
    shares = {task: analysis.shares(points[-1]) for task, points in tasks.items()}
    same = {task: [name for name, text in variants(task).items() if text is None] for task in tasks}
    cells = [[task_shares.get(name, math.nan) for name in columns] for task_shares in shares.values()]
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


def ranks(records: list[Record]) -> list[str]:
    runs = analysis.trainings(records, "ranks")
    lines: list[str] = []
    for task in dict.fromkeys(points[-1]["task"] for points in runs):
        task_runs = [x for x in runs if x[-1]["task"] == task]
        references = [x for x in task_runs if x[-1]["role"] == "reference"]
        cheap = [x for x in task_runs if x[-1]["role"] == "cheap"]
        if not references or not cheap:
            continue
        points = max(references, key=lambda x: x[-1]["candidates"] * x[-1]["seeds"] * x[-1]["env_steps"])
        cheap = [x for x in cheap if x[-1]["candidates"] == points[-1]["candidates"]]
        if cheap:
            settings = agreements([*cheap, points], points[-1])
            lines += [*origins([*cheap, [points[-1]]]), *_task_ranks(task, settings, points[-1]), ""]
    return lines[:-1]


def agreements(cheap: Sequence[list[Record]], reference: Record) -> list[Agreement]:
    """Return the agreement of all evaluations of each training by number of seeds; of the reference only for one."""
    found = [
        analysis.agreement(point, reference, seeds)
        for points in cheap
        for point in points
        for seeds in ([1] if point["role"] == "reference" else range(1, point["seeds"] + 1))
        if point["role"] != "reference" or point["seeds"] > 1
    ]
    return sorted(found, key=lambda own: own.env_steps)


def _task_ranks(task: str, found: Sequence[Agreement], reference: Record) -> list[str]:
    size = f"{reference['seeds']} seeds x {reference['envs']:,} environments x {reference['iteration']} iterations"
    agree = analysis.reliability(reference)
    among = "" if math.isnan(agree) else f"; two of its seeds agree by {agree:.2f}"
    text = f"{task}, {found[0].candidates} candidates; the reference: {size}, seeds of its own{among}."
    true = max(analysis.means(reference, range(reference["seeds"])).values())
    text += f" Its best has fitness {true:.2f}."
    best = analysis.cheapest(found)
    if best is None:
        top = max(found, key=lambda own: own.spearman)
        verdict = f"No setting reaches {ENOUGH}; the highest is {top.spearman:.2f}: {_setting(top)}."
    else:
        verdict = f"The cheapest with {ENOUGH} is {_setting(best)}: {best.spearman:.2f}."
    large = [row for row in found if row.env_steps >= LEAST_STEPS and row.seeds == 1] or found
    rows = [
        [
            f"{row.envs:,}", f"{row.iteration:,}", f"{row.seeds}", steps(row.env_steps), f"{row.spearman:.2f}",
            ", ".join(f"{row.tops[top]:.0%}" for top in TOPS), ", ".join(f"{row.worth[top]:.2f}" for top in WORTH),
        ]
        for row in large
    ]  # fmt: skip
    head = ["environments", "iterations", "seeds", "env-steps of each candidate", "Spearman",
            f"true best in the first {', '.join(map(str, TOPS))}",
            f"reference fitness of the first, of the best of the first {WORTH[-1]}"]  # fmt: skip
    return [text, verdict, "", *markdown(head, rows)]


def quarters(records: list[Record]) -> list[str]:
    runs = analysis.trainings(records, "quarters")
    judged = [(points, length) for points in runs for length in analysis.judged_lengths(points)]
    rows = [
        [
            f"{points[-1]['task']}, {points[-1]['candidates']} candidates",
            f"{points[-1]['seeds']} x {points[-1]['envs']}", f"{length.iteration}", f"{length.agreement:.2f}",
            f"{length.truth:.2f}",
        ]
        for points, length in judged
    ]  # fmt: skip
    if not rows:
        return []
    head = ["task", "seeds x environments", "iterations", "Spearman over the last quarter", "with the longest"]
    counts = []
    for words, enough in (("Below", False), ("From", True)):
        group = [x for _, x in judged if (x.agreement >= ENOUGH) == enough]
        low = sum(x.truth < AGREES for x in group)
        counts.append(f"{words} {ENOUGH}, {low} of {len(group)} lengths agree with the longest by under {AGREES}.")
    return [*origins(runs), " ".join(counts), "", *markdown(head, rows)]


def bank(records: list[Record]) -> list[str]:
    newest = {(r["task"], r["role"]): r for r in records if r["kind"] == "bank" and r["complete"]}
    rows, used = [], []
    for task in dict.fromkeys(task for task, _ in newest):
        if (task, "bank") not in newest or (task, "fresh") not in newest:
            continue
        first, fresh = newest[task, "bank"], newest[task, "fresh"]
        found = analysis.calibration(first, fresh)
        used += [[first], [fresh]]
        rows.append(
            [
                f"{task}, {first['candidates']} x {first['envs']} x {first['iterations']}",
                f"{found.agreement:.2f}",
                *(f"{found.fitness[name]:.2f}" for name in (UNSHAPED, HUMAN)),
                f"{found.fitness[found.best]:.2f} ({found.best})",
                f"{found.above_human:.1f}", f"{found.above_unshaped:.1f}",
                f"{(fresh['candidates'] + 2) * fresh['seeds']} policies in {fresh['wall_time']:.0f} s",
            ]
        )  # fmt: skip
    if not rows:
        return []
    head = ["task, candidates x environments x iterations", "two seeds agree", "unshaped", "human", "best of the bank",
            "above human, deviations", "above unshaped, deviations", "run with fresh seeds"]  # fmt: skip
    return [*origins(used), *markdown(head, rows)]


def _setting(own: Agreement) -> str:
    return f"{own.seeds} seed{'s' * (own.seeds > 1)} x {own.envs:,} environments x {own.iteration:,} iterations"


def shown(interval: Interval) -> str:
    """Return ``mean [low, high]``."""
    middle, low, high = interval
    if math.isnan(middle):
        return ""
    return f"{middle:.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")


def steps(count: float) -> str:
    """Return env-steps as ``30.1 M`` or ``51.2 k``."""
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count / 1e3:.1f} k"


def origins(runs: Sequence[list[Record]]) -> list[str]:
    """Return the ids of trainings' last records, machine, date and commands, and what is not complete."""
    ids = [points[-1]["id"] for points in runs if "id" in points[-1]]
    lines = [f"<!-- records: {' '.join(ids)} -->", ""] if ids else []
    for machine in dict.fromkeys(points[-1].get("machine", "unknown machine") for points in runs):
        same = [points[-1] for points in runs if points[-1].get("machine", "unknown machine") == machine]
        days = sorted({r["date"].split()[0] for r in same if "date" in r})
        lines += [f"{machine}{', ' if days else ''}{' and '.join(days)}:", ""]
        commands = list(dict.fromkeys(f"    {r['command']}" for r in same if "command" in r))
        lines += [*commands, ""] if commands else []
    cut = [points[-1] for points in runs if not points[-1]["complete"]]
    if cut:
        which = ", ".join(f"{r['task']} at iteration {r['iteration']:,} of {r['iterations']:,}" for r in cut)
        lines += [f"Stopped before the end: {which}.", ""]
    return lines


STUDIES: dict[str, Callable[[list[Record]], Any]] = {
    "components": components,
    "ranks": ranks,
    "quarters": quarters,
    "bank": bank,
}
