"""What a search remembers, and that it survives being written and read."""

import math

import pytest

from envcoder_bench.report.points import Point
from envcoder_bench.search import records
from envcoder_bench.search.records import Archive, Attempt, best_of, proposal_name, read_archive, write_archive


def archive():
    nan = math.nan
    points = (
        Point("r1_00", 3, 0, 0, nan, 12.5, {}),
        Point("r1_00", 3, 10, 640, 0.25, 20.0, {"alive": (0.1, -1.0, 2.0), "dead": (nan, nan, nan)}),
    )
    return Archive(
        [
            Attempt("r1_00", 1, "x = 'ü'\n", (), "sampled", fitness=0.25, points=points, by_seed={3: 0.25}),
            Attempt("r1_01", 1, "", status=records.NO_CODE, error="the reply was cut off"),
            Attempt("r2_00", 2, "y", ("r1_00", "human"), fitness=0.5, episode_length=9.0, by_seed={4: 0.5}),
        ],
        {"human": Attempt("human", 0, "h", fitness=0.7, by_seed={3: 0.6, 4: 0.8})},
    )


def test_an_archive_is_read_as_it_was_written(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    write_archive(first, archive())
    again = read_archive(first)
    write_archive(second, again)
    assert first.read_bytes() == second.read_bytes()
    assert again.attempts[1:] == archive().attempts[1:]  # NaN differs from NaN in the first
    assert again.baselines == archive().baselines
    point = again.attempts[0].points[1]
    assert point.components["alive"] == (0.1, -1.0, 2.0)
    assert math.isnan(point.components["dead"][0])
    assert math.isnan(again.attempts[0].points[0].fitness)


def test_an_archive_of_version_0_1_is_read(tmp_path):
    path = tmp_path / "archive.json"
    write_archive(path, Archive([Attempt("r1_00", 1, "x", status=records.FAILED_AT_LOAD, error="no")]))
    assert '"failed at load"' in path.read_text()  # as results.csv spells it
    path.write_text(path.read_text().replace("failed at load", "failed_at_load"))
    assert read_archive(path).attempts[0].status == records.FAILED_AT_LOAD


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"attempts": [{"name": 1}], "baselines": {}}'])
def test_another_file_is_no_archive(tmp_path, text):
    path = tmp_path / "archive.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"archive\.json: not a search's archive"):
        read_archive(path)


def test_the_best_is_the_highest_mean_and_the_first_of_equals():
    one = Attempt("a", 1, "", fitness=0.5, by_seed={0: 0.5})
    two = Attempt("b", 1, "", fitness=0.5, by_seed={0: 0.5})
    failed = Attempt("c", 1, "", status=records.FAILED, fitness=None)
    assert best_of([failed]) is None
    assert best_of([failed, two, one]) is two
    lucky = Attempt("d", 1, "", fitness=0.9, by_seed={0: 0.9})
    assert best_of([one, lucky]) is lucky
    sobered = lucky.measured_again({1: 0.0})
    assert sobered.fitness == pytest.approx(0.45)
    assert best_of([one, sobered]) is one


def test_one_lucky_seed_does_not_stand_above_what_has_proved_itself():
    poor = [Attempt(name, 1, "", fitness=0.2, by_seed={0: 0.2}) for name in "abc"]
    proved = Attempt("proved", 1, "", fitness=0.8, by_seed={0: 0.8, 1: 0.8, 2: 0.8})
    lucky = Attempt("lucky", 3, "", fitness=0.85, by_seed={2: 0.85})
    assert Archive([*poor, proved, lucky]).best() is proved  # (3 x 0.8 + 0.2) / 4 against (0.85 + 0.2) / 2
    assert Archive([*poor, proved, lucky.measured_again({3: 0.95, 4: 0.95})]).best().name == "lucky"
    assert Archive([*poor, lucky]).best() is lucky
    assert Archive([poor[0], poor[1]]).best() is poor[0]
    assert Archive([Attempt("x", 1, "", status=records.FAILED)]).best() is None


def test_names_and_rounds():
    known = archive()
    assert [a.name for a in known.of_round(1)] == ["r1_00", "r1_01"]
    assert known.find("human").fitness == 0.7
    assert known.find("r2_00").parents == ("r1_00", "human")
    with pytest.raises(KeyError):
        known.find("r9_00")
    assert proposal_name(2, 3) == "r2_03"


def test_a_status_is_one_of_four():
    with pytest.raises(ValueError, match="it must be one of ok"):
        Attempt("a", 1, "", status="fine")
