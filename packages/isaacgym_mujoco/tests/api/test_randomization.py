"""Properties of single environments, set before or after compiling: they read back, and the physics obeys."""

import numpy as np
import pytest
import torch
from isaacgym_scene import ARM, ENGINES, PENDULUM, SLIDER, Scene, boxes_obj, gym, link, load, options, pose, robot

from isaacgym_mujoco.api import gymapi
from mujoco_batches.assets.collisions import ShapeClass, masks

G = 9.81
TENDON = """<mujoco><worldbody><body name="base"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
  <body name="a"><joint name="j1" axis="0 0 1"/><geom type="sphere" size="0.1" pos="1 0 0" mass="1"/></body>
</body></worldbody><tendon><fixed name="t" damping="0.1"><joint joint="j1" coef="1"/></fixed></tendon></mujoco>"""


def cube(side=0.2, **values):
    return gym.create_box(None, side, side, side, options(density=100.0, **values))


def set_friction(env, value, actor=0):
    shapes = gym.get_actor_rigid_shape_properties(env, actor)
    for shape in shapes:
        shape.friction = value
    gym.set_actor_rigid_shape_properties(env, actor, shapes)


def set_mass(env, factor, actor=0):
    bodies = gym.get_actor_rigid_body_properties(env, actor)
    for body in bodies:
        body.mass = np.array([body.mass * factor])  # IsaacGymEnvs assigns arrays of one element
    gym.set_actor_rigid_body_properties(env, actor, bodies, True)


def test_contact_friction_between_actors_is_the_mean_of_both():
    table = gym.create_box(None, 4, 4, 0.2, options(fix_base_link=True))
    scene = Scene((table, pose(0, 0, -0.1)), (cube(), pose(0, 0, 0.1)), dt=0.002)
    set_friction(scene.envs[0], 0.4, actor=0)
    set_friction(scene.envs[1], 0.1, actor=0)
    for env in scene.envs:
        set_friction(env, 0.3, actor=1)
    scene.step(200)
    states = scene.root.clone()
    states[[1, 3], 7] = 2.0
    scene.set_roots(states)
    scene.step(50)
    assert scene.root[[1, 3], 7].tolist() == pytest.approx([2 - 0.35 * G * 0.1, 2 - 0.2 * G * 0.1], rel=0.03)


@pytest.mark.parametrize("when", ["before", "after"])
def test_doubled_mass_falls_equally_and_halves_the_acceleration(when):
    asset = cube()
    double = lambda env: set_mass(env, 1.0 + env.index)  # noqa: E731
    scene = Scene((asset, pose(0, 0, 50)), before=double if when == "before" else lambda env: None)
    if when == "after":
        double(scene.envs[1])
    inertia = asset.body_properties()[0].inertia.x.x
    set_back = gym.get_actor_rigid_body_properties(scene.envs[1], 0)[0]
    assert (set_back.mass, set_back.inertia.x.x) == pytest.approx((1.6, 2 * inertia))
    for _ in range(20):
        forces, torques = torch.zeros(2, 3), torch.zeros(2, 3)
        forces[:, 0], torques[:, 2] = 4.0, 0.01
        gym.apply_rigid_body_force_tensors(scene.sim, forces, torques, gymapi.ENV_SPACE)
        scene.step()
    assert scene.root[:, 9].tolist() == pytest.approx([-G * 0.2] * 2, rel=1e-4)
    assert scene.root[:, 7].tolist() == pytest.approx([4 / 0.8 * 0.2, 4 / 1.6 * 0.2], rel=1e-4)
    assert scene.root[:, 12].tolist() == pytest.approx([0.01 / inertia * 0.2, 0.005 / inertia * 0.2], rel=1e-3)


def test_inertias_scale_with_mass_only_if_recomputed():
    scene = Scene((cube(), pose(0, 0, 5)))
    original = gym.get_actor_rigid_body_properties(scene.envs[0], 0)[0].inertia.y.y
    for env, recompute in zip(scene.envs, (True, False)):
        for factor in (3.0, 0.5, 4.0 / 3.0):  # changes multiply to 2
            bodies = gym.get_actor_rigid_body_properties(env, 0)
            bodies[0].mass *= factor
            gym.set_actor_rigid_body_properties(env, 0, bodies, recompute)
    inertias = [gym.get_actor_rigid_body_properties(env, 0)[0].inertia.y.y for env in scene.envs]
    assert inertias == pytest.approx([2 * original, original])


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_gravity_can_differ_between_environments(engine):
    """Set on the engine: Isaac Gym's interface has one gravity for all environments."""
    asset = cube()
    gym.create_asset_force_sensor(asset, 0, pose())
    scene = Scene((asset, pose(0, 0, 50)), num_envs=3, dt=0.01)
    scene.step(2)
    sensor = gym.acquire_force_sensor_tensor(scene.sim)
    before = scene.root[:, 7:10].clone()
    own = np.array([[0.0, 0.0, -1.0], [0.0, 0.0, -G], [2.0, 0.5, 0.0]])
    scene.sim.engine.set_gravity(own)
    scene.step(10)
    torch.testing.assert_close(
        scene.root[:, 7:10].cpu() - before.cpu(), torch.tensor(own * 0.1).float(), rtol=1e-3, atol=1e-4
    )
    gym.refresh_force_sensor_tensor(scene.sim)
    torch.testing.assert_close(sensor[:, :3].cpu(), torch.tensor(0.8 * own).float(), rtol=1e-3, atol=1e-3)
    scene.sim.engine.set_gravity(np.array([0.0, 0.0, -2.0]))
    before = scene.root[:, 7:10].clone()
    scene.step(10)
    expected = torch.tensor([[0.0, 0.0, -0.2]] * 3)
    torch.testing.assert_close(scene.root[:, 7:10].cpu() - before.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_centre_of_mass_of_a_single_box_can_be_moved():
    asset = gym.create_box(None, 0.4, 0.2, 0.1, options(density=100.0))  # its moments of inertia are not in order
    scene = Scene((asset, pose(0, 0, 5)), gravity=0.0)
    bodies = gym.get_actor_rigid_body_properties(scene.envs[1], 0)
    bodies[0].mass, bodies[0].com.x = 2 * bodies[0].mass, 0.1
    gym.set_actor_rigid_body_properties(scene.envs[1], 0, bodies, True)
    for _ in range(20):
        torques = torch.tensor([[0.0, 0.0, 1e-3]] * 2)
        gym.apply_rigid_body_force_tensors(scene.sim, None, torques, gymapi.ENV_SPACE)
        gym.simulate(scene.sim)
    scene.refresh()
    inertia = 0.8 * (0.4**2 + 0.2**2) / 12
    assert scene.root[:, 12].tolist() == pytest.approx([2e-4 / inertia, 1e-4 / inertia], rel=1e-3)
    assert scene.root[:, 7:10].abs().max() < 1e-6 and scene.root[1, 1].item() < -5e-5  # it turns about its centre


def test_gravity_can_change_after_prepare_sim(tmp_path):
    scene = Scene((cube(), pose(0, 0, 50)), (load(tmp_path, PENDULUM, fix_base_link=True), pose(9)), dt=0.01)
    scene.step(10)
    before = scene.root[0, 9].item()
    params = gym.get_sim_params(scene.sim)
    params.gravity.z = np.float64(-2.0)
    gym.set_sim_params(scene.sim, params)
    scene.step(10)
    assert scene.root[0, 9].item() - before == pytest.approx(-0.2, rel=1e-4)
    assert gym.get_sim_params(scene.sim).gravity.z == -2.0
    params.dt = 0.5
    with pytest.raises(NotImplementedError, match="dt and substeps"):
        gym.set_sim_params(scene.sim, params)


def test_scaled_box_has_scaled_size_and_weight():
    scene = Scene((cube(), pose(0, 0, 0.5)), num_envs=3, ground=True)
    for env, scale in zip(scene.envs[1:], (1.5, np.array([0.5]))):
        gym.set_actor_scale(env, 0, scale)
    scene.step(300)
    assert scene.root[:, 2].tolist() == pytest.approx([0.1, 0.15, 0.05], abs=1e-3)
    weights = [0.8 * G * s**3 for s in (1, 1.5, 0.5)]
    assert scene.contacts[:, 2].tolist() == pytest.approx(weights, rel=1e-3)
    inertias = [gym.get_actor_rigid_body_properties(env, 0)[0].inertia.x.x for env in scene.envs]
    assert inertias == pytest.approx([inertias[0] * s**5 for s in (1, 1.5, 0.5)])
    gym.set_actor_scale(scene.envs[1], 0, 1.0)
    assert gym.get_actor_rigid_body_properties(scene.envs[1], 0)[0].mass == pytest.approx(0.8)


def test_actor_scale_applies_to_joint_positions_and_slider_limits(tmp_path):
    scene = Scene((load(tmp_path, ARM, fix_base_link=True), pose()))
    gym.set_actor_scale(scene.envs[1], 0, 2.0)
    scene.step()
    assert scene.bodies.view(2, 3, 13)[:, 2, 0].tolist() == pytest.approx([0.4, 0.8], abs=1e-4)
    slider = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()))
    gym.set_actor_scale(slider.envs[1], 0, 0.5)
    assert [gym.get_actor_dof_properties(env, 0)["upper"][0] for env in slider.envs] == [100, 50]


def test_unsupported_scales_are_refused(tmp_path):
    (tmp_path / "m.obj").write_text(boxes_obj(((0, 0, 0), (1, 1, 1))))
    scene = Scene((load(tmp_path, robot(link("a", shape='mesh filename="m.obj"'))), pose(0, 0, 5)))
    assert gym.set_actor_scale(scene.envs[0], 0, 1.0)
    with pytest.raises(NotImplementedError, match="collision meshes"):
        gym.set_actor_scale(scene.envs[0], 0, 1.1)
    with pytest.raises(ValueError, match="positive"):
        gym.set_actor_scale(scene.envs[0], 0, 0.0)


def test_tendon_damping_can_be_set_for_each_environment(tmp_path):
    scene = Scene((load(tmp_path, TENDON, fix_base_link=True), pose()), gravity=0.0)
    tendons = gym.get_actor_tendon_properties(scene.envs[1], 0)
    assert (len(tendons), tendons[0].damping) == (gym.get_actor_tendon_count(scene.envs[1], 0), pytest.approx(0.1))
    tendons[0].damping = np.array([0.4])
    gym.set_actor_tendon_properties(scene.envs[1], 0, tendons)
    assert gym.get_actor_tendon_properties(scene.envs[1], 0)[0].damping == 0.4
    assert gym.get_actor_tendon_properties(scene.envs[0], 0)[0].damping == pytest.approx(0.1)
    scene.set_dofs(0.0, 1.0)
    scene.step(100)
    inertia = 1.0 + 0.4 * 0.1**2  # of the ball about the joint
    assert scene.dof[:, 1].tolist() == pytest.approx([np.exp(-d / inertia) for d in (0.1, 0.4)], rel=0.01)


def test_friction_set_before_prepare_sim_applies_per_environment():
    def with_friction(index):
        shapes = gym.get_asset_rigid_shape_properties(asset)
        shapes[0].friction = torch.tensor([(0.0, 0.4, 0.2)[index]])
        gym.set_asset_rigid_shape_properties(asset, shapes)
        return asset

    asset, last = cube(), lambda env: set_friction(env, 0.6) if env.index == 2 else None
    scene = Scene((with_friction, pose(0, 0, 0.1)), num_envs=3, ground=True, friction=0.2, dt=0.002, before=last)
    scene.root[:, 7] = 1.5
    gym.set_actor_root_state_tensor(scene.sim, scene.root)
    scene.step(100)
    assert scene.root[:, 7].tolist() == pytest.approx([1.5 - mean * G * 0.2 for mean in (0.1, 0.3, 0.4)], rel=0.03)


def test_properties_can_be_read_and_set_by_name(tmp_path):
    """In the way of IsaacGymEnvs' randomization."""
    scene = Scene((load(tmp_path, TENDON, fix_base_link=True), pose()), (cube(), pose(3)))
    env = scene.envs[1]
    for read, write, name in (
        (gym.get_actor_rigid_body_properties, gym.set_actor_rigid_body_properties, "mass"),
        (gym.get_actor_rigid_shape_properties, gym.set_actor_rigid_shape_properties, "friction"),
        (gym.get_actor_tendon_properties, gym.set_actor_tendon_properties, "stiffness"),
    ):
        properties = read(env, 0)
        original = [{attribute: getattr(p, attribute) for attribute in dir(p)} for p in properties]
        for p, before in zip(properties, original):
            setattr(p, name, (before[name] + 1) * np.array([1.25]))
        write(env, 0, properties)
        assert [getattr(p, name) for p in read(env, 0)] == [(b[name] + 1) * 1.25 for b in original]
        assert [getattr(p, name) for p in read(scene.envs[0], 0)] == [b[name] for b in original]
    scene.step(5)
    assert torch.isfinite(scene.dof).all()


def test_collision_masks_are_separate_for_each_actor():
    free, other = ShapeClass(0, 0, False), ShapeClass(0, 1, False)
    first, second, single = masks([[free, other], [free, free], [free]])
    touch = [bool(a[0] & b[1] | b[0] & a[1]) for a in first.values() for b in second.values()]
    assert not any(touch) and second[free][0] & second[free][1] and single[free] == (0, 0)
    assert first[free][0] & first[other][1] | first[other][0] & first[free][1]
    with pytest.raises(NotImplementedError, match="32 bits"):
        masks([[free, free]] * 32)


def test_environments_may_have_boxes_of_different_sizes():
    heights = [0.2, 0.5, 0.3]
    box = lambda k: gym.create_box(None, 0.2, 0.2, heights[k], options(density=100.0))  # noqa: E731
    scene = Scene((box, lambda k: pose(0, 0, heights[k])), num_envs=3, ground=True)
    scene.step(200)
    assert scene.root[:, 2].tolist() == pytest.approx([h / 2 for h in heights], abs=1e-3)
    assert scene.contacts[:, 2].tolist() == pytest.approx([100 * 0.04 * h * G for h in heights], rel=1e-3)
