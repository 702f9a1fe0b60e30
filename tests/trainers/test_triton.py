"""Triton's kernels give what torch's operations give, on CUDA or in Triton's interpreter."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernel_device import DEVICE, INTERPRETED, KERNELS, sizes
from oracle import make_params
from torch import Tensor

from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.trainers.ppo import acting, linear
from envcoder_bench.trainers.ppo.adam import next_learning_rate, update_learning_rates
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.block import LearnerBlock, draw_noise, new_noise
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.network import ActorCriticOutput
from envcoder_bench.trainers.ppo.normalizer import GroupedRunningMeanStd
from envcoder_bench.trainers.ppo.objective import differentiate, neglogp
from envcoder_bench.trainers.ppo.rollout import Batch, Rollout, generalized_advantages

pytestmark = KERNELS
ROUNDED = "medium" if INTERPRETED else "high"  # precision of products for which the layers are kernels
ENVS = 20 if INTERPRETED else 70  # more than a tile of rows where that has 16


def on_both(compute: Callable[[Backend], list[Tensor]], tolerance: float = 1e-5) -> None:
    """Compare what is computed with the kernels and without."""
    kernels = Backend.choose(DEVICE)
    assert kernels.kernels
    for got, want in zip(compute(kernels), compute(Backend(False, False)), strict=True):
        torch.testing.assert_close(got, want, rtol=10.0 * tolerance, atol=tolerance)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


# each combination is another kernel, which takes seconds to compile
@pytest.mark.parametrize(
    "bound, clip_value, smooth, ppo_loss, schedule",
    [
        ("bound", True, False, True, "legacy"),
        ("regularisation", False, True, True, "legacy"),
        ("none", True, True, False, "legacy"),
        ("none", True, False, True, "rollout"),
    ],
)
@pytest.mark.parametrize(
    "widths, samples, minibatches",
    [([5, 3, 1], 70, 2), ([1], 33, 1), *sizes([([12, 12], 3000, 3)], [])],
)
def test_objective(
    widths: list[int], samples: int, minibatches: int, bound: str, clip_value: bool, smooth: bool, ppo_loss: bool,
    schedule: str,
) -> None:  # fmt: skip
    params = make_params(
        bound_loss_type=bound, clip_value=clip_value, use_smooth_clamp=smooth, ppo=ppo_loss, bounds_loss_coef=0.1,
        schedule_type=schedule,
    )  # fmt: skip
    hp = Hyperparameters.from_params(params, 64)
    groups, most, size = len(widths), max(widths), samples * minibatches
    dims = torch.tensor(widths, dtype=torch.float32, device=DEVICE).unsqueeze(1)
    mask = (torch.arange(most, device=DEVICE) < dims).float().unsqueeze(1)
    log_sigma = (normal(groups, 1, most) * 0.3 - 0.5) * mask
    change = 0.2 * normal(groups, size, seed=2)
    change += 0.05 * change.sign()  # near a ratio of 1, the smooth clamp's branches differ by rounding alone

    def compute(backend: Backend) -> list[Tensor]:
        result, gradient = normal(groups, samples, 16) * 1.2, torch.zeros(groups, samples, 16, device=DEVICE)
        result[..., :most] *= mask
        mu, actions = result[..., :most], normal(groups, size, most, seed=1) * mask
        old_neglogp = neglogp(actions, mu.repeat(1, minibatches, 1), log_sigma, dims)
        batch = Batch(
            obs=actions, actions=actions, neglogp=old_neglogp + change,
            values=normal(groups, size, seed=3), returns=normal(groups, size, seed=4),
            advantages=normal(groups, size, seed=5), mus=normal(groups, size, most, seed=6) * mask,
            sigmas=[torch.exp((0.2 * normal(groups, 1, most, seed=7) - 0.5) * mask) for _ in range(minibatches)],
        )  # fmt: skip
        output = ActorCriticOutput(mu, result[..., most], gradient[..., :most], gradient[..., most], None, None)
        results = []
        for index in range(minibatches):
            results += differentiate(backend, hp, batch, index, output, log_sigma, dims, mask)
            results += [gradient * samples, batch.mus.clone(), *batch.sigmas]
            gradient.zero_()
        return results

    # in float32 both differ from float64 by up to 1e-4, where the terms of a sum cancel
    on_both(compute, tolerance=5e-4)


@pytest.mark.parametrize(
    "groups, rows, width, columns",
    [(3, 70, 52, 48), *sizes([(1, 1100, 20, 130), (None, 65, 144, 256)], [(1, 130, 20, 33), (None, 65, 36, 80)])],
)
@pytest.mark.parametrize(
    "tail, elu", sizes([*itertools.product((0, 10, 16), (False, True))], [(0, True), (10, False), (16, True)])
)
def test_layers(tail: int, elu: bool, groups: int | None, rows: int, width: int, columns: int) -> None:
    leading = () if groups is None else (groups,)
    x, weight = normal(*leading, rows, width), normal(*leading, width, columns, seed=1)
    copy = torch.empty_like(weight.mT, memory_format=torch.contiguous_format)
    linear.transpose(weight, copy)
    assert torch.equal(copy, weight.mT)
    out = torch.full((*leading, rows, columns + 32), 7.0, device=DEVICE)
    linear.linear(x, copy, out[..., : columns + tail], elu)
    y = x.double() @ weight.double()
    want = torch.nn.functional.elu(y) if elu else y
    assert (out[..., :columns] - want).norm() < 2e-3 * want.norm()  # TF32 has 11 bits
    assert (out[..., columns + tail :] == 7.0).all()
    assert (out[..., columns : columns + min(tail, 1)] == 1.0).all()
    assert (out[..., columns + 1 : columns + tail] == 0.0).all()


NETWORKS = [
    (False, True, [], False), (True, True, [4, 33, 2, 7], False), (True, False, [4, 33, 2, 7], True),
    (True, False, [], False), (False, False, [], False), (True, True, [], True),
]  # fmt: skip
NUMBERS = list(itertools.product(("highest", ROUNDED), (False, True), ([3, 3, 3, 3], [5, 3, 5, 4])))


@pytest.mark.parametrize(
    "separate, padded, critic_dims, as_rsl_rl, precision, normalize, seeds",
    sizes(
        [(*network, *numbers) for network in NETWORKS for numbers in NUMBERS],
        [(*network, *numbers) for network, numbers in zip(NETWORKS, (NUMBERS[7], NUMBERS[0], NUMBERS[7]))],
    ),
)
@pytest.mark.parametrize("obs_dims, action_dims", [([5, 9, 3, 1], [2, 1, 4, 3]), *sizes([([48] * 4, [12] * 4)], [])])
def test_acting(
    precision: str, obs_dims: list[int], action_dims: list[int], seeds: list[int], normalize: bool, separate: bool,
    padded: bool, critic_dims: list[int], as_rsl_rl: bool,
) -> None:  # fmt: skip
    params = make_params(
        normalize_input=normalize, normalize_value=normalize, network__separate=separate,
        empirical_normalization=as_rsl_rl,
    )  # fmt: skip
    params["network"]["space"]["continuous"]["std_type"] = "scalar" if as_rsl_rl else "log"
    backend = Backend(kernels=True, fixed_order=padded)  # then widths are beyond the environment's
    answers = torch.zeros(3, 7, ENVS, 8, device=DEVICE)
    with settings_kept():
        torch.set_float32_matmul_precision(precision)
        block = LearnerBlock(
            backend, slice(2, 6), obs_dims, action_dims, seeds, params, ENVS, DEVICE, answers, critic_dims
        )
        learner = block.learner
        learner.network.flat += 0.1 * normal(*learner.network.flat.shape)
        learner.network.weights_changed()
        if learner.obs_normalizer is not None and learner.value_normalizer is not None:
            learner.obs_normalizer.update(normal(4, 50, learner.network.architecture.inputs) * 3.0 + 1.0)
            learner.value_normalizer.update(normal(4, 50, 1) * 3.0 + 1.0)
        if learner.critic_normalizer is not None:
            learner.critic_normalizer.update(normal(4, 50, learner.network.architecture.critic_inputs, seed=3) + 2.0)
        numbers = new_noise([block], 8)
        draw_noise([block], 7, numbers)
        block.set_alive([True, False, True, True])

        def compute(backend: Backend) -> list[Tensor]:
            """Act in steps 0 and 5, with the same layers in either case."""
            for part in (learner, learner.obs_normalizer, learner.critic_normalizer, learner.value_normalizer):
                if part is not None:
                    part.backend = replace(backend, fixed_order=padded and backend.kernels)
            step = torch.zeros(1, dtype=torch.int64, device=DEVICE)
            out = torch.full((2, 7, ENVS, 20), 7.0, device=DEVICE)
            for t in range(2):
                obs, critic_obs = normal(7, ENVS, 50, seed=t), normal(7, ENVS, 40, seed=2 + t)
                block.act(step, obs, critic_obs, numbers[block.noise_key], out[t, ..., :13])
                step += 5
            recorded = vars(block.rollout)
            names = ["obs", "actions", "mus", "values", *(["critic_obs"] if critic_dims else [])]
            results = [recorded[name].clone() for name in names]
            for name in names:
                recorded[name].zero_()
            return [out, *results]

        on_both(compute)


def test_recording() -> None:
    reward = normal(3 * 70, 2)[:, 1]  # with gaps
    terminated = normal(3 * 70, seed=1) > 1.0
    truncated = (normal(3 * 70, seed=2) > 1.0) & ~terminated
    answers = torch.full((3, 3, 70, 5), 7.0, device=DEVICE)
    want = answers.clone()
    for rows, x in zip(want, (reward, terminated | truncated, truncated)):
        rows[:, :, 3] = x.view(3, 70)
    acting.record(True, reward, terminated, truncated, answers, 3)
    assert terminated.any() and truncated.any()
    assert torch.equal(answers, want)


DATA = [(1, 1, 50, False), (3, 2, 50, False), (2, 1, 1, False), (1, 1, 50, True)]
DIMS, BIASES, ALIVE = ([12, 12, 12], [11, 5, 3]), (None, 11), (None, [True, False, True])
EACH = list(itertools.product(DATA, DIMS, BIASES, ALIVE))


@pytest.mark.parametrize("data, dims, bias, alive", sizes(EACH, [EACH[k] for k in (4, 15, 17, 22, 27)]))
def test_statistics_and_normalization(
    data: tuple[int, int, int, bool], dims: list[int], bias: int | None, alive: Any
) -> None:
    rounds, batches, samples, empirical = data
    mask = None if alive is None else torch.tensor(alive, device=DEVICE)

    def compute(backend: Backend) -> list[Tensor]:
        normalizer = GroupedRunningMeanStd(backend, dims, DEVICE, 12, bias=bias, empirical=empirical)
        factors = []
        for turn in range(2):
            drawn = [normal(3, samples, 12, seed=10 * turn + k) * 3.0 + 1.0 for k in range(batches)]
            factors += [x for pair in normalizer.update_each(drawn, rounds, mask) for x in pair]
        statistics = normalizer.running_mean, normalizer.running_var, normalizer.count
        return [*factors, *statistics, normalizer.normalize(5.0 * drawn[0])]

    on_both(compute)


@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize("steps", [1, 8, 24])
def test_advantages(steps: int, bootstrap: bool) -> None:
    hp = Hyperparameters.from_params(make_params(value_bootstrap=bootstrap, gamma=0.9, tau=0.8), 64)
    rollout = Rollout.empty(3, 70, steps, 1, 1, like=torch.zeros(1, device=DEVICE))
    rollout.values.copy_(normal(3, 70, steps))
    rollout.last_values.copy_(normal(3, 70, seed=1))
    rollout.dones.copy_(normal(3, 70, steps, seed=2) > 1.0)
    rollout.time_outs.copy_(normal(3, 70, steps, seed=3) > 1.0)
    rewards = normal(3, 70, steps, seed=4)
    on_both(lambda backend: [generalized_advantages(backend, hp, rollout, rewards)])


@pytest.mark.parametrize("schedule", ["legacy", "rollout"])
def test_adaptive_learning_rate(schedule: str) -> None:
    params = make_params(lr_schedule="adaptive", kl_threshold=0.008, schedule_type=schedule)
    hp = Hyperparameters.from_params(params, 64)
    rng = torch.Generator().manual_seed(0)
    kl = (0.03 * torch.rand(300, generator=rng)).to(DEVICE)
    rate = (0.02 * torch.rand(300, generator=rng, dtype=torch.float64)).to(DEVICE)
    rate[:50] *= 1e-5
    kl[50:60] = 0.0
    want = next_learning_rate(hp, rate, kl, 1)
    update_learning_rates(Backend.choose(DEVICE), hp, rate, kl, 1)
    assert len(want.unique()) > 200
    torch.testing.assert_close(rate, want)
