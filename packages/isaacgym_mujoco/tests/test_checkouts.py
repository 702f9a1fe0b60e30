"""IsaacGymEnvs and legged_gym themselves, unmodified, where a checkout of theirs is given.

ISAACGYMENVS_PATH and LEGGED_GYM_PATH name the checkouts; legged_gym needs rsl_rl 1.0.2, whose checkout RSL_RL_PATH
names. ISAACGYM_STEPS sets the number of control steps, 20 if it is not given.
"""

import os
import re
from pathlib import Path

import pytest
from run_scripts import SCRIPTS, run_script

pytestmark = pytest.mark.slow
STEPS = os.environ.get("ISAACGYM_STEPS", "20")
isaacgymenvs = pytest.mark.skipif("ISAACGYMENVS_PATH" not in os.environ, reason="set ISAACGYMENVS_PATH to a checkout")
legged_gym = pytest.mark.skipif(
    not {"LEGGED_GYM_PATH", "RSL_RL_PATH"} <= set(os.environ),
    reason="set LEGGED_GYM_PATH and RSL_RL_PATH to checkouts",
)
RANDOMIZED = "task.task.randomize=True"


@isaacgymenvs
@pytest.mark.parametrize(
    "task",
    [
        ["AnymalTerrain", "8", "cpu", "task.env.terrain.terrainType=plane"],
        ["AnymalTerrain", "8", "cpu", "task.env.terrain.terrainType=trimesh"],
        *([name, "4", "cpu", RANDOMIZED] for name in ("AllegroHand", "ShadowHand", "Ant", "Humanoid", "Anymal")),
        ["Trifinger", "4", "cpu", RANDOMIZED],
        ["AllegroKuka", "4", "cpu:0"],
        ["AllegroKukaTwoArmsLSTM", "4", "cpu:0"],
    ],
    ids=lambda task: " ".join([task[0], *task[3:]]),
)
def test_isaacgymenvs_task_steps(tmp_path, task):
    name, num_envs, device, *overrides = task
    checkout = os.environ["ISAACGYMENVS_PATH"]
    path = SCRIPTS / "isaacgymenvs_steps.py"
    out = run_script(tmp_path, path, checkout, name, STEPS, num_envs, device, *overrides)
    assert re.search(f"stepped {name}: {STEPS} steps, \\d+ resets, 0 blow-ups", out)


@isaacgymenvs
def test_shadow_hand_is_under_its_object(tmp_path):
    """The root of its MJCF is rotated. Without the rotation the object falls beside the hand in 14 steps."""
    path = SCRIPTS / "isaacgymenvs_steps.py"
    out = run_script(tmp_path, path, os.environ["ISAACGYMENVS_PATH"], "ShadowHand", "30", "8", "cpu")
    assert int(re.search("(\\d+) resets", out).group(1)) < 8


@isaacgymenvs
@pytest.mark.parametrize("task", ["FactoryTaskNutBoltPick", "FactoryTaskGears", "IndustRealTaskPegsInsert"])
def test_tasks_that_need_signed_distance_fields_are_refused(tmp_path, task):
    arguments = [os.environ["ISAACGYMENVS_PATH"], task, "1", "2", "cpu"]
    with pytest.raises(AssertionError, match="signed distance field"):
        run_script(tmp_path, SCRIPTS / "isaacgymenvs_steps.py", *arguments)


@legged_gym
@pytest.mark.parametrize("ground", ["plane", "heightfield", "trimesh"])
@pytest.mark.parametrize("task", ["anymal_c_flat", "anymal_c_rough", "anymal_b", "a1", "cassie"])
def test_legged_gym_task_steps(tmp_path, task, ground):
    places = [os.environ["LEGGED_GYM_PATH"], os.environ["RSL_RL_PATH"]]
    flags = [f"--task={task}", "--headless", "--sim_device=cpu", "--rl_device=cpu", "--num_envs=8"]
    out = run_script(tmp_path, SCRIPTS / "legged_gym_steps.py", ground, STEPS, *flags, places=places)
    assert re.search(f"stepped {task}: {STEPS} steps, \\d+ resets, 0 blow-ups", out)
    assert float(out.split("height ")[-1]) > 0.1


@legged_gym
def test_legged_gym_training_script_runs_two_iterations(tmp_path):
    place = os.environ["LEGGED_GYM_PATH"]
    for name in ("legged_gym", "resources"):  # it writes its logs beside itself
        (tmp_path / name).symlink_to(Path(place) / name)
    copy = tmp_path / "legged_gym"
    flags = ["--headless", "--sim_device=cpu", "--rl_device=cpu", "--num_envs=16", "--max_iterations=2"]
    path = copy / "scripts" / "train.py"
    places = [place, os.environ["RSL_RL_PATH"]]
    out = run_script(tmp_path, path, "--task=anymal_c_flat", *flags, places=places)
    assert "Learning iteration 1/2" in out
