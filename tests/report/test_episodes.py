"""Every evaluation episode's fitness, on disk and back."""

import pytest

from envcoder_bench.report.episodes import EpisodeLog, read_episodes


def test_fitness_values_round_trip(tmp_path):
    log = EpisodeLog(tmp_path / "episodes.csv")
    log.add(20, 400, "b, c", 1, [0.25, -1e-7])
    log.add(10, 200, "a", 0, [1 / 3, 2.0])
    log.close()
    read = read_episodes(tmp_path / "episodes.csv")
    assert list(read) == [10, 20]
    assert read[20] == {("b, c", 1): (0.25, -1e-7)}
    assert read[10]["a", 0] == pytest.approx((1 / 3, 2.0), rel=1e-9)


@pytest.mark.parametrize("text, message", [("a,b\n", "its columns must be"), (None, "line 2")])
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "episodes.csv"
    path.write_text(text or "iteration,env_steps,candidate,seed,fitness\n1,2,a,0,x y\n")
    with pytest.raises(ValueError, match=message):
        read_episodes(path)
