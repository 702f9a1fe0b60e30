"""Policies that NVIDIA's Isaac Gym trained walk here as in plain MuJoCo, where a checkout with policies is given.

UNITREE_RL_GYM_PATH and HUMANOID_GYM_PATH name checkouts of unitree_rl_gym and humanoid-gym.
"""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from run_scripts import SCRIPTS, run_script

CHECKOUT = os.environ.get("UNITREE_RL_GYM_PATH", "")
HUMANOID = os.environ.get("HUMANOID_GYM_PATH", "")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ON_CUDA = pytest.param("cuda:0", marks=[pytest.mark.cuda, NO_GPU])


def walk(folder, checkout, package, policy, task, device, armature, num_envs=16):
    """Return mean speed and its error, m/s, and the number of falls of the robots in 10 s."""
    devices = [f"--sim_device={device}", f"--rl_device={device}"]
    flags = [f"--task={task}", "--headless", *devices, f"--num_envs={num_envs}"]
    words = [package, Path(checkout, policy), "10", armature, *flags]
    line = run_script(folder, SCRIPTS / "walk_fork.py", *words, places=[checkout]).splitlines()[-1]
    assert line.endswith(device)
    return map(float, re.match(r"walked \w+: (\S+) m/s, error (\S+) m/s, (\d+) falls", line).groups())


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT, reason="set UNITREE_RL_GYM_PATH to a checkout of unitree_rl_gym")
@pytest.mark.parametrize("robot", ["g1", "h1", "h1_2"])
def test_shipped_policies_walk_as_in_their_own_deployment(tmp_path, robot):
    out = run_script(tmp_path, SCRIPTS / "walk_policies.py", CHECKOUT, robot, "200", places=[CHECKOUT])
    walked = json.loads(out.splitlines()[-1])
    ours, theirs = walked["isaacgym"], walked["mujoco"]
    assert ours["falls"] == theirs["falls"] == 0
    assert abs(ours["speed"] - theirs["speed"]) < 0.04 and ours["rms"] < 0.08
    assert abs(ours["height"] - theirs["height"]) < 0.004


@pytest.mark.slow
@pytest.mark.cuda
@NO_GPU
@pytest.mark.skipif(not CHECKOUT, reason="set UNITREE_RL_GYM_PATH to a checkout of unitree_rl_gym")
@pytest.mark.parametrize("robot", ["g1", "h1", "h1_2"])
def test_shipped_policies_walk_on_cuda(tmp_path, robot):
    policy = f"deploy/pre_train/{robot}/motion.pt"
    speed, error, falls = walk(tmp_path, CHECKOUT, "legged_gym", policy, robot, "cuda:0", "0.0", 200)
    assert falls == 0 and error < 0.1 and abs(speed - 0.5) < 0.08


@pytest.mark.slow
@pytest.mark.skipif(not HUMANOID, reason="set HUMANOID_GYM_PATH to a checkout of humanoid-gym")
@pytest.mark.parametrize("device", ["cpu", ON_CUDA])
def test_policy_of_humanoid_gym_walks_with_the_armature_of_its_mjcf(tmp_path, device):
    """Its MJCF gives all joints 0.01 kg m². Without it the damping of the ankles is unstable, and the robot falls."""
    policy = "logs/XBot_ppo/exported/policies/policy_example.pt"
    speed, error, falls = walk(tmp_path, HUMANOID, "humanoid", policy, "humanoid_ppo", device, "0.01")
    assert falls == 0 and error < 0.1 and abs(speed - 0.464) < 0.05  # MuJoCo itself with that MJCF: 0.464
