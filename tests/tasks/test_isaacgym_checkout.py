"""Real tasks of IsaacGymEnvs and legged_gym, where ISAACGYMENVS_PATH or LEGGED_GYM_PATH says where they are."""

import os
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

import envcoder_bench.isaacgym.gymapi  # noqa: F401  MuJoCo starts a process where it is first imported
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.isolation import measure_isolation
from envcoder_bench.run.prepare import baseline_sources, build_task, prepare
from envcoder_bench.tasks.isaacgym_tasks.find_source import find_source
from envcoder_bench.tasks.isaacgym_tasks.spec import FITNESS
from envcoder_bench.tasks.registry import get_spec

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
    made, faults = prepare(cfg, baseline_sources(cfg.task.name))
    assert not faults
    return cfg, made


@ISAAC
@pytest.mark.parametrize("task", ["Ant", "Quadcopter", "FrankaCubeStack"])
def test_a_task_of_isaacgymenvs_keeps_candidates_apart(task):
    length = {"Quadcopter": "task.env.maxEpisodeLength=40"}.get(task, "task.env.episodeLength=40")
    cfg, (human, unshaped) = prepared(f"isaacgymenvs:{task}", length)
    measured = measure_isolation(cfg, human, unshaped, steps=60, iterations=1)
    assert measured.clean and measured.episodes >= 32, str(measured)


@LEGGED
def test_a_task_of_legged_gym_keeps_candidates_apart():
    cfg, (human, unshaped) = prepared("legged_gym:anymal_c_flat", "task.env.episode_length_s=0.8")
    measured = measure_isolation(cfg, human, unshaped, steps=60, iterations=1)
    assert measured.clean and measured.episodes >= 32, str(measured)


@ISAAC
@pytest.mark.parametrize("task", ["Cartpole", "Anymal"])
def test_the_human_baseline_is_vec_tasks_own_step(task):
    """Against the task's own ``step``, from one state, until the first reset."""
    cfg, (human, _) = prepared(f"isaacgymenvs:{task}")
    env = GroupedVecTask(build_task(cfg, 32), GroupLayout(1, 32), [human.shaping], [0])
    env.reset()
    reference = build_task(cfg, 32)
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


@ISAAC
@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("FactoryBase", "has no key 'name'"),
        ("FactoryTaskGears", r"factory_env_gears.py:\d+: NotImplementedError: load_asset: .*signed distance field"),
        ("IndustRealTaskPegsInsert", r"industreal_env_pegs.py:\d+: NotImplementedError: .*signed distance field"),
        ("AllegroHandDextremeManualDR", r"allegro_hand_dextreme.py:\d+: RuntimeError: where expected condition"),
    ],
)
def test_a_task_that_cannot_run_says_why(task, told):
    with pytest.raises(ValueError, match=told) as error:
        get_spec(f"isaacgymenvs:{task}")
    assert "\n" not in str(error.value)


@ISAAC
def test_a_config_that_extends_another_one_has_its_name():
    """Their YAMLs have only ``defaults`` and changes; AllegroKuka's tasks read a device number."""
    for task in ("ShadowHandOpenAI_LSTM", "AllegroKukaLSTM"):
        assert find_source(f"isaacgymenvs:{task}").task_class.__name__ in ("ShadowHand", "AllegroKukaReorientation")


@ISAAC
@pytest.mark.parametrize("file", sorted(FITNESS.glob("*.py")), ids=lambda file: file.stem)
def test_every_shipped_fitness_reads_keys_that_its_task_has(file):
    if file.stem in ("LeggedRobot", "AnymalTerrain"):
        pytest.skip("not of IsaacGymEnvs, or with a terrain that takes minutes")
    spec = get_spec(f"isaacgymenvs:{file.stem}")
    assert spec.task_class.fitness_meaning
    task = build_task(OmegaConf.create({"task": OmegaConf.load(spec.config), "sim": "mujoco_cpu", "device": "cpu"}), 2)
    value = task.fitness(task.state)
    assert tuple(value.shape) == (2,) and bool(torch.isfinite(value).all())
    assert "compute_reward" in Path(spec.folder / "unshaped.py").read_text()
