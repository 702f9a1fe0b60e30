"""Ant and Humanoid against IsaacGymEnvs' formulas by hand, over a fake simulator, and with the physics."""

import math

import pytest
import torch
from task_helpers import baseline, begin, candidate, fake, shipped, whole_state

from envcoder_bench.sources.registry import find_spec

BOTH = pytest.mark.parametrize("name", ["Ant", "Humanoid"])
S = math.sqrt(0.5)
# what the YAML says, for formulas by hand
ALIVE, DEATH, HEIGHT = {"Ant": 0.5, "Humanoid": 2.0}, {"Ant": -2.0, "Humanoid": -1.0}, {"Ant": 0.31, "Humanoid": 0.8}
ACTIONS, LIMIT, VEL = {"Ant": 0.005, "Humanoid": 0.01}, {"Ant": 0.1, "Humanoid": 0.25}, {"Ant": 0.2, "Humanoid": 0.1}


def running(name, n=2):
    """At (0, 1, 1.2), turned left by 90 degrees, running to the target's side at 3 m/s and towards it at 2 m/s."""
    task = fake(name, n)
    task.state["root_states"][:] = torch.tensor([0, 1, 1.2, 0, 0, S, S, 2, 3, 0.5, 0.1, 0.2, 0.3])
    task.reset(torch.ones(n, dtype=torch.bool), {}, {})
    return task


# what the task keeps


@BOTH
def test_potentials_increase_by_the_speed_towards_the_target(name):
    task = fake(name, 3)
    root = task.state["root_states"]
    task.reset(torch.ones(3, dtype=torch.bool), {}, {})
    assert torch.equal(task.state["potentials"], task.state["prev_potentials"])
    before = task.state["potentials"].clone()
    root[:, 0] += torch.tensor([0.0166 * 5.0, 0.0, -0.0166])  # what the physics of a step at 5, 0 and -1 m/s does
    task.step(torch.zeros(3, task.num_dofs))
    assert torch.equal(task.state["prev_potentials"], before)
    grown = task.state["potentials"] - task.state["prev_potentials"]
    torch.testing.assert_close(grown, torch.tensor([5.0, 0.0, -1.0]), atol=0.01, rtol=0)  # float32 of 60,240 m/s
    root[:, 0] += 0.0166 * 2.0
    task.step(torch.zeros(3, task.num_dofs))
    grown = task.state["potentials"] - task.state["prev_potentials"]
    torch.testing.assert_close(grown, torch.tensor([2.0, 2.0, 2.0]), atol=0.01, rtol=0)


@BOTH
def test_reset_clears_the_progress_of_masked_environments(name):
    task = fake(name, 2)
    task.state["root_states"][:, 0] = 50.0
    task.step(torch.zeros(2, task.num_dofs))
    mask = torch.tensor([True, False])
    task.reset(mask, {"root_states": task.state["initial_root_states"]}, {})
    task.reset(mask, {}, {"targets": torch.tensor([[0.0, 10.0, 0.0]]).repeat(2, 1)})
    potentials, before = task.state["potentials"], task.state["prev_potentials"]
    torch.testing.assert_close(potentials, torch.tensor([-10.0, -950.0]) / 0.0166)
    torch.testing.assert_close(before, torch.tensor([-10.0, -1000.0]) / 0.0166)


@BOTH
def test_heading_and_up_vectors_match_the_torso_axes(name):
    task = fake(name, 50)
    quat = torch.nn.functional.normalize(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    x, y, z, w = quat.unbind(1)
    task.state["root_states"][:, 3:7] = quat
    task.step(torch.zeros(50, task.num_dofs))
    forward = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w)], 1)  # by the textbook
    up = torch.stack([2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)], 1)
    torch.testing.assert_close(task.state["heading_vec"], forward)
    torch.testing.assert_close(task.state["up_vec"], up)


# fitness


@BOTH
def test_fitness_is_the_speed_towards_the_target(name):
    task = running(name)
    task.state["targets"][1] = torch.tensor([3.0, 5.0, 7.0])  # from (0, 1): 3 ahead, 4 to the left
    fitness = task.fitness(task.state)
    assert fitness.tolist() == pytest.approx([2.0 - 3.0 * 0.001, 2.0 * 0.6 + 3.0 * 0.8], abs=1e-4)


@BOTH
def test_unshaped_terminates_after_a_fall_and_defines_no_goal(name):
    task = running(name)
    task.state["root_states"][:, 2] = 0.1  # fallen: the unshaped terminal says so, and the evaluation then counts 0
    assert bool(baseline(name, "unshaped")("compute_terminal", whole_state(task)).all())
    assert "compute_goal" not in baseline(name, "unshaped").candidate.functions


# the human baseline


def state_for_reward(name):
    """Three robots: one runs ahead, one is turned by 90 degrees and tilted, one has fallen."""
    task = fake(name, 3)
    root = task.state["root_states"]
    root[:, 2], root[:, 6] = 1.2, 1.0
    tilt = math.radians(30) / 2
    turned = torch.tensor([S * math.sin(tilt), S * math.sin(tilt), S * math.cos(tilt), S * math.cos(tilt)])
    root[1, 3:7] = turned  # by 30 degrees about its own x, then by 90 about z
    root[2, 2] = HEIGHT[name] - 0.01
    task.state["dof_pos"][:, 0] = 0.995  # the fake's ranges are -1 to 1
    task.state["dof_pos"][:, 1] = -0.995
    task.state["dof_vel"].fill_(2.0)
    task.state["dof_force_tensor"][:] = 0.5 * task.constants["motor_efforts"]
    task.state["potentials"].fill_(-100.0)
    task.state["prev_potentials"].fill_(-104.0)
    state = whole_state(task)
    state["actions"].fill_(0.5)
    return state, task.num_dofs


@BOTH
def test_human_reward_matches_hand_computed_values(name):
    state, d = state_for_reward(name)
    reward, components = baseline(name, "human")("compute_reward", state)
    strength = [(k + 1) / d for k in range(d)]  # the fake's motors: 1, 2, 3, ... N m
    if name == "Ant":
        energy, limits = d * 0.5 * 2.0 * 0.2, 1.0  # only upper ends count
    else:
        energy, limits = sum(strength) * 0.5 * 2.0 * 0.1, 0.015 / 0.02 * (strength[0] + strength[1])
    costs = ACTIONS[name] * d * 0.25 + 0.05 * energy + LIMIT[name] * limits
    assert components["energy_cost"][0].item() == pytest.approx(-0.05 * energy)
    assert components["joints_at_limit_cost"][0].item() == pytest.approx(-LIMIT[name] * limits, rel=1e-4)
    ahead = 4.0 + ALIVE[name] + 0.1 + 0.5 - costs
    turned = 4.0 + ALIVE[name] - costs  # cosine of 30 degrees is below 0.93, and the target is at its side
    assert reward.tolist() == pytest.approx([ahead, turned, DEATH[name]], abs=1e-3)


@BOTH
def test_heading_reward_is_full_above_a_cosine_of_0_8(name):
    task = fake(name, 3)
    for row, cosine in enumerate((0.81, 0.4, -0.5)):
        half = math.acos(cosine) / 2
        task.state["root_states"][row, 2:7] = torch.tensor([1.2, 0.0, 0.0, math.sin(half), math.cos(half)])
    _, components = baseline(name, "human")("compute_reward", whole_state(task))
    assert components["heading"].tolist() == pytest.approx([0.5, 0.25, -0.5 * 0.5 / 0.8], abs=1e-4)


@BOTH
def test_human_observation_matches_hand_computed_values(name):
    """The robot is rotated to its right: angles of IsaacGymEnvs are from 0 to 2 pi only for the Ant."""
    task = running(name, 1)
    task.state["root_states"][:, 3:7] = torch.tensor([0, 0, -S, S])
    d, sensors = task.num_dofs, task.state["vec_sensor_tensor"].shape[1]
    task.state["dof_pos"][:] = torch.linspace(-1.0, 1.0, d)
    task.state["dof_vel"][:] = torch.arange(float(d))
    task.state["dof_force_tensor"].fill_(7.0)
    task.state["vec_sensor_tensor"][:] = torch.arange(float(sensors))
    state = whole_state(task)
    state["actions"][:] = torch.arange(d) * 0.01
    obs = baseline(name, "human")("compute_observation", state)
    yaw = 1.5 * math.pi if name == "Ant" else -0.5 * math.pi
    to_target = math.atan2(-1.2, 1000.0) + (-1.5 if name == "Ant" else 0.5) * math.pi
    heading = 1.0 / math.sqrt(1000.0**2 + 1.0)  # it faces -y, and the target is 1 m in that direction, far ahead in x
    spin = [x * (1.0 if name == "Ant" else 0.25) for x in (-0.2, 0.1, 0.3)]
    want = [1.2, -3.0, 2.0, 0.5, *spin, yaw, 0.0, to_target, 1.0, heading]
    want += torch.linspace(-1.0, 1.0, d).tolist() + [VEL[name] * k for k in range(d)]
    scale = 0.1 if name == "Ant" else 0.01
    want += ([] if name == "Ant" else [0.07] * d) + [scale * k for k in range(sensors)] + [0.01 * k for k in range(d)]
    assert obs.shape == (1, {"Ant": 60, "Humanoid": 108}[name])
    assert obs[0].tolist() == pytest.approx(want, abs=1e-4)


@BOTH
def test_baseline_torque_is_the_action_times_the_motor_effort(name):
    action = torch.linspace(-1.0, 1.0, fake(name).num_dofs).repeat(6, 1)
    for which in ("human", "unshaped"):
        torque = baseline(name, which)("compute_torque", whole_state(fake(name)), action)
        torch.testing.assert_close(torque, action * torch.arange(1.0, action.shape[1] + 1.0))
    cfg = shipped(name)
    cfg["env"]["powerScale"] = 0.5
    weak = type(fake(name))(cfg, fake(name).sim)
    torque = baseline(name, "human")("compute_torque", whole_state(weak), action)
    torch.testing.assert_close(torque, 0.5 * action * torch.arange(1.0, action.shape[1] + 1.0))


@BOTH
@pytest.mark.parametrize("which", ["human", "unshaped"])
def test_initial_joint_angles_are_near_the_default_and_in_range(name, which):
    task = find_spec(name).make(shipped(name), 500, "mujoco_cpu", "cpu")
    torch.manual_seed(0)
    begin(task, baseline(name, which))
    offset = task.state["dof_pos"] - task.state["initial_dof_pos"]
    lower, upper = task.constants["dof_limits_lower"], task.constants["dof_limits_upper"]
    assert bool(((task.state["dof_pos"] >= lower) & (task.state["dof_pos"] <= upper)).all())
    assert offset.abs().max() <= 0.2 and offset.max() > 0.199 and offset.min() < -0.19
    assert 0.0999 < task.state["dof_vel"].abs().max() <= 0.1
    torch.testing.assert_close(task.state["root_states"], task.state["initial_root_states"])
    if name == "Ant":  # ankles begin at the end of their range that is next to 0
        want = [0.0, 30.0, 0.0, -30.0, 0.0, -30.0, 0.0, 30.0]
        torch.testing.assert_close(torch.rad2deg(task.state["initial_dof_pos"][0]), torch.tensor(want))


# the unshaped baseline


@BOTH
def test_unshaped_reward_and_observation_are_raw(name):
    task = running(name, 1)
    task.state["potentials"].fill_(-10.0)
    task.state["prev_potentials"].fill_(-13.0)
    functions, state = baseline(name, "unshaped"), whole_state(task)
    assert functions("compute_reward", state).tolist() == [3.0]
    parts = (task.state["root_states"][:, 2:], task.state["dof_pos"], task.state["dof_vel"])
    want = torch.cat((*parts, task.state["vec_sensor_tensor"]), 1)
    assert torch.equal(functions("compute_observation", state), want)


# with the physics


@pytest.mark.slow
@BOTH
def test_ant_stands_on_its_feet_and_humanoid_falls(name):
    """With position drives the Ant stands on four feet; the Humanoid cannot balance, and its fall is detected."""
    task = find_spec(name).make(shipped(name), 2, "mujoco_cpu", "cpu")
    everywhere = torch.ones(2, dtype=torch.bool)
    task.set_drive_mode(~everywhere)
    stance = task.state["initial_dof_pos"].clone()
    if name == "Ant":
        stance[:, 1::2] = torch.deg2rad(torch.tensor([60.0, -60.0, -60.0, 60.0]))
    task.reset(everywhere, {**task.default_state, "dof_pos": stance}, {})
    terminal, fell = baseline(name, "unshaped"), torch.zeros(2, dtype=torch.bool)
    sensors = task.state["vec_sensor_tensor"].view(2, -1, 6)
    weight = 9.81 * task.sim._robot.mj_model.body_mass.sum()
    for _ in range(400):
        task.step(stance)
        fell |= terminal("compute_terminal", whole_state(task))
    assert bool(fell.all()) == (name == "Humanoid")
    if name == "Ant":
        forces = task.state["contact_forces"]
        assert bool((sensors[:, :, :3].norm(dim=2) > 0.1 * weight).all())
        torch.testing.assert_close(
            sensors[:, :, :3].norm(dim=2), forces[:, task.constants["extremities_index"]].norm(dim=2)
        )
        assert forces[:, :, 2].sum(dim=1).tolist() == pytest.approx([weight] * 2, rel=0.05)
        assert task.state["root_states"][:, 7:].abs().max() < 0.05 and task.fitness(task.state).abs().max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("name", "spin"), [("Ant", 60.0), ("Humanoid", 20.0)])
def test_tumbling_robot_does_not_gain_angular_velocity(name, spin):
    """Gyroscopic forces do no work: a limp robot tumbling in free flight can only slow down."""
    task = find_spec(name).make(shipped(name), 16, "mujoco_cpu", "cpu")
    everywhere = torch.ones(16, dtype=torch.bool)
    task.set_drive_mode(everywhere)
    start = {key: x.clone() for key, x in task.default_state.items()}
    axis = torch.nn.functional.normalize(torch.randn(16, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    start["root_states"][:, 2], start["root_states"][:, 10:13] = 1000.0, spin * axis
    task.reset(everywhere, start, {})
    for _ in range(120):  # 2 s
        task.step(torch.zeros(16, task.num_dofs))
        assert not bool(task.unstable.any())
        assert task.state["root_states"][:, 10:13].norm(dim=1).max() < 1.5 * spin
    assert task.state["root_states"][:, 10:13].norm(dim=1).mean() < spin


# the shipped candidates


@pytest.mark.parametrize(
    ("name", "stem"),
    [("Ant", "000_speed"), ("Ant", "004_upside_down_ends"), ("Ant", "006_bound_names"), ("Humanoid", "000_speed"),
     ("Humanoid", "006_alternate_feet")],
)  # fmt: skip
def test_rewards_prefer_running_to_standing(name, stem):
    task = fake(name, 2)
    task.state["root_states"][:, 2] = 1.2
    task.state["root_states"][0, 7] = 3.0
    task.state["prev_potentials"][0] -= 3.0
    reward, _ = candidate(name, stem)("compute_reward", whole_state(task))
    assert reward[0] > 1.5 * reward[1] > 0


@BOTH
def test_no_forces_observation_ignores_forces_and_has_the_target_direction(name):
    task = running(name, 3)
    functions = candidate(name, "001_no_forces")
    before = functions("compute_observation", whole_state(task)).clone()
    for key in ("vec_sensor_tensor", "contact_forces", "dof_force_tensor"):
        task.state[key].normal_()
    after = functions("compute_observation", whole_state(task))
    assert torch.equal(after, before) and after.shape[1] == {"Ant": 36, "Humanoid": 75}[name]
    if name == "Ant":  # turned left by 90 degrees: the target is to its right
        assert after[0, 7:9].tolist() == pytest.approx([0.0, -1.0], abs=2e-3)


def test_joint_targets_span_the_ranges_of_the_ant():
    action = torch.stack((-torch.ones(8), torch.zeros(8), torch.ones(8)))
    task = find_spec("Ant").make(shipped("Ant"), 3, "mujoco_cpu", "cpu")
    target = candidate("Ant", "002_joint_targets")("compute_dof_target", whole_state(task), action)
    lower, upper = task.constants["dof_limits_lower"], task.constants["dof_limits_upper"]
    torch.testing.assert_close(target, torch.stack((lower, (lower + upper) / 2, upper)))


def test_joint_targets_of_the_humanoid_are_relative_to_standing():
    task = find_spec("Humanoid").make(shipped("Humanoid"), 3, "mujoco_cpu", "cpu")
    action = torch.stack((-torch.ones(21), torch.zeros(21), torch.ones(21)))
    target = candidate("Humanoid", "002_joint_targets")("compute_dof_target", whole_state(task), action)
    lower, upper = task.constants["dof_limits_lower"], task.constants["dof_limits_upper"]
    assert bool((target[1] == 0).all()) and bool((target >= lower).all()) and bool((target <= upper).all())


def test_diagonal_pairs_share_one_action():
    """Positive torques press the feet of legs 1 and 4 down, negative torques those of legs 2 and 3."""
    task = find_spec("Ant").make(shipped("Ant"), 2, "mujoco_cpu", "cpu")
    action = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    torque = candidate("Ant", "003_diagonal_pairs")("compute_torque", whole_state(task, 4), action)
    first, second = torque.tolist()
    assert first == [0.0, 15.0, 0.0, 0.0, 0.0, -15.0, 0.0, 0.0]
    assert second == [0.0, 0.0, 15.0, -15.0, 0.0, 0.0, 15.0, 15.0]


def test_upside_down_terminates():
    task = fake("Ant", 3)
    task.state["root_states"][:, 2] = torch.tensor([0.5, 0.5, 0.3])
    task.state["root_states"][1, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.1])
    task.step(torch.zeros(3, 8))
    terminal = candidate("Ant", "004_upside_down_ends")("compute_terminal", whole_state(task))
    assert terminal.tolist() == [False, True, True]


def test_all_directions_cover_all_headings_and_targets():
    task = fake("Ant", 2000)
    torch.manual_seed(0)
    begin(task, candidate("Ant", "005_all_directions"))
    for vector in (task.state["heading_vec"], task.state["targets"] / 1000.0):
        torch.testing.assert_close(vector.norm(dim=1), torch.ones(2000))
        assert vector[:, :2].mean(dim=0).abs().max() < 0.06 and vector[:, 2].abs().max() < 1e-6
        assert vector[:, :2].min() < -0.99 and vector[:, :2].max() > 0.99
    torch.testing.assert_close(task.state["potentials"], torch.full((2000,), -1000.0 / 0.0166), rtol=1e-4, atol=0)


def test_smooth_strength_stays_within_motor_efforts():
    task = fake("Humanoid", 4)
    task.state["dof_pos"].fill_(-9.0)
    action = torch.ones(4, 21)
    torque = candidate("Humanoid", "003_smooth_strength")("compute_torque", whole_state(task), action)
    torch.testing.assert_close(torque, task.constants["motor_efforts"].repeat(4, 1))


def test_stumbling_terminates():
    task = fake("Humanoid", 4)
    task.state["root_states"][:, 2] = torch.tensor([1.3, 0.95, 1.3, 1.3])
    for row, degrees in ((2, 50.0), (3, 70.0)):
        half = math.radians(degrees) / 2
        task.state["root_states"][row, 3:7] = torch.tensor([0.0, math.sin(half), 0.0, math.cos(half)])
    task.step(torch.zeros(4, 21))
    terminal = candidate("Humanoid", "004_stumble_ends")("compute_terminal", whole_state(task))
    assert terminal.tolist() == [False, True, False, True]


def test_running_start_has_one_hip_ahead():
    task = find_spec("Humanoid").make(shipped("Humanoid"), 500, "mujoco_cpu", "cpu")
    torch.manual_seed(0)
    begin(task, candidate("Humanoid", "005_running_start"))
    speed, hips = task.state["root_states"][:, 7], task.state["dof_pos"][:, [5, 11]]
    assert 0.0 <= speed.min() < 0.05 and 2.95 < speed.max() <= 3.0
    fast = speed > 2.0
    assert bool((hips[fast].prod(dim=1) < 0).all()) and 0.4 < (hips[fast][:, 0] > 0).float().mean() < 0.6


def test_alternate_feet_reward_pays_the_foot_whose_turn_it_is():
    task = fake("Humanoid", 4)
    task.state["vec_sensor_tensor"][0, 2] = 300.0  # the right foot stands
    task.state["vec_sensor_tensor"][1, 8] = 300.0  # the left
    task.state["vec_sensor_tensor"][2, [2, 8]] = 300.0
    own = {**whole_state(task), "progress_buf": torch.full((4,), 10)}  # a quarter of the first stride: right's turn
    _, components = candidate("Humanoid", "006_alternate_feet")("compute_reward", type(whole_state(task))(own))
    assert components["turns"].tolist() == pytest.approx([0.6, 0.0, 0.3, 0.3])
