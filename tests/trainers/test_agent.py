"""GroupedA2CAgent on a toy environment: isolation, resume, learning, equality with stock agents, observers."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from linear_env import LinearEnv
from oracle import StockAgent, make_params
from rl_games.common.algo_observer import AlgoObserver
from rl_games.torch_runner import Runner

from envcoder_bench.core import noise
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.trainers.ppo import footprint
from envcoder_bench.trainers.ppo.agent import ALGO_NAME, GroupedA2CAgent, register
from envcoder_bench.trainers.ppo.footprint import learner_bytes
from envcoder_bench.trainers.ppo.rollout import Met
from envcoder_bench.trainers.ppo.shard import Shard, draw_noise, new_noise, shard_blocks

OBS_DIMS, ACTION_DIMS, SEEDS = [5, 9, 3, 4, 7, 2, 6, 8], [2, 5, 1, 2, 3, 1, 4, 6], [7, 8, 9, 7, 7, 8, 1, 2]


def make_agent(env: LinearEnv, observer: Any = None, **overrides: Any) -> GroupedA2CAgent:
    params = make_params(**overrides)
    params["config"].update(vec_env=env, features={"observer": observer or AlgoObserver()})
    return GroupedA2CAgent("run", params)


def make_env(groups: list[int], envs_per_group: int = 6, **kwargs: Any) -> LinearEnv:
    picked = [[values[g] for g in groups] for values in (OBS_DIMS, ACTION_DIMS, SEEDS)]
    return LinearEnv(*picked, envs_per_group, **kwargs)


def weights(agent: GroupedA2CAgent, group: int) -> dict[str, torch.Tensor]:
    return agent.export(group)["model"]


def assert_bitwise(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


def test_group_trains_bitwise_alike_alone_among_3_and_among_8_with_a_failure() -> None:
    alone = make_agent(make_env([0]), max_epochs=4)
    among_3 = make_agent(make_env([2, 0, 1]), max_epochs=4)
    among_8 = make_agent(make_env(list(range(7, -1, -1)), fails_at={3: 13, 6: 9}), max_epochs=4)
    for agent in (alone, among_3, among_8):
        agent.train()
    assert_bitwise(weights(alone, 0), weights(among_3, 1))
    assert_bitwise(weights(alone, 0), weights(among_8, 7))
    assert_bitwise(weights(among_3, 0), weights(among_8, 5))
    assert_bitwise(weights(make_agent(make_env([0])), 0), weights(make_agent(make_env([1, 0])), 1))


def test_isolation_holds_for_a_network_of_the_usual_size() -> None:
    network = {**make_params()["network"]["mlp"], "units": [256, 128, 64]}
    alone = make_agent(make_env([0], 16), max_epochs=2, network__mlp=network)
    among = make_agent(make_env([3, 2, 0, 1], 16), max_epochs=2, network__mlp=network)
    alone.train()
    among.train()
    assert_bitwise(weights(alone, 0), weights(among, 2))


def test_failed_group_learns_nothing_more_and_does_nothing() -> None:
    env = make_env([0, 1], fails_at={1: 10})
    agent = make_agent(env, max_epochs=1)
    agent.train()
    assert all(torch.isfinite(values).all() for values in agent.group_stats.values())
    before = weights(agent, 1)
    agent.max_epochs = 3
    agent.train()
    assert_bitwise(before, weights(agent, 1))
    assert (env.layout.split(env.actions)[1] == 0).all()
    assert (env.layout.split(env.actions)[0] != 0).any()
    for name, values in agent.group_stats.items():
        assert torch.isfinite(values[0]) and torch.isnan(values[1]), name


def test_group_that_fails_on_the_last_step_of_a_rollout_does_not_learn_from_it() -> None:
    agent = make_agent(make_env([0, 1], fails_at={1: 8}), max_epochs=1)
    before = weights(agent, 1)
    agent.train()
    assert_bitwise(before, weights(agent, 1))


def test_failed_group_within_a_larger_shard_does_nothing() -> None:
    env = make_env([0, 1, 2])
    dims, met = (env.obs_dims, env.action_dims, env.group_seeds), Met.empty(3, 6, 8, torch.zeros(0))
    shard = Shard(slice(0, 3), *dims, make_params(), 6, torch.device("cpu"), met)
    noise = new_noise([shard], 8)
    draw_noise([shard], 0, noise)
    obs, actions = env.layout.split(env.reset()["obs"]), torch.ones(3, 6, 5)
    shard.set_alive([True, False, True])
    shard.act(0, obs, noise[shard.noise_key], actions)
    assert (actions[1] == 0).all() and (actions[0, :, :2] != 0).all()
    shard.act_deterministically(obs, actions.fill_(1.0))
    assert (actions[1] == 0).all() and (actions[0, :, :2] != 0).all() and (actions[0, :, 2:] == 0).all()


def test_resumed_training_ends_bitwise_as_the_uninterrupted_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"lr_schedule": "linear", "schedule_entropy": True}
    straight = make_agent(make_env([0, 1, 2], fails_at={1: 30}), max_epochs=6, **options)
    straight.train()
    first = make_agent(make_env([0, 1, 2], fails_at={1: 30}), max_epochs=6, observer=StopAt(3), **options)
    first.train()
    torch.save(first.get_full_state_weights(), tmp_path / "checkpoint.pth")
    second = make_agent(make_env([0, 1, 2], fails_at={1: 30}), max_epochs=6, **options)
    second.set_full_state_weights(torch.load(tmp_path / "checkpoint.pth", weights_only=False))
    assert second.train()[1] == 6
    for group in range(3):
        assert_bitwise(weights(straight, group), weights(second, group))
    for name in straight.group_stats:
        assert torch.equal(straight.group_stats[name][[0, 2]], second.group_stats[name][[0, 2]]), name
    assert straight.frame == second.frame


def test_deterministic_policy_is_the_mean_action_clipped_and_failed_groups_do_nothing() -> None:
    env = make_env([0, 1, 2])
    agent = make_agent(env, max_epochs=2)
    agent.train()
    policy, layout = agent.deterministic_policy(GroupLayout(3, 4)), GroupLayout(3, 4)
    obs = 3 * torch.randn(12, 9, generator=torch.Generator().manual_seed(0))
    actions = layout.split(policy(obs))
    for group, (o, a) in enumerate(zip(OBS_DIMS[:3], ACTION_DIMS)):
        own = layout.split(obs)[group : group + 1, :, :o].contiguous()
        expected = agent.shards[group].learner.policy(own)[0].clamp(-1.0, 1.0)
        assert torch.equal(actions[group, :, :a], expected)
        assert (actions[group, :, a:] == 0).all()
    env.alive[1] = False
    assert (layout.split(policy(obs))[1] == 0).all()
    assert torch.equal(layout.split(policy(obs))[[0, 2]], actions[[0, 2]])


@pytest.mark.parametrize("num_groups, largest", [(1, 1), (7, 1), (7, 3), (250, 228), (1000, 250), (5, 100)])
def test_shards_cover_the_groups_in_few_blocks_of_nearly_one_size(num_groups: int, largest: int) -> None:
    blocks = shard_blocks(num_groups, largest)
    assert [g for block in blocks for g in range(num_groups)[block]] == list(range(num_groups))
    sizes = [block.stop - block.start for block in blocks]
    assert max(sizes) <= largest and max(sizes) - min(sizes) <= 1 and len(blocks) == -(-num_groups // largest)


def test_restoring_a_run_with_other_groups_fails() -> None:
    state = make_agent(make_env([0, 1])).get_full_state_weights()
    with pytest.raises(ValueError, match=r"checkpoint holds 2 learners and this run has 1: go on with the same"):
        make_agent(make_env([0])).set_full_state_weights(state)


class LinearStockAgent(StockAgent):
    """rl_games' agent that explores with the counter's noise, as the grouped agent does."""

    def get_action_values(self, obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        env: LinearEnv = self.vec_env
        numbers = noise.normal(env.group_seeds[0], env.step_count, noise.ACTION, env.num_envs, env.action_dims[0])
        env.noise, env.t = numbers.unsqueeze(0), 0
        return super().get_action_values(obs)


def test_equals_stock_agents_each_on_its_own_environment(tmp_path: Path) -> None:
    agent = make_agent(make_env([0, 1, 2]), max_epochs=3)
    agent.train()
    for group in range(3):
        stock = LinearStockAgent(make_params(), make_env([group]), SEEDS[group], tmp_path, torch.float32)
        for _ in range(3):
            stats = stock.iterate()
        for key, value in stock.model.state_dict().items():
            torch.testing.assert_close(weights(agent, group)[key], value, rtol=1e-3, atol=1e-4)
        assert agent.group_stats["learning_rate"][group].item() == pytest.approx(stats["learning_rate"])
        assert agent.group_stats["value_loss"][group].item() == pytest.approx(stats["value_loss"], rel=1e-3)


@pytest.mark.slow
def test_learns_the_task_in_every_group() -> None:
    env = make_env([0, 1, 2], envs_per_group=32)
    agent = make_agent(env, max_epochs=40, learning_rate=1e-3, entropy_coef=0.0, mini_epochs=5)
    policy = agent.deterministic_policy(GroupLayout(3, 16))

    def score() -> torch.Tensor:
        test = make_env([0, 1, 2], envs_per_group=16)
        obs, total = test.reset()["obs"], torch.zeros(3)
        for _ in range(9):
            obs, rewards, _, _ = (lambda o, r, d, i: (o["obs"], r, d, i))(*test.step(policy(obs)))
            total += test.layout.split(rewards).mean(dim=1) / 9
        return total

    before = score()
    agent.train()
    after = score()
    assert (after > before + 0.3).all(), (before, after)


class StopAt(AlgoObserver):
    """Ends the training after an iteration, and remembers what it saw."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.seen = epoch, []

    def after_init(self, algo: Any) -> None:
        self.algo = algo

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
        self.seen.append((frame, epoch_num, dict(self.algo.group_stats)))
        self.algo.stop = epoch_num == self.epoch


def test_runner_makes_a_silent_agent_that_reports_to_its_observer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    observer, env = StopAt(2), make_env([0, 1])
    runner = Runner(observer)
    register(runner)
    params = make_params()
    params["algo"]["name"] = ALGO_NAME
    params["config"]["vec_env"] = env
    runner.load_config(params)
    capsys.readouterr()
    agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
    assert agent.train()[1] == 2
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert list(tmp_path.iterdir()) == []
    frames = env.num_envs * 8
    assert [(frame, epoch) for frame, epoch, _ in observer.seen] == [(frames, 1), (2 * frames, 2)]
    assert set(observer.seen[0][2]) >= {"kl", "learning_rate", "entropy", "value_loss", "policy_loss"}
    assert all(values.shape == (2,) for values in observer.seen[0][2].values())
    assert agent.num_actors == 12 and agent.minibatch_size == 12 and agent.num_minibatches == 4


def test_observer_that_asks_is_told_of_finished_episodes() -> None:
    class Listener(AlgoObserver):
        finished = 0

        def process_infos(self, infos: Any, done_indices: Any) -> None:
            assert "time_outs" in infos
            self.finished += len(done_indices)

    listener = Listener()
    make_agent(make_env([0, 1]), observer=listener, max_epochs=2).train()
    assert listener.finished > 0


def test_equal_seeds_share_noise_and_start() -> None:
    env = LinearEnv([5, 5, 5], [2, 2, 2], [3, 3, 4], 6)
    agent = make_agent(env, max_epochs=1)
    agent.train()
    actions = [shard.rollout.actions for shard in agent.shards]
    assert torch.equal(actions[0], actions[1])
    assert not torch.equal(actions[0], actions[2])
    assert_bitwise(weights(agent, 0), weights(agent, 1))


def test_train_dir_keeps_rl_games_own_folders(tmp_path: Path) -> None:
    agent = make_agent(make_env([0]), train_dir=str(tmp_path), full_experiment_name="mine")
    agent.writer.add_scalar("a", 1.0, 0)
    agent.writer.close()
    assert list((tmp_path / "mine" / "summaries").glob("events*"))


def test_config_is_left_as_it_was() -> None:
    params = make_params()
    params["config"].update(vec_env=make_env([0]), features={"observer": AlgoObserver()})
    before = copy.copy(params["config"])
    GroupedA2CAgent("run", params)
    assert params["config"] == before


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("schedule", ["adaptive", "linear"])  # a linear schedule's updates are never captured
def test_on_cuda_an_iteration_never_waits_for_the_device_and_agrees_with_cpu(schedule: str) -> None:
    options: dict[str, Any] = {"max_epochs": 4, "lr_schedule": schedule, "matmul_precision": "highest"}
    agents = [make_agent(make_env([0, 1, 2], device=d), device=d, **options) for d in ("cpu", "cuda")]
    assert not torch.backends.cuda.matmul.allow_tf32
    agents[0].train()
    agents[1].max_epochs = 2  # the second iteration captures, the others replay
    agents[1].train()
    agents[1].max_epochs = 4
    torch.cuda.set_sync_debug_mode("error")
    try:
        agents[1].train()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for group in range(3):
        for key, value in weights(agents[0], group).items():
            torch.testing.assert_close(weights(agents[1], group)[key], value, rtol=1e-2, atol=1e-3)
    for name, values in agents[0].group_stats.items():
        torch.testing.assert_close(agents[1].group_stats[name].cpu(), values, rtol=1e-2, atol=1e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("groups_at_once", [3, 2])  # in one shard, and in two that share their memory
def test_on_cuda_graphs_equal_eager_iterations_across_a_failure(
    groups_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learner_bytes(max(OBS_DIMS[:3]), max(ACTION_DIMS[:3]), 6, make_params()).workspace
    monkeypatch.setattr(footprint, "WORKSPACE_BYTES", groups_at_once * one)
    options: dict[str, Any] = {"device": "cuda", "max_epochs": 8, "matmul_precision": "highest"}
    captured, eager = (make_agent(make_env([0, 1, 2], fails_at={1: 35}, device="cuda"), **options) for _ in range(2))
    for function in (eager._act_next, *eager._updates):
        function._pool = None
    for agent in (captured, eager):
        assert len(agent.shards) == 4 - groups_at_once
        agent.train()
    assert all(f._graph is not None for f in (captured._act_next, *captured._updates))
    for group in range(3):
        for key, value in weights(eager, group).items():
            torch.testing.assert_close(weights(captured, group)[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_failed_group_is_frozen_and_its_neighbours_go_on() -> None:
    env = make_env([0, 1, 2], fails_at={1: 10}, device="cuda")
    agent = make_agent(env, max_epochs=1, device="cuda")
    agent.train()
    before = weights(agent, 1)
    agent.max_epochs = 4
    agent.train()
    assert_bitwise(before, weights(agent, 1))
    assert (env.layout.split(env.actions)[1] == 0).all()
    assert all(torch.isfinite(value).all() for group in (0, 2) for value in weights(agent, group).values())
    resumed = make_agent(make_env([0, 1, 2], device="cuda"), max_epochs=4, device="cuda")
    resumed.set_full_state_weights(agent.get_full_state_weights())
    assert_bitwise(weights(agent, 0), weights(resumed, 0))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_resumed_run_goes_on_as_the_uninterrupted_one() -> None:
    options: dict[str, Any] = {"device": "cuda", "max_epochs": 6, "matmul_precision": "highest"}
    straight, first, second = (make_agent(make_env([0, 1, 2], device="cuda"), **options) for _ in range(3))
    straight.train()
    first.max_epochs = 3
    first.train()
    second.set_full_state_weights(first.get_full_state_weights())
    second.train()
    for group in range(3):
        for key, value in weights(straight, group).items():
            torch.testing.assert_close(weights(second, group)[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("num_groups", [8, 24])
def test_on_cuda_the_learner_takes_the_memory_that_was_computed(
    num_groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = {**make_params()["network"]["mlp"], "units": [256, 128, 64]}
    params = make_params(network__mlp=network, horizon_length=24, num_minibatches=3)
    computed = learner_bytes(48, 12, 256, params)
    monkeypatch.setattr(footprint, "WORKSPACE_BYTES", 8 * computed.workspace)
    env = Still(num_groups, 48, 12, 256)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    options: dict[str, Any] = {"network__mlp": network, "horizon_length": 24, "num_minibatches": 3}
    agent = make_agent(env, device="cuda", max_epochs=4, **options)
    agent.train()
    taken = torch.cuda.max_memory_allocated() - before
    expected = replace(computed, groups_at_once=8).total(num_groups)
    assert 0.75 * expected < taken < 1.1 * expected, (taken, expected)


class Still(LinearEnv):
    """Groups of one shape whose observations and rewards never change, and which therefore take no memory."""

    def __init__(self, num_groups: int, obs_dim: int, action_dim: int, envs_per_group: int) -> None:
        self.layout = GroupLayout(num_groups, envs_per_group)
        self.num_envs = self.layout.num_envs
        self.obs_dims, self.action_dims = [obs_dim] * num_groups, [action_dim] * num_groups
        self.group_seeds, self.alive = [0] * num_groups, [True] * num_groups
        self.obs = torch.zeros(1, obs_dim, device="cuda").expand(self.num_envs, obs_dim)
        self.zeros = torch.zeros(1, device="cuda").expand(self.num_envs)

    def reset(self) -> dict[str, torch.Tensor]:
        return {"obs": self.obs}

    def step(self, actions: torch.Tensor):
        return self.reset(), self.zeros, self.zeros, {"time_outs": self.zeros}
