"""Summary and tests, compared with published and hand-computed numbers."""

import math

import pytest

from envcoder_bench.grid.tables import as_csv, compare, rank_policies, summarize


def _row(policy="a", arena="stairs", progress=1.0, completion=False, fall=False, **more):
    return {
        "policy": policy, "environment": arena, "progress": progress, "completion": completion, "fall_detected": fall,
        "flip_detected": False, "zone_reached": 1, "stability_score": 0.3, "mean_velocity": progress / 10,
        "total_energy": 5.0, "episode_length": 100, "time_to_complete": 60.0 if completion else None, **more,
    }  # fmt: skip


def test_summary_of_a_pair_matches_hand_computed_values() -> None:
    rows = [
        _row(progress=p, completion=c, fall=f)
        for p, c, f in ((2.0, False, True), (4.0, True, False), (9.0, True, False))
    ]
    (own,) = summarize(rows)
    assert (own["episodes"], own["completion_rate"], own["fall_rate"]) == (
        3,
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    )
    assert own["progress_mean"] == 5.0 and own["progress_median"] == 4.0
    assert own["progress_std"] == pytest.approx(math.sqrt((9 + 1 + 16) / 2))
    assert own["time_to_complete_mean"] == 60.0


def test_policies_are_compared_on_each_arena() -> None:
    rows = [_row("a", arena, progress=k) for arena in ("stairs", "grass") for k in range(20)]
    rows += [_row("b", arena, progress=k + 15, completion=True) for arena in ("stairs", "grass") for k in range(20)]
    table = compare(rows)
    assert {row["environment"] for row in table} == {"stairs", "grass"}
    progress = next(row for row in table if row["metric"] == "progress")
    assert progress["significant"] and progress["cohens_d"] < -2 and progress["p_holm"] > progress["p"]
    assert next(row for row in table if row["metric"] == "completion")["significant"]
    assert next(row for row in table if row["metric"] == "total_energy")["p"] is None


def test_policies_are_ranked_by_progress_over_all_terrains() -> None:
    rows = [_row("a", "stairs", 10.0), _row("a", "stairs", 20.0), _row("a", "grass", 5.0)]
    rows += [_row("b", "stairs", 1.0), _row("b", "grass", 40.0, completion=True)]
    ranked = rank_policies(rows)
    assert [(row["rank"], row["policy"], row["progress"]) for row in ranked] == [(1, "b", 20.5), (2, "a", 10.0)]
    assert ranked[0]["completion_rate"] == 0.5


def test_csv_has_empty_cells_for_none_and_quotes_for_commas() -> None:
    assert (
        as_csv(["a", "b", "c", "d"], [{"a": None, "b": True, "c": 0.25, "d": "e, f"}]) == 'a,b,c,d\n,true,0.25,"e, f"\n'
    )
