"""Tables of the tasks' records: learning of the baselines, and their difference."""

import math
from collections.abc import Callable, Sequence

from bench.records import Record, place
from bench.tables import Column

from envcoder_bench.report.statistics import UNBOUNDED, mean_interval
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN, UNSHAPED

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
SPARSE_REWARD = "no_reward"  # the human shaping with the sparse reward: Eureka's sparse baseline
# tasks whose fitness is one, from 0 to 1
FRACTIONS = ("Cartpole", "Anymal", "AnymalTerrain", "SpotTerrain", "FrankaCubeStack")
FRACTIONS += tuple(f"isaacgymenvs:{name}" for name in ("Cartpole", "FrankaCabinet", "FrankaCubeStack", "BallBalance"))
Points = list[Record]  # of one candidate in one training, in order


def bounds(task: str) -> tuple[float, float]:
    """Return the least and the greatest fitness of a task; also of one outside this repository, which is not loaded."""
    name = task.rpartition(":")[2]
    if task in FRACTIONS:
        return 0.0, 1.0
    return (0.0, math.inf) if name == "AllegroHand" else UNBOUNDED


def curves(records: Sequence[Record]) -> list[Points]:
    """Return the curve of every candidate from the latest training of each kind."""
    found: dict[tuple[str, str], dict[str, dict[str, Points]]] = {}
    for record in records:
        if record["kind"] == "learning":
            runs = found.setdefault((record["label"], record["what"]), {})
            runs.setdefault(record["run"], {}).setdefault(record["candidate"], []).append(record)
    return [
        sorted(points, key=lambda r: r["point"])
        for _, runs in sorted(found.items(), key=lambda x: (_order(x[0][1].split(":")[0]), x[0]))
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


def measured(fitness: Sequence[float | None]) -> list[float]:
    """Without those that failed."""
    return [x for x in fitness if x is not None]


def interval(fitness: Sequence[float | None], task: str = "") -> str:
    """Return mean and 95 % interval over seeds, as ``mean [low, high]`` if it was cut to the bounds of the fitness."""
    known = measured(fitness)
    mean, low, high = mean_interval(known, bounds(task))
    text = "failed" if not known else f"{mean:.2f}" if len(known) == 1 else f"{mean:.2f} ± {mean - low:.2f}"
    if abs((high - mean) - (mean - low)) >= 0.005:
        text = f"{mean:.2f} [{low:.2f}, {high:.2f}]"
    failed = len(fitness) - len(known)
    return text + (f" ({failed} failed)" if failed and known else "")


def mean_fitness(record: Record) -> float:
    return mean_interval(measured(record["fitness"]))[0]


def learning_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row for each curve: its end, and when it first reached its task's target."""
    rows = []
    for points in curves(records):
        target = TARGETS.get(points[0]["task"], (float("inf"), None))[0]
        reached = next((p for p in points if mean_fitness(p) >= target), None)
        commands = dict.fromkeys(p["command"] for p in points)
        rows.append({**points[-1], "reached": reached, "points": points, "command": "\n    ".join(commands)})
    return rows


def native_rows(records: Sequence[Record]) -> list[Record]:
    return learning_rows([r for r in records if not is_outside(r)])


def outside_rows(records: Sequence[Record]) -> list[Record]:
    return learning_rows([r for r in records if is_outside(r)])


def lengths_as_learning(study: Sequence[Record]) -> list[Record]:
    """Return the study's trainings of both baselines as records of ``learning``, one for each policy and evaluation.

    Also those that were stopped before their end.
    """
    return [
        {
            **record, "kind": "learning", "candidate": name, "fitness": fitness, "what": f"{record['task']}: lengths",
            "run": record["date"], "point": record["iteration"], "seconds": math.nan,
        }
        for record in study
        if record["kind"] == "lengths"
        for name, fitness in record["fitness"].items()
    ]  # fmt: skip


def gap_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row for each task: the newest training of both baselines with the settings of their time.

    Both are of one training, and so of one card and one version, after as many env-steps; with them the human
    baseline's shaping with the sparse reward, where it was trained beside them. Trainings with more seeds come first.
    """
    trainings: dict[tuple[str, str], dict[str, Record]] = {}
    for row in learning_rows(records):
        if not row.get("overrides"):
            trainings.setdefault((row["task"], row["run"]), {})[row["candidate"]] = row
    newest: dict[str, dict[str, Record]] = {}
    both = [(run, own) for run, own in trainings.items() if set(own) >= set(BASELINE_FILES)]
    for (task, _), own in sorted(both, key=lambda x: (x[1][HUMAN]["seeds"], x[0][1])):
        newest[task] = own
    rows = []
    for task in sorted(newest, key=_order):
        steps = 1.02 * min(row["env_steps"] for row in newest[task].values())
        own = {name: {**row, **_last_before(steps, row["points"])} for name, row in newest[task].items()}
        rows.append({**own[HUMAN], "unshaped": own[UNSHAPED], "sparse": own.get(SPARSE_REWARD)})
    return rows


def _last_before(env_steps: float, points: Points) -> Record:
    """What was measured by then."""
    last = [p for p in points if p["env_steps"] <= env_steps][-1]
    return {key: last[key] for key in ("fitness", "env_steps", "seconds")}


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


def _seeds(row: Record) -> str:
    return f"{row['seeds']} x {row['envs']:,}"


def _bold_if_better(row: Record, other: Record) -> str:
    """Return mean and interval, in bold if the whole interval is above the other's."""
    (_, low, _), (_, _, high) = (mean_interval(measured(r["fitness"]), bounds(r["task"])) for r in (row, other))
    own = interval(row["fitness"], row["task"])
    return f"**{own}**" if round(low, 2) > round(high, 2) else own


ROWS: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "learning": native_rows, "outside": outside_rows, "gap": gap_rows,
}  # fmt: skip
MEASURED: Column = (
    "measured", lambda r: f"{'CPU' if r['device'] == 'cpu' else r['label'].split()[0]}, {r['date'].split()[0]}",
)  # fmt: skip
MEASURED_WITH: Column = ("measured", lambda r: f"{place(r)}, {r['date'].split()[0]}")  # the simulator's version
COLUMNS: dict[str, list[Column]] = {
    "learning": [
        ("task, baseline", lambda r: f"{r['task']}, {name(r)}"),
        ("seeds x environments", _seeds),
        ("time of training", lambda r: _time(r["seconds"])),
        ("env-steps of each", _steps),
        ("fitness, mean of seeds and 95 % interval", lambda r: interval(r["fitness"], r["task"])),
        ("target", _reached),
    ],
    "gap": [
        ("task", lambda r: r["task"]),
        ("fitness", lambda r: UNITS.get(r["task"], "")),
        ("unshaped", lambda r: _bold_if_better(r["unshaped"], r)),
        ("human, sparse reward", lambda r: interval(r["sparse"]["fitness"], r["task"]) if r["sparse"] else ""),
        ("human", lambda r: _bold_if_better(r, r["unshaped"])),
        ("seeds x env-steps", lambda r: f"{r['seeds']} x {_steps(r)}"),
        MEASURED_WITH,
    ],
}
COLUMNS["outside"] = COLUMNS["learning"]
