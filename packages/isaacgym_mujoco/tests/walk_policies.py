"""Walk with the policies that unitree_rl_gym ships, here and as its own deployment on MuJoCo does; prints JSON.

Run by the runner, with a checkout of unitree_rl_gym on the import path: ``walk_policies.py CHECKOUT ROBOT NUM_ENVS``.
The policies were trained in Isaac Gym. The environment is the repository's own class on a plane, without noise, pushes
and randomization; 0.5 m/s forward, 10 s. Speeds are means over a period of the gait, 0.8 s, after the first 2 s.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np
import torch
import yaml

CHECKOUT, ROBOT, NUM_ENVS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
SPEED, SECONDS, BEGIN, PERIOD = 0.5, 10.0, 2.0, 0.8
POLICY = CHECKOUT / "deploy" / "pre_train" / ROBOT / "motion.pt"


def policy(rows):
    """The policy with the state of its LSTM for so many robots."""
    loaded = torch.jit.load(POLICY, map_location="cpu")
    for name in ("hidden_state", "cell_state"):
        setattr(loaded, name, getattr(loaded, name)[:, :1].repeat(1, rows, 1))
    return loaded


def summary(positions, heights, falls, step):
    """Of positions along x ``(time, robots)``: mean speed, its rms error by gait period; and the mean height."""
    first, period = int(BEGIN / step), int(PERIOD / step)
    at = positions[first::period]
    speeds = (at[1:] - at[:-1]) / PERIOD
    rms = float(np.sqrt(np.mean(np.square(speeds - SPEED))))
    height = float(heights[first:].mean())
    return {"speed": round(float(speeds.mean()), 3), "rms": round(rms, 3), "height": round(height, 4), "falls": falls}


def without_rsl_rl():
    """legged_gym's registry imports the trainer, which walking does not need."""
    for name, attribute in (("rsl_rl", ""), ("rsl_rl.env", "VecEnv"), ("rsl_rl.runners", "OnPolicyRunner")):
        module = sys.modules.setdefault(name, ModuleType(name))
        if attribute:
            setattr(module, attribute, type(attribute, (), {}))


def on_isaacgym():
    """Walk in the repository's environment."""
    without_rsl_rl()
    import isaacgym  # noqa: F401
    from legged_gym.envs import task_registry  # type: ignore[import-not-found]

    sys.argv = [sys.argv[0], f"--task={ROBOT}", "--headless", "--sim_device=cpu", "--rl_device=cpu"]
    cfg, _ = task_registry.get_cfgs(ROBOT)
    cfg.env.num_envs = NUM_ENVS
    cfg.terrain.curriculum = cfg.noise.add_noise = cfg.commands.heading_command = False
    cfg.domain_rand.randomize_friction = cfg.domain_rand.randomize_base_mass = cfg.domain_rand.push_robots = False
    ranges = cfg.commands.ranges
    ranges.lin_vel_x, ranges.lin_vel_y, ranges.ang_vel_yaw = [SPEED, SPEED], [0.0, 0.0], [0.0, 0.0]
    env, _ = task_registry.make_env(ROBOT, env_cfg=cfg)
    act, (obs, _) = policy(NUM_ENVS), env.reset()
    steps = int(SECONDS / env.dt)
    positions, heights, fallen = np.zeros((steps, NUM_ENVS)), np.zeros((steps, NUM_ENVS)), torch.zeros(NUM_ENVS).bool()
    with torch.no_grad():
        for k in range(steps):
            obs, _, _, ended, _ = env.step(act(obs.detach()))
            fallen |= ended.bool()
            positions[k], heights[k] = env.root_states[:, 0].numpy(), env.root_states[:, 2].numpy()
    up = ~fallen.numpy()
    return summary(positions[:, up], heights[:, up], int(fallen.sum()), env.dt)


def on_mujoco():
    """Walk as deploy_mujoco.py does: its models, gains, observations, 2 ms and 20 ms steps."""
    config = yaml.safe_load((CHECKOUT / "deploy" / "deploy_mujoco" / "configs" / f"{ROBOT}.yaml").read_text())
    model = mujoco.MjModel.from_xml_path(config["xml_path"].format(LEGGED_GYM_ROOT_DIR=CHECKOUT))
    model.opt.timestep = config["simulation_dt"]
    data, act = mujoco.MjData(model), policy(1)
    default, stiffness, damping = (np.array(config[key]) for key in ("default_angles", "kps", "kds"))
    action, command = np.zeros(len(default)), np.array([SPEED, 0.0, 0.0]) * config["cmd_scale"]
    decimation = config["control_decimation"]
    step = config["simulation_dt"] * decimation
    positions, heights = [], []
    for k in range(int(SECONDS / step)):
        for _ in range(decimation):
            target = action * config["action_scale"] + default
            data.ctrl[:] = (target - data.qpos[7:]) * stiffness - data.qvel[6:] * damping
            mujoco.mj_step(model, data)
        gravity = np.zeros(3)
        mujoco.mju_rotVecQuat(gravity, np.array([0.0, 0.0, -1.0]), data.qpos[3:7] * [1, -1, -1, -1])
        phase = 2.0 * np.pi * ((k + 1) * step % PERIOD) / PERIOD
        joints = (data.qpos[7:] - default) * config["dof_pos_scale"], data.qvel[6:] * config["dof_vel_scale"]
        clock = [np.sin(phase), np.cos(phase)]
        obs = np.concatenate([data.qvel[3:6] * config["ang_vel_scale"], gravity, command, *joints, action, clock])
        with torch.no_grad():
            action = act(torch.from_numpy(obs).float().unsqueeze(0)).numpy().squeeze().astype(float)
        positions.append(data.qpos[0])
        heights.append(data.qpos[2])
    falls = int(min(heights) < 0.5 * max(heights))
    return summary(np.array(positions)[:, None], np.array(heights)[:, None], falls, step)


torch.manual_seed(0)
torch.set_num_threads(1)
print(json.dumps({"isaacgym": on_isaacgym(), "mujoco": on_mujoco()}))
