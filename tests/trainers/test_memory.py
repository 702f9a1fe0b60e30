from dataclasses import replace
from typing import Any

import pytest
import torch
from oracle import make_params

from envcoder_bench.trainers.ppo import architecture
from envcoder_bench.trainers.ppo.architecture import learner_bytes
from envcoder_bench.trainers.ppo.learner import GroupedLearner

CPU = torch.device("cpu")


def params(**overrides: Any) -> Any:
    mlp = {**make_params()["network"]["mlp"], "units": [256, 128, 64], "activation": "relu"}  # which keeps nothing
    return make_params(network__mlp=mlp, horizon_length=24, num_minibatches=3, **overrides)


def nbytes(*tensors: torch.Tensor | None) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


@pytest.mark.parametrize("obs_dim, action_dim, critic_dim, separate", [
    (48, 12, 0, False), (45, 7, 0, True), (45, 7, 90, True),
])  # fmt: skip
def test_group_memory_counts_weights_moments_and_rollout(
    obs_dim: int, action_dim: int, critic_dim: int, separate: bool
) -> None:
    config, critic_dims = params(network__separate=separate), [critic_dim] * 2 if critic_dim else []
    learner = GroupedLearner([obs_dim] * 2, [action_dim] * 2, [0, 1], config, 64, critic_dims=critic_dims)
    rollout = learner.new_rollout()
    kept = nbytes(learner.network.flat, learner.adam.exp_avg, learner.adam.exp_avg_sq, *vars(rollout).values()) // 2
    seen_and_done = 64 * (obs_dim + critic_dim + action_dim) * 4
    computed = learner_bytes(obs_dim, action_dim, 64, config, CPU, critic_dim)
    assert computed.per_group == kept + seen_and_done


@pytest.mark.parametrize("separate, critic_dim", [(False, 0), (True, 0), (True, 100)])
def test_workspace_estimate_bounds_the_carved_memory(separate: bool, critic_dim: int) -> None:
    config, critic_dims = params(network__separate=separate), [critic_dim] * 3 if critic_dim else []
    learner = GroupedLearner([48] * 3, [12] * 3, [0, 1, 2], config, 64, critic_dims=critic_dims)
    carved, computed = learner.workspace_size() * 4, learner_bytes(48, 12, 64, config, CPU, critic_dim)
    # the rest is for temporary tensors, a fifth of the whole at most
    assert 0.8 * 3 * computed.workspace < carved < 3 * computed.workspace


def test_groups_beyond_the_concurrent_ones_need_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    one = learner_bytes(48, 12, 64, params(), CPU)
    monkeypatch.setattr(architecture, "WORKSPACE_BYTES", 4 * one.workspace + 1)
    computed = learner_bytes(48, 12, 64, params(), CPU)
    assert computed == replace(one, fitting=4)
    assert computed.total(4) == 4 * one.per_group + 4 * one.workspace
    assert computed.total(5) == 5 * one.per_group + 2 * one.workspace  # they take turns, in half of the memory
    assert computed.total(100) == 100 * one.per_group + 2 * one.workspace
    monkeypatch.setattr(architecture, "WORKSPACE_BYTES", 1)
    assert learner_bytes(48, 12, 64, params(), CPU).at_once(100) == 1
