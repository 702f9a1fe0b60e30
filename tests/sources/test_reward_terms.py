"""Candidates weigh the terms of a task's own reward anew, without writing them again."""

from types import SimpleNamespace

import pytest
import torch
from isaac_helpers import FOLDER, config, environment, groups, played

from envcoder_bench.run.prepare.variants import Asked, with_variants
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.isaacgym_tasks.driver import RewardTerms
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
def test_terms_of_the_task_itself_are_left_out_halved_and_doubled():
    cfg = config("legged_gym:weigher")
    # its terms are known when it is built
    sources = with_variants(RunSpec.of(cfg), [], Asked(terms=True))
    terms = ("upright", "speed", "termination")
    names = [f"human.{term}_x{factor}" for term in terms for factor in ("0", "0.5", "2")]
    assert [source.name for source in sources] == [*names, "human.without_reward"]
    texts = {name: sources[names.index(f"human.{name}")].source for name in ("speed_x2", "upright_x0")}
    made, faults = groups(cfg, **texts)
    assert not faults and made[0].shaping.components == terms
    env = environment(cfg, made)
    upright, speed = 0.3 * torch.tensor([[1.0], [1.0], [0.0]]), -0.02 * torch.tensor([[1.0], [2.0], [1.0]])
    for step in played(env, 20):
        angle, rate = env.task.isaac.dof_pos[:, 0].view(3, -1), env.task.isaac.dof_vel[:, 0].view(3, -1)
        expected = torch.clip(upright * torch.cos(angle) + speed * torch.square(rate), min=0.0)
        goes_on = ~(step.terminated | step.truncated).view(3, -1)  # else the state is that of the next episode
        torch.testing.assert_close(step.reward.view(3, -1)[goes_on], expected[goes_on], rtol=1e-5, atol=1e-6)


def test_term_that_is_one_number_is_noted_for_every_environment():
    task = SimpleNamespace(num_envs=3, device="cpu", reward_functions=[lambda: 1.0], reward_names=["alive"])
    RewardTerms(task)
    task.reward_functions[0]()
    assert task.reward_terms["alive"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (lambda total, end: total + end, False),
        (lambda total, end: total.clamp(min=0.0) + end, False),
        (lambda total, end: torch.where(end != 0, -7.0, total), False),  # a fixed reward at the end of an episode
        (lambda total, end: 1.001 * total + end, True),  # as go2_rl_gym's curriculum
        (lambda total, end: total + end + 0.1, True),
    ],
)
def test_reward_that_is_not_the_sum_of_its_terms_is_told_once(caplog, reward, told):
    down = torch.tensor([0.0, 0.0, 1.0])
    task = SimpleNamespace(num_envs=3, device="cpu", rew_buf=torch.zeros(3), reset_buf=down.long())
    task.reward_names, task.reward_scales = ["height", "effort"], {"height": 0.5, "effort": -0.1, "termination": -2.0}
    task.reward_functions = [lambda: torch.tensor([1.0, 2.0, 3.0]), lambda: torch.tensor([20.0, 1.0, 1.0])]
    task._reward_termination = lambda: down
    terms = RewardTerms(task)
    for _ in range(200):
        with terms.noted():
            parts = [task.reward_scales[name] * f() for name, f in zip(task.reward_names, task.reward_functions)]
            task.rew_buf[:] = reward(sum(parts), -2.0 * task._reward_termination())
    assert caplog.text.count("its own reward is not the sum of its terms times reward_scales") == told


def test_terms_are_described_with_their_place():
    weigher, summer = (" ".join(describe(f"legged_gym:{name}").split()) for name in ("weigher", "summer"))
    assert "reward_terms_speed (n,) ? term of the task's own reward, without its scale, from walker.py:" in weigher
    assert 'reward_terms is also a dict: reward_terms["upright"]' in weigher and "reward_scales is also" in weigher
    assert "with its scale, from walker.py" in summer


@pytest.mark.slow
def test_a_task_without_terms_has_no_such_names():
    _, faults = groups(config(), mine="def compute_reward(reward_terms):\n    return reward_terms['upright']\n")
    assert "'reward_terms' is not a key of the state" in str(faults)
