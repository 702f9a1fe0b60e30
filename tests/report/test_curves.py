import csv
import io
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from page_fakes import fake_page

from envcoder_bench.report import page_data
from envcoder_bench.report.csv_log import line, sort_rows
from envcoder_bench.report.curves import ComponentLog, CurveLog, over_seeds, read_curves, split_wide
from envcoder_bench.report.curves_plot import plot_learning_curves
from envcoder_bench.report.page import render_page

CANDIDATES = ("001", 'comma, "quote"')


def add(logs, iteration):
    curves, components = logs
    for candidate in CANDIDATES:
        place = (iteration, 100 * iteration, candidate, 0)
        fitness = 0.1 * iteration if iteration % 2 == 0 else None
        curves.add(*place, {"fitness": fitness, "kl": math.nan, "entropy": 1 / 3})
        components.add(*place, {"track": float(iteration), f"own, of {candidate}": math.nan})
    for log in logs:
        log.flush()


def begin(folder):
    folder.mkdir(exist_ok=True)
    return CurveLog(folder / "curves.csv"), ComponentLog(folder / "components.csv")


def write(logs, iterations):
    for iteration in iterations:
        add(logs, iteration)
    for log in logs:
        log.close()


def contents(folder):
    return [(folder / name).read_bytes() for name in ("curves.csv", "components.csv")]


def test_logs_have_expected_rows_and_columns(tmp_path):
    logs = begin(tmp_path)
    write(logs, [1, 2])
    assert (tmp_path / "curves.csv").read_text().splitlines()[:2] == [
        "iteration,env_steps,candidate,seed,fitness,shaped_return,kl,learning_rate,entropy,value_loss",
        "1,100,001,0,,,,,0.333333333,",
    ]
    assert (tmp_path / "components.csv").read_text().splitlines()[:3] == [
        "iteration,env_steps,candidate,seed,component,mean",
        "1,100,001,0,track,1",
        '1,100,001,0,"own, of 001",',
    ]
    assert [log.rows for log in logs] == [4, 8]
    curves = read_curves(tmp_path / "curves.csv")
    assert curves["candidate"].tolist() == list(CANDIDATES) * 2
    np.testing.assert_allclose(curves["fitness"], [np.nan, np.nan, 0.2, 0.2])
    table = read_curves(tmp_path / "components.csv").pivot(
        index="env_steps", columns=["candidate", "component"], values="mean"
    )
    assert table["001"]["track"].tolist() == [1.0, 2.0]


def test_files_grow_linearly_with_candidates(tmp_path):
    def size(count):
        logs = begin(tmp_path / str(count))
        for k in range(1000, 1000 + count):
            for log, values in zip(logs, ({"kl": 0.5}, {f"own_{k}": 0.5, f"other_{k}": 0.25})):
                log.add(1, 100, f"c{k}", 0, values)
        write(logs, [])
        return sum(map(len, contents(tmp_path / str(count))))

    # beyond the headers twice as many candidates take twice the space
    none = size(0)
    assert size(400) - none == 2 * (size(200) - none)


def test_flushed_rows_are_on_disk_at_once(tmp_path):
    log = CurveLog(tmp_path / "curves.csv")
    assert len(read_curves(tmp_path / "curves.csv")) == 0
    log.add(1, 1, "001", 0, {"fitness": 0.5})
    log.flush()
    assert read_curves(tmp_path / "curves.csv")[["candidate", "fitness"]].values.tolist() == [["001", 0.5]]
    log.close()


@pytest.mark.parametrize("checkpoint", [0, 1, 3, 5])
@pytest.mark.parametrize("cut", [0, 1, 17])
def test_resumed_files_equal_the_uninterrupted_ones(tmp_path, checkpoint, cut):
    write(begin(tmp_path / "full"), range(1, 9))
    write(begin(tmp_path), range(1, 7))
    for path in (tmp_path / "curves.csv", tmp_path / "components.csv"):
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) - cut])  # the last line torn where cut > 0
    logs = [
        kind.resume(tmp_path / name, checkpoint, rows=rows * checkpoint)
        for kind, name, rows in ((CurveLog, "curves.csv", 2), (ComponentLog, "components.csv", 4))
    ]
    assert [log.lost for log in logs] == [0, 0]
    write(logs, range(checkpoint + 1, 9))
    assert contents(tmp_path) == contents(tmp_path / "full")


def test_sorted_rows_of_waves_equal_one_training(tmp_path):
    def rows(log, candidates, iterations):
        for iteration in iterations:
            for candidate in candidates:
                log.add(iteration, 100 * iteration, candidate, 3, {"kl": 0.1 * iteration})
            log.flush()

    together = CurveLog(tmp_path / "together.csv")
    rows(together, ["b", 'a, "1"', "c"], range(1, 13))
    together.close()
    path = tmp_path / "curves.csv"
    log = CurveLog(path)
    rows(log, ["b", 'a, "1"'], range(1, 13))
    rows(log, ["c"], range(1, 9))  # killed here, and last saved after 5
    log.close()
    log = CurveLog.resume(path, 5, {("b", 3), ('a, "1"', 3)}, rows=29)
    assert log.lost == 0
    rows(log, ["c"], range(6, 13))
    log.close()
    for _ in range(2):  # doing it again changes nothing
        sort_rows(path)
        assert path.read_bytes() == (tmp_path / "together.csv").read_bytes()


def test_truncated_line_is_dropped(tmp_path):
    write(begin(tmp_path / "full"), range(1, 13))
    write(begin(tmp_path), range(1, 12))
    path = tmp_path / "curves.csv"
    path.write_bytes(path.read_bytes() + b"1")  # of 12
    write([CurveLog.resume(path, 11), ComponentLog.resume(tmp_path / "components.csv", 11)], [12])
    assert contents(tmp_path) == contents(tmp_path / "full")


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
    write(begin(tmp_path), range(1, 4))
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


def test_other_file_is_refused_unchanged(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"curves\.csv is damaged: its first line must be iteration,.*, not 'a,b'"):
        CurveLog.resume(path, 1)
    assert path.read_text() == "a,b\n1,2\n"


def test_new_log_replaces_an_old_one(tmp_path):
    write(begin(tmp_path), range(1, 4))
    CurveLog(tmp_path / "curves.csv").close()
    assert len(read_curves(tmp_path / "curves.csv")) == 0


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


HEADER = "iteration,env_steps,candidate,seed,fitness,shaped_return,kl,learning_rate,entropy,value_loss"
WIDE = f"""\
{HEADER},reward/effort,"reward/up, down"
1,100,a,0,,1,2,3,4,5,,
2,200,b,0,0.5,1,2,3,4,5,6,
2,200,"c, d",0,,1,2,3,4,5,-7,0.1
3,300,b,0,0.5,1,2,3,4,5,6,0.
"""


def test_format_1_is_converted(tmp_path):
    curves, components = tmp_path / "curves.csv", tmp_path / "components.csv"
    curves.write_text(WIDE[:-1])  # the last line was being written
    for _ in range(2):  # doing it again changes nothing
        split_wide(curves, components)
        assert curves.read_text() == (
            f'{HEADER}\n1,100,a,0,,1,2,3,4,5\n2,200,b,0,0.5,1,2,3,4,5\n2,200,"c, d",0,,1,2,3,4,5\n'
        )
        assert components.read_text() == (
            "iteration,env_steps,candidate,seed,component,mean\n2,200,b,0,effort,6\n"
            '2,200,"c, d",0,effort,-7\n2,200,"c, d",0,"up, down",0.1\n'
        )
    CurveLog.resume(curves, 2, rows=3).close()
    ComponentLog.resume(components, 2, rows=3).close()


@pytest.mark.parametrize(
    "cells", [*itertools.product(("", "a", 'b"', "c,", "d\n", "e\r", " f", "é"), repeat=2), ("",), ("x",)]
)
def test_line_is_that_of_csv_writer(cells):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    assert line(cells) == text.getvalue()


def test_seeds_evaluated_at_other_steps_are_interpolated():
    """As in a run extended with more seeds and iterations: the mean is of all seeds, not of one after the other."""
    rows = [("a", 10, 0, 0.0), ("a", 30, 0, 2.0), ("a", 20, 1, 5.0), ("a", 40, 1, 7.0), ("b", 10, 0, 1.0)]
    table = pd.DataFrame(rows, columns=["candidate", "env_steps", "seed", "fitness"])
    made = over_seeds(table, "fitness")
    assert made.loc["a"].to_dict("list") == {
        "mean": [0.0, 3.0, 4.0, 7.0], "min": [0.0, 1.0, 2.0, 7.0], "max": [0.0, 5.0, 6.0, 7.0],
    }  # fmt: skip
    assert list(made.loc["a"].index) == [10, 20, 30, 40] and made.loc["b"].to_numpy().tolist() == [[1.0, 1.0, 1.0]]


def test_over_seeds_at_equal_steps_is_mean_least_and_greatest():
    rng = np.random.default_rng(0)
    rows = [(name, step, seed, rng.random()) for name in "ab" for step in (8, 16) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["candidate", "env_steps", "seed", "fitness"])
    pd.testing.assert_frame_equal(
        over_seeds(table, "fitness"), table.groupby(["candidate", "env_steps"])["fitness"].agg(["mean", "min", "max"])
    )


def test_page_and_picture_call_no_python_for_each_row(tmp_path, monkeypatch):
    """``DataFrame.agg(axis=1)`` took a minute for 250 candidates with pandas 3.0.0."""
    run = fake_page(points=8)

    def refuse(self, *args, **kwargs):
        raise AssertionError("called for each row")

    for name in ("agg", "aggregate", "apply", "map", "transform", "iterrows", "itertuples"):
        monkeypatch.setattr(pd.DataFrame, name, refuse, raising=False)
    assert "<h2>Learning curves</h2>" in render_page(run)
    assert plot_learning_curves(run.curves, run.ranked, tmp_path / "curves.png", "Cartpole", "").is_file()


def test_seeds_are_summarized_as_row_by_row():
    run = fake_page(seeds=3)
    found = over_seeds(run.curves, "fitness")
    wanted = {}
    for row in run.curves.to_dict("records"):
        if math.isfinite(row["fitness"]):
            wanted.setdefault((row["candidate"], row["env_steps"]), []).append(row["fitness"])
    assert list(found.columns) == ["mean", "min", "max"] and {str(kind) for kind in found.dtypes} == {"float64"}
    assert dict(zip(found.index, found.to_numpy().tolist())) == {
        place: pytest.approx([sum(own) / len(own), min(own), max(own)]) for place, own in wanted.items()
    }
    assert all(len(own) == 3 for own in wanted.values()) and wanted


def test_components_of_the_page_are_means_of_the_seeds_in_the_order_of_the_ranking():
    run = fake_page(names=("first", "second"), seeds=2, points=3)
    order = ["second", "no rows", "human"]
    found = page_data.components(run.components, order)
    assert [own["name"] for own in found] == ["human"]  # the last candidate failed, and has no rows either
    wanted = {}
    for row in run.components.to_dict("records"):
        if row["candidate"] == "human":
            wanted.setdefault(row["component"], {}).setdefault(row["env_steps"], []).append(row["mean"])
    for own in found[0]["series"]:
        values = [sum(seeds) / len(seeds) for _, seeds in sorted(wanted[own["name"]].items())]
        assert own["values"] == pytest.approx(values, rel=1e-4) and len(values) == 3
    names = [own["name"] for own in page_data.components(run.components, ["first", "unshaped", "human"])]
    assert names == ["first", "unshaped", "human"]
