import math

import pytest
import torch
from task_helpers import baseline, begin, fake, shipped, whole_state

from envcoder_bench.sources.registry import find_spec

S = math.sqrt(0.5)


def walking(n: int = 2):
    """Faces world y and walks ahead at 1 m/s, rises at 0.5 m/s and turns left at 0.5 rad/s."""
    task = fake("Anymal", n)
    task.state["root_states"][:] = torch.tensor([0, 0, 0.5, 0, 0, S, S, 0, 1, 0.5, 0, 0, 0.5])
    task.state["commands"][:] = torch.tensor([1.5, 0.0, 0.5])
    task.state["torques"].fill_(10.0)
    return task


def test_default_drives_are_relative_to_the_default_stance():
    task = fake("Anymal", 1)
    action = torch.linspace(-1, 1, 12).unsqueeze(0)
    target = task.default_dof_target(action, task.state)
    torch.testing.assert_close(target, task.state["default_dof_pos"] + 0.5 * action)


# fitness


def test_fitness_of_perfect_tracking_is_one_at_any_orientation():
    task = fake("Anymal", 50)
    quat = torch.nn.functional.normalize(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    x, y, z, w = quat.unbind(1)
    matrix = torch.stack(  # rotation matrices by the textbook, so that no helper of the task judges itself
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
         2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
         2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], dim=1
    ).view(50, 3, 3)  # fmt: skip
    command = torch.tensor([1.2, -0.4, 0.7])
    task.state["root_states"][:, 3:7] = quat
    task.state["root_states"][:, 7:10] = matrix @ torch.tensor([1.2, -0.4, 0.3])
    task.state["root_states"][:, 10:13] = matrix @ torch.tensor([0.1, 0.2, 0.7])
    task.state["commands"][:] = command
    torch.testing.assert_close(task.fitness(task.state), torch.ones(50))


def test_fitness_matches_hand_computed_values():
    task = walking()
    # linear error 0.5 m/s: exp(-0.25 / 0.25); no yaw error
    torch.testing.assert_close(task.fitness(task.state), torch.full((2,), (math.exp(-1.0) + 0.5) / 1.5))
    task.state["commands"][:] = torch.tensor([1.0, 0.0, -0.5])
    torch.testing.assert_close(task.fitness(task.state), torch.full((2,), (1.0 + 0.5 * math.exp(-4.0)) / 1.5))


# the human baseline


def test_human_reward_matches_hand_computed_values():
    task = walking()
    reward, components = baseline("Anymal", "human")("compute_reward", whole_state(task))
    by_hand = {
        "lin_vel_xy": 0.02 * math.exp(-1.0),
        "ang_vel_z": 0.02 * 0.5,
        "torque": -0.02 * 0.000025 * 12 * 100.0,
    }
    assert set(components) == set(by_hand)
    for key, x in by_hand.items():
        assert components[key].tolist() == pytest.approx([x, x]), key
    torch.testing.assert_close(reward, torch.full((2,), sum(by_hand.values())))


def test_human_reward_is_never_negative():
    task = walking()
    task.state["torques"].fill_(100.0)
    reward, components = baseline("Anymal", "human")("compute_reward", whole_state(task))
    assert reward.tolist() == [0.0, 0.0] and bool((sum(components.values()) < 0).all())


def test_human_observation_matches_hand_computed_values():
    task = walking(1)
    task.state["dof_pos"][:] = task.state["default_dof_pos"] + torch.arange(12) * 0.1
    task.state["dof_vel"][:] = torch.arange(12.0)
    state = whole_state(task)
    state["actions"][:] = torch.arange(12) * 0.01
    obs = baseline("Anymal", "human")("compute_observation", state)
    assert obs.shape == (1, 48)
    ramp = [0.1 * k for k in range(12)]
    want = [2.0, 0.0, 1.0, 0.0, 0.0, 0.125, 0.0, 0.0, -1.0, 3.0, 0.0, 0.125]
    want += ramp + [0.5 * x for x in ramp] + [0.1 * x for x in ramp]
    assert obs[0].tolist() == pytest.approx(want, abs=1e-5)


def test_human_gravity_is_rotated_like_isaacgymenvs():
    task = fake("Anymal", 1)
    task.state["root_states"][:, 3:7] = torch.tensor([S, 0.0, 0.0, S])  # rolled to the right by 90 degrees
    obs = baseline("Anymal", "human")("compute_observation", whole_state(task))
    assert obs[0, 6:9].tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-6)  # in the base's frame it would be -1


@pytest.mark.parametrize(("name", "knees_end"), [("human", True), ("unshaped", False)])
def test_terminal_matches_contact_forces(name, knees_end):
    task = fake("Anymal", 5)
    forces = task.state["contact_forces"]
    forces[0, 0] = torch.tensor([0.8, 0.8, 0.0])  # base, 1.13 N
    forces[1, 0, 2] = 0.9
    forces[2, 8, 0] = -1.1  # right front knee
    forces[3, [3, 6, 9, 12], 2] = 130.0  # it stands
    got = baseline("Anymal", name)("compute_terminal", whole_state(task))
    assert got.tolist() == [True, False, knees_end, False, False]


def test_human_initial_states_are_within_their_ranges():
    task = fake("Anymal", 2000)
    torch.manual_seed(0)
    begin(task, baseline("Anymal", "human"))
    assert task.state["root_states"][7].tolist() == pytest.approx([0, 0, 0.62, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    ratio = task.state["dof_pos"] / task.state["default_dof_pos"]
    for x, low, high in ((ratio, 0.5, 1.5), (task.state["dof_vel"], -0.1, 0.1)):
        assert low <= x.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < x.max() <= high


@pytest.mark.parametrize("name", ["human", "unshaped"])
def test_commands_cover_the_configured_range(name):
    task = fake("Anymal", 2000)
    torch.manual_seed(0)
    begin(task, baseline("Anymal", name))
    for column, limit in enumerate((2.0, 1.0, 1.0)):
        command = task.state["commands"][:, column]
        assert -limit <= command.min() < -0.99 * limit and 0.99 * limit < command.max() <= limit
        assert abs(command.mean().item()) < 0.1 * limit


# the unshaped baseline


def test_unshaped_reward_is_sparse_success():
    task = walking(4)
    task.state["commands"][0] = torch.tensor([1.0, 0.0, 0.5])
    task.state["commands"][1] = torch.tensor([1.2, 0.1, 0.4])  # 0.224 m/s off
    task.state["commands"][2] = torch.tensor([1.2, 0.2, 0.5])  # 0.283 m/s off
    task.state["commands"][3] = torch.tensor([1.0, 0.0, 0.8])  # 0.3 rad/s off
    reward = baseline("Anymal", "unshaped")("compute_reward", whole_state(task))
    assert reward.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_unshaped_observation_and_action_are_raw():
    task = walking(1)
    functions = baseline("Anymal", "unshaped")
    state = whole_state(task)
    root = task.state["root_states"][:, 2:]
    want = torch.cat((root, task.state["commands"], task.state["dof_pos"], task.state["dof_vel"]), dim=1)
    assert torch.equal(functions("compute_observation", state), want)
    action = torch.full((1, 12), 0.3)
    torch.testing.assert_close(functions("compute_dof_target", state, action), state["default_dof_pos"] + 0.3)


# with the physics


@pytest.fixture(scope="module")
def robots():
    task = find_spec("Anymal").make(shipped("Anymal"), 4, "mujoco_cpu", "cpu")
    task.set_drive_mode(torch.zeros(4, dtype=torch.bool))
    return task


def test_default_stance_is_stable_with_contacts_on_feet_only(robots):
    everywhere = torch.ones(4, dtype=torch.bool)
    stance = {
        "root_states": robots.state["initial_root_states"],
        "dof_pos": robots.state["default_dof_pos"],
        "dof_vel": torch.zeros(4, 12),
    }
    robots.reset(everywhere, stance, {"commands": torch.zeros(4, 3)})
    target = robots.default_dof_target(torch.zeros(4, 12), robots.state)
    forces = robots.state["contact_forces"]
    not_feet = [k for k in range(13) if k not in robots.constants["feet_indices"].tolist()]
    for _ in range(100):  # 2 s
        robots.step(target)
        assert bool((forces[:, not_feet].norm(dim=2) < 1.0).all())
    assert not bool(robots.unstable.any())
    assert bool((robots.state["root_states"][:, 2] > 0.45).all())
    feet = forces[:, robots.constants["feet_indices"], 2]
    assert bool((feet > 20.0).all())  # N: every foot carries a share
    assert bool((robots.fitness(robots.state) > 0.99).all())  # standing is what the zero command asks for
    for name in ("human", "unshaped"):
        assert not bool(baseline("Anymal", name)("compute_terminal", whole_state(robots)).any())
