"""Defaults and constants of ``gymapi`` and ``gymutil`` against public sources, and which have none.

Sources, by the names in the tables:
    tuning: Isaac Gym's documentation, "Simulation Tuning" (docs/programming/tuning.html, as in kdh0429/IsaacGymDyros)
    setup: the same, "Simulation Setup" (docs/programming/simsetup.html)
    stubs: the types and descriptions of the package isaacgym-stubs 1.1rc4 on PyPI
    factory: comments of the tasks of Factory and IndustReal in IsaacGymEnvs 1.5.1 (BSD-3)
    legged: comments of legged_gym's config (BSD-3)
    forks: copies of gymutil.parse_arguments in public repositories, which agree with each other
    log: the first line that legged_gym prints on Isaac Gym
"""

import ast
import dataclasses
from typing import get_type_hints

import pytest
import torch

from isaacgym_mujoco.api import gymapi, gymutil
from mujoco_batches.scene import params
from mujoco_batches.scene.properties import RigidShapeProperties

# by class and source: the documented defaults
DOCUMENTED = [
    (gymapi.SimParams, "tuning", "substeps 2"),
    (gymapi.SimParams, "log", "dt 0.01666666753590107"),
    (gymapi.SimParams, "setup", "up_axis 0"),
    (
        params.PhysXParams,
        "tuning",
        "num_threads 4 solver_type 1 contact_offset 0.02 rest_offset 0.01 num_position_iterations 4"
        " num_velocity_iterations 1 bounce_threshold_velocity 0.2 max_depenetration_velocity 100.0"
        " friction_offset_threshold 0.04 friction_correlation_distance 0.025",
    ),
    (params.PhysXParams, "stubs, legged", "contact_collection 2"),
    (params.FlexParams, "tuning", "solver_type 5 relaxation 0.75 warm_start 0.4"),
    (gymapi.PlaneParams, "factory", "distance 0.0 static_friction 1.0 dynamic_friction 1.0 restitution 0.0"),
    (
        gymapi.AssetOptions,
        "factory",
        "thickness 0.02 armature 0.0 density 1000.0 linear_damping 0.0 angular_damping 0.5 max_linear_velocity 1000.0"
        " max_angular_velocity 64.0 flip_visual_attachments False",
    ),
    (
        gymapi.AssetOptions,
        "stubs",
        "convex_decomposition_from_submeshes False use_mesh_materials False vhacd_enabled False mesh_normal_mode 0",
    ),
    (
        gymapi.VhacdParams,
        "stubs",
        "alpha 0.05 beta 0.05 concavity 0.0 convex_hull_approximation True convex_hull_downsampling 4"
        " max_convex_hulls 64 max_num_vertices_per_ch 64 min_volume_per_ch 0.0001 mode 0 ocl_acceleration True pca 0"
        " plane_downsampling 4 project_hull_vertices True resolution 100000",
    ),
    (
        gymapi.ForceSensorProperties,
        "stubs",
        "enable_forward_dynamics_forces True enable_constraint_solver_forces True use_world_frame False",
    ),
    (gymapi.CameraProperties, "stubs: DEFAULT_VIEWER_WIDTH and _HEIGHT", "width 1600 height 900"),
    (
        RigidShapeProperties,
        "factory",
        "rolling_friction 0.0 torsion_friction 0.0 restitution 0.0 compliance 0.0 thickness 0.0",
    ),
]
# defaults that no public source gives; most are 0, False or an identity
WITHOUT_A_SOURCE = {
    "SimParams": "enable_actor_creation_warning flex gravity num_client_threads physx stress_visualization"
    " use_gpu_pipeline",
    "PhysXParams": "num_subscenes use_gpu default_buffer_size_multiplier max_gpu_contact_pairs"
    " always_use_articulations",
    "PlaneParams": "normal segmentation_id",
    "AssetOptions": "fix_base_link collapse_fixed_joints disable_gravity default_dof_drive_mode"
    " replace_cylinder_with_capsule use_physx_armature enable_gyroscopic_forces slices_per_cylinder override_inertia"
    " override_com min_particle_mass tendon_limit_stiffness vhacd_params",
    "TriangleMeshParams": "nb_vertices nb_triangles static_friction dynamic_friction restitution segmentation_id"
    " transform",
    "HeightFieldParams": "nbRows nbColumns row_scale column_scale vertical_scale static_friction dynamic_friction"
    " restitution segmentation_id transform",
    "AttractorProperties": "stiffness damping axes rigid_handle target offset",
    "CameraProperties": "horizontal_fov near_plane far_plane supersampling_horizontal supersampling_vertical"
    " use_collision_geometry enable_tensors",
    "RigidShapeProperties": "friction filter contact_offset rest_offset",
}
CONSTANTS = [
    ("stubs", "AXIS_NONE 0 AXIS_X 1 AXIS_Y 2 AXIS_Z 4 AXIS_TRANSLATION 7 AXIS_TWIST 8 AXIS_SWING_1 16 AXIS_SWING_2 32"),
    ("stubs", "AXIS_ROTATION 56 AXIS_ALL 63 INVALID_HANDLE -1 STATE_NONE 0 STATE_POS 1 STATE_VEL 2 STATE_ALL 3"),
    ("stubs", "RIGID_BODY_NONE 0 RIGID_BODY_DISABLE_GRAVITY 1 RIGID_BODY_DISABLE_SIMULATION 2"),
    ("stubs", "CC_NEVER 0 CC_LAST_SUBSTEP 1 CC_ALL_SUBSTEPS 2 DEFAULT_VIEWER_WIDTH 1600 DEFAULT_VIEWER_HEIGHT 900"),
    ("legged: up_axis, '0 is y, 1 is z'", "UP_AXIS_Y 0 UP_AXIS_Z 1"),
    ("legged: comments", "DOF_MODE_NONE 0 DOF_MODE_POS 1 DOF_MODE_VEL 2 DOF_MODE_EFFORT 3"),
]


def values(text):
    """Return the values of a text of names and values."""
    words = text.split()
    return {name: ast.literal_eval(value) for name, value in zip(words[::2], words[1::2])}


@pytest.mark.parametrize("kind, source, defaults", DOCUMENTED, ids=lambda value: getattr(value, "__name__", None))
def test_defaults_are_the_documented_ones(kind, source, defaults):
    made = kind()
    assert {name: getattr(made, name) for name in values(defaults)} == values(defaults), source


def test_every_default_has_a_source_or_is_known_to_have_none():
    kinds = {kind.__name__: kind for kind, _, _ in DOCUMENTED}
    kinds |= {name: getattr(gymapi, name) for name in WITHOUT_A_SOURCE if name not in kinds}
    for name, kind in kinds.items():
        documented = {key for other, _, defaults in DOCUMENTED if other is kind for key in values(defaults)}
        assert documented | set(WITHOUT_A_SOURCE.get(name, "").split()) == set(vars(kind())), name


@pytest.mark.parametrize("source, constants", CONSTANTS)
def test_constants_are_the_documented_ones(source, constants):
    assert {name: getattr(gymapi, name) for name in values(constants)} == values(constants), source


# what a script without flags gets where there is a GPU (forks)
FLAGS = values(
    "sim_device 'cuda:0' sim_device_type 'cuda' compute_device_id 0 pipeline 'gpu' use_gpu_pipeline True use_gpu True"
    " graphics_device_id 0 physics_engine 1 flex False physx False num_threads 0 subscenes 0 slices 0"
)


def test_flags_have_the_defaults_of_isaac_gym(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("sys.argv", ["train.py"])
    assert vars(gymutil.parse_arguments()) == FLAGS
    monkeypatch.setattr("sys.argv", ["train.py", "--sim_device=cpu", "--slices", "3", "--subscenes", "2"])
    cpu = {"sim_device": "cpu", "sim_device_type": "cpu", "pipeline": "CPU"}
    cpu |= {"use_gpu_pipeline": False, "use_gpu": False}
    assert vars(gymutil.parse_arguments()) == {**FLAGS, **cpu, "slices": 3, "subscenes": 2}


def test_a_rest_offset_of_zero_is_what_mujoco_does():
    physx = params.PhysXParams()
    assert physx.ignored() == []
    physx.rest_offset = 0.0
    assert physx.ignored() == []
    physx.rest_offset = -0.002
    assert physx.ignored() == ["rest_offset"]


def test_options_without_effect_are_those_that_mujoco_has_not():
    options = gymapi.AssetOptions()
    for name in vars(options):
        setattr(options, name, "another")
    without = {"thickness", "convex_decomposition_from_submeshes", "use_physx_armature", "enable_gyroscopic_forces"}
    without |= {"min_particle_mass", "tendon_limit_stiffness"}
    assert {name.split()[0] for name in options.ignored()} - {"vhacd_enabled"} == without


def test_parameters_of_subclasses_and_added_ones_are_told():
    class Stiff(gymapi.PhysXParams):
        def __init__(self, offset):
            super().__init__()
            self.solver_type, self.contact_offset = 0, offset

    params = Stiff(0.5)
    params.added = 3
    assert {"contact_offset", "solver_type"} <= set(params.ignored()) and "added=3" in repr(params)


def test_dataclass_that_extends_parameters_has_their_fields():
    @dataclasses.dataclass
    class Mine(gymapi.SimParams):
        substeps: int = 3
        extra: float = 1.0

    @dataclasses.dataclass
    class Other(Mine):
        more: int = 0

    for cls in (Mine, Other):
        params = dataclasses.replace(cls(extra=2.0), dt=0.5)
        assert (params.dt, params.substeps, params.extra) == (0.5, 3, 2.0) and params.physx.solver_type == 1
        assert params.physx is not cls().physx and dataclasses.asdict(params)["gravity"].y == pytest.approx(-9.81)
    assert get_type_hints(Mine)["gravity"] is gymapi.Vec3 and not dataclasses.is_dataclass(gymapi.SimParams)
