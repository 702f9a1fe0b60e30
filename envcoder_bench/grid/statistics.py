"""Tables of a grid: a summary of each pair, and tests between policies on each arena."""

from __future__ import annotations

import csv
import io
import math
from itertools import combinations
from typing import Any, Sequence

import numpy as np

from envcoder_bench.report.statistics import holm

METRICS = ("progress", "zone_reached", "stability_score", "mean_velocity", "total_energy", "episode_length")
RATES = {"completion": "completion_rate", "fall_detected": "fall_rate", "flip_detected": "flip_rate"}
TESTED = ("progress", "stability_score", "mean_velocity", "total_energy")  # by Welch's t
TESTED_RATES = ("completion", "fall_detected")  # by two-proportion z
SUMMARY_COLUMNS = (
    "policy", "environment", "episodes",
    *(name for rate in RATES.values() for name in (rate, f"{rate}_low", f"{rate}_high")),
    *(name for metric in METRICS for name in (f"{metric}_mean", f"{metric}_std")), "progress_median",
    "time_to_complete_mean",
)  # fmt: skip
RANKING_COLUMNS = ("rank", "policy", "progress", "completion_rate", "fall_rate")
TEST_COLUMNS = (
    "environment", "metric", "policy_a", "policy_b", "a", "b", "test", "statistic", "degrees_of_freedom", "p", "p_holm",
    "cohens_d", "significant",
)  # fmt: skip

Row = dict  # a line of episodes.jsonl


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's interval of a proportion, 95 % by default (Wilson, JASA 1927)."""
    if not trials:
        return 0.0, 1.0
    rate, square = successes / trials, z * z / trials
    center = (rate + 0.5 * square) / (1.0 + square)
    half = z / (1.0 + square) * math.sqrt(rate * (1.0 - rate) / trials + square / (4.0 * trials))
    return max(0.0, center - half), min(1.0, center + half)


def pairs_of(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the episodes of each policy and arena, in their order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["policy"], row["environment"]), []).append(row)
    return found


def summarize(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row of SUMMARY_COLUMNS for each policy and arena; deviations are those of samples."""
    table = []
    for (policy, arena), own in pairs_of(rows).items():
        row: dict[str, Any] = {"policy": policy, "environment": arena, "episodes": len(own)}
        for key, rate in RATES.items():
            count = sum(bool(episode[key]) for episode in own)
            row[rate] = count / len(own)
            row[f"{rate}_low"], row[f"{rate}_high"] = wilson(count, len(own))
        for metric in METRICS:
            values = np.array([episode[metric] for episode in own], dtype=np.float64)
            row[f"{metric}_mean"] = float(values.mean())
            row[f"{metric}_std"] = float(values.std(ddof=1)) if len(values) > 1 else None
        row["progress_median"] = float(np.median([episode["progress"] for episode in own]))
        times = [episode["time_to_complete"] for episode in own if episode["time_to_complete"] is not None]
        row["time_to_complete_mean"] = float(np.mean(times)) if times else None
        table.append(row)
    return table


def rank_policies(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row of RANKING_COLUMNS for each policy, best first.

    The rank uses the mean over terrains of the mean progress of a pair, so that each terrain counts as much.
    """
    table: dict[str, list[dict[str, Any]]] = {}
    for row in summarize(rows):
        table.setdefault(row["policy"], []).append(row)

    def mean(own: list[dict[str, Any]], key: str) -> float:
        return sum(row[key] for row in own) / len(own)

    keys = {"progress": "progress_mean", "completion_rate": "completion_rate", "fall_rate": "fall_rate"}
    ranked = [
        {"policy": policy, **{name: mean(own, key) for name, key in keys.items()}} for policy, own in table.items()
    ]
    ranked.sort(key=lambda row: (-row["progress"], -row["completion_rate"], row["policy"]))
    return [{"rank": k + 1, **row} for k, row in enumerate(ranked)]


def compare(rows: Sequence[Row], level: float = 0.05) -> list[dict[str, Any]]:
    """Return a row of TEST_COLUMNS for each arena, metric and pair of policies.

    Means are compared by Welch's t test, with Cohen's d of the pooled deviation; rates by the two-proportion z test
    with pooled variance. ``p_holm`` is Holm's correction over all rows. An empty p means that the samples do not vary.
    """
    pairs = pairs_of(rows)
    policies = list(dict.fromkeys(policy for policy, _ in pairs))
    table: list[dict[str, Any]] = []
    for arena in dict.fromkeys(arena for _, arena in pairs):
        present = [policy for policy in policies if (policy, arena) in pairs]
        for a, b in combinations(present, 2):
            for metric in TESTED:
                first, second = ([float(row[metric]) for row in pairs[policy, arena]] for policy in (a, b))
                table.append(
                    {"environment": arena, "metric": metric, "policy_a": a, "policy_b": b, **welch(first, second)}
                )
            for metric in TESTED_RATES:
                first, second = ([bool(row[metric]) for row in pairs[policy, arena]] for policy in (a, b))
                counts = (sum(first), len(first), sum(second), len(second))
                table.append(
                    {"environment": arena, "metric": metric, "policy_a": a, "policy_b": b, **proportions(*counts)}
                )
    for row, p in zip(table, holm([math.nan if row["p"] is None else row["p"] for row in table])):
        known = row["p"] is not None
        row.update(p_holm=p if known else None, significant=p < level if known else None)
    return table


def welch(a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Compare two means."""
    from scipy import stats

    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    row: dict[str, Any] = {"a": float(x.mean()), "b": float(y.mean()), "test": "Welch t"}
    row.update(statistic=None, degrees_of_freedom=None, p=None, cohens_d=None)
    if min(len(x), len(y)) < 2:
        return row
    pooled = ((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / (len(x) + len(y) - 2)
    # identical episodes, but for rounding, are no sample of anything
    if pooled <= (1e-9 * max(abs(row["a"]), abs(row["b"]), 1e-12)) ** 2:
        return row
    found: Any = stats.ttest_ind(x, y, equal_var=False)
    row.update(statistic=float(found.statistic), degrees_of_freedom=float(found.df), p=float(found.pvalue))
    row["cohens_d"] = float((x.mean() - y.mean()) / math.sqrt(pooled))
    return row


def proportions(successes_a: int, trials_a: int, successes_b: int, trials_b: int) -> dict[str, Any]:
    """Compare two rates."""
    from scipy import stats

    a, b = successes_a / trials_a, successes_b / trials_b
    row: dict[str, Any] = {"a": a, "b": b, "test": "two-proportion z"}
    row.update(statistic=None, degrees_of_freedom=None, p=None, cohens_d=None)
    pooled = (successes_a + successes_b) / (trials_a + trials_b)
    if 0.0 < pooled < 1.0:
        z = (a - b) / math.sqrt(pooled * (1.0 - pooled) * (1.0 / trials_a + 1.0 / trials_b))
        row.update(statistic=z, p=float(2.0 * stats.norm.sf(abs(z))))
    return row


def as_csv(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Return a table as CSV; None is empty."""

    def cell(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, float):
            return f"{value:.6g}"
        return str(value).lower() if isinstance(value, bool) else str(value)

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([list(columns), *([cell(row[c]) for c in columns] for row in rows)])
    return text.getvalue()
