from typing import Any

import pytest
import torch
from oracle import make_params
from rl_games.common import schedulers

from envcoder_bench.trainers.ppo.adam import next_entropy_coef, next_learning_rate
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.rollout import Rollout, generalized_advantages

TORCH = Backend(kernels=False, fixed_order=False)


def hyperparameters(**overrides: Any) -> Hyperparameters:
    return Hyperparameters.from_params(make_params(**overrides), num_envs=6)


def make_rollout(values: Any, rewards: Any, dones: Any, time_outs: Any, last_value: float) -> Rollout:
    """A rollout of one environment."""
    rollout = Rollout.empty(1, 1, len(values), 1, 1, torch.zeros(0))
    for name, data in {"values": values, "rewards": rewards, "dones": dones, "time_outs": time_outs}.items():
        getattr(rollout, name)[0, 0] = torch.tensor(data, dtype=torch.float32)
    rollout.last_values.fill_(last_value)
    return rollout


def test_gae_matches_hand_computed_values() -> None:
    # gamma 0.5, tau 0.5, so a residual weighs 1/4 of the next; worked by hand:
    #   t=2: delta = 3 + 0.5*8 - 2 = 5                      A = 5
    #   t=1: the episode ends: delta = 2 + 0 - 4 = -2       A = -2
    #   t=0: delta = 1 + 0.5*4 - 1 = 2                      A = 2 + 0.25*(-2) = 1.5
    rollout = make_rollout([1, 4, 2], [1, 2, 3], [0, 1, 0], [0, 0, 0], last_value=8.0)
    advantages = generalized_advantages(TORCH, hyperparameters(gamma=0.5, tau=0.5), rollout, rollout.rewards)
    assert advantages.tolist() == [[[1.5, -2.0, 5.0]]]


def test_gae_bootstraps_a_time_out_with_the_value() -> None:
    # as above, but the end at t=1 is the clock's: its reward becomes 2 + 0.5*4 = 4, so A = 0 there and 2 at t=0
    rollout = make_rollout([1, 4, 2], [1, 2, 3], [0, 1, 0], [0, 1, 0], last_value=8.0)
    ppo = hyperparameters(gamma=0.5, tau=0.5)
    assert generalized_advantages(TORCH, ppo, rollout, rollout.rewards).tolist() == [[[2.0, 0.0, 5.0]]]
    without = generalized_advantages(TORCH, ppo.model_copy(update={"value_bootstrap": False}), rollout, rollout.rewards)
    assert without.tolist() == [[[1.5, -2.0, 5.0]]]


def test_adaptive_learning_rates_match_rl_games_per_group() -> None:
    ppo, stock = hyperparameters(), schedulers.AdaptiveScheduler(0.008)
    kl = torch.tensor([0.0, 0.004, 0.0039, 0.01, 0.016, 0.0161, 1.0, float("nan")])
    for rate in (3e-4, 1.2e-6, 9e-3):
        rates = next_learning_rate(ppo, torch.full((8,), rate, dtype=torch.float64), kl, 1)
        assert rates.tolist() == [stock.update(rate, 0.0, 1, 0, x)[0] for x in kl.tolist()]
        assert rates.min() < rate < rates.max()


@pytest.mark.parametrize("limit", [{"max_epochs": 10}, {"max_epochs": -1, "max_frames": 1000}])
def test_linear_learning_rate_and_entropy_match_rl_games(limit: Any) -> None:
    ppo = hyperparameters(lr_schedule="linear", schedule_entropy=True, **limit)
    by_epoch = limit["max_epochs"] != -1
    stock = schedulers.LinearScheduler(
        3e-4, max_steps=max(limit.values()), use_epochs=by_epoch, apply_to_entropy=True, start_entropy_coef=0.01
    )
    for epoch in (1, 5, 12):
        rate, entropy = stock.update(3e-4, 0.01, epoch, 0, None)
        assert next_learning_rate(ppo, torch.zeros(1, dtype=torch.float64), torch.zeros(1), epoch).item() == rate
        assert next_entropy_coef(ppo, epoch) == entropy
