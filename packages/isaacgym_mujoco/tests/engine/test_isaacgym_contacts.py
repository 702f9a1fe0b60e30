"""Contacts: forces, friction, and which shapes collide."""

import pytest
from isaacgym_scene import ENGINES, Scene, ball, box, gym, joint, link, load, pose, robot

from mujoco_batches.assets.collisions import contact_parameters

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.parametrize("engine", ENGINES[::2], indirect=True)]


@pytest.mark.parametrize(
    "first, second, touch",
    [
        ((0, 0), (0, 0), True),
        ((0, 1), (0, 2), True),
        ((0, 1), (0, 3), False),  # a bit in common
        ((0, 0), (1, 0), False),  # other groups
        ((-1, 0), (1, 0), True),
    ],
)
def test_collision_groups_and_filters_decide_contacts(first, second, touch):
    scene = Scene((box(), pose(0, 0, 0), *first), (box(), pose(0, 0, 0.19), *second), gravity=0.0)
    scene.step()
    assert bool(scene.contacts.abs().sum() > 0) == touch


@pytest.mark.parametrize(
    ("actor", "shape", "read", "touch"),
    [(0, 1, 0, False), (1, 0, 1, True), (1, 2, 1, True), (3, 1, 3, False), (-1, 1, 0, False)],
)
def test_filter_of_a_shape_replaces_that_of_its_actor(actor, shape, read, touch):
    scene = Scene(
        (box(), pose(0, 0, 0), 0, 1), (box(), pose(0, 0, 0.19), 0, actor), gravity=0.0,
        before=lambda env: set_filter(env, 1, read, shape),
    )  # fmt: skip
    scene.step()
    assert bool(scene.contacts.abs().sum() > 0) == touch
    assert [p.filter for p in gym.get_actor_rigid_shape_properties(scene.envs[0], 1)] == [shape]
    shapes = gym.get_actor_rigid_shape_properties(scene.envs[0], 0)
    shapes[0].friction = 0.3
    # writing the filter that was read changes nothing
    # in-hand-rotation gives an object the properties of a hand, which are more
    for properties in (shapes, [*shapes, *shapes], []):
        gym.set_actor_rigid_shape_properties(scene.envs[0], 0, properties)
        assert [p.friction for p in gym.get_actor_rigid_shape_properties(scene.envs[0], 0)] == [0.3]
    shapes[0].filter = 4
    with pytest.raises(NotImplementedError, match="filters cannot change after prepare_sim"):
        gym.set_actor_rigid_shape_properties(scene.envs[0], 0, shapes)


def set_filter(env, actor, before, value):
    shapes = gym.get_actor_rigid_shape_properties(env, actor)
    assert [p.filter for p in shapes] == [before]
    shapes[0].filter = value
    gym.set_actor_rigid_shape_properties(env, actor, shapes)


def test_links_sharing_a_joint_do_not_collide_and_filters_disable_the_others(tmp_path):
    where, limits = {"axis": (0, 0, 1), "at": (0.2, 0, 0)}, {"lower": -1, "upper": 1, "effort": 1, "velocity": 9}
    joints = [joint(f"j{a}", "revolute", a, b, **where, **limits) for a, b in ("ab", "bc")]
    text = robot(*(link(name, shape='sphere radius="0.3"') for name in "abc"), *joints)
    for fixed in (False, True):
        asset = load(tmp_path, text, fix_base_link=fixed)
        scene = Scene((asset, pose(), 0, 0), gravity=0.0)
        scene.step()
        touching = scene.contacts[:3].abs().sum(dim=1) > 0
        assert touching.tolist() == [True, False, True]  # a and c overlap, and no joint connects them
        scene = Scene((asset, pose(), 0, 1), gravity=0.0)
        scene.step()
        assert scene.contacts.abs().sum() == 0


def test_fixed_actor_stays_in_place_and_blocks_others():
    scene = Scene((box(fix_base_link=True), pose(0, 0, 1)), (ball(), pose(0, 0, 1.25)), ground=True)
    scene.step(100)
    assert scene.root[1, 2].item() == pytest.approx(1.2, abs=2e-3)
    states = scene.root.clone()
    states[0, :3] = scene.tensor([5.0, 0.0, 1.0])
    scene.set_roots(states, [0])
    scene.step(100)
    assert scene.root[0, :3].tolist() == [5.0, 0.0, 1.0]
    assert scene.root[1, 2].item() < 0.2  # the ball fell in the first environment alone
    assert scene.root[3, 2].item() == pytest.approx(1.2, abs=2e-3)


@pytest.mark.parametrize("bound, depth", [(0.5, 0.1), (1.0, 0.2), (2.0, 0.2)])
def test_bodies_leave_the_ground_at_most_at_the_depenetration_velocity(bound, depth):
    """Unbounded, the speed is 16 m/s per metre of depth."""
    deep = Scene((box(density=1000.0), pose(z=0.1 - depth)), ground=True, dt=0.005, depenetration=bound)
    speeds, heights = [], []
    for _ in range(200):
        deep.step()
        speeds.append(deep.root[0, 9].item())
        heights.append(deep.root[0, 2].item())
    assert 0.9 * bound < max(speeds) < 1.1 * bound
    assert heights[-1] == pytest.approx(0.1, abs=2e-4) and abs(speeds[-1]) < 0.05  # at rest as without a bound
    assert deep.contacts[0, 2].item() == pytest.approx(8.0 * 9.81, rel=0.02)


def test_depenetration_velocities_that_are_not_reached_leave_the_contacts_as_they_are():
    assert contact_parameters(100.0) == contact_parameters(5.0) == contact_parameters(0.0) == {}
    assert contact_parameters(1.0)["solimp"][:2] == [0.99, 0.2]
