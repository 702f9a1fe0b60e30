from typing import Any

import pytest
import torch
from oracle import make_params
from rl_games.algos_torch import torch_ext
from rl_games.common import common_losses, schedulers

from envcoder_bench.trainers.ppo import objective
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


def test_kl_matches_rl_games_and_ignores_padding() -> None:
    rng = torch.Generator().manual_seed(0)
    mu, old_mu = torch.randn(2, 2, 30, 3, generator=rng, dtype=torch.float64)
    sigma, old_sigma = torch.rand(2, 2, 1, 3, generator=rng, dtype=torch.float64) + 0.1
    mask = torch.tensor([[[1.0, 1.0, 1.0]], [[1.0, 1.0, 0.0]]])
    mu, old_mu = mu * mask, old_mu * mask
    kl = objective.policy_kl(TORCH, mu, sigma, old_mu, old_sigma, mask)
    for k, width in enumerate((3, 2)):
        arguments = [x[k, ..., :width].expand(30, width) for x in (mu, sigma, old_mu, old_sigma)]
        torch.testing.assert_close(kl[k], torch_ext.policy_kl(*arguments))


def test_neglogp_and_entropy_match_torch_and_ignore_padding() -> None:
    rng = torch.Generator().manual_seed(0)
    mask = torch.tensor([[[1.0, 1.0, 1.0]], [[1.0, 1.0, 0.0]]])
    mu, actions = torch.randn(2, 2, 30, 3, generator=rng) * mask
    log_sigma = torch.randn(2, 1, 3, generator=rng) * mask
    widths = torch.tensor([[3.0], [2.0]])
    for k, width in enumerate((3, 2)):
        normal = torch.distributions.Normal(mu[k, :, :width], log_sigma[k, :, :width].exp().expand(30, width))
        expected = -normal.log_prob(actions[k, :, :width]).sum(-1)
        torch.testing.assert_close(objective.neglogp(actions, mu, log_sigma, widths)[k], expected)
        torch.testing.assert_close(objective.entropy(log_sigma, widths)[k], normal.entropy().sum(-1).mean())


@pytest.mark.parametrize(
    "kind, expected", [("bound", [0.0, 0.25 + 1.0]), ("regularisation", [2.42, 2.56 + 4.41]), ("none", [0.0, 0.0])]
)
def test_bound_loss_penalizes_means_beyond_1_1_and_its_gradient_matches_autograd(kind: str, expected: Any) -> None:
    mu = torch.tensor([[[1.1, -1.1, 0.0], [1.6, 0.0, -2.1]]], requires_grad=kind != "none")
    loss, gradient = objective.bound_loss(mu, kind)
    torch.testing.assert_close(loss.detach(), torch.tensor([expected]))
    want = torch.zeros_like(mu) if kind == "none" else torch.autograd.grad(loss.sum(), mu)[0]
    torch.testing.assert_close(gradient, want)


@pytest.mark.parametrize("options", [{}, {"use_smooth_clamp": True}, {"ppo": False}])
def test_policy_loss_and_gradient_match_rl_games(options: Any) -> None:
    ppo, rng = hyperparameters(**options), torch.Generator().manual_seed(0)
    old, new, advantages = torch.randn(3, 2, 500, generator=rng, dtype=torch.float64)
    new = (old + 0.3 * new).requires_grad_()  # on both sides of the clip
    function = common_losses.smoothed_actor_loss if ppo.use_smooth_clamp else common_losses.actor_loss
    expected = function(old, new, advantages, ppo.ppo, ppo.e_clip)
    loss, gradient = objective.policy_loss(ppo, old, new.detach(), advantages)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), new)[0])


@pytest.mark.parametrize("clip", [False, True])
def test_value_loss_and_gradient_match_rl_games(clip: bool) -> None:
    ppo, rng = hyperparameters(clip_value=clip), torch.Generator().manual_seed(0)
    old, new, returns = torch.randn(3, 2, 500, generator=rng, dtype=torch.float64)
    new = (old + 0.3 * new).requires_grad_()
    expected = common_losses.default_critic_loss(old, new, ppo.e_clip, returns, clip)
    loss, gradient = objective.value_loss(ppo, old, new.detach(), returns)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), new)[0])
