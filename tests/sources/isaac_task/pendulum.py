"""A pendulum in the style of IsaacGymEnvs: it resets before it observes, and draws with ``torch.rand``."""

from collections import deque
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from isaacgym import gymapi, gymtorch
from vec_task import VecTask


class Rod(VecTask):
    """One joint that is to point at a target."""

    def __init__(self, cfg, rl_device, sim_device, graphics_device_id, headless):
        cfg["env"]["numObservations"], cfg["env"]["numActions"] = 4, 1
        self.max_effort = cfg["env"]["maxEffort"]
        self.drive = cfg["env"].get("drive", "effort")
        self.randomize = cfg.get("task", {}).get("randomize", False)
        super().__init__(cfg, rl_device, sim_device, graphics_device_id, headless)
        dofs = self.gym.acquire_dof_state_tensor(self.sim)
        self.dof_state = gymtorch.wrap_tensor(dofs)
        self.dof_pos = self.dof_state.view(self.num_envs, 1, 2)[..., 0]
        self.dof_vel = self.dof_state.view(self.num_envs, 1, 2)[..., 1]
        self.commands = torch.zeros(self.num_envs, 1, device=self.device)
        self.last_angle = torch.zeros(self.num_envs, device=self.device)
        self.weights = [1.0, 0.1]

    def _create_envs(self):
        options = gymapi.AssetOptions()
        options.fix_base_link = True
        asset = self.gym.load_asset(self.sim, str(Path(__file__).parent), self.cfg["env"]["asset"], options)
        properties = self.gym.get_asset_dof_properties(asset)
        if self.drive == "position":
            properties["driveMode"].fill(gymapi.DOF_MODE_POS)
            properties["stiffness"].fill(40.0)
            properties["damping"].fill(2.0)
        else:
            properties["driveMode"].fill(gymapi.DOF_MODE_EFFORT)
        ball = self.gym.create_sphere(self.sim, 0.1, gymapi.AssetOptions()) if self.cfg["env"].get("ball") else None
        self.actors = 1 if ball is None else 2
        self.envs = []
        for k in range(self.num_envs):
            env = self.gym.create_env(self.sim, gymapi.Vec3(-1, -1, 0), gymapi.Vec3(1, 1, 2), 4)
            actor = self.gym.create_actor(env, asset, gymapi.Transform(), "pendulum", k, 1, 0)
            self.gym.set_actor_dof_properties(env, actor, properties)
            if ball is not None:
                self.gym.create_actor(env, ball, gymapi.Transform(gymapi.Vec3(5, 0, 0.1)), "ball", k, 0, 0)
            self.envs.append(env)
        if self.randomize:
            self.apply_randomizations(self.cfg["task"]["randomization_params"])

    def pre_physics_step(self, actions):
        self.actions = actions.clone()
        if self.drive == "position":
            self.gym.set_dof_position_target_tensor(self.sim, gymtorch.unwrap_tensor(self.actions))
        else:
            efforts = gymtorch.unwrap_tensor(self.actions * self.max_effort)
            self.gym.set_dof_actuation_force_tensor(self.sim, efforts)

    def post_physics_step(self):
        self.progress_buf += 1
        env_ids = self.reset_buf.nonzero(as_tuple=False).squeeze(-1)
        if len(env_ids) > 0:
            self.reset_idx(env_ids)
        self.compute_observations()
        self.compute_reward()

    def compute_observations(self):
        self.gym.refresh_dof_state_tensor(self.sim)
        self.last_angle = self.obs_buf[:, 2].clone()  # another tensor each time, as many tasks have it
        angle = self.dof_pos[:, 0]
        rows = (torch.sin(angle), torch.cos(angle), angle, self.commands[:, 0])
        self.obs_buf = torch.stack(rows, dim=-1)

    def compute_reward(self):
        angle = self.dof_pos[:, 0]
        self.rew_buf[:] = self.weights[0] * torch.cos(angle - self.commands[:, 0])
        self.rew_buf[:] -= self.weights[1] * self.actions[:, 0] ** 2
        late = self.progress_buf >= self.max_episode_length - 1
        fast = self.dof_vel[:, 0].abs() > 10.0
        self.reset_buf[:] = torch.where(late | fast, torch.ones_like(self.reset_buf), self.reset_buf)

    def reset_idx(self, env_ids):
        if self.randomize:
            self.apply_randomizations(self.cfg["task"]["randomization_params"])
        self.dof_pos[env_ids] = 0.5 * (torch.rand((len(env_ids), 1), device=self.device) - 0.5)
        self.dof_vel[env_ids] = 0.0
        indices = (self.actors * env_ids).to(dtype=torch.int32)
        state = gymtorch.unwrap_tensor(self.dof_state)
        self.gym.set_dof_state_tensor_indexed(self.sim, state, gymtorch.unwrap_tensor(indices), len(indices))
        self.commands[env_ids, 0] = torch.from_numpy(np.random.uniform(-1.0, 1.0, len(env_ids))).float()
        self.last_angle[env_ids] = 0.0
        self.progress_buf[env_ids] = 0
        self.reset_buf[env_ids] = 0


class Spun(Rod):
    """Resets with torch's random functions alone."""

    def reset_idx(self, env_ids):
        self.dof_pos[env_ids] = 0.5 * (torch.rand((len(env_ids), 1), device=self.device) - 0.5)
        self.dof_vel[env_ids] = torch.rand((len(env_ids), 1), device=self.device).clamp(max=0.7)
        indices = (self.actors * env_ids).to(dtype=torch.int32)
        state = gymtorch.unwrap_tensor(self.dof_state)
        self.gym.set_dof_state_tensor_indexed(self.sim, state, gymtorch.unwrap_tensor(indices), len(indices))
        if len(env_ids) > self.mixes:
            self.commands[env_ids, 0] = torch.exp(self.dof_vel[env_ids, 0])
        self.progress_buf[env_ids] = 0
        self.reset_buf[env_ids] = 0

    mixes = 1000


class Coupled(Rod):
    """What no group may do: its reward knows the mean over all environments."""

    def compute_reward(self):
        super().compute_reward()
        self.rew_buf[:] -= self.rew_buf.mean()


class Pushed(Rod):
    """Pushes some rods at random, as ShadowHand does its object."""

    def pre_physics_step(self, actions):
        if not hasattr(self, "push"):
            self.push = torch.zeros(self.num_envs, 1, device=self.device)
        found = (torch.rand(self.num_envs, device=self.device) < 0.3).nonzero()
        self.push[found] = torch.randn(self.push[found].shape, device=self.device)
        super().pre_physics_step(actions + self.push)


class Apart(Rod):
    """Draws again until a number is large enough, as FrankaCubeStack does with places of its cubes."""

    def reset_idx(self, env_ids):
        super().reset_idx(env_ids)
        drawn, active = torch.zeros(len(env_ids), 1), torch.arange(len(env_ids))
        while len(active):
            drawn[active] = torch.rand_like(drawn[active])
            active = (drawn[:, 0] < 0.7).nonzero().squeeze(-1)
        if not hasattr(self, "drawn"):
            self.drawn = torch.zeros(self.num_envs)
        self.drawn[env_ids] = drawn[:, 0]


class Own(Rod):
    """Randomizes in its own way."""

    def apply_randomizations(self, dr_params, more):
        super().apply_randomizations(dr_params)


class Shared(Rod):
    """Keeps the state of an instance in an attribute of its class, as Trifinger does."""

    history: ClassVar[deque] = deque(maxlen=1)

    def compute_observations(self):
        super().compute_observations()
        if not self.history:
            self.history.append(torch.zeros_like(self.obs_buf))
        self.history[0][:] = self.obs_buf


class Broken(Rod):
    """Calls what no Isaac Gym has."""

    def _create_envs(self):
        super()._create_envs()
        self.gym.make_coffee(self.sim)


class Differentiable(Rod):
    """Its reward requires a gradient, as rewards of TorchScript can, and is written in place."""

    def compute_reward(self):
        super().compute_reward()
        self.rew_buf[:] = torch.ones(1, requires_grad=True) * self.rew_buf


class Privileged(Rod):
    """Has asymmetric observations: its states, which the policy does not see, are angle and velocity."""

    def __init__(self, cfg, rl_device, sim_device, graphics_device_id, headless):
        super().__init__(cfg, rl_device, sim_device, graphics_device_id, headless)
        self.states_buf = torch.zeros(self.num_envs, 2, device=self.device)

    def compute_observations(self):
        super().compute_observations()
        self.states_buf = torch.cat((self.dof_pos, self.dof_vel), dim=-1)
