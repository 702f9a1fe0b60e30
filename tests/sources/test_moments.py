"""A candidate's functions read what the task's own reward and observation read, whatever the task does afterwards."""

from contextlib import contextmanager

import pytest
import torch
from isaac_helpers import FOLDER, config, environment, groups, played

from envcoder_bench.env.evaluation import step_fitness
from envcoder_bench.sources.isaacgym_tasks.moments import Moments

TRACKER = "legged_gym:tracker"
REWARD = """def compute_reward(last_dof_vel, dof_vel, air_time, torques):
    return torch.square(last_dof_vel - dof_vel).sum(dim=1) + air_time + torques[:, 0]
"""
OBSERVATION = """def compute_observation(last_dof_vel, scan, air_time, dof_vel):
    return torch.cat((last_dof_vel, scan, air_time.unsqueeze(1), dof_vel), dim=1)
"""
TERMINAL = "def compute_terminal(last_dof_vel, dof_vel):\n    return torch.abs(last_dof_vel - dof_vel)[:, 0] > 0.1\n"


@pytest.fixture
def fork(monkeypatch):
    monkeypatch.setenv("LEGGED_GYM_PATH", str(FOLDER / "checkout"))


@pytest.mark.parametrize("compiled", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_copy_of_the_task_s_own_reward_and_observation_equals_them(fork, compiled):
    cfg = config(TRACKER, f"compile_shapers={compiled}")
    made, faults = groups(cfg, reward=REWARD, observation=OBSERVATION)
    assert not faults
    env = environment(cfg, made)
    own = env.task.isaac
    obs, began = env.reset(), torch.zeros(4, dtype=torch.bool)
    assert torch.equal(obs[8:12, :4], own.obs_buf[8:])
    for step in played(env, 60):
        assert torch.equal(step.reward[4:8], own.rew_buf[4:8]) and bool((step.reward[4:8] != 0).all())
        assert torch.equal(step.obs[8:12, :4], own.obs_buf[8:])
        began |= step.terminated[8:12]
    assert began.sum() > 0  # rows of new episodes are those after the reset


def test_observations_do_not_depend_on_resets_of_others(fork):
    cfg = config(TRACKER)
    made, _ = groups(cfg, observation=OBSERVATION, ends=f"{TERMINAL}\n\n{OBSERVATION}")
    alone, beside = environment(cfg, made[1:2]), environment(cfg, made[1:])
    alone.reset(), beside.reset()
    generator = torch.Generator().manual_seed(0)
    ended = 0
    for _ in range(30):
        actions = 2.0 * torch.rand(4, 1, generator=generator) - 1.0
        step, both = alone.step(actions), beside.step(actions.repeat(2, 1))
        assert torch.equal(step.obs, both.obs[:4]) and torch.equal(step.reward, both.reward[:4])
        ended += int(both.terminated[4:].sum())
    assert ended > 5


def test_fitness_reads_the_end_of_the_step_and_a_checkpoint_the_observation(fork):
    cfg = config(TRACKER)
    made, _ = groups(cfg, observation=OBSERVATION)
    env = environment(cfg, made)
    env.reset()
    state = env.task.state
    for _ in range(3):
        env.advance(torch.ones(env.actions.shape))
        assert not torch.equal(state["last_dof_vel"], state["dof_vel"])
        step_fitness(env, torch.ones(8, dtype=torch.bool))
        assert torch.equal(state["last_dof_vel"], state["dof_vel"])
        env.begin_episodes(torch.tensor([True, *[False] * 7]))
        assert not torch.equal(state["last_dof_vel"][1:], state["dof_vel"][1:])
    saved, seen = env.get_state(), env.observe()
    other = environment(cfg, made)
    other.set_state(saved)
    other.begin_episodes(torch.zeros(8, dtype=torch.bool))
    assert torch.equal(other.observe(), seen)


def paid(x):
    return x, x + 1.0


class Hand:
    def __init__(self):
        self.rew_buf, self.goal_buf, self.held, self.log = torch.zeros(2), torch.zeros(2), torch.zeros(2), []

    def compute_reward(self):
        self.log.append("reward")
        self.rew_buf[:], self.goal_buf[:] = paid(self.held)
        self.held = self.held + 1.0

    def compute_observations(self):
        self.log.append("observation")

    def _prepare_reward_function(self):
        self.log.append("prepared")


class Finger(Hand):
    def compute_reward(self):
        super().compute_reward()


class Nested(Hand):
    def compute_observations(self):
        self._compute_observations()
        super().compute_observations()

    def _compute_observations(self):
        self.log.append("inner")


def test_sensors_err_once_where_one_observation_calls_the_other():
    task = Nested()
    moments = Moments(task)

    @contextmanager
    def erring():
        task.log.append("err")
        yield
        task.log.append("restore")

    moments.observing = erring
    moments.watch(lambda: None, lambda: task.log.append("observed"))
    moments.begin()
    task.compute_observations(), task._compute_observations()
    assert task.log == ["err", "inner", "observation", "observed", "restore", "err", "inner", "restore"]


@pytest.mark.parametrize("order", ["reward first", "observation first", "neither"])
def test_moments_are_before_the_reward_and_after_the_observation(order):
    task = Finger()
    moments = Moments(task)
    assert "goal_buf" in moments.results and "held" not in moments.results
    log = task.log
    moments.watch(lambda: log.append("judged"), lambda: log.append("observed"))
    task.compute_reward(), task._prepare_reward_function()
    assert log == ["reward", "prepared"]  # outside of a step
    log.clear()
    moments.begin()
    if order == "reward first":
        task.compute_reward(), task.compute_observations(), task.compute_observations()
    elif order == "observation first":
        task.compute_observations(), task.compute_reward()
    moments.end()
    expected = {
        "reward first": ["judged", "reward", "observation", "observed", "observation"],
        "observation first": ["observation", "observed", "judged", "reward"],
        "neither": ["judged", "observed"],
    }
    assert log == expected[order]
