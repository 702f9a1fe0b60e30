"""ElegantRL's PPO behind the interface of trainers: isolation, resume, export, learning."""

import pytest
import torch
from helpers import QUICK, results, run
from linear_env import LinearEnv
from oracle import make_params
from rl_games.algos_torch.model_builder import ModelBuilder

from envcoder_bench.run.folder.policies import load_policy
from envcoder_bench.trainers.base import train_iteration

pytest.importorskip("elegantrl", reason="make install gets it: requirements-no-deps.txt")
from envcoder_bench.trainers.elegantrl.settings import elegantrl_config
from envcoder_bench.trainers.elegantrl.trainer import ElegantPPO
from envcoder_bench.trainers.elegantrl.weights import rl_games_params

DIMS = {0: (5, 2, 7), 1: (9, 5, 8), 2: (3, 1, 7)}  # observation, action, seed of each group
PARAMS = make_params(learning_rate=1e-3, num_minibatches=2, entropy_coef=0.0)


class Run:
    def __init__(self, groups, **kwargs):
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
    assert (among.env.layout.split(among.env.actions)[0] == 0).all()


def test_global_generators_are_neither_read_nor_changed():
    torch.manual_seed(1)
    first = Run([0]).train(2).weights(0)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert_bitwise(first, Run([0]).train(2).weights(0))
    assert torch.equal(state, torch.get_rng_state()) and torch.is_grad_enabled()


def test_resumed_training_is_bitwise_equal_to_uninterrupted_training(tmp_path):
    straight, first, second = Run([0, 2]).train(4), Run([0, 2]).train(2), Run([0, 2])
    torch.save((first.trainer.get_state(), first.env.get_state(), first.obs), tmp_path / "state.pth")
    state, env, obs = torch.load(tmp_path / "state.pth", weights_only=True)
    second.trainer.set_state(state)
    second.env.set_state(env)
    second.obs = obs
    second.train(2)
    for group in range(2):
        assert_bitwise(straight.weights(group), second.weights(group))
    with pytest.raises(ValueError, match="the checkpoint has 2 groups and this run has 1"):
        Run([0]).trainer.set_state(state)


def test_training_improves_the_return():
    run = Run([0, 2])

    def reward(iterations):
        total = torch.zeros(run.env.num_envs)
        for _ in range(iterations * run.trainer.horizon):
            step = run.env.step(run.trainer.policy(run.env.layout)(run.obs))
            run.obs, total = step.obs, total + step.reward
        return run.env.layout.split(total).mean(dim=1) / (iterations * run.trainer.horizon)

    before = reward(5)
    run.train(30)
    assert (reward(5) > before + 0.1).all()


@pytest.mark.parametrize("group", [0, 1])
def test_exported_policies_match_the_trainer_and_rl_games(group):
    run = Run([0, 1]).train(2)
    obs_dim, action_dim, _ = DIMS[group]
    obs = torch.randn(32, 9, generator=torch.Generator().manual_seed(0))
    wanted = run.env.layout.split(run.trainer.policy(run.env.layout)(obs))[group, :, :action_dim]
    own = run.env.layout.split(obs)[group, :, :obs_dim]
    exported = run.trainer.export(group)
    with torch.no_grad():
        got = ElegantPPO.load_policy(PARAMS, exported)(own)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)

    params = rl_games_params(PARAMS)
    build = ModelBuilder().load({"model": dict(params["model"]), "network": params["network"]}).build
    stock = build({"input_shape": (obs_dim,), "actions_num": action_dim, "value_size": 1})
    stock.load_state_dict(exported["model"])
    with torch.no_grad():
        answer = stock({"is_train": False, "obs": own, "prev_actions": None})
        value = run.trainer._agents[group].cri(own)
    torch.testing.assert_close(answer["mus"], wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(answer["values"].flatten(), value, rtol=1e-4, atol=1e-4)


def test_settings_match_the_yaml():
    config = elegantrl_config(PARAMS, 16)
    assert (config.horizon_len, config.batch_size, config.net_dims) == (8, 64, (16, 8))
    assert int(config.horizon_len * config.repeat_times / config.batch_size) == 3 * 2  # mini_epochs * num_minibatches
    assert (config.gamma, config.lambda_gae_adv, config.ratio_clip) == (0.96875, 0.90625, 0.2)
    assert elegantrl_config(make_params(truncate_grads=False), 16).clip_grad_norm == float("inf")
    with pytest.raises(ValueError, match=r"params.config.gamma: must be a number from 0 to 1, got 2"):
        ElegantPPO.check(make_params(gamma=2), 16)


def test_memory_grows_with_groups_and_widths():
    needed = ElegantPPO.memory(PARAMS, 16, 1, torch.device("cpu"))
    assert 0 < needed([(5, 2)]) < needed([(9, 5)]) < needed([(9, 5), (5, 2)])


@pytest.mark.slow
def test_run_with_elegantrl_trainer_is_ranked(tmp_path, capsys):
    words = [*QUICK, "--task", "Cartpole", "--num_envs_per_candidate", 4, "--learning_iterations", 2, "--trainer"]
    folder = run(tmp_path / "run", *words, "elegantrl_ppo", "--candidate_idx", 0)
    assert "elegantrl_ppo trains 3 groups one after the other: it takes longer than ppo" in capsys.readouterr().err
    assert (results(folder)["status"] == "ok").all() and len(results(folder)) == 4
    policy = load_policy(folder, "human")
    assert policy(torch.zeros(2, policy.obs_dim)).abs().max() < 1.0  # tanh
    run(tmp_path / "other", *words, "elegant", expect=2)
    assert "unknown trainer 'elegant'" in capsys.readouterr().err and not (tmp_path / "other").exists()
