"""GroupedPPO on a toy environment: isolation, resume, learning, equality with stock agents."""

import copy
import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_device import DEVICE, INTERPRETED, compares_kernels
from linear_env import ACTION_DIMS, OBS_DIMS, SEEDS, LinearEnv, Run, assert_bitwise, make_env
from oracle import StockAgent, StockEnv, make_params

from envcoder_bench.core import noise
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.torch_settings import settings_kept, use_deterministic_algorithms
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers import blocks
from envcoder_bench.trainers.base import padded_widths
from envcoder_bench.trainers.blocks import cut_blocks, cut_equal_blocks
from envcoder_bench.trainers.ppo import architecture
from envcoder_bench.trainers.ppo.architecture import learner_bytes
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.block import LearnerBlock, draw_noise, new_noise
from envcoder_bench.trainers.ppo.linear import product
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

CUDA = torch.device("cuda")
# columns of the critics' observations, 0 for a group without any; only separate networks can have them
CRITICS = pytest.mark.parametrize(
    "critics", [[], pytest.param([4, 0, 7, 0, 3, 0, 0, 2], marks=pytest.mark.slow)], ids=["alike", "asymmetric"]
)


def make_run(critics: list[int], groups: list[int], fails_at: Mapping[int, int] = {}, **options: Any) -> Run:
    """Return a run of some groups, with critics where they have observations of their own."""
    env = make_env(groups, fails_at=fails_at, critic_dims=[critics[g] for g in groups] if critics else ())
    return Run(env, network__separate=bool(critics), **options)


@CRITICS
def test_group_trains_bitwise_equal_alone_and_in_runs_of_3_and_8_with_failures(critics: list[int]) -> None:
    alone = make_run(critics, [0])
    among_3 = make_run(critics, [2, 0, 1])
    among_8 = make_run(critics, list(range(7, -1, -1)), fails_at={3: 13, 6: 9})
    assert_bitwise(alone.weights(0), among_3.weights(1))
    for each in (alone, among_3, among_8):
        each.train(4)
    assert_bitwise(alone.weights(0), among_3.weights(1))
    assert_bitwise(alone.weights(0), among_8.weights(7))
    assert_bitwise(among_3.weights(0), among_8.weights(5))


@pytest.mark.parametrize("critics", [[], [4, 6, 7, 5]], ids=["alike", "asymmetric"])
def test_groups_in_one_block_learn_as_in_their_own(critics: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups share a block on CUDA alone: on a CPU nothing that crosses the groups of a block would be seen."""
    apart = make_run(critics, [0, 1, 2, 3]).train(3)
    monkeypatch.setattr("envcoder_bench.trainers.ppo.trainer.cut_equal_blocks", lambda keys, _: [slice(0, len(keys))])
    together = make_run(critics, [0, 1, 2, 3]).train(3)
    assert (len(apart.trainer.blocks), len(together.trainer.blocks)) == (4, 1)
    for group in range(4):
        for key, value in apart.weights(group).items():
            torch.testing.assert_close(together.weights(group)[key], value, rtol=1e-4, atol=1e-5, msg=key)
    for name, values in apart.stats.items():
        torch.testing.assert_close(together.stats[name], values, rtol=1e-3, atol=1e-4, msg=name)
    assert len(set(apart.stats["learning_rate"].tolist())) > 1  # groups with one rate would share it unnoticed


def test_groups_are_isolated_with_a_network_of_common_size() -> None:
    network = {**make_params()["network"]["mlp"], "units": [256, 128, 64]}
    alone = Run(make_env([0], 16), network__mlp=network)
    among = Run(make_env([3, 2, 0, 1], 16), network__mlp=network)
    alone.train(2)
    among.train(2)
    assert_bitwise(alone.weights(0), among.weights(2))


def test_failed_group_does_not_learn_and_takes_zero_actions() -> None:
    env = make_env([0, 1], fails_at={1: 10})
    own = Run(env)
    assert all(torch.isfinite(values).all() for values in own.train(1).stats.values())
    before = own.weights(1)
    stats = own.train(3).stats
    assert_bitwise(before, own.weights(1))
    assert (env.layout.split(env.actions)[1] == 0).all()
    assert (env.layout.split(env.actions)[0] != 0).any()
    for name, values in stats.items():
        assert torch.isfinite(values[0]) and torch.isnan(values[1]), name


def test_group_failing_on_the_last_step_of_a_rollout_does_not_learn_from_it() -> None:
    own = Run(make_env([0, 1], fails_at={1: 8}))
    before = own.weights(1)
    own.train(1)
    assert_bitwise(before, own.weights(1))


def test_failed_group_in_a_larger_block_takes_zero_actions() -> None:
    env = make_env([0, 1, 2])
    dims, answers = (env.obs_dims, env.action_dims, env.group_seeds), torch.zeros(3, 3, 6, 8)
    block = LearnerBlock(Backend(False, False), slice(0, 3), *dims, make_params(), 6, torch.device("cpu"), answers)
    noise = new_noise([block], 8)
    draw_noise([block], 0, noise)
    obs, actions = env.layout.split(env.reset()), torch.ones(3, 6, 5)
    block.set_alive([True, False, True])
    block.act(0, obs, None, noise[block.noise_key], actions)
    assert (actions[1] == 0).all() and (actions[0, :, :2] != 0).all()
    block.act_deterministically(obs, actions.fill_(1.0))
    assert (actions[1] == 0).all() and (actions[0, :, :2] != 0).all() and (actions[0, :, 2:] == 0).all()


@CRITICS
def test_resumed_training_is_bitwise_equal_to_uninterrupted_training(critics: list[int], tmp_path: Path) -> None:
    options: dict[str, Any] = {"lr_schedule": "linear", "schedule_entropy": True, "max_epochs": 6}
    straight, first, second = (make_run(critics, [0, 1, 2], {1: 30}, **options) for _ in range(3))
    straight.train(6)
    first.train(3)
    torch.save(first.get_state(), tmp_path / "checkpoint.pth")
    second.restore(torch.load(tmp_path / "checkpoint.pth", weights_only=True))
    second.train(6)
    for group in range(3):
        assert_bitwise(straight.weights(group), second.weights(group))
    for name in straight.stats:
        assert torch.equal(straight.stats[name][[0, 2]], second.stats[name][[0, 2]]), name
    assert straight.trainer.export(0)["frame"] == second.trainer.export(0)["frame"] == 6 * 8 * 6


@pytest.mark.parametrize("clip", [True, False])
def test_policy_is_the_clipped_mean_action_and_zero_for_failed_groups(clip: bool) -> None:
    own = Run(make_env([0, 1, 2]), clip_actions=clip)
    own.train(2)
    policy, layout = own.trainer.policy(GroupLayout(3, 4)), GroupLayout(3, 4)
    obs = 30 * torch.randn(12, 9, generator=torch.Generator().manual_seed(0))
    actions = layout.split(policy(obs))
    for group, (o, a) in enumerate(zip(OBS_DIMS[:3], ACTION_DIMS)):
        part = layout.split(obs)[group : group + 1, :, :o].contiguous()
        expected = own.trainer.blocks[group].learner.policy(part)[0]
        assert torch.equal(actions[group, :, :a], expected.clamp(-1.0, 1.0) if clip else expected)
        assert (actions[group, :, a:] == 0).all()
    own.trainer.set_alive([True, False, True])
    assert (layout.split(policy(obs))[1] == 0).all()
    assert torch.equal(layout.split(policy(obs))[[0, 2]], actions[[0, 2]])


def test_policy_from_fixed_memory_gives_equal_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CapturedFunction", lambda function, *_: function)
    own, layouts = Run(make_env([0, 1, 2])), [GroupLayout(3, 4), GroupLayout(3, 2)]
    for layout in layouts:
        obs = torch.randn(layout.num_envs, 9, generator=torch.Generator().manual_seed(0))
        own.trainer._pool = None
        expected = own.trainer.policy(layout)(obs)
        own.trainer._pool = object()  # as on a device
        assert torch.equal(own.trainer.policy(layout)(obs), expected)
        assert torch.equal(own.trainer.policy(layout)(obs), expected)
    assert list(own.trainer._policies) == layouts


@pytest.mark.parametrize("clip", [True, False])
def test_actions_are_clipped_only_for_the_environment(clip: bool) -> None:
    own = Run(make_env([0, 1]), clip_actions=clip)
    taken = own.trainer.act(own.obs).clone()
    sampled = own.trainer.blocks[0].rollout.actions[0, :, 0]
    assert sampled.abs().max() > 1.0
    assert torch.equal(own.env.layout.split(taken)[0, :, :2], sampled.clamp(-1.0, 1.0) if clip else sampled)


@pytest.mark.parametrize("num_groups, largest", [(1, 1), (7, 1), (7, 3), (250, 228), (1000, 250), (5, 100)])
def test_blocks_cover_all_groups_with_balanced_sizes(num_groups: int, largest: int) -> None:
    blocks = cut_blocks(num_groups, largest)
    assert [g for block in blocks for g in range(num_groups)[block]] == list(range(num_groups))
    sizes = [block.stop - block.start for block in blocks]
    assert max(sizes) <= largest and max(sizes) - min(sizes) <= 1 and len(blocks) == -(-num_groups // largest)


def test_blocks_of_equal_widths_contain_only_adjacent_groups() -> None:
    widths = [(4, 1), (31, 8), (4, 1), (33, 8), (32, 9)]  # padded to 32 and 8, 64 and 8, 32 and 16
    keys = [padded_widths(*each) for each in widths]
    assert cut_equal_blocks(keys, 2) == [slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 5)]
    assert cut_equal_blocks(keys, 9) == [slice(0, 3), slice(3, 4), slice(4, 5)]


def test_restoring_a_run_with_other_groups_fails() -> None:
    state = Run(make_env([0, 1])).trainer.get_state()
    with pytest.raises(ValueError, match=r"checkpoint has 2 learners and this run has 1: resume with the same"):
        Run(make_env([0])).trainer.set_state(state)


class LinearStockAgent(StockAgent):
    """rl_games' agent that explores with the counter's noise, as the grouped agent does."""

    def get_action_values(self, obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        env: LinearEnv = self.vec_env.env
        numbers = noise.normal(env.group_seeds[0], env.step_count, Purpose.ACTION, env.num_envs, env.action_dims[0])
        self.vec_env.noise, self.vec_env.t = numbers.unsqueeze(0), 0
        return super().get_action_values(obs)


def test_training_matches_stock_agents_on_separate_environments(tmp_path: Path) -> None:
    own = Run(make_env([0, 1, 2]))
    mine = own.train(3).stats
    for group in range(3):
        env = StockEnv(make_env([group]))
        stock = LinearStockAgent(make_params(), env, SEEDS[group], tmp_path, torch.float32)
        for _ in range(3):
            stats = stock.iterate()
        for key, value in stock.model.state_dict().items():
            torch.testing.assert_close(own.weights(group)[key], value, rtol=1e-3, atol=1e-4)
        assert mine["learning_rate"][group].item() == pytest.approx(stats["learning_rate"])
        assert mine["value_loss"][group].item() == pytest.approx(stats["value_loss"], rel=1e-3)


def test_statistics_have_one_value_per_group_and_nothing_is_printed(capsys: pytest.CaptureFixture) -> None:
    own = Run(make_env([0, 1]))
    stats = own.train(1).stats
    assert set(stats) == {"kl", "learning_rate", "entropy", "policy_loss", "value_loss", "bounds_loss"}
    assert all(values.shape == (2,) for values in stats.values())
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_equal_seeds_share_noise_and_start() -> None:
    own = Run(LinearEnv([5, 5, 5], [2, 2, 2], [3, 3, 4], 6))
    own.train(1)
    actions = [block.rollout.actions for block in own.trainer.blocks]
    assert torch.equal(actions[0], actions[1])
    assert not torch.equal(actions[0], actions[2])
    assert_bitwise(own.weights(0), own.weights(1))


def test_fixed_memory_training_is_bitwise_equal_on_the_cpu() -> None:
    """In CUDA graphs steps are counted on the device and inputs are in fixed memory; both also work on a CPU."""
    plain, graphs = (Run(make_env([0, 1, 2], fails_at={1: 13})) for _ in range(2))
    graphs.trainer._pool = object()
    for each in (plain, graphs):
        each.train(4)
    for group in range(3):
        assert_bitwise(plain.weights(group), graphs.weights(group))


def test_params_are_not_modified() -> None:
    env, params = make_env([0]), make_params()
    before = copy.deepcopy(params)
    GroupedPPO(env.layout, env.obs_dims, env.action_dims, env.group_seeds, params, torch.device("cpu"))
    assert params == before


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("schedule", ["adaptive", "linear"])  # a linear schedule's updates are never captured
def test_iteration_on_cuda_does_not_synchronize_and_matches_the_cpu(schedule: str) -> None:
    options: dict[str, Any] = {"max_epochs": 4, "lr_schedule": schedule, "matmul_precision": "highest"}
    on_cpu, on_cuda = (Run(make_env([0, 1, 2], device=d), device=d, **options) for d in ("cpu", "cuda"))
    assert not torch.backends.cuda.matmul.allow_tf32
    on_cpu.train(4)
    on_cuda.train(2)  # the second iteration captures, the others replay
    torch.cuda.set_sync_debug_mode("error")
    try:
        on_cuda.train(4)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for group in range(3):
        for key, value in on_cpu.weights(group).items():
            torch.testing.assert_close(on_cuda.weights(group)[key], value, rtol=1e-2, atol=1e-3)
    for name, values in on_cpu.stats.items():
        torch.testing.assert_close(on_cuda.stats[name].cpu(), values, rtol=1e-2, atol=1e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fitting, blocks", [(3, 1), (2, 3)])  # several blocks share their memory
def test_graphs_on_cuda_match_eager_iterations_across_a_failure(
    fitting: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learner_bytes(max(OBS_DIMS[:3]), max(ACTION_DIMS[:3]), 6, make_params(), CUDA).workspace
    monkeypatch.setattr(architecture, "WORKSPACE_BYTES", fitting * one)
    options: dict[str, Any] = {"device": "cuda", "matmul_precision": "highest"}
    captured, eager = (Run(make_env([0, 1, 2], fails_at={1: 35}, device="cuda"), **options) for _ in range(2))
    for function in (eager.trainer._act_next, *eager.trainer._updates):
        function._pool = None
    for each in (captured, eager):
        assert len(each.trainer.blocks) == blocks
        each.train(8)
    assert all(f._graph is not None for f in (captured.trainer._act_next, *captured.trainer._updates))
    for group in range(3):
        for key, value in eager.weights(group).items():
            torch.testing.assert_close(captured.weights(group)[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["highest", "high"])
def test_deterministic_group_on_cuda_is_bitwise_independent_of_other_groups(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def trained(groups: list[int]) -> list[dict[str, torch.Tensor]]:
        own = Run(make_env(groups, 64, device="cpu"), device="cuda", matmul_precision=precision)
        own.obs = own.obs.to("cuda")
        for _ in range(4):
            for _ in range(own.trainer.horizon):  # the environment is on the CPU, where its bits are those of the group
                step = own.env.step(own.trainer.act(own.obs).cpu())
                parts = [None if x is None else x.to("cuda") for x in step]
                own.trainer.record(EnvStep(*parts))
                own.obs = parts[0]
            own.trainer.learn(own.obs)
        return [own.weights(g) for g in range(len(groups))]

    with settings_kept():
        use_deterministic_algorithms()
        together = trained([0, 1, 2, 3, 3, 3])
        for group in range(4):
            assert_bitwise(together[group], trained([group])[0])
        assert_bitwise(together[3], together[5])


@compares_kernels
def test_products_and_sums_match_torch() -> None:
    rng, rows = torch.Generator().manual_seed(0), 70 if INTERPRETED else 300
    a, b = torch.randn(3, rows, 52, generator=rng).to(DEVICE), torch.randn(3, 52, 70, generator=rng).to(DEVICE)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        want = a @ b
        torch.testing.assert_close(product(a, b, torch.empty_like(want)), want)
        back = product(a.mT, want, torch.empty_like(b))
        torch.testing.assert_close(back, a.mT @ want, rtol=1e-4, atol=1e-3)
    finally:
        torch.set_float32_matmul_precision(before)
    with settings_kept():
        use_deterministic_algorithms()
        sums = Backend.choose(DEVICE)
        assert sums.fixed_order
        torch.testing.assert_close(sums.total(a, keepdim=True), a.sum(dim=1, keepdim=True), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(sums.mean(a[..., 0]), a[..., 0].mean(dim=1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(sums.std(a[..., 0]), a[..., 0].std(dim=1))
        torch.testing.assert_close(sums.norm(b.flatten(1)), torch.linalg.vector_norm(b.flatten(1), dim=1))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_policy_on_cuda_is_captured_once_and_follows_weights_and_failures() -> None:
    own, layout = Run(make_env([0, 1, 2], device="cuda"), device="cuda"), GroupLayout(3, 4)
    obs = torch.randn(12, 9, generator=torch.Generator().manual_seed(0)).to("cuda")
    for alive in ([True] * 3, [True, False, True]):
        own.train(own.trainer.epoch + 1)
        own.trainer.set_alive(alive)
        for _ in range(3):  # eager, captured and replayed
            expected = own.trainer._mean_actions(layout, layout.split(obs))
            torch.testing.assert_close(own.trainer.policy(layout)(obs), expected)
    assert len(own.trainer._policies) == 1


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_failed_group_on_cuda_is_frozen_and_others_continue() -> None:
    env = make_env([0, 1, 2], fails_at={1: 10}, device="cuda")
    own = Run(env, device="cuda")
    own.train(1)
    before = own.weights(1)
    own.train(4)
    assert_bitwise(before, own.weights(1))
    assert (env.layout.split(env.actions)[1] == 0).all()
    assert all(torch.isfinite(value).all() for group in (0, 2) for value in own.weights(group).values())
    resumed = Run(make_env([0, 1, 2], device="cuda"), device="cuda")
    resumed.restore(own.get_state())
    assert_bitwise(own.weights(0), resumed.weights(0))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_resumed_run_on_cuda_matches_the_uninterrupted_one() -> None:
    options: dict[str, Any] = {"device": "cuda", "matmul_precision": "highest"}
    straight, first, second = (Run(make_env([0, 1, 2], device="cuda"), **options) for _ in range(3))
    straight.train(6)
    first.train(3)
    second.restore(first.get_state())
    second.train(6)
    for group in range(3):
        for key, value in straight.weights(group).items():
            torch.testing.assert_close(second.weights(group)[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("num_groups", [8, 24])
def test_learner_memory_on_cuda_is_close_to_the_computed_estimate(
    num_groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = {**make_params()["network"]["mlp"], "units": [256, 128, 64]}
    params = make_params(network__mlp=network, horizon_length=24, num_minibatches=3)
    computed = learner_bytes(48, 12, 256, params, CUDA)
    monkeypatch.setattr(architecture, "WORKSPACE_BYTES", 8 * computed.workspace)
    env = Still(num_groups, 48, 12, 256)
    options: dict[str, Any] = {"network__mlp": network, "horizon_length": 24, "num_minibatches": 3}
    Run(Still(1, 48, 12, 256), device="cuda", **options).train(4)  # libraries take their own memory once a process
    gc.collect()  # and what other tests left is given back now
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    Run(env, device="cuda", **options).train(4)
    taken = torch.cuda.max_memory_allocated() - before
    expected = replace(computed, fitting=8).total(num_groups)
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
        self.never = self.zeros.bool()

    def reset(self) -> torch.Tensor:
        return self.obs

    def step(self, actions: torch.Tensor, final_obs: bool = False) -> EnvStep:
        return EnvStep(self.obs, self.zeros, self.never, self.never)


@CRITICS
@pytest.mark.parametrize("before, after", [(3, 1), (1, 4)])
def test_states_are_split_and_joined_across_blocks_of_any_size(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, critics: list[int]
) -> None:
    """On CUDA a block has many groups, and a wave of other groups has other blocks."""

    def blocks_of(size: int) -> None:
        monkeypatch.setattr("envcoder_bench.trainers.blocks.cut_blocks", lambda groups, _: cut_blocks(groups, size))

    blocks_of(before)
    first = make_run(critics, list(range(8))).train(2)
    parts = first.trainer.split_state(first.trainer.get_state())
    kept = [6, 1, 5, 0, 3]
    blocks_of(after)
    second = make_run(critics, kept)
    second.trainer.set_state(second.trainer.join_states([parts[g] for g in kept]))
    assert second.trainer.epoch == 2
    for place, g in enumerate(kept):
        assert_bitwise(second.weights(place), first.weights(g))
    again = second.trainer.split_state(second.trainer.get_state())
    for place, g in enumerate(kept):
        assert_bitwise(flat(again[place]), flat(parts[g]))


def flat(state: dict[str, Any], name: str = "") -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for key, value in state.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{name}{key}."))
        else:
            found[f"{name}{key}"] = torch.as_tensor(value)
    return found
