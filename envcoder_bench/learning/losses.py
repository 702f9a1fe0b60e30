"""PPO's terms for every group at once. Shapes: K groups, N samples, A actions (padded columns hold mu = x = 0)."""
from __future__ import annotations

import math
from typing import Optional

import torch
import torch.nn.functional as F
from rl_games.common import common_losses
from torch import Tensor

from envcoder_bench.learning.settings import PPOSettings

LOG_2PI = math.log(2.0 * math.pi)
SOFT_BOUND = 1.1  # mean actions beyond this are pulled back by the bound loss


def neglogp(actions: Tensor, mu: Tensor, log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Negative log-probability under a diagonal Gaussian.

    Args:
        actions, mu: ``(K, N, A)``.
        log_sigma: ``(K, 1, A)``, 0 in padded columns.
        action_dims: ``(K, 1)`` float, each group's own number of actions.

    Returns:
        ``(K, N)``.
    """
    squares = ((actions - mu) * torch.exp(-log_sigma)).square().sum(dim=-1)
    return 0.5 * squares + (0.5 * LOG_2PI * action_dims + log_sigma.sum(dim=-1))


def entropy(log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Entropy ``(K,)`` of the Gaussian; it is the same for all samples because sigma does not depend on the state."""
    return (log_sigma.sum(dim=-1) + (0.5 + 0.5 * LOG_2PI) * action_dims).squeeze(1)


def policy_kl(mu: Tensor, sigma: Tensor, old_mu: Tensor, old_sigma: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    """Divergence ``(K,)`` of the new policy from the old, mean over samples; rl_games' ``torch_ext.policy_kl``.

    Args:
        mu, old_mu: ``(K, N, A)``.
        sigma, old_sigma: ``(K, 1, A)``.
        mask: ``(K, 1, A)``, 0 in padded columns (None: no padding).
    """
    twice_variance = 2.0 * (old_sigma**2 + 1e-5)
    # the mean over samples touches only the squared distance of the means: the rest is one number per action
    distance = (old_mu - mu).square_().mean(dim=1, keepdim=True)
    kl = torch.log(old_sigma / sigma + 1e-5) + (sigma**2 + distance) / twice_variance - 0.5
    return (kl if mask is None else kl * mask).sum(dim=-1).squeeze(1)


def bound_loss(mu: Tensor, kind: str) -> Tensor:
    """Penalty ``(K, N)`` on large mean actions: ``bound`` beyond +-1.1, ``regularisation`` everywhere, else none."""
    if kind == "bound":
        return F.softshrink(mu, SOFT_BOUND).square().sum(dim=-1)  # what is left of mu beyond the bound, else 0
    if kind == "regularisation":
        return mu.square().sum(dim=-1)
    return torch.zeros_like(mu[..., 0])


def policy_loss(settings: PPOSettings, old_neglogp: Tensor, new_neglogp: Tensor, advantages: Tensor) -> Tensor:
    """PPO's clipped surrogate, to be minimised: ``(K, N)``."""
    function = common_losses.smoothed_actor_loss if settings.use_smooth_clamp else common_losses.actor_loss
    return function(old_neglogp, new_neglogp, advantages, settings.ppo, settings.e_clip)


def value_loss(settings: PPOSettings, old_values: Tensor, values: Tensor, returns: Tensor) -> Tensor:
    """Squared error of the critic, clipped around the old values where asked: ``(K, N)``."""
    return common_losses.default_critic_loss(old_values, values, settings.e_clip, returns, settings.clip_value)
