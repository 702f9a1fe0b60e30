"""A race on several devices gives bitwise the results of one in one process."""

import pytest
from helpers import stopped_at
from test_parallel import settings, threads  # noqa: F401, a fixture
from test_racing import CANDIDATES, assert_alike, learned  # noqa: F401, a fixture

import envcoder_bench
from envcoder_bench.run.workers.messages import JobCheckpoint, RungReached, WorkerLost

pytestmark = pytest.mark.slow

ITERATIONS = 4
RACE = {
    "learning_iterations": ITERATIONS,
    "seeds": 1,
    "evaluation.points": ITERATIONS,
    "race": {"enabled": True, "keep": 0.6, "rungs": [2, 3]},
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=folder, **{**settings(1), **RACE, "devices": None})
    return folder


def test_race_of_workers_that_are_lost_and_stopped_gives_the_results_of_one_process(tmp_path, alone, threads):  # noqa: F811
    """It is stopped between two rungs, and resumed in one process."""
    lost = set()

    def fault(message):
        if isinstance(message, (JobCheckpoint, RungReached)) and type(message) not in lost:
            lost.add(type(message))
            return WorkerLost("killed by the test")

    threads(fault)
    output, asked = tmp_path / "run", {**settings(2), **RACE}
    stopped = envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=output, **stopped_at(3), **asked)
    assert not stopped.complete and "in rung" in stopped.stopped_at
    assert lost == {JobCheckpoint, RungReached}
    result = envcoder_bench.resume(output, devices=None)
    assert result.complete and set(result.results.status) == {"ok", "failed", "stopped"}
    assert_alike(output, alone)
