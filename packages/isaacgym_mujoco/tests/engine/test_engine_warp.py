"""MuJoCo Warp's engine: it agrees with the CPU's, keeps each environment's properties, saves its state, never waits."""

import logging
import math

import numpy as np
import pytest
import torch
from isaacgym_scene import (
    ARM,
    ENGINES,
    FINGER_ON_HINGE,
    FREE_ARM,
    SLIDER,
    Scene,
    gym,
    joint,
    link,
    load,
    on_all,
    on_warp,
    options,
    pose,
    robot,
)
from warp_launches import launched_by

from isaacgym_mujoco.api import gymapi
from isaacgym_mujoco.api.simulation import ENGINE_VARIABLE
from mujoco_batches.compat import warp_modules
from mujoco_batches.compat.warp_structs import check_structs
from mujoco_batches.engine import cuda_kernels

DRIVE = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 40.0, "damping": 2.0, "effort": 20.0, "armature": 0.02}


def mixed_scene(tmp_path, num_envs=3):
    """A free arm with drives and a sensor, a free box with sensors of contacts and a fixed one, on the ground."""
    arm = load(tmp_path, ARM, linear_damping=1.5, angular_damping=6.0)
    if not arm.sensors:
        gym.create_asset_force_sensor(arm, 2, gymapi.Transform(gymapi.Vec3(0, 0, 0.1)))
    box = gym.create_box(None, 0.2, 0.2, 0.2, options(density=200.0))
    of_contacts = gymapi.ForceSensorProperties()
    of_contacts.enable_forward_dynamics_forces = False
    for of_contacts.use_world_frame in (True, False):
        gym.create_asset_force_sensor(box, 0, gymapi.Transform(gymapi.Vec3(0.3, 0, 0.1)), of_contacts)
    shelf = gym.create_box(None, 0.4, 0.4, 0.1, options(fix_base_link=True))
    places = ((arm, pose(0, 0, 0.5)), (box, pose(2, 0, 0.4)), (shelf, pose(2, 0, 0.1)))
    scene = Scene(*places, num_envs=num_envs, ground=True, dt=0.01, substeps=2, props=DRIVE)
    gym.acquire_force_sensor_tensor(scene.sim)
    gym.acquire_mass_matrix_tensor(scene.sim, "actor0")
    return scene


def vary(scene):
    """Give the second environment other drives, masses and friction than the others."""
    rows = gym.get_actor_dof_properties(scene.envs[1], 0)
    rows["stiffness"], rows["velocity"], rows["armature"] = 90.0, 1.5, 0.05
    gym.set_actor_dof_properties(scene.envs[1], 0, rows)
    bodies = gym.get_actor_rigid_body_properties(scene.envs[1], 1)
    bodies[0].mass *= 3.0
    gym.set_actor_rigid_body_properties(scene.envs[1], 1, bodies)
    links = gym.get_actor_rigid_body_properties(scene.envs[1], 0)
    links[1].mass *= 1.5
    gym.set_actor_rigid_body_properties(scene.envs[1], 0, links)
    shapes = gym.get_actor_rigid_shape_properties(scene.envs[1], 1)
    shapes[0].friction = 0.1
    gym.set_actor_rigid_shape_properties(scene.envs[1], 1, shapes)


def numbers(scene):
    """All that a task reads, on the CPU."""
    scene.refresh()
    for kind in ("force_sensor_tensor", "dof_force_tensor", "mass_matrix_tensors"):
        getattr(gym, f"refresh_{kind}")(scene.sim)
    names = ("force_sensor", "dof_force")
    more = [getattr(gym, f"acquire_{name}_tensor")(scene.sim) for name in names]
    more.append(gym.acquire_mass_matrix_tensor(scene.sim, "actor0"))
    return [x.cpu().clone() for x in (scene.root, scene.dof, scene.bodies, scene.contacts, *more)]


def run(scene, steps):
    for step in range(steps):
        target = 0.8 * math.sin(0.2 * step)
        force = torch.zeros(scene.sim.engine.forces.shape, device=scene.device)
        force[:, 3, 0] = 6.0  # the box
        gym.apply_rigid_body_force_tensors(scene.sim, force[..., :3].contiguous(), None, gymapi.LOCAL_SPACE)
        gym.set_dof_position_target_tensor(scene.sim, scene.dofs_full(target))
        gym.simulate(scene.sim)


@on_warp
@pytest.mark.parametrize("alike", [True, False])
def test_warp_engine_matches_the_cpu_engine(tmp_path, monkeypatch, engine, alike):
    scene = mixed_scene(tmp_path)
    if not alike:
        vary(scene)
    run(scene, 30)
    got = numbers(scene)
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setattr(Scene, "device", "cpu")
    oracle = mixed_scene(tmp_path)
    if not alike:
        vary(oracle)
    run(oracle, 30)
    assert type(oracle.sim.engine) is not type(scene.sim.engine)
    for mine, its in zip(got, numbers(oracle)):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=2e-3)
    second = oracle.root.view(3, 3, 13)[:, 1]
    assert torch.equal(second[0], second[2]) and torch.equal(second[0], second[1]) == alike


@on_warp
def test_jacobians_attractors_and_fixed_bases_match_the_cpu_engine(tmp_path, monkeypatch, engine):
    def make():
        arm = load(tmp_path, ARM, fix_base_link=True)
        props = {"driveMode": gymapi.DOF_MODE_EFFORT, "stiffness": 3.0, "damping": 0.5, "armature": 0.1}
        attractor = gymapi.AttractorProperties()
        attractor.stiffness, attractor.axes, attractor.rigid_handle = 5e7, gymapi.AXIS_TRANSLATION, 3  # the ball
        attractor.target.p, attractor.offset.p = gymapi.Vec3(3, 0, 1.1), gymapi.Vec3(0, 0, 0.1)
        ball = gym.create_sphere(None, 0.1, options(density=100.0))
        attract = lambda env: gym.create_rigid_body_attractor(env, attractor)  # noqa: E731
        (tmp_path / "free").mkdir(exist_ok=True)
        free = load(tmp_path / "free", FREE_ARM)
        scene = Scene((arm, pose(1, 2, 3)), (ball, pose(3, 0, 1)), (free, pose(9)), props=props, before=attract)
        jacobians = [gym.acquire_jacobian_tensor(scene.sim, f"actor{k}") for k in (0, 2)]
        roots = scene.root.clone()
        roots[3, 3:7] = scene.tensor([0.5, 0.5, 0.5, 0.5])  # the second environment's arm
        scene.set_roots(roots, [3])
        dofs = [0.7, -0.4, 0.7, -0.4, 0.1, 0.2, 0.1, 0.2], [1.0, -2.0, 1.0, -2.0, 3.0, 0.5, 3.0, 0.5]
        scene.set_dofs(*map(scene.tensor, dofs))
        scene.step(20, effort=0.5)
        gym.refresh_jacobian_tensors(scene.sim)
        return [x.cpu() for x in (scene.root, scene.dof, scene.bodies, *jacobians)]

    got = make()
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setattr(Scene, "device", "cpu")
    for mine, its in zip(got, make()):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-4)
    assert got[0][1, :3].tolist() == pytest.approx([3, 0, 1], abs=2e-3)


BALANCED = robot(
    link("base"),
    link("a", 0.05, [6e-5] * 3, shape='sphere radius="0.1"', at=(0.1, 0, 0)),
    link("b", 0.05, [6e-5] * 3, shape='sphere radius="0.1"', at=(-0.1, 0.05, 0)),
    joint("ja", "continuous", "base", "a", (0, 0, 1)),
    joint("jb", "continuous", "base", "b", (0, 0, 1), at=(0.37, 0, 0)),
)


@on_warp
def test_links_balanced_about_their_joints_collide_without_penetration(tmp_path, engine):
    """Forces do not accelerate their centres of mass: MuJoCo treats such contacts as infinitely stiff."""
    scene = Scene((load(tmp_path, BALANCED, fix_base_link=True), pose()), gravity=0.0, props={"damping": 0.01})
    scene.step(20)
    weights = scene.sim.engine._model.body_invweight0.numpy()[0]
    assert scene.sim.engine.blow_ups == 0 and (weights[2:, 0] > 1e-4 * weights[2:, 1] * 0.2**2).all()
    a, b = scene.dof[:2, 0].tolist()
    distance = math.dist(
        (0.1 * math.cos(a), 0.1 * math.sin(a)),
        (0.37 - 0.1 * math.cos(b) - 0.05 * math.sin(b), 0.05 * math.cos(b) - 0.1 * math.sin(b)),
    )
    assert a != 0 and distance > 0.199


@on_all
def test_properties_can_change_between_steps(tmp_path, engine):
    """The fields are reallocated: a step captured before would read the old ones."""
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()), gravity=0.0)
    scene.step(3, effort=1.0)
    before = scene.dof[:, 1].clone()
    assert before[0] == before[1]
    rows = gym.get_actor_dof_properties(scene.envs[1], 0)
    rows["driveMode"], rows["damping"], rows["effort"] = gymapi.DOF_MODE_VEL, 1e4, 1e9
    gym.set_actor_dof_properties(scene.envs[1], 0, rows)
    scene.step(3)
    assert scene.dof[0, 1].item() == before[0].item() and abs(scene.dof[1, 1].item()) < 1e-4


@on_warp
def test_model_rows_and_gravity_can_change(tmp_path, engine):
    arm, ball = load(tmp_path, ARM, fix_base_link=True), gym.create_sphere(None, 0.1, options())
    scene = Scene((arm, pose(0, 0, 3)), (ball, pose(5, 0, 5)), num_envs=3)
    lower, made = scene.sim.layout.bodies[2], scene.sim.engine
    far = np.array([[0.8, 0.0, 0.0]])
    made.set_model_fields(1, {"body_pos": (np.array([lower]), far)})
    made.set_gravity(np.array([0.0, 0.0, -1.0]))
    scene.step(10)
    assert scene.root[1, 9].item() == pytest.approx(-0.1, rel=1e-5)
    assert scene.bodies.view(3, 4, 13)[:, 2, 0].tolist() == pytest.approx([0.4, 0.8, 0.4], abs=1e-4)


@on_warp
def test_engine_resumes_from_a_saved_state(tmp_path, engine):
    scene = mixed_scene(tmp_path)
    run(scene, 5)
    roots = scene.root.clone()
    roots[:, 2] += 0.1
    scene.set_roots(roots, [1])  # after the step: body states stay those of before
    gym.set_dof_position_target_tensor(scene.sim, scene.dofs_full(0.3))
    saved, now = scene.sim.engine.get_state(), numbers(scene)
    assert all(x.device.type == "cpu" for x in saved.values())
    scene.step(7)
    later = numbers(scene)
    other = mixed_scene(tmp_path)
    other.sim.engine.set_state(saved)
    for a, b in zip(numbers(other), now):
        assert torch.equal(a, b)
    other.step(7)
    for a, b in zip(numbers(other), later):
        if engine == "warp":
            assert torch.equal(a, b)
        else:  # sums by atomic additions, in no fixed order
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="saved"):
        other.sim.engine.set_state({**saved, "qpos": saved["qpos"][:2]})


@on_warp
def test_memory_is_that_of_the_arrays_and_of_a_step_and_measuring_it_changes_nothing(tmp_path, engine):
    scene, other = mixed_scene(tmp_path), mixed_scene(tmp_path)
    run(scene, 5)
    run(other, 5)
    measured, data = scene.sim.engine.bytes_per_env, scene.sim.engine._data
    sizes = [
        x.capacity for part in (data, data.efc, data.contact) for x in vars(part).values() if hasattr(x, "capacity")
    ]
    assert sum(sizes) < 3 * measured < 100 * sum(sizes)  # steps allocate, too
    scene.step(7)
    other.step(7)
    if engine == "warp":
        assert all(torch.equal(a, b) for a, b in zip(numbers(scene), numbers(other)))


@on_warp
def test_state_saved_before_reading_bodies_is_restored(tmp_path, engine):
    scene = mixed_scene(tmp_path)
    run(scene, 5)
    made, now = scene.sim.engine, numbers(scene)
    unread = {name: x for name, x in made.get_state().items() if name not in made._late()}
    assert len(unread) < len(made.get_state())
    scene.step(7)
    made.set_state(unread)
    for a, b in zip(numbers(scene), now):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@on_all
def test_masked_writes_change_only_masked_actors(tmp_path, engine):
    scene = mixed_scene(tmp_path)
    made = scene.sim.engine
    before = [x.clone() for x in (scene.root, scene.dof)]
    mask = torch.zeros(3, 3, dtype=torch.bool, device=scene.device)
    mask[1, 0], mask[2, 2] = True, True
    made.write_roots(mask, scene.root + 0.5)
    made.write_dofs(mask, scene.dof + 0.25)
    scene.refresh()
    moved = (scene.root[:, :3] - before[0][:, :3]).abs().amax(dim=1) > 0.1
    assert moved.view(3, 3).tolist() == mask.tolist()
    assert (scene.dof - before[1]).view(3, 2, 2)[:, :, 0].tolist() == [[0, 0], [0.25, 0.25], [0, 0]]


@on_all
def test_write_commands_ignores_invalid_rows(tmp_path, engine):
    made = mixed_scene(tmp_path).sim.engine
    rows = torch.tensor([3, -1, 9, 1000], dtype=torch.int32, device=made.device)
    assert made.actor_mask(rows).nonzero().tolist() == [[1, 0]]
    made.write_commands(made.efforts, made.actor_mask(rows), torch.ones(6, device=made.device))
    assert made.efforts.tolist() == [[0, 0], [1, 1], [0, 0]]


@on_warp
def test_nan_command_resets_its_environment(tmp_path, engine):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()), gravity=0.0, num_envs=3)
    scene.step(2, effort=1.0)
    efforts = scene.dofs_full(1.0)
    efforts[1] = math.nan
    gym.set_dof_actuation_force_tensor(scene.sim, efforts)
    gym.simulate(scene.sim)
    scene.refresh()
    assert scene.sim.engine.blown.tolist() == [False, True, False] and scene.sim.engine.blow_ups == 1
    assert scene.dof[1].tolist() == [0, 0] and scene.dof[0].tolist() == scene.dof[2].tolist() != [0, 0]
    scene.step()
    assert not scene.sim.engine.blown.any() and torch.isfinite(scene.bodies).all()


@on_warp
def test_dropped_contacts_are_counted_and_logged_once(tmp_path, monkeypatch, caplog, engine):
    from mujoco_batches.engine import cuda as engine_warp

    monkeypatch.setattr(engine_warp, "room", lambda model: (8, 4))
    monkeypatch.setattr(engine_warp, "_CHECK_EVERY", 2)
    with caplog.at_level(logging.WARNING, logger="mujoco_batches"):
        scene = Scene((gym.create_box(None, 0.2, 0.2, 0.2, options()), pose(0, 0, 0.1)), ground=True)
        scene.step(6)
        scene.root.tolist()  # on CUDA the count is copied when the steps before have ended
        scene.step(6)
    assert scene.sim.engine.overflows.item() >= 10
    assert sum("contacts" in r.message for r in caplog.records) == 1


@on_all
def test_the_environments_that_drop_contacts_are_told(tmp_path, monkeypatch, engine):
    from mujoco_batches.engine import cuda, layout

    world = layout._world

    def small_world(params):
        spec = world(params)
        spec.memory = 4000  # of each environment on the CPU; one contact needs more
        return spec

    monkeypatch.setattr(layout, "_world", small_world)
    monkeypatch.setattr(cuda, "room", lambda model: (8, 4))
    scene = Scene((gym.create_box(None, 0.2, 0.2, 0.2, options()), pose(0, 0, 0.09)), ground=True, num_envs=3)
    states = scene.root.clone()
    states[1, 2] = 50.0
    scene.set_roots(states)
    scene.step(2)
    assert scene.sim.engine.take_overflows().tolist() == [True, False, True]
    assert scene.sim.engine.take_overflows().tolist() == [False, False, False]
    scene.step()
    assert scene.sim.engine.take_overflows().tolist() == [True, False, True]


@on_all
def test_root_velocity_is_that_of_a_centre_of_mass_set_before(tmp_path, engine):
    scene = Scene((gym.create_box(None, 0.2, 0.2, 0.2, options()), pose()), gravity=0.0, dt=0.001)
    scene.step()
    bodies = gym.get_actor_rigid_body_properties(scene.envs[1], 0)
    bodies[0].com = gymapi.Vec3(0.05, 0, 0)
    gym.set_actor_rigid_body_properties(scene.envs[1], 0, bodies)
    states = scene.root.clone()
    states[:, 7], states[:, 12] = 4.0, 3.0
    scene.set_roots(states)
    scene.refresh()
    assert scene.root[1, 7:].tolist() == pytest.approx([4, 0, 0, 0, 0, 3], abs=1e-5)
    scene.step()
    assert scene.root[1, 7:10].tolist() == pytest.approx([4, 0, 0], abs=1e-3)


@on_warp
def test_restored_state_keeps_no_graph_of_replaced_arrays(tmp_path, engine):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()), num_envs=2)
    own = scene.sim.engine
    saved = {name: x for name, x in own.get_state().items() if name not in own._late()}
    scene.step(2)
    own._graph = object()  # as after a capture
    rows = gym.get_actor_dof_properties(scene.envs[1], 0)
    rows["damping"] += 1.0  # from here on each world has rows
    gym.set_actor_dof_properties(scene.envs[1], 0, rows)
    own.set_state(saved)
    assert own._graph is None
    scene.step(2)


@on_warp
def test_free_root_without_mass_is_warned_of(tmp_path, engine, caplog):
    with caplog.at_level(logging.WARNING, "mujoco_batches"):
        Scene((load(tmp_path, FINGER_ON_HINGE), pose())).step()
    assert "the free root 'base' has no mass" in caplog.text
    caplog.clear()
    Scene((load(tmp_path, FINGER_ON_HINGE, fix_base_link=True), pose())).step()
    assert "no mass" not in caplog.text


def test_contact_capacity_is_less_than_all_pairs_at_once():
    from mujoco_batches.engine.numerics import room

    ball = gym.create_sphere(None, 0.1, options())
    scene = Scene(*[(ball, pose(k), 0, 0) for k in range(12)], ground=True)
    contacts, rows = room(scene.sim.layout.model)
    assert contacts == 12 * 11 // 2 + 12  # a slot for each pair that may come close
    assert rows == 4 * 4 * 12


@pytest.mark.parametrize("engine", ENGINES[2:], indirect=True)
def test_step_does_not_synchronize_with_the_gpu(tmp_path, engine):
    scene = mixed_scene(tmp_path)
    run(scene, 3)
    made = scene.sim.engine
    assert made._graph is not None, "a simulate is one CUDA graph"
    roots, dofs, ids = scene.root.clone(), scene.dof.clone(), torch.tensor([3, 5], dtype=torch.int32, device="cuda")
    numbers(scene)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(130):  # the count of dropped contacts is looked at, too
            gym.set_actor_root_state_tensor_indexed(scene.sim, roots, ids, 2)
            gym.set_dof_state_tensor_indexed(scene.sim, dofs, ids, 2)
            gym.set_dof_position_target_tensor_indexed(scene.sim, scene.dof[:, 0].contiguous(), ids, 2)
            gym.simulate(scene.sim)
            scene.refresh()
            gym.refresh_force_sensor_tensor(scene.sim)
            gym.refresh_mass_matrix_tensors(scene.sim)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert np.isfinite(scene.root.cpu().numpy()).all()


def test_launch_with_a_struct_of_another_class_is_refused():
    structs = [cuda_kernels.Layout(), cuda_kernels.Data(), cuda_kernels.Drives(), cuda_kernels.Results()]
    check_structs(cuda_kernels.load_commands, structs)
    with pytest.raises(TypeError, match="load_commands: layout is a Layout, not a Data"):
        check_structs(cuda_kernels.load_commands, [structs[1], structs[0], *structs[2:]])


@on_warp
def test_all_kernels_of_a_step_are_found_without_launching_them(tmp_path, engine, monkeypatch):
    scene = mixed_scene(tmp_path)
    targets, before = {}, numbers(scene)[:3]  # roots, joints and bodies
    with warp_modules.recording(targets):
        scene.sim.engine._advance()
    assert all(map(torch.equal, numbers(scene)[:3], before))
    launched = launched_by(scene.sim.engine._advance, monkeypatch)
    assert len(launched) > 20
    assert launched <= set(targets)
