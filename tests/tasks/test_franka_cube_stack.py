"""FrankaCubeStack against IsaacGymEnvs' formulas by hand, over a fake simulator."""

import math

import pytest
import torch
from task_helpers import baseline, begin, candidate, fake, shipped, whole_state

from envcoder_bench.sources.registry import find_spec

TABLE, REST_A, REST_B = 1.025, 1.025 + 0.025, 1.025 + 0.035  # m, the table's surface and the cubes' centres on it
ON_B = TABLE + 0.07 + 0.025
WEIGHT_A, WEIGHT_B = 0.125 * 9.81, 0.343 * 9.81


def scene(n=1, a=(0.1, -0.1, REST_A), b=(0.1, 0.1, REST_B), eef=(0.0, 0.0, 1.3)):
    """Cubes and grip site at rest at these places, each fingertip 3 cm to the side of the grip site."""
    task = fake("FrankaCubeStack", n)
    put(task, a, b, eef)
    return task


def put(task, a, b, eef, row=slice(None)):
    sites = task.sim.site_states
    for state, place in ((task.state["cubeA_state"], a), (task.state["cubeB_state"], b), (sites[:, 0], eef)):
        state[row, :3] = torch.tensor(place)
    for site, side in ((1, 0.03), (2, -0.03)):
        sites[row, site, :3] = torch.tensor(eef) + torch.tensor([0.0, side, 0.0])
    refresh(task)


def refresh(task):
    task.reset(torch.zeros(task.num_envs, dtype=torch.bool), {"dof_vel": task.state["dof_vel"]}, {})


def stack(n=1):
    """A stack that stands, the hand 13 cm above it."""
    return scene(n, (0.1, 0.1, ON_B), (0.1, 0.1, REST_B), (0.1, 0.1, ON_B + 0.13))


def idle(task, steps=1):
    for _ in range(steps):
        task.step(torch.zeros(task.num_envs, task.num_dofs))


def test_gains_and_indices_match_isaacgymenvs():
    task = fake("FrankaCubeStack")
    for key, x in {"kp": 150.0, "kd": 2 * math.sqrt(150), "kp_null": 10.0, "kd_null": 2 * math.sqrt(10)}.items():
        assert task.constants[key].tolist() == pytest.approx([x] * (7 if "null" in key else 6))
    assert task.constants["cmd_limit"].tolist() == pytest.approx([0.1] * 3 + [0.5] * 3)
    bodies = [task.body_names[k] for k in (*task.constants["finger_indices"], task.constants["hand_index"])]
    assert bodies == ["panda_leftfinger", "panda_rightfinger", "panda_link7"]


def test_isaacgymenvs_yaml_is_accepted_with_a_warning_about_unused_keys():
    cfg = shipped("FrankaCubeStack")
    env = dict(numEnvs=8192, envSpacing=1.5, enableDebugVis=False, frankaPositionNoise=0.0, frankaRotationNoise=0.0)
    env.update(aggregateMode=3, controlType="osc", enableCameraSensors=False, asset={"assetRoot": "../../assets"})
    sim = dict(up_axis="z", use_gpu_pipeline=True, gravity=[0.0, 0.0, -9.81], physx={"num_threads": 4})
    full = {**cfg, "physics_engine": "physx", "env": {**cfg["env"], **env}, "sim": {**cfg["sim"], **sim}}
    with pytest.warns(UserWarning, match="have no effect here: .*frankaPositionNoise.*aggregateMode.*controlType"):
        assert find_spec("FrankaCubeStack").make(full, 1, "mujoco_cpu", "cpu").max_episode_length == 300


def test_other_control_type_is_refused_with_the_matching_candidate():
    cfg = shipped("FrankaCubeStack")
    cfg["env"]["controlType"] = "joint_tor"
    with pytest.raises(ValueError, match=r"env\.controlType is 'joint_tor'.*003_joint_torque\.py"):
        type(fake("FrankaCubeStack"))(cfg, fake("FrankaCubeStack").sim)


def test_state_equals_the_simulator_tensors():
    task = scene(2)
    sim = task.sim
    assert (sim.object_names, sim.site_names[0]) == (["cubeA_state", "cubeB_state"], "grip_site")
    sim.site_states.copy_(torch.arange(2 * 3 * 13.0).view(2, 3, 13))
    sim.object_states.copy_(torch.arange(2 * 2 * 13.0).view(2, 2, 13).sqrt())
    state = task.state
    for key, live in {
        "eef_pos": sim.site_states[:, 0, :3], "eef_quat": sim.site_states[:, 0, 3:7],
        "eef_vel": sim.site_states[:, 0, 7:], "eef_lf_pos": sim.site_states[:, 1, :3],
        "eef_rf_pos": sim.site_states[:, 2, :3],
        "cubeA_pos": sim.object_states[:, 0, :3], "cubeA_quat": sim.object_states[:, 0, 3:7],
        "cubeB_pos": sim.object_states[:, 1, :3], "cubeB_quat": sim.object_states[:, 1, 3:7],
        "q": sim.dof_pos, "q_gripper": sim.dof_pos[:, 7:], "jacobian": sim.jacobian[:, :, :7],
        "mass_matrix": sim.mass_matrix[:, :7, :7],
    }.items():  # fmt: skip
        assert torch.equal(state[key], live), key
    idle(task)
    assert torch.equal(state["cubeA_pos_relative"], state["cubeA_pos"] - state["eef_pos"])
    assert torch.equal(state["cubeA_to_cubeB_pos"], state["cubeB_pos"] - state["cubeA_pos"])


# success


def test_stack_is_counted_once_per_episode():
    task = stack(2)
    scores = []
    for _ in range(20):
        idle(task)
        scores.append(task.fitness(task.state)[0].item())
    assert task.fitness_reduction == "sum" and sum(scores) == 1.0 and scores[4] == 1.0
    assert task.state["stacked"].tolist() == [1.0, 1.0] and task.state["stand_steps"][0] == 20
    put(task, (0.1, -0.1, REST_A), (0.1, 0.1, REST_B), (0.0, 0.0, 1.3))  # it falls, and is built again
    idle(task, 3)
    assert task.state["stand_steps"].tolist() == [0.0, 0.0] and task.state["stacked"].tolist() == [1.0, 1.0]
    put(task, (0.1, 0.1, ON_B), (0.1, 0.1, REST_B), (0.1, 0.1, ON_B + 0.13))
    for _ in range(10):
        idle(task)
        assert task.fitness(task.state).sum() == 0.0


def test_reset_clears_success_only_in_masked_environments():
    task = stack(2)
    idle(task, 8)
    task.reset(torch.tensor([True, False]), {"dof_pos": task.state["dof_pos"]}, {})
    assert task.state["stacked"].tolist() == [0.0, 1.0] and task.state["stand_steps"].tolist() == [0.0, 8.0]
    scores = torch.zeros(2)
    for _ in range(10):
        idle(task)
        scores += task.fitness(task.state)
    assert scores.tolist() == [1.0, 0.0]


def test_new_goal_alone_keeps_the_stand_steps():
    task = stack(1)
    idle(task, 3)
    task.reset(torch.ones(1, dtype=torch.bool), {}, {})
    assert task.state["stand_steps"].tolist() == [3.0]


def spoil(task, how):
    a, b, forces = task.state["cubeA_state"], task.state["cubeB_state"], task.state["contact_forces"]
    if how == "not over B":
        a[:, 0] += 0.021
    elif how == "above B":
        a[:, 2] += 0.021
    elif how == "in B":
        a[:, 2] -= 0.021
    elif how == "gripper at it":
        task.sim.site_states[:, 0, 2] = ON_B + 0.039
    elif how == "a finger touches":
        forces[:, 8, 1] = 0.2
    elif how == "the hand touches":
        forces[:, 6, 0] = -0.2
    elif how == "A falls":
        a[:, 9] = -0.06
    elif how == "B slides":
        b[:, 7] = 0.06
    elif how == "A turns":
        a[:, 10] = 0.6
    elif how == "B turns":
        b[:, 12] = -0.6
    refresh(task)


HOW = ["not over B", "above B", "in B", "gripper at it", "a finger touches", "the hand touches", "A falls", "B slides"]


@pytest.mark.parametrize("how", [*HOW, "A turns", "B turns"])
def test_invalid_stacks_are_not_counted(how):
    task = stack(1)
    spoil(task, how)
    idle(task, 10)
    assert task.state["stand_steps"].item() == 0.0 and task.state["stacked"].item() == 0.0


def test_stack_within_all_tolerances_is_counted():
    """All values are just within their tolerance, with the weights of the cubes as contact forces."""
    task = stack(1)
    a, b = task.state["cubeA_state"], task.state["cubeB_state"]
    a[0, 0] += 0.019
    a[0, 2] -= 0.019
    a[0, 7:] = torch.tensor([0.02, 0.02, 0.02, 0.2, 0.2, 0.2])
    b[0, 7:] = torch.tensor([0.02, -0.02, 0.02, 0.2, 0.2, -0.2])
    task.state["contact_forces"][0, 9, 2] = WEIGHT_A
    task.state["contact_forces"][0, 10, 2] = WEIGHT_B
    task.state["contact_forces"][0, 7, 2] = 0.09
    refresh(task)
    idle(task, 5)
    assert task.state["stacked"].item() == 1.0


def test_stack_must_stand_for_consecutive_steps():
    task = stack(1)
    for _ in range(5):
        idle(task, 4)
        task.state["contact_forces"][0, 7, 2] = 1.0
        idle(task)
        task.state["contact_forces"][0, 7, 2] = 0.0
    assert task.state["stacked"].item() == 0.0
    idle(task, 5)
    assert task.state["stacked"].item() == 1.0


# the human baseline


def reward_of(task):
    reward, components = baseline("FrankaCubeStack", "human")("compute_reward", whole_state(task))
    return reward[0].item(), {key: x[0].item() for key, x in components.items()}


def test_human_reward_near_the_cube_matches_hand_computed_values():
    task = scene(a=(0.1, 0.0, REST_A), eef=(0.1, 0.0, REST_A + 0.04))
    near = 1 - math.tanh(10 * (0.04 + 0.05 + 0.05) / 3)  # grip site 4 cm above, fingertips 3 cm to the sides of that
    reward, components = reward_of(task)
    assert components == pytest.approx({"dist": 0.1 * near, "lift": 0.0, "align": 0.0, "stack": 0.0}, abs=1e-6)
    assert reward == pytest.approx(0.1 * near, abs=1e-6)


def test_human_reward_for_lifting_matches_hand_computed_values():
    task = scene(a=(0.1, 0.0, TABLE + 0.15), b=(0.1, 0.03, REST_B), eef=(0.1, 0.0, TABLE + 0.15))
    near = 1 - math.tanh(10 * 0.06 / 3)
    aligned = 1 - math.tanh(10 * math.hypot(0.03, 0.15 - 0.035 - 0.06))
    reward, components = reward_of(task)
    by_hand = {"dist": 0.1 * max(near, aligned), "lift": 1.5, "align": 2.0 * aligned, "stack": 0.0}
    assert components == pytest.approx(by_hand, abs=1e-5) and reward == pytest.approx(sum(by_hand.values()), abs=1e-5)
    for height, lifted in ((0.089, 0.0), (0.091, 1.5)):  # its own edge and 4 cm
        task.state["cubeA_state"][:, 2] = TABLE + height
        refresh(task)
        assert reward_of(task)[1]["lift"] == lifted


def test_human_stack_reward_replaces_the_other_terms():
    reward, components = reward_of(stack(1))
    assert reward == 16.0 and components["stack"] == 16.0 and components["lift"] == 1.5


@pytest.mark.parametrize("away", [0.002, 0.008, 0.015, 0.039])
def test_human_reward_does_not_decrease_on_release(away):
    """Release pays less the nearer the gripper is; holding the cube is then the maximum."""
    rewards = []
    for force in (20.0, 0.0):
        task = scene(1, (0.1, 0.1, ON_B), (0.1, 0.1, REST_B), (0.1, 0.1, ON_B + away))
        task.state["contact_forces"][:, 7:9, 1] = force
        rewards.append(reward_of(task)[0])
    held, free = rewards
    assert 3.0 < held < 3.6 and free == pytest.approx(max(held, 16.0 * away / 0.04), abs=1e-3)


HELD = ("a finger touches", "the hand touches")


@pytest.mark.parametrize("how", [*HOW, "nothing"])
def test_human_reward_pays_released_stacks_and_has_no_terminal(how):
    """Unlike the fitness, it requires neither rest nor a gripper 4 cm away."""
    task = stack(1)
    spoil(task, how)
    stands = how in ("A falls", "B slides", "nothing")
    assert (reward_of(task)[0] == 16.0) == stands
    assert (reward_of(task)[1]["stack"] > 0.0) == (stands or how == "gripper at it")
    assert "compute_terminal" not in baseline("FrankaCubeStack", "human").candidate.functions


@pytest.mark.parametrize("how", [*HOW, "nothing"])
def test_ends_with_a_stack_candidate_uses_isaacgymenvs_stack_condition(how):
    task = stack(1)
    spoil(task, how)
    original = candidate("FrankaCubeStack", "007_ends_with_a_stack")
    reward, components = original("compute_reward", whole_state(task))
    stands = how in (*HELD, "A falls", "B slides", "nothing")
    assert original("compute_terminal", whole_state(task)).tolist() == [stands]
    assert (reward.item() == 16.0) == (components["stack"].item() == 16.0) == stands
    if not stands:  # the other terms are the human baseline's
        ours = reward_of(task)
        assert {key: components[key].item() for key in ("dist", "lift", "align")} == pytest.approx(
            {key: ours[1][key] for key in ("dist", "lift", "align")}, abs=1e-6
        )
        assert reward.item() == pytest.approx(sum(x.item() for x in components.values()), abs=1e-6)


def test_human_observation_matches_hand_computed_values():
    task = scene(a=(0.1, -0.2, REST_A), b=(0.2, 0.1, REST_B), eef=(0.05, 0.0, 1.2))
    task.state["cubeA_quat"][:] = torch.tensor([0.0, 0.0, 0.6, 0.8])
    task.state["eef_quat"][:] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    task.state["q"][:] = torch.arange(9) * 0.01
    obs = baseline("FrankaCubeStack", "human")("compute_observation", whole_state(task))
    want = [0, 0, 0.6, 0.8, 0.1, -0.2, REST_A, 0.1, 0.3, 0.01, 0.05, 0, 1.2, 1, 0, 0, 0, 0.07, 0.08]
    assert obs.shape == (1, 19) and obs[0].tolist() == pytest.approx(want, abs=1e-6)


def test_gripper_force_is_bounded_and_towards_its_target():
    task = scene(4)
    task.sim.effort_limits[7:] = 20.0
    task.sim.dof_limits_lower[7:], task.sim.dof_limits_upper[7:] = 0.0, 0.04
    task.state["q"][:, 7:] = torch.tensor([[0.02, 0.03], [0.02, 0.03], [0.039, 0.04], [0.001, 0.0]])
    action = torch.zeros(4, 7)
    action[:, 6] = torch.tensor([0.0, -0.1, 1.0, -1.0])
    torque = baseline("FrankaCubeStack", "human")("compute_torque", whole_state(task), action)
    want = torch.tensor([[20.0, 20.0], [-20.0, -20.0], [5.0, 0.0], [-5.0, 0.0]])
    torch.testing.assert_close(torque[:, 7:], want, atol=1e-4, rtol=0)


def test_singular_jacobian_gives_finite_torques():
    task = scene(2)
    task.sim.jacobian[:, 2] = 0.0  # up and down
    refresh(task)
    action = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]])
    task.state["q"][:, :7] = task.constants["franka_default_dof_pos"][:7]
    torque = baseline("FrankaCubeStack", "human")("compute_torque", whole_state(task), action)
    assert bool(torch.isfinite(torque).all()) and torque[0, :7].abs().max() < 1e-3
    assert torque[1, :7].abs().max() == task.sim.effort_limits[0]


@pytest.mark.parametrize("name", ["human", "unshaped"])
def test_initial_states_are_within_isaacgymenvs_ranges(name):
    """Ranges of IsaacGymEnvs; both cubes are on the table and at least 17 cm apart."""
    task = fake("FrankaCubeStack", 20000)
    task.sim.dof_limits_lower[:], task.sim.dof_limits_upper[:] = -2.8, 3.1
    torch.manual_seed(0)
    begin(task, baseline("FrankaCubeStack", name))
    a, b = task.state["cubeA_state"], task.state["cubeB_state"]
    apart = (a[:, :2] - b[:, :2]).norm(dim=1)
    assert 0.12 * math.sqrt(2) <= apart.min().item() < 0.172
    for cube, height in ((a, REST_A), (b, REST_B)):
        torch.testing.assert_close(cube[:, 2], torch.full((20000,), height))
        assert bool((cube[:, :2].abs() <= 0.25).all()) and bool((cube[:, :2].abs().max(dim=0).values > 0.249).all())
        yaw = 2.0 * torch.atan2(cube[:, 5], cube[:, 6])
        assert 0.78 < yaw.abs().max().item() <= 0.7851 and abs(yaw.mean().item()) < 0.02
        torch.testing.assert_close(cube[:, 3:7].norm(dim=1), torch.ones(20000))
        assert bool((cube[:, 3:5] == 0).all()) and bool((cube[:, 7:] == 0).all())
    in_corner = (a[:, :2].abs() > 0.25 - 1e-6).all(dim=1)  # where nothing else was found
    assert in_corner.float().mean() < 0.002
    assert abs(b[:, :2].mean().item()) < 0.005 and b[:, 0].std().item() == pytest.approx(0.5 / math.sqrt(12), rel=0.02)
    noise = task.state["q"] - task.constants["franka_default_dof_pos"]
    assert bool((noise[:, 7:] == 0).all()) and bool((task.state["dof_vel"] == 0).all())
    clamped = noise[:, [0, 1, 2, 4, 6]].abs()
    assert 0.249 < clamped.max().item() <= 0.2501 and task.state["q"].min() >= -2.8 and task.state["q"].max() <= 3.1


# the unshaped baseline


def test_unshaped_functions_are_raw_and_have_no_terminal():
    functions, task = baseline("FrankaCubeStack", "unshaped"), stack(2)
    assert "compute_terminal" not in functions.candidate.functions
    idle(task, 5)
    state = whole_state(task, 8)
    assert functions("compute_reward", state).tolist() == [1.0, 1.0]
    idle(task)
    assert functions("compute_reward", whole_state(task)).tolist() == [0.0, 0.0]
    obs = functions("compute_observation", state)
    keys = ("dof_pos", "dof_vel", "eef_pos", "eef_quat", "cubeA_state", "cubeB_state")
    assert torch.equal(obs, torch.cat([task.state[key] for key in keys], dim=1)) and obs.shape == (2, 51)
    action = torch.tensor([[1.0, -1.0, 0.5, 0.0, 0.1, 0.2, 0.3, -0.5]]).repeat(2, 1)
    want = [1.0, -2.0, 1.5, 0.0, 0.5, 1.2, 2.1, -4.0, -4.5]  # the fake's efforts are 1 to 9 N m
    assert functions("compute_torque", state, action)[0].tolist() == pytest.approx(want)


# the shipped candidates


def test_staged_reward_increases_from_stage_to_stage():
    stages = scene(6)
    high, table = TABLE + 0.17, (0.1, 0.1, REST_B)
    put(stages, (0.1, -0.1, REST_A), table, (0.1, -0.1, REST_A + 0.1), row=0)
    put(stages, (0.1, -0.1, REST_A), table, (0.1, -0.1, REST_A), row=1)
    put(stages, (0.1, -0.1, REST_A), table, (0.1, -0.1, REST_A), row=2)
    put(stages, (0.1, -0.1, high), table, (0.1, -0.1, high), row=3)
    put(stages, (0.1, 0.1, high), table, (0.1, 0.1, high), row=4)
    put(stages, (0.1, 0.1, ON_B), table, (0.1, 0.1, ON_B + 0.1), row=5)
    stages.state["contact_forces"][2:5, 7:9, 1] = torch.tensor([-20.0, 20.0])
    idle(stages)
    reward, _ = candidate("FrankaCubeStack", "000_staged")("compute_reward", whole_state(stages))
    assert bool((reward[1:] > reward[:-1] + 0.05).all()), reward


def test_hand_frame_observation_is_invariant_to_scene_rotation():
    """Except for height and the hand's own pose; a quarter turn of the cube does not change it either."""
    functions, task = (
        candidate("FrankaCubeStack", "001_hand_frame"),
        scene(3, (0.1, -0.05, REST_A), (0.2, 0.1, REST_B), (0.05, 0.0, 1.2)),
    )
    half = math.sqrt(0.5)
    task.state["eef_quat"][:] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    put(task, (0.05, 0.1, REST_A), (-0.1, 0.2, REST_B), (0.0, 0.05, 1.2), row=1)  # by a quarter turn about z
    task.state["eef_quat"][1] = torch.tensor([half, half, 0.0, 0.0])
    for row, yaw in enumerate((0.2, 0.2 + math.pi / 2, 0.2 - math.pi / 2)):
        task.state["cubeA_quat"][row, 2:] = torch.tensor([math.sin(yaw / 2), math.cos(yaw / 2)])
    obs = functions("compute_observation", whole_state(task))
    assert obs.shape == (3, 24)
    torch.testing.assert_close(obs[1, :9], obs[0, :9], atol=1e-5, rtol=0)
    torch.testing.assert_close(obs[2, 6:8], obs[0, 6:8], atol=1e-5, rtol=0)


def test_joint_targets_are_near_and_within_the_ranges():
    task = scene(2)
    task.state["q"][:, :7] = torch.tensor([0.5, 0.95, -0.95, 0, 0, 0, 0])
    action = torch.tensor([[1.0, 1.0, -1.0, 0.5, 0, 0, 0, -1.0], [0.0] * 7 + [1.0]])
    target = candidate("FrankaCubeStack", "002_joint_targets")("compute_dof_target", whole_state(task, 8), action)
    assert target[0].tolist() == pytest.approx([0.6, 1.0, -1.0, 0.05, 0, 0, 0, -1.0, -1.0])
    assert target[1, 7:].tolist() == [1.0, 1.0]  # the fake's ranges are -1 to 1


def test_out_of_reach_episodes_terminate():
    task = scene(4)
    put(task, (0.36, 0.1, REST_A), (0.1, 0.1, REST_B), (0.0, 0.0, 1.3), row=1)
    put(task, (-0.31, 0.01, REST_A), (0.1, 0.1, REST_B), (0.0, 0.0, 1.3), row=2)
    put(task, (0.1, 0.1, ON_B), (0.1, 0.1, REST_B), (0.0, 0.0, 1.3), row=3)
    ends = candidate("FrankaCubeStack", "006_out_of_reach_ends")("compute_terminal", whole_state(task))
    assert ends.tolist() == [False, True, True, False]
