"""Messages on the physics and on exploration: once for each candidate and warning."""

import math

import pytest
import torch

from envcoder_bench import evaluate
from envcoder_bench.run.train.monitors import MAX_WARNINGS, NoiseMonitor, PhysicsMonitor

NAMES = ["a", "a", "b", "c"]  # two seeds of the first


def test_no_messages_without_problems():
    monitor = PhysicsMonitor(NAMES)
    assert monitor.lines([0] * 4, [0, 5, 0, 0], {}) == [] == monitor.final_lines()


def test_dropped_contacts_are_reported_once_per_candidate():
    monitor = PhysicsMonitor(NAMES)
    (line,) = monitor.lines([0, 3, 0, 0], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of a for lack") and "do not trust" in line
    assert monitor.lines([1, 4, 0, 0], [0] * 4, {}) == []
    (line,) = monitor.lines([1, 4, 0, 1], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of c for lack")


def test_warnings_are_reported_first_and_in_total():
    monitor = PhysicsMonitor(NAMES)
    (line,) = monitor.lines([0] * 4, [1, 2, 0, 9], {"odd": 1})
    assert line == "MuJoCo warned 1 time so far: odd; physics blow-ups: c 9 and a 3"
    assert monitor.lines([0] * 4, [1, 2, 0, 9], {"odd": 70}) == []
    assert monitor.final_lines() == ["MuJoCo warned 70 times in all: odd; physics blow-ups: c 9 and a 3"]
    assert monitor.final_lines() == []


def test_number_of_different_warnings_is_limited():
    monitor = PhysicsMonitor(["a"])
    said = [line for k in range(50) for line in monitor.lines([0], [0], {f"odd {i}": 1 for i in range(k)})]
    assert len(said) == MAX_WARNINGS and monitor.final_lines() == []


def gaussian(*deviations):
    return float(torch.distributions.Normal(0.0, torch.tensor(deviations)).entropy().sum())


def test_growing_noise_is_reported_once_per_candidate():
    params = {"network": {"space": {"continuous": {"sigma_init": {"val": math.log(0.5)}}}}}
    monitor = NoiseMonitor(NAMES, [2, 2, 2, 3], params)
    assert monitor.lines([gaussian(0.5, 0.5)] * 3 + [gaussian(0.5, 0.5, 0.5)], range(4), 1) == []
    # geometric means of 4.9, 5.1, 5.1 and 4.9 times 0.5
    later = [gaussian(2.45, 2.45), gaussian(2.55, 2.55), gaussian(5.1, 1.275), gaussian(2.45, 2.45, 2.45)]
    (line,) = monitor.lines(later, [0, 2, 3], 20)
    assert line.startswith("the exploration noise of b is more than 5 times") and "at iteration 20" in line
    (line,) = monitor.lines(later, range(4), 30)
    assert line.startswith("the exploration noise of a is") and monitor.lines(later, range(4), 40) == []


@pytest.mark.parametrize(
    "params", [{}, {"network": {"space": None}}, {"network": {"space": {"continuous": {"sigma_init": None}}}}]
)
def test_noise_is_compared_with_a_deviation_of_1_if_the_config_has_none(params):
    assert not NoiseMonitor(["a"], [2], params).lines([gaussian(4.9, 4.9)], [0], 1)
    assert NoiseMonitor(["a"], [2], params).lines([gaussian(5.1, 5.1)], [0], 1)


@pytest.mark.slow
def test_run_says_that_noise_only_grows(tmp_path, caplog):
    sizes = {"num_envs_per_candidate": 8, "learning_iterations": 40, "device": "cpu", "seeds": 1, "video": 0}
    numbers = ["train.params.config.entropy_coef=1.0", "train.params.config.learning_rate=0.01"]
    text = "def compute_reward(pole_angle):\n    return 0.0 * pole_angle\n"
    numbers += ["train.params.config.horizon_length=4", "compile_shapers=false"]
    short = ["evaluation.points=1", "evaluation.final_episodes=1", "task.env.episodeLength=30", *numbers]
    evaluate("Cartpole", {"a": text}, overrides=short, output_dir=tmp_path / "run", baselines=False, **sizes)
    assert "the exploration noise of a is" in caplog.text
