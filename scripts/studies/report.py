"""Tables and pictures of the study in docs/results.md, between ``<!-- study PART -->`` and ``<!-- end -->``."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Sequence

from bench.records import Record, read
from bench.task_tables import UNITS, bounds

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.figures import GREY, new_figure, save_figure
from envcoder_bench.report.statistics import Interval, bootstrap, mean_interval, pooled_iqm, probability_of_improvement
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNSHAPED

from . import analysis
from .analysis import ENOUGH, TOPS, Agreement, known
from .components import COMPONENTS, NOTHING, TASKS, variants
from .evolution import BEST
from .lengths import SPARSE_REWARD

BLOCK = re.compile(r"(<!-- study (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HEAT_MAP = "study_components.png"
REFERENCE_SIZES = ("envs", "iterations", "overrides")
WORTH = (1, 5)  # of so many of the first, the table of ranks has what the best is worth
SEARCH_SIZES = ("rounds", "per_round", "batch")
TITLES = {SPARSE_REWARD: "human, sparse reward"}


def report(files: Sequence[Path], page: Path, images: Path) -> list[Path]:
    """Write the blocks of the page and the pictures; returns what was written. Parts without records stay empty."""
    records = [record for file in files for record in read(file)]
    if not records:
        raise UserError(f"no records in {', '.join(map(str, files))}: measure first")
    text = page.read_text(encoding="utf-8")
    write_atomic(page, BLOCK.sub(lambda m: m[1] + _block(PARTS[m[2]](records)) + m[3], text))
    drawn = [page]
    tasks = _longest_components(records)
    if tasks:
        images.mkdir(parents=True, exist_ok=True)
        drawn.append(plot_components(tasks, images / HEAT_MAP))
    return drawn


def _block(lines: list[str]) -> str:
    return "\n" + "\n".join(lines) + "\n\n" if lines else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def shown(interval: Interval, decimals: int = 2) -> str:
    """Return ``mean [low, high]``."""
    middle, low, high = interval
    if math.isnan(middle):
        return ""
    return f"{middle:.{decimals}f}" + ("" if math.isnan(low) else f" [{low:.{decimals}f}, {high:.{decimals}f}]")


def steps(count: float) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count / 1e3:.1f} k"


def _origins(runs: Sequence[list[Record]]) -> list[str]:
    """Return machine, date and commands of trainings, and what is not complete."""
    lines: list[str] = []
    for machine in dict.fromkeys(own[-1].get("machine", "unknown machine") for own in runs):
        same = [own[-1] for own in runs if own[-1].get("machine", "unknown machine") == machine]
        days = sorted({r["date"].split()[0] for r in same if "date" in r})
        lines += [f"{machine}{', ' if days else ''}{' and '.join(days)}:", ""]
        commands = list(dict.fromkeys(f"    {r['command']}" for r in same if "command" in r))
        lines += [*commands, ""] if commands else []
    cut = [own[-1] for own in runs if not own[-1]["complete"]]
    if cut:
        which = ", ".join(f"{r['task']} at iteration {r['iteration']:,} of {r['iterations']:,}" for r in cut)
        lines += [f"Stopped before the end: {which}.", ""]
    return lines


# components


def components(records: list[Record]) -> list[str]:
    tasks = _longest_components(records)
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
    return [*_origins(list(tasks.values())), f"{sizes}.", "", *table(head, rows), *picture]


def _longest_components(records: list[Record]) -> dict[str, list[Record]]:
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


# lengths


def lengths(records: list[Record]) -> list[str]:
    tasks = analysis.longest(analysis.trainings(records, "lengths"))
    rows = []
    for task, points in tasks.items():
        for name in (HUMAN, UNSHAPED, SPARSE_REWARD):
            own = analysis.length(points, name, bounds(task))
            if own is not None:
                size = f"{points[-1]['seeds']} x {points[-1]['envs']:,}"
                best = f"{shown(own.best)} after {steps(own.best_steps)}"
                last = f"{shown(own.last)} after {steps(own.steps)}"
                cells = [task, UNITS.get(task, ""), TITLES.get(name, name), size, best, last, shown(own.gained)]
                rows.append(cells)
    head = ["task", "fitness", "baseline", "seeds x environments", "best evaluation [95 %], env-steps of each",
            "last evaluation [95 %]", "gain in the last quarter [95 %], paired"]  # fmt: skip
    return [*_origins(list(tasks.values())), *table(head, rows)] if rows else []


# ranks


def ranks(records: list[Record]) -> list[str]:
    runs = analysis.trainings(records, "ranks")
    lines: list[str] = []
    for task in dict.fromkeys(own[-1]["task"] for own in runs):
        own = [x for x in runs if x[-1]["task"] == task]
        references = [x for x in own if x[-1]["role"] == "reference"]
        cheap = [x for x in own if x[-1]["role"] == "cheap"]
        if not references or not cheap:
            continue
        points = max(references, key=lambda x: x[-1]["candidates"] * x[-1]["seeds"] * x[-1]["env_steps"])
        reference = points[-1]
        cheap = [x for x in cheap if x[-1]["candidates"] == reference["candidates"]]
        found = agreements([*cheap, points], reference)
        if cheap:
            lines += [*_origins([*cheap, [reference]]), *_task_ranks(task, found, reference), ""]
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
    rows = [
        [f"{own.envs:,}", f"{own.iteration:,}", f"{own.seeds}", steps(own.env_steps), f"{own.spearman:.2f}"]
        + [f"{own.tops[top]:.0%}" for top in TOPS]
        + [f"{own.worth[top]:.2f}" for top in WORTH]
        for own in found
    ]
    head = ["environments", "iterations", "seeds", "env-steps of each candidate", "Spearman"]
    head += [f"true best in the first {top}" for top in TOPS]
    head += [f"reference fitness of the {'first' if top == 1 else f'best of the first {top}'}" for top in WORTH]
    return [text, verdict, "", *table(head, rows)]


def _setting(own: Agreement) -> str:
    return f"{own.seeds} seed{'s' * (own.seeds > 1)} x {own.envs:,} environments x {own.iteration:,} iterations"


# evolve

LEAST_SEARCHES = 3  # of a task and method, from which methods are compared


def evolve(records: list[Record]) -> list[str]:
    references = {own[-1]["task"]: own[-1] for own in analysis.trainings(records, "evolve")}
    searches = [r for r in records if r["kind"] == "evolve" and r["role"] == "search"]
    searches = _of_one_budget([r for r in searches if r["task"] in references], references)
    rows: list[list[str]] = []
    raw: dict[str, dict[str, list[float]]] = {}
    pooled: dict[str, dict[str, list[float]]] = {}
    for kinds in dict.fromkeys(r["kinds"] for r in searches):
        for task in dict.fromkeys(r["task"] for r in searches if r["kinds"] == kinds):
            fitness = references[task]["fitness"]
            ends = [known(fitness.get(name, [])) for name in (SPARSE_REWARD, HUMAN)]
            sparse, human = (mean(own) if own else math.nan for own in ends)
            for method in dict.fromkeys(map(_method, searches)):
                own = [r for r in searches if (r["kinds"], r["task"], _method(r)) == (kinds, task, method)]
                if not own:
                    continue
                scores = [mean(known(r["fitness"][BEST])) for r in own if known(r["fitness"][BEST])]
                scaled = analysis.normalized(scores, sparse, human)
                if len(scores) >= LEAST_SEARCHES:
                    raw.setdefault(f"{method}, {kinds}", {})[task] = scores
                    pooled.setdefault(f"{method}, {kinds}", {})[task] = scaled
                size = f"{len(own)} x {own[0]['evaluations']}"
                values = [shown(mean_interval(scores, bounds(task))), shown(mean_interval(scaled))]
                rows.append(
                    [
                        task,
                        f"{method}, {kinds}",
                        size,
                        *values,
                        *(f"{x:.2f}" if x == x else "" for x in (sparse, human)),
                    ]
                )
    if not rows:
        return []
    head = ["task", "method", "searches x evaluations", "fitness of the best on held-out seeds",
            "human-normalized", "sparse", "human"]  # fmt: skip
    used = [
        r for task in dict.fromkeys(row[0] for row in rows) for r in (references[task], *searches) if r["task"] == task
    ]
    return [*_origins([[r] for r in used]), *table(head, rows), "", *_pooled(raw, pooled)]


def _method(record: Record) -> str:
    """Return a search's method; until 2026-11-26 rewards got no new terms of the state."""
    return record["method"] if record.get("new_terms") else f"{record['method']} without new terms"


def _of_one_budget(searches: list[Record], references: dict[str, Record]) -> list[Record]:
    """Return the searches of each task with the sizes of its reference, and with the rounds of its last search."""
    same = [r for r in searches if all(r.get(k) == references[r["task"]].get(k) for k in REFERENCE_SIZES)]
    last = {(r["task"], r["kinds"]): [r.get(k) for k in SEARCH_SIZES] for r in same}
    return [r for r in same if [r.get(k) for k in SEARCH_SIZES] == last[r["task"], r["kinds"]]]


def _pooled(raw: dict[str, dict[str, list[float]]], scaled: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the interquartile mean of each method over its tasks, and the probabilities of improvement."""
    lines = []
    for name, scores in scaled.items():
        own = {task: x for task, x in scores.items() if x}
        if own:
            tasks = f"{len(own)} task{'s' * (len(own) > 1)}"
            lines.append(
                f"- {name}: human-normalized interquartile mean over {tasks} {shown(bootstrap(pooled_iqm, own))}"
            )
    for first, second in combinations(raw, 2):
        both = [task for task in raw[first] if raw[first][task] and raw[second].get(task)]
        if both:  # of ranks alone, so that it needs no scale
            x, y = ({task: raw[name][task] for task in both} for name in (first, second))
            chance = shown(bootstrap(probability_of_improvement, x, y))
            lines.append(f"- probability that a search by {first} ends better than one by {second}: {chance}")
    return lines


# devices


def devices(records: list[Record]) -> list[str]:
    runs = analysis.trainings(records, "devices")
    rows = []
    sizes = dict.fromkeys((own[-1]["task"], own[-1]["envs"], own[-1]["iterations"], own[-1]["seeds"]) for own in runs)
    for size in sizes:
        same = [
            own[-1]
            for own in runs
            if tuple(own[-1][key] for key in ("task", "envs", "iterations", "seeds")) == size and own[-1]["complete"]
        ]
        for first, second in combinations(same, 2):
            for name in BASELINES:
                means, seeds = analysis.distance(first["fitness"].get(name, []), second["fitness"].get(name, []))
                if not math.isnan(means):
                    what = [
                        f"{size[0]}, {name}",
                        f"{size[3]} x {size[1]:,} x {size[2]:,}",
                        _place(first),
                        _place(second),
                    ]
                    rows.append([*what, f"{means:+.2f}", f"{seeds:.2f}"])
    head = ["task, baseline", "seeds x environments x iterations", "here", "there", "difference of means",
            "same seed here and there"]  # fmt: skip
    unit = "Differences are in units of the standard deviation over seeds."
    return [*_origins(runs), unit, "", *table(head, rows)] if rows else []


def _place(record: Record) -> str:
    return f"{record['on']}, " + (f"among {record['neighbours']}" if record["neighbours"] else "alone")


PARTS: dict[str, Callable[[list[Record]], Any]] = {
    "components": components, "lengths": lengths, "ranks": ranks, "evolve": evolve, "devices": devices,
}  # fmt: skip
