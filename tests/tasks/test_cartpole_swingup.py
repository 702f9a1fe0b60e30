"""CartpoleSwingup: its physics and its fitness."""

import itertools
import math

import pytest
import torch

from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.run_task import build_task


@pytest.fixture(scope="module")
def task():
    own = build_task(compose_config("CartpoleSwingup", ["sim=mujoco_cpu", "device=cpu"]), 3)
    own.set_drive_mode(torch.ones(3, dtype=torch.bool))
    return own


def put(task, cart_pos, pole_angle):
    pos = torch.stack((torch.tensor(cart_pos), torch.tensor(pole_angle)), dim=1)
    task.reset(torch.ones(3, dtype=torch.bool), {"dof_pos": pos, "dof_vel": torch.zeros(3, 2)}, {})


def test_fitness_is_the_height_of_the_tip_within_the_range_of_the_cart(task):
    put(task, [0.0, 1.0, 1.9], [0.0, math.pi, 0.0])
    assert task.fitness(task.state).tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    put(task, [0.0, 0.0, 0.0], [math.pi / 2, 2 * math.pi, -math.pi / 3])
    assert task.fitness(task.state).tolist() == pytest.approx([0.5, 1.0, 0.75], abs=1e-6)


def test_pole_falls_and_hanging_pole_swings_with_the_period_of_a_rod(task):
    put(task, [0.0, 0.0, 0.0], [0.01, math.pi - 0.05, math.pi])
    heights, angles = [], []
    for _ in range(100):
        task.step(torch.zeros(3, 2))
        heights.append(float(task.fitness(task.state)[0]))
        angles.append(float(task.state["pole_angle"][1]) - math.pi)
    assert min(heights) < 0.05  # the upright one falls
    crossings = [k for k, (a, b) in enumerate(itertools.pairwise(angles)) if (a > 0) != (b > 0)]
    period = 2 * 0.04 * (crossings[-1] - crossings[0]) / (len(crossings) - 1)
    # a rod of 1 m and 0.1 kg on a free cart of 1 kg: 2 pi sqrt(2/3 m / g) on a fixed one, times sqrt(1 - 3/4 * 0.1/1.1)
    assert period == pytest.approx(2 * math.pi * math.sqrt(2 / 3 / 9.81 * (1 - 0.75 * 0.1 / 1.1)), rel=0.03)


def test_push_is_limited_to_ten_newtons(task):
    put(task, [0.0, 0.0, 0.0], [math.pi, math.pi, math.pi])
    task.step(torch.tensor([[10.0, 0.0], [1000.0, 0.0], [0.0, 0.0]]))
    speed = task.state["cart_vel"]
    assert float(speed[1]) == pytest.approx(float(speed[0])) and float(speed[0]) == pytest.approx(0.4, rel=0.1)
    assert float(speed[2]) == pytest.approx(0.0, abs=1e-6)
