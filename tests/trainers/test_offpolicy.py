"""Grouped FlashSAC against rsl_rl_flashsac, hand-computed samples and itself alone."""

import json
import math
from itertools import pairwise

import pytest
import torch
from flash_sac_oracle import FILE, UPDATES, batch, make_learner, ours, policy_noise
from linear_env import ACTION_DIMS, OBS_DIMS, SEEDS, LinearEnv

from envcoder_bench.core import noise
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.torch_settings import settings_kept, use_deterministic_algorithms
from envcoder_bench.export.module import ExportedPolicy
from envcoder_bench.export.onnx_file import onnx_bytes, onnx_runner
from envcoder_bench.trainers.base import train_iteration
from envcoder_bench.trainers.offpolicy import trainer as trainer_module
from envcoder_bench.trainers.offpolicy.replay import Replay, RewardScale
from envcoder_bench.trainers.offpolicy.settings import SACSettings
from envcoder_bench.trainers.offpolicy.trainer import GroupedSAC

NUM_ENVS = 6
NETWORK = {"actor_units": 8, "critic_units": 8, "blocks": 1, "expansion": 2}
CONFIG = {
    "batch_size": 16, "env_steps_per_update": 24, "num_warmup_steps": 36, "replay_buffer_size": 120, "num_bins": 11,
    "horizon_length": 4, "max_epochs": 100, "learning_rate": 1e-2,
}  # fmt: skip
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CRITIC_DIMS = [3, 0, 2, 0, 5]


def params(**config):
    return {"algo": {"name": "flash_sac"}, "network": NETWORK, "config": {**CONFIG, **config}}


class Run:
    """A trainer on some groups of the toy environment."""

    def __init__(self, groups, critic_dims=None, fails_at=None, device="cpu", numbers=(), **config):
        obs, action, seeds = ([values[g] for g in groups] for values in (OBS_DIMS, ACTION_DIMS, SEEDS))
        critics = [critic_dims[g] for g in groups] if critic_dims else ()
        self.env = LinearEnv(obs, action, seeds, NUM_ENVS, fails_at or {}, device, critics)
        more = {"numbers": numbers, **({"critic_dims": critics} if any(critics) else {})}
        self.trainer = GroupedSAC(self.env.layout, obs, action, seeds, params(**config), torch.device(device), **more)
        self.obs, self.stats = self.env.reset(), {}

    def train(self, iterations):
        for _ in range(iterations):
            self.obs, self.stats = train_iteration(self.trainer, self.env, self.obs)
        return self

    def state(self):
        return self.trainer.get_state()


def leaves(x):
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves(x[key])]
    return [leaf for each in x for leaf in leaves(each)] if isinstance(x, (list, tuple)) else [x]


def assert_equal(one, two):
    assert len(leaves(one)) == len(leaves(two)) > 50
    for a, b in zip(leaves(one), leaves(two)):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_updates_equal_those_of_rsl_rl_flashsac():
    learner = make_learner()
    for update in range(UPDATES):
        learner.update(batch(update), *policy_noise(update))
    own, recorded = ours(learner), json.loads(FILE.read_text())
    assert own["temperature"] == pytest.approx(recorded["temperature"], rel=1e-5)
    for network in ("actor", "critic", "target"):
        for name, digests in recorded[network].items():
            assert own[network][name] == pytest.approx(digests, abs=2e-4), (network, name)


@pytest.mark.parametrize("critic_dims", [None, CRITIC_DIMS], ids=["one observation", "critics' own"])
def test_a_group_alone_equals_itself_among_others(critic_dims):
    among = Run([0, 1, 2, 3, 4], critic_dims).train(8)
    assert among.trainer._update_count >= 6  # the ring is full, too: 120 of 192 env-steps
    for group in (0, 3):
        alone = Run([group], critic_dims).train(8)
        assert_equal(among.state()["groups"][group], alone.state()["groups"][0])


def test_groups_in_one_block_equal_groups_in_their_own(monkeypatch):
    apart = Run([0, 1, 2, 3]).train(7)
    monkeypatch.setattr(trainer_module, "cut_equal_blocks", lambda keys, _: [slice(0, len(keys))])
    together = Run([0, 1, 2, 3]).train(7)
    assert len(together.trainer.blocks) == 1 and len(apart.trainer.blocks) == 4
    for one, two in zip(leaves(apart.state()), leaves(together.state())):
        if isinstance(one, torch.Tensor) and one.dtype.is_floating_point:
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("in_one_block", [False, True])
def test_groups_with_numbers_of_their_own_learn_as_alone_with_them(in_one_block, monkeypatch):
    rates, temperatures = ("learning_rate", "alpha_learning_rate"), ("init_alpha", "target_sigma")
    swept = [{}, *({f"config.{name}": 0.02 * k for name in names} for k, names in enumerate((rates, temperatures), 1))]
    alone = [Run([0], **{key[7:]: x for key, x in each.items()}).train(6).state()["groups"][0] for each in swept]
    if in_one_block:
        monkeypatch.setattr(trainer_module, "cut_equal_blocks", lambda keys, _: [slice(0, len(keys))])
    among = Run([0, 0, 0], numbers=swept).train(6).state()["groups"]
    for one, two in zip(leaves(alone), leaves(among)):
        tolerance = {"rtol": 1e-3, "atol": 1e-4} if in_one_block else {"rtol": 0, "atol": 0}
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, two, **tolerance)
    weights = [each["learner"]["actor.parameters"][0]["0.up"] for each in alone]
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_restored_run_goes_on_bitwise():
    straight = Run([0, 3]).train(9)
    first = Run([0, 3]).train(5)
    second = Run([0, 3])
    second.trainer.set_state(first.state())
    second.env.set_state(first.env.get_state())
    second.obs = first.obs
    assert_equal(straight.state(), second.train(4).state())


def test_a_longer_training_goes_on_from_the_end_of_a_shorter_one():
    straight = Run([0]).train(6)
    first = Run([0], max_epochs=2).train(2)
    assert first.trainer.blocks[0].replay.slots < straight.trainer.blocks[0].replay.slots
    second = Run([0])
    second.trainer.set_state(first.state())
    second.env.set_state(first.env.get_state())
    second.obs = first.obs
    assert_equal(straight.state(), second.train(4).state())


def test_survivors_of_a_race_keep_their_rings():
    whole, alone = Run([0, 1, 2]).train(5), Run([2]).train(8)
    parts = whole.trainer.split_state(whole.state())
    rest = Run([2])
    rest.trainer.set_state(rest.trainer.join_states([parts[2]]))
    envs = whole.env.get_state()
    rest.env.set_state({**envs, "x": envs["x"][2:], "progress": envs["progress"][2:], "alive": envs["alive"][2:]})
    rest.obs = GroupLayout(3, NUM_ENVS).split(whole.obs)[2, :, : OBS_DIMS[2]].clone()
    assert_equal(alone.state(), rest.train(3).state())


def test_a_run_that_ends_before_the_first_update_is_told():
    few = params(num_warmup_steps=2000, env_steps_per_update=32)
    learns_nothing = GroupedSAC.remark(few, 2031)
    assert "nothing is learned: the first update comes after 2,032 env-steps" in learns_nothing
    assert learns_nothing.endswith(", and this run has 2,031 for each policy")
    assert "nothing is learned" not in GroupedSAC.remark(few, 2032)


def test_a_state_of_other_widths_is_refused():
    with pytest.raises(ValueError, match="a network of other widths"):
        Run([1]).trainer.set_state(Run([0]).train(2).state())
    with pytest.raises(ValueError, match="the checkpoint has 2 groups and this run has 1"):
        Run([0]).trainer.set_state(Run([0, 1]).train(2).state())


def test_a_failed_group_stands_still_and_its_neighbour_does_not_notice():
    failed, sound = Run([0, 1], fails_at={0: 6}).train(6), Run([1]).train(6)
    assert_equal(failed.state()["groups"][1], sound.state()["groups"][0])
    assert math.isnan(failed.stats["entropy"][0]) and math.isfinite(failed.stats["entropy"][1])
    actions = failed.trainer.act(failed.obs)
    assert torch.equal(actions[:NUM_ENVS], torch.zeros_like(actions[:NUM_ENVS]))


def test_equal_seeds_explore_and_sample_alike_and_repeat_their_noise():
    run = Run([0, 3], noise_repeat_max=3, noise_repeat_exponent=0.5, horizon_length=12)  # two groups of seed 7
    block = run.trainer.blocks[0]
    assert SEEDS[0] == SEEDS[3]
    for each in run.trainer.blocks:
        each.draw_noise(1200, 0)
    steps = block._noise_steps(torch.arange(1200, 1212))[0].tolist()
    assert all(a == b or b == t for t, (a, b) in enumerate(pairwise(steps), start=1201)) and steps[0] == 1200
    assert 1 < len(set(steps)) < 12 and max(map(steps.count, steps)) <= 3
    drawn = [each._noise[0, ..., :2] for each in run.trainer.blocks]
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0][3], noise.normal(7, steps[3], 0, NUM_ENVS, 2))


def test_samples_have_the_returns_of_their_n_steps():
    settings = SACSettings(n_step=3, gamma=0.9, replay_buffer_size=40)
    replay = Replay(settings, 2, 4, (2, 1), None, torch.device("cpu"))  # 10 slots
    number = torch.arange(13 * 2 * 4).view(13, 2, 4).float()  # the step, group and environment of each transition
    end = (number * 7 % 11).long()
    for t in range(13):
        replay.begin(number[t].unsqueeze(2).expand(-1, -1, 2), None, -number[t].unsqueeze(2))
        replay.finish(number[t] / 10, end[t] == 1, end[t] == 2)
    numbers = noise.uniform(1, 0, 0, 2 * 200, 2).view(2, 200, 2)
    sampled = replay.sample(numbers, torch.tensor([1.0, 2.0]))
    assert set(sampled.obs[0, :, 0].long().tolist()) == {8 * t + e for t in range(3, 10) for e in range(4)}
    for g in range(2):
        for k in range(200):
            first = int(sampled.obs[g, k, 0])
            t, e = first // 8, first % 4
            assert first // 4 % 2 == g and float(sampled.action[g, k]) == -first
            total, continues, valid, going = 0.0, 1.0, 1.0, True
            for j in range(3):
                total += going * 0.9**j * float(number[t + j, g, e]) / 10
                continues -= going and int(end[t + j, g, e]) == 1
                valid -= going and int(end[t + j, g, e]) == 2
                going = going and int(end[t + j, g, e]) not in (1, 2)
            assert float(sampled.reward[g, k]) == pytest.approx((1 + g) * total, rel=1e-5)
            assert (float(sampled.continues[g, k]), float(sampled.valid[g, k])) == (continues, valid)
            assert float(sampled.next_obs[g, k, 0]) == number[t + 3, g, e]


def test_rewards_are_scaled_by_the_deviation_of_returns():
    settings = SACSettings(gamma=0.9)
    scale = RewardScale(settings, 1, 4, torch.device("cpu"))
    rewards = noise.normal(1, 0, 0, 200, 4)
    ends = noise.uniform(1, 1, 0, 200, 4) < 0.1
    returns, seen = torch.zeros(4), []
    for reward, end in zip(rewards, ends):
        scale.observe(reward.unsqueeze(0), end.unsqueeze(0))
        returns = 0.9 * returns * ~end + reward
        seen.append(returns)
    deviation = torch.stack(seen).std(correction=0)
    assert float(scale.factor()) == pytest.approx(1 / float(deviation), rel=1e-3)
    scale.observe(torch.full((1, 4), 1e3), torch.zeros(1, 4, dtype=torch.bool))
    assert float(scale.factor()) == pytest.approx(5.0 / 1e3, rel=0.05)  # the greatest return is value_limit


def test_a_target_keeps_its_mean_and_mass_on_the_bins():
    learner, size = make_learner(), 200
    s = learner.settings
    log_probs = torch.log_softmax(3.0 * noise.normal(1, 0, 0, 2 * size, s.num_bins).view(1, 2, size, s.num_bins), 3)
    sample = batch(0)._replace(reward=torch.linspace(-1, 1, size).unsqueeze(0), continues=torch.ones(1, size))
    target = learner.target_distribution(log_probs, sample, torch.full((1, size), 0.01))
    values = (log_probs.exp() @ learner.bins).amin(dim=1)
    expected = sample.reward + 0.99**3 * (values + 0.01)
    inside = log_probs.exp()[..., [0, -1]].amax(dim=(1, 3)) < 0.01  # little mass leaves the bins
    torch.testing.assert_close(target.sum(dim=2), torch.ones(1, size))
    assert inside.sum() > 20
    torch.testing.assert_close((target @ learner.bins)[inside], expected[inside], rtol=0, atol=0.15)


@pytest.mark.parametrize("bound", [1.0, 3.0])
def test_an_exported_policy_acts_as_the_trainer(bound, tmp_path):
    run = Run([1, 4], action_bound=bound).train(6)
    obs = torch.rand(2 * NUM_ENVS, max(OBS_DIMS[1], OBS_DIMS[4]))
    acted = run.trainer.policy(run.env.layout)(obs)
    for group, g in enumerate((1, 4)):
        module = GroupedSAC.load_policy(params(action_bound=bound), run.trainer.export(group))
        own = obs[group * NUM_ENVS :][:NUM_ENVS, : OBS_DIMS[g]].contiguous()
        expected = acted[group * NUM_ENVS :][:NUM_ENVS, : ACTION_DIMS[g]]
        torch.testing.assert_close(module(own), expected, rtol=1e-4, atol=1e-5)
        pytest.importorskip("onnx")
        exported = ExportedPolicy(module, 1e3, 1e3)
        (onnx_actions,) = onnx_runner(onnx_bytes(exported, OBS_DIMS[g], ""))(own.numpy())
        torch.testing.assert_close(torch.from_numpy(onnx_actions), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="does not fit the network"):
        GroupedSAC.load_policy(params(), {"model": {"0.weight": torch.zeros(2, 2)}})


def test_the_estimate_of_memory_holds_what_a_group_keeps():
    few = {"replay_buffer_size": 6000, "num_warmup_steps": 3000, "max_epochs": 120}  # no update within so few steps
    run = Run([0, 1, 2], **few)
    widths = [(OBS_DIMS[g], ACTION_DIMS[g], 0) for g in range(3)]
    estimate = GroupedSAC.memory(params(**few), NUM_ENVS, 1, torch.device("cpu"))(widths)
    kept = sum(x.numel() * x.element_size() for x in leaves(run.train(120).state()) if isinstance(x, torch.Tensor))
    assert kept < estimate < 20 * kept


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"batch_size": 1}, "params.config.batch_size: must be a whole number of at least 2, got 1"),
        ({"gamma": 1.0}, "params.config.gamma: must be a number of at least 0 and below 1"),
        ({"replay_buffer_size": 10}, r"params.config.replay_buffer_size: 10 must be at least 30, .* 6 environments"),
        ({"replay_dtype": "int8"}, "params.config.replay_dtype: must be"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(config, message):
    with pytest.raises(ValueError, match=message):
        GroupedSAC.check(params(**config), NUM_ENVS)


@pytest.mark.cuda
@NEEDS_CUDA
def test_on_cuda_a_group_alone_equals_itself_among_others_in_a_deterministic_run():
    with settings_kept():
        use_deterministic_algorithms()
        among = Run([0, 1, 2, 3, 4], CRITIC_DIMS, device="cuda").train(8).state()["groups"]
        for group in (0, 3):
            assert_equal(among[group], Run([group], CRITIC_DIMS, device="cuda").train(8).state()["groups"][0])


@pytest.mark.cuda
@NEEDS_CUDA
def test_cuda_graphs_do_what_the_cpu_does():
    few = {"matmul_precision": "highest", "learning_rate": 1e-3}
    on_cpu, on_cuda = Run([0, 1, 2, 3], **few).train(7), Run([0, 1, 2, 3], device="cuda", **few).train(7)
    assert len(on_cuda.trainer.blocks) == 1 and on_cuda.trainer._update_count == on_cpu.trainer._update_count >= 5
    for one, two in zip(leaves(on_cpu.state()), leaves(on_cuda.state())):
        if isinstance(one, torch.Tensor) and one.dtype.is_floating_point:
            torch.testing.assert_close(one, two, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_it_learns():
    run = Run([0, 2], learning_rate=3e-3, env_steps_per_update=6, batch_size=64, replay_buffer_size=6000)
    policy = run.trainer.policy(run.env.layout)

    def reward():
        obs, total = run.env.reset(), torch.zeros(2)
        for _ in range(20):
            step = run.env.step(policy(obs))
            obs = step.obs
            total += run.env.layout.split(step.reward).mean(dim=1) / 20
        return total

    before = reward()
    run.train(30)
    assert bool((reward() > before + 0.8).all())
