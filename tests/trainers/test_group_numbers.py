"""Groups with numbers of their own, such as learning rates, train as groups whose config has these numbers."""

from typing import Any

import pytest
import torch
from kernel_device import DEVICE, INTERPRETED, compares_kernels
from linear_env import Run, assert_bitwise, make_env
from oracle import make_params
from torch import Tensor

from envcoder_bench.trainers.ppo.adam import GroupedAdam, clip_norm, update_learning_rates
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.group_numbers import NUMBERS, group_numbers, join_hyperparameters
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.network import ActorCriticOutput
from envcoder_bench.trainers.ppo.objective import differentiate
from envcoder_bench.trainers.ppo.rollout import Batch, Rollout, generalized_advantages
from envcoder_bench.trainers.ppo.trainer import GroupedPPO
from envcoder_bench.trainers.sections import with_numbers

OTHER = {
    "learning_rate": 2e-3, "kl_threshold": 2e-3, "gamma": 0.7, "tau": 0.5, "e_clip": 0.05, "entropy_coef": 0.2,
    "critic_coef": 0.3, "bounds_loss_coef": 2.0, "grad_norm": 0.05, "weight_decay": 0.1,
    "reward_shaper.scale_value": 3.0,
}  # fmt: skip
NUMBERS_OF = [
    {},
    {f"config.{name}": value for name, value in OTHER.items()},
    {"config.e_clip": 0.4, "config.kl_threshold": 0.05},
]
K, N, T, D, A = 3, 6, 8, 4, 2


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_groups_with_numbers_have_the_weights_of_runs_with_them() -> None:
    params = make_params(bound_loss_type="regularisation", mini_epochs=1)
    assert {*OTHER} == {key.removeprefix("config.") for key in group_numbers(params)}
    every = {f"config.{name}": value for name, value in OTHER.items()}
    each = [{}, every, *({key: value} for key, value in every.items())]
    swept = Run(env := make_env([0] * len(each)))
    args = (env.layout, env.obs_dims, env.action_dims, env.group_seeds, params, torch.device("cpu"))
    swept.trainer = GroupedPPO(*args, numbers=each)
    swept.train(2)
    for k in (0, 1):
        alone = Run(make_env([0]), **with_numbers(params, each[k])["config"])
        alone.train(2)
        assert_bitwise(alone.weights(0), swept.weights(k))
    usual = swept.weights(0)
    for k, numbers in enumerate(each):
        differs = any(not torch.equal(value, usual[key]) for key, value in swept.weights(k).items())
        assert differs == (k > 0), numbers


# in one learner, as on CUDA


def rollout_of(learner: GroupedLearner, seed: int) -> Rollout:
    rollout = learner.new_rollout()
    for name in ("obs", "actions", "mus", "values", "rewards", "last_values"):
        x = getattr(rollout, name)
        x.copy_(normal(K, *x.shape[1:], seed=seed)[-len(x) :])
        seed += 1
    rollout.obs[..., D:] = 0.0
    rollout.dones.copy_((normal(K, N, T, seed=seed) > 1.0)[-len(rollout.dones) :])
    rollout.mus.mul_(2.0)
    rollout.actions.copy_(rollout.mus + 0.5 * rollout.actions)
    return rollout


@pytest.mark.parametrize(
    "options",
    [
        {"bound_loss_type": "regularisation"},
        {"lr_schedule": "linear", "schedule_entropy": True, "use_smooth_clamp": True, "bounds_loss_coef": None},
        {"schedule_type": "rollout", "grad_norm_per_network": True, "network__separate": True},
    ],
)
def test_groups_of_one_learner_match_learners_with_their_numbers(options: Any) -> None:
    params, arguments = make_params(mini_epochs=1, num_minibatches=2, **options), ([D] * K, [A] * K, [7, 8, 9])
    together = GroupedLearner(*arguments, params, N, dtype=torch.float64, numbers=NUMBERS_OF)
    for epoch in (1, 2):
        stats = together.update(rollout_of(together, epoch), epoch)
        joined = together.join_states(together.split_state(together.get_state()))
        together = GroupedLearner(*arguments, params, N, dtype=torch.float64, numbers=NUMBERS_OF)
        together.set_state(joined)
    for k, numbers in enumerate(NUMBERS_OF):
        one = [values[k : k + 1] for values in arguments]
        alone = GroupedLearner(*one, with_numbers(params, numbers), N, dtype=torch.float64)
        for epoch in (1, 2):
            rollout = rollout_of(together, epoch)
            parts: dict[str, Any] = {
                name: x if x is None else x[k : k + 1].clone() for name, x in vars(rollout).items()
            }
            stats_alone = alone.update(Rollout(**parts), epoch)
        for name, value in alone.export(0).items():
            torch.testing.assert_close(together.export(k)[name], value, rtol=1e-9, atol=1e-11)
        for name, value in stats_alone.items():
            torch.testing.assert_close(stats[name][k : k + 1], value, rtol=1e-9, atol=1e-11)


@compares_kernels
@pytest.mark.parametrize("smooth", [False, True])
def test_kernels_give_each_group_the_bits_that_it_has_alone(smooth: bool) -> None:
    backend = Backend(kernels=True, fixed_order=True)
    params = make_params(use_smooth_clamp=smooth)
    each = [Hyperparameters.from_params(with_numbers(params, numbers), N) for numbers in NUMBERS_OF]
    together = join_hyperparameters(each, DEVICE)
    assert all(isinstance(getattr(together, name), Tensor) for name in NUMBERS)
    data = {name: normal(K, N * T, seed=k).to(DEVICE) for k, name in enumerate(("neglogp", "values", "returns"))}
    mus, actions = 2.0 * normal(2, K, N * T, A, seed=5).to(DEVICE)
    log_sigma, steps = 0.3 * normal(K, 1, A, seed=6).to(DEVICE), normal(4, K, N, T, seed=7).to(DEVICE)
    kl, params_of = torch.full((K,), 0.006, device=DEVICE), normal(2, K, 300, seed=9).to(DEVICE)

    def compute(hp: Hyperparameters, groups: slice) -> list[Tensor]:
        # the objective
        count = len(kl[groups])
        part: dict[str, Any] = {name: x[groups].clone() for name, x in data.items()}
        batch = Batch(
            obs=actions[groups], actions=actions[groups].clone(), mus=mus[groups].clone(), advantages=part["values"],
            sigmas=[torch.ones(count, 1, A, device=DEVICE)], **part,
        )  # fmt: skip
        out = torch.zeros(2, count, N * T, A + 1, device=DEVICE)
        out[0] = 1.3 * torch.cat([actions[groups], data["returns"][groups].unsqueeze(-1)], dim=-1)
        output = ActorCriticOutput(out[0, ..., :A], out[0, ..., A], out[1, ..., :A], out[1, ..., A], None, None)
        dims = torch.full((count, 1), float(A), device=DEVICE)
        terms = differentiate(backend, hp, batch, 0, output, log_sigma[groups].clone(), dims, None)
        # advantages
        values, rewards, dones, time_outs = (x[groups].clone() for x in steps)
        rollout = Rollout(actions, actions, mus, values, rewards, dones > 1.0, time_outs > 1.0, values[..., 0].clone())
        rollout.dones, rollout.time_outs = rollout.dones.float(), rollout.time_outs.float()
        advantages = generalized_advantages(backend, hp, rollout, rewards)
        # the optimizer
        adam = GroupedAdam(backend, params_of[0, groups].clone(), hp.learning_rate, hp.weight_decay)
        adam.step(params_of[1, groups].clone(), hp.grad_norm)
        update_learning_rates(backend, hp, adam.learning_rate, kl[groups].clone(), 1)
        clipped = params_of[1, groups].clone()
        assert hp.grad_norm is not None
        clip_norm(backend, [clipped], hp.grad_norm)
        return [*terms, out, advantages, adam.params, adam.learning_rate, clipped]

    results = compute(together, slice(0, K))
    for k, hp in enumerate(each):
        for got, want in zip(results, compute(hp, slice(k, k + 1)), strict=True):
            dim = next(d for d, size in enumerate(got.shape) if size == K)
            if smooth and INTERPRETED:  # it computes with the numbers in double precision where they are arguments
                torch.testing.assert_close(got.narrow(dim, k, 1), want, rtol=1e-5, atol=1e-8)
            else:
                assert torch.equal(got.narrow(dim, k, 1), want)
