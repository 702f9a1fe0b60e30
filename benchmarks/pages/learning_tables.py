"""Tables of the tasks' records: learning of the baselines, and their difference."""

import math
from collections.abc import Callable, Sequence
from itertools import chain

from bench.records import Record, place
from bench.tables import Column
from studies.analysis import known

from envcoder_bench.results.statistics import UNBOUNDED, mean_interval
from envcoder_bench.tasks.base import HUMAN

# fitness of the human baseline that is to be reached, and within how many seconds of training
TARGETS: dict[str, tuple[float, float | None]] = {
    "Cartpole": (0.95, 10),
    "Ant": (5.0, 60),
    "Humanoid": (3.0, 300),
    "Anymal": (0.85, None),
    "FrankaCubeStack": (0.7, 1080),
    "AllegroHand": (10.0, 1080),
}
UNITS = {
    "Cartpole": "fraction of time upright",
    "Ant": "forward speed, m/s",
    "Humanoid": "forward speed, m/s",
    "Anymal": "velocity tracking, 0 to 1",
    "AnymalTerrain": "velocity tracking over all terrains, 0 to 1",
    "SpotTerrain": "velocity tracking over all terrains, 0 to 1",
    "FrankaCubeStack": "success rate",
    "AllegroHand": "consecutive successes",
}
# tasks whose fitness is one, from 0 to 1
FRACTIONS = ("Cartpole", "Anymal", "AnymalTerrain", "SpotTerrain", "FrankaCubeStack")
FRACTIONS += tuple(f"isaacgymenvs:{name}" for name in ("Cartpole", "FrankaCabinet", "FrankaCubeStack", "BallBalance"))
Points = list[Record]  # the points of a candidate's curve in one training


def bounds(task: str) -> tuple[float, float]:
    """Return the least and the greatest fitness of a task; also of one outside this repository, which is not loaded."""
    name = task.rpartition(":")[2]
    if task in FRACTIONS:
        return 0.0, 1.0
    return (0.0, math.inf) if name == "AllegroHand" else UNBOUNDED


def curves(records: Sequence[Record]) -> list[Points]:
    """Return the curve of every candidate from the latest training of each kind."""
    by_training: dict[tuple[str, str], dict[str, dict[str, Points]]] = {}
    for record in records:
        if record["kind"] == "learning":
            runs = by_training.setdefault((record["label"], record["what"]), {})
            runs.setdefault(record["run"], {}).setdefault(record["candidate"], []).append(record)
    return [
        sorted(points, key=lambda r: r["point"])
        for _, runs in sorted(by_training.items(), key=lambda x: (_order(x[0][1].split(":")[0]), x[0]))
        for _, points in sorted(runs[max(runs)].items())
    ]


def is_outside(record: Record) -> bool:
    """Return whether a record is of a task outside this repository, such as ``isaacgymenvs:Ant``."""
    return ":" in record.get("task", "")


def name(record: Record, key: str = "overrides") -> str:
    """Return the candidate's name and the changed settings that a key of the record holds."""
    changed = (override.partition("=") for override in record.get(key, []))
    changed = ((key, sign, value.rpartition("/")[2]) for key, sign, value in changed)
    return ", ".join([record["candidate"], *(f"{key.split('.')[-1]}={value}" for key, _, value in changed)])


def _order(task: str) -> int:
    return list(TARGETS).index(task) if task in TARGETS else len(TARGETS)


def interval(fitness: Sequence[float | None], task: str = "") -> str:
    """Return mean and 95 % interval over seeds, as ``mean [low, high]`` if it was cut to the bounds of the fitness."""
    scores = known(fitness)
    mean, low, high = mean_interval(scores, bounds(task))
    text = "failed" if not scores else f"{mean:.2f}" if len(scores) == 1 else f"{mean:.2f} ± {mean - low:.2f}"
    if abs((high - mean) - (mean - low)) >= 0.005:
        text = f"{mean:.2f} [{low:.2f}, {high:.2f}]"
    failed = len(fitness) - len(scores)
    return text + (f" ({failed} failed)" if failed and scores else "")


def mean_fitness(record: Record) -> float:
    return mean_interval(known(record["fitness"]))[0]


def learning_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row for each curve: its end, and when it first reached its task's target."""
    rows = []
    for points in curves(records):
        target = TARGETS.get(points[0]["task"], (float("inf"), None))[0]
        reached = next((p for p in points if mean_fitness(p) >= target), None)
        commands = dict.fromkeys(p["command"] for p in points)
        rows.append({**points[-1], "reached": reached, "points": points, "command": "\n    ".join(commands)})
    return rows


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _steps(record: Record) -> str:
    steps = record["env_steps"]
    return f"{steps / 1e6:.1f} M" if steps >= 1e6 else f"{steps / 1e3:.0f} k"


def _reached(row: Record) -> str:
    if name(row) != HUMAN or row["task"] not in TARGETS:
        return ""
    target, within = TARGETS[row["task"]]
    wanted = f"{target:g}" + (f" within {_time(within)}" if within else "")
    if row["reached"] is None:
        return f"{wanted}: not reached"
    return f"{wanted}: after {_time(row['reached']['seconds'])}, {_steps(row['reached'])}"


def sides(records: Sequence[Record]) -> list[Record]:
    """Return two rows for each task of mjlab: all seeds of each side, up to the end of the shortest training.

    Seeds may be in several records. Those of the machine's latest day count.
    """
    tasks: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record["kind"] == "mjlab_learning":
            day, same = record["date"].split()[0], (record["task"], record["label"], str(record["envs"]))
            tasks[same] = [r for r in tasks.get(same, []) if r["date"].startswith(day)] + [record]
    rows = []
    for _, trainings in sorted(tasks.items()):
        length = min(len(r["env_steps"]) for r in trainings)
        for side in ("ours", "mjlab"):
            of_side = [r for r in trainings if r["side"] == side]
            if of_side:
                last = of_side[-1]
                row = {**last, "seeds": sum(r["seeds"] for r in of_side), "env_steps": last["env_steps"][:length]}
                for curve in ("fitness", "reward"):  # each point gets the seeds of all records
                    points = zip(*(r[curve][:length] for r in of_side))
                    row[curve] = [list(chain.from_iterable(point)) for point in points]
                rows.append({**row, "id": " ".join(r["id"] for r in of_side if "id" in r)})
    return rows


ROWS: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "learning": lambda records: learning_rows([r for r in records if not is_outside(r)]),
    "outside": lambda records: learning_rows([r for r in records if is_outside(r)]),
    "mjlab_learning": sides,
}
MEASURED: Column = (
    "measured", lambda r: f"{'CPU' if r['device'] == 'cpu' else r['label'].split()[0]}, {r['date'].split()[0]}",
)  # fmt: skip
MEASURED_WITH: Column = ("measured", lambda r: f"{place(r)}, {r['date'].split()[0]}")  # the simulator's version
COLUMNS: dict[str, list[Column]] = {
    "learning": [
        ("task, baseline", lambda r: f"{r['task']}, {name(r)}"),
        ("seeds x environments", lambda r: f"{r['seeds']} x {r['envs']:,}"),
        ("time of training", lambda r: _time(r["seconds"])),
        ("env-steps of each", _steps),
        ("fitness, mean of seeds and 95 % interval", lambda r: interval(r["fitness"], r["task"])),
        ("target", _reached),
    ],
}
COLUMNS["outside"] = COLUMNS["learning"]
