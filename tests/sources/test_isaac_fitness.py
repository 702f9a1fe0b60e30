"""Formulas of the fitness of Isaac Gym tasks, against numbers computed by hand."""

import math

import pytest
import torch

from envcoder_bench.sources.isaacgym_tasks.fitness import FITNESS

QUARTER = [0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5)]  # a quarter turn to the left: what moves along y moves forwards
RUNNER = torch.tensor([[0.0, 0.0, 0.5, *QUARTER, 0.0, 1.0, 0.0, 0.3, 0.2, 0.7]])
ORIGIN = torch.tensor([[0.0, 0.0, 1.0], [3.0, 4.0, 1.0], [0.0, 0.0, 500.0]])
# of cube A: above a table of 1 m on cube B, beside it, sunk into it, still held
STACKED = {
    "cubeA_pos": torch.tensor([[0, 0, 1.095], [0, 0, 1.095], [0, 0, 1.06], [0, 0, 1.095]]),
    "cubeA_pos_relative": torch.tensor([[0.1, 0, 0], [0.1, 0, 0], [0.1, 0, 0], [0.03, 0, 0]]),
    "cubeA_to_cubeB_pos": torch.tensor([[0, 0.01, 0.0], [0, 0.03, 0], [0, 0.01, 0], [0, 0.01, 0]]),
    "cubeA_size": torch.tensor(0.05),
    "cubeB_size": torch.tensor(0.07),
    "reward_settings_table_height": torch.tensor(1.0),
}


@pytest.mark.parametrize(
    "name, state, fitness",
    [
        ("Ant", {"potentials": torch.tensor([5.0, 1.0]), "prev_potentials": torch.tensor([3.0, 4.0])}, [2.0, -3.0]),
        ("Anymal", {"root_states": RUNNER, "commands": torch.tensor([[1.0, 0.0, 0.7]])}, [0.0]),
        ("Anymal", {"root_states": RUNNER, "commands": torch.tensor([[0.0, 2.0, 0.0]])}, [-(1.0 + 4.0 + 0.49)]),
        ("Quadcopter", {"root_states": ORIGIN}, [0.0, -5.0, -100.0]),
        ("Ingenuity", {"root_states": ORIGIN, "target_root_positions": ORIGIN[:1]}, [0.0, -5.0, -100.0]),
        ("FrankaCabinet", {"cabinet_dof_pos": torch.tensor([[9.0, 9, 9, 0.38], [0, 0, 0, 0.4]])}, [0.0, 1.0]),
        ("FrankaCubeStack", STACKED, [1.0, 0.0, 0.0, 0.0]),
        ("ShadowHand", {"reset_goal_buf": torch.tensor([0, 1])}, [0.0, 1.0]),
    ],
)
def test_fitness_of_a_step(name, state, fitness):
    torch.testing.assert_close(FITNESS[name].function(**state), torch.tensor(fitness), atol=1e-6, rtol=0)
