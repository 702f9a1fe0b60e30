import math

import numpy as np
import pytest

from envcoder_bench.report.csv_log import sort_rows
from envcoder_bench.report.curves import CurveLog, read_curves


def add(log, iteration):
    for candidate in ("001", 'comma, "quote"'):
        scalars = {"fitness": 0.1 * iteration if iteration % 2 == 0 else None, "kl": math.nan, "entropy": 1 / 3}
        scalars["reward/track"] = float(iteration)
        log.add(iteration, 100 * iteration, candidate, 0, scalars)
    log.flush()


def uninterrupted(path, last):
    log = CurveLog(path, ["track", "energy"])
    for iteration in range(1, last + 1):
        add(log, iteration)
    log.close()
    return path.read_bytes()


def test_rows_and_columns(tmp_path):
    uninterrupted(tmp_path / "curves.csv", 2)
    assert (tmp_path / "curves.csv").read_text().splitlines()[:2] == [
        "iteration,env_steps,candidate,seed,fitness,shaped_return,kl,learning_rate,entropy,value_loss,"
        "reward/track,reward/energy",
        "1,100,001,0,,,,,0.333333333,,1,",
    ]
    curves = read_curves(tmp_path / "curves.csv")
    assert curves["candidate"].tolist() == ["001", 'comma, "quote"'] * 2
    np.testing.assert_allclose(curves["fitness"], [np.nan, np.nan, 0.2, 0.2])
    assert curves["reward/energy"].isna().all() and len(curves) == 4


def test_flushed_rows_are_on_disk_at_once(tmp_path):
    log = CurveLog(tmp_path / "curves.csv", [])
    assert len(read_curves(tmp_path / "curves.csv")) == 0
    log.add(1, 1, "001", 0, {"fitness": 0.5})
    log.flush()
    assert read_curves(tmp_path / "curves.csv")[["candidate", "fitness"]].values.tolist() == [["001", 0.5]]
    log.close()


@pytest.mark.parametrize("checkpoint", [0, 1, 3, 5])
@pytest.mark.parametrize("cut", [0, 1, 17])
def test_resumed_file_equals_the_uninterrupted_one(tmp_path, checkpoint, cut):
    path = tmp_path / "curves.csv"
    full = uninterrupted(tmp_path / "full.csv", 8)
    written = uninterrupted(path, 6)
    path.write_bytes(written[: len(written) - cut])  # the last line torn where cut > 0
    log = CurveLog.resume(path, checkpoint)
    for iteration in range(checkpoint + 1, 9):
        add(log, iteration)
    log.close()
    assert path.read_bytes() == full


def test_groups_that_trained_one_after_the_other_end_as_if_together(tmp_path):
    def rows(log, candidates, iterations):
        for iteration in iterations:
            for candidate in candidates:
                log.add(iteration, 100 * iteration, candidate, 3, {"kl": 0.1 * iteration})
            log.flush()

    together = CurveLog(tmp_path / "together.csv", [])
    rows(together, ["b", 'a, "1"', "c"], range(1, 13))
    together.close()
    path = tmp_path / "curves.csv"
    log = CurveLog(path, [])
    rows(log, ["b", 'a, "1"'], range(1, 13))
    rows(log, ["c"], range(1, 9))  # killed here, and last saved after 5
    log.close()
    log = CurveLog.resume(path, 5, {("b", 3), ('a, "1"', 3)})
    rows(log, ["c"], range(6, 13))
    log.close()
    for _ in range(2):  # doing it again changes nothing
        sort_rows(path)
        assert path.read_bytes() == (tmp_path / "together.csv").read_bytes()


def test_a_line_torn_within_its_iteration_is_not_taken_for_an_early_one(tmp_path):
    path = tmp_path / "curves.csv"
    full = uninterrupted(tmp_path / "full.csv", 12)
    path.write_bytes(uninterrupted(path, 11) + b"1")  # of 12
    log = CurveLog.resume(path, 11)
    add(log, 12)
    log.close()
    assert path.read_bytes() == full


def test_a_new_log_replaces_an_old_one(tmp_path):
    uninterrupted(tmp_path / "curves.csv", 3)
    CurveLog(tmp_path / "curves.csv", ["track"]).close()
    assert len(read_curves(tmp_path / "curves.csv")) == 0


def test_a_component_that_appears_late_gets_its_column_also_after_a_resume(tmp_path):
    def late(log, iteration):
        log.add(iteration, iteration, "a", 0, {"reward/track": 1.0, **({"reward/new": 2.0} if iteration > 2 else {})})
        log.flush()

    path, other = tmp_path / "curves.csv", tmp_path / "other.csv"
    log = CurveLog(path, ["track"])
    for iteration in range(1, 5):
        late(log, iteration)
    log.close()
    np.testing.assert_array_equal(read_curves(path)["reward/new"], [np.nan, np.nan, 2.0, 2.0])
    other.write_bytes(path.read_bytes())
    log = CurveLog.resume(other, 1)
    for iteration in range(2, 5):
        late(log, iteration)
    log.close()
    assert other.read_bytes() == path.read_bytes()


def test_an_unknown_scalar_is_refused(tmp_path):
    log = CurveLog(tmp_path / "curves.csv", [])
    with pytest.raises(KeyError, match="no column 'fitnes'"):
        log.add(1, 1, "a", 0, {"fitnes": 1.0})
    log.close()


def test_line_ends_in_names_do_not_break_rows(tmp_path):
    log = CurveLog(tmp_path / "curves.csv", ["two\nlines"])
    log.add(1, 1, "a", 0, {"reward/two\nlines": 1.0})
    log.close()
    CurveLog.resume(tmp_path / "curves.csv", 1).close()
    assert read_curves(tmp_path / "curves.csv")["reward/two lines"].tolist() == [1.0]
