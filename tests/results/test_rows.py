from dataclasses import asdict, replace

import pandas as pd
import pytest

from envcoder_bench.results.rows import (
    FAILED,
    FAILED_AT_LOAD,
    RUNNING,
    STOPPED,
    Result,
    best_mean,
    read_results,
    result_of,
    write_results,
)
from envcoder_bench.shaping.contract import Fault

RESULTS = [
    Result(
        *("001", 0, "ok", 0.5, 0.4, 0.6),
        **{"episodes": 64, "episode_length": 812.25, "shaped_return": 12.125, "env_steps": 98304},
        **{"unstable_resets": 3, "training_episodes": 40, "contact_overflows": 7},
    ),
    Result("human", 1, RUNNING, fitness=1 / 3, env_steps=2**40),
    Result("nan", 0, FAILED, fault=Fault("returned NaN", 'a, "b".py', 12, "compute_reward", "not finite")),
    Result("x", 7, FAILED_AT_LOAD, fault=Fault("invalid syntax", "x.py", 1)),
    Result("y", 0, STOPPED, 0.25, stopped_at=30, reason="rank 9 of 9: 0.5 behind"),
    Result("z", 0, "ok", 0.5, half_step_fitness=0.125, hacked="fitness fell"),
]


def test_results_file_has_expected_columns_and_bytes(tmp_path):
    write_results(tmp_path / "a.csv", RESULTS)
    assert (tmp_path / "a.csv").read_text() == (
        "candidate,seed,status,fitness,fitness_ci_low,fitness_ci_high,episodes,episode_length,shaped_return,"
        "env_steps,unstable_resets,training_episodes,contact_overflows,stopped_at,reason,"
        "ended,half_step_fitness,hacked,error,fault\n"
        "001,0,ok,0.5,0.4,0.6,64,812.25,12.125,98304,3,40,7,0,,,,,,\n"
        "human,1,running,0.333333333,,,0,,,1099511627776,0,0,0,0,,,,,,\n"
        'nan,0,failed,,,,0,,,0,0,0,0,0,,,,,"a, ""b"".py:12: in compute_reward: returned NaN",'
        '"{""message"": ""returned NaN"", ""file"": ""a, \\""b\\"".py"", ""line"": 12, '
        '""function"": ""compute_reward"", ""kind"": ""not finite""}"\n'
        "x,7,failed at load,,,,0,,,0,0,0,0,0,,,,,x.py:1: invalid syntax,"
        '"{""message"": ""invalid syntax"", ""file"": ""x.py"", ""line"": 1}"\n'
        "y,0,stopped,0.25,,,0,,,0,0,0,0,30,rank 9 of 9: 0.5 behind,,,,,\n"
        "z,0,ok,0.5,,,0,,,0,0,0,0,0,,,0.125,fitness fell,,\n"
    )
    write_results(tmp_path / "b.csv", read_results(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_faults_come_back_as_they_were(tmp_path):
    write_results(tmp_path / "a.csv", RESULTS)
    assert [row.fault for row in read_results(tmp_path / "a.csv")] == [row.fault for row in RESULTS]
    assert [result_of(asdict(row)).fault for row in RESULTS] == [row.fault for row in RESULTS]


@pytest.mark.parametrize("cell", ["{", "3", '"[1]"', "[" * 90_000])
def test_a_damaged_fault_is_told_with_its_row(tmp_path, cell):
    (tmp_path / "a.csv").write_text(f"candidate,seed,status,fitness,fault\nx,0,failed,,{cell}\n")
    with pytest.raises(ValueError, match=r"a\.csv: row 1: "):
        read_results(tmp_path / "a.csv")


def test_columns_are_read_by_name_in_any_order_with_more_or_fewer(tmp_path):
    write_results(tmp_path / "a.csv", RESULTS)
    table = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    table["of_a_later_version"] = "7"
    table = table[sorted(table.columns)].drop(columns="hacked")
    table.to_csv(tmp_path / "b.csv", index=False)
    expected = [replace(result, hacked="") for result in read_results(tmp_path / "a.csv")]
    assert str(read_results(tmp_path / "b.csv")) == str(expected)


@pytest.mark.parametrize("column", ["candidate", "seed", "status", "fitness"])
def test_a_table_without_a_needed_column_is_refused(tmp_path, column):
    write_results(tmp_path / "a.csv", RESULTS)
    pd.read_csv(tmp_path / "a.csv", dtype=str).drop(columns=column).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match=rf"b\.csv: not a results\.csv; it has no column {column}"):
        read_results(tmp_path / "b.csv")


def test_unknown_status_is_refused():
    with pytest.raises(ValueError, match=r"a: status 'fine'; it must be one of ok, running, failed, failed at load"):
        Result("a", 0, "fine")


def test_results_that_are_no_text_are_named(tmp_path):
    (tmp_path / "results.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"results\.csv: 'utf-8' codec can't decode"):
        read_results(tmp_path / "results.csv")


def test_best_candidate_so_far_has_the_highest_mean_over_its_seeds():
    """Not the best seed: a candidate with one lucky seed is not the best."""
    scores = [("lucky", 1.0), ("lucky", 0.0), ("even", 0.6), ("even", 0.7), ("gone", float("nan"))]
    assert best_mean(scores) == ("even", pytest.approx(0.65))
    assert best_mean([("gone", float("nan"))]) is None and best_mean([]) is None
