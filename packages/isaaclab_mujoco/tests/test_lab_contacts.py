"""Contact sensors, friction and terrains, against numbers by hand."""

import numpy as np
import pytest
import torch
from lab_robots import MASS
from test_lab_physics import GRAVITY, settle

from isaaclab_mujoco.errors import NotSupported


@pytest.fixture
def cfgs():
    import lab_configs

    return lab_configs


def push(env, force, steps):
    """Push the base of the robot sideways."""
    view = env.scene["robot"].root_physx_view
    for _ in range(steps):
        forces = torch.zeros(env.num_envs, 13, 3)
        forces[:, 0, 0] = force
        env.scene.write_data_to_sim()
        view.apply_forces_and_torques_at_position(forces, None, None, None, is_global=True)
        env.sim.step(render=False)
        env.scene.update(env.physics_dt)


def test_net_forces_are_the_normal_ones(make, cfgs):
    """They bear the weight; a push that friction holds does not appear in them, but in the friction forces."""
    from isaaclab.sensors import ContactSensorCfg

    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.feet = ContactSensorCfg(
        prim_path="{ENV_REGEX_NS}/Robot/.*_foot", filter_prim_paths_expr=["/World/ground/terrain"]
    )
    env = make(cfg)
    env.reset()
    settle(env)
    push(env, 8.0, 300)
    net = env.scene["contact_forces"].data.net_forces_w
    assert net.sum(dim=1)[:, 2].tolist() == pytest.approx([GRAVITY * MASS] * 2, rel=1e-2)
    assert net[..., :2].abs().max() < 1e-4
    feet = env.scene["feet"]
    assert torch.allclose(feet.data.force_matrix_w.sum(dim=2), feet.data.net_forces_w, atol=1e-4)
    friction, points, counts, starts = feet.contact_physx_view.get_friction_data(env.physics_dt)
    assert counts.shape == (8, 1) and counts.tolist() == [[1]] * 8 and starts.flatten().tolist() == list(range(8))
    assert friction.view(2, 4, 3).sum(dim=1)[:, 0].tolist() == pytest.approx([-8.0, -8.0], rel=5e-2)
    assert points[:, 2].abs().max() < 5e-3
    order = [name for name in env.scene["contact_forces"].body_names if name.endswith("foot")]
    assert feet.body_names == order


def test_filters_tell_what_a_body_touches(make, cfgs):
    """A box on the ground and one on it: the lower one is pushed up by two weights and down by one."""
    from isaaclab.sensors import ContactSensorCfg

    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.box, cfg.scene.upper = cfgs.box(1.0), cfgs.box(1.0, mass=1.0)
    cfg.scene.upper.prim_path, cfg.scene.upper.init_state.pos = "{ENV_REGEX_NS}/Upper", (1.0, 0.0, 0.3)
    cfg.scene.touch = ContactSensorCfg(
        prim_path="{ENV_REGEX_NS}/Box", filter_prim_paths_expr=["{ENV_REGEX_NS}/Upper", "/World/ground"]
    )
    env = make(cfg)
    env.reset()
    settle(env, 60)
    matrix = env.scene["touch"].data.force_matrix_w
    assert matrix.shape == (2, 1, 2, 3)
    assert matrix[:, 0, :, 2].flatten().tolist() == pytest.approx([-GRAVITY, 3 * GRAVITY] * 2, rel=2e-2)
    assert env.scene["touch"].data.net_forces_w[0, 0, 2] == pytest.approx(2 * GRAVITY, rel=2e-2)


@pytest.mark.parametrize(
    "mode, ground_mode, expected",
    [("average", "average", 0.35), ("min", "average", 0.2), ("average", "multiply", 0.1), ("max", "multiply", 0.5)],
)
def test_friction_is_combined_as_by_physx(make, cfgs, mode, ground_mode, expected):
    """Friction holds a box against 0.8 times its greatest force, and not against 1.2 times."""
    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.box = cfgs.box(0.2, mode)
    cfg.scene.terrain.physics_material.static_friction = cfg.scene.terrain.physics_material.dynamic_friction = 0.5
    cfg.scene.terrain.physics_material.friction_combine_mode = ground_mode
    env = make(cfg)
    env.reset()
    view, force = env.scene["box"].root_physx_view, torch.zeros(2, 3)
    force[:, 0] = torch.tensor([0.8, 1.2]) * expected * 2.0 * GRAVITY
    for step in range(60):  # it comes to rest in the first 20
        env.scene.write_data_to_sim()
        if step >= 20:
            view.apply_forces_and_torques_at_position(force, None, None, None, is_global=True)
        env.sim.step(render=False)
    speed = view.get_velocities()[:, 0]
    assert abs(speed[0]) < 0.01 and speed[1] == pytest.approx(0.2 * expected * GRAVITY * 0.2, rel=0.2)


def test_materials_are_randomized_by_environment_and_shape(make, cfgs):
    env = make(cfgs.LeggedEnvCfg())
    view = env.scene["robot"].root_physx_view
    materials = view.get_material_properties()
    assert materials.is_contiguous()
    assert materials.shape == (2, view.max_shapes, 3) and view.max_shapes == 13
    materials[1, view.shared_metatype.link_names.index("FR_foot")] = 0.25
    view.set_material_properties(materials, torch.tensor([1]))
    physics = env.sim.physics
    friction = [physics.materials.combined(k) for k in range(2)]
    assert np.unique(friction[0]).tolist() == [1.0] and np.unique(friction[1]).tolist() == [0.25, 1.0]
    pair = int(np.argmin(friction[1]))
    model, number = physics.layout.model, physics.layout.pairs.ids[pair]
    geoms = int(model.pair_geom1[number]), int(model.pair_geom2[number])
    assert any(model.body(int(model.geom_bodyid[geom])).name.endswith("FR_foot") for geom in geoms)


def test_rays_and_feet_meet_the_same_triangles(make, cfgs):
    """On a terrain of one slope, heights under the rays are those of its plane, and the robot stands on it."""
    import trimesh
    from isaaclab.sensors import RayCaster, RayCasterCfg, patterns
    from isaaclab.sim import SimulationContext
    from isaaclab.terrains import TerrainImporterCfg
    from isaaclab.terrains.terrain_importer import TerrainImporter

    class Slope(TerrainImporter):
        def import_ground_plane(self, name, size=(0.0, 0.0)):
            x = np.array([[-30.0, -30.0], [-30.0, 30.0], [30.0, -30.0], [30.0, 30.0]])
            vertices = np.column_stack([x, 0.1 * x[:, 0]])
            self.import_mesh(name, trimesh.Trimesh(vertices, [[0, 2, 1], [1, 2, 3]], process=False))

    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.terrain = TerrainImporterCfg(prim_path="/World/ground", terrain_type="plane", class_type=Slope)
    cfg.scene.scanner = RayCasterCfg(
        prim_path="{ENV_REGEX_NS}/Robot/base",
        ray_alignment="yaw",
        pattern_cfg=patterns.GridPatternCfg(resolution=0.2, size=(0.4, 0.2)),
        mesh_prim_paths=["/World/ground"],
    )
    env = make(cfg)
    env.reset()
    robot, origin = env.scene["robot"], env.scene.env_origins
    root = robot.data.default_root_state[:, :7].clone()
    root[:, :3] += origin
    root[:, 2] += 0.1 * root[:, 0]
    robot.write_root_pose_to_sim(root)
    settle(env, 60)
    hits = env.scene["scanner"].data.ray_hits_w
    assert hits.shape == (2, 6, 3) and torch.allclose(hits[..., 2], 0.1 * hits[..., 0], atol=1e-4)
    feet = [name.endswith("foot") for name in robot.body_names]
    place = robot.data.body_pos_w[:, feet]
    assert (place[..., 2] - 0.1 * place[..., 0]).flatten().tolist() == pytest.approx([0.02] * 8, abs=5e-3)
    # a second simulation in the process has meshes of its own; an environment validates its config before it makes one
    meshes = dict(RayCaster.meshes)
    SimulationContext.clear_instance()
    cfg.validate()
    assert list(meshes) == ["/World/ground"] and not RayCaster.meshes and SimulationContext(cfg.sim) is not env.sim
    env.sim.activate()
    assert RayCaster.meshes == meshes


def test_a_sensor_of_bodies_that_do_not_report_says_so(make, cfgs):
    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.robot.spawn.activate_contact_sensors = False
    with pytest.raises(RuntimeError, match="activate_contact_sensors"):
        make(cfg)


def test_a_filter_without_a_match_is_named(make, cfgs):
    cfg = cfgs.LeggedEnvCfg()
    cfg.scene.contact_forces.filter_prim_paths_expr = ["{ENV_REGEX_NS}/Table"]
    with pytest.raises(NotSupported, match=r"env_[.*0]+/Table: the filters of .*Robot"):
        make(cfg)
