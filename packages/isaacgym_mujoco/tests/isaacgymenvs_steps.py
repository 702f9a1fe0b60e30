"""Script: build a task of an IsaacGymEnvs checkout and step it with random actions.

Arguments: the checkout, the task, steps, environments, device of the simulation, overrides of the configuration.
"""

import os
import sys

import hydra
import numpy as np
import torch

checkout, name, steps, num_envs, device, *overrides = sys.argv[1:]
sys.path.insert(0, checkout)

import isaacgymenvs  # noqa: E402, F401  registers the configuration's resolvers
from isaacgymenvs.tasks import isaacgym_task_map  # noqa: E402
from isaacgymenvs.utils.reformat import omegaconf_to_dict  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(0)
np.random.seed(0)
flags = ["headless=True", "sim_device=cpu", "rl_device=cpu", "pipeline=cpu", "test=False"]
folder = os.path.join(checkout, "isaacgymenvs", "cfg")
with hydra.initialize_config_dir(folder, version_base="1.1"):  # Factory's tasks compose more files
    config = hydra.compose("config", [f"task={name}", f"num_envs={num_envs}", *flags, *overrides])
    task = isaacgym_task_map[config.task_name](
        cfg=omegaconf_to_dict(config.task),
        rl_device="cpu",
        sim_device=device,
        graphics_device_id=-1,
        headless=True,
        virtual_screen_capture=False,
        force_render=False,
    )
resets = 0
for step in range(int(steps)):
    observations, reward, done, _ = task.step(2 * torch.rand(task.num_envs, task.num_actions) - 1)
    resets += int(done.sum())
    assert torch.isfinite(observations["obs"]).all() and torch.isfinite(reward).all(), f"not finite at step {step}"
print(f"stepped {name}: {steps} steps, {resets} resets, {task.sim.engine.blow_ups} blow-ups")
