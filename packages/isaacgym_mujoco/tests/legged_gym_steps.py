"""Script: build a task of a legged_gym checkout, on the import path, and step it with random actions.

Arguments: the kind of ground, steps, then legged_gym's own flags.
"""

import sys

import torch
from isaacgym import gymapi  # noqa: F401  legged_gym wants it before torch
from legged_gym.envs import *  # noqa: F403  registers the tasks
from legged_gym.utils import get_args, task_registry

torch.set_num_threads(1)
ground, steps = sys.argv[1:3]
del sys.argv[1:3]
args = get_args()
config, _ = task_registry.get_cfgs(args.task)
config.terrain.mesh_type = ground
config.terrain.num_rows = config.terrain.num_cols = 6
env, _ = task_registry.make_env(args.task, args=args, env_cfg=config)
env.reset()
resets = 0
for step in range(int(steps)):
    observations, _, reward, done, _ = env.step(2 * torch.rand(env.num_envs, env.num_actions) - 1)
    resets += int(done.sum())
    assert torch.isfinite(observations).all() and torch.isfinite(reward).all(), f"not finite at step {step}"
height = float((env.root_states[:, 2] - env.env_origins[:, 2]).median())
print(f"stepped {args.task}: {steps} steps, {resets} resets, {env.sim.engine.blow_ups} blow-ups, height {height:.2f}")
