"""AllegroHand against IsaacGymEnvs' formulas by hand, over a fake simulator, and with the physics."""

import math

import pytest
import torch
from task_helpers import baseline, begin, candidate, fake, shipped, whole_state

from envcoder_bench.sources.registry import find_spec
from envcoder_bench.torch_utils import quat_apply, quat_diff_rad

EVERYWHERE = torch.ones(3, dtype=torch.bool)


def turned(degrees: float, axis: int = 2):
    """Quaternion xyzw of a turn about a coordinate axis."""
    quat = [0.0, 0.0, 0.0, math.cos(math.radians(degrees) / 2)]
    quat[axis] = math.sin(math.radians(degrees) / 2)
    return torch.tensor(quat)


@pytest.fixture
def hands():
    """Cubes 3 cm beside the goal, turned by 90, 5 and -180 degrees; the goals are unturned."""
    task = fake("AllegroHand", 3)
    task.reset(EVERYWHERE, dict(task.default_state), {})
    task.state["object_pos"][:] = task.state["goal_pos"] + torch.tensor([0.03, 0.0, 0.0])
    task.state["object_rot"][:] = torch.stack([turned(90), turned(5), turned(-180)])
    return task


def test_isaacgymenvs_yaml_is_accepted_with_a_warning_about_unused_keys():
    cfg = shipped("AllegroHand")
    env = dict(numEnvs=16384, envSpacing=0.75, enableDebugVis=False, aggregateMode=1, stiffnessScale=1.0)
    env.update(forceLimitScale=1.0, useRelativeControl=False, startPositionNoise=0.01, startRotationNoise=0.0)
    env.update(resetRotationNoise=0.0, startObjectPoseDY=-0.19, startObjectPoseDZ=0.06, forceScale=0.0)
    env.update(forceProbRange=[0.001, 0.1], forceDecay=0.99, forceDecayInterval=0.08, objectType="block")
    env.update(observationType="full_state", asymmetric_observations=False, printNumSuccesses=False)
    env.update(maxConsecutiveSuccesses=0, asset={"assetFileName": "hand.urdf"}, enableCameraSensors=False)
    full = {**cfg, "env": {**cfg["env"], **env}, "task": {"randomize": False}}
    with pytest.warns(UserWarning, match="have no effect here: .*stiffnessScale.*startObjectPoseDY.*objectType"):
        assert find_spec("AllegroHand").make(full, 1, "mujoco_cpu", "cpu").max_episode_length == 600


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("objectType", "egg", "is 'egg', but can only be 'block': the object is always the cube"),
        ("useRelativeControl", True, "is True.*004_relative_targets.py"),
        ("observationType", "full_no_vel", "002_no_velocity.py"),
        ("forceScale", 1.0, "no random pushes"),
        ("maxConsecutiveSuccesses", 50, "until the cube falls"),
        ("resetTime", 8.0, "set env.episodeLength"),
    ],
)
def test_unsupported_settings_are_refused_with_a_remedy(key, value, instead):
    cfg = shipped("AllegroHand")
    cfg["env"][key] = value
    with pytest.raises(ValueError, match=f"task.env.{key} .*{instead}"):
        type(fake("AllegroHand"))(cfg, fake("AllegroHand").sim)


# what the task keeps


def test_goal_is_reached_within_a_tenth_of_a_radian_for_either_quaternion_sign(hands):
    goals = [turned(0), -turned(0), turned(0)]  # a quaternion and its negative are the same rotation
    for degrees, reached in ((5.7, True), (-5.7, True), (5.8, False), (180.0, False), (355.0, True)):
        hands.state["object_rot"][:] = turned(degrees)
        hands.state["goal_rot"][:] = torch.stack(goals)
        hands.step(torch.zeros(3, 16))
        assert hands.new_goal.tolist() == [reached] * 3, degrees
        sparse = baseline("AllegroHand", "unshaped")("compute_reward", whole_state(hands))
        assert sparse.tolist() == [250.0 if reached else 0.0] * 3
        fitness = hands.fitness(hands.state)
        assert fitness.tolist() == [1.0 if reached else 0.0] * 3  # an episode's is their sum


def test_successes_accumulate_and_are_reset_with_the_episode(hands):
    for _ in range(2):
        hands.step(torch.zeros(3, 16))
    assert hands.state["successes"].tolist() == [0.0, 2.0, 0.0]
    hands.reset(EVERYWHERE, {}, {"goal_rot": turned(90).repeat(3, 1)})  # a new goal is no new episode
    assert hands.state["successes"].tolist() == [0.0, 2.0, 0.0]
    hands.step(torch.zeros(3, 16))
    assert hands.state["successes"].tolist() == [1.0, 2.0, 0.0] and hands.new_goal.tolist() == [True, False, False]
    hands.reset(torch.tensor([False, True, True]), dict(hands.default_state), {})
    assert hands.state["successes"].tolist() == [1.0, 0.0, 0.0]
    assert hands.state["consecutive_successes"].tolist() == pytest.approx([0.0, 0.1 * 2, 0.0])
    hands.reset(EVERYWHERE, dict(hands.default_state), {})
    assert hands.state["consecutive_successes"].tolist() == pytest.approx([0.1, 0.9 * 0.2, 0.0])


def test_unstable_physics_is_not_a_success(hands):
    hands.unstable[1] = True
    hands.step(torch.zeros(3, 16))
    assert not bool(hands.new_goal.any()) and not bool(hands.state["successes"].any())


def test_new_goals_change_only_masked_environments(hands):
    mask = torch.tensor([True, False, True])
    hands.reset(mask, {}, {"goal_rot": turned(90, 0).repeat(3, 1), "goal_pos": torch.ones(3, 3)})
    assert torch.equal(hands.state["goal_pose"][0], torch.cat((torch.ones(3), turned(90, 0))))
    assert hands.state["goal_pose"][1].tolist() == pytest.approx([0, -0.2, 0.52, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="no goal 'goal_rott'"):
        hands.reset(mask, {}, {"goal_rott": turned(0).repeat(3, 1)})


def test_targets_are_the_last_command_or_the_joints_in_effort_mode(hands):
    hands.set_drive_mode(torch.tensor([False, True, False]))
    hands.step(torch.full((3, 16), 0.25))
    moved = hands.state["dof_pos"][1]
    assert bool((moved != 0.25).all()) and bool((moved != 0.0).all())
    for key in ("prev_targets", "cur_targets"):
        assert torch.equal(hands.state[key], torch.stack([torch.full((16,), 0.25), moved, torch.full((16,), 0.25)]))
    start = {**hands.default_state, "dof_pos": torch.full((3, 16), 0.5)}
    hands.reset(torch.tensor([True, False, False]), start, {})
    assert hands.state["prev_targets"][:, 0].tolist() == [0.5, moved[0].item(), 0.25]


def test_actions_span_the_joint_ranges():
    task = fake("AllegroHand", 2)  # whose joints go from -1 to 1
    action = torch.linspace(-1, 1, 16).repeat(2, 1)
    torch.testing.assert_close(task.default_dof_target(action, whole_state(task)), action)
    unshaped = baseline("AllegroHand", "unshaped")
    torch.testing.assert_close(unshaped("compute_dof_target", whole_state(task), action), action)
    cfg = shipped("AllegroHand")
    cfg["env"]["actionsMovingAverage"] = 0.25
    slow = type(task)(cfg, task.sim)
    slow.state["prev_targets"][:] = 0.8
    target = slow.default_dof_target(torch.full((2, 16), -1.0), whole_state(slow))
    torch.testing.assert_close(target, torch.full((2, 16), 0.25 * -1.0 + 0.75 * 0.8))


def test_fingertip_positions_are_updated():
    task = find_spec("AllegroHand").make(shipped("AllegroHand"), 3, "mujoco_cpu", "cpu")
    assert task.dt == pytest.approx(1 / 30, rel=1e-3)
    task.reset(EVERYWHERE, dict(task.default_state), {})
    where = task.state["fingertip_pos"].clone()
    task.step(torch.ones(3, 16))
    assert bool((task.state["fingertip_pos"] != where).any(dim=2).all())
    assert torch.equal(task.state["fingertip_pos"], task.state["fingertip_state"][..., :3])
    task.reset(torch.tensor([True, False, False]), dict(task.default_state), {})
    torch.testing.assert_close(task.state["fingertip_pos"][0], where[0])
    assert torch.equal(task.state["fingertip_pos"], task.state["fingertip_state"][..., :3])


# both baselines


def test_human_reward_matches_hand_computed_values(hands):
    state = whole_state(hands)
    state["actions"][:] = 0.5
    reward, parts = baseline("AllegroHand", "human")("compute_reward", state)
    assert parts["distance"].tolist() == pytest.approx([-0.3] * 3, rel=1e-4)
    angles = [math.radians(degrees) for degrees in (90, 5, 180)]
    assert parts["rotation"].tolist() == pytest.approx([1 / (angle + 0.1) for angle in angles], 1e-3)
    assert parts["action"].tolist() == pytest.approx([-0.0002 * 16 * 0.25] * 3)
    assert parts["goal"].tolist() == [0.0, 250.0, 0.0] and parts["fall"].tolist() == [0.0] * 3
    assert reward.tolist() == pytest.approx((sum(parts.values())).tolist())
    assert baseline("AllegroHand", "unshaped")("compute_reward", state).tolist() == [0.0, 250.0, 0.0]


def test_fall_distance_is_24_cm_from_the_goal(hands):
    offsets = torch.tensor([[0.0, 0.0, z] for z in (-0.239, -0.241, 0.3)])
    hands.state["object_pos"][:] = hands.state["goal_pos"] + offsets
    for name in ("human", "unshaped"):
        assert baseline("AllegroHand", name)("compute_terminal", whole_state(hands)).tolist() == [False, True, True]
    state = whole_state(hands)
    state["fall_penalty"].fill_(-7.0)
    _, parts = baseline("AllegroHand", "human")("compute_reward", state)
    assert parts["fall"].tolist() == [0.0, -7.0, -7.0]


def test_human_observation_matches_hand_computed_full_state(hands):
    hands.state["dof_pos"][:] = 0.5
    hands.state["dof_vel"][:] = 2.0
    hands.state["dof_force_tensor"][:] = 0.03
    hands.state["object_state"][:, 7:] = torch.tensor([0.1, 0.2, 0.3, 1.0, 2.0, 3.0])
    state = whole_state(hands)
    state["actions"][:] = -0.5
    obs = baseline("AllegroHand", "human")("compute_observation", state)[0].tolist()
    s = math.sqrt(0.5)
    cube = [0.03, -0.2, 0.52, 0.0, 0.0, s, s, 0.1, 0.2, 0.3, 0.2, 0.4, 0.6]
    goal = [0.0, -0.2, 0.52, 0.0, 0.0, 0.0, 1.0]
    want = [0.5] * 16 + [0.4] * 16 + [0.3] * 16 + cube + goal + [0.0, 0.0, s, s] + [-0.5] * 16
    assert obs == pytest.approx(want, abs=1e-6) and len(obs) == 88


def test_unshaped_observation_is_the_raw_state(hands):
    state = whole_state(hands)
    obs = baseline("AllegroHand", "unshaped")("compute_observation", state)
    keys = ("dof_pos", "dof_vel", "dof_force_tensor", "object_state", "goal_rot")
    assert torch.equal(obs, torch.cat([state[key] for key in keys], dim=1)) and obs.shape == (3, 65)


@pytest.mark.parametrize("name", ["human", "unshaped"])
def test_initial_states_are_within_the_configured_ranges(name):
    task = fake("AllegroHand", 4000)
    torch.manual_seed(0)
    begin(task, baseline("AllegroHand", name))
    shift = task.state["object_pos"] - torch.tensor([0.0, -0.2, 0.56])
    assert shift.abs().max() <= 0.01 and shift.min() < -0.0099 and shift.max() > 0.0099
    assert task.state["dof_pos"].abs().max() <= 0.2 and task.state["dof_pos"].max() > 0.199
    assert not bool(task.state["dof_vel"].any()) and not bool(task.state["object_state"][:, 7:].any())
    assert torch.equal(task.state["cur_targets"], task.state["dof_pos"])
    for key in ("object_rot", "goal_rot"):
        x, y, z, w = task.state[key].unbind(1)
        torch.testing.assert_close(x * x + y * y + z * z + w * w, torch.ones(4000))
        # a turn about y by 2b, then about x by 2a: x = sin a cos b, y = cos a sin b, z = sin a sin b, w = cos a cos b
        torch.testing.assert_close(x * y, z * w, atol=1e-6, rtol=0)
        a, b = torch.atan2(x, w), torch.atan2(y, w)
        for half in (a, b):  # half angles from minus to plus a quarter turn; -q is q: up to the sign of w
            folded = torch.atan(torch.tan(half))
            assert folded.abs().max() > 1.55 and abs(folded.mean().item()) < 0.06
    apart = (task.state["object_rot"] * task.state["goal_rot"]).sum(1).abs()
    assert (apart > math.cos(0.05)).float().mean() < 0.01  # goals are not where the cube is


# with the physics


def test_position_drives_reach_their_targets_and_a_dropped_cube_falls():
    """The hand has gravity compensation, so that its drives reach their targets; the cube falls half a metre."""
    task = find_spec("AllegroHand").make(shipped("AllegroHand"), 2, "mujoco_cpu", "cpu")
    away = task.state["object_init_state"].clone()
    away[:, 1] = 0.5  # behind the wrist
    task.reset(torch.ones(2, dtype=torch.bool), {**task.default_state, "object_state": away}, {})
    lower, upper = task.constants["shadow_hand_dof_lower_limits"], task.constants["shadow_hand_dof_upper_limits"]
    target = (0.7 * lower + 0.3 * upper).repeat(2, 1)
    for step in range(9):
        task.step(target)
        if step == 5:  # 0.2 s
            seconds = 6 * task.dt
            assert task.state["object_linvel"][0, 2].item() == pytest.approx(-9.81 * seconds, rel=1e-3)
            assert task.state["object_pos"][0, 2].item() == pytest.approx(0.56 - 9.81 / 2 * seconds**2, abs=0.01)
    for _ in range(60):
        task.step(target)
    torch.testing.assert_close(task.state["dof_pos"], target, atol=2e-3, rtol=0)
    assert task.state["object_pos"][0, 2].item() == pytest.approx(0.0325, abs=2e-3)
    weight = 400 * 0.065**3 * 9.81
    assert task.state["contact_forces"][0, 17, 2].item() == pytest.approx(weight, rel=0.02)


def test_cupped_hand_holds_the_cube():
    task = find_spec("AllegroHand").make(shipped("AllegroHand"), 32, "mujoco_cpu", "cpu")
    torch.manual_seed(0)
    begin(task, baseline("AllegroHand", "unshaped"))
    lower, upper = task.constants["shadow_hand_dof_lower_limits"], task.constants["shadow_hand_dof_upper_limits"]
    share = torch.tensor(3 * [0.5, 0.2, 0.2, 0.2] + [0.8, 0.6, 0.4, 0.4])
    for _ in range(60):
        task.step((lower + share * (upper - lower)).repeat(32, 1))
    held = ~baseline("AllegroHand", "unshaped")("compute_terminal", whole_state(task))
    assert held.float().mean() > 0.8
    fingers = task.state["contact_forces"][:, :17].sum(1)[held]  # what they feel is the cube's weight
    assert fingers[:, 2].median().item() == pytest.approx(-400 * 0.065**3 * 9.81, rel=0.2)


# shipped candidates


def random_cubes(n=64):
    """Cubes and goals anywhere, turned anyhow and moving."""
    task = fake("AllegroHand", n)
    torch.manual_seed(0)
    begin(task, baseline("AllegroHand", "human"))
    task.state["object_state"][:, 7:].normal_()
    task.state["fingertip_pos"].normal_()
    return task


def test_corner_distance_matches_eight_corner_points():
    task = random_cubes()
    _, parts = candidate("AllegroHand", "000_corners")("compute_reward", whole_state(task))
    corners = 0.0325 * torch.cartesian_prod(*3 * [torch.tensor([-1.0, 1.0])])

    def placed(which):
        pos, quat = task.state[f"{which}_pos"], task.state[f"{which}_rot"]
        return pos.unsqueeze(1) + quat_apply(quat.unsqueeze(1).expand(-1, 8, 4), corners.expand(len(pos), 8, 3))

    squares = (placed("object") - placed("goal")).square().sum(2).mean(1)
    torch.testing.assert_close(parts["near"], -20.0 * squares.sqrt())


def test_turn_reward_is_proportional_to_the_angle_reduced(hands):
    """90 degrees about z turning back at 2 rad/s; 5 degrees turning away; half a turn about x."""
    hands.state["object_angvel"][:] = torch.tensor([[0.0, 0, -2], [0, 0, 2], [1, 0, 0]])
    _, parts = candidate("AllegroHand", "001_turn_towards")("compute_reward", whole_state(hands))
    step = hands.constants["dt"].item()
    assert parts["towards"][:2].tolist() == pytest.approx([40 * 2 * step, -40 * 2 * step], rel=1e-4)
    assert parts["goal"].tolist() == [0.0, 250.0, 0.0] and abs(parts["towards"][2].item()) < 1e-4


def test_no_velocity_observation_ignores_velocities():
    task, functions = random_cubes(), candidate("AllegroHand", "002_no_velocity")
    before = functions("compute_observation", whole_state(task)).clone()
    task.state["object_state"][:, 7:] += 1.0
    task.state["dof_vel"] += 1.0
    task.state["dof_force_tensor"] += 1.0
    assert before.shape == (64, 50) and torch.equal(functions("compute_observation", whole_state(task)), before)
    human = baseline("AllegroHand", "human")("compute_observation", whole_state(task))
    assert all(bool((human == column.unsqueeze(1)).all(0).any()) for column in before.T)  # 50 of its 88


def test_cube_view_observation_ignores_the_quaternion_sign():
    task, functions = random_cubes(), candidate("AllegroHand", "003_cube_view")
    before = functions("compute_observation", whole_state(task)).clone()
    task.state["object_rot"].neg_()
    torch.testing.assert_close(functions("compute_observation", whole_state(task)), before, atol=1e-4, rtol=0)


def test_relative_targets_hold_at_zero_action_and_stay_in_range():
    task, functions = fake("AllegroHand", 3), candidate("AllegroHand", "004_relative_targets")
    task.state["prev_targets"][:] = torch.tensor([[0.5], [0.99], [-0.3]])
    action = torch.tensor([[0.0], [1.0], [-1.0]]).expand(3, 16)
    target = functions("compute_dof_target", whole_state(task), action)
    stroke = 0.2 * 20.0 * task.dt
    torch.testing.assert_close(target, torch.tensor([[0.5], [1.0], [-0.3 - stroke]]).expand(3, 16))


@pytest.mark.slow
def test_half_of_cupped_hand_episodes_begin_cupped_and_hold_the_cube_more_often():
    task = find_spec("AllegroHand").make(shipped("AllegroHand"), 256, "mujoco_cpu", "cpu")
    torch.manual_seed(0)
    begin(task, candidate("AllegroHand", "005_cupped_hand"))
    bent = task.state["dof_pos"][:, 12] > 1.0  # the thumb, turned to the palm side
    assert 0.4 < bent.float().mean() < 0.6
    start = task.state["dof_pos"].clone()
    for _ in range(30):
        task.step(start)
    held = ~baseline("AllegroHand", "human")("compute_terminal", whole_state(task))
    assert held[bent].float().mean() > 0.9 > held[~bent].float().mean()


def test_half_of_near_goals_are_near():
    task = fake("AllegroHand", 2000)
    torch.manual_seed(0)
    begin(task, baseline("AllegroHand", "human"))
    goal = candidate("AllegroHand", "006_near_goals")("compute_goal", whole_state(task))["goal_rot"]
    torch.testing.assert_close(goal.norm(dim=1), torch.ones(2000))
    angle = quat_diff_rad(task.state["object_rot"], goal)
    assert 0.5 < (angle < 1.06).float().mean() < 0.6 and angle.min() > 0.1 and angle.max() > 3.0


def test_drop_ends_terminates_and_penalizes_leaving_the_hand(hands):
    hands.state["object_pos"][1, 2] -= 0.11
    functions, state = candidate("AllegroHand", "007_drop_ends"), whole_state(hands)
    assert functions("compute_terminal", state).tolist() == [False, True, False]
    _, parts = functions("compute_reward", state)
    assert parts["leaving"].tolist() == [0.0, -50.0, 0.0] and parts["in_hand"][0].item() == pytest.approx(0.7, rel=1e-3)


def test_bound_names_run_as_a_script():
    functions = candidate("AllegroHand", "008_bound_names")
    assert isinstance(functions.candidate.functions["compute_reward"].call, torch.jit.ScriptFunction)
    task = random_cubes()
    reward, parts = functions("compute_reward", whole_state(task))
    by_angle = quat_diff_rad(task.state["object_rot"], task.state["goal_rot"])
    torch.testing.assert_close(parts["rotation"], 4.0 * torch.exp(-by_angle / 0.5))
    assert reward.shape == (64,)
