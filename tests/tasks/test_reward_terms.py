"""Candidates weigh the terms of a task's own reward anew, without writing them again."""

import pytest
import torch
from isaac_helpers import FOLDER, config, environment, groups, played

from envcoder_bench.tools.describe import describe

# the task's own reward, and one with another weight
OWN = """def compute_reward(reward_terms, reward_scales):
    total = sum(reward_scales[name] * reward_terms[name] for name in ("upright", "speed"))
    return torch.clip(total, min=0.0) + reward_scales["termination"] * reward_terms["termination"]
"""
HEAVIER = """def compute_reward(state_dict):
    terms, scales = state_dict["reward_terms"], state_dict["reward_scales"]
    return sum(scales[name] * term for name, term in terms.items()) + 0.5 * terms["upright"]
"""
BY_KEY = """def compute_reward(reward_terms_upright, dof_pos):
    return reward_terms_upright - torch.cos(dof_pos[:, 0])
"""


@pytest.fixture(autouse=True)
def fork(monkeypatch):
    monkeypatch.setenv("LEGGED_GYM_PATH", str(FOLDER / "checkout"))


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_candidates_weigh_the_terms_of_functions(compiled):
    cfg = config("legged_gym:weigher", f"compile_shapers={compiled}")
    made, faults = groups(cfg, own=OWN, heavier=HEAVIER, by_key=BY_KEY)
    assert not faults
    assert all(bool(group.shaping.programs) == (compiled == "true") for group in made)
    env = environment(cfg, made)
    isaac = env.task.isaac
    for step in played(env, 30):
        reward, task = step.reward.view(4, -1), isaac.rew_buf.view(4, -1)
        torch.testing.assert_close(reward[1], task[1], rtol=1e-6, atol=1e-7)
        upright, speed = torch.cos(isaac.dof_pos[:, 0]), torch.square(isaac.dof_vel[:, 0])
        heavier = (0.8 * upright - 0.02 * speed).view(4, -1)[2]
        over = ~step.terminated.view(4, -1)[2] & ~step.truncated.view(4, -1)[2]
        torch.testing.assert_close(reward[2][over], heavier[over], rtol=1e-5, atol=1e-6)
    assert float(reward[3].abs().max()) < 1e-6


@pytest.mark.slow
def test_terms_that_a_task_only_sums_are_in_the_state_and_their_sums_are_unchanged():
    cfg = config("legged_gym:summer")
    made, faults = groups(cfg, own="def compute_reward(reward_terms):\n    return sum(reward_terms.values())\n")
    assert not faults
    env = environment(cfg, made)
    isaac = env.task.isaac
    sums = {name: x.clone() for name, x in isaac.episode_sums.items()}
    for step in played(env, 5):
        torch.testing.assert_close(step.reward[4:], isaac.rew_buf[4:])
        for name, x in isaac.episode_sums.items():
            sums[name] += env.task.state[f"reward_terms_{name}"]
            assert torch.equal(x, sums[name])  # as the task adds them, bit by bit


@pytest.mark.slow
def test_terms_are_described_with_their_place():
    weigher, summer = (" ".join(describe(f"legged_gym:{name}").split()) for name in ("weigher", "summer"))
    assert "reward_terms_speed (n,) - term of the task's own reward, without its scale, from walker.py:" in weigher
    assert 'reward_terms is also a dict: reward_terms["upright"]' in weigher and "reward_scales is also" in weigher
    assert "with its scale, from walker.py" in summer


@pytest.mark.slow
def test_a_task_without_terms_has_no_such_names():
    _, faults = groups(config(), mine="def compute_reward(reward_terms):\n    return reward_terms['upright']\n")
    assert "'reward_terms' is not a key of the state" in str(faults)
