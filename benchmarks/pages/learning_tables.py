"""Tables of the tasks' records: learning of the baselines, their difference, and agreement of the simulators."""

from __future__ import annotations

import math
from typing import Callable, List, Sequence, Tuple

from envcoder_bench.report.statistics import UNBOUNDED, mean_interval
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNSHAPED

from .records import Record, latest, place

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
# fitness in Isaac Gym with IsaacGymEnvs' rewards, by the same formulas (Eureka, Ma et al. 2023)
PUBLISHED = {"isaacgymenvs:Ant": 6.8, "isaacgymenvs:Humanoid": 5.9, "isaacgymenvs:AllegroHand": 11.4}
SIMULATORS = {"mujoco_warp": "MuJoCo Warp", "mujoco_cpu": "MuJoCo"}
Points = List[Record]  # of one candidate in one training, in order
Column = Tuple[str, Callable[[Record], str]]


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


def counterpart(outside: Points, native: Sequence[Points]) -> Points | None:
    """Return the human curve of the native task with the same name, with as many environments if there is one."""
    same = [own for own in native if own[0]["task"] == outside[0]["task"].partition(":")[2]]
    same = [own for own in same if name(own[0]) == HUMAN and own[0]["device"] == outside[0]["device"]]
    return max(
        same,
        key=lambda own: (own[0]["envs"] == outside[0]["envs"], own[0]["seeds"], own[-1]["env_steps"]),
        default=None,
    )


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
    both = [(run, own) for run, own in trainings.items() if set(own) >= set(BASELINES)]
    for (task, _), own in sorted(both, key=lambda x: (x[1][HUMAN]["seeds"], x[0][1])):
        newest[task] = own
    rows = []
    for task in sorted(newest, key=_order):
        steps = 1.02 * min(row["env_steps"] for row in newest[task].values())
        own = {name: {**row, **_last_before(steps, row["points"])} for name, row in newest[task].items()}
        rows.append({**own[HUMAN], "unshaped": own[UNSHAPED], "sparse": own.get(SPARSE_REWARD)})
    return rows


def outside_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row for each curve of an outside task, with the native curve's fitness after as many env-steps."""
    native = curves([r for r in records if not is_outside(r)])
    rows = []
    for points in curves([r for r in records if is_outside(r)]):
        beside = counterpart(points, native)
        last = (
            points[-1]
            if beside is None
            else [p for p in points if p["env_steps"] <= 1.02 * beside[-1]["env_steps"]][-1]
        )
        rows.append({**points[-1], "at": last, "native": beside and _nearest(last["env_steps"], beside)})
    return rows


def _nearest(env_steps: float, points: Points) -> Record:
    return min(points, key=lambda p: abs(p["env_steps"] - env_steps))


def _last_before(env_steps: float, points: Points) -> Record:
    """What was measured by then."""
    last = [p for p in points if p["env_steps"] <= env_steps][-1]
    return {key: last[key] for key in ("fitness", "env_steps", "seconds")}


def transfer_rows(records: Sequence[Record]) -> list[Record]:
    shipped = [r for r in records if not r.get("overrides")]
    return sorted(latest(shipped, "transfer", "task", "candidate"), key=lambda r: _order(r["task"]))


def physics_rows(records: Sequence[Record]) -> list[Record]:
    found = [{**r, "setting": _setting(r)} for r in records if r["kind"] == "physics"]
    return sorted(latest(found, "physics", "task", "sim", "envs", "setting"), key=lambda r: _order(r["task"]))


def finer_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row for each baseline and its training, with the record of every setting in ``scores``."""
    rows = []
    known = [{**r, "trained": name(r, "trained_with"), "setting": _setting(r)} for r in records if r["kind"] == "finer"]
    found = latest(known, "finer", "task", "trained", "setting", "substeps")
    for task, trained in sorted({(r["task"], r["trained"]) for r in found}, key=lambda x: (_order(x[0]), x[1])):
        own = [r for r in found if (r["task"], r["trained"]) == (task, trained)]
        rows.append({**own[0], "scores": sorted(own, key=lambda r: -r["physics_step_ms"])})
    return rows


def _setting(record: Record) -> str:
    """Return integrator and physics step, such as ``discrete 10.0 ms``; empty if the record has none."""
    return f"{record['integrator']} {record['physics_step_ms']:.1f} ms" if "integrator" in record else ""


def _scores(row: Record) -> str:
    scores = ((r, r["setting"] or f"{r['physics_step_ms']:.1f} ms") for r in row["scores"])
    return ", ".join(f"{interval(r['fitness'], r['task'])} ({setting})" for r, setting in scores)


def _motion(row: Record) -> str:
    """Return how the policies move with the settings of their training and with the shortest physics step."""
    scores = [r for r in row["scores"] if "motion" in r]
    if not scores:
        return ""
    ends = (next((r for r in scores if _as_trained(r)), scores[0])["motion"], scores[-1]["motion"])
    quantities = (("joint_speed", "p99", ""), ("depth_mm", "p99", " mm"), ("power", "mean", " W"))
    return ", ".join(
        " / ".join(f"{sum(m[quantity][kind] for m in motion) / len(motion):.3g}" for motion in ends) + unit
        for quantity, kind, unit in quantities
    )


def _as_trained(record: Record) -> bool:
    own = [f"task.sim.mujoco.integrator={record['integrator']}", f"task.sim.substeps={record['substeps']}"]
    return set(own) <= set(record.get("trained_with", []))


def _played(row: Record) -> str:
    return f"{row['seeds']} x {row['episodes']}" if row.get("seeds", 1) > 1 else f"{row['episodes']}"


def _beside(row: Record) -> str:
    native, own = row["native"], row["at"]
    if native is None:
        return ""
    here, there = (f"{interval(x['fitness'], x['task'])} ({_steps(x)})" for x in (own, native))
    return f"{here}, native {there}"


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


def _difference(row: Record) -> str:
    pairs = zip(*(row["fitness"][sim] for sim in ("mujoco_warp", "mujoco_cpu")))
    return interval([None if None in pair else pair[0] - pair[1] for pair in pairs])


def _bold_if_better(row: Record, other: Record) -> str:
    """Return mean and interval, in bold if the whole interval is above the other's."""
    (_, low, _), (_, _, high) = (mean_interval(measured(r["fitness"]), bounds(r["task"])) for r in (row, other))
    own = interval(row["fitness"], row["task"])
    return f"**{own}**" if round(low, 2) > round(high, 2) else own


ROWS: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "learning": learning_rows, "outside": outside_rows, "gap": gap_rows, "transfer": transfer_rows,
    "physics": physics_rows, "finer": finer_rows,
}  # fmt: skip
COLUMNS: dict[str, list[Column]] = {
    "outside": [
        ("task, baseline", lambda r: f"{r['task']}, {name(r)}"),
        ("seeds x environments", _seeds),
        ("time of training", lambda r: _time(r["seconds"])),
        ("env-steps of each", _steps),
        ("fitness, mean of seeds and 95 % interval", lambda r: interval(r["fitness"], r["task"])),
        ("published", lambda r: f"{PUBLISHED[r['task']]:g}" if r["task"] in PUBLISHED else ""),
        ("beside the native task", lambda r: _beside(r)),
    ],
    "learning": [
        ("task, baseline", lambda r: f"{r['task']}, {name(r)}"),
        ("seeds x environments", _seeds),
        ("policies at once", lambda r: f"{r['policies']}"),
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
        ("measured", lambda r: f"{place(r)}, {r['date'].split()[0]}"),
    ],
    "transfer": [
        ("task, baseline", lambda r: f"{r['task']}, {r['candidate']}"),
        ("trained in", lambda r: SIMULATORS[r["trained_in"]]),
        ("MuJoCo Warp", lambda r: interval(r["fitness"]["mujoco_warp"], r["task"])),
        ("MuJoCo", lambda r: interval(r["fitness"]["mujoco_cpu"], r["task"])),
        ("difference, seed by seed", _difference),
        ("seeds x episodes", lambda r: f"{r['seeds']} x {r['episodes']}"),
    ],
    "finer": [
        ("task, baseline", lambda r: f"{r['task']}, {r['trained']}"),
        ("simulator", lambda r: SIMULATORS[r["sim"]]),
        ("fitness, mean and 95 % interval (physics)", _scores),
        ("joint speed and contact depth, 99th percentiles, and power: as trained / shortest step", _motion),
        ("seeds x episodes", _played),
    ],
    "physics": [
        ("task", lambda r: r["task"]),
        ("simulator", lambda r: SIMULATORS[r["sim"]]),
        ("integrator and physics step", lambda r: r["setting"]),
        ("environments", lambda r: f"{r['envs']:,}"),
        ("physics, env-steps/s", lambda r: f"{r['physics']:,.0f}"),
        ("times real time", lambda r: f"{r['physics'] * r['control_s']:,.0f}"),
    ],
}
