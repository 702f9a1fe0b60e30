"""The Panda's model against its sources, its controller against mechanics, and stacks that are really built."""

import mujoco
import numpy as np
import pytest
import torch
from stacking_script import LIFT, RELEASE, StackingScript
from task_helpers import baseline, begin, candidate, shipped, whole_state

from envcoder_bench.sources.registry import find_spec
from envcoder_bench.torch_utils import quat_axis, quat_rotate, quat_rotate_inverse

pytestmark = pytest.mark.slow

TABLE, ON_B = 1.025, 1.025 + 0.07 + 0.025
DEFAULT = [0, 0.1963, 0, -2.6180, 0, 2.9416, 0.7854, 0.035, 0.035]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(find_spec("FrankaCubeStack").model_path))


def moved(num_envs=4, **env):
    """A task whose arms take efforts, in the human baseline's first states."""
    cfg = shipped("FrankaCubeStack")
    cfg["env"].update(env)
    task = find_spec("FrankaCubeStack").make(cfg, num_envs, "mujoco_cpu", "cpu")
    task.set_drive_mode(torch.ones(num_envs, dtype=torch.bool))
    torch.manual_seed(0)
    begin(task, baseline("FrankaCubeStack", "human"))
    return task


# the model


def test_masses_and_inertias_match_the_sources(model):
    """In kg: Gaz et al. 2019 for the links; the hand, 0.73 kg, is part of link 7."""
    links = [4.970684, 0.646926, 3.228604, 3.587895, 1.225946, 1.666555, 0.735522 + 0.73]
    assert model.body_mass[1:8].tolist() == pytest.approx(links)
    assert model.body_mass[8:].tolist() == pytest.approx([0.015, 0.015, 0.125, 0.343])
    assert model.body("cubeA").inertia.tolist() == pytest.approx([0.125 * 0.05**2 / 6] * 3)
    assert model.body_gravcomp[1:].tolist() == [1.0] * 9 + [0.0, 0.0]


def inertia_about(mass, centre, inertia, point):
    d = np.asarray(centre) - point
    return inertia + mass * (d @ d * np.eye(3) - np.outer(d, d))


def test_link_7_inertia_combines_link_and_hand(model):
    link = np.array([[12.516, -0.428, -1.196], [-0.428, 10.027, -0.741], [-1.196, -0.741, 4.815]]) * 1e-3
    link_centre, hand_centre = np.array([1.0517e-2, -4.252e-3, 6.1597e-2]), np.array([-0.01, 0, 0.03])
    c = np.sqrt(0.5)
    turn = np.array([[c, c, 0], [-c, c, 0], [0, 0, 1]])  # the hand, by -45 degrees about z
    hand_centre = np.array([0, 0, 0.107]) + turn @ hand_centre
    centre = (0.735522 * link_centre + 0.73 * hand_centre) / 1.465522
    both = inertia_about(0.735522, link_centre, link, centre)
    both += inertia_about(0.73, hand_centre, turn @ np.diag([0.001, 0.0025, 0.0017]) @ turn.T, centre)
    body, rotation = model.body("panda_link7"), np.zeros(9)
    mujoco.mju_quat2Mat(rotation, body.iquat)
    rotation = rotation.reshape(3, 3)
    np.testing.assert_allclose(body.ipos, centre, atol=1e-7)
    np.testing.assert_allclose(rotation @ np.diag(body.inertia) @ rotation.T, both, atol=1e-7)


def test_hand_pose_matches_the_panda_kinematics(model):
    """Denavit-Hartenberg parameters: at zero angles the flange is 0.088 m ahead and 0.926 m above the base."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    base = np.array([-0.45, 0.0, 1.125])
    grip, left, right = data.site_xpos - base
    flange = np.array([0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107])
    np.testing.assert_allclose(grip, flange - [0, 0, 0.1025], atol=1e-7)  # it hangs down there
    np.testing.assert_allclose((left + right) / 2, grip, atol=1e-7)
    data.qpos[:9] = DEFAULT
    mujoco.mj_kinematics(model, data)
    opening = np.linalg.norm(data.site_xpos[1] - data.site_xpos[2])
    assert opening == pytest.approx(0.07 + 2 * 0.0015)
    inner = [data.geom(f"{side}finger").xpos for side in ("left", "right")]
    assert np.linalg.norm(inner[0] - inner[1]) - 2 * 0.00715 == pytest.approx(0.07)  # between the fingers' faces


def test_joint_ranges_and_efforts_match_the_urdf(model):
    lower = [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973, 0, 0]
    upper = [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973, 0.04, 0.04]
    assert model.jnt_range[:9].T.tolist() == [pytest.approx(lower), pytest.approx(upper)]
    assert model.actuator_forcerange[:, 1].tolist() == [87] * 4 + [12] * 3 + [20] * 2
    table, cube = model.geom("table"), model.geom("cubeB")
    assert table.pos[2] == TABLE and cube.size.tolist() == [0.035] * 3


def test_collision_pairs_are_as_required(model):
    def touch(a, b):
        a, b = model.geom(a), model.geom(b)
        return bool((a.contype[0] & b.conaffinity[0]) | (b.contype[0] & a.conaffinity[0]))

    gripper, cubes = ("hand", "leftfinger", "rightfinger"), ("cubeA", "cubeB")
    assert touch(*cubes) and all(touch("table", x) for x in gripper + cubes)
    assert all(touch(x, cube) for x in gripper for cube in cubes)
    assert not any(touch(a, b) for a in gripper for b in gripper)
    assert not any(touch(a, b) for a in ("link0", "stand") for b in (*gripper, *cubes, "table"))


def test_alternating_limit_torques_keep_the_arm_stable():
    task = moved(num_envs=24)
    limits, generator = task.constants["franka_effort_limits"], torch.Generator().manual_seed(0)
    for step in range(150):
        if step % 10 == 0:
            torque = limits * torch.sign(torch.randn(24, 9, generator=generator))
        task.step(torque)
        assert not bool(task.unstable.any())
        assert task.state["dof_vel"].abs().max() < 60.0  # 40 was met, and with less damping 430


# the human baseline's controller


def torque_of(task, action):
    return baseline("FrankaCubeStack", "human")("compute_torque", whole_state(task), action)


def test_controller_produces_the_commanded_hand_acceleration():
    """J M^-1 torque is kp * offset from rest: the null-space term does not accelerate the hand."""
    task = moved(num_envs=16, frankaDofNoise=0.2)
    generator = torch.Generator().manual_seed(1)
    action = 0.1 * (2.0 * torch.rand(16, 7, generator=generator) - 1.0)
    torque = torque_of(task, action)[:, :7].double()
    jacobian, mass = task.state["jacobian"].double(), task.state["mass_matrix"].double()
    got = (jacobian @ torch.linalg.solve(mass, torque.unsqueeze(-1))).squeeze(-1)
    want = 150.0 * action[:, :6].double() * task.constants["cmd_limit"]
    free = (torque.abs() < 0.99 * task.constants["franka_effort_limits"][:7]).all(dim=1)
    assert free.sum() >= 12
    torch.testing.assert_close(got[free], want[free], rtol=0.02, atol=0.02)


def test_zero_action_at_the_default_pose_gives_zero_torque():
    task = moved(frankaDofNoise=0.0)
    action = torch.zeros(4, 7)
    assert torque_of(task, action)[:, :7].abs().max() < 1e-3
    posture = moved(frankaDofNoise=0.2)
    torque = torque_of(posture, action)[:, :7]
    limits = posture.constants["franka_effort_limits"][:7]
    assert torque.abs().max() > 0.1 and bool((torque.abs() <= limits).all())
    for _ in range(60):
        posture.step(torque_of(posture, action))
    moved_by = (posture.state["eef_pos"] - posture.state["eef_pos"][:1]).norm(dim=1).max()
    assert moved_by > 0.05  # the pose differs, the hands were not drawn together


def test_hand_moves_along_the_action_and_keeps_its_orientation():
    task = moved(num_envs=6, frankaDofNoise=0.0)
    start, quat = task.state["eef_pos"].clone(), task.state["eef_quat"].clone()
    action = torch.zeros(6, 7)
    action[torch.arange(6), torch.tensor([0, 0, 1, 1, 2, 2])] = torch.tensor([0.5, -0.5] * 3)
    for _ in range(30):
        task.step(torque_of(task, action))
    way = task.state["eef_pos"] - start
    along = (way * action[:, :3]).sum(dim=1) / 0.5
    sideways = way - 2.0 * along.unsqueeze(1) * action[:, :3]
    # at kp / kd times the offset of 0.05 m it would go 0.306 m/s; the joints' damping, of which the controller does not
    # know, slows it down and turns it aside
    assert bool((along > 0.08).all()) and bool((along < 0.5 * 0.306).all())
    assert bool((sideways.norm(dim=1) < 0.2 * along).all())
    assert bool(((task.state["eef_quat"] * quat).sum(dim=1).abs() > 0.999).all())


def test_stretched_arm_gets_finite_torques():
    task = moved(num_envs=2)
    stretched = torch.tensor([0.0, 0.6, 0.0, -0.0698, 0.0, 0.8, 0.0, 0.03, 0.03]).repeat(2, 1)
    everywhere = torch.ones(2, dtype=torch.bool)
    task.reset(everywhere, {**task.default_state, "dof_pos": stretched}, {})
    ahead = torch.tensor([[1.0, 0, 0, 0, 0, 0, 1.0]]).repeat(2, 1)
    for _ in range(60):
        torque = torque_of(task, ahead)
        assert bool((torque.abs() <= task.constants["franka_effort_limits"] + 1e-4).all())
        task.step(torque)
    assert not bool(task.unstable.any()) and task.state["dof_vel"].abs().max() < 30.0


# stacks


def placed(task, a, b, dof_pos=None):
    """Begin with the cubes at these places, ``(3,)`` each, everywhere."""
    start = {key: x.clone() for key, x in task.default_state.items()}
    start["cubeA_state"][:, :3], start["cubeB_state"][:, :3] = torch.tensor(a), torch.tensor(b)
    if dof_pos is not None:
        start["dof_pos"][:] = torch.tensor(dof_pos)
    task.reset(torch.ones(task.num_envs, dtype=torch.bool), start, {})


def play(task, action, steps):
    """Fitness of an episode's first steps with one action, ``(num_envs,)``."""
    score = torch.zeros(task.num_envs)
    for _ in range(steps):
        task.step(torque_of(task, action))
        score += task.fitness(task.state)
    return score


OPENED, CLOSED = (torch.tensor([[0.0] * 6 + [grip]]) for grip in (1.0, -1.0))


def test_cube_on_the_other_counts_as_stacked_and_one_beside_does_not():
    task = moved(num_envs=1)
    placed(task, (0.2, 0.1, ON_B + 0.003), (0.2, 0.1, 1.06))  # 3 mm above
    assert play(task, OPENED, 30).tolist() == [1.0]
    a, weights = task.state["cubeA_state"], task.state["contact_forces"][0, 9:, 2]
    assert a[0, 7:].abs().max() < 1e-2 and weights.tolist() == pytest.approx([0.125 * 9.81, 0.343 * 9.81], rel=0.02)
    for beside in ((0.2, -0.1, 1.05), (0.24, 0.1, ON_B)):  # on the table; over the edge, from where it falls
        placed(task, beside, (0.2, 0.1, 1.06))
        assert play(task, OPENED, 40).tolist() == [0.0]


def test_scripted_policy_stacks_through_the_human_baselines_actions():
    num_envs, least = 16, 15
    task = moved(num_envs, startPositionNoise=0.2, frankaDofNoise=0.1)
    script, score = StackingScript(num_envs), torch.zeros(num_envs)
    human, paid = baseline("FrankaCubeStack", "human"), torch.zeros(num_envs, dtype=torch.bool)
    for _ in range(240):
        action = script(whole_state(task))
        task.step(human("compute_torque", whole_state(task), action))
        score += task.fitness(task.state)
        state = whole_state(task)
        paid |= human("compute_reward", state)[0] == 16.0
        assert not bool(task.unstable.any())
        assert bool((task.state["stacked"][script.phase < RELEASE] == 0).all()), "still held"
    assert bool(((score == 0) | (score == 1)).all())
    assert int((score == 1).sum()) >= least and int(paid.sum()) >= least
    assert bool((task.state["stacked"] == (score > 0)).all())


def test_grasped_cube_does_not_slip():
    """Lifted and shaken, the cube moves less than 2 mm relative to the hand."""
    task = moved(num_envs=8, startPositionNoise=0.15, frankaDofNoise=0.0)
    script, human = StackingScript(8), baseline("FrankaCubeStack", "human")
    for _ in range(150):
        script.phase.clamp_(max=LIFT)
        task.step(human("compute_torque", whole_state(task), script(whole_state(task))))
    state = task.state
    assert bool((script.phase >= LIFT).all()) and bool((state["cubeA_pos"][:, 2] > TABLE + 0.1).all())
    before = quat_rotate_inverse(state["eef_quat"], state["cubeA_pos_relative"])
    for k in range(60):
        action = torch.zeros(8, 7)
        action[:, k // 6 % 3] = 1.0 if k % 6 < 3 else -1.0
        action[:, 6] = -1.0
        task.step(torque_of(task, action))
    after = quat_rotate_inverse(state["eef_quat"], state["cubeA_pos_relative"])
    assert (after - before).norm(dim=1).max() < 2e-3


# the shipped candidates


def test_half_of_the_episodes_begin_with_the_cube_in_hand():
    functions = candidate("FrankaCubeStack", "005_half_in_hand")
    task = moved(num_envs=200)
    begin(task, functions)
    held = task.state["cubeA_pos_relative"].norm(dim=1) < 1e-3
    assert 75 < int(held.sum()) < 125 and bool((task.state["cubeA_pos"][~held, 2] < TABLE + 0.026).all())
    along = (quat_axis(task.state["cubeA_quat"], 2) * quat_axis(task.state["eef_quat"], 2)).sum(dim=1)
    assert bool((along[held].abs() > 0.9999).all())  # the cube's axis is the hand's
    for _ in range(20):
        task.step(torque_of(task, CLOSED))
    assert bool((task.state["cubeA_pos"][held, 2] > TABLE + 0.15).all())


def test_from_above_turns_the_hand_down_and_keeps_it_there():
    functions, task = candidate("FrankaCubeStack", "004_from_above"), moved(num_envs=8)
    generator, down = torch.Generator().manual_seed(0), torch.tensor([0.0, 0.0, -1.0])
    for step in range(90):
        action = 0.5 * torch.randn(8, 5, generator=generator).clamp(-1.0, 1.0)
        task.step(functions("compute_torque", whole_state(task, 5), action))
        fingers = quat_rotate(task.state["eef_quat"], torch.tensor([[0.0, 0.0, 1.0]]).repeat(8, 1))
        tilt = torch.acos((fingers * down).sum(dim=1).clamp(-1.0, 1.0))
        assert (step < 30 or tilt.max() < 0.15) and (step > 0 or tilt.max() > 0.2)


@pytest.mark.parametrize(("stem", "function"), [("002_joint_targets", "dof_target"), ("003_joint_torque", "torque")])
def test_zero_action_keeps_the_arm_in_place(stem, function):
    functions, task = candidate("FrankaCubeStack", stem), moved(num_envs=4)
    task.set_drive_mode(torch.full((4,), function == "torque"))
    start = task.state["q"].clone()
    for _ in range(60):
        task.step(functions(f"compute_{function}", whole_state(task, 8), torch.zeros(4, 8)))
    assert (task.state["q"] - start)[:, :7].abs().max() < 0.01
    assert function == "torque" or bool((task.state["q_gripper"] > 0.039).all())  # 0 opens
