"""A fork's package with an environment class in LeggedLab's words: it steps, resets and observes by itself."""

import isaaclab.envs.mdp as mdp
import isaacsim.core.utils.torch as torch_utils
import lab_configs
import small_lab
import torch
from isaaclab.envs.mdp import UniformVelocityCommand
from isaaclab.managers import EventManager, RewardManager, SceneEntityCfg
from isaaclab.managers import EventTermCfg as EventTerm
from isaaclab.managers import RewardTermCfg as RewTerm
from isaaclab.scene import InteractiveScene
from isaaclab.sim import SimulationCfg, SimulationContext
from isaaclab.terrains import HfRandomUniformTerrainCfg, TerrainGeneratorCfg
from isaaclab.utils import configclass
from isaaclab.utils.buffers import CircularBuffer, DelayBuffer
from lab_robots import STANDING


def follow(env):
    """How closely the body moves as it is told, which reads the class's own generator."""
    error = env.command_generator.command[:, :2] - env.robot.data.root_lin_vel_b[:, :2]
    return torch.exp(-4.0 * error.square().sum(dim=1))


def rate(env):
    frames = env.action_buffer._circular_buffer.buffer
    return (frames[:, -1] - frames[:, -2]).square().sum(dim=1)


def ended(env):
    return env.reset_buf * ~env.time_out_buf


@configclass
class Rewards:
    follow = RewTerm(func=follow, weight=1.0)
    rate = RewTerm(func=rate, weight=-0.1)
    smooth = RewTerm(func=small_lab.Smooth, weight=-0.5)
    ended = RewTerm(func=ended, weight=-2.0)


@configclass
class Scene:
    num_envs, env_spacing, seed = 4, 2.0, 0


@configclass
class Simulation:
    dt, decimation = 0.005, 4


@configclass
class Events(small_lab.Events):
    shove = EventTerm(func=mdp.push_by_setting_velocity, mode="interval", interval_range_s=(0.1, 0.4), params={
        "velocity_range": {"yaw": (-0.5, 0.5)},
    })  # fmt: skip


@configclass
class Randomization:
    events: Events = Events()


@configclass
class OwnCfg:
    device: str = "cuda:0"
    noise: float = 0.1
    scene: Scene = Scene()
    sim: Simulation = Simulation()
    reward: Rewards = Rewards()
    domain_rand: Randomization = Randomization()
    commands: small_lab.Commands = small_lab.Commands()


@configclass
class PlainCfg(OwnCfg):
    """Without random numbers: the class itself can be compared step by step."""

    def __post_init__(self):
        self.noise, events, told = 0.0, self.domain_rand.events, self.commands.base_velocity
        for name in ("material", "mass", "gains", "force", "push", "shove"):
            setattr(events, name, None)
        for term in (events.place, events.joints):
            term.params = {key: {} if isinstance(x, dict) else (0.0, 0.0) for key, x in term.params.items()}
        told.rel_standing_envs, told.rel_heading_envs = 0.0, 1.0
        told.ranges = type(told.ranges)(
            lin_vel_x=(0.5, 0.5), lin_vel_y=(0.0, 0.0), ang_vel_z=(0.0, 0.0), heading=(1.0, 1.0)
        )


class Own:
    """Legs on bumps; the farther they walk, the higher the bumps of their next episode."""

    def __init__(self, cfg, headless):
        self.cfg, self.device, self.num_envs = cfg, cfg.device, cfg.scene.num_envs
        self.step_dt, self.max_episode_length, self.max_episode_length_s = 0.02, 30.0, 0.6
        torch_utils.set_seed(cfg.scene.seed)
        self.sim = SimulationContext(SimulationCfg(device=cfg.device, dt=cfg.sim.dt))
        scene = lab_configs.LeggedScene(num_envs=self.num_envs, env_spacing=cfg.scene.env_spacing)
        scene.terrain.terrain_type, scene.terrain.max_init_terrain_level = "generator", 1
        scene.terrain.terrain_generator = TerrainGeneratorCfg(
            size=(4.0, 4.0), num_rows=3, num_cols=2, curriculum=True, sub_terrains={
                "bumps": HfRandomUniformTerrainCfg(noise_range=(0.0, 0.02), noise_step=0.01, border_width=0.5)
            })  # fmt: skip
        scene.robot.init_state.pos = (0.0, 0.0, STANDING + 0.04)
        self.scene = InteractiveScene(scene)
        self.sim.reset()
        self.robot, self.contacts = self.scene["robot"], self.scene.sensors["contact_forces"]
        self.base = SceneEntityCfg("contact_forces", body_names="base")
        self.base.resolve(self.scene)
        self.command_generator = UniformVelocityCommand(cfg.commands.base_velocity, self)
        self.reward_manager = RewardManager(cfg.reward, self)
        self.num_actions, self.extras = self.robot.num_joints, {}
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.time_out_buf, self.sim_step_counter = torch.zeros(self.num_envs, dtype=torch.bool), 0
        self.action_buffer = DelayBuffer(2, self.num_envs, self.device)
        self.action_buffer.compute(torch.zeros(self.num_envs, self.num_actions))
        lags = torch.randint(0, 3, (self.num_envs,), dtype=torch.int)
        self.action_buffer.set_time_lag(lags, torch.arange(self.num_envs))
        self.wind = torch.zeros(self.num_envs, 1)
        self.history = CircularBuffer(3, self.num_envs, self.device)
        self.event_manager = EventManager(cfg.domain_rand.events, self)
        self.event_manager.apply(mode="startup")
        self.reset(torch.arange(self.num_envs))

    def step(self, actions):
        targets = 0.25 * self.action_buffer.compute(actions) + self.robot.data.default_joint_pos
        for _ in range(self.cfg.sim.decimation):
            self.sim_step_counter += 1
            self.robot.set_joint_position_target(targets)
            self.scene.write_data_to_sim()
            self.sim.step(render=False)
            self.scene.update(dt=self.cfg.sim.dt)
        self.episode_length_buf += 1
        self.command_generator.compute(self.step_dt)
        self.wind = self.cfg.noise * torch.rand(self.num_envs, 1)
        self.event_manager.apply(mode="interval", dt=self.step_dt)
        self.reset_buf, self.time_out_buf = self.check_reset()
        reward = self.reward_manager.compute(self.step_dt)
        self.reset(self.reset_buf.nonzero().flatten())
        actor, critic = self.compute_observations()
        self.extras["observations"] = {"critic": critic}
        return actor, reward, self.reset_buf, self.extras

    def check_reset(self):
        fallen = self.contacts.data.net_forces_w_history[:, :, self.base.body_ids].norm(dim=-1).amax(dim=(1, 2)) > 1.0
        late = self.episode_length_buf >= self.max_episode_length
        return fallen | late, late

    def reset(self, env_ids):
        if len(env_ids) == 0:
            return
        walked = (self.robot.data.root_pos_w - self.scene.env_origins)[env_ids, :2].norm(dim=1)
        if self.cfg.noise:
            self.scene.terrain.update_env_origins(env_ids, walked > 0.05, walked < 0.01)
        self.scene.reset(env_ids)
        steps = self.sim_step_counter // self.cfg.sim.decimation
        self.event_manager.apply(mode="reset", env_ids=env_ids, dt=self.step_dt, global_env_step_count=steps)
        self.extras["log"] = self.reward_manager.reset(env_ids)
        self.extras["time_outs"] = self.time_out_buf
        for part in (self.command_generator, self.history, self.action_buffer):
            part.reset(env_ids)
        self.episode_length_buf[env_ids] = 0
        self.scene.write_data_to_sim()
        self.sim.forward()

    def compute_observations(self):
        data = self.robot.data
        seen = torch.cat([data.root_ang_vel_b, data.projected_gravity_b, self.command_generator.command], dim=1)
        self.history.append(seen + self.cfg.noise * torch.rand_like(seen))
        return self.history.buffer.flatten(1), torch.cat([seen, self.wind, data.joint_pos], dim=1)


class Registry:
    def __init__(self):
        self.task_classes, self.env_cfgs, self.train_cfgs = {}, {}, {}

    def register(self, name, made, env_cfg, train_cfg):
        self.task_classes[name], self.env_cfgs[name], self.train_cfgs[name] = made, env_cfg, train_cfg


task_registry = Registry()
task_registry.register("small_legs", Own, OwnCfg(), small_lab.RunnerCfg())
task_registry.register("small_plain", Own, PlainCfg(), small_lab.RunnerCfg())
