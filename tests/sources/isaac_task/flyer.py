"""Tasks whose ``step`` does more than VecTask's: a flying body without joints, and a rod with a controller."""

from pathlib import Path

import torch
from isaacgym import gymapi, gymtorch
from pendulum import Rod
from vec_task import VecTask


class Flyer(VecTask):
    """Computes its reward in ``step``, and simulates four times."""

    def __init__(self, cfg, rl_device, sim_device, graphics_device_id, headless):
        cfg["env"]["numObservations"], cfg["env"]["numActions"] = 13, 1
        super().__init__(cfg, rl_device, sim_device, graphics_device_id, headless)
        self.root_states = gymtorch.wrap_tensor(self.gym.acquire_actor_root_state_tensor(self.sim))
        self.forces = torch.zeros(self.num_envs, 1, 3)
        del self.clip_obs, self.clip_actions  # not every base class has them

    def _create_envs(self):
        asset = self.gym.load_asset(self.sim, str(Path(__file__).parent), "flyer.urdf", gymapi.AssetOptions())
        self.envs = []
        for k in range(self.num_envs):
            env = self.gym.create_env(self.sim, gymapi.Vec3(-1, -1, 0), gymapi.Vec3(1, 1, 2), 4)
            self.gym.create_actor(env, asset, gymapi.Transform(gymapi.Vec3(0, 0, 5)), "flyer", k, 1, 0)
            self.envs.append(env)

    def step(self, actions):
        for _ in range(4):
            self.pre_physics_step(actions)
            self.gym.simulate(self.sim)
            self.post_physics_step()
        self.progress_buf += 1
        self.compute_observations()
        self.compute_reward()
        env_ids = self.reset_buf.nonzero().flatten()
        if len(env_ids):
            self.reset_idx(env_ids)
        return self.obs_buf, self.rew_buf, self.reset_buf, {}

    def pre_physics_step(self, actions):
        self.forces[:, 0, 2] = 2.0 * 9.81 * (1.0 + actions[:, 0])
        forces = gymtorch.unwrap_tensor(self.forces)
        self.gym.apply_rigid_body_force_tensors(self.sim, forces, None, gymapi.ENV_SPACE)

    def post_physics_step(self):
        self.gym.refresh_actor_root_state_tensor(self.sim)

    def compute_observations(self):
        self.obs_buf[:] = self.root_states

    def compute_reward(self):
        self.rew_buf[:] = self.root_states[:, 2]
        self.reset_buf[:] = (self.progress_buf >= self.max_episode_length - 1).long()

    def reset_idx(self, env_ids):
        self.root_states[env_ids] = 0.0
        self.root_states[env_ids, 2] = 5.0
        self.root_states[env_ids, 6] = 1.0
        self.gym.set_actor_root_state_tensor(self.sim, gymtorch.unwrap_tensor(self.root_states))
        self.progress_buf[env_ids] = 0
        self.reset_buf[env_ids] = 1


class Dropped(Flyer):
    """Simulates in its reset."""

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        self.gym.simulate(self.sim)


class Controlled(Rod):
    """Holds an angle by a controller that ``step`` calls between the simulation steps."""

    def step(self, actions):
        self.pre_physics_step(actions)
        for _ in range(3):
            self.hold()
            self.gym.simulate(self.sim)
        self.post_physics_step()
        return self.obs_buf, self.rew_buf, self.reset_buf, {}

    def pre_physics_step(self, actions):
        self.actions = actions.clone()

    def hold(self):
        self.gym.refresh_dof_state_tensor(self.sim)
        torques = 200.0 * (self.actions - self.dof_pos) - 20.0 * self.dof_vel
        self.gym.set_dof_actuation_force_tensor(self.sim, gymtorch.unwrap_tensor(torques))
