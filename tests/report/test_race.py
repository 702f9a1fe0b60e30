"""What a race saved, and who was alive when."""

import pytest

from envcoder_bench.report.ranking import race_summary, rank
from envcoder_bench.report.ranking_plot import plot_race
from envcoder_bench.report.results import FAILED, FAILED_AT_LOAD, STOPPED, Result


def rows(more=0):
    found = [Result("human", 0, fitness=0.5, env_steps=100), Result("a", 0, fitness=0.6, env_steps=100)]
    found += [Result("b", 0, STOPPED, 0.2, env_steps=30, stopped_at=3), Result("c", 0, FAILED, env_steps=55)]
    found += [Result("d", 0, STOPPED, 0.3, env_steps=50, stopped_at=5), Result("e", 0, FAILED_AT_LOAD)]
    return found + [Result(f"x{k}", 0, STOPPED, 0.1, env_steps=30, stopped_at=3) for k in range(more)]


def test_race_summary_has_candidates_alive_and_env_steps_share():
    assert race_summary(rows(), [3, 5], 10) == {
        "rungs": [3, 5], "iterations": 10, "alive": [4, 3, 2], "env_steps_share": 0.7,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("more", [0, 300])
def test_race_plot_is_written(tmp_path, more):
    own = rows(more)
    told = race_summary(own, [3, 5], 10)
    picture = plot_race(own, rank(own), tmp_path / "race.png", "Cartpole", **told)
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
