"""Tables of a grid: a summary of each pair, and tests between policies on each arena."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from envcoder_bench.results.csv_log import table_text
from envcoder_bench.results.statistics import LEVEL, holm, proportions, rate_interval, welch

METRICS = ("progress", "zone_reached", "stability_score", "mean_velocity", "total_energy", "episode_length")
RATES = {"completion": "completion_rate", "fall_detected": "fall_rate", "flip_detected": "flip_rate"}
TESTED = ("progress", "stability_score", "mean_velocity", "total_energy")  # compared by Welch's t test
TESTED_RATES = ("completion", "fall_detected")  # compared by the two-proportion z test
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


def pairs_of(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the episodes of each policy and arena, in their order."""
    pairs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        pairs.setdefault((row["policy"], row["environment"]), []).append(row)
    return pairs


def summarize(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row of SUMMARY_COLUMNS for each policy and arena; deviations are those of samples."""
    table = []
    for (policy, arena), episodes in pairs_of(rows).items():
        row: dict[str, Any] = {"policy": policy, "environment": arena, "episodes": len(episodes)}
        for key, rate in RATES.items():
            count = sum(bool(episode[key]) for episode in episodes)
            row[rate] = count / len(episodes)
            row[f"{rate}_low"], row[f"{rate}_high"] = rate_interval(count, len(episodes))
        for metric in METRICS:
            values = np.array([episode[metric] for episode in episodes], dtype=np.float64)
            row[f"{metric}_mean"] = float(values.mean())
            row[f"{metric}_std"] = float(values.std(ddof=1)) if len(values) > 1 else None
        row["progress_median"] = float(np.median([episode["progress"] for episode in episodes]))
        times = [episode["time_to_complete"] for episode in episodes if episode["time_to_complete"] is not None]
        row["time_to_complete_mean"] = float(np.mean(times)) if times else None
        table.append(row)
    return table


def rank_policies(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row of RANKING_COLUMNS for each policy, best first.

    The rank uses the mean over terrains of the mean progress of a pair: each terrain has the same weight.
    """
    table: dict[str, list[dict[str, Any]]] = {}
    for row in summarize(rows):
        table.setdefault(row["policy"], []).append(row)

    def mean(pair_rows: list[dict[str, Any]], key: str) -> float:
        return sum(row[key] for row in pair_rows) / len(pair_rows)

    keys = {"progress": "progress_mean", "completion_rate": "completion_rate", "fall_rate": "fall_rate"}
    ranked = [
        {"policy": policy, **{name: mean(pair_rows, key) for name, key in keys.items()}}
        for policy, pair_rows in table.items()
    ]
    ranked.sort(key=lambda row: (-row["progress"], -row["completion_rate"], row["policy"]))
    return [{"rank": k + 1, **row} for k, row in enumerate(ranked)]


def compare(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row of TEST_COLUMNS for each arena, metric and pair of policies.

    Means are compared by Welch's t test, with Cohen's d of the pooled deviation; rates by the two-proportion z test
    with pooled variance. ``p_holm`` is Holm's correction over all rows. An empty p means that the samples do not vary.
    """
    pairs = pairs_of(rows)
    policies = list(dict.fromkeys(policy for policy, _ in pairs))
    table: list[dict[str, Any]] = []
    for arena in dict.fromkeys(arena for _, arena in pairs):
        present = [policy for policy in policies if (policy, arena) in pairs]
        for names in combinations(present, 2):
            first, second = (pairs[name, arena] for name in names)
            for metric in (*TESTED, *TESTED_RATES):
                about = dict(environment=arena, metric=metric, policy_a=names[0], policy_b=names[1])
                table.append({**about, **_test(metric, first, second)})
    for row, p in zip(table, holm([math.nan if row["p"] is None else row["p"] for row in table])):
        is_tested = row["p"] is not None
        row.update(p_holm=p if is_tested else None, significant=p < LEVEL if is_tested else None)
    return table


def _test(metric: str, first: Sequence[Row], second: Sequence[Row]) -> dict[str, Any]:
    """Return means and the test of a metric of two policies on an arena."""
    x, y = ([float(row[metric]) for row in rows] for rows in (first, second))
    row: dict[str, Any] = {"a": float(np.mean(x)), "b": float(np.mean(y))}
    if metric in TESTED:
        return {**row, "test": "Welch t", **welch(x, y)}
    z, p = proportions((int(sum(x)), int(sum(y))), (len(x), len(y)))
    return {**row, "test": "two-proportion z", "statistic": z, "degrees_of_freedom": None, "p": p, "cohens_d": None}


def as_csv(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Return a table as CSV; None is empty."""
    return table_text(columns, ([row[column] for column in columns] for row in rows), digits=6)
