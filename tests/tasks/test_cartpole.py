"""Cartpole and CartpoleSwingup: their fitness, their baselines by hand, and their physics."""

import itertools
import math

import pytest
import torch
from task_helpers import baseline, begin, fake, shipped, whole_state

from envcoder_bench.sources.registry import find_spec


def poles(*rows):
    """One environment per (cart_pos, cart_vel, pole_angle, pole_vel)."""
    task = fake("Cartpole", len(rows))
    x = torch.tensor(rows)
    task.state["dof_pos"][:], task.state["dof_vel"][:] = x[:, [0, 2]], x[:, [1, 3]]
    return task


def test_named_columns_match_joint_positions_and_velocities():
    state = poles((1.0, 2.0, 3.0, 4.0)).state
    assert [state[key].item() for key in ("cart_pos", "cart_vel", "pole_angle", "pole_vel")] == [1.0, 2.0, 3.0, 4.0]


def test_position_drives_are_refused():
    with pytest.raises(ValueError, match="Cartpole has no position drives of its own: define compute_torque"):
        fake("Cartpole").default_dof_target(torch.zeros(6, 1), {})


def test_fitness_is_one_for_an_upright_pole_in_range():
    degree = math.pi / 180
    task = poles(
        (0.0, 0.0, 0.0, 0.0), (0.0, 9.0, 11.9 * degree, 9.0), (0.0, 0.0, -12.1 * degree, 0.0),
        (2.99, 0.0, 0.0, 0.0), (-3.01, 0.0, 0.0, 0.0), (0.0, 0.0, 360.0 * degree, 0.0), (0.0, 0.0, math.pi, 0.0),
    )  # fmt: skip
    assert task.fitness(task.state).tolist() == [1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_human_reward_matches_hand_computed_values():
    task = poles((0.5, -2.0, 0.3, 4.0), (3.1, 0.0, 0.0, 0.0), (0.0, 0.0, -1.6, 0.0), (0.0, 0.0, 0.0, 0.0))
    reward = baseline("Cartpole", "human")("compute_reward", whole_state(task))
    assert reward.tolist() == pytest.approx([1.0 - 0.09 - 0.02 - 0.02, -2.0, -2.0, 1.0])


@pytest.mark.parametrize("name", ["human", "unshaped"])
def test_both_baselines_share_observation_action_and_terminal(name):
    functions = baseline("Cartpole", name)
    task = poles((0.5, -2.0, 0.3, 4.0), (3.1, 0.0, 0.0, 0.0), (0.0, 0.0, -1.6, 0.0), (-3.1, 0.0, 0.0, 0.0))
    state = whole_state(task)
    assert functions("compute_observation", state)[0].tolist() == pytest.approx([0.5, -2.0, 0.3, 4.0])
    assert functions("compute_terminal", state).tolist() == [False, True, True, True]
    action = torch.tensor([[1.0], [-0.5], [0.0], [0.25]])
    force = functions("compute_torque", state, action)
    assert force.tolist() == [[400.0, 0.0], [-200.0, 0.0], [0.0, 0.0], [100.0, 0.0]]


def test_unshaped_reward_is_sparse_success():
    task = poles((0.0, 9.0, 0.2, 9.0), (0.0, 0.0, 0.22, 0.0), (3.1, 0.0, 0.0, 0.0))
    assert baseline("Cartpole", "unshaped")("compute_reward", whole_state(task)).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["human", "unshaped"])
def test_initial_states_match_isaacgymenvs(name):
    task = fake("Cartpole", 2000)
    torch.manual_seed(0)
    begin(task, baseline("Cartpole", name))
    for key, limit in (("dof_pos", 0.1), ("dof_vel", 0.25)):
        x = task.state[key]
        assert -limit <= x.min() < -0.98 * limit and 0.98 * limit < x.max() <= limit


# with the physics


@pytest.fixture
def carts():
    task = find_spec("Cartpole").make(shipped("Cartpole"), 4, "mujoco_cpu", "cpu")
    task.set_drive_mode(torch.ones(4, dtype=torch.bool))
    return task


def put(task, cart_pos, pole_angle):
    """Begin episodes at rest, everywhere at one place, or at one for each environment."""
    columns = torch.broadcast_tensors(torch.tensor(cart_pos), torch.tensor(pole_angle), torch.zeros(task.num_envs))
    start = {"dof_pos": torch.stack(columns[:2], dim=1), "dof_vel": torch.zeros(task.num_envs, 2)}
    task.reset(torch.ones(task.num_envs, dtype=torch.bool), start, {})


def test_linear_controller_reaches_full_fitness(carts):
    """The task is solvable from its initial states with forces far below maxEffort."""
    functions = baseline("Cartpole", "human")
    torch.manual_seed(0)
    begin(carts, functions)
    gains = torch.tensor([1.0, 2.0, -45.0, -10.0]) / 400.0
    total = torch.zeros(4)
    for _ in range(carts.max_episode_length):
        state = whole_state(carts)
        action = -(functions("compute_observation", state) @ -gains).unsqueeze(1)
        carts.step(functions("compute_torque", state, action.clamp(-1.0, 1.0)))
        total += carts.fitness(carts.state)
    assert bool((total == carts.max_episode_length).all())


# CartpoleSwingup


@pytest.fixture(scope="module")
def swingup():
    task = find_spec("CartpoleSwingup").make(shipped("CartpoleSwingup"), 3, "mujoco_cpu", "cpu")
    task.set_drive_mode(torch.ones(3, dtype=torch.bool))
    return task


def test_fitness_is_the_height_of_the_tip_within_the_range_of_the_cart(swingup):
    put(swingup, [0.0, 1.0, 1.9], [0.0, math.pi, 0.0])
    assert swingup.fitness(swingup.state).tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    put(swingup, [0.0, 0.0, 0.0], [math.pi / 2, 2 * math.pi, -math.pi / 3])
    assert swingup.fitness(swingup.state).tolist() == pytest.approx([0.5, 1.0, 0.75], abs=1e-6)


def test_pole_falls_and_hanging_pole_swings_with_the_period_of_a_rod(swingup):
    put(swingup, [0.0, 0.0, 0.0], [0.01, math.pi - 0.05, math.pi])
    heights, angles = [], []
    for _ in range(100):
        swingup.step(torch.zeros(3, 2))
        heights.append(float(swingup.fitness(swingup.state)[0]))
        angles.append(float(swingup.state["pole_angle"][1]) - math.pi)
    assert min(heights) < 0.05  # the upright one falls
    crossings = [k for k, (a, b) in enumerate(itertools.pairwise(angles)) if (a > 0) != (b > 0)]
    period = 2 * 0.04 * (crossings[-1] - crossings[0]) / (len(crossings) - 1)
    # a rod of 1 m and 0.1 kg on a free cart of 1 kg: 2 pi sqrt(2/3 m / g) on a fixed one, times sqrt(1 - 3/4 * 0.1/1.1)
    assert period == pytest.approx(2 * math.pi * math.sqrt(2 / 3 / 9.81 * (1 - 0.75 * 0.1 / 1.1)), rel=0.03)


def test_push_is_limited_to_ten_newtons(swingup):
    put(swingup, [0.0, 0.0, 0.0], [math.pi, math.pi, math.pi])
    swingup.step(torch.tensor([[10.0, 0.0], [1000.0, 0.0], [0.0, 0.0]]))
    speed = swingup.state["cart_vel"]
    assert float(speed[1]) == pytest.approx(float(speed[0])) and float(speed[0]) == pytest.approx(0.4, rel=0.1)
    assert float(speed[2]) == pytest.approx(0.0, abs=1e-6)
