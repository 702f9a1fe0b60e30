"""The example of a trainer of one's own: isolation, resume, export, learning."""

from pathlib import Path

import pytest
import torch
from helpers import QUICK, results, run
from linear_env import LinearEnv
from oracle import make_params

from envcoder_bench.run.folder.policies import load_policy
from envcoder_bench.trainers.base import train_iteration

pytest.importorskip("elegantrl", reason="make test gets it: requirements-test.txt")
EXAMPLES = Path(__file__).parents[2] / "examples"
DIMS = {0: (5, 2, 7), 1: (9, 5, 8), 2: (3, 1, 7)}  # observation, action, seed of each group
PARAMS = make_params(learning_rate=1e-3, num_minibatches=2, entropy_coef=0.0)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


class Run:
    def __init__(self, groups, **kwargs):
        from elegantrl_trainer import ElegantPPO

        self.env = LinearEnv(*zip(*(DIMS[g] for g in groups)), 16, **kwargs)
        args = (self.env.layout, self.env.obs_dims, self.env.action_dims, self.env.group_seeds)
        self.trainer = ElegantPPO(*args, PARAMS, torch.device("cpu"))
        self.obs = self.env.reset()

    def train(self, iterations):
        for _ in range(iterations):
            self.obs, self.stats = train_iteration(self.trainer, self.env, self.obs)
        return self

    def weights(self, group):
        return self.trainer.export(group)["model"]


def assert_bitwise(a, b):
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_group_trains_bitwise_equal_alone_and_with_a_failing_group():
    alone, among = Run([0]).train(3), Run([1, 0, 2], fails_at={0: 11}).train(3)
    assert_bitwise(alone.weights(0), among.weights(1))
    assert torch.isnan(among.stats["value_loss"]).tolist() == [True, False, False]


def test_resumed_training_is_bitwise_equal_to_uninterrupted_training():
    straight, first, second = Run([0, 2]).train(4), Run([0, 2]).train(2), Run([0, 2])
    second.trainer.set_state(first.trainer.get_state())
    second.env.set_state(first.env.get_state())
    second.obs = first.obs
    second.train(2)
    for group in range(2):
        assert_bitwise(straight.weights(group), second.weights(group))


def test_exported_policy_matches_the_trainer():
    run = Run([0, 1]).train(2)
    obs = torch.randn(32, 9, generator=torch.Generator().manual_seed(0))
    actions = run.env.layout.split(run.trainer.policy(run.env.layout)(obs))[0, :, :2]
    with torch.no_grad():
        exported = run.trainer.load_policy(PARAMS, run.trainer.export(0))(run.env.layout.split(obs)[0, :, :5])
    torch.testing.assert_close(exported, actions, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_run_with_a_trainer_of_ones_own_is_ranked(tmp_path):
    words = [*QUICK, "--task", "Cartpole", "--num_envs_per_candidate", 4, "--learning_iterations", 2, "--trainer"]
    folder = run(tmp_path / "run", *words, "elegantrl_trainer:ElegantPPO", "--candidate_idx", 0)
    assert (results(folder)["status"] == "ok").all() and len(results(folder)) == 4
    policy = load_policy(folder, "human")
    assert policy(torch.zeros(2, policy.obs_dim)).abs().max() < 1.0  # tanh
