"""Where in the episodes fitness comes from, by tenths."""

import pytest

from envcoder_bench.results.logs import StepFitnessLog, read_courses


def test_courses_are_means_over_equal_parts_of_the_last_evaluation(tmp_path):
    log = StepFitnessLog(tmp_path / "step_fitness.csv")
    ends = list(range(2, 41, 2))  # 20 bins of two steps
    log.add(1, 10, "a", 0, ends, ([0.0] * 20, [1.0] * 20), 0.1)
    log.add(2, 20, "a", 0, ends, ([k / 20 for k in range(20)], [1.0] * 10 + [0.5] * 10), 0.1)
    log.add(2, 20, "b", 3, [1, 2, 4], ([0.25, 0.5, 0.75], [1.0, 1.0, 0.0]), 0.1)
    log.flush()
    one, two = read_courses(tmp_path / "step_fitness.csv")
    assert (one.candidate, one.seed, two.candidate, two.seed) == ("a", 0, "b", 3)
    assert one.fitness == pytest.approx([(4 * k + 1) / 40 for k in range(10)])
    assert one.active == (1.0,) * 5 + (0.5,) * 5
    assert two.fitness == (0.25, 0.5, 0.75)  # fewer bins than parts
    (half,) = read_courses(tmp_path / "step_fitness.csv", parts=1)[1:]
    assert half.fitness == pytest.approx([(0.25 + 0.5 + 2 * 0.75) / 4])
