"""The files that a run appends to: their rows, their ends after a kill, and their readers."""

import csv
import io
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from page_fakes import fake_page

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.page.run import render_page
from envcoder_bench.results.csv_log import line, sort_rows
from envcoder_bench.results.logs import (
    ComponentLog,
    ComponentStats,
    CurveLog,
    EpisodeLog,
    Point,
    PointLog,
    StepFitnessLog,
    over_seeds,
    read_curves,
    read_episodes,
    read_points,
)

CANDIDATES = ("001", 'comma, "quote"')
KINDS = {
    "curves.csv": CurveLog, "components.csv": ComponentLog, "points.csv": PointLog, "episodes.csv": EpisodeLog,
    "step_fitness.csv": StepFitnessLog,
}  # fmt: skip
ROWS = {"curves.csv": 2, "components.csv": 4, "points.csv": 4, "episodes.csv": 2, "step_fitness.csv": 4}  # an iteration


def point(candidate, iteration):
    components = {"total reward": (0.5 * iteration, -1.0, 2.5), "up, down": (math.nan, 0.1, 1e-9)}
    numbers = (iteration / 3, 100.25, components, math.nan if iteration == 1 else 1 / iteration)
    return Point(candidate, 0, iteration, 100 * iteration, *numbers)


def add(log, candidate, iteration):
    group = (iteration, 100 * iteration, candidate, 0)
    if isinstance(log, CurveLog):
        fitness = 0.1 * iteration if iteration % 2 == 0 else None
        log.add(*group, {"fitness": fitness, "kl": math.nan, "entropy": 1 / 3})
    elif isinstance(log, ComponentLog):
        log.add(*group, {"track": float(iteration), f"own, of {candidate}": math.nan})
    elif isinstance(log, PointLog):
        log.add(point(candidate, iteration))
    elif isinstance(log, StepFitnessLog):
        log.add(*group, [9, 19], ([iteration / 3, math.nan], [1.0, 0.25]), dt=0.02)
    else:
        log.add(*group, [iteration / 3, -1e-7])


def write(log, iterations, candidates=CANDIDATES):
    for iteration in iterations:
        for candidate in candidates:
            add(log, candidate, iteration)
        log.flush()
    log.close()


@pytest.fixture(params=KINDS)
def name(request):
    return request.param


@pytest.fixture
def full(name, tmp_path):
    """The file of an uninterrupted run of eight iterations."""
    write(KINDS[name](tmp_path / "full.csv"), range(1, 9))
    return (tmp_path / "full.csv").read_bytes()


def test_files_have_expected_rows_and_columns(tmp_path):
    for name, kind in KINDS.items():
        write(kind(tmp_path / name), [2])
    assert {name: (tmp_path / name).read_text().splitlines()[:3] for name in KINDS} == {
        "curves.csv": [
            "iteration,env_steps,candidate,seed,fitness,shaped_return,kl,learning_rate,entropy,value_loss",
            "2,200,001,0,0.2,,,,0.333333333,",
            '2,200,"comma, ""quote""",0,0.2,,,,0.333333333,',
        ],
        "components.csv": [
            "iteration,env_steps,candidate,seed,component,mean",
            "2,200,001,0,track,2",
            '2,200,001,0,"own, of 001",',
        ],
        "points.csv": [
            "iteration,env_steps,candidate,seed,fitness,episode_length,shaped_return,component,mean,min,max",
            "2,200,001,0,0.666666667,100.25,0.5,total reward,1,-1,2.5",
            '2,200,001,0,0.666666667,100.25,0.5,"up, down",,0.1,1e-09',
        ],
        "episodes.csv": [
            "iteration,env_steps,candidate,seed,fitness",
            "2,200,001,0,0.666666667 -1e-07",
            '2,200,"comma, ""quote""",0,0.666666667 -1e-07',
        ],
        "step_fitness.csv": [
            "iteration,env_steps,candidate,seed,step,seconds,fitness,active",
            "2,200,001,0,9,0.18,0.666667,1",
            "2,200,001,0,19,0.38,,0.25",
        ],
    }


def test_values_round_trip(tmp_path):
    for name, kind in KINDS.items():
        write(kind(tmp_path / name), [1, 2])
    curves = read_curves(tmp_path / "curves.csv")
    assert curves["candidate"].tolist() == list(CANDIDATES) * 2
    np.testing.assert_allclose(curves["fitness"], [np.nan, np.nan, 0.2, 0.2])
    components = read_curves(tmp_path / "components.csv")
    assert components[components["component"] == "track"]["mean"].tolist() == [1.0, 1.0, 2.0, 2.0]
    steps = read_curves(tmp_path / "step_fitness.csv", StepFitnessLog.columns)
    assert steps["step"].tolist() == [9, 19] * 4 and steps["active"].tolist() == [1.0, 0.25] * 4
    with pytest.raises(UserError, match="damaged: its columns must begin with"):
        read_curves(tmp_path / "curves.csv", StepFitnessLog.columns)
    (tmp_path / "step_fitness.csv").write_text((tmp_path / "step_fitness.csv").read_text().replace("0.38", "late"))
    with pytest.raises(UserError, match="damaged: seconds has other values than numbers"):
        read_curves(tmp_path / "step_fitness.csv", StepFitnessLog.columns)
    episodes = read_episodes(tmp_path / "episodes.csv")
    assert list(episodes) == [1, 2] and episodes[2][CANDIDATES[1], 0] == pytest.approx((2 / 3, -1e-7), rel=1e-8)
    points = read_points(tmp_path / "points.csv")
    for read, wanted in zip(points, (point(name, k) for k in (1, 2) for name in CANDIDATES), strict=True):
        for field, value in vars(wanted).items():
            if field == "components":
                assert {name: pytest.approx(stats, rel=1e-8, nan_ok=True) for name, stats in value.items()} == (
                    read.components
                )
            else:
                exact = isinstance(value, (str, int))
                assert getattr(read, field) == (value if exact else pytest.approx(value, rel=1e-8, nan_ok=True))
    assert points[0].components["total reward"] == ComponentStats(mean=0.5, min=-1.0, max=2.5)


def test_flushed_rows_are_on_disk_at_once(tmp_path):
    log = CurveLog(tmp_path / "curves.csv")
    assert len(read_curves(tmp_path / "curves.csv")) == 0
    add(log, "001", 2)
    log.flush()
    assert read_curves(tmp_path / "curves.csv")[["candidate", "fitness"]].values.tolist() == [["001", 0.2]]
    log.close()
    CurveLog(tmp_path / "curves.csv").close()  # a new log replaces an old one
    assert len(read_curves(tmp_path / "curves.csv")) == 0


@pytest.mark.parametrize("checkpoint", [0, 1, 5])
@pytest.mark.parametrize("torn", [0, 1, 17])  # bytes of the last line
def test_resumed_file_equals_the_uninterrupted_one(tmp_path, name, full, checkpoint, torn):
    path = tmp_path / name
    write(KINDS[name](path), range(1, 7))
    path.write_bytes(path.read_bytes()[: path.stat().st_size - torn])
    log = KINDS[name].resume(path, checkpoint, rows=ROWS[name] * checkpoint)
    assert log.lost == 0
    write(log, range(checkpoint + 1, 9))
    assert path.read_bytes() == full


def test_sorted_rows_of_waves_equal_one_training(tmp_path, name):
    together, path = tmp_path / "together.csv", tmp_path / name
    write(KINDS[name](together), range(1, 13), ["b", 'a, "1"', "c"])
    write(KINDS[name](path), range(1, 13), ["b", 'a, "1"'])
    # killed after eight iterations of the second wave, and last saved after five
    write(KINDS[name].resume(path, 12), range(1, 9), ["c"])
    log = KINDS[name].resume(path, 5, {("b", 0), ('a, "1"', 0)}, rows=29 * ROWS[name] // 2)
    assert log.lost == 0
    write(log, range(6, 13), ["c"])
    for _ in range(2):  # doing it again changes nothing
        sort_rows(path)
        assert path.read_bytes() == together.read_bytes()


@pytest.mark.parametrize(
    "damage, lost",
    [
        (lambda content: content[:-60], 2),
        (lambda content: content[:30], 6),  # within the first line
        (lambda content: b"", 6),
        (None, 6),
        (lambda content: content.replace(b"2,200,001,0", b"\0\0\0\0"), 1),
        (lambda content: content.replace(b"2,200,001,0", b"2,200"), 1),
    ],
    ids=["end", "header", "empty", "missing", "zeros", "cells"],
)
def test_lost_rows_are_counted(tmp_path, damage, lost):
    path = tmp_path / "curves.csv"
    write(CurveLog(path), range(1, 4))
    before = path.read_bytes().splitlines()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    log = CurveLog.resume(path, 3, rows=6)
    assert (log.lost, log.rows) == (lost, 6 - lost)
    log.close()
    kept = path.read_bytes().splitlines()
    assert kept[0] == before[0] and len(kept) == 7 - lost and set(kept) <= set(before)


@pytest.mark.parametrize("read", [read_points, read_episodes, lambda path: CurveLog.resume(path, 1)])
def test_other_file_is_refused_unchanged(tmp_path, read):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv.* must be iteration, ?env_steps"):
        read(path)
    assert path.read_text() == "a,b\n1,2\n"


def test_damaged_episodes_are_refused_by_line(tmp_path):
    (tmp_path / "episodes.csv").write_text("iteration,env_steps,candidate,seed,fitness\n1,2,a,0,x y\n")
    with pytest.raises(ValueError, match="line 2"):
        read_episodes(tmp_path / "episodes.csv")


def test_unknown_scalar_is_refused(tmp_path):
    log = CurveLog(tmp_path / "curves.csv")
    with pytest.raises(KeyError, match="no column 'fitnes'"):
        log.add(1, 1, "a", 0, {"fitnes": 1.0})
    log.close()


def test_line_breaks_in_names_do_not_split_rows(tmp_path):
    path = tmp_path / "components.csv"
    log = ComponentLog(path)
    log.add(1, 1, "a", 0, {"two\nlines": 1.0})
    log.close()
    ComponentLog.resume(path, 1).close()
    assert read_curves(path)[["component", "mean"]].values.tolist() == [["two lines", 1.0]]


def test_line_is_that_of_csv_writer():
    parts = ("", "a", 'b"', "c,", "d\n", "e\r", " f", "é")
    for cells in (*itertools.product(parts, repeat=2), ("",), ("x",)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        assert line(cells) == text.getvalue()


def test_seeds_evaluated_at_other_steps_are_interpolated():
    """As in a run extended with more seeds and iterations: the mean is of all seeds, not of one after the other."""
    rows = [("a", 10, 0, 0.0), ("a", 30, 0, 2.0), ("a", 20, 1, 5.0), ("a", 40, 1, 7.0), ("b", 10, 0, 1.0)]
    found = over_seeds(pd.DataFrame(rows, columns=["candidate", "env_steps", "seed", "fitness"]), "fitness")
    assert found.loc["a"].to_dict("list") == {
        "mean": [0.0, 3.0, 4.0, 7.0], "min": [0.0, 1.0, 2.0, 7.0], "max": [0.0, 5.0, 6.0, 7.0],
    }  # fmt: skip
    assert list(found.loc["a"].index) == [10, 20, 30, 40] and found.loc["b"].to_numpy().tolist() == [[1.0, 1.0, 1.0]]


def test_over_seeds_at_equal_steps_is_mean_least_and_greatest():
    curves = fake_page(seeds=3).curves
    measured = curves[curves["fitness"].notna()].groupby(["candidate", "env_steps"])["fitness"]
    found = over_seeds(curves, "fitness")
    pd.testing.assert_frame_equal(found, measured.agg(["mean", "min", "max"]))
    assert {str(kind) for kind in found.dtypes} == {"float64"} and (measured.count() == 3).all()


@pytest.mark.slow
def test_page_calls_no_python_for_each_row(monkeypatch):
    """``DataFrame.agg(axis=1)`` took a minute for 250 candidates with pandas 3.0.0."""
    run = fake_page(points=8)

    def refuse(self, *args, **kwargs):
        raise AssertionError("called for each row")

    for method in ("agg", "aggregate", "apply", "map", "transform", "iterrows", "itertuples"):
        monkeypatch.setattr(pd.DataFrame, method, refuse, raising=False)
    assert "<h2>Learning curves</h2>" in render_page(run)
