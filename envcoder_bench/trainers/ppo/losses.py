"""Loss terms of PPO for all groups. Shapes: K groups, N samples, A actions (padded columns have mu = x = 0)."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from envcoder_bench.trainers.ppo import sums
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

LOG_2PI = math.log(2.0 * math.pi)
SOFT_BOUND = 1.1  # mean actions beyond this are penalized by the bound loss


class Terms(NamedTuple):
    """The terms of the objective of a minibatch: means over its samples ``(K,)``, and a gradient."""

    kl: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    bounds_loss: Tensor
    d_log_sigma: Tensor  # (K, 1, A), without the entropy's part


def neglogp(actions: Tensor, mu: Tensor, log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Negative log-probability under a diagonal Gaussian.

    Args:
        actions, mu: ``(K, N, A)``.
        log_sigma: ``(K, 1, A)``, 0 in padded columns.
        action_dims: ``(K, 1)`` float, each group's own number of actions.

    Returns:
        ``(K, N)``.
    """
    return neglogp_of_squares(((actions - mu) * torch.exp(-log_sigma)).square(), log_sigma, action_dims)


def neglogp_of_squares(squares: Tensor, log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Return ``neglogp`` from squared distances from the mean in standard deviations, ``(K, N, A)``."""
    return torch.add(0.5 * LOG_2PI * action_dims + log_sigma.sum(dim=-1), squares.sum(dim=-1), alpha=0.5)


def entropy(log_sigma: Tensor, action_dims: Tensor) -> Tensor:
    """Entropy ``(K,)`` of the Gaussian; it is the same for all samples because sigma does not depend on the state."""
    return (log_sigma.sum(dim=-1) + (0.5 + 0.5 * LOG_2PI) * action_dims).squeeze(1)


def policy_kl(mu: Tensor, sigma: Tensor, old_mu: Tensor, old_sigma: Tensor, mask: Tensor | None = None) -> Tensor:
    """KL divergence ``(K,)`` of the new policy from the old, mean over samples; rl_games' ``torch_ext.policy_kl``.

    Args:
        mu, old_mu: ``(K, N, A)``.
        sigma, old_sigma: ``(K, 1, A)``.
        mask: ``(K, 1, A)``, 0 in padded columns (None: no padding).
    """
    twice_variance = 2.0 * (old_sigma**2 + 1e-5)
    # only the squared distance of the means depends on the sample; the rest is one number per action
    distance = sums.mean((old_mu - mu).square_(), keepdim=True)
    kl = torch.log(old_sigma / sigma + 1e-5) + (sigma**2 + distance) / twice_variance - 0.5
    return (kl if mask is None else kl * mask).sum(dim=-1).squeeze(1)


def bound_loss(mu: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Penalty on large mean actions: ``bound`` beyond +-1.1, ``regularisation`` everywhere, else none.

    Returns:
        The loss ``(K, N)``, and its gradient by ``mu`` ``(K, N, A)``.
    """
    if kind not in ("bound", "regularisation"):
        return torch.zeros_like(mu[..., 0]), torch.zeros_like(mu)
    beyond = F.softshrink(mu, SOFT_BOUND) if kind == "bound" else mu  # the part of mu beyond the bound
    return beyond.square().sum(dim=-1), 2.0 * beyond


def policy_loss(hp: Hyperparameters, old_neglogp: Tensor, neglogp: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate (Schulman et al., 2017), to be minimised; rl_games' ``actor_loss``.

    Returns:
        The loss ``(K, N)``, and its gradient by ``neglogp`` ``(K, N)``.
    """
    if not hp.ppo:
        return neglogp * advantages, advantages
    ratio, low, high = torch.exp(old_neglogp - neglogp), 1.0 - hp.e_clip, 1.0 + hp.e_clip
    surrogate = advantages * ratio
    if hp.use_smooth_clamp:
        step = torch.sigmoid((4.0 / (high - low)) * (ratio - low) - 2.0)
        clipped = advantages * (step * (high - low) + low)
        d_clipped = 4.0 * step * (1.0 - step) * surrogate
    else:
        clipped = advantages * ratio.clamp(low, high)
        d_clipped = torch.zeros_like(surrogate)  # within the clip both are equal, and the first counts
    return -torch.minimum(surrogate, clipped), torch.where(surrogate <= clipped, surrogate, d_clipped)


def value_loss(hp: Hyperparameters, old_values: Tensor, values: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error of the critic, clipped around the old values if enabled; rl_games' ``default_critic_loss``.

    Returns:
        The loss ``(K, N)``, and its gradient by ``values`` ``(K, N)``.
    """
    error = values - returns
    loss, gradient = error.square(), 2.0 * error
    if not hp.clip_value:
        return loss, gradient
    change = values - old_values
    clipped = (change.clamp(-hp.e_clip, hp.e_clip) + (old_values - returns)).square()
    stopped = (clipped > loss) & (change.abs() > hp.e_clip)
    return torch.maximum(loss, clipped), gradient.masked_fill_(stopped, 0.0)
