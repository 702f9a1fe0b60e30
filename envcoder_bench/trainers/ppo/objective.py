"""PPO's objective of a minibatch: its gradients by what the networks return, and its terms."""

import torch
from torch import Tensor

from envcoder_bench.trainers.ppo import losses, sums, triton_kernels, triton_objective
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.losses import Terms
from envcoder_bench.trainers.ppo.network import ActorCriticOutput
from envcoder_bench.trainers.ppo.rollout import Batch


def differentiate(
    hp: Hyperparameters,
    batch: Batch,
    index: int,
    output: ActorCriticOutput,
    log_sigma: Tensor,
    action_dims: Tensor,
    mask: Tensor | None,
) -> Terms:
    """Fill in ``output.d_mu`` and ``output.d_value``; set ``batch.mus`` and ``batch.sigmas`` to the present policy.

    Gradients are those of the mean over each group's samples, so that groups do not affect each other.

    Args:
        batch: minibatch ``index`` of it counts.
        log_sigma: ``(K, 1, A)``, 0 in padded columns.
        action_dims: ``(K, 1)`` float, each group's number of actions.
        mask: ``(K, 1, A)``, 0 in padded columns (None: no padding).
    """
    if triton_kernels.usable(output.mu):
        return triton_objective.differentiate(hp, batch, index, output, log_sigma, action_dims)
    rows, mu, sigma = batch.rows(index), output.mu, torch.exp(log_sigma)
    distance = (mu - batch.actions[:, rows]).div_(sigma)  # in standard deviations
    squares = distance.square()
    neglogp = losses.neglogp_of_squares(squares, log_sigma, action_dims)
    policy_loss, d_neglogp = losses.policy_loss(hp, batch.neglogp[:, rows], neglogp, batch.advantages[:, rows])
    value_loss, d_value = losses.value_loss(hp, batch.values[:, rows], output.value, batch.returns[:, rows])
    bounds_loss, d_mu = losses.bound_loss(mu, hp.bound_loss_type)
    kl = losses.policy_kl(mu, sigma, batch.mus[:, rows], batch.sigmas[index], mask)
    # as in rl_games: the next mini epoch measures its divergence from this policy
    batch.mus[:, rows] = mu
    batch.sigmas[index] = sigma
    weight = 1.0 / mu.shape[1]
    torch.mul(d_value, 0.5 * hp.critic_coef * weight, out=output.d_value)
    d_neglogp = (d_neglogp * weight).unsqueeze(-1)
    d_mu.mul_((hp.bounds_loss_coef or 0.0) * weight)
    torch.addcmul(d_mu, distance.div_(sigma), d_neglogp, out=output.d_mu)
    d_log_sigma = sums.total(d_neglogp, keepdim=True) - sums.total(squares.mul_(d_neglogp), keepdim=True)
    return Terms(kl, sums.mean(policy_loss), sums.mean(value_loss), sums.mean(bounds_loss), d_log_sigma)
