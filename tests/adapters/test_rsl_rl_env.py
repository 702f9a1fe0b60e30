"""What rsl_rl gets of a step, with steps that are given."""

from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.adapters.rsl_rl import RslRlVecEnv


class Steps:
    """As much of a SingleCandidateEnv as the adapter uses: one environment is terminated, another truncated."""

    num_envs, action_dim, max_steps, device, task, candidate = 3, 1, 40, torch.device("cpu"), "Cartpole", "human"

    def reset(self):
        return torch.zeros(3, 2)

    def step(self, actions):
        terminated, truncated = torch.tensor([True, False, False]), torch.tensor([False, True, False])
        return SimpleNamespace(
            obs=actions + torch.arange(2), reward=actions[:, 0], terminated=terminated, truncated=truncated,
            done=terminated | truncated,
        )  # fmt: skip


def test_time_outs_are_truncations_and_dones_are_both():
    pytest.importorskip("tensordict")  # here, as its import takes seconds
    obs, rewards, dones, extras = RslRlVecEnv(Steps()).step(torch.full((3, 1), 0.5))
    assert dones.tolist() == [1, 1, 0] and dones.dtype == torch.int64
    assert extras["time_outs"].tolist() == [False, True, False]  # rsl_rl adds the value of the last state to these
    assert rewards.tolist() == [0.5] * 3 and obs["policy"].tolist() == [[0.5, 1.5]] * 3
