"""ElegantRL 0.3.6, as it is in the package index, trains its own AgentPPO on our environments."""

import numpy as np
import pytest
import torch

from envcoder_bench.adapters.elegantrl import IsaacOneEnv, IsaacVecEnv
from envcoder_bench.core.torch_settings import settings_kept

pytest.importorskip("elegantrl", reason="make test gets it: requirements-test.txt")
from elegantrl.agents import AgentPPO
from elegantrl.train.config import Config
from elegantrl.train.run import train_agent

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def torch_as_before():
    """ElegantRL sets threads, seeds and gradients for the whole process."""
    with settings_kept():
        try:
            yield
        finally:
            torch.set_grad_enabled(True)


def train(env_args, cwd, iterations, env_class=IsaacVecEnv, **more):
    """Train; return the rows of the evaluator: steps, mean and standard deviation of returns, and more."""
    config = Config(AgentPPO, env_class, env_args)
    config.gpu_id, config.num_threads, config.cwd = -1, 1, str(cwd)
    config.horizon_len, config.batch_size, config.repeat_times = 32, 256, 8.0 * 20
    config.eval_per_step, config.eval_times = 32 * (iterations - 1), 1
    config.break_step = 32 * iterations - 1
    for name, value in more.items():
        setattr(config, name, value)
    train_agent(config)
    return np.load(cwd / "recorder.npy")


def test_ant_trains_on_a_candidate_file(tmp_path):
    candidate = tmp_path / "mine.py"
    candidate.write_text(
        "def compute_reward(root_states):\n    return root_states[:, 7]\n"
        "def compute_observation(root_states, dof_pos, dof_vel):\n"
        "    return torch.cat((root_states[:, 2:], dof_pos, dof_vel), dim=-1)\n"
    )
    made = IsaacVecEnv("Ant", num_envs=4, gpu_id=-1, candidate=str(candidate), overrides={"task.env.episodeLength": 20})
    assert (made.state_dim, made.action_dim, made.max_step) == (27, 8, 19)
    rows = train(made.env_args, tmp_path / "run", 2, batch_size=32, repeat_times=2.0, eval_per_step=1)
    assert len(rows) == 2 and np.isfinite(rows).all()


def test_single_environment_trains(tmp_path):
    env = IsaacOneEnv("Cartpole", gpu_id=-1, overrides={"task.env.episodeLength": 20})
    rows = train(env.env_args, tmp_path, 2, IsaacOneEnv, batch_size=32, repeat_times=2.0, eval_per_step=1)
    assert np.isfinite(rows[:, 1]).all() and 0 < rows[-1, 1] < 20.0
