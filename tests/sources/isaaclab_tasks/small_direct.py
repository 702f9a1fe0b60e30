"""A fork's package with environment classes of its own, ``DirectRLEnv``: the box with four legs."""

import isaaclab.envs.mdp as mdp
import lab_configs
import torch
from isaaclab.envs import DirectRLEnv, DirectRLEnvCfg
from isaaclab.managers import EventTermCfg as EventTerm
from isaaclab.managers import SceneEntityCfg
from isaaclab.utils import configclass
from isaaclab.utils.math import sample_uniform
from isaaclab.utils.noise import GaussianNoiseCfg, NoiseModelCfg, NoiseModelWithAdditiveBiasCfg
from lab_robots import STANDING
from small_lab import register


class Legs(DirectRLEnv):
    """It keeps the last actions, and its reset computes numbers of all environments, as classes of Isaac Lab do."""

    def __init__(self, cfg, render_mode=None, **kwargs):
        super().__init__(cfg, render_mode, **kwargs)
        self.robot, self.sensor = self.scene["robot"], self.scene["contact_forces"]
        self.last_actions, self.phase = torch.zeros_like(self.actions), torch.rand(self.num_envs)

    def _pre_physics_step(self, actions):
        self.last_actions, self.actions = self.actions, actions.clone()

    def _apply_action(self):
        self.robot.set_joint_position_target(self.robot.data.default_joint_pos + 0.25 * self.actions)

    def _compute_intermediate_values(self):
        self.height, self.up = self.robot.data.root_pos_w[:, 2], self.robot.data.projected_gravity_b[:, 2]
        self.forces = self.sensor.data.net_forces_w[..., 2].sum(dim=1)

    def _get_dones(self):
        self._compute_intermediate_values()
        return self.height < 0.3, self.episode_length_buf >= self.max_episode_length - 1

    def _get_rewards(self):
        rate = (self.actions - self.last_actions).square().sum(dim=1)
        return self.height - self.up + 0.01 * self.forces - 0.1 * rate - self.reset_terminated.float()

    def _get_observations(self):
        data = self.robot.data
        parts = [data.projected_gravity_b, data.joint_pos, data.joint_vel, self.actions, self.phase.unsqueeze(1)]
        return {"policy": torch.cat(parts, dim=1), "critic": torch.stack([self.height, self.forces, self.up], dim=1)}

    def _reset_idx(self, env_ids):
        super()._reset_idx(env_ids)
        if self.cfg.draws and len(env_ids) == self.num_envs:  # as Isaac Lab's AnymalCEnv
            self.episode_length_buf[:] = torch.randint_like(self.episode_length_buf, high=20)
        joints = self.robot.data.default_joint_pos[env_ids].clone()
        if self.cfg.draws:
            joints += sample_uniform(-0.3, 0.3, joints.shape, joints.device)
            self.phase[env_ids] = torch.rand(len(env_ids))
        self.robot.write_joint_state_to_sim(joints, torch.zeros_like(joints), None, env_ids)
        root = self.robot.data.default_root_state[env_ids].clone()
        root[:, :3] += self.scene.env_origins[env_ids]
        self.robot.write_root_state_to_sim(root, env_ids)
        self.last_actions[env_ids] = 0.0
        self._compute_intermediate_values()


@configclass
class Events:
    mass = EventTerm(func=mdp.randomize_rigid_body_mass, mode="startup", params={
        "asset_cfg": SceneEntityCfg("robot", body_names="base"), "mass_distribution_params": (-0.5, 1.0),
        "operation": "add",
    })  # fmt: skip
    com = EventTerm(func=mdp.randomize_rigid_body_com, mode="startup", params={
        "asset_cfg": SceneEntityCfg("robot", body_names="base"), "com_range": {"x": (-0.05, 0.05)},
    })  # fmt: skip
    push = EventTerm(func=mdp.push_by_setting_velocity, mode="interval", interval_range_s=(0.1, 0.3), params={
        "velocity_range": {"x": (-0.5, 0.5), "y": (-0.5, 0.5)},
    })  # fmt: skip


@configclass
class PlainCfg(DirectRLEnvCfg):
    decimation, episode_length_s, action_space, observation_space, state_space, draws = 4, 0.6, 8, 28, 3, False
    scene: lab_configs.LeggedScene = lab_configs.LeggedScene(num_envs=2, env_spacing=3.0)

    def __post_init__(self):
        self.sim.dt, self.sim.physics_material = 0.005, self.scene.terrain.physics_material
        self.scene.robot.init_state.pos = (0.0, 0.0, STANDING + 0.02)


@configclass
class DrawingCfg(PlainCfg):
    events: Events = Events()
    action_noise_model = NoiseModelCfg(noise_cfg=GaussianNoiseCfg(mean=0.0, std=0.05, operation="add"))
    observation_noise_model = NoiseModelWithAdditiveBiasCfg(
        noise_cfg=GaussianNoiseCfg(mean=0.0, std=0.01, operation="add"),
        bias_noise_cfg=GaussianNoiseCfg(mean=0.0, std=0.1, operation="abs"),
    )

    def __post_init__(self):
        super().__post_init__()
        self.draws = True


register("Small-Plain-v0", PlainCfg, Legs)
register("Small-Drawing-v0", DrawingCfg, Legs)
