"""The archive of a search, and its round trip."""

import math

import pytest

from envcoder_bench.results.logs import Point
from envcoder_bench.search import archive as records
from envcoder_bench.search.archive import Archive, Attempt, read_archive, write_archive
from envcoder_bench.shaping.contract import Fault


def archive():
    nan = math.nan
    points = (
        Point("r1_00", 3, 0, 0, nan, 12.5, {}),
        Point("r1_00", 3, 10, 640, 0.25, 20.0, {"alive": (0.1, -1.0, 2.0), "dead": (nan, nan, nan)}),
    )
    return Archive(
        [
            Attempt(
                "r1_00", 1, "x = 'ü'\n", (), "sampled", fitness=0.25, points=points, by_seed={3: 0.25},
                over_episodes=(0.2, 0.3),
            ),
            Attempt("r1_01", 1, "", status=records.NO_CODE, fault=Fault("the reply was cut off"), note="raise"),
            Attempt(
                "r2_00", 2, "y", ("r1_00", "human"), fitness=0.5, episode_length=9.0, by_seed={4: 0.5},
                left_out=("compute_goal",),
            ),
        ],
        {"human": Attempt("human", 0, "h", fitness=0.7, by_seed={3: 0.6, 4: 0.8})},
        "unshaped",
        {1: (3,), 2: (4,)},
    )  # fmt: skip


def test_archive_round_trips(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    write_archive(first, archive())
    again = read_archive(first)
    write_archive(second, again)
    assert first.read_bytes() == second.read_bytes()
    assert again.attempts[1:] == archive().attempts[1:]  # NaN differs from NaN in the first
    assert again.baselines == archive().baselines
    assert (again.reference, again.seeds) == ("unshaped", {1: (3,), 2: (4,)})
    assert again.attempts[0].over_episodes == (0.2, 0.3)
    point = again.attempts[0].points[1]
    assert point.components["alive"] == (0.1, -1.0, 2.0)
    assert math.isnan(point.components["dead"][0])
    assert math.isnan(again.attempts[0].points[0].fitness)


def test_faults_are_data(tmp_path):
    path = tmp_path / "archive.json"
    fault = Fault("x.py:3: made up", "r1_00.py", 7, "compute_reward", "raised", "mend it")
    write_archive(path, records.Archive([Attempt("r1_00", 1, "x", status=records.FAILED, fault=fault)]))
    assert read_archive(path).attempts[0].fault == fault


@pytest.mark.parametrize("text", ["", "[]", '{"candidates": []}', '{"attempts": [{"name": 1}], "baselines": {}}'])
def test_other_file_is_refused(tmp_path, text):
    path = tmp_path / "archive.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"archive\.json: not a search's archive"):
        read_archive(path)


def test_interval_is_over_seeds_or_over_the_episodes_of_one_seed():
    one = Attempt("a", 1, "", fitness=0.5, by_seed={0: 0.5}, over_episodes=(0.4, 0.6))
    assert Archive([one]).interval(one, Archive([one]).model()) == (0.4, 0.6)
    two = one.measured_again({1: 0.6})
    assert two.over_episodes is None
    archive = Archive([two])
    low, high = archive.interval(two, archive.model())
    assert (low + high) / 2 == pytest.approx(0.55) and high - low == pytest.approx(2 * 12.7062 * 0.05, rel=1e-5)
    archive.bounds = (0.0, 1.0)
    low, high = archive.interval(two, archive.model())
    assert 0.0 <= low < 0.5 and 0.6 < high <= 1.0
    # no variance is below that of the episodes: of many, an interval of three seeds that agree is narrower
    three, wide = two.measured_again({1: 0.51, 2: 0.52}), []
    archive.attempts = [three]
    for archive.episodes in (1, 64):
        low, high = archive.interval(three, archive.model())
        wide.append(high - low)
    assert wide[1] < 0.72 < 0.8 < wide[0]  # not narrow: three seeds may not have shown what a seed may have
    none = Attempt("a", 1, "", fitness=0.5)
    assert archive.interval(none, archive.model()) is None


def test_unknown_status_is_refused():
    with pytest.raises(ValueError, match="it must be one of ok"):
        Attempt("a", 1, "", status="fine")
