"""Policies that NVIDIA's Isaac Gym trained walk here as in plain MuJoCo, where a checkout of unitree_rl_gym is given.

UNITREE_RL_GYM_PATH names the checkout.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = os.environ.get("UNITREE_RL_GYM_PATH", "")
HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT, reason="set UNITREE_RL_GYM_PATH to a checkout of unitree_rl_gym")
@pytest.mark.parametrize("robot", ["g1", "h1", "h1_2"])
def test_shipped_policies_walk_as_in_their_own_deployment(tmp_path, robot):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), CHECKOUT])}
    words = [sys.executable, "-m", "isaacgym_mujoco", str(HERE / "scripts" / "walk_policies.py"), CHECKOUT, robot, "16"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    walked = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = walked["isaacgym"], walked["mujoco"]
    assert ours["falls"] == theirs["falls"] == 0
    assert abs(ours["speed"] - theirs["speed"]) < 0.04 and ours["rms"] < 0.08
    assert abs(ours["height"] - theirs["height"]) < 0.004
