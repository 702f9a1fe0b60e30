"""The fitness of tasks of terms, against numbers computed by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.sources.term_tasks.fitness import SUCCESS, TRACKING, Fitness, Measure


def fitness_of(kind):
    dialect = SimpleNamespace(root_velocities=lambda env, term: env.velocities)
    return Fitness(
        dialect, Measure(kind, "twist" if kind == TRACKING else "lifted", "", (0.0, 1.0), ""), 3, torch.device("cpu")
    )


def test_errors_of_planar_velocity_and_yaw_rate_are_those_to_the_command():
    term = SimpleNamespace(command=torch.tensor([[1.0, 2.0, 0.5], [1.0, 2.0, 0.5]]))
    linear = torch.tensor([[1.0, 2.0, 9.0], [4.0, -2.0, 9.0]])
    angular = torch.tensor([[9.0, 9.0, 0.5], [9.0, 9.0, -0.5]])
    managers = {"command_manager": SimpleNamespace(get_term={"twist": term}.get)}
    env = SimpleNamespace(velocities=(linear, angular), **managers)
    expected = [1.0, 0.5 * (math.exp(-5.0) + math.exp(-1.0))]
    assert fitness_of(TRACKING)(env, torch.zeros(2)).tolist() == pytest.approx(expected)


def test_success_is_counted_once_in_an_episode_and_from_its_beginning():
    fitness, values = fitness_of(SUCCESS), torch.zeros(2, 2)
    manager = SimpleNamespace(active_terms=["height", "lifted"], _step_values=values)
    env = SimpleNamespace(metrics_manager=manager, rows=slice(1, 3))
    values[:, 1] = 1.0
    assert [fitness(env, values[:, 0]).tolist() for _ in range(2)] == [[1.0, 1.0], [0.0, 0.0]]
    fitness.begin(torch.tensor([True, True, False]))
    assert fitness(env, values[:, 0]).tolist() == [1.0, 0.0]
