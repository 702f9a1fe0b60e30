"""Tests of every registered task on every available simulator."""

import pytest
import torch

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.sources.registry import task_names
from envcoder_bench.tools.task_check import TaskCheck

# all kinds of tiles, of two levels, are built in a fraction of the time of the shipped terrain; the fields on
# mujoco_cpu are those of the shipped one
SMALL_TERRAIN = [f"task.env.terrain.{key}" for key in ("numLevels=2", "borderSize=3")]
SLOW = pytest.mark.slow
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ON_CUDA = [pytest.param(name, "mujoco_warp", "cuda:0", marks=[CUDA, pytest.mark.cuda]) for name in task_names()]
WHERE = ("name", "sim", "device")
EVERY = pytest.mark.parametrize(WHERE, [*((name, "mujoco_cpu", "cpu") for name in task_names()), *ON_CUDA])
# objects, sites and a Jacobian; cubes in hands; levels of a terrain: what the other tasks have is simpler
THREE = pytest.mark.parametrize(
    WHERE, [*((x, "mujoco_cpu", "cpu") for x in ("FrankaCubeStack", "AllegroHand", "AnymalTerrain")), *ON_CUDA]
)


def overrides(name, sim, as_shipped=False):
    return [] if "Terrain" not in name or (as_shipped and sim == "mujoco_cpu") else SMALL_TERRAIN


def episode(name, steps):
    """The override for episodes of this many steps."""
    in_seconds = name in ("Anymal", "AnymalTerrain", "SpotTerrain")  # with control steps of 20 ms
    return f"task.env.learn.episodeLength_s={steps / 50}" if in_seconds else f"task.env.episodeLength={steps}"


@EVERY
@pytest.mark.parametrize("check", ["fields", "fitness", "ends", "rollout"])
def test_task_passes_the_fast_checks(name, sim, device, check):
    words = overrides(name, sim, check == "fields")
    assert list(getattr(TaskCheck(name, sim, device, words), check)()) == []


@SLOW
@EVERY
@pytest.mark.parametrize("check", ["reset", "restore", "paired"])
def test_task_is_reset_restored_and_paired(name, sim, device, check):
    assert list(getattr(TaskCheck(name, sim, device, overrides(name, sim)), check)()) == []


@SLOW
def test_task_of_objects_sites_and_a_jacobian_is_reset_with_warp():
    """The task for the code that the others do not have; tests/sim compares the simulators in all else."""
    assert list(TaskCheck("FrankaCubeStack", "mujoco_warp", "cpu").reset()) == []


@SLOW
@THREE
def test_random_actions_keep_observations_and_rewards_finite(name, sim, device):
    """In the training environment, with both baselines, longer than an episode."""
    words = [*overrides(name, sim), episode(name, 50)]
    assert list(TaskCheck(name, sim, device, words).random_actions(60)) == []


@SLOW
@pytest.mark.parametrize(WHERE, [("AnymalTerrain", "mujoco_cpu", "cpu"), *ON_CUDA])
def test_both_baselines_are_compiled_and_train(name, sim, device, tmp_path, capsys, monkeypatch):
    """Of one task on a CPU; tests/run/test_check.py compiles the baselines of all, and above all act at random."""
    monkeypatch.setenv("COLUMNS", "160")  # else long numbers shorten the names
    candidate = tmp_path / "joints.py"
    candidate.write_text("def compute_observation(dof_pos, dof_vel):\n    return torch.cat([dof_pos, dof_vel], 1)\n")
    where = ["--sim", sim, "--device", device, "--output_dir", str(tmp_path / "run")]
    small = ["--learning_iterations", "2", "--num_envs_per_candidate", "4", episode(name, 6), *overrides(name, sim)]
    small += ["evaluation.num_envs=1", "evaluation.final_episodes=1", "evaluation.points=1"]
    small += [f"train.params.config.{key}" for key in ("horizon_length=4", "num_minibatches=2")]
    assert main(["--task", name, "--candidates", str(candidate), *where, *small]) == 0
    told = capsys.readouterr()
    assert "human (baseline)" in told.out and "unshaped (baseline)" in told.out and "failed" not in told.out
    assert "not compiled" not in told.err
