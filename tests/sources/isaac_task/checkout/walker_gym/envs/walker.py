"""A LeggedRobot with one joint and what forks add: a history, delays, cameras, random centres of mass."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from isaacgym import gymapi, gymtorch
from isaacgym.torch_utils import torch_rand_float, torch_rand_sign

ASSET = Path(__file__).parents[3] / "pendulum.urdf"


class WalkerCfg:
    def __init__(self):
        self.seed = 1
        self.env = SimpleNamespace(num_envs=8, num_actions=1, episode_length_s=2.0)
        self.terrain = SimpleNamespace(measure_heights=True)  # and no method that does
        self.init_state = SimpleNamespace(spread=np.array([0.5, 0.25]), signs=(1, -1))
        self.asset = SimpleNamespace(file=str(ASSET))
        self.normalization = SimpleNamespace(clip_actions=1.0, clip_observations=100.0)
        self.sim = SimpleNamespace(dt=0.02, substeps=1, up_axis=1, gravity=[0.0, 0.0, -9.81])


class BaseTask:
    pass


class Walker(BaseTask):
    def __init__(self, cfg, sim_params, physics_engine, sim_device, headless):
        self.cfg, self.sim_params, self.device, self.headless = cfg, sim_params, sim_device, headless
        self.num_envs, self.num_actions = cfg.env.num_envs, cfg.env.num_actions
        self.dt = sim_params.dt
        self.max_episode_length = int(cfg.env.episode_length_s / self.dt)
        self.gym = gymapi.acquire_gym()
        self.sim = self.gym.create_sim(0, -1, physics_engine, sim_params)
        self.gym.add_ground(self.sim, gymapi.PlaneParams())
        self._create_envs()
        self.gym.prepare_sim(self.sim)
        n = self.num_envs
        self.root_states = gymtorch.wrap_tensor(self.gym.acquire_actor_root_state_tensor(self.sim))
        self.dof_state = gymtorch.wrap_tensor(self.gym.acquire_dof_state_tensor(self.sim))
        self.dof_pos, self.dof_vel = self.dof_state.view(n, 1, 2)[..., 0], self.dof_state.view(n, 1, 2)[..., 1]
        self.commands = torch.zeros(n, 3)
        self.actions, self.torques = torch.zeros(n, 1), torch.zeros(n, 1)
        self.rew_buf, self.reset_buf = torch.zeros(n), torch.ones(n, dtype=torch.long)
        self.time_out_buf = torch.zeros(n, dtype=torch.bool)
        self.episode_length_buf = torch.zeros(n, dtype=torch.long)
        self.history = deque([torch.zeros(n, 2) for _ in range(3)], maxlen=3)
        self.obs_buf = torch.zeros(n, 6)

    def _create_envs(self):
        options = gymapi.AssetOptions()
        options.fix_base_link = True
        asset = self.gym.load_asset(self.sim, str(ASSET.parent), ASSET.name, options)
        properties = self.gym.get_asset_dof_properties(asset)
        self.envs = []
        for k in range(self.num_envs):
            env = self.gym.create_env(self.sim, gymapi.Vec3(-1, -1, 0), gymapi.Vec3(1, 1, 2), 4)
            actor = self.gym.create_actor(env, asset, gymapi.Transform(), "walker", k, 1, 0)
            properties["damping"].fill(0.1 + np.random.uniform())
            self.gym.set_actor_dof_properties(env, actor, properties)
            bodies = self.gym.get_actor_rigid_body_properties(env, actor)
            bodies[1].com += gymapi.Vec3(*np.random.uniform([-0.1, -0.1, -0.1], [0.1, 0.1, 0.1], size=(3,)))
            self.gym.set_actor_rigid_body_properties(env, actor, bodies, recomputeInertia=False)
            self.envs.append(env)
        self.camera = self.gym.create_camera_sensor(self.envs[0], gymapi.CameraProperties())  # also without graphics

    def step(self, actions):
        delay = torch.rand((self.num_envs, 1))  # a draw in step itself
        actions = (1 - delay) * actions + delay * self.actions
        self.actions = torch.clip(actions, -1.0, 1.0)
        self.torques = self._compute_torques(self.actions)
        self.gym.set_dof_actuation_force_tensor(self.sim, gymtorch.unwrap_tensor(self.torques))
        self.gym.simulate(self.sim)
        self.gym.refresh_dof_state_tensor(self.sim)
        self.post_physics_step()
        return self.obs_buf, None, self.rew_buf, self.reset_buf, {}

    def _compute_torques(self, actions):
        return 5.0 * actions

    def post_physics_step(self):
        self.gym.refresh_actor_root_state_tensor(self.sim)
        self.episode_length_buf += 1
        self.reset_buf = (self.dof_vel[:, 0].abs() > 40.0).long()
        self.time_out_buf = self.episode_length_buf > self.max_episode_length
        self.reset_buf |= self.time_out_buf.long()
        self.rew_buf = torch.cos(self.dof_pos[:, 0])
        self.reset_idx(self.reset_buf.nonzero().flatten())
        self.compute_observations()

    def reset_idx(self, env_ids):
        if len(env_ids) == 0:
            return
        low, high = -self.cfg.init_state.spread, self.cfg.init_state.spread - 0.0  # arrays, as the config has them
        drawn = torch_rand_float(float(low[0]), float(high[0]), (len(env_ids), 1), self.device)
        self.dof_pos[env_ids] = drawn * torch_rand_sign((len(env_ids), 1), self.device)
        self.dof_vel[env_ids] = 0.0
        ids = env_ids.to(torch.int32)
        state = gymtorch.unwrap_tensor(self.dof_state)
        self.gym.set_dof_state_tensor_indexed(self.sim, state, gymtorch.unwrap_tensor(ids), len(ids))
        for frame in self.history:
            frame[env_ids] = 0.0
        self.actions[env_ids] = 0.0
        self.episode_length_buf[env_ids] = 0
        self.reset_buf[env_ids] = 1

    def compute_observations(self):
        self.history.append(torch.cat((self.dof_pos, self.dof_vel), dim=1))
        self.obs_buf = torch.cat(list(self.history), dim=1)


class Settler(Walker):
    """Simulates in its reset, which advances every environment."""

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        if len(env_ids):
            self.gym.simulate(self.sim)


class Courser(Walker):
    """Has an end of a course, which is a time-out; divides ``step``, and unpacks what ``post_physics_step`` returns."""

    def _create_envs(self):
        super()._create_envs()
        self.strength = torch_rand_float(0.5, 1.5, (self.num_envs, 1), self.device)  # after draws in a loop
        self.walked, self.levels = (torch.zeros(self.num_envs, dtype=torch.long) for _ in range(2))
        self.course = torch.where(torch.arange(self.num_envs) % 2 == 0, 6, 1000)

    def step(self, actions):
        self.pre_physics_step(actions)
        self.gym.set_dof_actuation_force_tensor(self.sim, gymtorch.unwrap_tensor(self.torques))
        self.gym.simulate(self.sim)
        self.gym.refresh_dof_state_tensor(self.sim)
        ended, noted = self.post_physics_step()
        self.obs_buf = torch.clip(self.obs_buf, -0.5, 0.5)
        return self.obs_buf, None, self.rew_buf, self.reset_buf, {"ended": ended, "noted": noted}

    def pre_physics_step(self, actions):
        self.actions = torch.clip(actions, -1.0, 1.0)
        self.torques = self._compute_torques(self.actions)

    def post_physics_step(self):
        self.gym.refresh_actor_root_state_tensor(self.sim)
        self.episode_length_buf += 1
        self.walked += 1
        self.reset_buf = self.walked < 0
        self.time_out_buf = (self.episode_length_buf > self.max_episode_length) | (self.walked >= self.course)
        self.reset_buf |= self.time_out_buf
        self.rew_buf = torch.cos(self.dof_pos[:, 0])
        ended = self.reset_buf.nonzero().flatten()
        self.reset_idx(ended)
        self.compute_observations()
        return ended, self.time_out_buf[ended]

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        self.levels[env_ids] += self.time_out_buf[env_ids]
        self.walked[env_ids] = 0
        drawn = torch.rand(len(env_ids), 2)
        for (drag, share), k in zip(drawn.tolist(), env_ids.tolist()):  # a new damping and mass in every episode
            properties = self.gym.get_actor_dof_properties(self.envs[k], 0)
            properties["damping"].fill(0.1 + drag)
            self.gym.set_actor_dof_properties(self.envs[k], 0, properties)
            bodies = self.gym.get_actor_rigid_body_properties(self.envs[k], 0)
            bodies[1].mass = 1.0 + share
            self.gym.set_actor_rigid_body_properties(self.envs[k], 0, bodies, recomputeInertia=True)


class Keeper(Walker):
    """Only ever sets ``time_out_buf``, at the end of a course, and never clears it."""

    def _create_envs(self):
        super()._create_envs()
        self.walked = torch.zeros(self.num_envs, dtype=torch.long)
        self.course = torch.where(torch.arange(self.num_envs) % 2 == 0, 6, 1000)

    def post_physics_step(self):
        self.episode_length_buf += 1
        self.walked += 1
        self.time_out_buf |= (self.walked >= self.course) | (self.episode_length_buf > self.max_episode_length)
        self.reset_buf = (self.dof_vel[:, 0].abs() > 40.0).long() | self.time_out_buf
        self.rew_buf = torch.cos(self.dof_pos[:, 0])
        self.reset_idx(self.reset_buf.nonzero().flatten())
        self.compute_observations()

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        self.walked[env_ids] = 0


class Sharer(Walker):
    """Commands speed in the first half of all environments, whatever groups they belong to."""

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        self.commands[env_ids, 0] = (env_ids < 0.5 * self.num_envs).float()


class Stepper(Walker):
    """Replaces a tensor of positions by one of heights in its first step."""

    def _create_envs(self):
        super()._create_envs()
        self.heights = torch.zeros(self.num_envs, 2, 3)

    def post_physics_step(self):
        super().post_physics_step()
        self.heights = torch.cat((self.dof_pos, self.dof_pos + 1.0), dim=1)


class Weigher(Walker):
    """Has the reward of legged_gym: functions with scales, sums of episodes, a clip, and a term of the end after it."""

    def _create_envs(self):
        super()._create_envs()
        self.reward_scales = {"upright": 0.3, "speed": -0.02, "termination": -2.0}
        self.reward_names = ["upright", "speed"]
        self.reward_functions = [self._reward_upright, self._reward_speed]
        self.episode_sums = {name: torch.zeros(self.num_envs) for name in self.reward_scales}

    def _reward_upright(self):
        return torch.cos(self.dof_pos[:, 0])

    def _reward_speed(self):
        return torch.square(self.dof_vel[:, 0])

    def _reward_termination(self):
        return self.reset_buf * ~self.time_out_buf

    def post_physics_step(self):
        super().post_physics_step()
        self.rew_buf[:] = 0.0
        for name, function in zip(self.reward_names, self.reward_functions):
            term = function() * self.reward_scales[name]
            self.rew_buf += term
            self.episode_sums[name] += term
        self.rew_buf[:] = torch.clip(self.rew_buf, min=0.0)
        term = self._reward_termination() * self.reward_scales["termination"]
        self.rew_buf += term
        self.episode_sums["termination"] += term


class Summer(Walker):
    """Has the reward of AnymalTerrain: one expression, whose terms are added to sums of episodes."""

    def _create_envs(self):
        super()._create_envs()
        self.rew_scales = {"upright": 0.3, "speed": -0.02}
        self.episode_sums = {name: torch.full((self.num_envs,), 7.3) for name in self.rew_scales}

    def post_physics_step(self):
        super().post_physics_step()
        upright = torch.cos(self.dof_pos[:, 0]) * self.rew_scales["upright"]
        speed = torch.square(self.dof_vel[:, 0]) * self.rew_scales["speed"]
        self.rew_buf = upright + speed
        self.episode_sums["upright"] += upright
        self.episode_sums["speed"] += speed


class Tracker(Walker):
    """Has the order of legged_gym's step: end, reward, observation, and only then the last velocities and a push."""

    def _create_envs(self):
        super()._create_envs()
        self.last_dof_vel, self.scan = (torch.zeros(self.num_envs, 1) for _ in range(2))
        self.air_time = torch.zeros(self.num_envs)

    def post_physics_step(self):
        self.gym.refresh_actor_root_state_tensor(self.sim)
        self.episode_length_buf += 1
        self.reset_buf = (self.dof_pos[:, 0].abs() > 0.6).long()
        self.time_out_buf = self.episode_length_buf > self.max_episode_length
        self.reset_buf |= self.time_out_buf.long()
        self.compute_reward()
        self.reset_idx(self.reset_buf.nonzero().flatten())
        self.compute_observations()
        self.last_dof_vel = self.dof_vel.clone()
        self.torques[:] = -1.0

    def compute_reward(self):
        self.rew_buf[:] = torch.square(self.last_dof_vel - self.dof_vel).sum(dim=1) + self.air_time + self.torques[:, 0]
        self.air_time += self.dt

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        if len(env_ids):
            self.last_dof_vel[env_ids], self.air_time[env_ids] = 0.0, 0.0

    def compute_observations(self):
        self.scan = self.dof_pos + 1.0
        self.obs_buf = torch.cat((self.last_dof_vel, self.scan, self.air_time.unsqueeze(1), self.dof_vel), dim=1)
