"""Real tasks of IsaacGymEnvs and legged_gym, where ISAACGYMENVS_PATH or LEGGED_GYM_PATH says where they are."""

import functools
import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from scripted_policies import disturbed, groups_of, stress_of

import isaacgym_mujoco.api.gymapi  # noqa: F401  MuJoCo starts a process where it is first imported
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.yaml_files import read_yaml
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.results.stress import Settings
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.isaacgym_tasks import random_params, randomizer, tensors
from envcoder_bench.sources.isaacgym_tasks.find_source import find_source
from envcoder_bench.sources.isaacgym_tasks.fitness import FITNESS
from envcoder_bench.sources.isaacgym_tasks.importing import isaac_imports
from envcoder_bench.sources.isaacgym_tasks.moments import _reward_methods
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tools.isolation import measure_isolation

ISAAC = pytest.mark.skipif("ISAACGYMENVS_PATH" not in os.environ, reason="ISAACGYMENVS_PATH is not set")
LEGGED = pytest.mark.skipif("LEGGED_GYM_PATH" not in os.environ, reason="LEGGED_GYM_PATH is not set")
pytestmark = pytest.mark.slow
SETTINGS = (
    "num_envs_per_candidate=32", "compile_shapers=false", "device=cpu", "sim=mujoco_cpu",
    "train.params.config.horizon_length=8", "train.params.config.minibatch_size=null",
    "train.params.config.num_minibatches=1",
)  # fmt: skip


def prepared(task, *overrides):
    cfg = compose_config(task, [*SETTINGS, *overrides])
    made, faults = prepare(RunSpec.of(cfg, baseline_sources(find_spec(cfg.task.name))))
    assert not faults
    return cfg, made


@ISAAC
@pytest.mark.parametrize("task", ["Ant", "Quadcopter", "FrankaCubeStack"])
def test_isaacgymenvs_task_isolates_candidates(task):
    length = {"Quadcopter": "task.env.maxEpisodeLength=40"}.get(task, "task.env.episodeLength=40")
    cfg, (human, unshaped) = prepared(f"isaacgymenvs:{task}", length)
    measured = measure_isolation(RunSpec.of(cfg), human, unshaped, steps=60, iterations=1)
    assert measured.clean and measured.episodes >= 32, str(measured)


@LEGGED
def test_legged_gym_task_isolates_candidates():
    cfg, (human, unshaped) = prepared("legged_gym:anymal_c_flat", "task.env.episode_length_s=0.8")
    measured = measure_isolation(RunSpec.of(cfg), human, unshaped, steps=60, iterations=1)
    assert measured.clean and measured.episodes >= 32, str(measured)


@ISAAC
@pytest.mark.parametrize("task", ["Cartpole", "Anymal"])
def test_human_baseline_matches_the_step_of_vec_task(task):
    """Compared with the task's own ``step`` from the same state until the first reset."""
    cfg, (human, _) = prepared(f"isaacgymenvs:{task}")
    env = GroupedVecTask(build_task(RunSpec.of(cfg), 32), GroupLayout(1, 32), [human.shaping], [0])
    env.reset()
    reference = build_task(RunSpec.of(cfg), 32)
    reference.attach(env.task._groups)
    reference.set_state(env.task.get_state())
    isaac = reference.isaac
    isaac.reset_buf.zero_()
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        actions = 0.1 * torch.rand(32, env.actions.shape[1], generator=generator)
        made = env.step(actions)
        obs, reward, done, _ = isaac.step(actions)
        alive = ~made.done & (done == 0)
        assert bool(alive.any())
        assert torch.equal(made.reward[alive], reward[alive]) and torch.equal(made.obs[alive], obs["obs"][alive])
        if bool(made.done.any() | (done != 0).any()):
            break


def read_by_the_reward(task_class, monkeypatch):
    """Note the tensors of a task of this class at the beginning of its own reward, in a dict that is returned."""
    (name,) = _reward_methods(task_class)
    original, noted = getattr(task_class, name), {}

    @functools.wraps(original)
    def noting(self, *args, **kwargs):
        noted.update({slot: x.clone() for slot, x in tensors.tensors_of(self)})
        return original(self, *args, **kwargs)

    monkeypatch.setattr(task_class, name, noting)
    return noted


def state_of_rewards(task, monkeypatch, steps=12):
    """Yield the environment and the keys whose values differ from those that the task's own reward has read."""
    cfg, (human, *_) = prepared(task)
    noted = read_by_the_reward(build_task(RunSpec.of(cfg), 2).source.task_class, monkeypatch)
    env = GroupedVecTask(build_task(RunSpec.of(cfg), 32), GroupLayout(1, 32), [human.shaping], [0])
    env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        env.advance(2.0 * torch.rand(env.actions.shape, generator=generator) - 1.0)
        differ = []
        for key, slot in env.task.keys.items():
            read = noted.get(slot)
            if key not in env.task._results and read is not None:
                differ += [] if torch.equal(read.reshape(env.task.state[key].shape), env.task.state[key]) else [key]
        assert noted
        yield env, differ
        reward, _, _, done = env._end_step()
        env.step_count += 1
        assert torch.equal(reward, env.task.isaac.rew_buf.view(-1))
        env.begin_episodes(done)


@ISAAC
@pytest.mark.parametrize("task", ["Ant", "Anymal", "AllegroHand", "FrankaCubeStack", "AnymalTerrain"])
def test_state_of_candidates_is_what_the_reward_of_isaacgymenvs_reads(task, monkeypatch):
    for _, differ in state_of_rewards(f"isaacgymenvs:{task}", monkeypatch):
        assert not differ


@LEGGED
def test_state_of_candidates_is_what_the_reward_of_legged_gym_or_a_fork_reads(monkeypatch):
    """Its own action rate, too; the checkout is legged_gym, go2_rl_gym, pbrs-humanoid, or another fork."""
    for env, differ in state_of_rewards(task_with_rate(), monkeypatch):
        assert not differ
        state, terms = env.task.state, env.task.isaac.reward_terms
        if "last_actions" in state and "action_rate" in terms:
            rate = torch.sum(torch.square(state["last_actions"] - env.actions), dim=1)
            assert torch.equal(rate, terms["action_rate"]) and bool((rate != 0).all())


def task_with_rate():
    """Return the address of a task of the checkout whose reward has a rate of actions."""
    for name in ("anymal_c_flat", "go2", "pbrs:humanoid", "lite3"):
        try:
            return find_source(f"legged_gym:{name}").address
        except ValueError as error:
            told = str(error)
    pytest.skip(told)


@ISAAC
@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("FactoryBase", "has no key 'name'"),
        ("FactoryTaskGears", r"factory_env_gears.py:\d+: NotImplementedError: load_asset: .*signed distance field"),
        ("IndustRealTaskPegsInsert", r"industreal_env_pegs.py:\d+: NotImplementedError: .*signed distance field"),
    ],
)
def test_unsupported_task_is_refused_with_the_reason(task, told):
    with pytest.raises(ValueError, match=told) as error:
        find_spec(f"isaacgymenvs:{task}")
    assert "\n" not in str(error.value)


@ISAAC
def test_config_that_extends_another_gives_the_class_of_the_other():
    """These YAMLs have only ``defaults`` and changes; tasks of AllegroKuka read a device number."""
    for task in ("ShadowHandOpenAI_LSTM", "AllegroKukaLSTM"):
        assert find_source(f"isaacgymenvs:{task}").task_class.__name__ in ("ShadowHand", "AllegroKukaReorientation")


@ISAAC
@pytest.mark.parametrize("name", FITNESS)
def test_shipped_fitness_functions_run_on_their_tasks(name):
    if name in ("LeggedRobot", "AnymalTerrain"):
        pytest.skip("not of IsaacGymEnvs, or with a terrain that takes minutes")
    spec = find_spec(f"isaacgymenvs:{name}")
    assert spec.fitness_meaning
    task = spec.make(read_yaml(spec.config), 2, "mujoco_cpu", "cpu")
    value = task.fitness(task.state)
    assert tuple(value.shape) == (2,) and bool(torch.isfinite(value).all())
    assert "compute_reward" in Path(spec.folder / "unshaped.py").read_text()


RANDOMIZED = (
    {"range": [0.2, 0.6], "operation": "additive", "distribution": "gaussian"},
    {"range": [0.8, 0.1], "operation": "scaling", "distribution": "gaussian"},
    {"range": [0.3, 3.0], "operation": "scaling", "distribution": "uniform"},
    {"range": [-0.3, 0.4], "operation": "additive", "distribution": "uniform"},
    {"range": [0.3, 3.0], "operation": "scaling", "distribution": "loguniform"},
    {"range": [0.3, 3.0], "operation": "additive", "distribution": "loguniform"},
    {"range": [0.7, 1.3], "operation": "scaling", "distribution": "uniform", "num_buckets": 50},
    {"range": [1.0, 0.04], "operation": "scaling", "distribution": "gaussian", "num_buckets": 20},
)
SCHEDULES = ({}, {"schedule": "linear", "schedule_steps": 40}, {"schedule": "constant", "schedule_steps": 10})


@ISAAC
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda own: own.get("schedule"))
@pytest.mark.parametrize("given", RANDOMIZED, ids=lambda own: f"{own['operation']}-{own['distribution']}")
def test_random_properties_match_isaacgymenvs(given, schedule, monkeypatch):
    """Compared with ``apply_random_samples`` for the same standard numbers."""
    given = {**given, **schedule}
    standard = np.array([0.1, 0.35, 0.6, 0.95])
    monkeypatch.setattr(np.random, "uniform", lambda low, high, shape: low + (high - low) * standard)
    monkeypatch.setattr(np.random, "normal", lambda mean, std, shape: mean + std * standard)
    monkeypatch.setattr(random_params, "standard_numbers", lambda *_: torch.from_numpy(standard).unsqueeze(0))
    own = random_params.read_params({"sim_params": {"gravity": given}}).gravity
    original = np.array([1.0, 0.5, 2.0, -1.0])
    with isaac_imports(*find_source("isaacgymenvs:Ant").folders):
        from isaacgymenvs.utils.dr_utils import apply_random_samples, get_bucketed_val
    for frames in (0, 5, 20, 100):
        if own.strength(frames) == 0.0 and (own.operation, own.distribution) == ("additive", "loguniform"):
            continue  # theirs takes the logarithm of 0
        rows = np.zeros(4, dtype=[("x", "f8")])
        without = {key: x for key, x in given.items() if key != "num_buckets"}  # theirs are for single numbers
        apply_random_samples(rows, {"x": original}, "x", without, frames)
        expected = [get_bucketed_val(x, given) for x in rows["x"]] if own.num_buckets else rows["x"]
        sample = own.draw(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), 0, frames, 4)[0]
        np.testing.assert_allclose(own.applied(original, sample), expected, rtol=1e-12)


@ISAAC
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda own: own.get("schedule"))
@pytest.mark.parametrize("given", RANDOMIZED[:4], ids=lambda own: f"{own['operation']}-{own['distribution']}")
def test_noise_matches_isaacgymenvs(given, schedule, monkeypatch):
    """Compared with the function made by ``apply_randomizations`` for the same standard numbers."""
    given = {**given, **schedule, "range_correlated": [0.1, 0.3]}
    source = find_source("isaacgymenvs:Ant")
    numbers = {True: 0.7, False: 0.4}
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.full_like(x, numbers[True]))
    monkeypatch.setattr(torch, "rand_like", lambda x: torch.full_like(x, numbers[False]))
    x = torch.linspace(-1.0, 2.0, 12).view(4, 3)
    monkeypatch.setattr(randomizer, "standard_numbers", lambda normal, *_: torch.full_like(x, numbers[normal]))
    params = {"frequency": 1, "observations": given, "actor_params": {}}
    own = randomizer.Randomizer.__new__(randomizer.Randomizer)
    own._params, own._repeats = random_params.read_params(params), 1
    own._seeds_there = own._lanes_there = torch.zeros(4, dtype=torch.int64)
    with isaac_imports(*source.folders):
        task_class = next(cls for cls in source.task_class.__mro__ if cls.__name__ == "VecTask")
        for frames in (0, 5, 20, 100):
            zeros = torch.zeros(4, dtype=torch.int64)
            theirs = SimpleNamespace(
                gym=MagicMock(), sim=None, first_randomization=False, last_rand_step=-1, randomize_buf=zeros,
                reset_buf=zeros, dr_randomizations={}, actor_params_generator=None, original_props={},
            )  # fmt: skip
            theirs.gym.get_frame_count.return_value = frames
            task_class.apply_randomizations(theirs, params)
            own._refreshed = frames
            made = own.add_noise("observations", x, slice(0, 4), frames)
            torch.testing.assert_close(made, theirs.dr_randomizations["observations"]["noise_lambda"](x))


ALL_RANDOM = ("task.task.randomize=true", "task.task.randomization_params.frequency=15")


@ISAAC
@pytest.mark.parametrize("task", ["Ant", "Anymal", "ShadowHand", "ShadowHandTest", "AllegroHand", "Trifinger"])
def test_randomized_isaacgymenvs_task_isolates_candidates(task):
    lengths = {"Anymal": "task.env.learn.episodeLength_s=0.5", "ShadowHandTest": "task.env.resetTime=1.25"}
    length = lengths.get(task, "task.env.episodeLength=25")
    cfg, (human, unshaped) = prepared(f"isaacgymenvs:{task}", length, *ALL_RANDOM)
    measured = measure_isolation(RunSpec.of(cfg), human, unshaped, steps=60, iterations=2)
    assert measured.clean and measured.episodes >= 32, str(measured)


@pytest.mark.parametrize(
    "task, width",
    [
        pytest.param("isaacgymenvs:Ant", 8, marks=ISAAC, id="Ant"),
        pytest.param("legged_gym:anymal_c_flat", 12, marks=LEGGED, id="anymal_c_flat"),
    ],
)
def test_stress_of_a_task_is_the_same_alone_and_among_others_and_its_base_errs(task, width):
    text = "def compute_observation(state_dict):\n    return state_dict['obs_buf']\n"
    policies = {name: lambda obs, x=x: torch.tanh(x * obs[:, :1]).expand(-1, width) for name, x in (("a", 0), ("b", 1))}
    small = Settings(1, draws=2, episodes=1, milliseconds=100)
    stress = stress_of(*groups_of(task, text, ["a", "b"]), policies, small)
    alone = stress_of(*groups_of(task, text, ["b"]), policies, small)
    assert str(alone.rows) == str(tuple(row for row in stress.rows if row.candidate == "b"))
    env = disturbed(*groups_of(task, text, ["a"]), small, noise=0.5)
    env.begin_all(EVALUATION_STEP)
    error = (env.state["root_states"] - env.robot.root_states).abs()
    assert not bool(error[0].any()) and not bool(error[:, :3].any())
    for columns, most in ((slice(7, 10), 0.05), (slice(10, 13), 0.1), (slice(3, 7), 0.013)):
        assert (
            bool((error[1:, columns].amax(dim=1) > 0.05 * most).all()) and float(error[:, columns].max()) < 1.01 * most
        )
