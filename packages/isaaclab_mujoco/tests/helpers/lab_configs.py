"""Configs in Isaac Lab's words; import this after ``isaaclab_mujoco.install()``."""

import isaaclab.envs.mdp as mdp
import isaaclab.sim as sim_utils
from isaaclab.actuators import ImplicitActuatorCfg
from isaaclab.assets import ArticulationCfg, AssetBaseCfg, RigidObjectCfg
from isaaclab.envs import ManagerBasedRLEnvCfg
from isaaclab.managers import EventTermCfg as EventTerm
from isaaclab.managers import ObservationGroupCfg as ObsGroup
from isaaclab.managers import ObservationTermCfg as ObsTerm
from isaaclab.managers import RewardTermCfg as RewTerm
from isaaclab.managers import SceneEntityCfg
from isaaclab.managers import TerminationTermCfg as DoneTerm
from isaaclab.scene import InteractiveSceneCfg
from isaaclab.sensors import ContactSensorCfg
from isaaclab.terrains import TerrainImporterCfg
from isaaclab.utils import configclass
from lab_robots import STANDING

CARTPOLE = ArticulationCfg(
    prim_path="{ENV_REGEX_NS}/Robot",
    spawn=sim_utils.UsdFileCfg(
        usd_path="omniverse://nowhere/cartpole.usd",
        articulation_props=sim_utils.ArticulationRootPropertiesCfg(enabled_self_collisions=False),
    ),
    init_state=ArticulationCfg.InitialStateCfg(pos=(0.0, 0.0, 2.0), joint_pos={"slider": 0.0, "hinge": 0.1}),
    actuators={
        "cart": ImplicitActuatorCfg(joint_names_expr=["slider"], effort_limit_sim=400.0, stiffness=0.0, damping=10.0),
        "pole": ImplicitActuatorCfg(joint_names_expr=["hinge"], effort_limit_sim=400.0, stiffness=0.0, damping=0.0),
    },
)
LEGGED = ArticulationCfg(
    prim_path="{ENV_REGEX_NS}/Robot",
    spawn=sim_utils.UsdFileCfg(
        usd_path="omniverse://nowhere/legged.usd",
        activate_contact_sensors=True,
        rigid_props=sim_utils.RigidBodyPropertiesCfg(max_depenetration_velocity=1.0),
        articulation_props=sim_utils.ArticulationRootPropertiesCfg(enabled_self_collisions=False),
    ),
    init_state=ArticulationCfg.InitialStateCfg(pos=(0.0, 0.0, STANDING)),
    actuators={
        "legs": ImplicitActuatorCfg(joint_names_expr=[".*"], effort_limit_sim=40.0, stiffness=60.0, damping=2.0)
    },
)


@configclass
class CartpoleScene(InteractiveSceneCfg):
    robot = CARTPOLE
    light = AssetBaseCfg(prim_path="/World/Light", spawn=sim_utils.DomeLightCfg(intensity=500.0))


@configclass
class LeggedScene(InteractiveSceneCfg):
    terrain = TerrainImporterCfg(
        prim_path="/World/ground",
        terrain_type="plane",
        physics_material=sim_utils.RigidBodyMaterialCfg(
            static_friction=1.0, dynamic_friction=1.0, friction_combine_mode="multiply"
        ),
    )
    robot = LEGGED
    contact_forces = ContactSensorCfg(prim_path="{ENV_REGEX_NS}/Robot/.*", history_length=3, track_air_time=True)


@configclass
class PolicyCfg(ObsGroup):
    joint_pos = ObsTerm(func=mdp.joint_pos_rel)
    joint_vel = ObsTerm(func=mdp.joint_vel_rel)
    actions = ObsTerm(func=mdp.last_action)

    def __post_init__(self):
        self.enable_corruption, self.concatenate_terms = True, True


@configclass
class Observations:
    policy: PolicyCfg = PolicyCfg()


@configclass
class CartActions:
    effort = mdp.JointEffortActionCfg(asset_name="robot", joint_names=["slider"], scale=20.0)


@configclass
class LegActions:
    targets = mdp.JointPositionActionCfg(asset_name="robot", joint_names=[".*"], scale=0.25, use_default_offset=True)


@configclass
class CartRewards:
    alive = RewTerm(func=mdp.is_alive, weight=1.0)
    upright = RewTerm(
        func=mdp.joint_vel_l1, weight=-0.1, params={"asset_cfg": SceneEntityCfg("robot", joint_names=["hinge"])}
    )


@configclass
class LegRewards:
    torques = RewTerm(func=mdp.joint_torques_l2, weight=-1e-3)
    height = RewTerm(func=mdp.base_height_l2, weight=-1.0, params={"target_height": STANDING})
    contacts = RewTerm(
        func=mdp.undesired_contacts,
        weight=-1.0,
        params={"sensor_cfg": SceneEntityCfg("contact_forces", body_names=["base", ".*_thigh"]), "threshold": 1.0},
    )


@configclass
class Terminations:
    time_out = DoneTerm(func=mdp.time_out, time_out=True)


@configclass
class CartEvents:
    reset = EventTerm(
        func=mdp.reset_joints_by_offset,
        mode="reset",
        params={"position_range": (-0.1, 0.1), "velocity_range": (-0.1, 0.1)},
    )


@configclass
class LegEvents:
    reset = EventTerm(func=mdp.reset_scene_to_default, mode="reset")


@configclass
class CartpoleEnvCfg(ManagerBasedRLEnvCfg):
    scene: CartpoleScene = CartpoleScene(num_envs=4, env_spacing=4.0)
    observations: Observations = Observations()
    actions: CartActions = CartActions()
    rewards: CartRewards = CartRewards()
    terminations: Terminations = Terminations()
    events: CartEvents = CartEvents()

    def __post_init__(self):
        self.decimation, self.episode_length_s, self.sim.dt, self.seed = 2, 5.0, 1 / 120, 1


@configclass
class LeggedEnvCfg(ManagerBasedRLEnvCfg):
    scene: LeggedScene = LeggedScene(num_envs=2, env_spacing=3.0)
    observations: Observations = Observations()
    actions: LegActions = LegActions()
    rewards: LegRewards = LegRewards()
    terminations: Terminations = Terminations()
    events: LegEvents = LegEvents()

    def __post_init__(self):
        self.decimation, self.episode_length_s, self.sim.dt, self.seed = 4, 10.0, 0.005, 1
        self.sim.physics_material = self.scene.terrain.physics_material


def box(friction, mode="average", mass=2.0):
    """A cuboid of 0.2 m that rests on the ground, as an object of a scene."""
    return RigidObjectCfg(
        prim_path="{ENV_REGEX_NS}/Box",
        spawn=sim_utils.CuboidCfg(
            size=(0.2, 0.2, 0.2),
            rigid_props=sim_utils.RigidBodyPropertiesCfg(),
            collision_props=sim_utils.CollisionPropertiesCfg(),
            mass_props=sim_utils.MassPropertiesCfg(mass=mass),
            physics_material=sim_utils.RigidBodyMaterialCfg(
                static_friction=friction, dynamic_friction=friction, friction_combine_mode=mode
            ),
            activate_contact_sensors=True,
        ),
        init_state=RigidObjectCfg.InitialStateCfg(pos=(1.0, 0.0, 0.1)),
    )
