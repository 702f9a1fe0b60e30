"""The numbers of a run for the charts of its page, as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envcoder_bench.report.curves import over_seeds
from envcoder_bench.report.figures import COLOURS
from envcoder_bench.report.html import visible
from envcoder_bench.report.ranking import Ranked
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, UNTRAINED

if TYPE_CHECKING:
    import pandas as pd

METRICS = ("fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss")
OWN_COLOURS = {HUMAN: "#1b2330", UNSHAPED: "#8a94a2", UNTRAINED: "#b5a58a"}
MOST_POINTS = 200  # of a curve
MOST_NUMBERS = 25_000  # of a metric's curves of all candidates: a page of hundreds is thinned
LEAST_POINTS = 50
MOST_COMPONENTS = 60  # of a candidate
SHOWN = len(COLOURS)  # candidates whose curves are on at first, besides the baselines


def plain_number(value: Any) -> float | None:
    """Return a number with five digits; None if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.5g}")


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it is in."""
    plain = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        plain = plain.replace(char, f"\\u{ord(char):04x}")
    return plain


def colours(ranked: Sequence[Ranked]) -> dict[str, str]:
    """Return the colour of each candidate, as in the pictures; candidates behind the first ones repeat them."""
    found, own = {}, [row.candidate for row in ranked if not row.baseline]
    for k, name in enumerate(own):
        found[name] = COLOURS[k % len(COLOURS)]
    return {**found, **OWN_COLOURS}


def candidates(ranked: Sequence[Ranked], trained: set[str]) -> list[dict[str, Any]]:
    """Return name, colour and state of each candidate, best first."""
    found, palette = [], colours(ranked)
    places = [row.candidate for row in ranked if not row.baseline]
    for row in ranked:
        first = row.baseline or places.index(row.candidate) < SHOWN
        found.append(
            {
                "name": visible(row.candidate),
                "color": palette[row.candidate],
                "trained": row.candidate in trained,
                "shown": first and row.candidate in trained,
            }
        )
    return found


def curves(table: pd.DataFrame) -> dict[str, Any] | None:
    """Return the mean of each metric over the seeds by candidate, and the range of the seeds.

    Returns:
        ``x``: env-steps, thinned to MOST_POINTS; ``metrics``: by name and candidate lists for ``x``, with None for
        missing values. None if there are no curves.
    """
    if table.empty:
        return None
    steps: list[int] = sorted(int(x) for x in table["env_steps"].unique())
    evaluated: Any = table.loc[table["fitness"].notna(), "env_steps"]
    measured = {int(step) for step in evaluated}
    every = -(-len(steps) // _most_points(len(set(table["candidate"]))))
    x = [step for k, step in enumerate(steps) if k % every == 0 or step in measured]
    kept: Any = table[table["env_steps"].isin(x)]
    several = len(set(table["seed"])) > 1
    metrics: dict[str, Any] = {}
    for metric in METRICS:
        own: Any = kept[kept[metric].notna()]
        points = over_seeds(own, metric) if len(own) else own
        lines: dict[str, Any] = {}
        for name in dict.fromkeys(own["candidate"]):
            rows = points.loc[name]
            columns = {"mean": "mean", "low": "min", "high": "max"} if several else {"mean": "mean"}
            lines[visible(name)] = {key: _aligned(rows[column], x) for key, column in columns.items()}
        if lines:
            metrics[metric] = lines
    return {"x": x, "metrics": metrics}


def _most_points(candidates: int) -> int:
    """Return the number of points of a curve."""
    return max(LEAST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(1, candidates)))


def add_untrained(curves: dict[str, Any] | None, ranked: Sequence[Ranked]) -> list[str]:
    """Add the untrained policy's fitness to curves as a horizontal line; return its names, one for each run."""
    fitness = {} if curves is None else curves["metrics"].get("fitness", {})
    if curves is None or not fitness:
        return []
    rows = [row for row in ranked if row.candidate.split(": ")[-1] == UNTRAINED and row.rank is not None]
    for row in rows:
        fitness[visible(row.candidate)] = {"mean": [plain_number(row.fitness)] * len(curves["x"])}
    return [row.candidate for row in rows]


def components(table: pd.DataFrame, order: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return the reward components of each candidate over its training, mean of the seeds."""
    found, rows = [], dict(iter(table.groupby("candidate", sort=False)))
    most = _most_points(len(rows))
    for name in order:
        own: Any = rows.get(name)
        if own is None:
            continue
        steps = sorted(int(x) for x in own["env_steps"].unique())
        x = steps[:: -(-len(steps) // most)]
        own = own[own["env_steps"].isin(x)]
        means = own.groupby(["component", "env_steps"])["mean"].mean()
        names = list(dict.fromkeys(own["component"]))[:MOST_COMPONENTS]
        series = [{"name": visible(part), "values": _aligned(means.loc[part], x)} for part in names]
        found.append({"name": visible(name), "x": x, "series": series})
    return found or None


def _aligned(column: Any, x: Sequence[int]) -> list[float | None]:
    known = dict(zip((int(step) for step in column.index), column))
    return [plain_number(known.get(step)) for step in x]
