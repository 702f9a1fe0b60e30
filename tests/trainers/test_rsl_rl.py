"""The keys for rsl_rl's semantics: whole updates equal those of rsl_rl's own PPO, recorded and, if installed, live."""

import json
from typing import Any

import pytest
import torch
from linear_env import LinearEnv
from rsl_rl_oracle import (
    FILE,
    NUM_ENVS,
    SMALL,
    VERSION,
    Recording,
    Stock,
    load,
    our_weights,
    params,
    small_learner,
    train_ours,
)

from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import train_iteration
from envcoder_bench.trainers.ppo.adam import next_learning_rate
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.normalizer import GroupedRunningMeanStd
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
DIMS = [(5, 2, 4), (9, 1, 15), (3, 4, 7)]  # of observation, action and critic's observation
CASES: dict[str, dict[str, Any]] = {
    "as mjlab": {},
    "other numbers": {"clip_value": False, "entropy_coef": 0.05, "grad_norm": 0.05, "kl_threshold": 0.002},
    "constant rate": {"lr_schedule": "identity"},
    "layers of the critic": {"network__mlp__critic_units": [24, 12, 8]},
}


def assert_same(
    learner: GroupedLearner, k: int, dims: tuple[int, int, int], expected: dict[str, torch.Tensor], rtol: float
) -> None:
    weights = our_weights(learner, k, dims)
    assert weights.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            weights[key].double(),
            value.view_as(weights[key]),
            rtol=rtol,
            atol=0.1 * rtol,
            msg=lambda m, key=key: f"{key}: {m}",
        )


@pytest.mark.parametrize("case", SMALL)
def test_updates_equal_the_recorded_ones_of_rsl_rl(case: str) -> None:
    learner, recordings = small_learner(case)
    for stats, expected in zip(train_ours(learner, recordings), RECORDED[case]["statistics"], strict=True):
        for name, value in expected.items():
            assert float(stats[name][0]) == pytest.approx(value, rel=1e-10, abs=1e-11), name
    weights = {key: torch.tensor(x, dtype=torch.float64) for key, x in RECORDED[case]["weights"].items()}
    assert_same(learner, 0, SMALL[case], weights, 1e-10)
    rates = [1e-3, *(stats["learning_rate"] for stats in RECORDED[case]["statistics"])]
    assert len(set(rates)) > 1


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_updates_equal_those_of_rsl_rl(case: str, asymmetric: bool) -> None:
    rsl_rl = pytest.importorskip("rsl_rl", reason=f"pip install --no-deps rsl-rl-lib=={VERSION}")
    assert rsl_rl
    dims = [(o, a, c if asymmetric else 0) for o, a, c in DIMS]
    own = params([16, 8], **CASES[case])
    obs_dims, action_dims, critic_dims = map(list, zip(*dims))
    learner = GroupedLearner(
        obs_dims,
        action_dims,
        [7, 8, 9],
        own,
        NUM_ENVS,
        dtype=torch.float64,
        critic_dims=critic_dims if asymmetric else [],
    )
    recordings = [Recording.of(*each, seed=k) for k, each in enumerate(dims)]
    stock = [Stock(own, recording, load(learner, k)) for k, recording in enumerate(recordings)]
    for stats, *expected in zip(train_ours(learner, recordings), *(each.train() for each in stock)):
        for k, losses in enumerate(expected):
            for name, value in losses.items():
                assert float(stats[name][k]) == pytest.approx(value, rel=1e-10, abs=1e-11), name
            assert_same(learner, k, dims[k], stock[k].weights(), 1e-10)


class Diary(LinearEnv):
    """Keeps what was observed."""

    def step(self, actions: torch.Tensor, final_obs: bool = False) -> EnvStep:
        step = super().step(actions, final_obs)
        self.seen = [*getattr(self, "seen", []), step.obs]
        return step


def test_trainer_counts_every_observation_after_the_first_once() -> None:
    env = Diary([3], [2], [7], 6)
    own = params([16, 8])
    trainer = GroupedPPO(env.layout, [3], [2], [7], own, torch.device("cpu"))
    obs = env.reset()
    for _ in range(2):
        obs, _ = train_iteration(trainer, env, obs)
    seen = torch.cat(env.seen).double()
    normalizer = trainer.blocks[0].learner.obs_normalizer
    assert normalizer is not None and len(seen) == 2 * 8 * 6
    assert normalizer.count.item() == pytest.approx(len(seen))
    torch.testing.assert_close(normalizer.running_mean[0, :3], seen.mean(dim=0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(normalizer.running_var[0, :3], seen.var(dim=0, correction=0), rtol=1e-5, atol=1e-6)
    # the exported policy acts with the same statistics, and no clip
    exported = GroupedPPO.load_policy(own, trainer.export(0))
    torch.testing.assert_close(exported(100.0 * obs), trainer.policy(env.layout)(100.0 * obs), rtol=1e-4, atol=1e-5)


def test_rates_have_rsl_rls_limits() -> None:
    hp = Hyperparameters.from_params(params([16, 8]), NUM_ENVS)
    rates = torch.tensor([1.2e-5, 1e-3, 9e-3, 1e-3, 1e-3], dtype=torch.float64)
    divergence = torch.tensor([0.021, 0.0, 1e-9, 0.006, 0.004])
    expected = torch.tensor([1e-5, 1e-3, 1e-2, 1e-3, 1.5e-3], dtype=torch.float64)
    torch.testing.assert_close(next_learning_rate(hp, rates, divergence, 1), expected)


def test_gradients_of_one_network_cannot_be_clipped_by_themselves() -> None:
    own = params([16, 8])
    own["network"]["separate"] = False
    with pytest.raises(ValueError, match=r"config.grad_norm_per_network: .* network.separate to True"):
        GroupedPPO.check(own, 6)


@pytest.mark.parametrize("key, value", [("std_type", "linear"), ("sigma_activation", "softplus")])
def test_unknown_standard_deviations_are_refused(key: str, value: str) -> None:
    own = params([16, 8])
    own["network"]["space"]["continuous"][key] = value
    with pytest.raises(ValueError, match=r"network.space.continuous.std_type: "):
        GroupedPPO.check(own, 6)


def test_dead_group_has_no_statistics_that_are_not_numbers() -> None:
    normalizer = GroupedRunningMeanStd(Backend(False, False), [2, 2], torch.device("cpu"), empirical=True)
    normalizer.update(torch.ones(2, 5, 2), torch.tensor([True, False]))
    assert (normalizer.running_mean == torch.tensor([[1.0], [0.0]])).all()
    assert (normalizer.running_var == torch.tensor([[0.0], [1.0]])).all()
