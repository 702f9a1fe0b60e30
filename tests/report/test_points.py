import math

import pytest

from envcoder_bench.report.csv_log import sort_rows
from envcoder_bench.report.points import ComponentStats, Point, PointLog, read_points

CANDIDATES = ("001", 'comma, "quote"')


def point(candidate, iteration):
    components = {"total reward": (0.5 * iteration, -1.0, 2.5), "up, down": (math.nan, 0.1, 1e-9)}
    numbers = (iteration / 3, 100.25, components, math.nan if iteration == 1 else 1 / iteration)
    return Point(candidate, 7, iteration, 64 * iteration, *numbers)


def write(path, iterations, candidates=CANDIDATES, log=None):
    log = log or PointLog(path)
    for iteration in iterations:
        for candidate in candidates:
            log.add(point(candidate, iteration))
        log.flush()
    log.close()
    return path.read_bytes()


def close(one, other):
    """Return whether points are equal to nine digits, with NaN equal to NaN."""
    return one == pytest.approx(other, rel=1e-8, nan_ok=True)


def test_points_round_trip(tmp_path):
    write(tmp_path / "points.csv", range(1, 4))
    read = read_points(tmp_path / "points.csv")
    expected = [point(candidate, iteration) for iteration in range(1, 4) for candidate in CANDIDATES]
    assert len(read) == len(expected)
    for one, other in zip(read, expected):
        assert (one.candidate, one.seed, one.iteration, one.env_steps) == (
            other.candidate, other.seed, other.iteration, other.env_steps
        )  # fmt: skip
        assert close(one.fitness, other.fitness)
        assert close(one.episode_length, other.episode_length)
        assert close(one.shaped_return, other.shaped_return)
        assert list(one.components) == list(other.components)
        for name, stats in one.components.items():
            assert close(tuple(stats), other.components[name])
    assert read[0].components["total reward"] == ComponentStats(mean=0.5, min=-1.0, max=2.5)


def test_one_row_per_component(tmp_path):
    write(tmp_path / "points.csv", [2])
    assert (tmp_path / "points.csv").read_text().splitlines()[:3] == [
        "iteration,env_steps,candidate,seed,fitness,episode_length,shaped_return,component,mean,min,max",
        "2,128,001,7,0.666666667,100.25,0.5,total reward,1,-1,2.5",
        '2,128,001,7,0.666666667,100.25,0.5,"up, down",,0.1,1e-09',
    ]


def test_point_without_components_has_one_row(tmp_path):
    log = PointLog(tmp_path / "points.csv")
    log.add(Point("a", 0, 1, 10, 0.25, 3.0))
    log.close()
    (read,) = read_points(tmp_path / "points.csv")
    assert read.fitness == 0.25
    assert not read.components
    assert math.isnan(read.shaped_return)


@pytest.mark.parametrize("checkpoint", [0, 1, 3])
@pytest.mark.parametrize("cut", [0, 1, 17])
def test_resumed_file_equals_the_uninterrupted_one(tmp_path, checkpoint, cut):
    path = tmp_path / "points.csv"
    full = write(tmp_path / "full.csv", range(1, 7))
    written = write(path, range(1, 5))
    path.write_bytes(written[: len(written) - cut])  # the last line torn where cut > 0
    assert write(path, range(checkpoint + 1, 7), log=PointLog.resume(path, checkpoint)) == full


def test_sorted_rows_of_waves_equal_one_training(tmp_path):
    together = write(tmp_path / "together.csv", range(1, 13), ("b", "a"))
    path = tmp_path / "points.csv"
    write(path, range(1, 13), ["b"])
    write(path, range(1, 13), ["a"], PointLog.resume(path, 0, {("b", 7)}))
    sort_rows(path)
    assert path.read_bytes() == together


def test_other_file_is_refused(tmp_path):
    (tmp_path / "points.csv").write_text("iteration,candidate\n1,a\n")
    with pytest.raises(ValueError, match=r"points\.csv: not a points\.csv; its columns must be iteration, env_steps, "):
        read_points(tmp_path / "points.csv")
