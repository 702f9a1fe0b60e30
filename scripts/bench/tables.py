"""Markdown tables of the records: for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

from statistics import mean
from typing import Any, Callable, Sequence, Tuple

from . import task_tables, terrain_report
from .records import Record, latest, place

KINDS = ("action", "reward", "terminal", "initial_state", "goal", "observation")
PARTS = ("results", "tensorboard", "table", "page")  # of what follows the last iteration
Column = Tuple[str, Callable[[Record], str]]

_SIZE: Column = ("candidates x environments", lambda r: f"{r['candidates']:,} x {r['envs']:,}")


def _phases(record: Record) -> str:
    """Return the seconds of a run's phases after the first iteration."""
    if "phase_s" not in record:
        return ""
    own, ended = record["phase_s"], record["last_iteration_s"]
    training = ended - record["first_iteration_s"] - sum(own.values())
    parts = (training, own["evaluation"], own["comparison"], own["results"], record["seconds"] - ended)
    return ", ".join(f"{part:.1f}" for part in parts) + " s"


COLUMNS: dict[str, list[Column]] = {
    "scaling": [
        _SIZE,
        ("training, env-steps/s", lambda r: f"{r['training']:,.0f}"),
        ("physics alone", lambda r: f"{r['physics']:,.0f}"),
        ("ratio", lambda r: f"{r['training'] / r['physics']:.2f}"),
        ("memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
        ("startup", lambda r: f"{r['startup_s']:.0f} s"),
    ],
    "speed": [
        _SIZE,
        ("env-steps/s", lambda r: f"{r['training'] / 1e6:.2f} M"),
        ("of bare physics", lambda r: f"{100 * r['training'] / r['physics']:.0f} %"),
        ("GPU memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
        ("measured", lambda r: f"{place(r)}, {r['date'].split()[0]}"),
    ],
    "task_scaling": [
        ("task", lambda r: r["task"]),
        ("groups x environments", lambda r: f"{r['candidates']:,} x {r['envs']:,}"),
        ("training, env-steps/s", lambda r: f"{r['training']:,.0f}"),
        ("physics alone", lambda r: f"{r['physics']:,.0f}"),
        ("ratio", lambda r: f"{r['training'] / r['physics']:.2f}"),
        ("memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
    ],
    "processes": [
        ("processes x environments", lambda r: f"{r['processes']} x {r['envs']:,}"),
        ("each, env-steps/s", lambda r: f"{mean(r['each']):,.0f}"),
        ("all together", lambda r: f"{r['total']:,.0f}"),
        (
            "one process with all candidates",
            lambda r: f"{r['tool']:,.0f} ({r['tool_candidates']:,} candidates)" if "tool" in r else "",
        ),
        ("times as fast", lambda r: f"{r['tool'] / r['total']:.1f}" if "tool" in r else ""),
    ],
    "dispatch": [
        _SIZE,
        ("microseconds per call", lambda r: r["how"]),
        *((kind.replace("_", " "), lambda r, kind=kind: f"{r['us'][kind]:,.2f}") for kind in KINDS),
        # each kind is called once per candidate and step: the mean over calls is that over kinds
        ("mean", lambda r: f"**{mean(r['us'].values()):,.2f}**"),
    ],
    "learner": [
        _SIZE,
        ("one batch, s per iteration", lambda r: f"{r['batched_s']:.4f}"),
        ("loop, s per iteration", lambda r: f"{r['loop_s']:.3f}"),
        ("measured with", lambda r: f"{r['loop_candidates']:,} candidates"),
        ("times as fast", lambda r: f"{r['loop_s'] / r['batched_s']:.1f}"),
    ],
    "pairs": [
        ("tasks", lambda r: f"{r['task']}, {r['against']}"),
        ("groups x environments", lambda r: f"{r['seeds']:,} x {r['envs']:,}"),
        ("env-steps per s of processor time", lambda r: f"{r['rates'][0]:,.0f}, {r['rates'][1]:,.0f}"),
        ("ratio", lambda r: f"{r['ratio']:.2f}"),
    ],
    "startup": [
        _SIZE,
        ("candidates loaded and checked after", lambda r: f"{r['checked_s']:.1f} s"),
        ("first iteration done after", lambda r: f"{r['first_iteration_s']:.1f} s"),
        ("memory until then", lambda r: f"{r['memory_gib']:.1f} GiB"),
    ],
    "certainty": [
        ("simulated runs of", lambda r: r["case"]),
        ("candidates", lambda r: f"{r['candidates']}"),
        ("seeds", lambda r: f"{r['seeds']}"),
        ('runs with any "!"', lambda r: f"{r['marked']:.1%}" if "covered" in r else ""),
        ("intervals with the truth", lambda r: f"{r['covered']:.1%}" if "covered" in r else ""),
        ("the first is the best: stated, true", lambda r: f"{r['stated']:.0%}, {r['true']:.0%}" if "true" in r else ""),
        ("marked, by paired t-tests", lambda r: f"{r['marked']:.0%}, {r['paired']:.0%}" if "paired" in r else ""),
    ],
    "devices": [
        ("devices", lambda r: f"{r['count']}"),
        _SIZE,
        ("training, env-steps/s", lambda r: f"{r['training']:,.0f}"),
        ("times one device", lambda r: f"{r['training'] / r['one']:.2f}" if "one" in r else ""),
        ("of devices that each train their share alone", lambda r: _of_shares(r)),
        ("memory of the head", lambda r: f"{r['head_gib']:.1f} GiB" if "head_gib" in r else ""),
        ("first iteration after", lambda r: f"{r['first_iteration_s']:.0f} s"),
        ("whole run", lambda r: f"{r['seconds'] / 60:.1f} min"),
    ],
    "run": [
        _SIZE,
        ("iterations", lambda r: f"{r['iterations']:,}"),
        ("whole run", lambda r: f"{r['seconds'] / 60:.1f} min"),
        ("page", lambda r: "included" if "after_last_iteration_s" in r else "left out"),
        ("env-steps/s, all included", lambda r: f"{r['env_steps'] / r['seconds']:,.0f}"),
        ("first iteration done after", lambda r: f"{r['first_iteration_s']:.0f} s"),
        ("memory", lambda r: f"{r['memory_gib']:.1f} GiB"),
        ("failed candidates", lambda r: f"{r['failed']}"),
        ("training, evaluations, comparisons, results, end", _phases),
    ],
    "page": [
        ("candidates x seeds", lambda r: f"{r['candidates']:,} x {r['seeds']}"),
        ("iterations", lambda r: f"{r['iterations']:,}"),
        ("libraries", lambda r: r["libraries"]),
        *((part, lambda r, part=part: f"{r['part_s'][part]:.1f} s") for part in PARTS),
        ("together", lambda r: f"{r['after_last_iteration_s']:.1f} s"),
        ("of processor time", lambda r: f"{r['processor_s']:.1f} s"),
    ],
}
IDENTITY: dict[str, tuple[str, ...]] = {  # what tells two measurements of a kind apart
    "task_scaling": ("task", "candidates", "envs"),
    "processes": ("envs", "processes"),
    "certainty": ("case", "candidates", "seeds"),
    "devices": ("candidates", "envs", "count"),
    "run": ("candidates", "envs", "iterations"),
    "pairs": ("task", "against", "seeds", "envs"),
    "page": ("candidates", "seeds", "iterations", "libraries"),
    **{kind: ("candidates", "envs") for kind in ("scaling", "dispatch", "learner", "startup")},
}


def _of_shares(row: Record) -> str:
    return f"{row['training'] / row['count'] / row['share']:.1%}" if "share" in row and row["count"] > 1 else ""


def table(kind: str, rows: Sequence[Record]) -> list[str]:
    """Return Markdown lines, a row per record; two for ``dispatch``."""
    columns = {**COLUMNS, **task_tables.COLUMNS, **terrain_report.COLUMNS}[kind]
    if kind == "run" and not any("phase_s" in record for record in rows):
        columns = columns[:-1]  # records before 2026-11-25
    lines = [" | ".join(name for name, _ in columns), "|".join("---" for _ in columns)]
    for record in rows:
        for row in _both_ways(record) if kind == "dispatch" else [record]:
            lines.append(" | ".join(text(row) for _, text in columns))
    return [f"|{line}|" if line.startswith("---") else f"| {line} |" for line in lines]


def select(kind: str, records: list[Record], known: Sequence[Record] = ()) -> list[Record]:
    """Return the latest record of every measurement of a kind; ``known`` scaling is compared with processes."""
    of_tasks = {**task_tables.ROWS, **terrain_report.ROWS}
    if kind in of_tasks:
        return of_tasks[kind](records)
    if kind == "speed":
        return speed_rows(records)
    rows = latest(records, kind, *IDENTITY[kind])
    if kind == "processes":
        tools = latest([*known, *records], "scaling", "envs", "candidates")
        return [{**row, **_tool(row, tools)} for row in rows]
    if kind == "devices":
        rows = of_one_host(rows)
        return [{**row, **_single(row, rows)} for row in rows]
    return rows


def speed_rows(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of any GPU for 250 candidates."""
    own = [r for r in records if r["kind"] == "scaling" and r["device"] == "cuda" and r["envs"] == 256]
    newest = {r["candidates"]: r for r in sorted(own, key=lambda r: r["date"])}
    return [newest[count] for count in (250,) if count in newest]


def of_one_host(rows: list[Record]) -> list[Record]:
    """Return the runs on several devices of the host that was measured last, without those for their bits alone."""
    rows = [row for row in rows if "deterministic=true" not in row["command"]]
    hosts = [row["machine"] for row in sorted(rows, key=lambda row: row["date"])]
    return [row for row in rows if row["machine"] == hosts[-1]]


def _single(row: Record, rows: list[Record]) -> dict[str, Any]:
    """Return the speed of one device with all candidates, and with as many as each of several trains."""
    singles = {own["candidates"]: own["training"] for own in rows if own["count"] == 1 and own["envs"] == row["envs"]}
    known = {"one": singles.get(row["candidates"]), "share": singles.get(row["candidates"] // row["count"])}
    return {key: value for key, value in known.items() if value is not None}


def _tool(row: Record, tools: list[Record]) -> dict[str, Any]:
    """Return this tool's record with 250 candidates, or with the largest measured number below."""
    same = [t for t in tools if t["label"] == row["label"] and t["envs"] == row["envs"] and t["candidates"] <= 250]
    if not same:
        return {}
    return {"tool": same[-1]["training"], "tool_candidates": same[-1]["candidates"]}


def _both_ways(record: Record) -> list[Record]:
    return [
        {**record, "how": "all in one batch", "us": record["batched_us"]},
        {**record, "how": "a loop over candidates", "us": record["loop_us"]},
    ]
