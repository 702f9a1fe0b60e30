"""The tables of all kinds of records, and which records they show."""

import functools
import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from bench import tables
from bench.records import Record, latest
from bench.tables import SIZE, Column
from measurements.campaigns import AGENTS
from measurements.hacks import confusion
from measurements.searches import differences, means

from . import learning_tables


def _quarters(curve: str, row: Record) -> str:
    """Return the means over seeds after each quarter of a training."""
    values = [mean(point) for point in row[curve]]
    return ", ".join(f"{values[-(-len(values) * k // 4) - 1]:.3f}" for k in range(1, 5))


def _size(cell: dict[str, Any]) -> str:
    return f"{cell['candidates']} x {cell['seeds']}"


def _false_better(agent: str, row: Record) -> str:
    return f"{row['better'][agent]:.1%}"


def _told(agent: str, row: Record) -> str:
    return f"{row['told'][agent]:.0%}"


def _extreme(name: str, which: Callable[..., dict[str, Any]], row: Record) -> str:
    """Return the greatest or least value of a design's sizes, with its size."""
    cell = which(row["cells"], key=lambda cell: cell[name])
    return f"{cell[name]:.1%} ({_size(cell)})"


def _beyond(row: Record, name: str) -> list[str]:
    """Return the sizes of a design that err in more than 5 %, beyond two standard errors."""
    return [
        f"{_size(cell)}: {cell[name]:.0%}"
        for cell in row["cells"]
        if cell[name] > 0.05 + 2 * math.sqrt(0.05 * 0.95 / cell["runs"])
    ]


DESIGN: Column = ("simulated runs of", lambda r: f"{r['case']}{', blind' if r.get('blind') else ''}")
COLUMNS: dict[str, list[Column]] = {
    **tables.COLUMNS,
    **learning_tables.COLUMNS,
    "speed": [
        SIZE,
        ("env-steps/s", lambda r: f"{r['training'] / 1e6:.2f} M"),
        ("of bare physics", lambda r: f"{100 * r['training'] / r['physics']:.0f} %"),
        ("GPU memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
        learning_tables.MEASURED_WITH,
    ],
    "fragile": [
        ("policy", lambda r: f"{r['task']}, {r['policy'].replace('_', '-')}"),
        ("fitness", lambda r: f"{r['fitness']:.2f}"),
        ("worst 10%", lambda r: f"{r['worst_decile']:.2f}"),
        ("reach end", lambda r: f"{r['survival']:.0%}"),
        ("breaks by", lambda r: r["breaks"] or "-"),
        ("passes", lambda r: "yes" if r["passes"] else "no"),
        learning_tables.MEASURED_WITH,
    ],
    "planted": [
        ("planted", lambda r: r["fault"]),
        ("fitness", lambda r: f"{r['fitness']:.2f}"),
        ("worst 10%", lambda r: f"{r['worst_decile']:.2f}"),
        ("action acceleration, 1/s^2", lambda r: f"{r['action_acceleration']:,}"),
        ("gain", lambda r: f"{r['gain']:.2f}"),
        ("dead zone", lambda r: f"{r['dead_zone']:.2f}"),
        ("drift x, y, yaw", lambda r: ", ".join(f"{x:.2f}" for x in r["drift"].values())),
        learning_tables.MEASURED_WITH,
    ],
    "processes": [
        ("processes x environments", lambda r: f"{r['processes']} x {r['envs']:,}"),
        ("each, env-steps/s", lambda r: f"{mean(r['each']):,.0f}"),
        ("all together", lambda r: f"{r['total']:,.0f}"),
        ("one process with all candidates",
         lambda r: f"{r['tool']:,.0f} ({r['tool_candidates']:,} candidates)" if "tool" in r else ""),
        ("times as fast", lambda r: f"{r['tool'] / r['total']:.1f}" if "tool" in r else ""),
    ],
    "learner": [
        SIZE,
        ("one batch, s per iteration", lambda r: f"{r['batched_s']:.4f}"),
        ("loop, s per iteration", lambda r: f"{r['loop_s']:.3f}"),
        ("measured with", lambda r: f"{r['loop_candidates']:,} candidates"),
        ("times as fast", lambda r: f"{r['loop_s'] / r['batched_s']:.1f}"),
    ],
    "mjlab": [
        ("task", lambda r: r["task"]),
        ("environments", lambda r: f"{r['envs']:,}"),
        ("ours, env-steps/s", lambda r: f"{r['ours']:,.0f}"),
        ("mjlab's own", lambda r: f"{r['mjlab']:,.0f}"),
        ("simulation alone", lambda r: f"{r['physics']:,.0f}"),
    ],
    "mjlab_learning": [
        ("task", lambda r: r["task"]),
        ("trained by", lambda r: {"ours": "EnvCoderBench", "mjlab": "mjlab's runner"}[r["side"]]),
        ("seeds x environments", lambda r: f"{r['seeds']} x {r['envs']:,}"),
        ("env-steps of each", lambda r: f"{r['env_steps'][-1] / 1e6:.2f} M"),
        ("fitness", functools.partial(_quarters, "fitness")),
        ("reward", functools.partial(_quarters, "reward")),
    ],
    "equal_designs": [
        DESIGN,
        ("sizes, runs", lambda r: f"{len(r['cells'])}, {sum(c['runs'] for c in r['cells']):,}"),
        ('most runs with any "!"', functools.partial(_extreme, "marked", max)),
        ("not within the error of 5 %", lambda r: ", ".join(_beyond(r, "marked"))),
        ('most false "better"', functools.partial(_extreme, "better", max)),
        ("not within the error of 5 %", lambda r: ", ".join(_beyond(r, "better"))),
        ("fewest intervals with the truth", functools.partial(_extreme, "covered", min)),
    ],
    "different_designs": [
        DESIGN,
        ("runs with a single contender", lambda r: f"{sum(c['alone'] for c in r['cells'])}"),
        ("it is the best in", lambda r: f"{sum(c['right'] for c in r['cells'])}"),
        ("fewest runs whose first is the best", functools.partial(_extreme, "first", min)),
        ("fewest contenders with the best", functools.partial(_extreme, "held", min)),
        ("fewest intervals of new seeds with the truth of the first", functools.partial(_extreme, "covered", min)),
    ],
    "extended_designs": [
        DESIGN,
        ("candidates", lambda r: f"{r['candidates']}"),
        ("seeds of the looks", lambda r: ", ".join(map(str, r["looks"]))),
        ('runs with any "!" at any look', lambda r: f"{r['marked']:.1%}"),
    ],
    "equal_campaigns": [
        DESIGN,
        *((f"an agent that {agent}", functools.partial(_false_better, agent)) for agent in AGENTS),
    ],
    "gains_in_campaigns": [
        DESIGN,
        ("gain of one candidate", lambda r: f"{r['gain']:g}"),
        ("told after 3 seeds", lambda r: f"{r['told']['first']:.0%}"),
        *((f"by an agent that {agent}", functools.partial(_told, agent)) for agent in AGENTS),
    ],
    "recorded_power": [
        ("recorded trainings", lambda r: f"{r['task']}, {r['record']}"),
        ("candidates x seeds", lambda r: f"{r['candidates']} x {r['seeds']}"),
        ("marked", lambda r: f"{r['marked']:.1%}"),
        ("by paired t-tests", lambda r: f"{r['paired']:.1%}"),
    ],
    "hacks": [
        ("task", lambda r: r["task"]),
        ("seeds x environments x iterations",
         lambda r: f"{r['seeds']} x {r['num_envs_per_candidate']} x {r['learning_iterations']}"),
        *((title, lambda r, k=k: f"{confusion(r['facts'])[k]}")
          for k, title in enumerate(("expected", "hacks", "marked", "others, marked"))),
    ],
    "searches": [
        ("task, start", lambda r: f"{r['task']}, {r['start']}"),
        ("pairs x rounds x candidates", lambda r: f"{r['searches']} x {r['rounds']} x {r['candidates']}"),
        ("best so far, or on held-out seeds", lambda r: r["stage"]),
        ("with variants", lambda r: learning_tables.interval(means(r, "with"))),
        ("without", lambda r: learning_tables.interval(means(r, "without"))),
        ("difference, paired", lambda r: learning_tables.interval(differences(r))),
        ("of each pair", lambda r: ", ".join("failed" if x is None else f"{x:+.2f}" for x in differences(r))),
    ],
    "search_rules": [
        ("truth", lambda r: r["case"]),
        ("rule", lambda r: r["rule"]),
        ("candidates x seeds of a round", lambda r: f"{r['candidates']} x {r['seeds']}"),
        ("trainings", lambda r: f"{r['trainings']:.0f}"),
        ("chosen is the best", lambda r: f"{r['is_best']:.0%}"),
        ("regret", lambda r: f"{r['regret']:.2f} ± {2 * r['regret_error']:.2f}"),
        ("chosen, above human", lambda r: f"{r['chosen']:+.2f}"),
        ("false better, so far", lambda r: "" if r["false_better"] is None else f"{r['false_better']:.1%}"),
        ("in the end", lambda r: f"{r['false_in_the_end']:.1%}"),
    ],
    "recorded_searches": [
        ("task", lambda r: r["task"]),
        ("rule", lambda r: r["rule"]),
        ("trainings", lambda r: f"{r['trainings']}"),
        ("regret", lambda r: f"{r['regret']:.3f}"),
        ("chosen, above human", lambda r: f"{r['above_human']:+.3f}"),
        ("with the recorded seeds", lambda r: f"{r['first_chosen']}: {r['means'][r['first_chosen']]:.3f}"),
        ("its place by the means", lambda r: _place(r["means"], r["first_chosen"])),
        ("may be the best, by held-out seeds", lambda r: f"{len(r['may_be_best'])} of {len(r['means'])}"),
    ],
    "evolving_searches": [
        ("task", lambda r: r["task"]),
        ("pairs x rounds", lambda r: f"{r['searches']} x {r['rounds']}"),
        ("candidates, earlier and present rule", lambda r: f"{r['candidates']}, {r['fewer']}"),
        ("trainings", lambda r: ", ".join(map(str, r["trainings"].values()))),
        ("earlier, above human", lambda r: learning_tables.interval(r["earlier"])),
        ("present, above human", lambda r: learning_tables.interval(r["present"])),
        ("difference, paired", lambda r: learning_tables.interval(
            [a - b for a, b in zip(r["present"], r["earlier"]) if a is not None and b is not None])),
    ],
    "devices": [
        ("devices", lambda r: f"{r['count']}"),
        SIZE,
        ("training, env-steps/s", lambda r: f"{r['training']:,.0f}"),
        ("times one device", lambda r: f"{r['training'] / r['one']:.2f}" if "one" in r else ""),
        ("of devices that each train their share alone", lambda r: _of_shares(r)),
        ("memory of the head", lambda r: f"{r['head_gib']:.1f} GiB" if "head_gib" in r else ""),
        ("first iteration after", lambda r: f"{r['first_iteration_s']:.0f} s"),
        ("whole run", lambda r: f"{r['seconds'] / 60:.1f} min"),
    ],
}  # fmt: skip
COLUMNS["headline"] = COLUMNS["speed"]
IDENTITY: dict[str, tuple[str, ...]] = {  # what tells two measurements of a kind apart
    "task_scaling": ("task", "candidates", "envs"),
    "processes": ("envs", "processes"),
    "planted": ("fault",),
    "fragile": ("task", "policy"),
    "equal_designs": ("case",),
    "different_designs": ("case",),
    "extended_designs": ("case", "candidates"),
    "equal_campaigns": ("case",),
    "gains_in_campaigns": ("case", "gain"),
    "recorded_power": ("record", "seeds"),
    "mjlab": ("task", "envs"),
    "hacks": ("task",),
    "searches": ("task", "start", "stage"),
    "search_rules": ("case", "rule", "candidates", "seeds"),
    "recorded_searches": ("task", "rule"),
    "evolving_searches": ("task",),
    "devices": ("candidates", "envs", "count"),
    "run": ("candidates", "envs", "iterations"),
    **{kind: ("candidates", "envs") for kind in ("scaling", "learner", "startup")},
}


def _place(means: dict[str, float], name: str) -> str:
    return f"{1 + sum(x > means[name] for x in means.values())} of {len(means)}"


def _of_shares(row: Record) -> str:
    return f"{row['training'] / row['count'] / row['share']:.1%}" if "share" in row and row["count"] > 1 else ""


def select(kind: str, records: list[Record]) -> list[Record]:
    """Return the latest record of every measurement of a kind, for its table."""
    if kind in learning_tables.ROWS:
        return learning_tables.ROWS[kind](records)
    if kind == "speed":
        return speed_rows(records)
    if kind == "headline":  # the README's speed
        return [row for row in speed_rows(records) if row["candidates"] == 250]
    rows = latest(records, kind, *IDENTITY[kind])
    if kind == "processes":
        tools = latest(records, "scaling", "envs", "candidates")
        return [{**row, **_tool(row, tools)} for row in rows]
    if kind == "devices":
        rows = of_one_host(rows)
        return [{**row, **_single(row, rows)} for row in rows]
    return rows


def speed_rows(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of any GPU for few, many and very many candidates."""
    on_gpu = [r for r in records if r["kind"] == "scaling" and r["device"] == "cuda" and r["envs"] == 256]
    newest = {r["candidates"]: r for r in sorted(on_gpu, key=lambda r: r["date"])}
    return [newest[count] for count in (4, 250, 1000) if count in newest]


def of_one_host(rows: list[Record]) -> list[Record]:
    """Return the runs on several devices of the host that was measured last, without those for their bits alone."""
    rows = [row for row in rows if "deterministic=true" not in row["command"]]
    hosts = [row["machine"] for row in sorted(rows, key=lambda row: row["date"])]
    return [row for row in rows if row["machine"] == hosts[-1]]


def _single(row: Record, rows: list[Record]) -> dict[str, Any]:
    """Return the speed of one device with all candidates, and with as many as each of several trains."""
    singles = {r["candidates"]: r["training"] for r in rows if r["count"] == 1 and r["envs"] == row["envs"]}
    speeds = {"one": singles.get(row["candidates"]), "share": singles.get(row["candidates"] // row["count"])}
    return {key: value for key, value in speeds.items() if value is not None}


def _tool(row: Record, tools: list[Record]) -> dict[str, Any]:
    """Return this tool's record with 250 candidates, or with the largest measured number below."""
    same = [t for t in tools if t["label"] == row["label"] and t["envs"] == row["envs"] and t["candidates"] <= 250]
    if not same:
        return {}
    return {"tool": same[-1]["training"], "tool_candidates": same[-1]["candidates"]}
