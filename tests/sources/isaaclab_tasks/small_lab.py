"""A fork's package in Isaac Lab's words: tasks of a box with four legs, and of a cart-pole, with all kinds of terms."""

import gymnasium
import isaaclab.envs.mdp as mdp
import lab_configs
import torch
from isaaclab.managers import CurriculumTermCfg as CurrTerm
from isaaclab.managers import EventTermCfg as EventTerm
from isaaclab.managers import ManagerTermBase, SceneEntityCfg
from isaaclab.managers import ObservationGroupCfg as ObsGroup
from isaaclab.managers import ObservationTermCfg as ObsTerm
from isaaclab.managers import RewardTermCfg as RewTerm
from isaaclab.managers import TerminationTermCfg as DoneTerm
from isaaclab.utils import configclass
from isaaclab.utils.noise import AdditiveUniformNoiseCfg as Unoise
from isaaclab.utils.noise import NoiseModelWithAdditiveBiasCfg as Bias
from isaaclab_rl.rsl_rl import RslRlOnPolicyRunnerCfg, RslRlPpoActorCriticCfg, RslRlPpoAlgorithmCfg
from lab_robots import STANDING

FEET = SceneEntityCfg("contact_forces", body_names=".*_foot")


class Smooth(ManagerTermBase):
    """A reward that keeps something between steps."""

    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.last = torch.zeros(env.num_envs)

    def __call__(self, env):
        height = env.scene["robot"].data.root_pos_w[:, 2]
        change, self.last = (height - self.last).abs(), height.clone()
        return change

    def reset(self, env_ids=None):
        self.last[env_ids] = 0.0


def air_time(env, sensor_cfg, threshold):
    """How long feet were in the air."""
    sensor = env.scene.sensors[sensor_cfg.name]
    first = sensor.compute_first_contact(env.step_dt)[:, sensor_cfg.body_ids]
    return ((sensor.data.last_air_time[:, sensor_cfg.body_ids] - threshold) * first).sum(dim=1)


def peak_force(env, sensor_cfg):
    """The largest force on a foot in the last physics steps."""
    forces = env.scene.sensors[sensor_cfg.name].data.net_forces_w_history[:, :, sensor_cfg.body_ids]
    return forces.norm(dim=-1).amax(dim=(1, 2))


def too_low(env, height):
    return env.scene["robot"].data.root_pos_w[:, 2] < height


def wider_commands(env, env_ids, term, threshold):
    """Widen the commands if the environments that begin anew have done well, as some forks do."""
    ranges = env.command_manager.get_term("base_velocity").cfg.ranges
    mean = torch.mean(env.reward_manager._episode_sums[term][env_ids]) / env.max_episode_length_s
    if mean > threshold:
        ranges.lin_vel_x = (ranges.lin_vel_x[0] - 0.1, ranges.lin_vel_x[1] + 0.1)
    return torch.tensor(ranges.lin_vel_x[1])


@configclass
class Policy(ObsGroup):
    gravity = ObsTerm(func=mdp.projected_gravity, noise=Unoise(n_min=-0.05, n_max=0.05))
    spin = ObsTerm(func=mdp.base_ang_vel, scale=0.2, clip=(-100, 100), noise=Bias(
        noise_cfg=Unoise(n_min=-0.1, n_max=0.1), bias_noise_cfg=Unoise(n_min=-0.2, n_max=0.2)
    ))  # fmt: skip
    commands = ObsTerm(func=mdp.generated_commands, params={"command_name": "base_velocity"})
    joint_pos = ObsTerm(func=mdp.joint_pos_rel, noise=Unoise(n_min=-0.01, n_max=0.01), history_length=3)
    actions = ObsTerm(func=mdp.last_action)

    def __post_init__(self):
        self.enable_corruption, self.concatenate_terms = True, True


@configclass
class Critic(ObsGroup):
    speed = ObsTerm(func=mdp.base_lin_vel)
    joint_vel = ObsTerm(func=mdp.joint_vel_rel, scale=0.05)


@configclass
class Observations:
    policy: Policy = Policy()
    critic: Critic = Critic()


@configclass
class Commands:
    base_velocity = mdp.UniformVelocityCommandCfg(
        asset_name="robot", resampling_time_range=(0.2, 0.4), rel_standing_envs=0.2, rel_heading_envs=0.5,
        heading_command=True, heading_control_stiffness=0.5, debug_vis=True,
        ranges=mdp.UniformVelocityCommandCfg.Ranges(
            lin_vel_x=(-1.0, 1.0), lin_vel_y=(-0.5, 0.5), ang_vel_z=(-1.0, 1.0), heading=(-3.14, 3.14)
        ),
    )  # fmt: skip


@configclass
class Rewards:
    track = RewTerm(func=mdp.track_lin_vel_xy_exp, weight=1.5, params={"command_name": "base_velocity", "std": 0.5})
    torques = RewTerm(func=mdp.joint_torques_l2, weight=-1e-3)
    acceleration = RewTerm(func=mdp.joint_acc_l2, weight=-2.5e-7)
    rate = RewTerm(func=mdp.action_rate_l2, weight=-0.1)
    smooth = RewTerm(func=Smooth, weight=-0.5)
    feet = RewTerm(func=air_time, weight=0.5, params={"sensor_cfg": FEET, "threshold": 0.05})
    force = RewTerm(func=peak_force, weight=-1e-3, params={"sensor_cfg": FEET})
    nothing = None


@configclass
class Terminations:
    time_out = DoneTerm(func=mdp.time_out, time_out=True)
    low = DoneTerm(func=too_low, params={"height": 0.25})


@configclass
class Events:
    material = EventTerm(func=mdp.randomize_rigid_body_material, mode="startup", params={
        "asset_cfg": SceneEntityCfg("robot", body_names=".*"), "static_friction_range": (0.4, 1.2),
        "dynamic_friction_range": (0.4, 1.2), "restitution_range": (0.0, 0.1), "num_buckets": 5,
    })  # fmt: skip
    mass = EventTerm(func=mdp.randomize_rigid_body_mass, mode="startup", params={
        "asset_cfg": SceneEntityCfg("robot", body_names="base"), "mass_distribution_params": (-0.5, 1.0),
        "operation": "add",
    })  # fmt: skip
    gains = EventTerm(func=mdp.randomize_actuator_gains, mode="reset", params={
        "asset_cfg": SceneEntityCfg("robot", joint_names=".*"), "stiffness_distribution_params": (0.8, 1.2),
        "damping_distribution_params": (0.8, 1.2), "operation": "scale",
    })  # fmt: skip
    force = EventTerm(func=mdp.apply_external_force_torque, mode="reset", params={
        "asset_cfg": SceneEntityCfg("robot", body_names="base"), "force_range": (-2.0, 2.0),
        "torque_range": (-0.1, 0.1),
    })  # fmt: skip
    place = EventTerm(func=mdp.reset_root_state_uniform, mode="reset", params={
        "pose_range": {"x": (-0.5, 0.5), "yaw": (-3.14, 3.14)}, "velocity_range": {"z": (-0.2, 0.2)},
    })  # fmt: skip
    joints = EventTerm(
        func=mdp.reset_joints_by_offset,
        mode="reset",
        params={"position_range": (-0.2, 0.2), "velocity_range": (-1.0, 1.0)},
    )
    push = EventTerm(func=mdp.push_by_setting_velocity, mode="interval", interval_range_s=(0.1, 0.3), params={
        "velocity_range": {"x": (-0.5, 0.5), "y": (-0.5, 0.5)},
    })  # fmt: skip


@configclass
class Curriculum:
    weight = CurrTerm(func=mdp.modify_reward_weight, params={"term_name": "rate", "weight": -0.2, "num_steps": 20})


@configclass
class WalkCfg(lab_configs.LeggedEnvCfg):
    observations: Observations = Observations()
    rewards: Rewards = Rewards()
    terminations: Terminations = Terminations()
    events: Events = Events()
    commands: Commands = Commands()
    curriculum: Curriculum = Curriculum()

    def __post_init__(self):
        super().__post_init__()
        self.episode_length_s = 0.6
        self.scene.robot.init_state.pos = (0.0, 0.0, STANDING + 0.02)


@configclass
class WidensCfg(WalkCfg):
    def __post_init__(self):
        super().__post_init__()
        self.curriculum.wider = CurrTerm(func=wider_commands, params={"term": "track", "threshold": 0.02})


@configclass
class RunnerCfg(RslRlOnPolicyRunnerCfg):
    num_steps_per_env, max_iterations, save_interval, experiment_name, obs_groups = 8, 2, 50, "small", {}
    policy = RslRlPpoActorCriticCfg(
        init_noise_std=1.0, actor_hidden_dims=[16], critic_hidden_dims=[16, 8], activation="elu"
    )  # fmt: skip
    algorithm = RslRlPpoAlgorithmCfg(
        value_loss_coef=1.0, use_clipped_value_loss=True, clip_param=0.2, entropy_coef=0.01, num_learning_epochs=2,
        num_mini_batches=2, learning_rate=1e-3, schedule="adaptive", gamma=0.99, lam=0.95, desired_kl=0.01,
        max_grad_norm=1.0,
    )  # fmt: skip


def register(name, cfg, entry_point="isaaclab.envs:ManagerBasedRLEnv", **agent):
    kwargs = {"env_cfg_entry_point": cfg, "rsl_rl_cfg_entry_point": RunnerCfg, **agent}
    gymnasium.register(name, entry_point=entry_point, disable_env_checker=True, kwargs=kwargs)


register("Small-Walk-v0", WalkCfg)
register("Small-Widens-v0", WidensCfg)
register("Small-Cart-v0", lab_configs.CartpoleEnvCfg)
