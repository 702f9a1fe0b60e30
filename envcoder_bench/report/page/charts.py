"""The numbers of a run for the charts of its page, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envcoder_bench.core.plain_text import visible
from envcoder_bench.report.figures import COLOURS, further_colour
from envcoder_bench.report.page.shell import plain_number
from envcoder_bench.results.logs import over_seeds
from envcoder_bench.results.pairs import BETTER, CANNOT_TELL, WORSE, Pairs, advice, sentence
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.speed import target_fitness
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, UNTRAINED

if TYPE_CHECKING:
    import pandas as pd

METRICS = ("fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss")
DASHES = {UNSHAPED: (6, 4), UNTRAINED: (2, 3)}
RUN_DASHES = ((), (8, 4), (2, 3), (10, 3, 2, 3))  # the runs of a comparison, the first one solid
MOST_POINTS = 200  # a curve's
MOST_NUMBERS = 25_000  # a metric's, in the curves of all candidates: a page of hundreds is thinned
LEAST_POINTS = 50
MOST_COMPONENTS = 60  # a candidate's
MOST_PAIRED = 40  # rows of which the page has all pairs
PAIR_SIGNS = {BETTER: "+", WORSE: "-", CANNOT_TELL: ""}
SHOWN = len(COLOURS)  # candidates whose curves are on at first, besides the baselines


def colours(ranked: Sequence[Ranked]) -> dict[str, str]:
    """Return the colour of each row as CSS; a candidate of several runs has the same in all."""
    names = dict.fromkeys(row.name for row in ranked if not row.baseline)
    of_names = {name: f"var(--c{k})" if k < SHOWN else further_colour(k) for k, name in enumerate(names)}
    return {row.candidate: f"var(--{row.name})" if row.baseline else of_names[row.name] for row in ranked}


def candidates(ranked: Sequence[Ranked], trained: set[str]) -> list[dict[str, Any]]:
    """Return name, colour, state and groups of ties of each candidate, best first."""
    palette, runs = colours(ranked), sorted({row.run for row in ranked})
    plain = [row.candidate for row in ranked if not row.baseline]
    on_at_first = set(plain[:SHOWN]) | {row.candidate for row in ranked if row.baseline}
    return [
        {
            "name": visible(row.candidate),
            "color": palette[row.candidate],
            "dash": RUN_DASHES[runs.index(row.run) % len(RUN_DASHES)] if row.run else DASHES.get(row.name),
            "wide": row.name == HUMAN,
            "trained": row.candidate in trained,
            "shown": row.candidate in on_at_first & trained,
            "ties": row.tie_groups,
            "seeds": len(row.seeds),
            "fitness": plain_number(row.fitness) if row.rank is not None else None,
        }
        for row in ranked
    ]


def curves(table: pd.DataFrame, final: int | None = None) -> dict[str, Any] | None:
    """Return the mean of each metric over the seeds by candidate, and the range of the seeds.

    Args:
        final: the iteration of the final evaluation, whose episodes may be longer than those before.

    Returns:
        ``x``: env-steps, thinned to MOST_POINTS; ``final``: those of the final evaluation, or None; ``metrics``: by
        name and candidate lists for ``x``, with None for missing values. None without curves.
    """
    if table.empty:
        return None
    steps: list[int] = sorted(int(x) for x in table["env_steps"].unique())
    evaluated: Any = table.loc[table["fitness"].notna(), "env_steps"]
    measured = {int(step) for step in evaluated}
    # points with a fitness are rare, and none of them may be thinned out
    every = -(-len(steps) // _most_points(len(set(table["candidate"]))))
    x = [step for k, step in enumerate(steps) if k % every == 0 or step in measured]
    kept: Any = table[table["env_steps"].isin(x)]
    several = len(set(table["seed"])) > 1
    metrics: dict[str, Any] = {}
    for metric in METRICS:
        measured_rows: Any = kept[kept[metric].notna()]
        points = over_seeds(measured_rows, metric) if len(measured_rows) else measured_rows
        lines: dict[str, Any] = {}
        for name in dict.fromkeys(measured_rows["candidate"]):
            rows = points.loc[name]
            columns = {"mean": "mean", "low": "min", "high": "max"} if several else {"mean": "mean"}
            lines[visible(name)] = {key: _numbers(rows[column].reindex(x)) for key, column in columns.items()}
        if lines:
            metrics[metric] = lines
    at_end: Any = table.loc[table["iteration"] == final, "env_steps"]
    return {"x": x, "metrics": metrics, "final": int(at_end.max()) if len(at_end) else None}


def _most_points(candidates: int) -> int:
    """Return the number of points of a curve."""
    return max(LEAST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(1, candidates)))


def add_untrained(curves: dict[str, Any] | None, ranked: Sequence[Ranked]) -> list[str]:
    """Add the untrained policy's fitness to curves as a horizontal line; return its names, one for each run."""
    fitness = {} if curves is None else curves["metrics"].get("fitness", {})
    if curves is None or not fitness:
        return []
    rows = [row for row in ranked if row.name == UNTRAINED and row.rank is not None]
    for row in rows:
        fitness[visible(row.candidate)] = {"mean": [plain_number(row.fitness)] * len(curves["x"])}
    return [row.candidate for row in rows]


def components(table: pd.DataFrame, order: Sequence[str]) -> dict[str, Any] | None:
    """Return the reward components over the training, means of the seeds.

    Returns:
        ``candidates``: the components of each; ``shared``: the names of those that several have. None without any.
    """
    rows = dict(iter(table.groupby("candidate", sort=False)))
    most, charts = _most_points(len(rows)), []
    for name in (name for name in order if name in rows):
        of_candidate: Any = rows[name]
        # the same thinned steps for all components
        steps = sorted(int(x) for x in of_candidate["env_steps"].unique())
        x = steps[:: -(-len(steps) // most)]
        of_candidate = of_candidate[of_candidate["env_steps"].isin(x)]
        means = of_candidate.groupby(["component", "env_steps"])["mean"].mean()
        names = list(dict.fromkeys(of_candidate["component"]))[:MOST_COMPONENTS]
        series = [{"name": visible(part), "values": _numbers(means.loc[part].reindex(x))} for part in names]
        charts.append({"name": visible(name), "x": x, "series": series})
    counts = Counter(line["name"] for chart in charts for line in chart["series"])
    return {"candidates": charts, "shared": [name for name, count in counts.items() if count > 1]} if charts else None


def pairs(ranked: Sequence[Ranked], of: Pairs, folder: str) -> dict[str, Any]:
    """Return the pairs of the first MOST_PAIRED rows with a fitness.

    Returns:
        ``rows``: their indices; ``verdicts``: for each row those of the rows before it, as ``PAIR_SIGNS``; ``texts``:
        likewise, in words, of the row before against this one.
    """
    rows = [k for k, row in enumerate(ranked) if row.candidate in of.names][:MOST_PAIRED]
    verdicts, texts = [], []
    for position, k in enumerate(rows):
        compared = [of.of(ranked[j].candidate, ranked[k].candidate) for j in rows[:position]]
        verdicts.append([PAIR_SIGNS[pair.verdict] for pair in compared])
        texts.append([visible(". ".join(filter(None, (sentence(pair), advice(pair, folder))))) for pair in compared])
    return {"rows": rows, "verdicts": verdicts, "texts": texts}


def first_pair(ranked: Sequence[Ranked]) -> tuple[int, int]:
    """Return the two rows that are compared at first: the best candidate, and the human baseline or the next row."""
    first = next((k for k, row in enumerate(ranked) if row.rank is not None and not row.baseline), 0)
    human = (k for k, row in enumerate(ranked) if row.name == HUMAN and row.rank is not None and k != first)
    return first, next(human, first + 1 if first + 1 < len(ranked) else max(first - 1, 0))


def speed(table: pd.DataFrame, ranked: Sequence[Ranked]) -> dict[str, Any] | None:
    """Return the evaluations of each seed in the course of its training.

    Returns:
        ``before``: the fitness before training; ``target``: the one whose env-steps are shown at first, of the human
        baseline, or else of the best candidate; ``x``: env-steps; ``seeds``: by candidate, the fitness of each seed at
        ``x``. None if nothing has been learned.
    """
    first: dict[str, float] = {}  # the fitness of the best row of each name
    for row in ranked:
        if row.rank is not None:
            first.setdefault(row.name if row.baseline else "", row.fitness)
    evaluated: Any = table[table["fitness"].notna()] if len(table) else table
    before = first.get(UNTRAINED, float(evaluated["fitness"].min()) if len(evaluated) else np.nan)
    targets = (target_fitness(before, first.get(name, np.nan)) for name in (HUMAN, "", UNSHAPED))
    target = next((x for x in targets if not np.isnan(x)), None)
    if target is None or evaluated.empty:
        return None
    wide = evaluated.pivot_table(index=["candidate", "seed"], columns="env_steps", values="fitness")
    seeds: dict[str, Any] = {}
    for (name, _), values in zip(wide.index, wide.to_numpy()):
        seeds.setdefault(visible(name), []).append(_numbers(values))
    return {
        "before": plain_number(first.get(UNTRAINED)),
        "target": float(f"{target:.3g}"),
        "x": [int(steps) for steps in wide.columns],
        "seeds": seeds,
    }


def step_fitness(table: pd.DataFrame) -> dict[str, Any] | None:
    """Return where in the episodes of its last evaluation each seed has its fitness; None without any.

    Returns:
        ``times``: lists of the ends of bins, in seconds; ``of``: by candidate, ``time``: which of them, and by seed
        ``fitness`` of a step and ``active``: the share of the episodes that have not ended, left out if it is always 1.
    """
    times: list[list[float]] = []
    of: dict[str, Any] = {}
    whole = table.dropna(subset=["step", "seconds"])
    groups: Any = list(whole.groupby(["candidate", "seed"], sort=False))
    for (name, seed), rows in groups:
        # rounds of a search have the same baselines
        last: Any = rows[rows["iteration"] == rows["iteration"].max()].drop_duplicates(["step"], keep="last")
        # a page of many candidates has room for few bins
        every = -(-len(last) * len(groups) // MOST_NUMBERS)
        begin, steps = np.arange(0, len(last), every), np.diff(last["step"].to_numpy(), prepend=0)
        seconds = last["seconds"].to_numpy()[np.append(begin[1:] - 1, len(last) - 1)].tolist()
        if seconds not in times:
            times.append(seconds)
        courses = of.setdefault(visible(name), {"time": times.index(seconds), "fitness": {}, "active": {}})
        for column in ("fitness", "active"):
            means = np.add.reduceat(last[column].to_numpy() * steps, begin) / np.add.reduceat(steps, begin)
            if column == "fitness" or means.min() < 1:
                courses[column][str(seed)] = _numbers(float(f"{x:.4g}") for x in means)
    return {"times": times, "of": of} if of else None


def _numbers(values: Iterable[float]) -> list[float | None]:
    return list(map(plain_number, values))
