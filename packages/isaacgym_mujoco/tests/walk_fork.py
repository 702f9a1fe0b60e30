"""Script: walk forwards at 0.5 m/s with a policy that a fork of legged_gym ships, in the fork's own environment.

Arguments: the fork's package, on the import path; the policy, TorchScript; seconds; the armature of all joints, kg m²;
then the fork's own flags. There is no noise, push or randomization. Prints the mean speed, the root mean square of its
error, and falls.
"""

import importlib
import sys
from types import ModuleType

import isaacgym  # noqa: F401  forks want it before torch
import torch

SPEED = 0.5  # m/s
STRAIGHT = {"lin_vel_x": [SPEED, SPEED], "lin_vel_y": [0.0, 0.0], "ang_vel_yaw": [0.0, 0.0], "heading": [0.0, 0.0]}
QUIET = ("randomize_friction", "randomize_base_mass", "push_robots", "action_delay", "action_noise")

torch.set_num_threads(1)
package, path, seconds, armature = sys.argv[1:5]
del sys.argv[1:5]
for name, attribute in (("rsl_rl", ""), ("rsl_rl.env", "VecEnv"), ("rsl_rl.runners", "OnPolicyRunner")):
    module = sys.modules.setdefault(name, ModuleType(name))  # walking does not need it
    if attribute:
        setattr(module, attribute, type(attribute, (), {}))
importlib.import_module(f"{package}.envs")  # registers the tasks
utils = importlib.import_module(f"{package}.utils")
args = utils.get_args()
config, _ = utils.task_registry.get_cfgs(args.task)
config.noise.add_noise = False
config.terrain.mesh_type = "plane"
config.asset.armature = float(armature)
for name in QUIET:
    if hasattr(config.domain_rand, name):
        setattr(config.domain_rand, name, 0)
for name, limits in STRAIGHT.items():
    setattr(config.commands.ranges, name, limits)
config.env.episode_length_s = 2 * float(seconds)
env, _ = utils.task_registry.make_env(args.task, args, config)
policies = [torch.jit.load(path, map_location=env.device) for _ in range(env.num_envs)]  # each may have a memory
observations, _ = env.reset()
fallen = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
speeds = []
with torch.no_grad():
    for _ in range(round(float(seconds) / env.dt)):
        actions = torch.cat([policy(row[None]) for policy, row in zip(policies, observations)])
        observations, _, _, done, _ = env.step(actions)
        fallen |= done.bool()
        speeds.append(env.base_lin_vel[:, 0].clone())
steady = torch.stack(speeds)[round(1 / env.dt) :]  # without the first second
error = (steady - SPEED).square().mean().sqrt()
print(f"walked {args.task}: {steady.mean():.3f} m/s, error {error:.3f} m/s, {int(fallen.sum())} falls, {env.device}")
